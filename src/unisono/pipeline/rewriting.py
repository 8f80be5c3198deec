"""Data files written anew on workers: several as one, and without the rows that go."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from unisono.pipeline.arrow_rows import as_table
from unisono.pipeline.data_files import DataFile, DataFileWriter, batch_of, read_data_file
from unisono.pipeline.storage import Location, place
from unisono.pipeline.take_in import file_facts

if TYPE_CHECKING:
    import pyarrow

    Batches = Iterator[pyarrow.RecordBatch]

SORTED_ROWS_MAX = 1_000_000
"""Events of at most this many rows are sorted in memory, so that a run's rows are together."""


@dataclass(frozen=True)
class Drop:
    """Rows that go."""

    segments: frozenset[str] = frozenset()
    runs: frozenset[str] = frozenset()
    files: frozenset[str] = frozenset()
    """Of facts: those that name one of these files of events."""

    def __bool__(self) -> bool:
        return bool(self.segments or self.runs or self.files)

    def may_be_in(self, file: DataFile) -> bool:
        low, high = file.low, file.high
        return any(
            name not in low or any(low[name] <= value <= high[name] for value in values)
            for name, values in (("segment", self.segments), ("run", self.runs))
            if values
        )

    def left(self, table: pyarrow.Table) -> pyarrow.Table:
        """The rows that stay."""
        import pyarrow
        import pyarrow.compute as pc

        def without(name: str, values: frozenset[str]) -> None:
            nonlocal table
            gone = pc.is_in(table.column(name), value_set=pyarrow.array(sorted(values), pyarrow.string()))
            table = table.filter(pc.invert(pc.fill_null(gone, False)))

        if self.segments and "segment" in table.column_names:
            without("segment", self.segments)
        if self.runs:
            without("run", self.runs)
        if self.files and "what" in table.column_names:
            without("path", self.files)
        return table


def rewriter(parent: str, name: str, schemas: dict[str, pyarrow.Schema], drop: Drop) -> Callable[[Batches], Batches]:
    """For `mapInArrow`: groups of files in; out, as `TASK_REPORT_DDL`, the files that they became."""

    def rewrite_all(batches: Batches) -> Batches:
        import pyarrow

        said: list[tuple[str, Any]] = []
        for some in batches:
            for text in some.column(0).to_pylist():
                said += _rewrite_group(place(parent), name, schemas, json.loads(text), drop)
        arrays = [
            pyarrow.array([what for what, _ in said], pyarrow.string()),
            pyarrow.array([json.dumps(one) for _, one in said], pyarrow.string()),
        ]
        yield pyarrow.RecordBatch.from_arrays(arrays, names=["what", "text"])

    return rewrite_all


def _rewrite_group(
    parent: Location, name: str, schemas: dict[str, pyarrow.Schema], paths: list[str], drop: Drop
) -> Iterator[tuple[str, Any]]:
    import pyarrow

    schema = schemas[name]
    kept: list[pyarrow.Table] = []
    dropped = 0
    for path in paths:
        for table in read_data_file(parent / name / path, schema):
            left = drop.left(table)
            dropped += len(table) - len(left)
            kept += [left] if len(left) else []
    if len(paths) == 1 and not dropped:
        return
    yield "removed", paths
    if not kept:
        return
    youngest = max(map(batch_of, paths))  # a stream that has seen this batch knows these rows
    writer = DataFileWriter(parent / name, youngest, schema)
    whole = pyarrow.concat_tables(kept)
    if name == "events" and len(whole) <= SORTED_ROWS_MAX:
        order = ["run", "group", "member", "incarnation", "local_index"]
        whole = whole.sort_by([(column, "ascending") for column in order])
    writer.take(whole)
    file = writer.close()
    yield name, list(file)
    if name == "events":
        counts = pyarrow.TableGroupBy(whole, ["run", "group"], use_threads=False).aggregate([([], "count_all")])
        held = {(row["run"], row["group"]): row["count_all"] for row in counts.to_pylist()}
        facts = [(*fact, None, youngest) for fact in file_facts(file, held)]
        told = DataFileWriter(parent / "facts", youngest, schemas["facts"])
        told.take(as_table(facts, schemas["facts"]))
        yield "facts", list(told.close())
