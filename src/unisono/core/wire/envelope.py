"""The datagram: a fresh **envelope** for each transmission, around a **body** that is encoded once and kept.

Numbers are little-endian. What is called a number below travels as its low 32 bits and is extended by the receiver, which
always knows it to within 2³¹ (`extend`); so a view may live longer than 2³² datagrams::

    head   version u8 · flags u8 · sender u16 · to u16 (65535: all) · view u64 · counter u64
           · tries u8 · naks u8 · rows u16 · body bytes u16 · room u32 · cast end u32 · send end u32
    row    origin u16 · cast u32 · send u32 · arrived u32 · taken u32 · echo u32 · delay u16      (`rows` times)
    nak    origin u16 · kind u8 · first u32 · count u32                                           (`naks` times)
    body   kind u8 · origin u16 · seq u32 · count u16 · marks u16
           · plain: lengths u16 × count · indexes of marked packets u16 × marks · the packets
           · fragment: total u32 · offset u32 · a piece

| field          | meaning                                                                                            |
|----------------|----------------------------------------------------------------------------------------------------|
| flags          | 1: answer with all your rows · 2: my window is full, acknowledge to me at once                     |
| view           | a hash of the view's id and members, incarnations included: other views and lives are refused      |
| counter        | of all the sender's transmissions in its life: nonce of a seal, refused when repeated              |
| tries          | transmission number of the body: how often it was sent before                                      |
| room           | how many more packets the sender of the datagram can take in                                       |
| cast/send end  | how many bodies the sender has sent to all, and to `to`: a lost tail shows at the next datagram    |
| cast, send     | how many bodies of the origin's cast stream, of its stream to me, I have without a gap             |
| arrived, taken | how many packets of the origin's casts I could show, and my ordering has taken in                  |
| echo, delay    | the origin's counter that I saw last, and how long ago, in units of 16 µs: one round trip's sample |

A **marked** packet is one half of a cast to some members only: on the cast stream it begins with its addressees (count u16,
rank u16 each), on a unicast stream with the number u32 of the cast packet that it stands for.

The head up to `counter` is what a seal leaves readable; the rest of the datagram can be sealed as a whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from functools import lru_cache
from hashlib import blake2b
from itertools import accumulate, pairwise
from struct import Struct
from typing import NamedTuple, TypeAlias

from unisono.core.types import Rank, View
from unisono.core.wire.fields import array_of

Octets: TypeAlias = bytes | memoryview
"""What never changes: bytes, or a look into bytes."""

VERSION = 1

HEAD = Struct("<BBHHQQBBHHIII")
ROUTE = Struct("<BxHxxQ")
"""Of a head: version, sender, view."""
ROW = Struct("<HIIIIIH")
NAK = Struct("<HBII")
BODY = Struct("<BHIHH")
PIECE = Struct("<II")
NUMBER = Struct("<I")
CLEAR_BYTES = 22
"""The part of the head that stays readable under a seal: version to counter."""

TO_ALL = 0xFFFF
POLL = 1  # flag: answer with all your rows
PUSH = 2  # flag: the window is full, acknowledge to me at once
AWAIT = 4  # flag: a caller waits for stability, so tell me at once what you take in from now on, for a while
FLAGS_MAX = POLL | PUSH | AWAIT

CAST = 0  # kinds of body: the stream …
SEND = 1
FRAGMENT = 2  # … and whether it is a piece of one packet
KIND_MAX = SEND | FRAGMENT

NO_LIMIT = 2**32 - 1  # of room
NAKS_MAX = 255
DELAY_UNIT_NS = 16_000
DELAY_MAX = 2**16 - 1  # this delay or a longer one gives no sample

LOW = 2**32 - 1
HALF = 2**31


class Refusal(StrEnum):
    """Why a datagram, or the body in it, was not taken."""

    SHORT = "short"  # not even a head
    VERSION = "version"  # another version of this format
    SENDER = "sender"  # not from whom the driver took it to be
    ADDRESSEE = "addressee"  # meant for another member
    VIEW = "view"  # of another view, or another life of a member
    REPLAYED = "replayed"  # this counter was seen before, or is too old to know
    LENGTH = "length"  # its parts do not add up to its length
    RANK = "rank"  # a rank that the view does not have, or that makes no sense here
    COUNT = "count"  # more items than allowed, or none
    BODY = "body"  # the body is malformed
    FORGED = "forged"  # acknowledges or asks for what was never sent
    AHEAD = "ahead"  # too far beyond the stream's next number, or no memory to hold it behind a gap
    UNASKED = "unasked"  # another origin's cast that was not asked for
    MEMORY = "memory"  # no room for reassembly or joining; it comes again
    FRAGMENT = "fragment"  # pieces that do not continue each other
    PART = "part"  # a marked packet that makes no sense


def extend(low: int, near: int) -> int:
    """The number whose low 32 bits are `low`, within 2³¹ of `near`. It may be negative: then it means nothing."""
    return near + ((low - near + HALF) & LOW) - HALF


def view_tag(view: View) -> int:
    """A view's name in 64 bits. Members and incarnations count, so a datagram of another life is of another view."""
    state = blake2b(digest_size=8)
    for text in (str(view.id.number), str(view.id.proposer), *map(str, view.members)):
        state.update(len(text).to_bytes(4, "little") + text.encode())
    return int.from_bytes(state.digest(), "little")


