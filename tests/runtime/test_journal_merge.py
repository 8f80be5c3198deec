"""Several journals as one stream, of groups in virtual time whose members are killed, started again and cut off."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import combinations
from pathlib import Path
from random import Random
from typing import Any

import pytest

import unisono
from tests.journal_tools import A, B, FullDisk, QuickDisk, batch, entered
from unisono.core.member import Entered
from unisono.core.types import MemberId, ViewId
from unisono.core.wire.control import Part
from unisono.runtime.errors import JournalError
from unisono.runtime.journal import Journal, read
from unisono.runtime.journal.format import Delivered, Missing, Row, Viewed
from unisono.runtime.journal.merge import JournalMerge, JournalPiece, ends_now, read_piece
from unisono.runtime.journal.reader import GapError, Limits
from unisono.runtime.journal.segments import segment_path
from unisono.sim import Network, test

ADDRESSES = [f"10.0.0.{i}:7400" for i in (1, 2, 3, 4)]
STATE: dict[str, Any] = {"snapshot": lambda: b"", "restore": lambda state: None}


async def follow(address: str, folder: Path, groups: dict[str, unisono.Group], wishes: dict[str, Any]) -> None:
    """A member that journals what it delivers."""
    journal = unisono.Journal(folder / address.split(":")[0], deliveries=True, disk=QuickDisk())
    async with unisono.join("g", listen=address, peers=ADDRESSES, journal=journal, **wishes) as group:
        groups[address] = group
        async for _ in group:
            pass


async def cast_on(address: str, groups: dict[str, unisono.Group]) -> None:
    """Cast now and then, through whatever member is at an address."""
    number = 0
    while True:
        await asyncio.sleep(0.05)
        group = groups.get(address)
        if group is not None:
            try:
                await group.cast(b"%s %d" % (address.encode(), number))
                number += 1
            except Exception:  # it is killed, or has no view yet
                groups.pop(address, None)


def make(folder: Path, seed: int, faults: str, members: int = 3, **wishes: Any) -> None:
    """Journals of a group in which one thing after the other happens; the first member sees all of it if faults spare it."""
    addresses = ADDRESSES[:members]

    @test(seeds=[seed])
    async def story(network: Network) -> None:
        random = Random(seed)
        groups: dict[str, unisono.Group] = {}
        processes = {one: network.process(follow, one, folder, groups, wishes) for one in addresses}
        casters = [asyncio.ensure_future(cast_on(one, groups)) for one in addresses]
        await asyncio.sleep(3)
        for fault in faults:
            victim = random.choice(addresses[1:])
            if fault == "k":
                processes[victim].kill()
                groups.pop(victim, None)
                await asyncio.sleep(3)
                processes[victim].restart()
            elif fault == "p":
                network.partition([[one for one in addresses if one != victim], [victim]])
                await asyncio.sleep(4)
                network.heal()
            elif fault == "a":  # all of them
                for one in addresses:
                    processes[one].kill()
                    groups.pop(one, None)
                await asyncio.sleep(1)
                for one in addresses:
                    processes[one].restart()
            await asyncio.sleep(5)
        for caster in casters:
            caster.cancel()
        await asyncio.sleep(2)

    story()


def shown(folder: Path, name: str) -> list[Row]:
    return list(read(folder / name, gaps="show"))


def key_of(row: Delivered) -> tuple[str, int]:
    return str(row.sender), row.index


def follow_all(journals: Sequence[str], random: Random, **options: Any) -> tuple[list[Row], list[JournalPiece]]:
    """Read a stream in steps of any size, going on from its state as a new process does."""
    state: dict[str, Any] = {}
    rows: list[Row] = []
    pieces: list[JournalPiece] = []
    while True:
        merge = JournalMerge(journals, state, wait_s=0.0, **{"gaps": "show", **options})
        some = merge.advance(Limits(rows=random.randrange(1, 40)))
        if not some:
            return rows, pieces
        state = json.loads(json.dumps(merge.state()))
        pieces += [JournalPiece.from_json(json.loads(json.dumps(piece.to_json()))) for piece in some]
        rows += [row for piece in some for row in read_piece(piece)]


def is_in_order(rows: Sequence[Row], journal: Sequence[Row]) -> bool:
    """Whether a stream has the deliveries of each view in the order of a journal of its group."""
    places = {(row.view, *key_of(row)): number for number, row in enumerate(journal) if isinstance(row, Delivered)}
    by_view: dict[Any, list[int]] = {}
    for row in rows:
        if isinstance(row, Delivered) and (row.view, *key_of(row)) in places:
            by_view.setdefault(row.view, []).append(places[row.view, *key_of(row)])
    return all(some == sorted(some) for some in by_view.values())


def lost_silently(rows: Sequence[Row], known: Sequence[Row]) -> list[Delivered]:
    """Deliveries that another journal holds, before the end of a stream and after its beginning, and it has no gap for them."""
    given = {key_of(row) for row in rows if isinstance(row, Delivered)}
    first, last = (next(row.view.number for row in some) for some in (rows, rows[::-1]))
    gaps = [
        (row.view.number, next((later.view.number for later in rows[at:] if isinstance(later, Viewed)), last))
        for at, row in enumerate(rows)
        if isinstance(row, Missing)
    ]
    return [
        row
        for row in known
        if isinstance(row, Delivered)
        and first < row.view.number < last
        and key_of(row) not in given
        and not any(begin <= row.view.number <= end for begin, end in gaps)
    ]


STORIES = {
    "killed one after the other": (1, "kkkk", {}),
    "cut off": (2, "pkp", {}),
    "with a state": (3, "kpk", STATE),
    "fifo": (4, "kpk", {"order": "fifo"}),
    "causal": (5, "kp", {"order": "causal"}),
}


@pytest.fixture(scope="module")
def stories(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    @cache
    def made(name: str) -> Path:
        seed, faults, wishes = STORIES[name]
        folder = tmp_path_factory.mktemp("journals")
        make(folder, seed, faults, **wishes)
        return folder

    return made


def subsets(folder: Path) -> Iterator[list[str]]:
    names = sorted(one.name for one in folder.iterdir())
    for size in range(1, len(names) + 1):
        yield from (list(some) for some in combinations(names, size))


@pytest.mark.seconds
@pytest.mark.parametrize("name", list(STORIES))
def test_every_delivery_comes_once_and_in_order(stories: Callable[[str], Path], name: str) -> None:
    folder = stories(name)
    journals = {one.name: shown(folder, one.name) for one in folder.iterdir()}
    known = [row for rows in journals.values() for row in rows]
    assert sum(isinstance(row, Missing) for row in known) >= len(STORIES[name][1]) - 1, "journals alone have gaps"
    for some in subsets(folder):
        paths = [str(folder / one) for one in some]
        rows, _ = follow_all(paths, Random(len(some)))
        assert [row.position for row in rows] == list(range(len(rows)))
        keys = [key_of(row) for row in rows if isinstance(row, Delivered)]
        assert len(keys) == len(set(keys))
        assert set(keys) == {key_of(row) for one in some for row in journals[one] if isinstance(row, Delivered)}
        views = [row.view for row in rows if isinstance(row, Viewed)]
        assert len(views) == len(set(views))
        assert all(is_in_order(rows, journals[one]) for one in some) or "order" in STORIES[name][2]
        assert lost_silently(rows, known) == []
        if len(some) == len(journals):
            assert not any(isinstance(row, Missing) for row in rows), "one journal always went on"


def without_links(self: JournalMerge, source: Any, row: Viewed) -> bool:
    return True


def without_memory(spans: Any, first: int, end: int) -> list[tuple[int, int]]:
    return [(first, end)]


@pytest.mark.parametrize(
    ("where", "fault"),
    [
        ("unisono.runtime.journal.merge.JournalMerge._is_linked", without_links),
        ("unisono.runtime.journal.merge.missing_in", without_memory),
    ],
)
def test_a_merge_that_forgets_or_leaps_is_found_out(
    stories: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, where: str, fault: Any
) -> None:
    folder = stories("killed one after the other")
    names = sorted(one.name for one in folder.iterdir())
    known = [row for name in names for row in shown(folder, name)]
    monkeypatch.setattr(where, fault)
    found = 0
    for some in ([names[1]], names[:2]):
        rows, _ = follow_all([str(folder / one) for one in some], Random(1))
        keys = [key_of(row) for row in rows if isinstance(row, Delivered)]
        found += len(keys) - len(set(keys)) + len(lost_silently(rows, known))
    assert found > 20


def test_a_group_that_was_away_as_a_whole_leaves_a_gap(tmp_path: Path) -> None:
    make(tmp_path, 7, "a")
    paths = [str(one) for one in sorted(tmp_path.iterdir())]
    rows, _ = follow_all(paths, Random(1))
    assert sum(isinstance(row, Missing) for row in rows) == 1
    with pytest.raises(
        GapError, match=r"the journal .* and 2 others have a gap: .* are missing from ordinal \d+ of view .* until view"
    ):
        follow_all(paths, Random(1), gaps="raise")


@pytest.mark.seconds
@pytest.mark.parametrize("name", ["killed one after the other", "cut off"])
def test_a_plan_is_carried_out_from_other_journals_if_one_is_gone(
    stories: Callable[[str], Path], tmp_path: Path, name: str
) -> None:
    """The rows, their order and their numbers are the same; if no other journal has them, that is an error."""
    shutil.copytree(stories(name), tmp_path, dirs_exist_ok=True)
    paths = [str(one) for one in sorted(tmp_path.iterdir())]
    merge = JournalMerge(paths[1:], gaps="show", wait_s=0.0)
    steps: list[tuple[dict[str, Any], list[JournalPiece], dict[str, Any]]] = []
    while True:
        before = json.loads(json.dumps(merge.state()))
        if not (pieces := merge.advance(Limits(rows=150))):
            break
        steps.append((before, pieces, json.loads(json.dumps(merge.state()))))
    expected = [[row for piece in pieces for row in read_piece(piece)] for _, pieces, _ in steps]
    shutil.rmtree(paths[1])
    carried_out = 0
    errors = set()
    for (before, pieces, after), rows in zip(steps, expected, strict=True):
        if all(piece.journal != paths[1] for piece in pieces if not piece.note):
            continue
        for others in (paths, paths[2:]):
            try:
                again = JournalMerge(others, before, gaps="show", wait_s=0.0).repeat(after, pieces, {paths[1]})
            except JournalError as error:
                errors.add(str(error).partition(", which ")[2])
                continue
            found = [row for piece in again for row in read_piece(piece)]
            assert [row.position for row in found] == [row.position for row in rows]
            assert [key_of(row) for row in found if isinstance(row, Delivered)] == [
                key_of(row) for row in rows if isinstance(row, Delivered)
            ]
            carried_out += 1
    assert carried_out >= 3
    sentence = "are in no other journal: restore it, or start with a new checkpoint."
    assert errors == {f"cannot be read any more, {sentence}"}


# By hand.


def came(number: int, members: Sequence[MemberId], before: int, along: Sequence[MemberId] = ()) -> Entered:
    """A view whose members, newcomers apart, come from the view of that number."""
    event = entered(number, *members)
    part = Part(ViewId(before, members[0]), ViewId(number, members[0]), tuple(along or members))
    return event._replace(charter=event.charter._replace(parts=(part,)), together=part.members)


class Writer:
    """A member's journal, written turn by turn."""

    def __init__(self, folder: Path, disk: Any = None) -> None:
        self.path, self.disk = str(folder), disk or QuickDisk()
        self.lives = 0
        self.begin()

    def begin(self) -> None:
        self.lives += 1
        self.journal = Journal(self.path, deliveries=True, disk=self.disk)
        self.journal.begin_life(self.lives)

    def write(self, *events: Any) -> None:
        self.journal.deliver(list(events))


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[Writer, Writer]]:
    """Two journals of one group, in its first view."""
    writers = Writer(tmp_path / "a"), Writer(tmp_path / "b")
    for writer in writers:
        writer.write(entered(1, A, B), batch(0, 0, b"0"))
    yield writers
    for writer in writers:
        writer.journal.close()


