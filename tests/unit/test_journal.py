"""What a member must not forget: it is on stable storage before anything leaves, whatever happens to the process or the disk."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import cast

import pytest

from tests.journal_tools import ForgetfulDisk, FullDisk, MortalDisk, PowerCut, QuickDisk
from tests.runtime.ports import Wire
from unisono.core.errors import Misuse
from unisono.core.member import Effects
from unisono.core.member.member import Member
from unisono.core.outbox import VoteWatermark
from unisono.core.types import MemberId, ViewId
from unisono.runtime.driver import Driver
from unisono.runtime.errors import JournalError
from unisono.runtime.journal import Journal
from unisono.runtime.journal.disk import Disk, Locked
from unisono.runtime.journal.records import FILE_BYTES_MAX, Records

NOON = 1_000_000


def live(path: Path, disk: Disk, heard: list[bytes], lives: list[int], until: int, clock: int = NOON) -> None:
    """A life that keeps a few records. `heard` and `lives` is what the world has learned when it ends."""
    journal = Journal(path, disk=disk)
    try:
        lives.append(journal.begin_life(clock))
        for number in range(until):
            record = b"record %d of %d" % (number, lives[-1])
            journal.keep([b"an older one", record])
            heard.append(record)
    finally:
        journal.close()


# Lives.


def test_a_life_is_above_the_last_though_the_clock_was_set_back(tmp_path: Path) -> None:
    lives: list[int] = []
    for clock in (NOON, NOON - 500, 0, NOON + 7):
        live(tmp_path / "j", QuickDisk(), [], lives, 0, clock)
    assert lives == [NOON, NOON + 1, NOON + 2, NOON + 7]


def test_the_last_record_comes_back(tmp_path: Path) -> None:
    heard: list[bytes] = []
    live(tmp_path, QuickDisk(), heard, [], 3)
    journal = Journal(tmp_path)
    assert journal.record == heard[-1]
    journal.begin_life(0)
    assert journal.record == heard[-1], "a new life has not confirmed anything yet"
    journal.close()


def test_a_file_that_grew_is_replaced_and_keeps_the_last_record(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.begin_life(NOON, "chat")
    record = bytes(FILE_BYTES_MAX // 3)
    for number in range(8):
        journal.keep([record + b"%d" % number])
        assert (tmp_path / "records").stat().st_size <= FILE_BYTES_MAX
    journal.close()
    again = Journal(tmp_path)
    assert again.record == record + b"7"
    assert again.begin_life(0, "chat") == NOON + 1
    again.close()


def test_a_journal_belongs_to_one_group(tmp_path: Path) -> None:
    live_once = Journal(tmp_path)
    live_once.begin_life(NOON, "chat")
    live_once.close()
    journal = Journal(tmp_path)
    with pytest.raises(JournalError, match=r"belongs to a member of the group 'chat'.* a journal of its own"):
        journal.begin_life(NOON, "games")
    journal.close()


def test_nonsense_is_refused_with_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(Misuse, match="there is no fsync 'often': choose always, turn, never"):
        Journal(tmp_path, fsync="often")
    (tmp_path / "file").write_text("")
    with pytest.raises(JournalError, match="give a folder that this process may write to"):
        Journal(tmp_path / "file")


# Power cuts at every operation.


def survives_power_cuts(path: Path, disk_type: type[MortalDisk]) -> list[str]:
    """Cut the power at every operation of a life; what the world has heard of must be remembered. The complaints."""
    whole = disk_type()
    live(path / "whole", whole, [], [], 3)
    complaints = []
    for cut_at in range(len(whole.log) + 1):
        for names_last in (False, True):
            folder = path / f"{cut_at}.{names_last}"
            heard: list[bytes] = []
            lives: list[int] = []
            live(folder, QuickDisk(), heard, lives, 1)
            disk = disk_type(cut_at)
            try:
                live(folder, disk, heard, lives, 3, 0)
            except PowerCut:
                disk.lose_unsynced(names_last)
            after: list[int] = []
            journal = Journal(folder)
            if (journal.record or b"") < heard[-1]:
                complaints.append(f"cut at {cut_at}: {journal.record!r} is remembered, {heard[-1]!r} was acted upon")
            after.append(journal.begin_life(0))
            journal.close()
            if after[0] <= lives[-1]:
                complaints.append(f"cut at {cut_at}: the incarnation {after[0]} comes after {lives[-1]}")
    return complaints


def test_what_was_acted_upon_survives_a_power_cut_at_every_operation(tmp_path: Path) -> None:
    assert survives_power_cuts(tmp_path, MortalDisk) == []


def test_a_disk_that_does_not_sync_is_found_out(tmp_path: Path) -> None:
    complaints = survives_power_cuts(tmp_path, ForgetfulDisk)
    assert any("is remembered" in one for one in complaints)
    assert any("comes after" in one for one in complaints)


def test_a_life_that_is_not_written_down_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: the incarnation is written only along with the first record."""
    replace = Records._replace
    monkeypatch.setattr(Records, "_replace", lambda self: None if self._file is None else replace(self))
    lives: list[int] = []
    for _ in range(2):
        live(tmp_path, QuickDisk(), [], lives, 0)
    assert lives[0] == lives[1]


# Torn and damaged files.


def test_a_file_cut_at_any_byte_remembers_the_last_whole_record(tmp_path: Path) -> None:
    heard: list[bytes] = []
    lives: list[int] = []
    live(tmp_path / "j", QuickDisk(), heard, lives, 3)
    whole = (tmp_path / "j" / "records").read_bytes()
    remembered = []
    for size in range(len(whole) + 1):
        (tmp_path / "j" / "records").write_bytes(whole[:size])
        journal = Journal(tmp_path / "j")
        remembered.append(journal.record)
        assert journal.begin_life(NOON + 1) > lives[-1], "the clock makes up for it"
        journal.close()
    assert remembered[-1] == heard[-1]
    assert list(dict.fromkeys(remembered)) == [None, b"an older one", heard[0], *heard[1:]]


