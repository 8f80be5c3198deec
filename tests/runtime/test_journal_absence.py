"""What the group delivers without a member is a gap in that member's journal. In virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import unisono
from tests.journal_tools import A, B, batch, entered
from tests.runtime.groups import ADDRESSES
from unisono.core.member import Entered
from unisono.runtime.journal import read
from unisono.runtime.journal.deliveries import Deliveries
from unisono.runtime.journal.format import ABSENCE, BEGINNING, LOST, Delivered, Missing, Row, Viewed
from unisono.runtime.journal.reader import GapError
from unisono.sim import Network, test

STATE: dict[str, Any] = {"snapshot": lambda: b"", "restore": lambda state: None}


class Seen:
    """What a process lets the test see."""

    def __init__(self) -> None:
        self.groups: list[unisono.Group] = []
        self.payloads: list[bytes] = []


async def follow(address: str, folder: Path, seen: Seen, wishes: dict[str, Any]) -> None:
    """A member that journals what it delivers."""
    journal = unisono.Journal(folder / address, deliveries=True, fsync="never")
    async with unisono.join("g", listen=address, peers=ADDRESSES, journal=journal, **wishes) as group:
        seen.groups.append(group)
        async for event in group:
            if isinstance(event, unisono.Delivery):
                seen.payloads.append(event.payload)


async def cast(group: unisono.Group, *payloads: bytes) -> None:
    for payload in payloads:
        receipt = await group.cast(payload)
    await receipt.stable(timeout=10)


async def until(group: unisono.Group, members: int) -> None:
    await group.until(lambda view: len(view.members) == members, timeout=60)


def lost_silently(rows: Sequence[Row], delivered: Sequence[bytes]) -> list[bytes]:
    """What others delivered, and a journal neither holds nor says that it lacks."""
    lost: list[bytes] = []
    at, is_told = 0, True  # a journal may begin anywhere
    for row in rows:
        is_told = is_told or isinstance(row, Missing)
        if isinstance(row, Delivered) and row.payload in delivered:
            place = delivered.index(row.payload)
            lost += [] if is_told else delivered[at:place]
            at, is_told = place + 1, False
    return lost


def shown(folder: Path, address: str) -> list[Row]:
    return list(read(folder / address, gaps="show"))


def gaps_in(rows: Sequence[Row]) -> list[Missing]:
    return [row for row in rows if isinstance(row, Missing)]


def restart(folder: Path, **wishes: Any) -> tuple[list[Row], list[bytes]]:
    """A member is killed, the others go on, and it comes back: its journal, and what the others delivered."""

    @test()
    async def story(network: Network) -> None:
        every = [Seen() for _ in ADDRESSES]
        processes = [
            network.process(follow, address, folder, seen, wishes)
            for address, seen in zip(ADDRESSES, every, strict=True)
        ]
        await asyncio.sleep(3)
        caster = every[0].groups[0]
        await cast(caster, b"before")
        processes[2].kill()
        await until(caster, 2)
        await cast(caster, b"meanwhile 1", b"meanwhile 2")
        processes[2].restart()
        await until(caster, 3)
        await asyncio.sleep(3)
        await cast(caster, b"after")
        await asyncio.sleep(1)
        delivered.extend(every[1].payloads)

    delivered: list[bytes] = []
    story()
    assert delivered == [b"before", b"meanwhile 1", b"meanwhile 2", b"after"]
    assert gaps_in(shown(folder, ADDRESSES[1])) == [], "it was always there, and a newcomer is no gap"
    return shown(folder, ADDRESSES[2]), delivered


def split(folder: Path, **wishes: Any) -> tuple[list[Row], list[bytes]]:
    """A member is cut off and comes back in the same life: its journal, and what the others delivered."""

    @test()
    async def story(network: Network) -> None:
        every = [Seen() for _ in ADDRESSES]
        for address, seen in zip(ADDRESSES, every, strict=True):
            network.process(follow, address, folder, seen, wishes)
        await asyncio.sleep(3)
        caster = every[0].groups[0]
        await cast(caster, b"before")
        network.partition([ADDRESSES[:2], ADDRESSES[2:]])
        await until(caster, 2)
        await cast(caster, b"meanwhile")
        network.heal()
        await until(caster, 3)
        await asyncio.sleep(3)
        await cast(caster, b"after")
        await asyncio.sleep(1)
        delivered.extend(every[1].payloads)

    delivered: list[bytes] = []
    story()
    assert delivered == [b"before", b"meanwhile", b"after"]
    return shown(folder, ADDRESSES[2]), delivered


@pytest.mark.parametrize("wishes", [{}, STATE, {**STATE, "policy": "primary"}])
@pytest.mark.parametrize("leave", [restart, split])
def test_what_was_delivered_without_a_member_is_a_gap(tmp_path: Path, leave: Any, wishes: dict[str, Any]) -> None:
    rows, delivered = leave(tmp_path, **wishes)
    assert b"meanwhile 1" not in [row.payload for row in rows if isinstance(row, Delivered)]
    assert lost_silently(rows, delivered) == []
    first, *_ = gaps_in(rows)
    assert first.kind == ABSENCE
    assert first.messages == -1
    before = next(row for row in rows if isinstance(row, Delivered))
    assert (first.view, first.ordinal) in ((before.view, before.ordinal + 1), (first.view, 0)), "from where"
    ends = rows[rows.index(first) + 1]
    assert isinstance(ends, Viewed)
    assert str(ends.view) in first.reason, "to where"
    with pytest.raises(GapError, match=r"an unknown number of deliveries are missing from ordinal \d of view .* view "):
        list(read(tmp_path / ADDRESSES[2]))


@pytest.mark.parametrize("leave", [restart, split])
def test_a_journal_that_says_nothing_of_an_absence_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, leave: Any
) -> None:
    def says_nothing(self: Deliveries, entered: Entered, position: int) -> None:
        return None

    monkeypatch.setattr(Deliveries, "_absence_before", says_nothing)
    rows, delivered = leave(tmp_path)
    assert lost_silently(rows, delivered) == [payload for payload in delivered if payload.startswith(b"meanwhile")]


def test_what_only_a_state_brings_is_a_gap(tmp_path: Path) -> None:
    """In the first view of a life it is where the application begins: that does not stop readers."""
    journal = unisono.Journal(tmp_path, deliveries=True, fsync="never")
    journal.begin_life(1)
    journal.deliver([entered(1, A)])
    journal.skip(batch(0, 0, b"a"))
    journal.deliver([batch(0, 1, b"b"), entered(2, A, B)])
    journal.skip(batch(0, 2, b"c", b"d"))
    journal.deliver([batch(0, 4, b"e")])
    journal.close()
    assert journal.missing_messages == 0, "nothing failed"
    with pytest.raises(GapError, match="2 deliveries are missing from ordinal 0 of view 2@"):
        list(read(tmp_path))
    beginning, gap = gaps_in(list(read(tmp_path, gaps="show")))
    assert (beginning.view.number, beginning.ordinal, beginning.messages, beginning.kind) == (1, 0, 1, BEGINNING)
    assert (gap.view.number, gap.ordinal, gap.messages, gap.kind) == (2, 0, 2, LOST)
    assert "they are in a state that was taken over" in str(gap)
