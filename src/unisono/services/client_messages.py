"""What clients outside of a group and its members say to each other, and how it looks on the wire.

| message | from → to        | meaning                                                                                |
|---------|------------------|----------------------------------------------------------------------------------------|
| Request | client → contact | cast this into the group for me; `oldest` is the lowest number that I still wait for   |
| Reply   | member → client  | the answer of one member to a request; None: it has nothing to say                     |
| Sorry   | contact → client | not through me, and why: ask someone else; or not yet, ask again with this token        |

What a member says to a client begins with the life of the client that it is for (`LIFE`): a capture is nothing to the next one.
An `Errand` is a request on its way through the group: what the contact casts.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from unisono.core.config import Config
from unisono.core.types import MemberId
from unisono.core.wire.codec import BLOB, FLAG, MAYBE, ROW, TEXT, U8, U16, U64, Codec, Layout

TAG = b"\0client\0"
"""What an errand begins with among the payloads of a group."""

LIFE = Struct("<Q")


class Wanted(IntEnum):
    """Whose answer a client wants."""

    CONTACT = 0  # one answer, of the member that it asked
    ALL = 1  # one of every member
    ANY = 2  # of whoever has something to say, the first: to locate a resource


class Hindrance(IntEnum):
    """Why a member cannot help."""

    NO_VIEW = 0  # it is not in the group yet, or not any more
    READ_ONLY = 1  # its view is not the primary one
    BUSY = 2  # it has as many requests under way as it may
    FORGOTTEN = 3  # the request was served so long ago that nobody remembers the answer
    FAILED = 4  # its application could not answer
    STRANGER = 5  # it does not know the client: the same again, with the token that comes with this


class Request(NamedTuple):
    number: int
    oldest: int
    wanted: int
    payload: bytes
    token: int = 0  # what this contact gave; 0: nothing yet


class Reply(NamedTuple):
    number: int
    of: int  # how many members the view had
    answer: bytes | None


class Sorry(NamedTuple):
    number: int
    why: int
    token: int = 0  # for a stranger


class Errand(NamedTuple):
    """A client's request, as every member's application sees it. `is_new` is False if it was served before."""

    client: MemberId
    number: int
    oldest: int
    wanted: int
    contact: MemberId
    payload: bytes
    is_new: bool = True


_MEMBER = ROW(TEXT, U64, type=MemberId)
WIRE = (
    Layout(0x80, Request, (U64, U64, U8, BLOB, U64)),
    Layout(0x81, Reply, (U64, U16, MAYBE(BLOB))),
    Layout(0x82, Sorry, (U64, U8, U64)),
    Layout(0x83, Errand, (_MEMBER, U64, U64, U8, _MEMBER, BLOB, FLAG)),
)


class Tab(NamedTuple):
    """What a member remembers of one client, for one that takes its state over."""

    client: MemberId
    floor: int
    answers: tuple[tuple[int, bytes | None], ...]


def make_client_codec() -> Codec:
    """The codec of these messages. No ranks are in them that a reader must check: decode them as sender 0 of 1."""
    return Codec(WIRE, Config())
