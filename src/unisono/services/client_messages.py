"""The messages between clients outside of a group and its members, and their encoding.

| message | from → to        | meaning                                                                                |
|---------|------------------|----------------------------------------------------------------------------------------|
| Request | client → contact | asks to cast this; `oldest` is the lowest number for which the client still waits      |
| Reply   | member → client  | the answer of one member to a request; None: it has nothing to say                     |
| Sorry   | contact → client | why it cannot help: ask another member, or ask again with this token                   |

Messages to a client begin with the life of the client that they are for (`LIFE`): a later life ignores a captured one.
An `Errand` is a request on its way through the group: the contact casts it.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from unisono.core.config import Config
from unisono.core.types import MemberId
from unisono.core.wire import BLOB, FLAG, MAYBE, ROW, TEXT, U8, U16, U64, Codec, Layout

TAG = b"\0client\0"
"""The first bytes of an errand, among the payloads of a group."""

LIFE = Struct("<Q")


class Wanted(IntEnum):
    """Whose answer a client wants."""

    CONTACT = 0  # one answer, from the member that it asked
    ALL = 1  # an answer from every member
    ANY = 2  # the first answer from any member that has one: to locate a resource


class Hindrance(IntEnum):
    """Why a member cannot help."""

    NO_VIEW = 0  # it is not yet in the group, or no longer
    READ_ONLY = 1  # its view is not the primary one
    BUSY = 2  # it has the maximum number of requests under way
    FORGOTTEN = 3  # the request was served so long ago that the answer is forgotten
    FAILED = 4  # its application could not answer
    STRANGER = 5  # it does not know the client: ask again with the token in this message


class Request(NamedTuple):
    number: int
    oldest: int
    wanted: int
    payload: bytes
    token: int = 0  # given by this contact; 0: none yet


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
    """What a member remembers of one client, for a member that takes its state over."""

    client: MemberId
    floor: int
    answers: tuple[tuple[int, bytes | None], ...]


def make_client_codec() -> Codec:
    """The codec of these messages. They hold no ranks that need a check: decode them as sender 0 of 1."""
    return Codec(WIRE, Config())
