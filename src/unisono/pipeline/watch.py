"""Judge views while groups run: facts as a stream, verdicts as a table.

```
facts (lake) ─▶ transformWithState by run and group ─▶ foreachBatch ─▶ table `views` ─▶ hooks, metrics
                 state: a judge, its views one by one    looks at rows
```

- The state is a map from view to what is known of it, beside a spine that the views of one group
  share. The key is the group and not the view, because a view is closed by what its members do in
  later views: a member that never installed it has left it by installing the next. Timers tell when
  a time limit has passed.
- Views whose rows must be looked at are decided by `looks`.
- Each batch of the stream is one commit to `views` with the number of the batch as application
  transaction. A batch that is repeated after a crash says the same, and is not committed again. The
  last row of a view counts, and FAIL stays.
- Hooks are called after the commit, for every violation that has no mark in `_told` yet
  (`watch_hooks`).

A lost checkpoint does no harm: everything is judged again from the facts, and what is in the table
already is not told twice.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import asdict
from threading import Lock
from typing import TYPE_CHECKING, Any

import pyarrow
import pyarrow.compute as pc
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from unisono.pipeline.data_files import Chosen, write_data_file
from unisono.pipeline.lake import SCHEMAS, LakeTable, TableChange, facts_stream
from unisono.pipeline.looks import GROUP_SAID_DDL, look_at_rows, said_from
from unisono.pipeline.retention import drop_views
from unisono.pipeline.scan import Fact
from unisono.pipeline.session import is_given, plain_errors
from unisono.pipeline.storage import Location, place
from unisono.pipeline.view_judge import ROWS_MAX, GroupJudge, Said
from unisono.pipeline.views_table import ViewVerdict

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

LIMIT_S = 600.0
"""Time limit for the members of a view to leave it, from the first to the last."""
LOOK_EVERY_S = 1.0
FILES_MAX = 64
"""Number of files beyond which those of the table `views` are merged."""
VIEWS = SCHEMAS["views"]
BEGIN_WAIT_S = 60.0
ROWS_TOLD = 1_000
"""Maximum number of rows passed to hooks and metrics at once."""
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"

Tell = Callable[[list[dict[str, Any]], bool], None]
"""Called with rows of the table `views`: first with the violations of earlier starts, then with what is new."""


def start_watch(
    spark: SparkSession,
    out: str | Location,
    checkpoint: str,
    *,
    limit_s: float = LIMIT_S,
    every_s: float = LOOK_EVERY_S,
    tell: Tell = lambda rows, is_new: None,
    rows_max: int = ROWS_MAX,
    forget_s: float | None = None,
    dropping: Dropping | None = None,
    log_s: float | None = None,
) -> StreamingQuery:
    """Judge views as facts are committed; views of more than `rows_max` rows are looked at on Spark, not in one task.

    `forget_s`: how long a group that does not end properly is remembered. `dropping`: runs to take out of the table.
    `log_s`: how long the table's log is kept (`LakeTable.made`).
    """
    tables = place(out)
    writer = _Writer(spark, tables, tell, rows_max, dropping or Dropping(), log_s)
    kept = _settings(spark)
    before = {name: spark.conf.get(name, None) for name in kept}
    for name, setting in kept.items():
        spark.conf.set(name, setting)
    try:
        said = (
            facts_stream(spark, tables)
            .groupBy("run", "group")
            .transformWithState(
                JudgeViews(round(limit_s * 1000), None if forget_s is None else round(forget_s * 1000)),
                GROUP_SAID_DDL,
                "Append",
                "ProcessingTime",
            )
        )
        stream = said.writeStream.foreachBatch(writer.take).option("checkpointLocation", place(checkpoint).hadoop_uri)
        interval = f"{round(every_s * 1000)} milliseconds"
        with plain_errors(f"watching {tables}"):
            query = stream.trigger(processingTime=interval).start()
            writer.begin(str(query.id))
            return query
    finally:
        for name, value in before.items():
            if value is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, value)


def await_batch(query: StreamingQuery, batch: int, every_s: float = 0.1) -> None:
    """Wait until the stream has judged the facts of a batch; raise what ends it before.

    With timers a stream always has another turn, so it cannot be asked to end when nothing is left.
    """
    while query.isActive and not has_seen(query, batch):
        time.sleep(every_s)
    if not query.isActive:
        query.awaitTermination()


def has_seen(query: StreamingQuery, batch: int) -> bool:
    """Whether the stream has judged the facts of a batch."""
    progress = query.lastProgress
    sources = () if progress is None else progress["sources"]
    return max((int(json.loads(str(source["endOffset"]))["batch"]) for source in sources), default=0) >= batch


def _settings(spark: SparkSession) -> dict[str, str]:
    """How the stream runs, where the user has not said otherwise. The kind of state store is not a matter of taste."""
    wanted = {
        "spark.sql.shuffle.partitions": str(max(2, spark.sparkContext.defaultParallelism)),
        "spark.sql.streaming.minBatchesToRetain": "20",
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    }
    kept = {name: value for name, value in wanted.items() if not is_given(spark, name)}
    return kept | {"spark.sql.streaming.stateStore.providerClass": _ROCKSDB}


class JudgeViews(StatefulProcessor):
    """The judge of each group, kept as text: a spine, and its views one by one."""

    def __init__(self, limit_ms: int, forget_ms: int | None) -> None:
        self._limit_ms, self._forget_ms = limit_ms, forget_ms

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._spine = handle.getValueState("spine", "said string")
        self._views = handle.getMapState("views", "view string", "said string")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        # A part of a life is named by its segment, and the batch that took it in.
        facts = [(f"{row['segment']} {row['batch']}", Fact(*(row[name] for name in Fact._fields))) for row in rows]
        now_ms = timerValues.getCurrentProcessingTimeInMs()
        yield from self._judged(key, lambda judge: judge.take(facts, now_ms))

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        now_ms = timerValues.getCurrentProcessingTimeInMs()
        yield from self._judged(key, lambda judge: judge.expire(now_ms))

    def close(self) -> None:
        """Nothing is held outside of the state."""

    def _judged(self, key: Any, ask: Callable[[GroupJudge], list[Said]]) -> Iterator[Row]:
        spine = self._spine.get()
        views = {name: text for (name,), (text,) in self._views.iterator()} if self._views.exists() else {}
        judge = GroupJudge(self._limit_ms, spine[0] if spine else None, views, self._forget_ms)
        for said in ask(judge):
            yield Row(run=key[0], group=key[1], said=json.dumps(asdict(said)))
        self._keep(judge, views)

    def _keep(self, judge: GroupJudge, before: Mapping[str, str]) -> None:
        after = judge.views
        for name in before.keys() - after.keys():
            self._views.removeKey((name,))
        for name, text in after.items():
            if before.get(name) != text:
                self._views.updateValue((name,), (text,))
        if judge.spine is None:
            self._spine.clear()
        else:
            self._spine.update((judge.spine,))
        due_ms = judge.due_ms()
        timers = set(self._handle.listTimers())
        for timer in timers - {due_ms}:
            self._handle.deleteTimer(timer)
        if due_ms is not None and due_ms not in timers:
            self._handle.registerTimer(due_ms)


class Dropping:
    """Runs that are to leave the table `views`. The stream takes them out between two batches: it alone writes there."""

    def __init__(self, dropped: Callable[[list[str]], None] = lambda ids: None) -> None:
        """`dropped`: told the ids of the violations that are gone."""
        self._lock = Lock()
        self._runs: frozenset[str] = frozenset()
        self.dropped = dropped

    def ask(self, runs: frozenset[str]) -> None:
        with self._lock:
            self._runs |= runs

    def take(self) -> frozenset[str]:
        """The runs that were asked for since the last call."""
        with self._lock:
            runs, self._runs = self._runs, frozenset()
        return runs


class _Writer:
    """Takes what the judges say in one batch, looks at rows where they ask for it, and commits."""

    def __init__(
        self, spark: SparkSession, out: Location, tell: Tell, rows_max: int, dropping: Dropping, log_s: float | None
    ) -> None:
        self._spark, self._out, self._tell, self._rows_max, self._dropping = spark, out, tell, rows_max, dropping
        self._table = LakeTable.made(out / "views", VIEWS, log_s)
        self._application: Future[str] = Future()
        for part in self._table.parts(self._table.files()):
            failed = part.filter(pc.is_valid(part.column("id")))
            for start in range(0, len(failed), ROWS_TOLD):
                tell([_json_ready(row) for row in failed.slice(start, ROWS_TOLD).to_pylist()], False)

    def begin(self, query: str) -> None:
        """Numbers of batches belong to a query: with another checkpoint, they begin anew."""
        self._application.set_result(f"views {query}")

    def take(self, frame: DataFrame, batch: int) -> None:
        number, application = batch + 1, self._application.result(BEGIN_WAIT_S)
        if runs := self._dropping.take():
            self._dropping.dropped(drop_views(self._spark, self._table, runs))
        said = [(row["run"], row["group"], said_from(row["said"])) for row in frame.collect()]
        if not said or self._table.transaction(application) >= number:
            return
        verdicts = self._without_known(self._decide(said))
        if not verdicts:
            return
        now_ms = time.time_ns() // 1_000_000
        rows = [verdict.as_row(batch, now_ms) for verdict in verdicts]
        witnesses = [{"witness": None if row["witness"] is None else list(row["witness"].items())} for row in rows]
        table = pyarrow.Table.from_pylist([row | witness for row, witness in zip(rows, witnesses, strict=True)], VIEWS)
        file = write_data_file(self._table.folder, number, [table], VIEWS)
        self._table.commit(TableChange(add=(file,)), application, number)
        if len(self._table.files()) > FILES_MAX:
            self._table.merge_small_files()
        self._tell(rows, True)

    def _without_known(self, verdicts: list[ViewVerdict]) -> list[ViewVerdict]:
        """Without violations that the table has already, and each of the others once."""
        by_id = {one.id(): one for one in verdicts if one.property is not None}
        if not by_id:
            return verdicts
        chosen = Chosen(runs=frozenset(one.run for one in by_id.values()))
        for part in self._table.parts(self._table.files(chosen), chosen):
            for known in part.column("id").drop_null().to_pylist():
                by_id.pop(known, None)
        return [one for one in verdicts if one.property is None or by_id.pop(one.id(), None) is not None]

    def _decide(self, said: list[tuple[str, str, Said]]) -> list[ViewVerdict]:
        verdicts: list[ViewVerdict] = []
        looks: list[tuple[str, str, Said]] = []
        for run, group, one in said:
            for name, who, sentence in one.violations:
                verdict = ViewVerdict(run, group, one.view, one.order, "FAIL", "facts")
                verdicts.append(verdict._replace(property=name, members=(who,), sentence=sentence))
            if one.status in ("look", "rows"):
                looks.append((run, group, one))
            elif not one.violations:
                by = "digests" if one.status == "PASS" else "facts"
                verdicts.append(ViewVerdict(run, group, one.view, one.order, one.status, by, one.why, one.asked))
        return verdicts + look_at_rows(self._spark, self._out, looks, self._rows_max)


def _json_ready(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "witness": None if row["witness"] is None else dict(row["witness"])}
