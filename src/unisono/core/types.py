"""The nouns of unisono: members, views, messages, batches and slots.

Read it after README.md and docs/architecture.md. Inside a view everything is a small dense integer:

- a **rank** is a member's position in the view's member list;
- a **slot** ``(origin, number)`` names the ``number``-th packet (from 1) that a member cast in this view, of the kinds that a
  view change must preserve (`Ordering.numbered`): batches, and explicit acknowledgements if a protocol's order needs them;
- an **index** counts an origin's messages across views, from 0, so that a message's key never repeats.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Any, NamedTuple, TypeAlias

from unisono.core.digest import digest_of
from unisono.core.text import read_name, short_life

Rank: TypeAlias = int
Slot: TypeAlias = tuple[Rank, int]
Packet: TypeAlias = tuple[Any, ...]
"""A protocol unit: a NamedTuple of the ordering that made it. Immutable, so that a simulator may share it."""


class MemberId(NamedTuple):
    """Who: an address and which life of the process at that address. `str` is its whole name, as data needs it."""

    address: str
    incarnation: int = 0

    def __str__(self) -> str:
        return f"{self.address}#{self.incarnation}" if self.incarnation else self.address

    @property
    def short(self) -> str:
        """For people: `127.0.0.1:7400#a3f`. See `core.text`."""
        return f"{self.address}#{short_life(self.incarnation)}" if self.incarnation else self.address

    @classmethod
    def parse(cls, text: str) -> MemberId:
        """Read the long form, ADDRESS#INCARNATION: the incarnation is decimal, or hexadecimal after `0x`.

        An address alone has incarnation 0. A shortened incarnation is for people: it cannot be read back.
        """
        return cls(*read_name(text))


class ViewId(NamedTuple):
    """A view's name, unique even when two partitions count alike."""

    number: int
    proposer: MemberId

    def __str__(self) -> str:
        return f"{self.number}@{self.proposer}"

    @property
    def short(self) -> str:
        """For people, like the short form of a member."""
        return f"{self.number}@{self.proposer.short}"


@dataclass(frozen=True, slots=True)
class View:
    """An agreed membership. A member's position in ``members`` is its rank."""

    id: ViewId
    members: tuple[MemberId, ...]

    def __len__(self) -> int:
        return len(self.members)

    def rank_of(self, member: MemberId) -> Rank:
        return self.members.index(member)


class Key(NamedTuple):
    """A message's name, for ever unique."""

    origin: MemberId
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody calls on a key


class Service(IntEnum):
    """What one message is promised. A group's order has a native service; ToTo, all-ack and RMP carry several in one stream."""

    FIFO = 1
    CAUSAL = 2
    TOTAL = 3
    DATAGRAM = 4  # nothing but that it is not made up, altered or doubled: who gets it, gets it


class Property(StrEnum):
    """What an ordering guarantees about the deliveries of one view."""

    FIFO = "fifo"
    CAUSAL = "causal"
    TOTAL = "total"
    UNIFORM = "uniform"  # members that crashed, too, delivered a prefix of the total order


class Batch:
    """Consecutive messages of one origin, cast with the same options: the unit that is ordered and delivered.

    ``payloads`` is None in a **placeholder**: the batch occupies its place in the order but this member is not addressed.
    Batches are never changed after they are made; a simulator shares one object between all members.
    """

    __slots__ = ("_digest", "count", "first", "origin", "payloads", "safe", "service", "to")

    def __init__(
        self,
        origin: Rank,
        first: int,
        payloads: Sequence[bytes] | None,
        service: Service,
        to: tuple[Rank, ...] | None = None,
        count: int | None = None,
        digest: int | None = None,
        safe: bool = False,
    ) -> None:
        self.origin = origin
        self.first = first
        self.payloads = None if payloads is None else tuple(payloads)
        self.service = service
        self.to = to
        self.count = len(payloads) if payloads is not None else count or 0
        self._digest = digest
        self.safe = safe

    @property
    def digest(self) -> int:
        """A 64-bit hash of the payloads and their boundaries; a placeholder carries the caster's."""
        if self._digest is None:
            self._digest = digest_of(self.payloads or ())
        return self._digest

    def placeholder(self) -> Batch:
        """The same batch as those see it who are not addressed: its place and its digest, without the payloads."""
        return Batch(self.origin, self.first, None, self.service, self.to, self.count, self.digest, self.safe)

    def _identity(self) -> tuple[object, ...]:
        return (self.origin, self.first, self.count, self.payloads, self.service, self.to, self.safe)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Batch) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash((self.origin, self.first, self.count, self.payloads is None))

    def __repr__(self) -> str:
        last = self.first + self.count - 1
        what = f"{self.origin}:{self.first}" + (f"-{last}" if self.count > 1 else "")
        return f"Batch({what}{'' if self.payloads is not None else ', placeholder'})"
