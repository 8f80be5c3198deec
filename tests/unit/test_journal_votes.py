"""Votes and decisions of the two-phase commit in the journal: a vote is on the disk before anybody hears of it."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import unisono
from tests.journal_tools import ForgetfulDisk, FullDisk, MortalDisk, QuickDisk
from unisono.core.outbox import VoteWatermark
from unisono.core.types import MemberId, ViewId
from unisono.orders.rmp import Rmp
from unisono.runtime import logs
from unisono.runtime.errors import JournalError
from unisono.runtime.journal import Journal
from unisono.runtime.journal.disk import Disk
from unisono.runtime.journal.records import FILE_BYTES_MAX, Undecided
from unisono.sim import Network, in_virtual_time

NOON = 1_000_000
VIEW = ViewId(7, MemberId("10.0.0.1:7400", 11))
NEXT = ViewId(8, MemberId("10.0.0.2:7400", 12))
ADDRESSES = [f"10.0.0.{i}:7400" for i in (1, 2, 3)]


def begun(path: Path, disk: Disk | None = None) -> Journal:
    journal = Journal(path, disk=disk or QuickDisk())
    journal.begin_life(NOON)
    return journal


def left_behind(path: Path) -> Undecided | None:
    """What the next life finds."""
    journal = Journal(path)
    journal.close()
    return journal.undecided


def live(path: Path, *watermarks: VoteWatermark, disk: Disk | None = None) -> None:
    journal = begun(path, disk)
    for watermark in watermarks:
        journal.keep_votes(watermark)
    journal.close()


# What is remembered.


@pytest.mark.parametrize(
    ("watermarks", "open_votes"),
    [
        ([], None),
        ([(VIEW, 1, 0)], Undecided(VIEW, 0, 0)),
        ([(VIEW, 1, 0), (VIEW, 5, 2)], Undecided(VIEW, 2, 4)),
        ([(VIEW, 1, 0), (VIEW, 1, 1)], None),
        ([(VIEW, 5, 2), (VIEW, 5, 6)], None),  # a cut decided more than there were votes
        ([(VIEW, 5, 5), (NEXT, 1, 0)], Undecided(NEXT, 0, 0)),
    ],
)
def test_the_last_watermark_says_what_is_open(
    tmp_path: Path, watermarks: list[tuple[ViewId, int, int]], open_votes: Undecided | None
) -> None:
    live(tmp_path, *(VoteWatermark(*one) for one in watermarks))
    assert left_behind(tmp_path) == open_votes


def test_it_is_said_in_positions_of_a_view() -> None:
    assert str(Undecided(VIEW, 2, 4)) == "positions 2 to 4 of view 7@10.0.0.1:7400#11"


def test_a_life_that_votes_for_nothing_hands_it_on(tmp_path: Path) -> None:
    live(tmp_path, VoteWatermark(VIEW, 3, 1))
    journal = begun(tmp_path)
    assert journal.undecided == Undecided(VIEW, 1, 2)
    journal.keep([b"a record"])
    journal.close()
    assert left_behind(tmp_path) == Undecided(VIEW, 1, 2)


def test_what_an_earlier_life_left_is_told_while_this_one_votes(tmp_path: Path) -> None:
    live(tmp_path, VoteWatermark(VIEW, 3, 1))
    journal = begun(tmp_path)
    journal.keep_votes(VoteWatermark(NEXT, 1, 0))
    assert journal.undecided == Undecided(VIEW, 1, 2)
    journal.close()
    assert left_behind(tmp_path) == Undecided(NEXT, 0, 0)


def test_a_journal_from_before_votes_were_kept_opens(tmp_path: Path) -> None:
    journal = begun(tmp_path)
    journal.keep([b"a record"])
    journal.close()
    assert b"a record" in (tmp_path / "records").read_bytes()
    assert left_behind(tmp_path) is None


def test_a_file_cut_at_any_byte_remembers_the_last_whole_watermark(tmp_path: Path) -> None:
    live(tmp_path, VoteWatermark(VIEW, 1, 0), VoteWatermark(VIEW, 2, 1), VoteWatermark(VIEW, 2, 2))
    whole = (tmp_path / "records").read_bytes()
    found: list[Undecided | None] = []
    for size in range(len(whole) + 1):
        (tmp_path / "records").write_bytes(whole[:size])
        found.append(left_behind(tmp_path))
    assert list(dict.fromkeys(found)) == [None, Undecided(VIEW, 0, 0), Undecided(VIEW, 1, 1)]
    assert found[-1] is None


def test_a_file_that_grew_keeps_the_last_watermark_if_it_is_open(tmp_path: Path) -> None:
    journal = begun(tmp_path)
    journal.keep([b"a record"])
    size = 0
    for number in range(2 * FILE_BYTES_MAX // 60):
        journal.keep_votes(VoteWatermark(VIEW, number + 1, number))
        before, size = size, (tmp_path / "records").stat().st_size
        if size < before:
            assert left_behind_in_copy(tmp_path) == Undecided(VIEW, number, number)
            break
    else:
        raise AssertionError("it was never replaced")
    journal.close()
    again = Journal(tmp_path)
    assert again.record == b"a record"
    again.close()


def left_behind_in_copy(path: Path, name: str = "copy") -> Undecided | None:
    """What the next life would find, while this one holds the lock."""
    copy = path / name
    copy.mkdir()
    (copy / "records").write_bytes((path / "records").read_bytes())
    return left_behind(copy)


def test_a_new_file_is_without_a_watermark_that_is_decided(tmp_path: Path) -> None:
    live(tmp_path, VoteWatermark(VIEW, 3, 1))
    size = (tmp_path / "records").stat().st_size
    live(tmp_path, VoteWatermark(VIEW, 3, 3))
    live(tmp_path)
    assert (tmp_path / "records").stat().st_size < size


# What is on the disk, and when.


def test_votes_are_synced_and_decisions_are_not(tmp_path: Path) -> None:
    disk = MortalDisk()
    journal = begun(tmp_path, disk)
    done: list[list[str]] = []
    for watermark in (
        VoteWatermark(VIEW, 1, 0),
        VoteWatermark(VIEW, 1, 1),
        VoteWatermark(VIEW, 3, 1),
        VoteWatermark(VIEW, 3, 2),
        VoteWatermark(NEXT, 4, 4),
    ):
        disk.log.clear()
        journal.keep_votes(watermark)
        done.append(list(disk.log))
    journal.close()
    vote, decision = ["write records", "sync records"], ["write records"]
    assert done == [vote, decision, vote, decision, decision], "alone, a member decides in the turn in which it votes"


@pytest.mark.parametrize("names_last", [False, True])
def test_a_power_cut_forgets_no_vote(tmp_path: Path, names_last: bool) -> None:
    """The decision may be lost, and then the vote is open: the safe side."""
    disk = MortalDisk()
    journal = begun(tmp_path, disk)
    journal.keep_votes(VoteWatermark(VIEW, 3, 1))
    journal.keep_votes(VoteWatermark(VIEW, 3, 3))
    disk.lose_unsynced(names_last)
    journal.close()
    assert left_behind(tmp_path) == Undecided(VIEW, 1, 2)


def test_a_disk_that_does_not_sync_is_found_out(tmp_path: Path) -> None:
    disk = ForgetfulDisk()
    journal = begun(tmp_path, disk)
    journal.keep_votes(VoteWatermark(VIEW, 3, 1))
    disk.lose_unsynced(True)
    journal.close()
    assert left_behind(tmp_path) is None


def test_a_full_disk_ends_the_member(tmp_path: Path) -> None:
    disk = FullDisk(1_000)
    journal = begun(tmp_path, disk)
    journal.keep_votes(VoteWatermark(VIEW, 1, 0))
    disk.room = 10
    with pytest.raises(JournalError, match="must not go on without it: make room"):
        journal.keep_votes(VoteWatermark(VIEW, 2, 1))
    with pytest.raises(JournalError, match="its last write failed"):
        journal.keep_votes(VoteWatermark(VIEW, 3, 1))
    journal.close()
    again = Journal(tmp_path)
    assert (again.undecided, again.torn_bytes) == (Undecided(VIEW, 0, 0), 10)
    again.close()


# Groups, in virtual time.


async def start(order: str, journals: list[Journal]) -> list[unisono.Group]:
    return await asyncio.gather(
        *(
            unisono.join("chat", listen=address, peers=ADDRESSES, min_members=3, order=order, journal=journal)
            for address, journal in zip(ADDRESSES, journals, strict=True)
        )
    )


async def payloads(group: unisono.Group, count: int) -> list[bytes]:
    found: list[bytes] = []
    while len(found) < count:
        event = await group.next(30)
        found += [event.payload] if isinstance(event, unisono.Delivery) else []
    return found


class LateJournal(Journal):
    """The planted fault: it writes a vote when the turn is over, and the vote has left."""

    def keep_votes(self, watermark: VoteWatermark) -> None:
        asyncio.get_running_loop().call_soon(super().keep_votes, watermark)


def unwritten_sends(tmp_path: Path, kind: type[Journal]) -> int:
    """How often a member of a group sends something while a vote of it is not in its journal."""
    found = 0

    async def main(network: Network) -> None:
        journals = [kind(tmp_path / str(i), disk=QuickDisk()) for i in range(3)]
        groups = await start("rmp", journals)

        def watch(group: unisono.Group, journal: Journal) -> None:
            send = group.running.driver._port.send

            def checked(datagrams: Any) -> None:
                nonlocal found
                engine = group.running.member.engine
                written = journal._records._watermark
                if engine.has_view and isinstance(engine.ordering, Rmp) and engine.ordering._voted:
                    in_time = written is not None and written[:2] == (engine.view.id, engine.ordering._voted)
                    found += not in_time
                send(datagrams)

            group.running.driver._port.send = checked  # type: ignore[method-assign]

        for group, journal in zip(groups, journals, strict=True):
            watch(group, journal)
        for number in range(4):
            for group in groups:
                receipt = await group.cast(b"%d" % number)
                await receipt.delivered(30)
        for group in groups:
            await group.leave()

    in_virtual_time(main)
    return found


def test_no_member_of_a_group_sends_before_its_votes_are_written(tmp_path: Path) -> None:
    assert unwritten_sends(tmp_path, Journal) == 0


def test_a_member_that_writes_its_votes_too_late_is_found_out(tmp_path: Path) -> None:
    assert unwritten_sends(tmp_path, LateJournal) > 5


def test_a_member_killed_between_its_vote_and_the_decision_left_it_in_its_journal(tmp_path: Path) -> None:
    """c votes for the third message and dies. The others have its vote, decide, and go on."""

    class Fatal(Journal):
        kill: Callable[[], None]

        def keep_votes(self, watermark: VoteWatermark) -> None:
            super().keep_votes(watermark)
            if watermark.voted == 3:
                asyncio.get_running_loop().call_soon(self.kill)

    async def main(network: Network) -> ViewId:
        journals = [
            *(Journal(tmp_path / name, disk=QuickDisk()) for name in "ab"),
            Fatal(tmp_path / "c", disk=QuickDisk()),
        ]
        a, b, c = await start("rmp", journals)
        assert isinstance(journals[2], Fatal)
        journals[2].kill = lambda: network.crash(c)
        view = a.view.id
        for number in range(3):
            receipt = await a.cast(b"%d" % number)
            await receipt.delivered(30)
        assert await payloads(b, 3) == [b"0", b"1", b"2"], "its vote left, and all was decided"
        with pytest.raises(unisono.NotFlushed) as caught:  # nobody knows what the dead one has
            await a.leave()
        assert caught.value.members == (c.id,)
        await b.leave()
        return view

    view = in_virtual_time(main)
    assert left_behind(tmp_path / "c") == Undecided(view, 2, 2)
    assert [left_behind(tmp_path / name) for name in "ab"] == [None, None]


def test_decisions_are_written_also_if_nobody_votes_after_them(tmp_path: Path) -> None:
    async def main(network: Network) -> None:
        groups = await start("rmp", [Journal(tmp_path / name, disk=QuickDisk()) for name in "abc"])
        await groups[0].cast(b"hello")
        for group in groups:
            assert await payloads(group, 1) == [b"hello"]
        assert [left_behind_in_copy(tmp_path / name) for name in "abc"] == [None, None, None]
        for group in groups:
            await group.leave()

    in_virtual_time(main)


def test_a_cut_decides_what_is_left_of_its_view(tmp_path: Path) -> None:
    """c crashed before it could vote: a and b wait for it, and then for the next view."""

    async def main(network: Network) -> None:
        a, b, c = await start("rmp", [Journal(tmp_path / name, disk=QuickDisk()) for name in "abc"])
        await a.cast(b"first")  # now a has the lock
        assert await payloads(c, 1) == [b"first"]
        view = a.view.id
        network.crash(c)
        await a.cast(b"second")
        await asyncio.sleep(0.1)
        for name in "ab":
            assert left_behind_in_copy(tmp_path / name, "before") == Undecided(view, 1, 1)
        assert await payloads(b, 2) == [b"first", b"second"]
        assert [left_behind_in_copy(tmp_path / name) for name in "ab"] == [None, None]
        for group in (a, b):
            await group.leave()

    in_virtual_time(main)


@pytest.mark.parametrize(("order", "syncs"), [("fifo", False), ("sequencer", False), ("toto", False), ("rmp", True)])
def test_only_an_order_that_votes_writes(tmp_path: Path, order: str, syncs: bool) -> None:
    disks = [MortalDisk() for _ in range(3)]

    async def main(network: Network) -> None:
        groups = await start(order, [Journal(tmp_path / str(i), disk=disk) for i, disk in enumerate(disks)])
        for disk in disks:
            disk.log.clear()
        for group in groups:
            receipt = await group.cast(b"hello")
            await receipt.delivered(30)
        for group in groups:
            await group.leave()

    in_virtual_time(main)
    assert [("sync records" in disk.log, "write records" in disk.log) for disk in disks] == [(syncs, syncs)] * 3


# What a person is told.


def test_the_next_life_says_in_one_line_what_was_left_open(tmp_path: Path) -> None:
    live(tmp_path, VoteWatermark(VIEW, 3, 1))
    text = io.StringIO()
    level = logs.LOGGER.level
    handler = logs.configure(logging.INFO, as_json=True, stream=text)
    states: list[Any] = []

    async def main() -> None:
        async with unisono.join("chat", listen="127.0.0.1:0", journal=tmp_path, pace=0.1, timeout=30) as group:
            states.append(group.status()["undecided"])

    try:
        asyncio.run(main())
    finally:
        logs.LOGGER.removeHandler(handler)
        logs.LOGGER.setLevel(level)
    (row,) = [row for row in map(json.loads, text.getvalue().splitlines()) if "undecided" in row]
    assert row["undecided"] == {"view": str(VIEW), "first": 1, "last": 2}
    assert "voted for positions 1 to 2 of view 7@10.0.0.1:7400#11 and did not learn the decision" in row["message"]
    assert "their state or deliveries bring it" in row["message"]
    assert states == ["positions 1 to 2 of view 7@10.0.0.1:7400#11"]
