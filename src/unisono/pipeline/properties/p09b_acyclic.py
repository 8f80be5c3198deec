"""P9b total, acyclic: the union of the delivery orders of one (V→V') has no cycle.

Stronger than P9a where members deliver different subsets: A delivers x before y, B y before z, C z before x, and no two
of them disagree. Judges the service `total`; placeholders count.

The edges are those between consecutive deliveries of one member, whose closure is the whole order. Only members whose
sequences differ are compared, and cycles are looked for between consistent cuts (`consistent_cuts`): a message at one
member needs the same message at the next, in a ring, so a cut holds the same messages of every member. In a window,
taking away what has no predecessor, again and again, leaves the cycles; one of them is the witness, its edges joined
where they are of the same member.
"""

from __future__ import annotations

import json
from collections import deque
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

from pyspark.sql import functions as F
from pyspark.sql.window import Window

from unisono.pipeline.properties.base import VIOLATION_DDL, violation
from unisono.pipeline.properties.relations import WAY, first_places

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import Column, DataFrame

    from unisono.pipeline.tables import TraceTables

PROPERTY = "P9b"
Message: TypeAlias = tuple[str, int]
Edges: TypeAlias = dict[Message, dict[Message, str]]
"""By message: those that come right after it, each with a member that says so."""


def violations(tables: TraceTables) -> DataFrame:
    from unisono.pipeline.properties.consistent_cuts import divide

    ring = Window.partitionBy(*WAY, "message").orderBy("who")
    first = Window.partitionBy(*WAY, "message").orderBy("who").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    here = F.struct(F.col("who").alias("who"), F.col("place").alias("place"))
    steps = (
        first_places(tables)
        .withColumn("next", F.coalesce(F.lead(here).over(ring), F.first(here).over(first)))
        .select(
            *WAY,
            "local_index",
            F.col("message.origin_who").alias("origin"),
            F.col("message.index").alias("index"),
            F.col("who").alias("stream"),
            F.col("place").alias("at"),
            F.when(F.col("next.who") != F.col("who"), F.col("next.who")).alias("other"),
            F.col("next.place").alias("other_at"),
        )
    )
    divided = divide(steps, WAY)
    rows = divided.windows.select(
        *WAY, "window", F.col("stream").alias("who"), F.col("at").alias("place"), "local_index", "origin", "index"
    )
    found = rows.groupBy(*WAY, "window").applyInArrow(_scan, VIOLATION_DDL)
    return found if divided.proofs is None else found.unionByName(_proved(divided.proofs, steps))


def _proved(proofs: DataFrame, steps: DataFrame) -> DataFrame:
    """A circle longer than a window: `other` has x before y, and all orders together have y before x."""
    ways = [*WAY, "stream"]
    y = proofs.select(*WAY, F.col("other").alias("stream"), F.col("other_at").alias("y_at"), "anchor").distinct()
    said = steps.join(y, ways, "inner").withColumn("message", F.concat_ws(":", "origin", "index"))
    said = said.select(*ways, "at", "anchor", "y_at", F.struct("at", "message", "local_index").alias("said"))
    both = said.groupBy(*ways).agg(
        F.max(F.when(F.col("at") < F.col("anchor"), F.col("said"))).alias("x"),
        F.min(F.when(F.col("at") == F.col("y_at"), F.col("said"))).alias("y"),
    )
    witness: dict[str, Column | str] = {
        "x": "x.message",
        "x_local": "x.local_index",
        "y": "y.message",
        "y_local": "y.local_index",
    }
    return violation(both, PROPERTY, F.array("stream"), witness)


def _scan(table: pyarrow.Table) -> pyarrow.Table:
    from unisono.pipeline.properties.scanning import found_table

    rows: list[dict[str, Any]] = table.sort_by([("who", "ascending"), ("place", "ascending")]).to_pylist()
    sequences: dict[str, dict[Message, int]] = {}  # by member: messages in their order, with local indices
    for row in rows:
        sequences.setdefault(row["who"], {})[row["origin"], row["index"]] = row["local_index"]
    edges: Edges = {}
    for who, sequence in sequences.items():
        for one, other in pairwise(sequence):
            edges.setdefault(one, {}).setdefault(other, who)
    rest = _without_sources(edges)
    if not rest:
        return found_table([])
    steps = _joined(_shortest_cycle(edges, rest), edges)
    circle = [
        [who, *(f"{origin}:{index}" for origin, index in (one, other)), sequences[who][one], sequences[who][other]]
        for who, one, other in steps
    ]
    members = list(dict.fromkeys(who for who, _, _ in steps))
    head = rows[0]
    return found_table([(head["run"], head["group"], PROPERTY, members, head["view"], {"circle": json.dumps(circle)})])


def _without_sources(edges: Edges) -> set[Message]:
    """What is left when messages without a predecessor are taken away, again and again: empty if there is no cycle."""
    before = dict.fromkeys(edges, 0)
    for following in edges.values():
        for message in following:
            before[message] = before.get(message, 0) + 1
    free = [message for message, count in before.items() if not count]
    while free:
        message = free.pop()
        del before[message]
        for other in edges.get(message, ()):
            before[other] -= 1
            if not before[other]:
                free.append(other)
    return set(before)


def _shortest_cycle(edges: Edges, rest: set[Message]) -> list[Message]:
    """A shortest cycle through the first message that is on one (one of `rest` may also just follow a cycle)."""
    for start in sorted(rest):
        came_from: dict[Message, Message] = {}
        queue = deque([start])
        while queue:
            message = queue.popleft()
            for other in edges.get(message, ()):
                if other == start:
                    cycle = [message]
                    while cycle[-1] != start:
                        cycle.append(came_from[cycle[-1]])
                    return cycle[::-1]
                if other in rest and other not in came_from:
                    came_from[other] = message
                    queue.append(other)
    raise AssertionError("what remains without sources holds a cycle")


def _joined(cycle: list[Message], edges: Edges) -> list[tuple[str, Message, Message]]:
    """The cycle as steps (member, one, other), consecutive edges of one member joined."""
    steps: list[tuple[str, Message, Message]] = []
    for one, other in zip(cycle, [*cycle[1:], cycle[0]], strict=True):
        who = edges[one][other]
        if steps and steps[-1][0] == who:
            steps[-1] = (who, steps[-1][1], other)
        else:
            steps.append((who, one, other))
    if len(steps) > 1 and steps[0][0] == steps[-1][0]:
        steps[0] = (steps[0][0], steps.pop()[1], steps[0][2])
    return steps
