"""Reading a journal: from any place, while it is written, and after its oldest part was removed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.journal_tools import A, B, QuickDisk, batch, entered, story, told, write_journal
from unisono.core.errors import Misuse
from unisono.core.member import Happening
from unisono.runtime.errors import JournalError
from unisono.runtime.journal import Journal, Retention, read
from unisono.runtime.journal.format import Row, rows_in
from unisono.runtime.journal.reader import GapError, Limits, Place, Reader, Stretch, read_stretch
from unisono.runtime.journal.segments import segment_numbers, segment_path

NOON = 1_000_000


def resumes_wrongly(path: Path) -> list[Place]:
    """Go on from every place of a journal of the story, row by row and by stretches. The places from which that goes wrong."""
    everything = told(story(), NOON)
    whole = Reader(path)
    wrong = []
    for found in list(whole.frames()):
        position, count = rows_in(found.body)
        expected = everything[position + count :]
        again = Reader(path, found.place)
        by_stretches = [row for stretch in again.stretches() for row in read_stretch(path, stretch)]
        if list(Reader(path, found.place).rows()) != expected or by_stretches != expected or again.place != whole.place:
            wrong.append(found.place)
    return wrong


@pytest.mark.parametrize("segment", [150, 1 << 20])
def test_a_reader_goes_on_from_every_place(tmp_path: Path, segment: int) -> None:
    write_journal(tmp_path, story(), segment=segment)
    assert resumes_wrongly(tmp_path) == []


@pytest.mark.parametrize("frames_off", [0, 2])
def test_a_reader_that_repeats_or_skips_a_frame_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, frames_off: int
) -> None:
    write_journal(tmp_path, story())
    starts = [found.start for found in Reader(tmp_path).frames()]
    resume = Reader._resume

    def resume_wrongly(self: Reader, after: Place) -> None:
        resume(self, after)
        if after.byte:
            at = starts.index(after.byte) + frames_off
            self._byte, self._position = starts[min(at, len(starts) - 1)], None

    monkeypatch.setattr(Reader, "_resume", resume_wrongly)
    assert len(resumes_wrongly(tmp_path)) >= 6


def test_stretches_end_where_they_are_told_to(tmp_path: Path) -> None:
    write_journal(tmp_path, story())
    reader = Reader(tmp_path)
    first = list(reader.stretches(Limits(rows=4)))
    assert sum(stretch.rows for stretch in first) == 4
    assert list(Reader(tmp_path).stretches(until=reader.place)) == first
    rest = list(reader.stretches(bytes_max=1))
    assert len(rest) == 5, "a frame each"
    assert sum(stretch.rows for stretch in (*first, *rest)) == len(told(story(), NOON))


def test_a_reader_follows_the_writer(tmp_path: Path) -> None:
    journal = Journal(tmp_path, deliveries=True, segment_bytes_max=150)
    journal.begin_life(NOON)
    turns = story()
    written: list[list[Happening]] = []

    reader = Reader(tmp_path)
    rows: list[Row] = []
    while turns:
        written.append(turns.pop(0))
        journal.deliver(written[-1])
        rows += reader.rows()
        assert rows == told(written, NOON)
    assert list(reader.rows()) == []
    journal.close()


def test_followers_wait_as_they_are_told(tmp_path: Path) -> None:
    turns = story()
    journal = Journal(tmp_path, deliveries=True)
    journal.begin_life(NOON)

    def wait() -> bool:
        if not turns:
            return False
        journal.deliver(turns.pop(0))
        return True

    assert list(read(tmp_path, follow=True, wait=wait)) == told(story(), NOON)
    journal.close()


def test_a_place_that_holds_something_else_is_refused(tmp_path: Path) -> None:
    write_journal(tmp_path / "a", story())
    *_, last = Reader(tmp_path / "a").frames()
    other = story()
    other[0] = [entered(9, B)]  # the same bytes at the same places, but of another view
    other[3][1] = entered(10, B, A)
    write_journal(tmp_path / "b", other)
    for place in (last.place, last.place._replace(byte=10_000), last.place._replace(byte=last.start - 1)):
        with pytest.raises(JournalError, match=r"does not hold ordinal .* it was cut or replaced"):
            Reader(tmp_path / "b", place)
    assert Reader(tmp_path / "a", last.place).place == last.place


def test_bad_questions_get_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="there is no journal at"):
        Reader(tmp_path / "nowhere")
    with pytest.raises(JournalError, match="give the folder of a member that journals its deliveries"):
        Reader(tmp_path)
    write_journal(tmp_path, story())
    with pytest.raises(JournalError, match=r"ordinal 77 of view 1@.* is not in the journal"):
        list(read(tmp_path, ("1@10.0.0.1:7400#11", 77)))
    with pytest.raises(Misuse, match="choose raise or show"):
        Reader(tmp_path, gaps="hide")
    with pytest.raises(Misuse, match="is not a name for a reader"):
        Reader(tmp_path).register("../lock")
    with pytest.raises(JournalError, match="was cut while it was read"):
        list(read_stretch(tmp_path, Stretch(1, 24, 10_000, 1)))


# Retention.


def test_retention_removes_the_oldest_segments_alone(tmp_path: Path) -> None:
    retention = Retention(bytes_max=1_000)
    journal = Journal(tmp_path, disk=QuickDisk(), deliveries=True, retention=retention, segment_bytes_max=200)
    journal.begin_life(NOON)
    journal.deliver([entered(1, A)])
    for number in range(60):
        journal.deliver([batch(0, number, bytes(100))])
        sizes = [segment_path(tmp_path, one).stat().st_size for one in segment_numbers(tmp_path)]
        assert sum(sizes[:-1]) <= 1_000
    numbers = segment_numbers(tmp_path)
    assert numbers == list(range(numbers[0], numbers[-1] + 1))
    assert numbers[0] > 1
    rows = list(read(tmp_path))
    assert [row.position for row in rows] == list(range(rows[0].position, 61))
    with pytest.raises(GapError, match="was removed before it was read: keep more"):
        Reader(tmp_path, Place("1@10.0.0.1:7400#11", 0, 1, 24))
    journal.close()


def test_retention_by_age(tmp_path: Path) -> None:
    write_journal(tmp_path, story(), segment=150)
    numbers = segment_numbers(tmp_path)
    for number in numbers:
        os.utime(segment_path(tmp_path, number), ns=(number * 1_000, number * 1_000))
    now = numbers[2] * 1_000
    journal = Journal(
        tmp_path, disk=QuickDisk(), deliveries=True, retention=Retention(age_ns_max=1_500), wall=lambda: now
    )
    journal.begin_life(NOON)
    assert segment_numbers(tmp_path) == numbers[1:]
    journal.close()


@pytest.mark.parametrize("keep_unread", [True, False])
def test_what_a_registered_reader_has_not_passed_is_kept(tmp_path: Path, keep_unread: bool) -> None:
    write_journal(tmp_path, story(), segment=150)
    numbers = segment_numbers(tmp_path)
    reader = Reader(tmp_path)
    for found in reader.frames():
        if found.segment == numbers[1]:
            break
    reader.register("spark")
    journal = Journal(
        tmp_path, disk=QuickDisk(), deliveries=True, retention=Retention(bytes_max=1, keep_unread=keep_unread)
    )
    journal.begin_life(NOON)
    assert segment_numbers(tmp_path) == (numbers[1:] if keep_unread else numbers[-1:])
    journal.close()
    if keep_unread:
        assert [row.position for row in reader.rows()][-1] == 9
    else:
        with pytest.raises(GapError):
            list(reader.rows())