class ReplayWindow:
    """Which counters of one peer were seen, over the last 65,536 at least: RFC 6479's ring of bitmaps.

    It belongs to a peer's life, not to a view: hand the same one to the streams of the next view. A counter far beyond
    all others is refused too: no member sends that much unheard, and accepting a forged one would shut out the true ones.
    """

    __slots__ = ("_blocks", "highest")

    BLOCK = 1024
    BLOCKS = 66  # the newest is partly filled, so the window is one block less than the ring
    WIDTH = BLOCK * (BLOCKS - 1)
    LEAP_MAX = 2**32

    def __init__(self) -> None:
        self.highest = 0  # counters begin at 1
        self._blocks = [0] * self.BLOCKS

    def fresh(self, counter: int) -> bool:
        """Whether the counter is new. Changes nothing: what fails a later check must not use it up."""
        highest = self.highest
        if counter > highest:
            return counter - highest <= self.LEAP_MAX
        if counter <= highest - self.WIDTH or counter <= 0:
            return False
        return not self._blocks[counter // 1024 % 66] >> counter % 1024 & 1

    def add(self, counter: int) -> None:
        """Remember a fresh counter."""
        block = counter // 1024
        if counter > self.highest:
            newest = self.highest // 1024
            if block > newest:  # what the ring reuses is empty
                for i in range(max(newest + 1, block - 65), block + 1):
                    self._blocks[i % 66] = 0
            self.highest = counter
        self._blocks[block % 66] |= 1 << counter % 1024


# Bodies.


def make_plain(kind: int, origin: Rank, seq: int, packets: list[bytes], lengths: list[int], marks: list[int]) -> bytes:
    """A body of whole packets. The caller has made sure that it fits a datagram."""
    count = len(packets)
    head = BODY.pack(kind, origin, seq & LOW, count, len(marks))
    table = array_of(count, "H").pack(*lengths)
    if marks:
        table += array_of(len(marks), "H").pack(*marks)
    return b"".join((head, table, *packets))


def make_pieces(kind: int, origin: Rank, seq: int, packet: bytes, marked: bool, capacity: int) -> list[bytes]:
    """Bodies that carry one packet in pieces, with consecutive numbers from `seq` on."""
    size = capacity - PIECE.size
    total = len(packet)
    whole = memoryview(packet)
    return [
        b"".join(
            (
                BODY.pack(kind | FRAGMENT, origin, (seq + i) & LOW, 0, int(marked)),
                PIECE.pack(total, offset),
                whole[offset : offset + size],
            )
        )
        for i, offset in enumerate(range(0, total, size))
    ]


class Plain(NamedTuple):
    """A body of whole packets, taken apart."""

    packets: Sequence[Octets]
    marks: tuple[int, ...]


class Piece(NamedTuple):
    """A body with a part of one packet. `data` looks into the body."""

    data: memoryview
    total: int
    offset: int
    marked: bool


SHARED_BYTES = 4_096
"""From this size on, copies are avoided: a body is a view into its datagram if that never changes, and a packet alone in its
body is a view into the body."""


@lru_cache(maxsize=512)
def _alike(count: int, length: int) -> Struct:
    return Struct(f"{length}s" * count)


def take_plain(body: Octets, count: int, marks: int, count_max: int) -> Plain | None:
    """Take a body of packets apart; None if it is malformed. Nothing is made before the lengths add up."""
    at = BODY.size + 2 * count
    if not 1 <= count <= count_max or marks > count or at + 2 * marks > len(body):
        return None
    table = bytes(body[BODY.size : at])
    indexes: tuple[int, ...] = ()
    if marks:
        indexes = array_of(marks, "H").unpack_from(body, at)
        at += 2 * marks
        if indexes[-1] >= count or any(a >= b for a, b in pairwise(indexes)):
            return None
    length = table[0] | table[1] << 8
    if length >= SHARED_BYTES and count == 1 and not marks:
        return Plain((memoryview(body)[at:],), indexes) if at + length == len(body) else None
    if table == table[:2] * count:  # packets of one length are cut by one call
        if not length or at + length * count != len(body):
            return None
        return Plain(_alike(count, length).unpack_from(body, at), indexes)
    lengths = array_of(count, "H").unpack(table)
    if 0 in lengths or at + sum(lengths) != len(body):
        return None
    return Plain([bytes(body[a:b]) for a, b in pairwise(accumulate(lengths, initial=at))], indexes)


def take_piece(body: Octets, count: int, marks: int, total_max: int) -> Piece | None:
    """Take a fragment; None if it is malformed."""
    at = BODY.size + PIECE.size
    if count or marks > 1 or len(body) <= at:
        return None
    total, offset = PIECE.unpack_from(body, BODY.size)
    if total > total_max or offset + len(body) - at > total or len(body) - at == total:
        return None
    return Piece(memoryview(body)[at:], total, offset, bool(marks))


# Marked packets.


def mark_header(header: bytes, to: tuple[Rank, ...]) -> bytes:
    """The half of a cast to some that goes to everyone."""
    return array_of(1 + len(to), "H").pack(len(to), *to) + header


def unmark_header(packet: Octets, members: int) -> tuple[Octets, tuple[Rank, ...]] | None:
    """A header and its addressees; None if it is malformed."""
    if len(packet) < 2:
        return None
    count = packet[0] | packet[1] << 8
    start = 2 + 2 * count
    if count > members or len(packet) <= start:
        return None
    to = array_of(count, "H").unpack_from(packet, 2)
    if to and max(to) >= members:
        return None
    return packet[start:], to


def mark_full(full: bytes, number: int) -> bytes:
    """The half of a cast to some that goes to an addressee."""
    return NUMBER.pack(number & LOW) + full


def unmark_full(packet: Octets, near: int) -> tuple[Octets, int] | None:
    """An addressee's half and which packet of the cast stream it stands for; None if it is malformed."""
    if len(packet) <= NUMBER.size:
        return None
    return packet[NUMBER.size :], extend(NUMBER.unpack_from(packet)[0], near)