def payloads(pieces: Sequence[JournalPiece]) -> list[str]:
    """What pieces give; `|` is a view, and a gap is what it says."""
    return [
        row.payload.decode() if isinstance(row, Delivered) else "|" if isinstance(row, Viewed) else str(row)
        for piece in pieces
        for row in read_piece(piece)
    ]


def test_a_journal_that_comes_back_waits_for_the_one_that_went_on(pair: tuple[Writer, Writer]) -> None:
    a, b = pair
    now = [0.0]
    merge = JournalMerge([a.path, b.path], clock=lambda: now[0], wait_s=10)
    assert payloads(merge.advance()) == ["|", "0"]
    a.journal.close()
    a.begin()
    a.write(came(3, (B, A), 2, (B,)), batch(0, 2, b"2"))
    assert merge.advance() == []
    assert merge.is_held()
    b.write(came(2, (B,), 1), batch(0, 1, b"1"))
    assert payloads(merge.advance()) == ["|", "1"]
    b.write(came(3, (B, A), 2, (B,)))
    assert payloads(merge.advance()) == ["|", "2"]
    assert not merge.is_held()


def test_a_gap_is_told_when_no_journal_has_filled_it_in_time(pair: tuple[Writer, Writer]) -> None:
    a, b = pair
    now = [0.0]
    merge = JournalMerge([a.path, b.path], clock=lambda: now[0], wait_s=10, gaps="show")
    merge.advance()
    a.journal.close()
    a.begin()
    a.write(came(3, (B, A), 2, (B,)), batch(0, 2, b"2"))
    assert merge.advance() == []
    now[0] = 9.9
    assert merge.advance() == []
    now[0] = 10
    gap, *rows = payloads(merge.advance())
    assert "missing from ordinal 1 of view 1@" in gap
    assert "no journal has all that was delivered until view 3@" in gap
    assert rows == ["|", "2"]
    b.write(batch(0, 1, b"late"))
    assert payloads(merge.advance()) == ["late"]


