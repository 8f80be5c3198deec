"""The contract that every ordering protocol implements.

An ordering object lives for exactly **one view**. So ranks are dense small integers, state is lists indexed by rank, and a
protocol holds no membership code. A new protocol is one file, a line in `orders.registry`, and a line in `trace.promises`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from unisono.core.config import Config
from unisono.core.outbox import Outbox
from unisono.core.types import Batch, Packet, Property, Rank, Service, Slot, View
from unisono.core.wire import Layout


class Report(Protocol):
    """What a member says of one view when it is flushed. Each ordering adds the decisions that it knows."""

    @property
    def held(self) -> tuple[int, ...]:
        """By rank: how many slots of that origin this member has received, holdback included."""


class Cut(Protocol):
    """The agreed remainder of one view. Each ordering adds in which order it is delivered."""

    @property
    def wanted(self) -> tuple[int, ...]:
        """By rank: up to which slot the remainder goes. What lies beyond is dropped by everyone."""


class Wait(NamedTuple):
    """Why one batch is not delivered yet, for `explain`."""

    batch: Batch
    reason: str
    waits_for: tuple[Rank, ...]


ReportT = TypeVar("ReportT", bound=Report)
CutT = TypeVar("CutT", bound=Cut)


class Ordering(ABC, Generic[ReportT, CutT]):
    """In which order ONE member delivers the batches of ONE view.

    Given:     packets of each member arrive exactly once, unaltered, in order PER STREAM: its casts (`to_all`) among
               themselves, its packets to me (`to_one`) among themselves. Nothing is promised between the two.
    Not given: anything about time, or about which members are alive.
    To note:   if `out.noting`, a total order calls `out.ordered` as soon as the place of a batch is known here.
    """

    guarantees: ClassVar[frozenset[Property]]
    service: ClassVar[Service]
    """The native service: what a message gets that asks for nothing."""
    services: ClassVar[frozenset[Service]]
    """Every service that one stream of this order can carry."""
    numbered: ClassVar[tuple[type, ...]]
    """The packet types that occupy a slot of their origin; each has a field `number`. A member retains them for a view change."""
    wire: ClassVar[tuple[Layout, ...]]
    report_wire: ClassVar[Layout]
    cut_wire: ClassVar[Layout]
    """How its packets, its report and its cut look on the wire."""
    acknowledges: ClassVar[bool] = False
    """Whether `quiet` can ever owe anything. Members of other orders arm no timer."""
    noted: ClassVar[frozenset[str]] = frozenset()
    """Attributes that serve notes alone: members that differ only in them behave alike, but for what they note."""
    collect: ClassVar[str] = "star"
    """How reports travel at a view change unless a member is told otherwise: by star or by ring."""
    unsent_bytes: int = 0
    """The weight (`core.weight`) of own batches that wait in here to be cast: the streams do not know of them yet. An ordering that
    lets batches wait must count them, because `cast` is refused beyond a window of them."""

    @abstractmethod
    def __init__(self, view: View, rank: Rank, config: Config) -> None: ...

    # Normal running.

    @abstractmethod
    def submit(self, batch: Batch, out: Outbox) -> None:
        """Cast an own batch."""

    @abstractmethod
    def receive(self, sender: Rank, packet: Packet, out: Outbox) -> None:
        """Take in one packet of another member.

        Raises `PeerFault`, *before* anything changes, if no correct member can have sent it at this point (`Contradiction`, if
        another member may be to blame). What is refused depends on the sender's own streams and on what this member has sent
        itself, so that a packet which one correct member takes in is not held against its sender by another.
        """

    def end_turn(self, out: Outbox) -> None:
        """Emit what is gathered once a turn: ONE acknowledgement, proposal list or range of the order."""

    def quiet(self, out: Outbox) -> None:
        """Called `ack_delay` after a received packet unless something was cast since. Emits nothing when nothing is owed."""

    def approach(self, wanted: bool) -> bool:
        """Whether a view change may begin: no message is half done here (`rmp` waits for open commits). `wanted`: one is planned.
        Asked every turn; an answer later than `takeover_ns` comes too late."""
        return True

    def mark(self) -> Any:
        """How far this member has delivered, for `forget`; None: too little to be worth forgetting."""
        return None

    def forget(self, mark: Any) -> None:
        """Drop state before `mark`: every member has taken in all that this one had when `mark` returned it."""

    @abstractmethod
    def waits(self) -> Sequence[Wait]:
        """What is held back here, for what, and for whom."""

    # View change, three steps, after which the object is dead.

    @abstractmethod
    def report(self) -> ReportT:
        """What I hold and which decisions I know. After it, nothing of this view is handed to me any more."""

    def unsent(self) -> Sequence[Packet]:
        """Own numbered packets that wait to be cast. Reported as held; the member retains them as if it had cast them."""
        return ()

    @staticmethod
    @abstractmethod
    def merge(view: View, config: Config, reports: Mapping[Rank, ReportT]) -> CutT:
        """Pure: the agreed remainder, in order, from the reports of the survivors (the keys, at least one).

        Raises `PeerFault` if they cannot all be true; a report that cannot be true at all is refused alone, too.
        """

    @abstractmethod
    def close(self, cut: CutT, missing: Mapping[Slot, Packet], out: Outbox) -> None:
        """Deliver the rest of the view. `missing` holds, as they were cast, the slots of the cut that I did not report.

        Raises `PeerFault`, before anything changes, if the cut does not fit what I reported.
        """


AnyOrdering: TypeAlias = Ordering[Any, Any]
