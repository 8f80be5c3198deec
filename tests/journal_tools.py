"""Disks that fail in chosen ways, and small histories to journal."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from unisono.core.member import Entered, Happening
from unisono.core.types import Batch, MemberId, Service, View, ViewId
from unisono.core.wire.control import Charter
from unisono.runtime.journal import Journal
from unisono.runtime.journal.disk import Disk
from unisono.runtime.journal.format import Delivered, Row, Viewed

A = MemberId("10.0.0.1:7400", 11)
B = MemberId("10.0.0.2:7400", 12)


class PowerCut(Exception):
    """Everything ends here, and what was not synced is gone."""


class QuickDisk(Disk):
    """For tests that do not pull the plug: a real sync takes milliseconds, and shows nothing to a process that lives on."""

    def sync(self, file: int) -> None: ...

    def sync_folder(self, folder: Path) -> None: ...


class MortalDisk(QuickDisk):
    """Knows what is on stable storage, notes what is done, and fails at a chosen operation.

    After a power cut `lose_unsynced` leaves what had been synced. Names that no `sync_folder` covered are lost too, or, with
    `names_last`, stay, as a system is free to decide.
    """

    def __init__(self, cut_at: int | None = None) -> None:
        self.log: list[str] = []
        self.cut_at = cut_at
        self.paths: dict[int, Path] = {}
        self._synced: dict[Path, bytes] = {}
        self._names: dict[Path, bytes] = {}

    def _do(self, what: str) -> None:
        if self.cut_at is not None and len(self.log) >= self.cut_at:
            raise PowerCut
        self.log.append(what)

    def open(self, path: Path) -> int:
        self._do(f"open {path.name}")
        existed = path.exists()
        file = super().open(path)
        self.paths[file] = path
        if existed and path not in self._synced:
            self._synced[path] = self._names[path] = path.read_bytes()
        return file

    def write(self, file: int, data: bytes | memoryview, at: int) -> int:
        self._do(f"write {self.paths[file].name}")
        return super().write(file, data, at)

    def sync(self, file: int) -> None:
        path = self.paths[file]
        self._do(f"sync {path.name}")
        super().sync(file)
        self._synced[path] = path.read_bytes()
        if path in self._names:
            self._names[path] = self._synced[path]

    def cut(self, file: int, size: int) -> None:
        self._do(f"cut {self.paths[file].name}")
        super().cut(file, size)

    def replace(self, source: Path, target: Path) -> None:
        self._do(f"replace {target.name}")
        if target.exists():
            self._names.setdefault(target, target.read_bytes())
        super().replace(source, target)
        self._synced[target] = self._synced.pop(source, b"")
        for file, path in self.paths.items():
            if path == source:
                self.paths[file] = target

    def sync_folder(self, folder: Path) -> None:
        self._do("sync folder")
        super().sync_folder(folder)
        self._names |= self._synced

    def lose_unsynced(self, names_last: bool) -> None:
        kept = self._synced if names_last else self._names
        for path in {*self._synced, *self.paths.values()}:
            if path in kept:
                path.write_bytes(kept[path])
            else:
                path.unlink(missing_ok=True)


class ForgetfulDisk(MortalDisk):
    """The planted fault: it says that it synced, and did not."""

    def sync(self, file: int) -> None:
        self._do("no sync")


class FullDisk(QuickDisk):
    """Has room for so many more bytes. Overwriting needs none."""

    def __init__(self, room: int) -> None:
        self.room = room
        self._sizes: dict[int, int] = {}

    def open(self, path: Path) -> int:
        file = super().open(path)
        self._sizes[file] = path.stat().st_size
        return file

    def write(self, file: int, data: bytes | memoryview, at: int) -> int:
        fits = self._sizes[file] + self.room - at
        if fits <= 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = super().write(file, data[:fits], at)
        grown = max(0, at + written - self._sizes[file])
        self._sizes[file] += grown
        self.room -= grown
        return written

    def cut(self, file: int, size: int) -> None:
        super().cut(file, size)
        self.room += self._sizes[file] - size
        self._sizes[file] = size


def entered(number: int, *members: MemberId) -> Entered:
    view = View(ViewId(number, members[0]), members)
    return Entered.of(view, Charter(view.id, members, (), "sequencer", (), True, ()), None, members[:1], True)


def batch(origin: int, first: int, *payloads: bytes) -> Batch:
    return Batch(origin, first, payloads, Service.TOTAL)


def story() -> list[list[Happening]]:
    """A few turns with all that can be journalled: empty and larger payloads, several batches in a turn, a change of views."""
    return [
        [entered(1, A)],
        [batch(0, 0, b"a")],
        [batch(0, 1, b"b", b""), batch(0, 3, b"c" * 40)],
        [batch(0, 4, b"d"), entered(2, A, B), batch(1, 0, b"e", b"f")],
        [batch(0, 5, b"g")],
    ]


def told(turns: Iterable[Iterable[Happening]], incarnation: int) -> list[Row]:
    """What a reader must get of this, computed apart from the journal."""
    return list(_told(turns, incarnation))


def _told(turns: Iterable[Iterable[Happening]], incarnation: int) -> Iterator[Row]:
    view, ordinal, position = View(ViewId(0, A), ()), 0, 0
    for event in (event for turn in turns for event in turn):
        if isinstance(event, Entered):
            view, ordinal = event.view, 0
            yield Viewed(position, view.id, view.members, incarnation, "sequencer", ())
            position += 1
        elif isinstance(event, Batch):
            for number, payload in enumerate(event.payloads or ()):
                yield Delivered(position, view.id, ordinal, view.members[event.origin], event.first + number, payload)
                position, ordinal = position + 1, ordinal + 1


def write_journal(
    path: Path,
    turns: Iterable[Sequence[Happening]],
    disk: Disk | None = None,
    segment: int = 1 << 20,
    fsync: str = "turn",
) -> Journal:
    """One life that delivers these turns. The journal is closed, and still answers questions."""
    journal = Journal(path, deliveries=True, disk=disk or QuickDisk(), segment_bytes_max=segment, fsync=fsync)
    journal.begin_life(1_000_000)
    for turn in turns:
        journal.deliver(turn)
    journal.close()
    return journal
