"""The nouns of unisono: members, views, messages, batches and slots.

Inside a view, members and packets are named by small integers (docs/architecture.md):

- a **rank** is a member's position in the view's member list;
- a **slot** ``(origin, number)`` counts, from 1, the packets of an origin that a view change must preserve (`Ordering.numbered`):
  batches, and explicit acknowledgements if a protocol's order follows from them;
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
    """An address, and which life of the process at that address. `str` gives the whole name, `short` one for people."""

    address: str
    incarnation: int = 0

    def __str__(self) -> str:
        return f"{self.address}#{self.incarnation}" if self.incarnation else self.address

    @property
    def short(self) -> str:
        """The address and a few digits of the incarnation: `127.0.0.1:7400#a3f` (`core.text`)."""
        return f"{self.address}#{short_life(self.incarnation)}" if self.incarnation else self.address

    @classmethod
    def parse(cls, text: str) -> MemberId:
        """Read ADDRESS#INCARNATION, decimal, or hexadecimal after `0x`; an address alone has incarnation 0. `short` is not read."""
        return cls(*read_name(text))


class ViewId(NamedTuple):
    """A view's name, unique even when two partitions count alike."""

    number: int
    proposer: MemberId

    def __str__(self) -> str:
        return f"{self.number}@{self.proposer}"

    @property
    def short(self) -> str:
        """Number and proposer, in the proposer's short form."""
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
    """A message's name, unique for ever."""

    origin: MemberId
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody calls on a key


class Service(IntEnum):
    """What one message is promised. Each order has a native service; ToTo, all-ack and RMP carry several in one stream."""

    FIFO = 1
    CAUSAL = 2
    TOTAL = 3
    DATAGRAM = 4  # delivered at most once and unaltered, at no particular place, and perhaps not by all


class Property(StrEnum):
    """What an ordering guarantees about the deliveries of one view."""

    FIFO = "fifo"
    CAUSAL = "causal"
    TOTAL = "total"
    UNIFORM = "uniform"  # even a member that crashes has delivered a prefix of the total order


class Batch:
    """Consecutive messages of one origin, cast with the same options: the unit that is ordered and delivered.

    Its messages have the indexes ``first`` to ``first + count - 1``. They are for the ranks ``to``, or for all if it is None.
    In a **placeholder**, which other ranks get, ``payloads`` is None: the batch keeps its place in the order, and is not shown.
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
        """The same batch without its payloads, for members that it is not addressed to."""
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
