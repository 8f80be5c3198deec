"""What one member delivered in one view, as a few numbers that members compare.

Deliveries form **lanes**: all messages of the service `total` are one lane, and the messages of one origin in one of the other
services are a lane each. Inside a lane all members that close a view together deliver the same messages in the same order,
whatever the order of the group; between lanes the order may differ. Only messages that go to everyone count: placeholders,
messages with recipients and datagrams are left out.

A lane has a rolling hash over its batches, which are the same at all members: their origin, index and count, and the CRC-32 of
their payloads. So which messages were delivered, and in which order, is always compared. Of the payloads of a batch about 1 KiB
count, which is all of it unless the load is high or messages are large; of a larger batch it is some part, another one in
each batch, because under load the time to hash all bytes is noticed. It detects faults, not attacks: two different hashes are
equal once in about four thousand million cases.

To find *where* two members differ, a lane keeps **marks**: its state at every eighth batch, at every sixteenth, and so on, the
latest eight of each. So a difference is located the more exactly the younger it is, a member that is a little behind has marks
where the others have, and there are at most eight marks for each doubling of the lane's length.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias
from zlib import crc32

from unisono.core.types import Batch, Rank, Service

Lane: TypeAlias = tuple[int, Rank]
"""A service and an origin. The service `total` has one lane for all origins, under rank 0."""
TOTAL_LANE: Lane = (int(Service.TOTAL), 0)
Place: TypeAlias = tuple[int, int]
"""How far a lane has come: messages so far, and the hash over them."""
START: Place = (0, 0)

_TOTAL, _DATAGRAM = Service.TOTAL, Service.DATAGRAM  # looked up once a batch
_FACTOR = 0x9E3779B1
_SAMPLE_BYTES = 1_024
_MARK_EVERY = 8  # batches
_MARKS_A_LEVEL = 8


class LaneMark(NamedTuple):
    """The state of a lane behind one of its batches."""

    batches: int
    messages: int
    value: int


class LaneHash:
    """The rolling hash of one lane, and its marks."""

    __slots__ = ("_levels", "batches", "messages", "value")

    def __init__(self) -> None:
        self.batches = self.messages = self.value = 0
        self._levels: list[deque[tuple[int, int, int]]] = []  # the k-th: marks at multiples of 8 * 2**k batches

    @property
    def place(self) -> Place:
        return self.messages, self.value

    def mark(self) -> None:
        """Remember this place. It is called at every eighth batch."""
        here, number, level = (self.batches, self.messages, self.value), self.batches // _MARK_EVERY, 0
        while True:
            if level == len(self._levels):
                self._levels.append(deque(maxlen=_MARKS_A_LEVEL))
            self._levels[level].append(here)
            if number & 1:
                return
            number >>= 1
            level += 1

    def marks(self) -> tuple[LaneMark, ...]:
        """What is remembered of the way, and the present place, in order."""
        here = (self.batches, self.messages, self.value)
        return tuple(map(LaneMark._make, sorted({here, *(mark for level in self._levels for mark in level)})))


class DeliveredLanes:
    """Adds up what is delivered in one view."""

    def __init__(self) -> None:
        self._total = LaneHash()
        self._lanes: dict[Lane, LaneHash] = {TOTAL_LANE: self._total}

    def add(self, batch: Batch) -> None:
        """Count a batch that is shown to the application. This runs once a batch, whatever its size: keep it short."""
        if batch.to is not None:
            return
        service = batch.service
        if service is _TOTAL:
            lane = self._total
        elif service is _DATAGRAM:
            return
        else:
            key = (int(service), batch.origin)
            lane = self._lanes.get(key) or self._lanes.setdefault(key, LaneHash())
        payloads, count, first = batch.payloads or (b"",), batch.count, batch.first
        text = payloads[0]
        if count > 1:
            most = _SAMPLE_BYTES // (len(text) + 1) + 1
            if count > most:
                start = _part(first, count, most)
                payloads = payloads[start : start + most]
            text = b"\0".join(payloads)
        elif len(text) > _SAMPLE_BYTES:
            start = _part(first, len(text), _SAMPLE_BYTES)
            text = text[start : start + _SAMPLE_BYTES]
        lane.value = crc32(text, lane.value + first * _FACTOR + (count << 16 | batch.origin))
        lane.messages += count
        lane.batches = batches = lane.batches + 1
        if not batches % _MARK_EVERY:
            lane.mark()

    def place(self, lane: Lane) -> Place:
        """How far a lane has come."""
        found = self._lanes.get(lane)
        return START if found is None else found.place

    def marks(self, lane: Lane) -> tuple[LaneMark, ...]:
        found = self._lanes.get(lane)
        return () if found is None else found.marks()

    def places(self) -> dict[Lane, Place]:
        """How far each lane has come in which anything was delivered."""
        return {lane: one.place for lane, one in sorted(self._lanes.items()) if one.batches}


def _part(first: int, length: int, size: int) -> int:
    """Where a part of this size begins, of several that make up the whole: another one for each first index."""
    return (first * 0x9E3779B1 >> 8 & 0xFFFFFF) % -(-length // size) * size


def differing_lanes(mine: dict[Lane, Place], theirs: dict[Lane, Place]) -> list[Lane]:
    """In which lanes two members differ, in order."""
    lanes = sorted(mine.keys() | theirs.keys())
    return [lane for lane in lanes if mine.get(lane, START) != theirs.get(lane, START)]


def first_difference(mine: Sequence[LaneMark], theirs: Sequence[LaneMark]) -> tuple[int, int]:
    """Of one lane: how many messages are certainly the same at both, and by which one they differ."""
    known = {mark.batches: mark for mark in theirs}
    alike = 0
    for mark in mine:
        other = known.get(mark.batches)
        if other is None:
            continue
        if other != mark:
            return alike, max(mark.messages, other.messages)
        alike = mark.messages
    ends = [marks[-1].messages for marks in (mine, theirs) if marks]
    return alike, max(ends, default=alike)
