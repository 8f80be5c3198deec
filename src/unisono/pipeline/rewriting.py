"""Data files written anew on workers: several as one, and without the rows that go."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from unisono.pipeline.data_files import DataFile, batch_of, read_data_file
from unisono.pipeline.storage import Location, place
from unisono.pipeline.take_in import TaskFiles, reported

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
        groups = (json.loads(text) for some in batches for text in some.column(0).to_pylist())
        yield from reported(
            said for group in groups for said in _rewrite_group(place(parent), name, schemas, group, drop)
        )

    return rewrite_all


def _rewrite_group(
    parent: Location, name: str, schemas: dict[str, pyarrow.Schema], paths: list[str], drop: Drop
) -> Iterator[tuple[str, Any]]:
    import pyarrow

    kept: list[pyarrow.Table] = []
    dropped = 0
    for path in paths:
        for table in read_data_file(parent / name / path, schemas[name]):
            left = drop.left(table)
            dropped += len(table) - len(left)
            kept += [left] if len(left) else []
    if len(paths) == 1 and not dropped:
        return
    yield "removed", paths
    if not kept:
        return
    files = TaskFiles(parent, max(map(batch_of, paths)), schemas)  # a stream that has seen this batch knows these rows
    whole = pyarrow.concat_tables(kept)
    if name != "events":
        files.write(name, [whole])
    else:
        order = ["run", "group", "member", "incarnation", "local_index"]
        if len(whole) <= SORTED_ROWS_MAX:
            whole = whole.sort_by([(column, "ascending") for column in order])
        files.events(whole)
    for table, file in files.close():
        yield table, list(file)
