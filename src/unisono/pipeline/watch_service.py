"""The judge of views as `pipeline run` keeps it, with hook, metrics and log."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from unisono.pipeline.lake import TAKE_IN, open_table
from unisono.pipeline.session import PipelineError, plain_errors
from unisono.pipeline.storage import Location, place
from unisono.pipeline.watch import LIMIT_S, LOOK_EVERY_S, Dropping, await_batch, start_watch
from unisono.pipeline.watch_hooks import Hook, HookMarks, Log, ViewMetrics, address_of, command_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


@dataclass(frozen=True)
class WatchOptions:
    """How views are judged, and what happens when one fails."""

    limit_s: float = LIMIT_S
    """Time limit for the members of a view to leave it, from the first to the last."""
    forget_s: float | None = None
    """How long a group that does not end properly is remembered without new rows; None: 144 limits."""
    every_s: float = LOOK_EVERY_S
    on_fail: str | None = None
    """A command or a URL."""
    metrics: str | None = None
    """HOST:PORT."""
    checkpoint: str | None = None
    """Spark's memory of the stream, on a file system that Spark itself can write to."""

    def require_sound(self, out: Location) -> None:
        """Tell what is wrong with the options before anything is started."""
        self.checkpoint_of(out)
        if self.on_fail is not None:
            command_of(self.on_fail)
        if self.metrics is not None:
            address_of(self.metrics)

    def checkpoint_of(self, out: Location) -> str:
        if self.checkpoint is not None:
            return place(self.checkpoint).uri
        if not out.is_local:
            raise PipelineError(
                f"the tables are at {out}, where Spark may not be able to write its checkpoint: "
                "give --checkpoint a folder that Spark can write to."
            )
        return (out / "_watch").uri


class JudgedViews:
    """The judge of views at work."""

    def __init__(self, query: StreamingQuery, dropping: Dropping, about: str) -> None:
        self._query, self._dropping, self._about = query, dropping, about

    def require_alive(self) -> None:
        """Raise what has ended the judge."""
        if not self._query.isActive:
            with plain_errors(self._about):
                self._query.awaitTermination()

    def drop(self, runs: frozenset[str]) -> None:
        """Take runs out of the table `views`, with the marks of their violations, soon."""
        self._dropping.ask(runs)


@contextmanager
def views_judged(
    spark: SparkSession,
    out: str | Location,
    options: WatchOptions,
    log: Log,
    once: bool = False,
    log_s: float | None = None,
) -> Iterator[JudgedViews]:
    """Judge views while the block runs.

    `once`: the block is empty, and ends when every view for which there are facts was judged.
    """
    tables = place(out)
    checkpoint = options.checkpoint_of(tables)
    hook = None if options.on_fail is None else Hook(options.on_fail, tables, log)
    metrics = None if options.metrics is None else ViewMetrics(options.metrics)

    def tell(rows: list[dict[str, Any]], is_new: bool) -> None:
        failures = [row for row in rows if row["id"] is not None]
        if metrics is not None:
            metrics.count(rows)
        for row in failures if is_new else ():
            log(f"FAIL {row['run']}/{row['group']}, view {row['view'] or '?'}: {row['property']}: {row['sentence']}")
        if hook is not None:
            hook.tell(failures)

    about = f"judging views of {tables}"
    dropping = Dropping(HookMarks(tables).drop)
    try:
        with plain_errors(about):
            query = start_watch(
                spark,
                tables,
                checkpoint,
                limit_s=options.limit_s,
                every_s=options.every_s,
                tell=tell,
                forget_s=options.forget_s,
                dropping=dropping,
                log_s=log_s,
            )
        try:
            yield JudgedViews(query, dropping, about)
            if once:
                with plain_errors(about):
                    await_batch(query, open_table(tables, "facts").transaction(TAKE_IN))
        finally:
            query.stop()
    finally:
        if hook is not None:
            hook.close()
        if metrics is not None:
            metrics.close()
