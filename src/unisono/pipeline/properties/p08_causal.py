"""P8 causal: if m → m' and both are addressed to p, p delivers m first.

past(m) is the union of the pasts of everything that m's caster had cast or delivered before, in this view, and of those
messages themselves; a placeholder counts as delivered there, so that the past is transitive through messages not
addressed to p. A message that is not `total` need not wait for a `total` one of its past. A void payload is exempt.

The past is computed from the trace, never from the protocol's own clocks, in one scan per view: rows come in an order
in which every cast is before its deliveries, and each stay keeps a **frontier**, one number an origin: how many of the
messages that the origin cast in this view are known to it. That loses nothing, because what an origin cast earlier is
in the past of what it cast later. O(N·n) in all.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from unisono.pipeline.properties.base import VIOLATION_DDL
from unisono.pipeline.properties.relations import Step, causal_order
from unisono.trace.schema import TOTAL

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame

    from unisono.pipeline.properties.scanning import Found
    from unisono.pipeline.tables import Tables

PROPERTY = "P8"
_COLUMNS = (
    "run", "group", "view", "who", "local_index", "kind", "stay", "members", "holed", "origin_who", "first", "count", "void",
    "service", "destinations", "cast_first", "cast_local",
)  # fmt: skip
Row = dict[str, Any]


def violations(tables: Tables) -> DataFrame:
    from pyspark.sql import functions as F

    casts = tables.booked.where(F.col("kind") == "CAST")
    casts = casts.withColumns({"cast_first": F.col("first"), "cast_local": F.col("local_index")})
    same_view = F.col("cast_view").isNull() | (F.col("cast_view") == F.col("view"))
    delivered = tables.parts.where(same_view)
    delivered = delivered.withColumns({"service": F.col("cast_service"), "destinations": F.col("cast_destinations")})
    # Rows of a view whose VIEW row is missing still hand on what they know, by the list that others have.
    lists = tables.views.groupBy("run", "group", "view").agg(F.min("members").alias("list"))
    rows = (
        casts.select(*_COLUMNS)
        .unionByName(delivered.select(*_COLUMNS))
        .join(lists, ["run", "group", "view"], "left")
        .withColumn("members", F.coalesce("members", "list", F.array().cast("array<string>")))
        .select(*_COLUMNS)
    )
    return rows.groupBy("run", "group", "view").applyInArrow(_scan, VIOLATION_DDL)


def _scan(table: pyarrow.Table) -> pyarrow.Table:
    from unisono.pipeline.properties.scanning import found_table

    order = [("who", "ascending"), ("local_index", "ascending"), ("first", "ascending")]
    return found_table(_View(table.sort_by(order).to_pylist()).found())


@dataclass
class _Stay:
    """What one stay knows and has delivered, by the origin's number."""

    members: Sequence[int]
    known: list[int]
    delivered_to: list[int]
    """Everything that the origin cast in this view below it was delivered or placed here."""
    beyond: defaultdict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    told: dict[bool, list[int]] = field(default_factory=dict)
    """Below it, what is missing was told already: by messages that are `total` (True), and by others."""
    voids: set[tuple[int, int]] = field(default_factory=set)


