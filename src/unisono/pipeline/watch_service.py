"""The judge of views as `pipeline run` keeps it, with hook, metrics and log."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from unisono.pipeline.lake import TAKE_IN, open_table
from unisono.pipeline.session import PipelineError, plain_errors
from unisono.pipeline.storage import Location, place
from unisono.pipeline.views_table import run_violations
from unisono.pipeline.watch import LIMIT_S, LOOK_EVERY_S, Dropping, await_batch, has_seen, start_watch
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


class Teller:
    """Tells of violations, in the log, by the hook and in the metrics; of those of a whole run, what no view has told."""

    def __init__(
        self, tables: Location, log: Log, hook: Hook | None = None, metrics: ViewMetrics | None = None
    ) -> None:
        self._tables, self._log, self._hook, self._metrics = tables, log, hook, metrics
        self._told: dict[str, set[str]] = {}  # by run: violations of the whole run; it may be judged again

    def tell(self, rows: list[dict[str, Any]], is_new: bool) -> None:
        """Rows of the table `views`, or of that form."""
        failures = [row for row in rows if row["id"] is not None]
        if self._metrics is not None:
            self._metrics.count(rows)
        for row in failures if is_new else ():
            where = "the whole run" if row["by"] == "run" and not row["view"] else f"view {row['view'] or '?'}"
            self._log(f"FAIL {row['run']}/{row['group']}, {where}: {row['property']}: {row['sentence']}")
        if self._hook is not None:
            self._hook.tell(failures)

    def tell_runs(self, failed: frozenset[str], is_first: bool) -> None:
        """What the verdicts on runs that failed now say and no view does; `is_first`: of all runs, whose marks may lack."""
        for row, is_in_views in run_violations(self._tables, None if is_first else failed):
            if not is_in_views:
                of_run = self._told.setdefault(row["run"], set())
                if row["id"] not in of_run:
                    of_run.add(row["id"])
                    self.tell([row], row["run"] in failed)
            elif self._hook is not None:
                self._hook.pass_over(row)

    def forget(self, runs: frozenset[str]) -> None:
        for run in runs:
            self._told.pop(run, None)

    def close(self) -> None:
        for one in (self._hook, self._metrics):
            if one is not None:
                one.close()


class JudgedViews:
    """The judge of views at work."""

    def __init__(self, tables: Location, query: StreamingQuery, dropping: Dropping, teller: Teller) -> None:
        self._tables, self._query, self._dropping, self._teller = tables, query, dropping, teller
        self._failed: frozenset[str] = frozenset()
        self._is_first = True  # violations of earlier starts may have no mark yet, nor their views a verdict …
        self._after = self._facts_taken_in()  # … before these facts are judged

    def _facts_taken_in(self) -> int:
        return open_table(self._tables, "facts").transaction(TAKE_IN)

    def require_alive(self) -> None:
        """Raise what has ended the judge."""
        if not self._query.isActive:
            with plain_errors(_about(self._tables)):
                self._query.awaitTermination()

    def tell_runs(self, failed: frozenset[str]) -> None:
        """Runs that failed as a whole since the last call. What their views have not told is told when these are judged."""
        if failed:
            self._failed |= failed
            self._after = self._facts_taken_in()
        if (self._failed or self._is_first) and has_seen(self._query, self._after):
            self._tell_rest()

    def finish(self) -> None:
        """Wait until every view for which there are facts is judged, and tell what none has told."""
        with plain_errors(_about(self._tables)):
            await_batch(self._query, self._facts_taken_in())
        self._tell_rest()

    def _tell_rest(self) -> None:
        self._teller.tell_runs(self._failed, self._is_first)
        self._failed, self._is_first = frozenset(), False

    def drop(self, runs: frozenset[str]) -> None:
        """Take runs out of the table `views`, with the marks of their violations, soon."""
        self._dropping.ask(runs)
        self._teller.forget(runs)


@contextmanager
def views_judged(
    spark: SparkSession, out: str | Location, options: WatchOptions, log: Log, log_s: float | None = None
) -> Iterator[JudgedViews]:
    """Judge views while the block runs."""
    tables = place(out)
    checkpoint = options.checkpoint_of(tables)
    hook = None if options.on_fail is None else Hook(options.on_fail, tables, log)
    metrics = None if options.metrics is None else ViewMetrics(options.metrics)
    teller, dropping = Teller(tables, log, hook, metrics), Dropping(HookMarks(tables).drop)
    try:
        with plain_errors(_about(tables)):
            query = start_watch(
                spark,
                tables,
                checkpoint,
                limit_s=options.limit_s,
                every_s=options.every_s,
                tell=teller.tell,
                forget_s=options.forget_s,
                dropping=dropping,
                log_s=log_s,
            )
        try:
            yield JudgedViews(tables, query, dropping, teller)
        finally:
            query.stop()
    finally:
        teller.close()


def _about(tables: Location) -> str:
    return f"judging views of {tables}"
