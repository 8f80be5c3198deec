"""What is recorded of applications and cannot be judged: `trace.checks.shown_doubts`, asked run by run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unisono.pipeline.properties.shown_rows import RUN, facts_of, kept_rows, life_facts
from unisono.trace.checks.shown_doubts import ShownDoubt, shown_doubts

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame

    from unisono.pipeline.tables import TraceTables

DOUBT_DDL = "run string, `group` string, property string, who string, view string, unknown string"


def doubts(tables: TraceTables) -> DataFrame:
    """Lives that cannot pass where a property is owed in a view (`DOUBT_DDL`)."""
    facts = kept_rows(tables).unionByName(life_facts(tables), allowMissingColumns=True)
    return facts.groupBy(*RUN).applyInArrow(_doubts, DOUBT_DDL)


def _doubts(table: pyarrow.Table) -> pyarrow.Table:
    import pyarrow

    rows = table.to_pylist()
    found = [(rows[0]["run"], rows[0]["group"], *one) for one in shown_doubts(facts_of(rows).lives)]
    names = ("run", "group", *ShownDoubt._fields[:-1], "unknown")
    columns = list(zip(*found, strict=True)) if found else [()] * len(names)
    return pyarrow.Table.from_arrays([pyarrow.array(list(one), pyarrow.string()) for one in columns], names=list(names))