@pytest.mark.parametrize("is_alone", [False, True])
def test_what_one_disk_lost_another_has(tmp_path: Path, is_alone: bool) -> None:
    disk = FullDisk(100_000)
    a, b = Writer(tmp_path / "a", disk), Writer(tmp_path / "b")
    for number in range(4):
        events = [batch(0, number, b"%d" % number)] if number else [entered(1, A, B), batch(0, 0, b"0")]
        disk.room = 0 if number == 1 else 100_000
        for writer in (a, b):
            writer.write(*events)
    merge = JournalMerge([a.path] if is_alone else [a.path, b.path], wait_s=0, gaps="show" if is_alone else "raise")
    given = payloads(merge.advance())
    if is_alone:
        assert given[:2] + given[3:] == ["|", "0", "2", "3"]
        assert "No space left on device, and no other journal has them" in given[2]
    else:
        assert given == ["|", "0", "1", "2", "3"]
    for writer in (a, b):
        writer.journal.close()


def test_a_journal_that_was_cut_is_read_again_without_repeats(pair: tuple[Writer, Writer]) -> None:
    a, b = pair
    a.write(batch(0, 1, b"1"), batch(0, 2, b"2"))
    merge = JournalMerge([a.path, b.path], wait_s=0)
    assert payloads(merge.advance()) == ["|", "0", "1", "2"]
    state = json.loads(json.dumps(merge.state()))
    a.journal.close()
    segment = segment_path(Path(a.path), 1)
    segment.write_bytes(segment.read_bytes()[:-60])
    for number in (1, 2, 3):
        b.write(batch(0, number, b"%d" % number))
    assert payloads(JournalMerge([a.path, b.path], state, wait_s=0).advance()) == ["3"]
    shutil.rmtree(a.path)
    b.write(batch(0, 4, b"4"))
    assert payloads(JournalMerge([a.path, b.path], state, wait_s=0).advance()) == ["3", "4"]
    shutil.rmtree(b.path)
    with pytest.raises(JournalError, match="no journal can be read: there is no journal at"):
        JournalMerge([a.path, b.path], state).advance()
    a.begin()


