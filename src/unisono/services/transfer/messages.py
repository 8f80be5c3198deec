"""The messages of state transfer, and their encoding.

| message | from → to     | meaning                                                                                  |
|---------|---------------|------------------------------------------------------------------------------------------|
| Ask     | asker → donor | asks for the state or, in a merge, for the base of one part                              |
| Offer   | donor → asker | offers a snapshot: its point, size, digest, and a number to pull it by                   |
| Decline | donor → asker | has no state to give, and why (`Why`)                                                    |
| Pull    | asker → donor | asks for the chunk at this offset                                                        |
| Chunk   | donor → asker | carries that chunk                                                                       |
| Gone    | donor → asker | the donor does not hold that snapshot any more                                           |
| Done    | asker → donor | the asker does not need it any more                                                      |

They travel beside the order (`send`), reliably and in order within one view; when it ends, they are lost. So every message
names its view or its snapshot.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple, TypeAlias

from unisono.core.config import Config
from unisono.core.types import MemberId, Rank, ViewId
from unisono.core.wire import ALL, BLOB, FLAG, MAYBE, ROW, TEXT, U8, U16, U32, U64, Codec, HeldState, Layout

TAG = b"T"
"""The first byte of these messages; other services may send asides too."""
DIGEST_BYTES = 16

Frontier: TypeAlias = tuple[tuple[Rank, int, int, int], ...]
"""Origin, service, index of the next message (all below it are in the state), and the same for messages to all."""


class PartKey(NamedTuple):
    """Names a part of a merge: the view that its members come from, and the cut that closed it."""

    view: ViewId
    cut: ViewId


class Want(NamedTuple):
    """The base of a part: its state at the beginning of the view `merge`."""

    merge: ViewId
    part: PartKey


class Why(IntEnum):
    """Why there is no offer."""

    WAITING = 0  # waits for a state too
    NONE = 1  # does not hold that base, and in this view can get it only from a member that does
    PENDING = 2  # is behind or ahead: ask again
    BUSY = 3  # holds the maximum number of snapshots: ask again, or another member
    OBSERVER = 4  # never has a state nor a base
    UNREAD = 5  # its application is busy with what it was shown: ask again, or another member


class Ask(NamedTuple):
    view: ViewId
    serial: int
    want: Want | None  # None: the state as it is
    is_behind: bool = False  # the asker merges, and lacks a base that no companion holds (T6)


class Offer(NamedTuple):
    view: ViewId
    serial: int
    number: int  # of the snapshot
    base: bool  # the base that was asked for; else the state at this point, whatever was asked for
    at: ViewId  # the point: a view …
    frontier: Frontier  # … and how much of it is in the state
    total: int
    chunk_bytes: int
    digest: bytes
    holds: HeldState | None = None  # primary policy: the state of a primary that this is


class Decline(NamedTuple):
    view: ViewId
    serial: int
    why: int
    initial: bool  # the sender could begin with a state of its own


class StatePull(NamedTuple):
    view: ViewId
    number: int
    offset: int


class StateChunk(NamedTuple):
    view: ViewId
    number: int
    offset: int
    data: bytes


class Gone(NamedTuple):
    view: ViewId
    number: int


class Done(NamedTuple):
    number: int


Message: TypeAlias = Ask | Offer | Decline | StatePull | StateChunk | Gone | Done

_MEMBER = ROW(TEXT, U64, type=MemberId)
_VIEW = ROW(U64, _MEMBER, type=ViewId)
_WANT = ROW(_VIEW, ROW(_VIEW, _VIEW, type=PartKey), type=Want)
_HELD = ROW(_VIEW, MAYBE(_VIEW), type=HeldState)
_FRONTIER = ALL(ROW(U16, U8, U64, U64))

WIRE = (
    Layout(0x78, Ask, (_VIEW, U32, MAYBE(_WANT), FLAG)),
    Layout(0x79, Offer, (_VIEW, U32, U64, FLAG, _VIEW, _FRONTIER, U64, U32, BLOB, MAYBE(_HELD))),
    Layout(0x7A, Decline, (_VIEW, U32, U8, FLAG)),
    Layout(0x7B, StatePull, (_VIEW, U64, U64)),
    Layout(0x7C, StateChunk, (_VIEW, U64, U64, BLOB)),
    Layout(0x7D, Gone, (_VIEW, U64)),
    Layout(0x7E, Done, (U64,)),
)


def make_transfer_codec() -> Codec:
    """The codec of these messages. They hold no ranks that need a check: decode them as sender 0 of 1."""
    return Codec(WIRE, Config())
