"""What Spark does for P19: one scan a life gives its states at all points of which there is a SNAPSHOT_OUT.

A hash runs over all deliveries of a life, which are many, and a share of them proves nothing.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from unisono.pipeline.arrow_rows import as_table
from unisono.pipeline.properties.few_rows import SummedUp, events_in
from unisono.pipeline.tables import LIFE, WHOSE
from unisono.trace.checks.history import History
from unisono.trace.checks.p19_state_transfer import (
    DeliveredAt,
    SnapshotTaken,
    StateAt,
    StateTransfer,
    delivered,
    state_at,
    value_in,
)
from unisono.trace.schema import DELIVER, NAMES, PLACE, SNAPSHOT_IN, SNAPSHOT_OUT, TOTAL, VIEW, Event, member_name

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame

    from unisono.pipeline.tables import TraceTables

POINT = "POINT"
"""The kind of a row that asks for a state."""
STATE_DDL = "run string, `group` string, who string, service string, stay bigint, ordinal bigint, reached_at bigint, value string"


def _states(tables: TraceTables) -> DataFrame:
    service, ordinal = F.coalesce("service", F.lit(TOTAL)), F.coalesce("ordinal", F.lit(0)).cast("bigint")
    given = tables.outline.where(F.col("kind") == SNAPSHOT_OUT)
    points = given.select(*WHOSE, "view", service.alias("service"), ordinal.alias("ordinal")).distinct()
    asked = F.broadcast(points).join(tables.lives.select(*LIFE), list(WHOSE), "inner")
    before_all = F.lit(-1).cast("bigint")
    asked = asked.withColumns({"kind": F.lit(POINT), "local_index": before_all, "time_ns": before_all})
    told = tables.events.where(F.col("kind").isin(VIEW, SNAPSHOT_IN, DELIVER, PLACE))
    rows = told.join(F.broadcast(points.select(*WHOSE).distinct()), list(WHOSE), "left_semi").select(*NAMES)
    return rows.unionByName(asked, allowMissingColumns=True).groupBy(*LIFE).applyInArrow(_scan, STATE_DDL)


def _scan(rows: pyarrow.Table) -> pyarrow.Table:
    """The states of one life at the points that are asked for, in views that it installed."""
    stays = 0
    numbers: dict[str | None, int] = {}  # by view: the number of the stay in which it was installed first
    deliveries: defaultdict[str, list[DeliveredAt]] = defaultdict(list)
    taken: defaultdict[str, list[SnapshotTaken]] = defaultdict(list)
    asked: list[Event] = []
    for event in events_in(rows):
        service = event.service or TOTAL
        if event.kind == VIEW:
            stays += 1
            numbers.setdefault(event.view, stays)
        elif event.kind in (DELIVER, PLACE):
            deliveries[service].append(delivered(event, stays))
        elif event.kind == POINT:
            asked.append(event)
        elif event.view in numbers:
            taken[service].append(
                SnapshotTaken((numbers[event.view], event.ordinal or 0), event.local_index, value_in(event))
            )
    states = []
    for one in asked:
        number, service, ordinal = numbers.get(one.view), one.service or TOTAL, one.ordinal or 0
        if number is not None:
            state = state_at(service, (number, ordinal), deliveries[service], taken[service])
            states.append(
                (one.run, one.group, member_name(one.member, one.incarnation), service, number, ordinal, *state)
            )
    return as_table(states, STATE_DDL)


def _checker(history: History, states: list[dict[str, Any]]) -> StateTransfer:
    return StateTransfer(
        history,
        {
            (row["who"], row["service"], (row["stay"], row["ordinal"])): StateAt(row["reached_at"], row["value"])
            for row in states
        },
    )


STATES = SummedUp(_states, _checker)
