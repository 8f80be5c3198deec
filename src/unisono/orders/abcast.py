"""ABCAST, Skeen's total order by agreed stamps. Paper 000, section 2; Birman & Joseph 1987.

Idea: every receiver stamps a message from its own counter and proposes the stamp to the sender; the sender takes the
greatest as final and tells everyone; messages are delivered in the order of final stamps, a message waiting as long as
one with a smaller provisional stamp could still end up before it.

| packet  | stream  | meaning                                                                        |
|---------|---------|--------------------------------------------------------------------------------|
| Data    | cast    | batch `number` of this origin (dissemination)                                    |
| Propose | unicast | to the origin: my counters for its batches first, first+1, ... (one a turn)       |
| Final   | cast    | from the origin: (number, counter, rank) of the decided batches (one a turn)     |

I1  my counter is at least the counter of every stamp that I gave, and of every final that I know.
I2  a final stamp is the maximum over all members' proposals, so it is no less than the provisional one in any queue.
I3  the queue's head is delivered only if it is final; then nothing can end before it: a waiting message's
    final lies above its provisional stamp (I2), one not yet seen will be stamped above my counter (I1).

I1 is the correction of the paper, which leaves the counter alone when a final arrives. Without it two members with a message each
break total order: 1. A casts x (stamp 1.a), B casts y (1.b). 2. B receives x, stamps it 2.b and proposes that. 3. The proposal
overtakes nothing and yet comes first: A makes 2.b final and delivers x. 4. Now y reaches A, whose counter still stands at 1: it
proposes 2.a, the final of y is 2.a, below x. B has y at the head of its queue and delivers it first; A delivered x first.

A batch is what the paper calls a message. The sender proposes to itself, in the call. View change: `stamps.merge_stamps`.

FIFO: members stamp one origin's batches in order, so finals rise with the number. Causality holds as long as nobody crashes, and is
not promised: a final that a crashed member raised can overtake a follower that only survivors stamped.

Deviations: the max update (I1); proposals and finals of one turn travel in one packet.
"""

from __future__ import annotations

from typing import NamedTuple

from unisono.core.config import Config
from unisono.core.outbox import Outbox
from unisono.core.types import Batch, Packet, Rank, View
from unisono.core.wire import BATCH, LIST, RANK, ROW, SLOT, U64, Layout
from unisono.orders.stamps import Stamp, Stamped


class Data(NamedTuple):
    number: int
    batch: Batch


class Propose(NamedTuple):
    first: int
    counters: tuple[int, ...]


class Final(NamedTuple):
    finals: tuple[tuple[int, int, Rank], ...]


class Abcast(Stamped):
    numbered = (Data,)
    wire = (
        Layout(0x14, Data, (SLOT, BATCH)),
        Layout(0x15, Propose, (SLOT, LIST(U64))),
        Layout(0x16, Final, (LIST(ROW(SLOT, U64, RANK)),)),
    )

    def __init__(self, view: View, rank: Rank, config: Config) -> None:
        super().__init__(view, rank, config)
        self._votes: dict[int, tuple[int, Stamp]] = {}  # own batches: proposals so far, the greatest of them
        self._proposals: dict[Rank, list[int]] = {}  # this turn's counters, by origin
        self._decided: list[tuple[int, int, Rank]] = []  # this turn's finals of own batches

    def submit(self, batch: Batch, out: Outbox) -> None:
        number = self._take(self._rank, batch)
        out.to_all.append(Data(number, batch))
        self._vote(number, (self._counter, self._rank), out)

    def receive(self, sender: Rank, packet: Packet, out: Outbox) -> None:
        if isinstance(packet, Data):
            self._demand_number(sender, packet.number)
            self._take(sender, packet.batch)
            self._proposals.setdefault(sender, []).append(self._counter)
        elif isinstance(packet, Propose):
            self._demand_proposals(sender, enumerate(packet.counters, packet.first))
            self._stamped_by[sender] = (packet.first + len(packet.counters) - 1, packet.counters[-1])
            for number, counter in enumerate(packet.counters, packet.first):
                self._vote(number, (counter, sender), out)
        else:
            assert isinstance(packet, Final)
            self._demand_finals(sender, ((number, (counter, rank)) for number, counter, rank in packet.finals))
            for number, counter, rank in packet.finals:
                self._finish((sender, number), (counter, rank), out)
                self._deliver_ready(out)

    def end_turn(self, out: Outbox) -> None:
        if self._proposals:
            for origin, counters in self._proposals.items():
                out.to_one.append((origin, Propose(self._held[origin] - len(counters) + 1, tuple(counters))))
            self._proposals = {}
        if self._decided:
            out.to_all.append(Final(tuple(self._decided)))
            self._decided = []

    def _vote(self, number: int, stamp: Stamp, out: Outbox) -> None:
        """Count a proposal for an own batch; with the last one the batch is decided."""
        count, greatest = self._votes.pop(number, (0, stamp))
        greatest = max(greatest, stamp)
        if count + 1 < self._size:
            self._votes[number] = (count + 1, greatest)
            return
        self._decided.append((number, *greatest))
        self._finish((self._rank, number), greatest, out)
        self._deliver_ready(out)
