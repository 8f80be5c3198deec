"""What a journal of deliveries does not hold is told, whenever the disk failed and whenever the process ended."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path

import pytest

import unisono
from tests.journal_tools import A, MortalDisk, PowerCut, QuickDisk, batch, entered, write_journal
from unisono.runtime.control_socket import answer
from unisono.runtime.errors import JournalError
from unisono.runtime.journal import Journal, Reader, Retention, read
from unisono.runtime.journal.deliveries import NOTE_BYTES
from unisono.runtime.journal.format import Delivered, Missing, Row
from unisono.runtime.journal.segments import segment_numbers

NOON = 1_000_000


class FailingDisk(MortalDisk):
    """What is written to deliveries, or synced, can be made to fail."""

    def __init__(self) -> None:
        super().__init__()
        self.is_full = self.is_broken = False

    def _is_deliveries(self, file: int) -> bool:
        return self.paths[file].name.startswith("deliveries")

    def write(self, file: int, data: bytes | memoryview, at: int) -> int:
        if self.is_full and self._is_deliveries(file):
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(file, data, at)

    def sync(self, file: int) -> None:
        if self.is_broken and self._is_deliveries(file):
            raise OSError(errno.EIO, "Input/output error")
        super().sync(file)


def opened(path: Path, disk: FailingDisk, fsync: str = "turn") -> Journal:
    journal = Journal(path, deliveries=True, disk=disk, fsync=fsync)
    journal.begin_life(NOON)
    return journal


def shown(path: Path) -> list[Row]:
    return list(read(path, gaps="show"))


def gaps_in(path: Path) -> list[Missing]:
    return [row for row in shown(path) if isinstance(row, Missing)]


def is_noted(path: Path) -> bool:
    return any((path / "gap").read_bytes())


@pytest.mark.parametrize("fsync", ["always", "turn", "never"])
def test_a_gap_is_told_wherever_the_power_goes_while_it_is_written(tmp_path: Path, fsync: str) -> None:
    """Found by reading: the note was erased before the frame that takes its place was on stable storage."""
    whole = False
    for cut_at in range(20):
        path = tmp_path / str(cut_at)
        disk = FailingDisk()
        journal = opened(path, disk, fsync)
        journal.deliver([entered(1, A), batch(0, 0, b"kept")])
        disk.is_full = True
        journal.deliver([batch(0, 1, b"lost")])
        disk.is_full = False
        disk.log.clear()
        disk.cut_at = cut_at
        try:
            journal.deliver([batch(0, 2, b"later")])
            whole = True
        except PowerCut:
            pass
        disk.lose_unsynced(names_last=False)
        journal.abandon()
        write_journal(path, [[entered(2, A)]])
        assert gaps_in(path), f"the power went after {cut_at} operations"
    assert whole


@pytest.mark.parametrize(
    ("failures", "reason"),
    [
        (["sync"], "they may not have lasted: Input/output error"),
        (["sync", "full"], "they may not have lasted: Input/output error"),
        (["full", "sync"], "No space left on device"),
    ],
)
def test_what_the_disk_did_not_keep_is_told_to_the_next_life(tmp_path: Path, failures: list[str], reason: str) -> None:
    """Found by reading: a delivery that was shown to the application was gone after a power cut, and nothing said so.

    A doubt stays noted though a gap follows it, and so does a gap whose frame is in doubt.
    """
    disk = FailingDisk()
    journal = opened(tmp_path, disk)
    journal.deliver([entered(1, A)])
    for number, failure in enumerate(failures):
        disk.is_broken, disk.is_full = failure == "sync", failure == "full"
        journal.deliver([batch(0, number, b"shown to the application")])
    journal.close()
    disk.lose_unsynced(names_last=True)
    write_journal(tmp_path, [[entered(2, A)]])
    (gap,) = gaps_in(tmp_path)
    assert str(gap) == (
        f"an unknown number of deliveries are missing from ordinal 0 of view 1@10.0.0.1:7400#11 on ({reason})"
    )


def test_a_doubt_ends_when_later_rows_are_on_stable_storage(tmp_path: Path) -> None:
    disk = FailingDisk()
    journal = opened(tmp_path, disk)
    journal.deliver([entered(1, A)])
    disk.is_broken = True
    journal.deliver([batch(0, 0, b"a")])
    assert is_noted(tmp_path)
    disk.is_broken = False
    journal.deliver([batch(0, 1, b"b")])
    assert not is_noted(tmp_path), "from now on the rows' numbers tell"
    journal.close()
    assert [row.payload for row in shown(tmp_path) if isinstance(row, Delivered)] == [b"a", b"b"]


# Retention.


class NarrowDisk(QuickDisk):
    """So full that the head of a file fits, and no more. The note has its place already."""

    is_full = False

    def write(self, file: int, data: bytes | memoryview, at: int) -> int:
        if self.is_full and 100 < len(data) < NOTE_BYTES:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(file, data, at)


def test_rows_are_numbered_on_though_a_new_segment_got_none(tmp_path: Path) -> None:
    """Found by reading: retention removed the last rows, and with them their number; a reader could never go on."""
    disk = NarrowDisk()
    retention = Retention(bytes_max=1)

    def life() -> Journal:
        journal = Journal(tmp_path, deliveries=True, disk=disk, segment_bytes_max=500, retention=retention)
        journal.begin_life(NOON)
        return journal

    journal = life()
    reader = Reader(tmp_path, gaps="show")
    journal.deliver([entered(1, A), batch(0, 0, bytes(200)), batch(0, 1, bytes(200))])
    assert len(list(reader.rows())) == 3
    disk.is_full = True
    journal.deliver([batch(0, 2, bytes(200))])
    assert segment_numbers(tmp_path) == [1, 2]
    journal.abandon()  # the process is killed
    disk.is_full = False
    for _ in range(2):
        journal = life()
        assert segment_numbers(tmp_path) == [1, 2], "it does not go when a journal is opened either"
        journal.abandon()
    journal = life()
    journal.deliver([entered(2, A)])
    journal.close()
    assert segment_numbers(tmp_path) == [2]
    assert [row.position for row in reader.rows()] == [3, 4]


# Files.


def test_deliveries_that_cannot_be_opened_give_their_files_back(tmp_path: Path) -> None:
    """Found by reading: with every attempt the note, or the segment, stayed open for ever."""

    class Refusing(FailingDisk):
        def write(self, file: int, data: bytes | memoryview, at: int) -> int:
            if self.paths[file].name == refused:
                raise OSError(errno.ENOSPC, "No space left on device")
            return super().write(file, data, at)

        def close(self, file: int) -> None:
            super().close(file)
            del self.paths[file]

    for refused in ("gap", "deliveries.0000000001.journal"):
        disk = Refusing()
        journal = Journal(tmp_path / refused, deliveries=True, disk=disk)
        with pytest.raises(JournalError, match="cannot be opened"):
            journal.begin_life(NOON)
        journal.close()
        assert disk.paths == {}
        assert not [name for name in os.listdir(tmp_path / refused) if name.startswith("deliveries")]


def test_deliveries_that_are_not_written_show_among_the_drops_while_it_happens_and_after_the_end(
    tmp_path: Path,
) -> None:
    """Found by trying: on a full disk a member delivered for hours, and neither log, status nor metrics said a word."""
    disk = FailingDisk()

    async def main() -> unisono.Group:
        journal = Journal(tmp_path, deliveries=True, disk=disk)
        async with unisono.join("lab", listen="127.0.0.1:0", journal=journal) as group:
            assert group.running.count_drops() == {}
            disk.is_full = True
            receipts = [await group.cast(payload) for payload in (b"one", b"two", b"three")]
            await receipts[-1].delivered(10)
            assert answer(group.running, {"ask": "status"})["drops"] == {"journal: deliveries not written": 3}
            return group

    assert asyncio.run(main()).running.count_drops() == {"journal: deliveries not written": 3}
