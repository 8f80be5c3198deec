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
    """What a member holds of a view that ends. Each ordering adds the decisions that it knows."""

    @property
    def held(self) -> tuple[int, ...]:
        """By rank: how many slots of that origin this member has received, holdback included."""


class Cut(Protocol):
    """The agreed remainder of a view. Each ordering adds in which order it is delivered."""

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
    """The native service, of messages that ask for none."""
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
    """Attributes that serve the recorder alone. The explorer takes members that differ only in them for equal."""
    collect: ClassVar[str] = "star"
    """How reports travel at a view change by default: by star or by ring."""
    unsent_bytes: int = 0
    """The weight (`core.weight`) of own batches that this ordering was given and has not put into `to_all` yet. The streams do not
    know of these, and `cast` is refused when they fill a window, so an ordering that lets batches wait must count them."""

    @abstractmethod
    def __init__(self, view: View, rank: Rank, config: Config) -> None: ...

    # Normal running.

    @abstractmethod
    def submit(self, batch: Batch, out: Outbox) -> None:
        """Cast an own batch."""

    @abstractmethod
    def receive(self, sender: Rank, packet: Packet, out: Outbox) -> None:
        """Take in one packet of another member.

        Raises `PeerFault`, *before* anything changes, if no correct member can have sent it at this point; `Contradiction` if
        another member may be to blame. Judge a packet by what its sender and this member sent before it, never by what came from
        third members: that may arrive in another order elsewhere, and then two correct members would judge differently.
        """

    def end_turn(self, out: Outbox) -> None:
        """Emit what is gathered once a turn: ONE acknowledgement, proposal list or range of the order."""

    def quiet(self, out: Outbox) -> None:
        """Acknowledge what is owed, if anything. Called `ack_delay_ns` after a packet came unless something was cast since."""

    def approach(self, wanted: bool) -> bool:
        """Whether a view change may begin: no message is half done here (`rmp` ends open commits). `wanted`: one is planned, and
        this is asked every turn until it begins, at the latest after `takeover_ns`; False: it is planned no more."""
        return True

    def mark(self) -> Any:
        """How far this member has delivered, for `forget`. None: too little to be worth it."""
        return None

    def forget(self, mark: Any) -> None:
        """Drop state before `mark`: every member has processed all that this one had when `mark` returned it."""

    @abstractmethod
    def waits(self) -> Sequence[Wait]:
        """What is held back here, for what, and for whom."""

    # View change, three steps, after which the object is dead.

    @abstractmethod
    def report(self) -> ReportT:
        """What is held here and which decisions are known. Nothing of this view is handed in after it."""

    def unsent(self) -> Sequence[Packet]:
        """Own numbered packets that wait to be cast. Reported as held; the member retains them as if it had cast them."""
        return ()

    @staticmethod
    @abstractmethod
    def merge(view: View, config: Config, reports: Mapping[Rank, ReportT]) -> CutT:
        """Compute the agreed remainder, in order, from the survivors' reports, at least one. A pure function.

        Raises `PeerFault` if they cannot all be true. A report that can never be true is refused alone, too: so a liar is found.
        """

    @abstractmethod
    def close(self, cut: CutT, missing: Mapping[Slot, Packet], out: Outbox) -> None:
        """Deliver the rest of the view. `missing` holds, as they were cast, the slots of the cut that were not reported here.

        Raises `PeerFault`, before anything changes, if the cut does not fit the report.
        """


AnyOrdering: TypeAlias = Ordering[Any, Any]
