"""The bytes of a journal: a head for each file, then frames, each with its length and checksums; a frame says all about itself.

    file   magic 8 · version 2 · kind 2 · number 8 · check 4
    frame  length 4 · check of the body 4 · check of these two 4 · body

What cannot be read is told apart, because the cure differs:

- **torn**: the file ends inside of a frame, or in nothing but zeros. So ends a file whose writer was killed; no reader saw
  the frame, and it may be cut off.
- **damaged**: bytes are there, and they are not what was written. A reader may have seen that frame. It is never cut off.

The head of a frame has a check of its own, so that a damaged length is not taken for a torn frame, and so that no memory is
taken for a length that was never written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from struct import Struct, pack, unpack_from
from typing import Final, NamedTuple, TypeAlias
from zlib import crc32

from unisono.core.outbox import VoteWatermark
from unisono.core.types import Batch, MemberId, View, ViewId

MAGIC: Final = b"unisonoJ"
VERSION: Final = 1
RECORDS: Final = 1
DELIVERIES: Final = 2
BODY_BYTES_MAX: Final = 1 << 30
REASON_BYTES_MAX: Final = 400

_FILE = Struct("<8sHHQ")
_CHECK = Struct("<I")
_FRAME = Struct("<II")
_SHORT = Struct("<H")
_BATCH = Struct("<BQqQBHI")
_CONTEXT = Struct("<QQQH")
_VIEW = Struct("<BQQQQHH")
_MEMBER = Struct("<QH")
_NUMBER = Struct("<Q")
_GAP = Struct("<BQqqH")
_WATERMARK = Struct("<QQ")

FILE_BYTES: Final = _FILE.size + _CHECK.size
FRAME_BYTES: Final = _FRAME.size + _CHECK.size

BATCH: Final = 1
VIEW: Final = 2
GAP: Final = 3
NO_VIEW: Final = ViewId(0, MemberId("", 0))
LOST: Final = ""
ABSENCE: Final = "absence"
BEGINNING: Final = "beginning"
Bytes: TypeAlias = bytes | memoryview


class Damage(Exception):
    """Bytes are not what was written."""

    def __init__(self, byte: int, why: str) -> None:
        super().__init__(why)
        self.byte = byte
        self.why = why


# What a reader gets.


class Delivered(NamedTuple):
    """A message that was delivered: the `ordinal`-th, from 0, of its view at this member. `position` counts a journal's rows."""

    position: int
    view: ViewId
    ordinal: int
    sender: MemberId
    index: int  # type: ignore[assignment]  # hides tuple.index, which rows do not need
    payload: bytes


class Viewed(NamedTuple):
    """A view begins. If `incarnation` differs from the last row's, the journal's member was away in between."""

    position: int
    view: ViewId
    members: tuple[MemberId, ...]
    incarnation: int
    order: str
    parts: tuple[ViewId, ...] | None = None
    """The views that its members come from, without those that a newcomer began alone. None: an older journal does not say."""


class Missing(NamedTuple):
    """Deliveries that the journal lacks: this number of messages (-1: not known), from that ordinal on.

    Some could not be written (`LOST`). An `ABSENCE` is what the group delivered while this member was not with it; the next row is
    the view that ends it. A `BEGINNING` is what the state that an application began with had of its first view.
    """

    position: int
    view: ViewId
    ordinal: int
    messages: int
    reason: str
    kind: str = LOST

    def __str__(self) -> str:
        many = str(self.messages) if self.messages >= 0 else "an unknown number of"
        where = "" if self.view == NO_VIEW else f" from ordinal {self.ordinal} of view {self.view} on"
        return f"{many} deliveries are missing{where} ({self.reason})"


Row: TypeAlias = Delivered | Viewed | Missing


class FrameMark(NamedTuple):
    """The end of a frame in the members' terms: the view and the ordinal of its last delivery (-1: the view itself)."""

    view: str
    ordinal: int


# Files and frames.


def file_head(kind: int, number: int) -> bytes:
    head = _FILE.pack(MAGIC, VERSION, kind, number)
    return head + _CHECK.pack(crc32(head))


