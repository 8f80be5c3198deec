"""Several members' journals of one group as one stream: every delivery once, and a gap only where no journal has it.

A delivery is known by its sender and its index, whichever journal holds it. The stream remembers what it has given of
each view, takes the frames of all journals in the order of their views, and leaves out what was given. Inside a view a
journal without a gap is a prefix of what the group delivers there, so what several of them give together is in the
group's order too: the total order if there is one, else causal order, or first in, first out by sender.

**Links.** A journal leads the stream into a view if nothing can be missing before it: each view that its members come
from was left in some journal, which then has all of it. Otherwise the journal is *held* there until another one has led
the stream in, so a member that restarts or was cut off costs nothing while another journal goes on. Inside a view, a
journal is held behind deliveries that it lost until another one has passed that point. If no other journal can help, or
none has after some time, the gap is told, and the stream goes on behind it.

**What it cannot know.** A message with a list of recipients is in the journals of these members alone, and a gap that
only such messages would fill is not noticed if the rest was found elsewhere. Messages that only a crashed member or one
side of a partition delivered come when its journal is read, maybe after rows of later views; their view says where
they belong.
"""

from __future__ import annotations

import glob
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from unisono.core.types import MemberId, ViewId
from unisono.runtime.errors import JournalError
from unisono.runtime.journal.disk import Disk
from unisono.runtime.journal.format import (
    ABSENCE,
    BATCH,
    BEGINNING,
    GAP,
    Delivered,
    Missing,
    Row,
    Viewed,
    decode,
    end_of,
    rows_in,
)
from unisono.runtime.journal.reader import BEGINNING as START
from unisono.runtime.journal.reader import (
    CHUNK_BYTES,
    NO_LIMITS,
    FoundFrame,
    GapError,
    Limits,
    Place,
    Reader,
    Stretch,
    end_now,
    gap_in,
    read_stretch,
)
from unisono.runtime.journal.records import Records

RECENT_VIEWS: Final = 32
"""Views that are remembered for journals that the stream meets later."""
TOTAL: Final = frozenset({"sequencer", "fifo-total", "causal-total", "abcast", "tomp"})
"""Orders in which every message has a place among all: who has one has all before it."""

Spans = list[list[int]]
Ends = Mapping[str, tuple[int, int]]


class JournalPiece(NamedTuple):
    """Rows of one journal that the stream gives, or (`note`) a gap."""

    journal: str
    stretch: Stretch
    position: int
    note: str = ""
    view: str = ""
    ordinal: int = 0

    def to_json(self) -> list[Any]:
        return [self.journal, list(self.stretch), *self[2:]]

    @classmethod
    def from_json(cls, known: Sequence[Any]) -> JournalPiece:
        journal, stretch, *rest = known
        return cls(journal, Stretch(*stretch), *rest)


@dataclass(slots=True)
class Chapter:
    """What the stream has given of one view."""

    order: str = ""
    lives: list[int] = field(default_factory=list)  # of its members
    seen: dict[str, Spans] = field(default_factory=dict)  # by sender
    is_closed: bool = False  # some journal has left it, so it is complete there
    is_first: bool = False  # the stream began here
    is_founding: bool = False  # a newcomer was alone in it: nothing leads from there to what others delivered


@dataclass(slots=True)
class Bookmark:
    """How far a journal was read."""

    place: list[Any] = field(default_factory=lambda: list(START))
    view: str = ""
    life: int = -1
    is_skipping: bool = False  # it is in a view that the stream has left behind long ago
    lost: str = ""  # why it lacks deliveries just here
    is_beginning: bool = False  # … and the stream began here too, so it may lack them
    parted: list[Any] = field(default_factory=list)  # the view and the ordinal where others went on without its member


def missing_in(spans: Spans, first: int, end: int) -> list[tuple[int, int]]:
    """The parts of a range that are not covered by the spans."""
    found = []
    for begin, stop in spans:
        if stop <= first:
            continue
        if begin >= end:
            break
        if begin > first:
            found.append((first, begin))
        first = max(first, stop)
    if first < end:
        found.append((first, end))
    return found


def add_span(spans: Spans, first: int, end: int) -> None:
    """Add a range that is not covered yet."""
    if spans and spans[-1][1] == first:
        spans[-1][1] = end
        return
    spans.append([first, end])
    spans.sort()
    merged: Spans = []
    for begin, stop in spans:
        if merged and begin <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], stop)
        else:
            merged.append([begin, stop])
    spans[:] = merged