def test_any_flipped_byte_is_noticed(tmp_path: Path) -> None:
    live(tmp_path, QuickDisk(), [], [], 2)
    path = tmp_path / "records"
    whole = path.read_bytes()
    for byte in range(len(whole)):
        damaged = bytearray(whole)
        damaged[byte] ^= 0x10
        path.write_bytes(damaged)
        with pytest.raises(JournalError, match=r"cannot be trusted at byte .* start under a new address"):
            Journal(tmp_path)


def test_a_journal_without_checksums_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unisono.runtime.journal.format.crc32", lambda data: 0)
    live(tmp_path, QuickDisk(), [], [], 2)
    path = tmp_path / "records"
    path.write_bytes(path.read_bytes().replace(b"record 1", b"record 7"))
    journal = Journal(tmp_path)
    assert journal.record is not None
    assert b"record 7" in journal.record, "without the checksum nobody would notice"
    journal.close()


# A disk that fails.


def test_a_full_disk_ends_the_member(tmp_path: Path) -> None:
    disk = FullDisk(1_000)
    journal = Journal(tmp_path, disk=disk)
    journal.begin_life(NOON)
    journal.keep([b"first"])
    disk.room = 10
    with pytest.raises(
        JournalError, match=r"cannot be written \(No space left on device\).*must not go on without it: make room"
    ):
        journal.keep([b"second"])
    disk.room = 10_000
    with pytest.raises(JournalError, match="its last write failed: start the member again"):
        journal.keep([b"third"])
    journal.close()
    again = Journal(tmp_path)
    assert again.record == b"first"
    assert again.torn_bytes == 10
    again.close()


class Acting:
    """A member that does this in its first turn, which another member learns of."""

    def __init__(self, *records: bytes, votes: VoteWatermark | None = None) -> None:
        self._records, self._votes = records, votes

    def act(self, now: int) -> Effects:
        effects = Effects()
        effects.records, effects.vote_watermark = list(self._records), self._votes
        effects.datagrams = [(("127.0.0.1:2",), b"done")]
        return effects

    def finish_turn(self) -> None:
        pass


CONFIRMING, VOTING = Acting(b"I confirm"), Acting(votes=VoteWatermark(ViewId(7, MemberId("a", 1)), 1, 0))


class HastyDriver(Driver):
    """The planted fault: it sends first."""

    def turn(self) -> None:
        self._port.send([(("127.0.0.1:2",), b"done")])
        super().turn()


def first_turn(path: Path, disk: Disk, log: list[str], member: Acting, kind: type[Driver] = Driver) -> list[Exception]:
    """Note everything that leaves in a turn. What the driver fails with."""
    journal = Journal(path, disk=disk)
    journal.begin_life(NOON)
    log.clear()
    if isinstance(disk, FullDisk):
        disk.room = 0
    failures: list[Exception] = []
    loop = asyncio.new_event_loop()
    driver = kind(
        loop, Wire(log), "chat", cast(Member, member), lambda events, now: None, keeper=journal, fail=failures.append
    )
    try:
        driver.turn()
    finally:
        loop.close()
        journal.close()
    return failures


@pytest.mark.parametrize("member", [CONFIRMING, VOTING], ids=["a record", "a vote"])
def test_nothing_leaves_before_it_is_on_stable_storage(tmp_path: Path, member: Acting) -> None:
    disk = MortalDisk()
    assert first_turn(tmp_path, disk, disk.log, member) == []
    assert disk.log == ["write records", "sync records", "send"]


@pytest.mark.parametrize("member", [CONFIRMING, VOTING], ids=["a record", "a vote"])
@pytest.mark.parametrize(("make", "kind"), [(ForgetfulDisk, Driver), (MortalDisk, HastyDriver)])
def test_what_is_written_too_late_is_found_out(
    tmp_path: Path, make: type[MortalDisk], kind: type[Driver], member: Acting
) -> None:
    disk = make()
    assert first_turn(tmp_path, disk, disk.log, member, kind) == []
    assert "sync records" not in disk.log or disk.log.index("sync records") > disk.log.index("send")


def test_nothing_leaves_if_the_record_cannot_be_written(tmp_path: Path) -> None:
    log: list[str] = []
    (failure,) = first_turn(tmp_path, FullDisk(1_000), log, CONFIRMING)
    assert isinstance(failure, JournalError)
    assert log == []


# Two processes.

HOLD = """
import sys
from unisono.runtime.journal import Journal
journal = Journal(sys.argv[1])
print("held", flush=True)
sys.stdin.read()
"""


def test_a_journal_has_one_writer_and_a_killed_one_lets_go(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        with pytest.raises(Locked, match=rf"is in use by process {process.pid}: give each member a journal of its own"):
            Journal(tmp_path)
        process.kill()
    Journal(tmp_path).close()


FORKING = """
import os, signal, sys
from unisono.runtime.journal import Journal
journal = Journal(sys.argv[1])
child = os.fork()
if child == 0:
    signal.pause()
try:
    journal.close()
    Journal(sys.argv[1]).close()
    print("opened again")
finally:
    os.kill(child, signal.SIGKILL)
"""


def test_a_journal_that_was_closed_is_free_though_a_forked_child_lives(tmp_path: Path) -> None:
    """Found by reading: it stayed in use, by the process that had closed it."""
    command = [sys.executable, "-c", FORKING, str(tmp_path)]
    assert subprocess.run(command, capture_output=True, text=True).stdout == "opened again\n"
