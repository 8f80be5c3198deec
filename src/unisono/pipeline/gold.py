"""Verdicts, violations and measures of runs in their tables. A run that is judged again takes its own place.

The commit to `verdicts` decides, and carries what the other tables get (`lake.Series`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import pyarrow

from unisono.pipeline.data_files import Chosen, DataFile, write_frame
from unisono.pipeline.lake import SCHEMAS, LakeTable, Series, TableChange, table_folder, table_names
from unisono.pipeline.rewriting import Drop
from unisono.pipeline.session import plain_errors
from unisono.pipeline.storage import Location
from unisono.pipeline.upkeep import joined, rewrite
from unisono.trace.checks.properties import PROPERTIES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    Batches = Iterator[pyarrow.RecordBatch]

JUDGE = "judge"
FILES_MAX = 64
"""Number of files beyond which a table of results is compacted."""
_EXPLAINED_DDL = (
    "run string, `group` string, property string, members array<string>, view string, witness map<string,string>, "
    "sentence string"
)


class Gold:
    """The tables of results, for the one process that writes to them."""

    def __init__(self, spark: SparkSession, out: Location, log_s: float | None = None) -> None:
        """`log_s`: how long the tables' logs are kept (`LakeTable.made`)."""
        self._spark, self._out, self._log_s = spark, out, log_s
        self._tables: dict[str, LakeTable] = {}
        self.verdicts = self._table("verdicts", SCHEMAS["verdicts"])
        self._table("violations", SCHEMAS["violations"])
        self._series = Series(JUDGE, self.verdicts, self._table)

    def write(
        self,
        verdicts: DataFrame,
        violations: DataFrame | None,
        again: frozenset[str],
        measures: Mapping[str, DataFrame] | None = None,
    ) -> None:
        """Write the results of a few runs.

        `verdicts` has the columns of the table, `violations` those of `verify.VIOLATION_COLUMNS`. `again`: those of
        the runs that have results already, whose place these take.
        """
        number = self._series.number + 1
        with plain_errors(f"writing tables to {self._out}"):
            changes = {}
            for name, frame in (measures or {}).items():
                changes[f"measures/{name}"] = self._measure(f"measures/{name}", frame, again, number)
            broken = [] if violations is None else self._files("violations", explained(violations), number)
            changes["violations"] = self._in_place("violations", broken, again)
            decided = self._in_place("verdicts", self._files("verdicts", verdicts, number), again)
            self._series.publish(decided, changes)
        for table in self._tables.values():
            if len(table.files()) > FILES_MAX:
                table.merge_small_files()

    def remove(self, run: str) -> None:
        """Take a run out of all tables of results."""
        runs = frozenset({run})
        changes = {name: self._in_place(name, [], runs) for name in table_names(self._out) if _is_gold(name)}
        self._series.publish(changes.pop("verdicts"), changes)

    def _measure(self, name: str, frame: DataFrame, again: frozenset[str], number: int) -> TableChange:
        from pyspark.sql.pandas.types import to_arrow_schema

        made = to_arrow_schema(frame.schema)
        schema = pyarrow.schema([field.with_nullable(True) for field in made])
        table = self._table(name, schema)
        return self._in_place(name, write_frame(frame.coalesce(1), table.folder, schema, number), again)

    def _files(self, name: str, frame: DataFrame, number: int) -> list[DataFile]:
        """Let a worker write these rows, those of one run together."""
        rows = frame.coalesce(1).sortWithinPartitions("run", "group")
        return write_frame(rows, self._out / name, SCHEMAS[name], number)

    def _in_place(self, name: str, files: list[DataFile], runs: frozenset[str]) -> TableChange:
        """New rows in place of those that these runs have."""
        table = self._table(name)
        drop = Drop(runs=runs)
        old = [[file] for file in table.files(Chosen(runs)) if drop.may_be_in(file)] if runs else []
        return joined({table.name: TableChange(tuple(files))}, rewrite(self._spark, table, old, drop))[table.name]

    def _table(self, name: str, schema: pyarrow.Schema | None = None) -> LakeTable:
        if name not in self._tables:
            folder = table_folder(self._out, name)
            self._tables[name] = (
                LakeTable.open(folder) if schema is None else LakeTable.made(folder, schema, self._log_s)
            )
        return self._tables[name]


def explained(violations: DataFrame) -> DataFrame:
    """Violations with their sentences."""

    def explain(batches: Batches) -> Batches:
        for batch in batches:
            told = [
                PROPERTIES[row["property"]].tell(row["members"] or (), row["view"], dict(row["witness"] or ()))
                for row in batch.to_pylist()
            ]
            yield batch.append_column("sentence", pyarrow.array(told, pyarrow.string()))

    return violations.mapInArrow(explain, _EXPLAINED_DDL)


def _is_gold(name: str) -> bool:
    return name in ("verdicts", "violations", "views") or name.startswith("measures/")
