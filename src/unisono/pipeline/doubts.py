"""What the facts of one run say without its rows: what it owes, and whether they leave a doubt.

A run without a doubt keeps every property that digests decide; why, is told in `verify`. The digests are compared by the judge of
views (`view_judge`): a run is free of doubt if all of its views are closed and pass.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, NamedTuple

from unisono.pipeline.arrow_rows import as_table
from unisono.pipeline.scan import DECIDED_BY_DIGESTS, Fact
from unisono.pipeline.tables import WHOSE
from unisono.pipeline.view_judge import GroupJudge
from unisono.trace.checks.history import alone_note, clock_note, cut_note
from unisono.trace.promises import SHOWN, UNIFORM, owed_by_all, properties_listed
from unisono.trace.schema import CRASH, CUT, END, INDEX_MAX, LEAVE, TOTAL

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame

    Batches = Iterator[pyarrow.RecordBatch]

RUN_DDL = "run string, `group` string, protocol string, owed array<string>, rows bigint, notes array<string>, needs_rows boolean"


class RunAccount(NamedTuple):
    """What the facts of a run of a group say: a row of `RUN_DDL`."""

    run: str
    group: str
    protocol: str
    owed: list[str]
    rows: int
    notes: list[str]
    needs_rows: bool
    """Whether its rows must be looked at."""


def accounts(facts: DataFrame, also: Iterable[str] = (), ask_digests: bool = True) -> DataFrame:
    """One row a run of a group. `also`: what is asked of every run. Without `ask_digests` the rows of all runs are needed."""
    told = facts.select(*Fact._fields).where("what != 'file'").repartition(*WHOSE).sortWithinPartitions(*WHOSE)
    return told.mapInArrow(_accountant(frozenset(also), ask_digests), RUN_DDL)


def _accountant(also: frozenset[str], ask_digests: bool) -> Callable[[Batches], Batches]:
    def take_account(batches: Batches) -> Batches:
        facts = (Fact(*row) for batch in batches for row in zip(*map(_values, batch.columns), strict=True))
        by_run = (list(some) for _, some in groupby(facts, key=lambda fact: fact[:2]))
        yield from as_table((account_of(some, also, ask_digests) for some in by_run), RUN_DDL).to_batches()

    return take_account


def _values(column: pyarrow.Array) -> list[object]:
    values: list[object] = column.to_pylist()
    return values


def account_of(facts: list[Fact], also: frozenset[str] = frozenset(), ask_digests: bool = True) -> RunAccount:
    """What all facts of one run of a group say."""
    orders = sorted({fact.order for fact in facts if fact.order is not None})
    orders = orders or sorted({fact.protocol for fact in facts if fact.protocol is not None})
    owed = _owed(orders, is_shown=any(fact.what == "shown" for fact in facts)) | also
    services = {fact.service or "" for fact in facts if fact.what in ("origin", "cast")}
    needs_rows = not ask_digests or bool(_undecided(owed, services)) or _is_unordered(orders, owed, services)
    return RunAccount(
        *facts[0][:2],
        ", ".join(orders),
        sorted(owed),
        _rows(facts),
        list(_notes(facts, owed)),
        needs_rows or is_doubtful(facts),
    )


def is_doubtful(facts: list[Fact]) -> bool:
    """Whether the digests of a run of a group leave a doubt."""
    ends = Counter((fact.who, fact.piece) for fact in facts if (fact.edge, fact.relation) == ("local", "reached"))
    lives = Counter(fact.who for fact in facts if fact.what == "life")
    if max([*ends.values(), *lives.values()], default=0) > 1 or any(fact.what == "suspect" for fact in facts):
        return True  # two parts of one life may begin with the same local index
    judge = GroupJudge(limit_ms=0)
    said = judge.take(((str(fact.piece), fact) for fact in facts), 0)
    return not judge.is_complete or any(one.status not in ("open", "PASS") for one in said)


def _rows(facts: Iterable[Fact]) -> int:
    """How many rows its lives have, as far as they tell, and how many could not be read; of absurd numbers, a large one."""
    unread, lives = 0, Counter[str]()
    for fact in facts:
        if fact.what == "suspect":
            unread += fact.rows or 0
        elif fact.what == "life" or (fact.edge, fact.relation) == ("local", "reached"):
            lives[fact.who or ""] = max(lives[fact.who or ""], fact.rows or fact.value or 0)
    return min(unread + lives.total(), INDEX_MAX)


def _owed(orders: Iterable[str], is_shown: bool) -> frozenset[str]:
    """What is owed in any of its views, as far as something is recorded of it, or a list names it.

    A violation counts if the order of its view owes it (`owed.owed_only`).
    """
    owed = owed_by_all(orders)
    listed = owed_by_all(order for order in orders if properties_listed(order) is not None)
    return owed if is_shown else owed - (SHOWN - listed)


def _undecided(owed: frozenset[str], services: set[str]) -> frozenset[str]:
    """The owed properties that equal digests do not decide.

    Where not every message was totally ordered, they do not decide P8, nor whether casts and deliveries form a circle (P1).
    """
    return owed - (DECIDED_BY_DIGESTS | {"P8"} if services <= {TOTAL} else DECIDED_BY_DIGESTS - {"P1"})


def _is_unordered(orders: Iterable[str], owed: frozenset[str], services: set[str]) -> bool:
    """Whether a run lists a total order among what it owes, and carries messages, but none that is totally ordered."""
    lists_one = any(properties_listed(order) is not None for order in orders) and not owed.isdisjoint(UNIFORM)
    return lists_one and bool(services) and TOTAL not in services


def _notes(facts: Iterable[Fact], owed: frozenset[str]) -> Iterator[str]:
    """As `trace.checks.history` tells them of rows."""
    cut, ended, alone = set(), set(), set()
    shared = {fact.view for fact in facts if fact.what == "order" and "," in (fact.members or "")}
    for fact in facts:
        who = fact.who or ""
        if fact.what == "life" and fact.ending in (LEAVE, CRASH):
            ended.add(who)
        elif fact.what == "life" and fact.ending == END and fact.reason == CUT:
            cut.add(who)
        elif fact.what == "stay" and (fact.way or f"|{who}").rpartition("|")[2] == who and fact.view in shared:
            alone.add((who, fact.view or "", fact.way is None))
    yield from (clock_note(who, local) for who, local in sorted(_backwards(facts).items()))
    stays = [f"{who} in {view}" for who, view, has_no_way in sorted(alone) if not has_no_way or who in ended]
    if stays and "P10" not in owed:
        yield alone_note(stays)
    if cut:
        yield cut_note(cut)


def _backwards(facts: Iterable[Fact]) -> dict[str, int]:
    """By life whose clock runs backwards: the first row that is behind."""
    behind = [(fact.who or "", fact.local_index or 0) for fact in facts if fact.what == "backwards"]
    clocks = sorted(
        (fact.who or "", fact.piece or 0, fact.edge or "", fact.value or 0, fact.local_index or 0)
        for fact in facts
        if fact.what == "clock"
    )
    for (who, _, _, reached, _), (other, _, edge, begins, local) in pairwise(clocks):
        if who == other and edge == "begins" and begins < reached:
            behind.append((who, local))
    return dict(sorted(behind, reverse=True))
