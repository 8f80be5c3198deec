"""Upkeep of tables: rows taken out, small files merged, old runs dropped, dead files deleted.

A data file is never changed. What is to go is left out of a new file that takes its place, and all of that is a
batch like any other (`lake`). A fact of `file` says which file holds the rows of a run; so where
files of events are replaced, these facts are replaced in the same batch.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING

import pyarrow

from unisono.pipeline.data_files import Chosen, DataFile, batch_of, write_data_file
from unisono.pipeline.lake import SCHEMAS, SILVER, Lake, LakeTable, TableChange, open_table, table_names
from unisono.pipeline.rewriting import SORTED_ROWS_MAX, Drop, rewriter
from unisono.pipeline.session import PipelineError, plain_errors
from unisono.pipeline.take_in import TASK_REPORT_DDL, LedgerEntry

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from unisono.pipeline.ledger import SegmentLedger

MERGED_BYTES = 16 << 20
"""Approximate size up to which files are merged."""
SMALL_FILES_MAX = 64
"""Number of small files of a table beyond which a running pipeline merges them."""
REMOVED_AT_ONCE = 10_000
"""Maximum number of segments that one batch removes."""

NOTHING = Drop()


def ledger_file(lake: Lake, entries: Iterable[LedgerEntry]) -> DataFile:
    """A data file of the ledger with these rows."""
    now = datetime.now(UTC)
    rows = [{**asdict(entry), "batch": lake.batch + 1, "taken_in": now} for entry in entries]
    table = pyarrow.Table.from_pylist(rows, SCHEMAS["segments"])
    return write_data_file(lake.segments.folder, lake.batch + 1, [table], SCHEMAS["segments"])


def rewrite(
    spark: SparkSession, table: LakeTable, groups: Sequence[Sequence[DataFile]], drop: Drop
) -> dict[str, TableChange]:
    """Let workers write each group of files anew as one, without what goes; the change of the table, and of facts."""
    if not groups:
        return {}
    rows = [(json.dumps([file.path for file in group]),) for group in groups]
    schemas = {table.name: table.schema}
    if table.name == "events":  # with its metadata
        schemas = {name: SCHEMAS[name] for name in ("events", "facts")}
    with plain_errors(f"rewriting {table.folder}"):
        todo = spark.createDataFrame(spark.sparkContext.parallelize(rows, min(len(rows), 64)), "paths string")
        task = rewriter(table.folder.parent.uri, table.name, schemas, drop)
        said = todo.mapInArrow(task, TASK_REPORT_DDL).collect()
    removed: list[str] = []
    added: dict[str, list[DataFile]] = {table.name: []}
    for row in said:
        one = json.loads(row["text"])
        if row["what"] == "removed":
            removed += one
        else:
            added.setdefault(row["what"], []).append(DataFile(*one))
    changes = {name: TableChange(tuple(files)) for name, files in added.items()}
    changes[table.name] = TableChange(tuple(added[table.name]), tuple(removed))
    return changes


def taken_out(spark: SparkSession, lake: Lake, drop: Drop) -> dict[str, TableChange]:
    """The changes that take rows out of the silver tables."""
    if not drop:
        return {}
    events = lake.silver["events"]
    changes = rewrite(spark, events, [[file] for file in events.files() if drop.may_be_in(file)], drop)
    return _with_facts(spark, lake, changes, drop, merge=False)


def _with_facts(
    spark: SparkSession, lake: Lake, changes: dict[str, TableChange], drop: Drop, merge: bool
) -> dict[str, TableChange]:
    """Changes of events, and what follows for quarantine and facts."""
    gone = frozenset(changes["events"].remove) if "events" in changes else frozenset()
    facts, bad = lake.silver["facts"], lake.silver["quarantine"]
    groups = _small_groups(facts) if merge else []
    merged = {file.path for group in groups for file in group}
    others = [file for file in facts.files() if drop.may_be_in(file)] if drop else []
    if gone:  # a fact that names a file came in the batch that the file's name tells
        batches = sorted(map(batch_of, gone))
        others += facts.files(Chosen(after=batches[0] - 1, until=batches[-1]))
    groups += [[file] for file in dict.fromkeys(others) if file.path not in merged]
    result = joined(dict(changes), rewrite(spark, facts, groups, Drop(drop.segments, drop.runs, gone)))
    bad_groups = _small_groups(bad) if merge else [[file] for file in bad.files() if drop.may_be_in(file)]
    return joined(result, rewrite(spark, bad, bad_groups, drop))


def joined(one: dict[str, TableChange], other: dict[str, TableChange]) -> dict[str, TableChange]:
    """Both changes as one."""
    result = dict(one)
    for name, change in other.items():
        known = result.get(name, TableChange())
        result[name] = TableChange(known.add + change.add, known.remove + change.remove)
    return result


def _small_groups(table: LakeTable) -> list[list[DataFile]]:
    """Small files by groups that make a large one each."""
    groups: list[list[DataFile]] = []
    size = rows = 0
    for file in sorted(table.files()):
        if file.size_bytes >= MERGED_BYTES // 2 or file.rows >= SORTED_ROWS_MAX // 2:
            size = MERGED_BYTES  # none on both sides of it: so batches of files do not overlap
            continue
        if not groups or size + file.size_bytes > MERGED_BYTES or rows + file.rows > SORTED_ROWS_MAX:
            groups.append([])
            size = rows = 0
        groups[-1].append(file)
        size, rows = size + file.size_bytes, rows + file.rows
    return [group for group in groups if len(group) > 1]


def needs_merging(lake: Lake) -> bool:
    """Whether there are many small files."""
    tables = (lake.silver["facts"], lake.silver["events"])
    return any(sum(map(len, _small_groups(table))) > SMALL_FILES_MAX for table in tables)


def merge_all(spark: SparkSession, lake: Lake) -> None:
    """Merge small files of all tables."""
    merge_silver(spark, lake)
    for name in table_names(lake.out):
        if name not in ("segments", *SILVER):
            open_table(lake.out, name).merge_small_files()


def merge_silver(spark: SparkSession, lake: Lake) -> None:
    """Merge small files of the silver tables and of the ledger, as a batch."""
    events = lake.silver["events"]
    changes = rewrite(spark, events, _small_groups(events), NOTHING)
    changes = _with_facts(spark, lake, changes, NOTHING, merge=True)
    ledger = rewrite(spark, lake.segments, _small_groups(lake.segments), NOTHING)
    lake.publish(ledger.get("segments", TableChange()), changes)


def remove_segments(
    spark: SparkSession, lake: Lake, entries: Iterable[LedgerEntry], ledger: SegmentLedger | None = None
) -> int:
    """Take segments out of the silver tables; how many. Files of them that still lie there are not taken in again.

    `entries` are acts that take segments out (`SegmentLedger.segment`), and `ledger` is told of them.
    """
    count, left = 0, iter(entries)
    while some := list(islice(left, REMOVED_AT_ONCE)):
        changes = taken_out(spark, lake, Drop(segments=frozenset(entry.key for entry in some)))
        lake.publish(TableChange((ledger_file(lake, some),)), changes)
        if ledger is not None:
            ledger.take(some, lake.batch)
        count += len(some)
    return count


def own_segments(ledger: SegmentLedger, run: str) -> Iterator[LedgerEntry]:
    """The segments of a run, all of which must be its own."""
    for entry in ledger.segments_of(run):
        if others := sorted(set(entry.runs) - {run}):
            raise PipelineError(
                f"the segment {entry.key} holds rows of {others[0]} too: remove the segment, with all of its runs."
            )
    yield from ledger.segments_of(run)  # all were looked at before the first one goes


def vacuum(lake: Lake, hours: float) -> int:
    """Delete the files that no table has held for so long; how many."""
    return sum(open_table(lake.out, name).vacuum(hours) for name in table_names(lake.out))