class _View:
    """The rows of one view, sorted by life and local index."""

    def __init__(self, rows: list[Row]) -> None:
        self.rows = rows
        names = {name for row in rows for name in (row["origin_who"], *row["members"])}
        self.number = {name: number for number, name in enumerate(sorted(names))}
        self.casts: list[list[Row]] = [
            [] for _ in names
        ]  # by origin's number: for each message cast here, its CAST row
        self.indices: list[list[int]] = [[] for _ in names]
        for row in sorted((row for row in rows if row["kind"] == "CAST"), key=lambda row: row["first"]):
            number = self.number[row["origin_who"]]
            begin = max(row["first"], self.indices[number][-1] + 1) if self.indices[number] else row["first"]
            for index in range(begin, row["first"] + row["count"]):
                self.indices[number].append(index)
                self.casts[number].append(row)
        self.stays: dict[tuple[str, int | None], _Stay] = {}
        self.pasts: dict[tuple[int, int], list[int]] = {}  # by origin's number and first index of the batch
        self.missed: list[tuple[Row, _Stay, int, int]] = []  # a delivery, its stay, and the message that it came before

    def found(self) -> list[Found]:
        lives: dict[str, list[Step]] = {}
        for number, row in enumerate(self.rows):
            batch = None if row["cast_first"] is None else (row["origin_who"], row["cast_first"])
            is_cast = row["kind"] == "CAST"
            step = Step(number, batch, None) if is_cast else Step(number, None, batch, row["kind"] == "DELIVER")
            lives.setdefault(row["who"], []).append(step)
        for step, early in causal_order(lives):
            row = self.rows[step.row]
            if row["kind"] == "CAST":
                self._cast(row)
            elif row["origin_who"] in row["members"]:
                self._deliver(row, None if early or row["cast_first"] is None else row["cast_first"])
        return [self._say(*missed) for missed in self.missed if not self._is_exempt(*missed)]

    def _stay(self, row: Row) -> _Stay:
        key = (row["who"], row["stay"])
        if key not in self.stays:
            size = len(self.number)
            members = sorted({self.number[name] for name in row["members"]})
            stay = _Stay(members, [0] * size, [0] * size)
            stay.told = {True: [0] * size, False: [0] * size}
            self.stays[key] = stay
        return self.stays[key]

    def _cast(self, row: Row) -> None:
        stay, number = self._stay(row), self.number[row["who"]]
        self.pasts[number, row["first"]] = stay.known.copy()
        if row["who"] in row["members"]:
            stay.known[number] = bisect_left(self.indices[number], row["first"] + row["count"])

    def _deliver(self, row: Row, batch: int | None) -> None:
        stay, number = self._stay(row), self.number[row["origin_who"]]
        first, end = (bisect_left(self.indices[number], row["first"] + step) for step in (0, row["count"]))
        if batch is not None:
            past = self.pasts[number, batch].copy()
            if row["kind"] == "DELIVER" and not row["holed"]:
                self._judge(row, stay, past, number, first)
            for one in stay.members:
                stay.known[one] = max(stay.known[one], past[one])
        stay.known[number] = max(stay.known[number], end)
        beyond = stay.beyond[number]
        beyond.update(range(first, end))
        while stay.delivered_to[number] in beyond:
            beyond.discard(stay.delivered_to[number])
            stay.delivered_to[number] += 1
        if row["void"] and row["kind"] == "PLACE":
            stay.voids.update((number, place) for place in range(first, end))

    def _judge(self, row: Row, stay: _Stay, past: list[int], number: int, first: int) -> None:
        """Everything of the past must be here before: look from the first that is not, up to the frontier."""
        total = row["service"] == TOTAL
        for one in stay.members:
            bound = first if one == number else past[one]
            start = max(stay.delivered_to[one], stay.told[True][one], 0 if total else stay.told[False][one])
            for place in range(start, bound):
                cast = self.casts[one][place]
                addressed = cast["destinations"] is None or row["who"] in cast["destinations"]
                waits = total or cast["service"] != TOTAL
                if addressed and waits and place not in stay.beyond[one]:
                    self.missed.append((row, stay, one, place))
            stay.told[total][one] = max(stay.told[total][one], bound)

    def _is_exempt(self, row: Row, stay: _Stay, number: int, place: int) -> bool:
        return self.casts[number][place]["destinations"] is not None and (number, place) in stay.voids

    def _say(self, row: Row, stay: _Stay, number: int, place: int) -> Found:
        cast = self.casts[number][place]
        witness = {
            "message": f"{row['origin_who']}:{row['first']}",
            "local_index": row["local_index"],
            "past": f"{cast['who']}:{self.indices[number][place]}",
            "past_caster": cast["who"],
            "past_local": cast["local_index"],
        }
        return row["run"], row["group"], PROPERTY, [row["who"]], row["view"], witness