def number_of(view: str) -> int:
    return int(view.partition("@")[0] or 0)


class _Source:
    """One journal, with its next frame."""

    def __init__(self, path: str, mark: Bookmark) -> None:
        self.path = path
        self.mark = mark
        self.failure: JournalError | None = None
        self.group = ""  # whose journal it is, as far as that can be read
        self.held_since: float | None = None
        self._reader: Reader | None = None
        self._frames: Iterator[FoundFrame] | None = None
        self._next: FoundFrame | None = None

    def open(self) -> None:
        """Look for the journal. If it was cut or replaced, begin again: what was given is known by its senders."""
        self.failure = None
        if self._reader is not None:
            return
        try:
            try:
                self._reader = Reader(self.path, Place(*self.mark.place), "show")
            except JournalError:
                if Place(*self.mark.place) == START:
                    raise
                self._reader = Reader(self.path, gaps="show")
                self.mark = Bookmark()
            if not self.group:
                self.group = group_of(self.path)
        except JournalError as error:
            self.failure = error

    def peek(self, ends: Ends | None) -> FoundFrame | None:
        """The next frame, if there is one before the end."""
        if self._next is None and self._reader is not None and self.failure is None:
            self._read(self._reader)
        found = self._next
        if found is None or (ends is not None and (found.segment, found.end) > ends.get(self.path, (0, 0))):
            return None
        return found

    def _read(self, reader: Reader) -> None:
        if self._frames is None:
            self._frames = reader.frames()
        try:
            self._next = next(self._frames, None)
            if self._next is None:
                self._frames = None
        except JournalError as error:  # tried again with the next look
            self.failure, self._reader, self._frames = error, None, None

    def consume(self) -> None:
        assert self._next is not None
        self.mark.place = list(self._next.place)
        self._next = self.held_since = None

    def next_number(self) -> int:
        assert self._next is not None
        return end_of(self._next.body)[0].number

    @property
    def number(self) -> int:
        """Of the view that it is in."""
        return number_of(self.mark.view)