def test_journals_of_two_groups_are_not_one_stream(tmp_path: Path) -> None:
    for name in ("a", "b"):
        journal = Journal(tmp_path / name, deliveries=True, disk=QuickDisk())
        journal.begin_life(1, f"group {name}")
        journal.deliver([entered(1, A)])
        journal.close()
    with pytest.raises(JournalError, match=r"a is a journal of the group 'group a', and .* give the journals of one"):
        JournalMerge([str(tmp_path / "*")]).advance()
    assert JournalMerge([str(tmp_path / "a")]).advance()


def test_what_a_stream_remembers_does_not_grow(tmp_path: Path) -> None:
    """Journals of two lives long, one of which ends early, and one that the stream meets late."""
    a, b = Writer(tmp_path / "a"), Writer(tmp_path / "b")
    merge = JournalMerge([str(tmp_path / "*")], gaps="raise")
    sizes = []
    for number in range(1, 301):
        event = entered(1, A, B) if number == 1 else came(number, (A, B), number - 1)
        a.write(event, batch(0, number, b"%d" % number))
        if number <= 20:
            b.write(event, batch(0, number, b"%d" % number))
        given = payloads(merge.advance(ends=ends_now([str(tmp_path / "*")])))
        assert given == ["|", str(number)]
        merge = JournalMerge([str(tmp_path / "*")], json.loads(json.dumps(merge.state())), gaps="raise")
        sizes.append(len(json.dumps(merge.state())))
    assert max(sizes[100:]) < 1.2 * sizes[99]
    c = Writer(tmp_path / "c")
    for number in range(100, 301):
        c.write(entered(100, A, B) if number == 100 else came(number, (A, B), number - 1), batch(0, number, b"late"))
    c.write(came(301, (A, B), 300), batch(0, 301, b"301"))
    assert payloads(merge.advance()) == ["|", "301"]
    for writer in (a, b, c):
        writer.journal.close()
