"""What managers of the directory say to each other, and how it looks on the wire. All of it goes to all managers."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from unisono.core.config import Config
from unisono.core.types import MemberId
from unisono.core.wire import FLAG, ROW, TEXT, U32, U64, Codec, Layout


class Probe(NamedTuple):
    """I would give this address to this name. Does anyone object?"""

    name: str
    address: int


class NameTaken(NamedTuple):
    """I object: `owner` has given the address to this name, or (pending) is about to and comes before you."""

    name: str
    address: int
    owner: MemberId
    pending: bool


class Announce(NamedTuple):
    """I have given this address to this name. Repeated now and then, so that newcomers learn it."""

    name: str
    address: int


class Release(NamedTuple):
    """The name and its address are free again."""

    name: str
    address: int


class Query(NamedTuple):
    """Who knows this name?"""

    name: str


Message: TypeAlias = Probe | NameTaken | Announce | Release | Query

_MANAGER = ROW(TEXT, U64, type=MemberId)
WIRE = (
    Layout(0x70, Probe, (TEXT, U32)),
    Layout(0x71, NameTaken, (TEXT, U32, _MANAGER, FLAG)),
    Layout(0x72, Announce, (TEXT, U32)),
    Layout(0x73, Release, (TEXT, U32)),
    Layout(0x74, Query, (TEXT,)),
)


def make_directory_codec() -> Codec:
    """The codec of these messages. Ranks and views mean nothing here: decode them as sender 0 of 1."""
    return Codec(WIRE, Config())
