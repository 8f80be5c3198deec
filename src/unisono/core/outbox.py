"""Where outputs pile up: an ordering writes into an `Outbox`, the engine of a view hands out `EngineEffects` once a turn."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from unisono.core.markers import Marker
from unisono.core.transition import Transition
from unisono.core.types import Batch, Packet, Rank, View, ViewId


class NoteKind(StrEnum):
    """What happened inside a turn, in the words of the trace."""

    CAST = "CAST"
    RECEIVE = "RECEIVE"
    ORDERED = "ORDERED"
    DELIVER = "DELIVER"
    VOTE = "VOTE"
    DECIDE = "DECIDE"
    VIEW = "VIEW"
    BLOCK = "BLOCK"
    UNBLOCK = "UNBLOCK"
    SUSPECT = "SUSPECT"
    STABLE = "STABLE"


class Note(NamedTuple):
    """One thing that happened, for the recorder. Notes of a turn are in the order in which they happened."""

    kind: NoteKind
    batch: Batch | None = None
    position: int | None = None
    view: View | None = None
    attributes: Mapping[str, object] | None = None


class VoteWatermark(NamedTuple):
    """How far a member has come in the two-phase commits of a view: what it must not forget.

    It has voted for all positions below `voted`, and knows what became of those below `decided`, or of all if that is no less.
    """

    view: ViewId
    voted: int
    decided: int

    @property
    def is_open(self) -> bool:
        """Whether it has voted for something whose outcome it does not know."""
        return self.decided < self.voted


class Outbox:
    """What an ordering wants done. Everything in `to_all` reaches the *others* only: own effects happen in the call itself.

    `noting` is False unless someone records; an ordering asks it before it spends anything on a note.
    """

    __slots__ = ("deliver", "notes", "noting", "vote_watermark", "to_all", "to_one")

    def __init__(self, noting: bool = False) -> None:
        self.to_all: list[Packet] = []
        self.to_one: list[tuple[Rank, Packet]] = []
        self.deliver: list[Batch] = []
        self.notes: list[Note] = []
        self.noting = noting
        self.vote_watermark: VoteWatermark | None = None  # the last one counts

    def ordered(self, batch: Batch, position: int | None = None, **attributes: object) -> None:
        """Note that the place of `batch` in the order is now known here (the end of t1). Call it only if `noting`."""
        self.notes.append(Note(NoteKind.ORDERED, batch, position, None, attributes or None))

    def voted(self, batch: Batch, decision: str) -> None:
        """Note this member's vote, yes or no, in the two-phase commit of `batch`. Call it only if `noting`."""
        self.notes.append(Note(NoteKind.VOTE, batch, attributes={"decision": decision}))

    def decided(self, batch: Batch, decision: str, recovery: bool = False) -> None:
        """Note that `batch` is now committed or aborted here; `recovery`: by a view change. Call it only if `noting`."""
        attributes = {"decision": decision, "recovery": True} if recovery else {"decision": decision}
        self.notes.append(Note(NoteKind.DECIDE, batch, attributes=attributes))


class RefusedPacket(NamedTuple):
    """A packet was refused that no correct member sends at this point. Nothing of it has counted."""

    sender: Rank  # whose packet it is said to be
    reason: str
    is_certain: bool  # no lie of another member can have led to it


class EngineEffects:
    """What follows from a turn of the engine, strictly top to bottom: persist, send, show the application, arm the timer.

    The lists are the driver's to keep; the object itself is used again for the member's next turn.
    """

    __slots__ = ("casts", "deadline", "events", "faults", "notes", "partial", "vote_watermark", "records", "sends")

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Make all fields empty again. Lists that were taken from here stay as they are."""
        self.records: list[bytes] = []  # 1 write to stable storage before anything leaves
        self.vote_watermark: VoteWatermark | None = None  # 1 likewise, if it is new that this member has voted
        self.casts: list[Packet] = []  # 2 send: on the cast stream, to every other member
        self.partial = False  # some cast is not addressed to everyone: see `core.views.retained.packet_for`
        self.sends: list[tuple[Rank, Packet]] = []  # 2 send: on the unicast stream of one peer
        self.events: list[Batch | Marker | Transition | View] = []  # 3 show the application, in this order
        self.deadline: int | None = None  # 4 call drain() by then, in ns of the driver's clock
        self.faults: list[RefusedPacket] = []  # the member blames the sender, or forms the view anew
        self.notes: list[Note] = []  # for the recorder; empty unless someone records
