"""What the explorer asks of every state and of every end: the promises of the order, judged on histories.

An end, with or without a flush, is written down as a trace and judged by the checkers of `trace.checks`, the same that judge
a run in the simulator or on a network. Histories are few compared with the ways that lead to them, so each end is judged once.
Besides, two members of a total order must at every instant have delivered sequences of which one begins the
other. The checkers would find that at the end, too; asking at once makes the schedule as short as it can be.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest

from unisono.core.outbox import Note, NoteKind
from unisono.core.types import Property, Rank, Service, View, ViewId
from unisono.sim.explore.orders.case import NAMES
from unisono.sim.explore.orders.member import Act, Setup
from unisono.sim.explore.search import first_violation
from unisono.trace import promises, schema
from unisono.trace.recorder import Recorder
from unisono.trace.sinks import MemorySink

OWED = {
    Property.FIFO: promises.FIFO,
    Property.CAUSAL: promises.CAUSAL,
    Property.TOTAL: promises.TOTAL,
    Property.UNIFORM: promises.UNIFORM,
}


class Judge:
    """Judges each final state of a case: its histories, with or without a view change."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        # Taken from the class, so that an order that is in no registry is judged too. Without P8c: histories have no clocks.
        self.owed = promises.ALWAYS.union(*(OWED[kind] for kind in setup.order.guarantees))
        # Without explicit acknowledgements an order that needs them may end with messages that cannot be delivered yet.
        self._ending = schema.CUT if setup.order.acknowledges and not setup.acknowledges else None

    def end(self, histories: Sequence[Sequence[Act]]) -> str | None:
        """The sentence on a run in which nothing more can happen, or None if it is flawless."""
        return self._verdict(histories, ())

    def flush(self, histories: Sequence[Sequence[Act]], crashed: Sequence[Rank]) -> str | None:
        """The same of a run that was flushed: survivors' histories to the end of the view, the others' as far as it matters."""
        old = self._setup.view
        survivors = tuple(member for rank, member in enumerate(old.members) if rank not in crashed)
        return self._verdict(histories, crashed, View(ViewId(2, survivors[0]), survivors))

    def _verdict(
        self, histories: Sequence[Sequence[Act]], crashed: Sequence[Rank], new: View | None = None
    ) -> str | None:
        sink = MemorySink()
        old = self._setup.view
        for rank, history in enumerate(histories):
            recorder = Recorder("explore", "explore", "explored", old.members[rank], "simulated", sink)
            notes = [Note(NoteKind.VIEW, view=old)]
            notes += [Note(NoteKind.DELIVER if act.delivered else NoteKind.CAST, act.batch) for act in history]
            if new is not None and rank not in crashed:
                notes.insert(1 + _blocked_at(rank, history), Note(NoteKind.BLOCK))
                went: Mapping[str, object] = {"previous_view": str(old.id), "transitional": new.members}
                notes.append(Note(NoteKind.VIEW, view=new, attributes=went))
            recorder.turn(0, notes)
            if rank in crashed:
                recorder.crash(0)
            else:
                recorder.end(0, self._ending if new is None else None)
        return first_violation(sink, self.owed)


def _blocked_at(rank: Rank, history: Sequence[Act]) -> int:
    """How many acts of a survivor precede its block, at most: what is void for it can only come from the cut."""
    voids = (
        at
        for at, act in enumerate(history)
        if act.delivered and act.batch.payloads is None and act.batch.to is not None and rank in act.batch.to
    )
    return next(voids, len(history))


def sequence_of(history: Sequence[Act]) -> tuple[Act, ...]:
    """What a history says of the total order: the deliveries of that service."""
    return tuple(act for act in history if act.delivered and act.batch.service is Service.TOTAL)


def clash(one: Rank, ones: Sequence[Act], other: Rank, others: Sequence[Act]) -> str | None:
    """Why neither of two members' sequences begins the other, as a sentence; None if one does."""
    for place, (mine, theirs) in enumerate(zip_longest(ones, others), 1):
        if mine is None or theirs is None:
            return None
        if (mine.batch.origin, mine.batch.first) != (theirs.batch.origin, theirs.batch.first):
            return (
                f"the total order splits: delivery {place} is {mine} at {NAMES[one]}, and {theirs} at {NAMES[other]}."
            )
    return None