def check_file_head(data: Bytes, kind: int, number: int | None = None) -> bool:
    """Whether a file's head is whole. False: it is torn, and nothing follows. Raises `Damage` if it is of something else."""
    if len(data) < FILE_BYTES:
        if not file_head(kind, number or 0).startswith(bytes(data[: len(MAGIC)])) and any(data):
            raise Damage(0, "it is not a journal")
        return False
    magic, version, found, counted = _FILE.unpack_from(data)
    if magic != MAGIC:
        if not any(data):
            return False
        raise Damage(0, "it is not a journal")
    if _CHECK.unpack_from(data, _FILE.size)[0] != crc32(data[: _FILE.size]):
        raise Damage(0, "its head has a wrong checksum")
    if version != VERSION:
        raise Damage(0, f"its version is {version}, and this program reads version {VERSION}")
    if found != kind or (number is not None and counted != number):
        raise Damage(0, "it belongs to another journal, or to another place in this one")
    return True


def frame(body: bytes) -> bytes:
    head = _FRAME.pack(len(body), crc32(body))
    return head + _CHECK.pack(crc32(head)) + body


def frame_length(data: Bytes, at: int, base: int = 0) -> int | None:
    """How long the frame at a place is, its head included. None: its head is torn. `base` is where the data begins in its file."""
    if len(data) - at < FRAME_BYTES:
        return None
    length: int = _FRAME.unpack_from(data, at)[0]
    if _CHECK.unpack_from(data, at + _FRAME.size)[0] != crc32(data[at : at + _FRAME.size]):
        if not any(data[at:]):
            return None
        raise Damage(base + at, "the head of a frame has a wrong checksum")
    if not 0 < length <= BODY_BYTES_MAX:
        raise Damage(base + at, "the length of a frame is impossible")
    return FRAME_BYTES + length


def frames(data: Bytes, at: int, base: int = 0) -> Iterator[tuple[int, int, memoryview]]:
    """Yield start, end and body of each complete frame. Ends at a torn frame; raises `Damage` at a damaged one."""
    view = memoryview(data)
    while (length := frame_length(view, at, base)) is not None and at + length <= len(view):
        body = view[at + FRAME_BYTES : at + length]
        if crc32(body) != _FRAME.unpack_from(view, at)[1]:
            raise Damage(base + at, "a frame has a wrong checksum")
        yield at, at + length, body
        at += length


# Watermarks of votes.


def encode_watermark(watermark: VoteWatermark) -> bytes:
    return _WATERMARK.pack(watermark.voted, watermark.decided) + context_of(watermark.view, MemberId(""))


def decode_watermark(data: bytes) -> VoteWatermark:
    if len(data) < _WATERMARK.size + _CONTEXT.size:
        raise Damage(0, "a vote is not one")
    view, _ = read_context(data[_WATERMARK.size :])
    return VoteWatermark(view, *_WATERMARK.unpack_from(data))


# Deliveries.


def context_of(view: ViewId, sender: MemberId) -> bytes:
    """The part of the encoding that all batches of one sender in one view share."""
    proposer = view.proposer.address.encode()
    head = _CONTEXT.pack(view.number, view.proposer.incarnation, sender.incarnation, len(proposer))
    return head + proposer + sender.address.encode()


@lru_cache(maxsize=4_096)
def read_context(context: bytes) -> tuple[ViewId, MemberId]:
    number, proposer, sender, length = _CONTEXT.unpack_from(context)
    at = _CONTEXT.size
    address = context[at : at + length].decode()
    return ViewId(number, MemberId(address, proposer)), MemberId(context[at + length :].decode(), sender)


def encode_batch(position: int, ordinal: int, batch: Batch, context: bytes) -> bytes:
    payloads = batch.payloads or ()
    count = len(payloads)
    head = _BATCH.pack(BATCH, position, ordinal, batch.first, batch.service, len(context), count)
    return b"".join((head, context, pack(f"<{count}I", *map(len, payloads)), *payloads))


