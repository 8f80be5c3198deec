"""One member of a case: the `ViewEngine` that ships, and the history of what its application did and saw."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from unisono.core.config import Config
from unisono.core.options import DEFAULT, CastOptions
from unisono.core.ordering import AnyOrdering, Cut, Report
from unisono.core.outbox import EngineEffects, Note, NoteKind
from unisono.core.types import Batch, Packet, Rank, Slot, View
from unisono.core.views import ViewEngine
from unisono.sim.explore.freeze import Frozen, freeze
from unisono.sim.explore.orders.case import NAMES, Case, Message
from unisono.sim.oracle import ContractViolation

Received: TypeAlias = tuple[tuple[Rank, Packet], ...]


class Act(NamedTuple):
    """What a member's history consists of: it cast a batch, or delivered one."""

    delivered: bool
    batch: Batch

    def __str__(self) -> str:
        batch = self.batch
        last = batch.first + batch.count - 1
        return f"{NAMES[batch.origin]}:{batch.first}" + (f"-{last}" if batch.count > 1 else "")


class Setup:
    """A case with an order: what all members of it share."""

    def __init__(self, case: Case, order: type[AnyOrdering]) -> None:
        self.case = case
        self.order = order
        self.orders = {"explored": order}
        self.view: View = case.view
        self.config: Config = case.config
        self.ranks = range(case.members)
        self.acknowledges = order.acknowledges and case.config.ack_delay_ns is not None
        self.casts = [
            [(f"{NAMES[rank]}{index}".encode(), self._options(message)) for index, message in enumerate(own)]
            for rank, own in enumerate(case.messages)
        ]
        """By member: what it casts, and how."""

    def _options(self, message: Message) -> CastOptions:
        if message == Message():
            return DEFAULT
        to = None if message.to is None else tuple(self.view.members[rank] for rank in message.to)
        return CastOptions(to, message.service)


class CaseMember:
    """One member of a case: its engine, and the history of what its application did and saw."""

    __slots__ = ("engine", "history", "rank", "setup")

    def __init__(self, setup: Setup, rank: Rank) -> None:
        self.setup = setup
        self.rank = rank
        self.engine = ViewEngine(setup.view.members[rank], setup.orders, setup.config, noting=True)
        self.engine.install(setup.view, order="explored")
        self.history: list[Act] = []

    @property
    def cast(self) -> int:
        """Messages cast so far."""
        return self.engine.casting.index

    @property
    def is_armed(self) -> bool:
        """Whether something was received since the last own cast, so that patience can end."""
        return self.engine.quiet_at is not None

    def take_turn(self, casts: int, received: Received, quiet: bool) -> EngineEffects:
        """One turn: casts, packets, patience. Returns what leaves."""
        engine = self.engine
        if casts:
            for payload, options in self.setup.casts[self.rank][self.cast : self.cast + casts]:
                engine.cast(payload, options)
        for sender, packet in received:
            engine.receive(sender, packet)
        effects = engine.drain((engine.quiet_at or 0) if quiet else 0)
        for fault in effects.faults:  # all are correct here, so the order is not
            raise ContractViolation(f"{NAMES[self.rank]} refuses a packet of {NAMES[fault.sender]}: {fault.reason}.")
        self._see(effects.notes)
        return effects

    def report(self) -> Report:
        """Take no more turns, and say what is known of the view."""
        return self.engine.block()

    def close(self, cut: Cut, missing: Mapping[Slot, Packet]) -> None:
        """Deliver the agreed remainder of the view."""
        self.engine.close(cut, missing)
        self.engine.depart(self.setup.view.members, True)
        self._see(self.engine.drain(0).notes)

    def _see(self, notes: list[Note]) -> None:
        for note in notes:
            if note.batch is not None and (note.kind is NoteKind.DELIVER or note.kind is NoteKind.CAST):
                self.history.append(Act(note.kind is NoteKind.DELIVER, note.batch))

    def freeze(self) -> tuple[Frozen, ...]:
        """The whole state as a value, in parts of which most recur in many states.

        What else the engine holds, as indexes taken in and delivered, or the room in the window, follows from these parts.
        """
        retained = [freeze(tuple(packets)) for packets in self.engine.kept.packets]
        return (*freeze_ordering(self.engine.ordering), *retained, tuple(self.history), self.cast, self.is_armed)


# The flush, in the steps that the explorer remembers one by one.


def merge(setup: Setup, reports: Mapping[Rank, Report]) -> Cut:
    """The cut of these reports, which must not depend on the order in which they came in.

    They are merged as they are and backwards, so that each two of them stand in both orders.
    """
    items = list(reports.items())
    cut: Cut = setup.order.merge(setup.view, setup.config, dict(items))
    backwards: Cut = setup.order.merge(setup.view, setup.config, dict(items[::-1]))
    if cut != backwards:
        raise ContractViolation(
            f"the merge depends on the order of the reports: it gives {cut}, or backwards {backwards}."
        )
    return cut


def freeze_ordering(ordering: AnyOrdering) -> tuple[Frozen, ...]:
    """An ordering as a value, without what serves its notes alone."""
    kind, *attributes = freeze(ordering)
    return (kind, *[attribute for attribute in attributes if attribute[0] not in ordering.noted])
