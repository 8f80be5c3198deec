"""The judge of views as `pipeline run` keeps it, with hook, metrics and log."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from unisono.pipeline.lake import TAKE_IN, open_table
from unisono.pipeline.session import PipelineError, plain_errors
from unisono.pipeline.storage import Location, place
from unisono.pipeline.views_table import run_violations
from unisono.pipeline.watch import LIMIT_S, LOOK_EVERY_S, Dropping, Tell, await_batch, has_seen, start_watch
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


TellRuns = Callable[[frozenset[str], bool], None]
"""Called with the runs that have failed now, and whether violations of all runs are to be told that have no mark."""
ToldOfRuns = dict[str, set[str]]
"""By run: the violations of whole runs that this process has told. A run may be judged again."""


class JudgedViews:
    """The judge of views at work."""

    def __init__(
        self,
        query: StreamingQuery,
        dropping: Dropping,
        about: str,
        tables: Location,
        tell: TellRuns,
        told: ToldOfRuns,
    ) -> None:
        self._query, self._dropping, self._about = query, dropping, about
        self._tables, self._tell, self._told = tables, tell, told
        self._failed: frozenset[str] = frozenset()
        self._is_first = True  # violations of earlier starts may have no mark yet, nor their views a verdict …
        self._after = self._facts_taken_in()  # … before these facts are judged

    def _facts_taken_in(self) -> int:
        return open_table(self._tables, "facts").transaction(TAKE_IN)

    def require_alive(self) -> None:
        """Raise what has ended the judge."""
        if not self._query.isActive:
            with plain_errors(self._about):
                self._query.awaitTermination()

    def tell_runs(self, failed: frozenset[str]) -> None:
        """Runs that failed as a whole since the last call. What their views have not told is told when these are judged."""
        if failed:
            self._failed |= failed
            self._after = self._facts_taken_in()
        if (self._failed or self._is_first) and has_seen(self._query, self._after):
            self.tell_rest()

    def tell_rest(self) -> None:
        """Tell what no view has told."""
        self._tell(self._failed, self._is_first)
        self._failed, self._is_first = frozenset(), False

    def drop(self, runs: frozenset[str]) -> None:
        """Take runs out of the table `views`, with the marks of their violations, soon."""
        self._dropping.ask(runs)
        for run in runs:
            self._told.pop(run, None)


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
            where = "the whole run" if row["by"] == "run" and not row["view"] else f"view {row['view'] or '?'}"
            log(f"FAIL {row['run']}/{row['group']}, {where}: {row['property']}: {row['sentence']}")
        if hook is not None:
            hook.tell(failures)

    told: ToldOfRuns = {}

    def tell_runs(failed: frozenset[str], is_first: bool) -> None:
        tell_violations_of_runs(tables, failed, is_first, hook, tell, told)

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
            judged = JudgedViews(query, dropping, about, tables, tell_runs, told)
            yield judged
            if once:
                with plain_errors(about):
                    await_batch(query, open_table(tables, "facts").transaction(TAKE_IN))
                judged.tell_rest()
        finally:
            query.stop()
    finally:
        if hook is not None:
            hook.close()
        if metrics is not None:
            metrics.close()


def tell_violations_of_runs(
    tables: Location, failed: frozenset[str], is_first: bool, hook: Hook | None, tell: Tell, told: ToldOfRuns
) -> None:
    """Tell what the verdicts on whole runs say and no view does; `is_first`: of all runs, those `failed` now among them."""
    for row, is_in_views in run_violations(tables, None if is_first else failed):
        if not is_in_views:
            of_run = told.setdefault(row["run"], set())
            if row["id"] not in of_run:
                of_run.add(row["id"])
                tell([row], row["run"] in failed)
        elif hook is not None:
            hook.pass_over(row)
