"""Properties that rest on few rows: these are picked out of a run, and the plain checker judges them in one task.

A checker of `trace.checks` cannot tell some rows of a run from all of them, if

- its handlers see every row that they look at: those of its kinds, and others that are picked for it;
- what it asks of the history (which views a life installed, how it ended, whether rows are missing) is in the rows that every
  checker is given: VIEW, the endings, and **marks**, which stand for the first row of a life and for a row behind a gap. Rows that
  were left out are no gap: each row comes with the index that was expected in its place (`TraceTables.outline`);
- a CAST comes before what delivers it.

Rows of some property are many, and fall apart into groups that can be judged alone, such as transactions. They are put into
**shares**, each of which has the rows that every checker is given.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from pyspark.sql import functions as F

from unisono.pipeline.properties.base import VIOLATION_DDL
from unisono.pipeline.properties.relations import RelationStep, causal_order
from unisono.pipeline.properties.scanning import UNTOLD, found_table
from unisono.pipeline.tables import FEW, LIFE, MARK, WHOSE
from unisono.trace.checks.checker import Checker
from unisono.trace.checks.history import History
from unisono.trace.checks.properties import CHECKERS
from unisono.trace.checks.property import texts_of
from unisono.trace.schema import CAST, COLUMNS, DELIVER, ENDINGS, NAMES, PLACE, VIEW, Event, member_name

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame

    from unisono.pipeline.tables import TraceTables

More: TypeAlias = "Callable[[TraceTables], DataFrame]"
"""Picks further rows of `TraceTables.events`, perhaps each with a `share`."""
GIVEN_ALWAYS = frozenset({MARK, VIEW, *ENDINGS})


class GivenRow(NamedTuple):
    """A row for a checker. `expected`: the index that comes next where no row is missing."""

    event: Event
    expected: int


class SummedUp(NamedTuple):
    """What Spark computes from rows that are too many for a checker, run by run."""

    table: Callable[[TraceTables], DataFrame]
    checker: Callable[[History, list[dict[str, Any]]], Checker]
    """Makes the checker from the rows of that table about a run."""


def few_rows(
    property: str, *kinds: str, more: More | None = None, facts: SummedUp | None = None
) -> Callable[[TraceTables], DataFrame]:
    """The Spark form of a property whose checker looks at all rows of these kinds (of `tables.FEW`), at `more`, and at `facts`."""

    def judge(rows: pyarrow.Table, told: pyarrow.Table | None) -> pyarrow.Table:
        if not len(rows):
            return found_table([])
        history = History(excerpt_in(rows))
        made = (
            CHECKERS[property](history) if facts is None or told is None else facts.checker(history, told.to_pylist())
        )
        run, group = observe_rows(history, rows)
        made.finish()
        return found_table([(run, group, property, one.members, one.view, witness) for one, witness in _told(made)])

    def violations(tables: TraceTables) -> DataFrame:
        rows = given_rows(tables, kinds, more)
        if facts is None:
            return rows.groupBy(*WHOSE, "share").applyInArrow(lambda rows: judge(rows, None), VIOLATION_DDL)
        told = facts.table(tables).groupBy(*WHOSE)
        return rows.groupBy(*WHOSE).cogroup(told).applyInArrow(lambda rows, told: judge(rows, told), VIOLATION_DDL)

    return violations


def given_rows(tables: TraceTables, kinds: Iterable[str], more: More | None = None) -> DataFrame:
    """What checkers are given: one task has the rows of one `share` of a run."""
    few = tables.outline.where(F.col("kind").isin(*GIVEN_ALWAYS, *kinds))
    whole = F.lit(0).cast("bigint").alias("share")
    if more is None:
        return few.select("*", whole)
    others = more(tables).withColumn("expected", F.col("local_index"))
    if "share" not in others.columns:
        few, others = few.select("*", whole), others.select("*", whole)
    else:
        few = few.join(F.broadcast(others.select(*WHOSE, "share").distinct()), list(WHOSE), "inner")
    return few.unionByName(others.select(*NAMES, "share", "expected"), allowMissingColumns=True)


def picked(tables: TraceTables, keys: DataFrame) -> DataFrame:
    """The rows of other kinds than `FEW` with these keys (`LIFE` and `local_index`, perhaps a `share`), each once."""
    key = [*LIFE, "local_index"]
    many = tables.events.where(~F.col("kind").isin(*sorted(FEW)))
    return many.join(keys.distinct(), key, "inner").select(*NAMES, *(set(keys.columns) - set(key)))


# On the workers.


def excerpt_in(table: pyarrow.Table) -> str | None:
    """The view of which these rows are an excerpt."""
    views: list[str] = table.column("excerpt_view").drop_null().unique().to_pylist()
    return views[0] if views else None


def observe_rows(history: History, table: pyarrow.Table) -> tuple[str, str]:
    """Let a history take in the rows of one task; their run and group.

    It is told of every life beforehand, and that nothing more is to be waited for: rows come in an order that needs no waiting.
    """
    rows = _rows_in(table)
    for address, incarnation in dict.fromkeys(_lives_in(rows)):
        history.observe(_mark(rows[0].event, address, incarnation))
    traced = {(event.member, event.incarnation) for event, _ in rows}
    for whose, life in history.lives.items():
        life.settled = True
        if whose not in traced:
            life.rows = 0  # only others speak of it
    for event, expected in _casts_first(rows):
        history.lives[event.member, event.incarnation].next_index = expected
        history.observe(event)
    return rows[0].event.run, rows[0].event.group


def _rows_in(table: pyarrow.Table) -> list[GivenRow]:
    """Life by life, each in the order of its indices."""
    return sorted(map(GivenRow, _events(table), table.column("expected").to_pylist()), key=lambda row: _turn(row.event))


def events_in(table: pyarrow.Table) -> list[Event]:
    """Likewise, all rows of some lives."""
    return sorted(_events(table), key=_turn)


def _events(table: pyarrow.Table) -> Iterator[Event]:
    return map(Event, *(_values(table, *column[:2]) for column in COLUMNS))


def _values(table: pyarrow.Table, name: str, kind: str) -> list[Any]:
    values: list[Any] = table.column(name).to_pylist()
    collection = tuple if kind.startswith("list") else dict if kind.startswith("map") else None
    return values if collection is None else [None if value is None else collection(value) for value in values]


def _turn(event: Event) -> tuple[str, int, int, bool, int]:
    return event.member, event.incarnation, event.local_index, event.kind != MARK, event.time_ns


def _lives_in(rows: Iterable[GivenRow]) -> Iterator[tuple[str, int]]:
    for event, _ in rows:
        yield event.member, event.incarnation
        if event.origin is not None and event.origin_incarnation is not None:
            yield event.origin, event.origin_incarnation


def _mark(like: Event, member: str, incarnation: int) -> Event:
    """Stands for nothing but a life: its first row has the index 0."""
    return Event(like.run, like.group, like.protocol, member, incarnation, -1, -(1 << 63), like.clock, MARK)


def _casts_first(rows: Sequence[GivenRow]) -> Iterator[GivenRow]:
    """The rows in an order in which every CAST comes before what delivers it, as far as there is one."""
    casts: dict[tuple[str | None, int | None], list[tuple[int, int]]] = {}  # by origin: where batches end and begin
    for event, _ in rows:
        if event.kind == CAST and event.first is not None and event.count is not None:
            casts.setdefault((event.origin, event.origin_incarnation), []).append(
                (event.first + event.count, event.first)
            )
    for batches in casts.values():
        batches.sort()
    lives: dict[str, list[RelationStep]] = {}
    for number, (event, _) in enumerate(rows):
        origin, step = (event.origin, event.origin_incarnation), RelationStep(number)
        if event.kind == CAST:
            step = RelationStep(number, casts=(origin, event.first))
        elif event.kind in (DELIVER, PLACE) and origin in casts:
            assert event.first is not None
            assert event.count is not None
            batches = casts[origin]
            at = min(bisect_left(batches, (event.first + event.count, -1)), len(batches) - 1)
            step = RelationStep(number, needs=(origin, batches[at][1]), delivers=event.kind == DELIVER)
        lives.setdefault(member_name(event.member, event.incarnation), []).append(step)
    return (rows[step.row] for step, _ in causal_order(lives))


def _told(checker: Checker) -> Iterator[tuple[Any, dict[str, str]]]:
    """The violations with their witnesses. The last one of a view says how many there are besides."""
    last = {one.view: one for one in checker.violations}
    told = Counter(one.view for one in checker.violations)
    for one in checker.violations:
        witness = texts_of(one.witness)
        untold = checker.counts[one.view] - told[one.view]
        yield one, {**witness, UNTOLD: str(untold)} if untold and last[one.view] is one else witness
