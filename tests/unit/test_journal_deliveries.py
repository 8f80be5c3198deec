"""Deliveries in a journal: a reader gets exactly what was delivered, or an error that says what is missing."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.journal_tools import A, B, FullDisk, MortalDisk, batch, entered, story, told, write_journal
from unisono.core.member import Happening
from unisono.runtime.errors import JournalError
from unisono.runtime.journal import Journal, read
from unisono.runtime.journal.deliveries import Deliveries
from unisono.runtime.journal.disk import Disk
from unisono.runtime.journal.format import ABSENCE, NO_VIEW, Delivered, Missing, Row
from unisono.runtime.journal.reader import Reader
from unisono.runtime.journal.segments import segment_numbers, segment_path

NOON = 1_000_000
Turns = Sequence[Sequence[Happening]]


def read_to_error(path: Path, gaps: str = "raise") -> tuple[list[Row], str]:
    """What a reader gets, and the error at which it ends."""
    rows: list[Row] = []
    try:
        for row in read(path, gaps=gaps):
            rows.append(row)
    except JournalError as error:
        return rows, str(error)
    return rows, ""


# What goes in comes out.


@pytest.mark.parametrize("fsync", ["always", "turn", "never"])
@pytest.mark.parametrize("segment", [1, 150, 1 << 20])
def test_a_reader_gets_what_was_delivered(tmp_path: Path, fsync: str, segment: int) -> None:
    write_journal(tmp_path, story(), segment=segment, fsync=fsync)
    assert list(read(tmp_path)) == told(story(), NOON)
    assert (len(segment_numbers(tmp_path)) > 1) == (segment < 1 << 20)


turns_of_batches = st.lists(
    st.lists(st.tuples(st.integers(0, 1), st.lists(st.binary(max_size=40), min_size=1, max_size=4)), max_size=3),
    max_size=6,
)


@settings(max_examples=40, deadline=None)
@given(turns_of_batches, st.integers(1, 400), st.data())
def test_any_deliveries_come_back_from_any_place(
    tmp_path_factory: pytest.TempPathFactory,
    plan: list[list[tuple[int, list[bytes]]]],
    segment: int,
    data: st.DataObject,
) -> None:
    path = tmp_path_factory.mktemp("journal")
    turns: list[list[Happening]] = [[entered(1, A, B)]]
    indices = [0, 0]
    for turn in plan:
        turns.append([])
        for origin, payloads in turn:
            turns[-1].append(batch(origin, indices[origin], *payloads))
            indices[origin] += len(payloads)
    write_journal(path, turns, segment=segment, fsync="never")
    expected = told(turns, NOON)
    assert list(read(path)) == expected
    row = data.draw(st.sampled_from(expected))
    after = (row.view, row.ordinal if isinstance(row, Delivered) else -1)
    assert list(read(path, after)) == expected[row.position + 1 :]


# Torn and damaged files.


@pytest.mark.seconds
def test_a_segment_cut_at_any_byte_loses_only_the_torn_frame(tmp_path: Path) -> None:
    write_journal(tmp_path, story())
    path = segment_path(tmp_path, 1)
    whole = path.read_bytes()
    ends = [found.end for found in Reader(tmp_path).frames()]
    everything = told(story(), NOON)
    shown = set()
    for size in range(len(whole) + 1):
        path.write_bytes(whole[:size])
        before = list(read(tmp_path))
        assert before == everything[: len(before)]
        journal = write_journal(tmp_path, [[entered(7, B)], [batch(0, 0, b"later")]])
        kept = max((end for end in ends if end <= size), default=24 if size >= 24 else 0)
        assert journal.torn_bytes == size - kept
        after = list(read(tmp_path, gaps="show"))
        assert after[: len(before)] == before
        absences = 1 if before else 0
        assert [row.position for row in after] == list(range(len(before) + absences + 2))
        shown.add(len(before))
    assert shown == {0, 1, 2, 4, 5, 6, 7, 9, 10}


def noticed(path: Path, everything: list[Row]) -> list[int]:
    """Flip a bit of every byte of the first segment. Where a reader gets anything but a prefix and an error: the bytes."""
    segment = segment_path(path, 1)
    whole = segment.read_bytes()
    unnoticed = []
    for byte in range(len(whole)):
        damaged = bytearray(whole)
        damaged[byte] ^= 1 << byte % 8
        segment.write_bytes(damaged)
        try:
            rows, error = read_to_error(path)
        except Exception:
            rows, error = [], ""
        if rows != everything[: len(rows)] or not error:
            unnoticed.append(byte)
    segment.write_bytes(whole)
    return unnoticed


@pytest.mark.parametrize("segment", [150, 1 << 20])
def test_any_flipped_byte_is_noticed(tmp_path: Path, segment: int) -> None:
    write_journal(tmp_path, story(), segment=segment)
    assert noticed(tmp_path, told(story(), NOON)) == []


def test_reading_without_checksums_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unisono.runtime.journal.format.crc32", lambda data: 0)
    write_journal(tmp_path, story())
    assert len(noticed(tmp_path, told(story(), NOON))) > 50


def test_behind_damage_the_writer_goes_on_with_a_gap(tmp_path: Path) -> None:
    write_journal(tmp_path, story())
    path = segment_path(tmp_path, 1)
    frames = list(Reader(tmp_path).frames())
    damaged = bytearray(path.read_bytes())
    damaged[frames[3].start + 20] ^= 1
    path.write_bytes(damaged)
    write_journal(tmp_path, [[entered(7, B)], [batch(0, 0, b"later")]])
    assert path.read_bytes() == damaged, "evidence stays"
    rows, error = read_to_error(tmp_path)
    assert rows == told(story(), NOON)[: len(rows)]
    assert f"damaged at byte {frames[3].start} (a frame has a wrong checksum)" in error
    shown, error = read_to_error(tmp_path, "show")
    assert error == ""
    assert shown[: len(rows)] == rows
    gap = shown[len(rows)]
    assert isinstance(gap, Missing)
    assert gap.messages == -1
    assert "an unknown number of deliveries are missing (segment 1 is damaged: a frame has a wrong checksum)" in str(
        gap
    )
    assert [getattr(row, "payload", None) for row in shown[len(rows) + 1 :]] == [None, b"later"]


def test_a_segment_that_vanished_or_changed_later_is_never_passed_over(tmp_path: Path) -> None:
    write_journal(tmp_path, story(), segment=150)
    numbers = segment_numbers(tmp_path)
    assert len(numbers) > 3
    middle = segment_path(tmp_path, numbers[1])
    kept = middle.read_bytes()
    for change in (middle.unlink, lambda: middle.write_bytes(kept[:-1]), lambda: middle.write_bytes(kept[:24])):
        change()
        for gaps in ("raise", "show"):
            rows, error = read_to_error(tmp_path, gaps)
            assert rows == told(story(), NOON)[: len(rows)]
            assert "lacks rows" in error or "damaged" in error
        middle.write_bytes(kept)
    assert read_to_error(tmp_path) == (told(story(), NOON), "")


# A full disk.


def missing_in_silence(path: Path, room: int, fsync: str) -> list[str]:
    """Let the disk fill up after so many bytes and have room again two turns later. What a reader is not told."""
    disk = FullDisk(100_000)
    journal = Journal(path, deliveries=True, disk=disk, fsync=fsync, segment_bytes_max=300)
    journal.begin_life(NOON)
    disk.room = room
    turns = story()
    for number, turn in enumerate(turns):
        if number == 4:
            disk.room = 100_000
        journal.deliver(turn)
    missing = journal.missing_messages
    journal.close()
    everything = [row for row in told(turns, NOON) if isinstance(row, Delivered)]
    shown, error = read_to_error(path, "show")
    if error:
        return [error]
    got = [(row.view, row.ordinal, row.payload) for row in shown if isinstance(row, Delivered)]
    gaps = [row for row in shown if isinstance(row, Missing)]
    complaints = []
    if any(one not in [(row.view, row.ordinal, row.payload) for row in everything] for one in got):
        complaints.append("something else was read")
    lost = len(everything) - len(got)
    if lost != missing or lost != sum(gap.messages for gap in gaps):
        complaints.append(f"{lost} are lost, {missing} were counted, and the gaps say {[gap.messages for gap in gaps]}")
    if bool(gaps) != bool(read_to_error(path)[1]):
        complaints.append("the error and the gap disagree")
    if got[-1:] != [(everything[-1].view, everything[-1].ordinal, b"g")]:
        complaints.append("it did not go on when there was room again")
    return complaints


@pytest.mark.parametrize("fsync", ["always", "turn"])
def test_a_full_disk_leaves_a_gap_that_readers_are_told_of(tmp_path: Path, fsync: str) -> None:
    with_gap = 0
    for room in range(0, 700, 2 if fsync == "turn" else 7):
        path = tmp_path / str(room)
        assert missing_in_silence(path, room, fsync) == [], f"room for {room} bytes"
        with_gap += bool(read_to_error(path)[1])
    assert with_gap > 30


def test_a_writer_that_keeps_quiet_about_a_full_disk_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Deliveries, "_miss", lambda self, pending, reason="": None)
    assert any(missing_in_silence(tmp_path / str(room), room, "turn") for room in range(0, 700, 50))


def test_a_gap_is_told_though_the_process_ended_before_there_was_room(tmp_path: Path) -> None:
    disk = FullDisk(100_000)
    journal = Journal(tmp_path, deliveries=True, disk=disk)
    journal.begin_life(NOON)
    journal.deliver([entered(1, A), batch(0, 0, b"kept")])
    disk.room = 0
    journal.deliver([batch(0, 1, b"lost")])
    journal.close()
    write_journal(tmp_path, [[entered(2, A)], [batch(0, 2, b"later")]])
    rows, error = read_to_error(tmp_path)
    assert len(rows) == 2
    assert (
        "an unknown number of deliveries are missing from ordinal 1 of view 1@10.0.0.1:7400#11 on (No space left"
        in error
    )
    shown, error = read_to_error(tmp_path, "show")
    assert error == ""
    assert [type(row).__name__ for row in shown] == ["Viewed", "Delivered", "Missing", "Viewed", "Delivered"]
    write_journal(tmp_path, [[entered(3, A)]])
    later = read_to_error(tmp_path, "show")[0][5:]
    assert [type(row).__name__ for row in later] == ["Missing", "Viewed"]
    assert isinstance(later[0], Missing)
    assert later[0].kind == ABSENCE, "the lost delivery is told once"


def test_a_note_that_cannot_be_read_is_taken_for_a_gap(tmp_path: Path) -> None:
    write_journal(tmp_path, story())
    (tmp_path / "gap").write_bytes(b"nonsense".ljust(1_024, b"\0"))
    write_journal(tmp_path, [[entered(7, B)]])
    gaps = [row for row in read_to_error(tmp_path, "show")[0] if isinstance(row, Missing)]
    assert [(gap.view, gap.messages) for gap in gaps] == [(NO_VIEW, -1)]


LIMITED = """
import resource, sys
from tests.journal_tools import A, batch, entered
from unisono.runtime.journal import Journal
journal = Journal(sys.argv[1], deliveries=True)
journal.begin_life(1)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
journal.deliver([entered(1, A)])
for number in range(40):
    journal.deliver([batch(0, number, bytes(200))])