def encode_view(position: int, view: View, incarnation: int, order: str, origins: Sequence[ViewId] = ()) -> bytes:
    proposer = view.id.proposer
    name = order.encode()
    parts = [
        _VIEW.pack(VIEW, position, incarnation, view.id.number, proposer.incarnation, len(name), len(view.members)),
        name,
    ]
    parts += map(_encode_member, (proposer, *view.members))
    parts.append(_SHORT.pack(len(origins)))  # behind all that readers of an older version look at
    parts += [_NUMBER.pack(origin.number) + _encode_member(origin.proposer) for origin in origins]
    return b"".join(parts)


def _encode_member(member: MemberId) -> bytes:
    address = member.address.encode()
    return _MEMBER.pack(member.incarnation, len(address)) + address


def _decode_member(body: Bytes, at: int) -> tuple[MemberId, int]:
    """A member, and where it ends."""
    life, size = _MEMBER.unpack_from(body, at)
    at += _MEMBER.size
    return MemberId(bytes(body[at : at + size]).decode(), life), at + size


def encode_gap(gap: Missing) -> bytes:
    text = gap.reason.encode()[:REASON_BYTES_MAX]
    context = context_of(gap.view, MemberId(gap.kind))
    return _GAP.pack(GAP, gap.position, gap.ordinal, gap.messages, len(text)) + text + context


def rows_in(body: Bytes) -> tuple[int, int]:
    """The position of a frame's first row, and how many rows it has."""
    if body[0] == BATCH:
        head = _BATCH.unpack_from(body)
        return head[1], head[6]
    return unpack_from("<Q", body, 1)[0], 1


def mark_of(body: Bytes) -> FrameMark:
    view, ordinal = end_of(body)
    return FrameMark(str(view), ordinal if body[0] == GAP else ordinal - 1)


def end_of(body: Bytes) -> tuple[ViewId, int]:
    """The view of a frame, and the ordinal of the delivery that follows it (for a gap: of the first that it lacks)."""
    if body[0] == BATCH:
        _, _, ordinal, _, _, length, count = _BATCH.unpack_from(body)
        view, _ = read_context(bytes(body[_BATCH.size : _BATCH.size + length]))
        return view, ordinal + count
    row = next(decode(body))
    return row.view, row.ordinal if isinstance(row, Missing) else 0


def decode(body: Bytes) -> Iterator[Row]:
    """The rows of a frame."""
    kind = body[0]
    if kind == BATCH:
        return _decode_batch(body)
    if kind == VIEW:
        return iter((_decode_view(body),))
    if kind == GAP:
        return iter((_decode_gap(body),))
    raise Damage(0, f"a frame is of the unknown kind {kind}")


def _decode_batch(body: Bytes) -> Iterator[Row]:
    _, position, ordinal, first, _, length, count = _BATCH.unpack_from(body)
    at = _BATCH.size + length
    view, sender = read_context(bytes(body[_BATCH.size : at]))
    lengths: Sequence[int] = unpack_from(f"<{count}I", body, at)
    at += 4 * count
    for number, size in enumerate(lengths):
        yield Delivered(position + number, view, ordinal + number, sender, first + number, bytes(body[at : at + size]))
        at += size


def _decode_view(body: Bytes) -> Viewed:
    _, position, incarnation, number, _, length, count = _VIEW.unpack_from(body)
    at = _VIEW.size + length
    order = bytes(body[_VIEW.size : at]).decode()
    found = []
    for _ in range(count + 1):
        member, at = _decode_member(body, at)
        found.append(member)
    return Viewed(position, ViewId(number, found[0]), tuple(found[1:]), incarnation, order, _decode_parts(body, at))


def _decode_parts(body: Bytes, at: int) -> tuple[ViewId, ...] | None:
    if at == len(body):
        return None
    parts = []
    (count,) = _SHORT.unpack_from(body, at)
    at += _SHORT.size
    for _ in range(count):
        (number,) = _NUMBER.unpack_from(body, at)
        proposer, at = _decode_member(body, at + _NUMBER.size)
        parts.append(ViewId(number, proposer))
    return tuple(parts)


def _decode_gap(body: Bytes) -> Missing:
    _, position, ordinal, messages, length = _GAP.unpack_from(body)
    at = _GAP.size + length
    view, kind = read_context(bytes(body[at:]))
    reason = bytes(body[_GAP.size : at]).decode(errors="replace")
    return Missing(position, view, ordinal, messages, reason, kind.address)