class JournalMerge:
    """Merges several journals. `advance` returns what follows, and `state` holds all that is needed to resume there."""

    def __init__(
        self,
        journals: Sequence[str],
        state: Mapping[str, Any] | None = None,
        *,
        gaps: str = "raise",
        wait_s: float = 10.0,
        piece_bytes: int = CHUNK_BYTES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        known = deepcopy(dict(state or {}))
        self._journals = list(journals)
        self._raises = gaps == "raise"
        self._wait_s = wait_s
        self._piece_bytes = piece_bytes
        self._clock = clock
        self.position: int = known.get("position", 0)
        self._floor: int = known.get("floor", 0)  # the highest number of a view that was forgotten
        self._last: tuple[str, int] = tuple(known.get("last", ("", 0)))  # the view, and its next delivery
        self._views = {view: Chapter(**chapter) for view, chapter in known.get("views", {}).items()}
        self._marks = {path: Bookmark(**mark) for path, mark in known.get("journals", {}).items()}
        self._sources: dict[str, _Source] = {}
        self._begin_plan(NO_LIMITS)
        self._only: dict[str, dict[str, Spans]] | None = None

    def _begin_plan(self, limits: Limits) -> None:
        self._limits = limits
        self._pieces: list[JournalPiece] = []
        self._begin = self.position
        self._bytes = 0
        self._is_full = False
        self._is_whole = False  # the last frame that was given was given to its end

    def state(self) -> dict[str, Any]:
        marks = self._marks | {path: source.mark for path, source in self._sources.items()}
        return {
            "position": self.position,
            "floor": self._floor,
            "last": list(self._last),
            "views": {view: asdict(chapter) for view, chapter in self._views.items()},
            "journals": {path: asdict(mark) for path, mark in marks.items()},
        }

    def advance(self, limits: Limits = NO_LIMITS, ends: Ends | None = None) -> list[JournalPiece]:
        """Return what follows, up to the current end."""
        self._look()
        self._forget()
        self._begin_plan(limits)
        while True:
            held = self._go_on(ends)
            if self._is_full or not held:
                break
            source = min(held, key=_Source.next_number)
            if not self._is_patience_over(source, held) or (self._raises and self._pieces):
                break
            self._tell(source)
        return self._pieces

    def is_held(self, ends: Ends | None = None) -> bool:
        """Whether a journal is held until another one has caught up."""
        return any(source.held_since is not None and source.peek(ends) for source in self._sources.values())

    # Journals.

    def _look(self) -> None:
        for path in paths_of(self._journals):
            if path not in self._sources:
                self._sources[path] = _Source(path, self._marks.pop(path, Bookmark()))
        for source in self._sources.values():
            source.open()
        groups = {source.group: source.path for source in self._sources.values() if source.group}
        if len(groups) > 1:
            (one, first), (other, second), *_ = groups.items()
            raise JournalError(
                f"{first} is a journal of the group {one!r}, and {second} one of {other!r}: give the journals of one group."
            )
        failures = [source.failure for source in self._sources.values()]
        if failures and all(failures):
            raise JournalError(f"no journal can be read: {failures[0]}") from failures[0]
        if not self._sources:
            raise JournalError(
                f"there is no journal at {', '.join(self._journals)}: give the folders that members journal their deliveries to."
            )

    def _go_on(self, ends: Ends | None) -> list[_Source]:
        """Take frames until every journal is held or at its end. Returns the held journals."""
        held: list[_Source] = []
        while not self._is_full:
            ready = [source for source in self._sources.values() if source not in held and source.peek(ends)]
            if not ready:
                break
            source = min(ready, key=_Source.next_number)
            if self._take_chapter(source, ends):
                held.clear()
            else:
                held.append(source)
                if source.held_since is None:
                    source.held_since = self._clock()
        return held

    def _take_chapter(self, source: _Source, ends: Ends | None) -> bool:
        """Take a journal's next rows, up to its next view. Returns whether any could be taken."""
        has_moved = False
        while (found := source.peek(ends)) is not None and not self._is_full:
            if has_moved and found.body[0] not in (BATCH, GAP):
                break
            if not self._take(source, found):
                break
            has_moved = True
        return has_moved

    def _is_patience_over(self, source: _Source, held: Sequence[_Source]) -> bool:
        """Whether no other journal can supply what this one lacks, or the wait for it is over."""
        number = source.next_number()
        helpers = [other for other in self._sources.values() if other not in held and other.number <= number]
        since = source.held_since
        return not helpers or (since is not None and self._clock() - since >= self._wait_s)

    # Frames.

    def _take(self, source: _Source, found: FoundFrame, is_told: bool = False) -> bool:
        """Take a frame. Returns False if its journal is held before it."""
        if found.body[0] == GAP:
            gap = gap_in(found.body)
            mark, chapter = source.mark, self._views.get(str(gap.view))
            if gap.kind == ABSENCE:
                mark.parted = [str(gap.view), gap.ordinal]
            else:
                mark.lost = gap.reason
                mark.is_beginning = gap.kind == BEGINNING and chapter is not None and chapter.is_first
            source.consume()
            return True
        if found.body[0] == BATCH:
            return self._take_batch(source, found, is_told)
        return self._take_view(source, found, is_told)

    def _take_view(self, source: _Source, found: FoundFrame, is_told: bool) -> bool:
        (row,) = decode(found.body)
        assert isinstance(row, Viewed)
        mark, name = source.mark, str(row.view)
        is_same_life = mark.life == row.incarnation
        if is_same_life and not mark.lost and mark.view in self._views:
            self._views[mark.view].is_closed = True
        is_skipping = False
        if name not in self._views:
            if row.view.number <= self._floor and (mark.is_skipping or not is_same_life):
                is_skipping = True
            elif not is_told and (mark.lost or not self._is_linked(source, row)):
                return False
            elif not self._give(source, found, 0, 1):
                return True
            else:
                is_founding = row.parts == () and len(row.members) == 1
                self._views[name] = Chapter(is_first=not self._has_begun, is_founding=is_founding)
        if not is_skipping:
            chapter = self._views[name]
            chapter.order, chapter.lives = row.order, [member.incarnation for member in row.members]
            if name != self._last[0] and row.view.number >= number_of(self._last[0]):
                self._last = name, 0
        source.mark = Bookmark(view=name, life=row.incarnation, is_skipping=is_skipping)
        source.consume()
        return True

    def _is_linked(self, source: _Source, row: Viewed) -> bool:
        """Whether nothing can be missing before a view."""
        if not self._has_begun:
            return True
        if self._only is not None:
            return str(row.view) in self._only
        if row.parts is None:
            return source.mark.life == row.incarnation
        if not row.parts:  # newcomers all: a new group, or a newcomer alone, which others take in later
            is_back = bool(source.mark.view) and source.mark.life != row.incarnation
            has_others = any(other is not source and not other.failure for other in self._sources.values())
            if len(row.members) == 1 and (has_others or not is_back):
                return True
            return not self._floor and not is_back and all(one.is_founding for one in self._views.values())
        return all(self._is_complete(part) for part in row.parts)

    @property
    def _has_begun(self) -> bool:
        return bool(self._views or self._floor)

    def _is_complete(self, view: ViewId) -> bool:
        chapter = self._views.get(str(view))
        return view.number <= self._floor if chapter is None else chapter.is_closed

    def _take_batch(self, source: _Source, found: FoundFrame, is_told: bool) -> bool:
        first = next(decode(found.body))
        assert isinstance(first, Delivered)
        mark, name = source.mark, str(first.view)
        if mark.view != name:  # what comes before was removed
            is_beginning = not self._has_begun
            mark.view, mark.life = name, -1
            mark.is_skipping = name not in self._views and first.view.number <= self._floor
            mark.lost = "" if is_beginning or mark.is_skipping else f"the beginning of view {name} was removed"
            if is_beginning:
                self._views[name] = Chapter(is_first=True)
        if mark.is_skipping:
            source.consume()
            return True
        if mark.lost and not is_told and not self._has_passed(name, first):
            return False
        mark.lost, mark.is_beginning = "", False
        spans = self._views.setdefault(name, Chapter()).seen.setdefault(str(first.sender), [])
        count = rows_in(found.body)[1]
        for begin, end in self._unseen(name, first.sender, spans, first.index, first.index + count):
            taken = self._give(source, found, begin - first.index, end - begin)
            if taken:
                add_span(spans, begin, begin + taken)
                self._last = name, first.ordinal + begin - first.index + taken
            if taken < end - begin:
                return True  # the rest of the frame follows later
        source.consume()
        return True

    def _unseen(self, view: str, sender: MemberId, spans: Spans, first: int, end: int) -> list[tuple[int, int]]:
        unseen = missing_in(spans, first, end)
        if self._only is None:
            return unseen
        wanted = self._only.get(view, {}).get(str(sender), [])
        return [
            (max(begin, start), min(stop, until))
            for begin, stop in unseen
            for start, until in wanted
            if max(begin, start) < min(stop, until)
        ]

    def _has_passed(self, view: str, row: Delivered) -> bool:
        """Whether another journal has all that was delivered before a row."""
        chapter = self._views.get(view)
        if chapter is None:
            return False
        is_seen = not missing_in(chapter.seen.get(str(row.sender), []), row.index, row.index + 1)
        return chapter.is_closed or (chapter.order in TOTAL and is_seen)

    def _give(self, source: _Source, found: FoundFrame, skip: int, rows: int) -> int:
        """Give as many rows of a frame as still fit. Returns their number."""
        size = found.end - found.start
        limits = self._limits
        if limits.rows is not None:
            rows = min(rows, limits.rows - (self.position - self._begin))
        if rows <= 0 or (limits.bytes is not None and self._bytes and self._bytes + size > limits.bytes):
            self._is_full = True
            return 0
        last = self._pieces[-1] if self._pieces else None
        if (
            last is not None
            and last.journal == source.path
            and not last.note
            and not skip
            and last.stretch.takes(found, self._piece_bytes)
            and self._is_whole
        ):
            stretch = last.stretch._replace(end=found.end, rows=last.stretch.rows + rows)
            self._pieces[-1] = last._replace(stretch=stretch)
        else:
            self._pieces.append(
                JournalPiece(source.path, Stretch(found.segment, found.start, found.end, rows, skip), self.position)
            )
        self._is_whole = skip + rows == rows_in(found.body)[1]
        self.position += rows
        self._bytes += size
        self._is_full = limits.rows is not None and self.position - self._begin >= limits.rows
        return rows

    # Gaps.

    def _tell(self, source: _Source) -> None:
        """Report a gap: no journal holds what precedes this journal's next frame. Then continue there."""
        found = source.peek(None)
        assert found is not None
        if source.mark.is_beginning:
            self._take(source, found, is_told=True)
            return
        until, _ = end_of(found.body)
        view, ordinal = min(self._last, tuple(source.mark.parted or self._last), key=lambda last: number_of(last[0]))
        note = f"no journal has all that was delivered until view {until}, since its members parted"
        if source.mark.lost:
            note = f"{source.mark.lost}, and no other journal has them"
        gap = JournalPiece(source.path, Stretch(0, 0, 0, 0), self.position, note, view, ordinal)
        if self._raises:
            (row,) = read_piece(gap)
            others = len(self._sources) - 1
            raise GapError(
                f"the journal {source.path} and {others} other{'' if others == 1 else 's'} have a gap: {row}. "
                "Show gaps to go on behind it."
            )
        self._pieces.append(gap)
        self._is_whole = False
        self.position += 1
        self._take(source, found, is_told=True)

    def _forget(self) -> None:
        """Drop old views that no journal can still be behind."""
        for view in sorted(self._views, key=number_of)[:-RECENT_VIEWS]:
            number, lives = number_of(view), self._views[view].lives
            marks = [*self._marks.values(), *(source.mark for source in self._sources.values())]
            if not any(mark.view == view or (mark.life in lives and number_of(mark.view) <= number) for mark in marks):
                del self._views[view]
                self._floor = max(self._floor, number)

    # Again.

    def repeat(self, end: Mapping[str, Any], pieces: Sequence[JournalPiece], without: set[str]) -> list[JournalPiece]:
        """Rebuild the rows of a plan without some journals, from others that have the same deliveries."""
        after = {view: Chapter(**chapter) for view, chapter in end["views"].items()}
        self._only = {view: chapter.seen for view, chapter in after.items()}
        self._look()
        for path in without:
            self._sources.pop(path, None)
        self._begin_plan(NO_LIMITS)
        for view in after:
            if view in self._views:
                self._views[view].is_closed = True
        while held := self._go_on(None):
            source = min(held, key=_Source.next_number)
            found = source.peek(None)
            assert found is not None
            if not self._take(source, found, is_told=str(end_of(found.body)[0]) in after):
                self._sources.pop(source.path)
        told = [piece for piece in pieces if piece.note]
        if self.position + len(told) != end["position"]:
            raise JournalError(
                f"rows that were read from {', '.join(sorted(without))}, which cannot be read any more, are in no other journal: "
                "restore it, or start with a new checkpoint."
            )
        return number_around(told, self._pieces)


def number_around(told: Sequence[JournalPiece], pieces: Sequence[JournalPiece]) -> list[JournalPiece]:
    """Renumber pieces so that gaps keep their positions."""
    numbered: list[JournalPiece] = []
    gaps = sorted(told, key=lambda piece: piece.position, reverse=True)
    for piece in pieces:
        position = piece.position + len(told) - len(gaps)
        rest: JournalPiece | None = piece._replace(position=position)
        while rest is not None:
            piece, rest = rest, None
            if gaps and gaps[-1].position < piece.position + piece.stretch.rows:
                before = gaps[-1].position - piece.position
                stretch = piece.stretch
                if before > 0:
                    numbered.append(piece._replace(stretch=stretch._replace(rows=before)))
                numbered.append(gaps.pop())
                later = stretch._replace(rows=stretch.rows - max(before, 0), skip=stretch.skip + max(before, 0))
                rest = piece._replace(stretch=later, position=numbered[-1].position + 1)
            else:
                numbered.append(piece)
    return [*numbered, *reversed(gaps)]


def group_of(path: str) -> str:
    """The name of the group that a journal belongs to; empty if unknown."""
    try:
        return Records(Path(path) / "records", Disk()).group
    except JournalError:
        return ""


def paths_of(journals: Sequence[str]) -> list[str]:
    """The folders that names and patterns match now."""
    found: dict[str, None] = {}
    for name in journals:
        matches = sorted(glob.glob(name)) if glob.has_magic(name) else [name]
        found.update(dict.fromkeys(os.path.abspath(match) for match in matches))
    return list(found)


def ends_now(journals: Sequence[str]) -> dict[str, tuple[int, int]]:
    """The current ends of the readable journals."""
    ends = {}
    for path in paths_of(journals):
        try:
            ends[path] = end_now(path)
        except JournalError:
            continue
    return ends


def read_piece(piece: JournalPiece) -> Iterator[Row]:
    """Read the rows of a piece, numbered across the whole stream."""
    if piece.note:
        number, _, proposer = piece.view.partition("@")
        address, _, life = proposer.rpartition("#")
        view = ViewId(int(number or 0), MemberId(address, int(life or 0)))
        yield Missing(piece.position, view, piece.ordinal, -1, piece.note)
        return
    for position, row in enumerate(read_stretch(piece.journal, piece.stretch), piece.position):
        yield row._replace(position=position)