print(journal.missing_messages)
try:
    journal.keep([bytes(8000)])
except Exception as error:
    print(type(error).__name__)
"""


def test_a_real_limit_of_the_system_leaves_a_gap_too(tmp_path: Path) -> None:
    command = [sys.executable, "-c", LIMITED, str(tmp_path)]
    missing, failure = subprocess.run(command, capture_output=True, check=True, text=True).stdout.split()
    assert int(missing) > 10
    assert failure == "JournalError"
    rows, error = read_to_error(tmp_path)
    assert error == ""
    assert len(rows) == 1 + 40 - int(missing)
    write_journal(tmp_path, [[entered(2, A)]])
    assert f"missing from ordinal {40 - int(missing)} of view" in read_to_error(tmp_path)[1]


def test_what_a_failed_sync_left_in_doubt_is_followed_by_a_new_segment(tmp_path: Path) -> None:
    class Doubtful(Disk):
        def sync(self, file: int) -> None:
            if fail:
                raise OSError(5, "Input/output error")
            super().sync(file)

    fail = False
    journal = Journal(tmp_path, deliveries=True, disk=Doubtful())
    journal.begin_life(NOON)
    turns = story()
    journal.deliver(turns[0])
    fail = True
    journal.deliver(turns[1])
    fail = False
    for turn in turns[2:]:
        journal.deliver(turn)
    journal.close()
    assert segment_numbers(tmp_path) == [1, 2]
    assert list(read(tmp_path)) == told(turns, NOON)
    first = segment_path(tmp_path, 1)
    first.write_bytes(first.read_bytes()[: next(Reader(tmp_path).frames()).end])
    assert "lacks rows before row 2" in read_to_error(tmp_path)[1], (
        "the pages that were in doubt are gone after a power cut"
    )


def test_deliveries_are_on_disk_as_the_policy_says(tmp_path: Path) -> None:
    for fsync, syncs in (("always", 8), ("turn", 5), ("never", 0)):
        disk = MortalDisk()
        journal = Journal(tmp_path / fsync, deliveries=True, disk=disk, fsync=fsync)
        journal.begin_life(NOON)
        disk.log.clear()
        for turn in story():
            journal.deliver(turn)
        assert disk.log.count("sync deliveries.0000000001.journal") == syncs
        assert (disk.log[-1] == "write deliveries.0000000001.journal") == (fsync == "never")
        journal.close()


# A process that is killed.

WRITING = """
import sys
from tests.journal_tools import A, batch, entered
from unisono.runtime.journal import Journal
journal = Journal(sys.argv[1], deliveries=True, segment_bytes_max=50_000)
incarnation = journal.begin_life(1)
journal.deliver([entered(incarnation, A)])
number = 0
while True:
    journal.deliver([batch(0, number, b"%d" % number, bytes(3000)), batch(0, number + 2, b"%d" % number)])
    number += 3
    print(number, flush=True)
"""


def test_a_killed_writer_leaves_all_that_it_had_delivered(tmp_path: Path) -> None:
    told_by_lives = []
    for life in range(3):
        command = [sys.executable, "-c", WRITING, str(tmp_path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for _ in range(random.Random(life).randrange(5, 40)):
                last = int(process.stdout.readline())
            process.kill()
            lines = process.stdout.read().split()
            told_by_lives.append(int(lines[-1]) if lines and lines[-1].isdigit() else last)
    write_journal(tmp_path, [[entered(9_000, B)]])
    rows = list(read(tmp_path, gaps="show"))
    assert [row.position for row in rows] == list(range(len(rows)))
    assert sum(isinstance(row, Missing) for row in rows) == 3, "before every life but the first"
    for life, least in enumerate(told_by_lives):
        indices = [row.index for row in rows if isinstance(row, Delivered) and row.view.number == life + 1]
        assert indices == list(range(len(indices)))
        assert len(indices) >= least
