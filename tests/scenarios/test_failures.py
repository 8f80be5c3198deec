"""The tables of docs/failures.md, cell by cell: each is played in virtual time through the public interface.

A play is an order, who casts, and what the network does to the message before the failure. In a cell that says *kept* no play
may lose the message; in one that says *may be lost* some play must lose it; in one that says *lost*, every play.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pytest

import unisono
from tests.scenarios.test_contract import ADDRESSES, Keeper, Reader, join_all, others
from unisono.orders.registry import ORDERS
from unisono.sim import Network, in_virtual_time

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "failures.md").read_text("utf-8")
REACH_S = 0.6
"""A message that has not reached its stage by then does not reach it before the failure. Suspicion takes longer than this."""
REPRESENTATIVES = ("sequencer", "causal", "toto", "rmp")
"""Where a row is about all orders."""


class Cell(NamedTuple):
    """What a page says in one cell."""

    table: str
    row: tuple[str, ...]
    column: str
    says: str

    def __str__(self) -> str:
        return f"{self.table}: {', '.join(self.row)}: {self.column}"


def cells_of(page: str, table: str, labels: int) -> list[Cell]:
    """The cells of the table under a heading, whose first columns are labels."""
    lines = [
        line for line in page.partition(f"\n## {table}\n")[2].partition("\n## ")[0].splitlines() if line[:1] == "|"
    ]
    head, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
    return [
        Cell(table, tuple(row[:labels]), column, says)
        for row in rows
        for column, says in zip(head[labels:], row[labels:], strict=True)
    ]


class Play(NamedTuple):
    """One way to come to a failure. The roles are indices of members."""

    order: str
    stage: str
    safe: bool
    caster: int
    second: int
    third: int
    prelude: str


def orders_of(cell: Cell, most: int) -> list[str]:
    """At most so many of the orders that a row names, from all over the list."""
    named = list(REPRESENTATIVES) if cell.row[2] == "all" else re.findall(r"`([\w-]+)`", cell.row[2])
    some = min(most, len(named))
    return [named[place * (len(named) - 1) // max(some - 1, 1)] for place in range(some)]


def plays_of(cell: Cell, orders: Sequence[str], preludes: Sequence[str]) -> Iterator[Play]:
    stages = cell.row[0].split(", ")
    safes = {"plain": (False,), "safe": (True,), "plain or safe": (False, True)}[cell.row[1]]
    number = 0
    for prelude in preludes:
        for role in ROLES if prelude == "behind another" else ROLES[::2]:
            for order in orders:
                number += 1
                yield Play(order, stages[number % len(stages)], safes[number % len(safes)], *role, prelude)


ROLES = ((0, 1, 2), (0, 2, 1), (1, 2, 0), (1, 0, 2), (2, 1, 0), (2, 0, 1))
"""Caster, second, third. Under `sequencer` and its relatives member 0 is the sequencer."""
PRELUDES = ("undisturbed", "not to the third", "to nobody", "behind another")
"""Which of the message is lost on the way before the failure. In the last one it all arrives, but the third member lacks one that
the second cast before it."""


async def cast(net: Network, groups: Sequence[unisono.Group], play: Play) -> bool:
    """Cast the message after its prelude, and wait for its stage; whether that is reached."""
    caster = ADDRESSES[play.caster]
    if play.prelude == "not to the third":
        net.cut(caster, ADDRESSES[play.third])
    elif play.prelude == "to nobody":
        for other in others(play.caster):
            net.cut(caster, other)
    elif play.prelude == "behind another":
        net.cut(ADDRESSES[play.second], ADDRESSES[play.third])
        await groups[play.second].cast(b"m0")
        await asyncio.sleep(0.02)
    receipt = await groups[play.caster].cast(b"m", safe=play.safe)
    if play.stage == "accepted":
        return True
    try:
        await getattr(receipt, play.stage)(REACH_S)
    except unisono.TimedOut:
        return False
    return True


# Partitionable: who delivers the message.

Fault = Callable[[Network, Sequence[unisono.Group], Play], Coroutine[Any, Any, tuple[int, ...]]]


async def caster_crashes(net: Network, groups: Sequence[unisono.Group], play: Play) -> tuple[int, ...]:
    net.crash(groups[play.caster])
    return play.second, play.third


async def caster_restarts(net: Network, groups: Sequence[unisono.Group], play: Play) -> tuple[int, ...]:
    net.crash(groups[play.caster])
    net.heal()
    again = Reader(
        await unisono.join("g", listen=ADDRESSES[play.caster], peers=ADDRESSES, order=play.order, min_members=3)
    )
    await asyncio.sleep(3)
    assert again.payloads() == [], "a new life is a new member"
    return play.second, play.third


async def another_crashes(net: Network, groups: Sequence[unisono.Group], play: Play) -> tuple[int, ...]:
    net.crash(groups[play.second])
    return play.caster, play.third


async def all_but_one_crash(net: Network, groups: Sequence[unisono.Group], play: Play) -> tuple[int, ...]:
    net.crash(groups[play.caster])
    net.crash(groups[play.second])
    return (play.third,)


async def caster_is_cut_off(net: Network, groups: Sequence[unisono.Group], play: Play) -> tuple[int, ...]:
    await cut_off(net, play.caster)
    return play.second, play.third


async def another_is_cut_off(net: Network, groups: Sequence[unisono.Group], play: Play) -> tuple[int, ...]:
    await cut_off(net, play.third)
    return (play.third,)


async def cut_off(net: Network, who: int, seconds: float = 5) -> None:
    net.heal()  # what was lost on the way here
    net.partition([[ADDRESSES[who]], others(who)])
    await asyncio.sleep(seconds)
    net.heal()


FAULTS: dict[str, Fault] = {
    "the caster crashes": caster_crashes,
    "the caster restarts: the others": caster_restarts,
    "another member crashes": another_crashes,
    "all but one crash": all_but_one_crash,
    "the caster is cut off: the others": caster_is_cut_off,
    "another member is cut off: that one": another_is_cut_off,
}


def is_delivered_after(play: Play, column: str) -> bool | None:
    """Whether the members that the column asks for deliver the message; None: the stage was not reached before the failure."""

    async def main(net: Network) -> bool | None:
        groups = await join_all(order=play.order)
        readers = [Reader(group) for group in groups]
        await asyncio.sleep(0.5)
        if not await cast(net, groups, play):
            return None
        if column == "all restart":
            for group in groups:
                net.crash(group)
            net.heal()
            await asyncio.sleep(1)
            readers = [Reader(group) for group in await join_all(order=play.order)]
            asked: tuple[int, ...] = (0, 1, 2)
        else:
            asked = await FAULTS[column](net, groups, play)
            net.heal()  # the prelude was loss, not a second failure
        await asyncio.sleep(6)
        delivered = [b"m" in readers[i].payloads() for i in asked]
        assert len(set(delivered)) == 1, f"some of the members that go on have it, and some do not: {play}"
        return delivered[0]

    return in_virtual_time(main, seed=1, limit=600)


# Primary: in whose state the message is.


async def in_states_after(play: Play, column: str, folder: Path, net: Network) -> bool | None:
    keepers = [Keeper(i, folder, order=play.order, min_members=3) for i in range(3)]
    await asyncio.gather(*(keeper.start() for keeper in keepers))
    await asyncio.sleep(2)
    groups = [keeper.group for keeper in keepers]
    assert all(group.view.is_primary for group in groups)
    if not await cast(net, groups, play):
        return None
    asked = list(keepers)

    def again(i: int) -> Awaitable[Keeper]:
        return Keeper(i, folder, order=play.order).start()

    if column == "the caster crashes":
        net.crash(groups[play.caster])
        net.heal()
        del asked[play.caster]
        await asyncio.sleep(6)
    elif column == "the caster is cut off and comes back":
        await cut_off(net, play.caster)
        await asyncio.sleep(6)
    elif column == "the caster and another restart while the third is cut off":
        net.heal()
        net.partition([[ADDRESSES[play.third]], others(play.third)])
        net.crash(groups[play.caster])
        net.crash(groups[play.second])
        await asyncio.sleep(3)
        asked[play.caster], asked[play.second] = await asyncio.gather(again(play.caster), again(play.second))
        await asyncio.sleep(2)
        for i in (play.caster, play.second):
            assert not asked[i].group.view.is_primary
            assert asked[i].state == []
        net.heal()
        await asyncio.sleep(8)
    else:
        assert column == "all restart"
        for group in groups:
            net.crash(group)
        net.heal()
        await asyncio.sleep(3)
        asked = list(await asyncio.gather(*(again(i) for i in range(3))))
        await asyncio.sleep(5)
        lost = asked[0].group.status()["lost_state"]
        assert lost is not None
        assert any(lost in sentence for sentence in asked[0].group.explain())
        await asked[0].group.give_up(lost, timeout=10)
        await asyncio.sleep(3)
    assert all(keeper.group.view.is_primary for keeper in asked)
    assert all(keeper.state == asked[0].state for keeper in asked) or play.order == "causal"
    kept = ["m" in keeper.state for keeper in asked]
    assert len(set(kept)) == 1, f"states differ: {play}"
    return kept[0]


# Receipts.


def answer_of(play: Play, column: str, folder: Path) -> str:
    async def main(net: Network) -> str:
        options: dict[str, Any] = {}
        if column.endswith("primary"):
            options = {"policy": "primary"}
        joining = (
            unisono.join(
                "g", listen=one, peers=ADDRESSES, min_members=3, order=play.order,
                **options | ({"journal": folder / one} if options else {}),
            )
            for one in ADDRESSES
        )  # fmt: skip
        groups = list(await asyncio.gather(*joining))
        readers = [Reader(group) for group in groups]
        await asyncio.sleep(0.5)
        if column != "a member joins or leaves":
            net.cut(ADDRESSES[play.caster], ADDRESSES[play.third])
        receipt = await groups[play.caster].cast(b"m", safe=play.safe)
        answer: asyncio.Future[None] = asyncio.ensure_future(getattr(receipt, play.stage)(20))
        if column == "a member joins or leaves":
            if play.second == 1:
                await groups[play.third].leave()
            else:
                joiner = await unisono.join("g", listen="10.0.0.4:7400", peers=ADDRESSES, order=play.order)
                readers.append(Reader(joiner))
        elif column == "another member crashes":
            net.crash(groups[play.third])
        else:
            net.partition([[ADDRESSES[who := play.third if "another" in column else play.caster]], others(who)])
        await asyncio.wait([answer])
        result = answer.exception()
        if isinstance(result, unisono.Uncertain):
            assert groups[play.caster].id in result.known
            assert groups[play.third].id not in result.known
            return "uncertain"
        assert result is None, repr(result)
        return "confirmed"

    return in_virtual_time(main, seed=1, limit=600)


# States, where both parts of a partition go on.


class Board(Keeper):
    """The same under the other policy."""

    async def start(self) -> Board:
        merge = self._merge if self.options["has_merge"] else None
        self.group = await unisono.join(
            "g", listen=ADDRESSES[self.i], peers=ADDRESSES, min_members=3,
            snapshot=lambda: json.dumps(self.state).encode(), restore=self._restore, merge=merge,
        )  # fmt: skip
        self.task = asyncio.get_running_loop().create_task(self._read())
        return self


def is_in_every_state(cell: Cell, part: int, caster: int) -> bool:
    """Whether the message is in all states when the parts have met again: member `part` was cut off, `caster` casts."""

    async def main(net: Network) -> bool:
        boards = [Board(i, Path(), has_merge="merge" in cell.row[1]) for i in range(3)]
        await asyncio.gather(*(board.start() for board in boards))
        if cell.row[0] == "stable before the partition":
            await (await boards[caster].group.cast(b"m")).stable(5)
        net.partition([[ADDRESSES[part]], others(part)])
        await asyncio.sleep(5)
        if cell.row[0] == "stable in one part of it":
            await (await boards[caster].group.cast(b"m")).stable(5)
        net.heal()
        await asyncio.sleep(8)
        kept = ["m" in board.state for board in boards]
        assert len(set(kept)) == 1
        told = {board.i for board in boards if any(isinstance(event, unisono.Replaced) for event in board.log)}
        assert told in ([set()] if "merge" in cell.row[1] else [{part}, {0, 1, 2} - {part}])
        return kept[0]

    return in_virtual_time(main, seed=1, limit=600)


# The cells.

PARTITIONABLE = cells_of(PAGE, "Partitionable", 3)
STATES = cells_of(PAGE, "Partitionable, with a state", 2)
PRIMARY = cells_of(PAGE, "Primary", 3)
RECEIPTS = cells_of(PAGE, "What a receipt answers", 3)


T = TypeVar("T")


def judge(cell: Cell, plays: Iterable[T], is_kept: Callable[[T], bool | None]) -> None:
    """Play until the cell is shown or refuted."""
    assert cell.says in ("kept", "may be lost", "lost")
    played = lost = 0
    for play in plays:
        kept = is_kept(play)
        if kept is None:
            continue
        played += 1
        lost += not kept
        assert kept or cell.says != "kept", f"{cell}: lost in {play}"
        assert not kept or cell.says != "lost", f"{cell}: kept in {play}"
        if lost and cell.says == "may be lost":
            break
    assert played, f"{cell}: no play comes that far"
    assert lost or cell.says == "kept", f"{cell}: {played} plays, and none loses it"


def preludes_of(cell: Cell) -> Sequence[str]:
    """What is gone with all processes is gone whatever came before."""
    return PRELUDES[:1] if cell.column == "all restart" else PRELUDES


@pytest.mark.seconds
@pytest.mark.parametrize("cell", PARTITIONABLE, ids=str)
def test_partitionable(cell: Cell) -> None:
    plays = plays_of(cell, orders_of(cell, 3), preludes_of(cell))
    judge(cell, plays, lambda play: is_delivered_after(play, cell.column))


@pytest.mark.seconds
@pytest.mark.parametrize("cell", STATES, ids=str)
def test_partitionable_with_a_state(cell: Cell) -> None:
    roles = [(part, caster) for part in (0, 2) for caster in (0, 1, 2)]
    judge(cell, roles, lambda role: is_in_every_state(cell, *role))


@pytest.mark.seconds
@pytest.mark.parametrize("cell", PRIMARY, ids=str)
def test_primary(cell: Cell, tmp_path: Path) -> None:
    folders = (tmp_path / str(number) for number in count())

    def is_kept(play: Play) -> bool | None:
        return in_virtual_time(partial(in_states_after, play, cell.column, next(folders)), seed=1, limit=600)

    judge(cell, plays_of(cell, orders_of(cell, 2), preludes_of(cell)), is_kept)


@pytest.mark.seconds
@pytest.mark.parametrize("cell", RECEIPTS, ids=str)
def test_what_a_receipt_answers(cell: Cell, tmp_path: Path) -> None:
    plays = plays_of(cell, orders_of(cell, 10), PRELUDES[:1])
    answers = {answer_of(play, cell.column, tmp_path / str(number)) for number, play in enumerate(plays)}
    assert answers == ({"confirmed", "uncertain"} if cell.says == "either" else {cell.says}), str(cell)


def test_every_order_is_in_every_table() -> None:
    for table in (PARTITIONABLE, PRIMARY, RECEIPTS):
        for stage, message in {cell.row[:2] for cell in table}:
            named = [cell.row[2] for cell in table if cell.row[:2] == (stage, message)]
            assert "all" in named or sorted(set(re.findall(r"`([\w-]+)`", " ".join(named)))) == sorted(ORDERS)
    assert len(PARTITIONABLE) > 30
    assert len(STATES) == 4


# What the page says beside its tables.


@pytest.mark.parametrize("order", REPRESENTATIVES)
@pytest.mark.parametrize("who", [0, 2])
def test_in_a_cut_that_nobody_notices_nothing_is_lost(order: str, who: int) -> None:
    async def main(net: Network) -> None:
        groups = await join_all(order=order)
        readers = [Reader(group) for group in groups]
        await asyncio.sleep(0.5)
        net.partition([[ADDRESSES[who]], others(who)])
        receipt = await groups[0].cast(b"m")
        await asyncio.sleep(0.3)
        net.heal()
        await receipt.stable(10)
        await asyncio.sleep(3)
        assert [reader.payloads() for reader in readers] == [[b"m"]] * 3
        assert [len(reader.stays()) for reader in readers] == [1] * 3

    in_virtual_time(main, seed=1)


@pytest.mark.parametrize("has_others", [True, False])
def test_an_uncertain_message_survives_if_its_member_is_the_last_holder(tmp_path: Path, has_others: bool) -> None:
    """A member is cut off with a message that reached nobody. The others go on without it, or restart and take it over."""

    async def main(net: Network) -> None:
        keepers = [Keeper(i, tmp_path, min_members=3) for i in range(3)]
        await asyncio.gather(*(keeper.start() for keeper in keepers))
        await asyncio.sleep(2)
        net.partition([ADDRESSES[:2], ADDRESSES[2:]])
        receipt = await keepers[2].group.cast(b"m", safe=True)
        with pytest.raises(unisono.Uncertain):
            await receipt.delivered(20)
        assert keepers[2].state == ["m"]
        assert not keepers[2].group.view.is_primary
        if not has_others:
            for i in (0, 1):
                net.crash(keepers[i].group)
            await asyncio.sleep(3)
            keepers[:2] = await asyncio.gather(*(Keeper(i, tmp_path).start() for i in (0, 1)))
        net.heal()
        await asyncio.sleep(8)
        assert [keeper.state for keeper in keepers] == [[] if has_others else ["m"]] * 3
        assert all(keeper.group.view.is_primary for keeper in keepers)

    in_virtual_time(main, seed=1, limit=600)


# A check that cannot fail proves nothing.


@pytest.mark.parametrize(
    ("stage", "column", "wrong"),
    [
        ("stable", "all but one crash", "may be lost"),
        ("stable", "all but one crash", "lost"),
        ("stable", "all restart", "kept"),
        ("accepted", "the caster crashes", "kept"),
        ("accepted", "another member crashes", "lost"),
        ("accepted", "another member is cut off: that one", "kept"),
        ("accepted", "all restart", "gone"),
    ],
)
def test_a_cell_that_is_wrong_is_found(stage: str, column: str, wrong: str) -> None:
    cell = next(one for one in PARTITIONABLE if one.row[0] == stage and one.column == column)
    assert cell.says != wrong
    plays = plays_of(cell, ["sequencer"], preludes_of(cell))
    with pytest.raises(AssertionError):
        judge(cell._replace(says=wrong), plays, partial(is_delivered_after, column=column))


def test_a_message_that_gets_nowhere_shows_nothing() -> None:
    cell = next(one for one in PARTITIONABLE if one.row[0] == "stable")
    with pytest.raises(AssertionError, match="no play comes that far"):
        judge(cell, plays_of(cell, ["sequencer"], ["to nobody"]), partial(is_delivered_after, column=cell.column))
