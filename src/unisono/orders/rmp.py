"""RMP, the reliable multicast on XTP: a lock on the group, and two-phase commit. Paper 002, sections 1 and 3.

Idea: only one member transmits at a time, so the order of messages is the order of holds of the lock (`rmp_lock`), and the state of
the group is how far the current transmitter has come. Receivers withhold a message until all have confirmed that they have it;
then the transmitter commits, and everyone delivers. Three services share the cast stream: *reliable* (`total`, all this),
*semi-reliable* (`fifo`: no lock, delivered on receipt), *datagram* (fire and forget).

| packet   | stream  | meaning                                                                                          |
|----------|---------|--------------------------------------------------------------------------------------------------|
| Request  | cast    | I want the lock; `stamp` says whose turn it is                                                      |
| Accept   | unicast | your request `stamp` is accepted: you may have the lock, as far as I am concerned                    |
| Data     | cast    | reliable batch `number` of this origin, at `position` of the order; all below `committed` is committed |
| Vote     | unicast | to the transmitter: yes, I hold everything below `position` (one a turn)                             |
| Commit   | cast    | from the transmitter: everything below `position` is committed (one a turn; a Data carries it too)  |
| Semi     | cast    | semi-reliable batch `number` of this origin                                                         |
| Datagram | cast    | a batch without a number, not kept, not handed on                                                    |

I1  every member holds a prefix of the positions and receives them in order, also across transmitters: a holder releases the
    lock only when all have voted for all of its batches, and by then all hold them.
I2  committed <= position of every member's vote: no member delivers what another may lack.
I3  a member that takes the lock holds everything that was transmitted, and knows that it is committed (L3 and I1).
I4  a transmitter sends at most `hold_batches_max` batches in a hold once another waits for the lock.
I5  a member that plans a view change which no failure forces takes the lock for it, ends the hold with the current batch, and
    keeps the lock. So a member joins or leaves between two messages, after one that all hold (`approach`).

Votes and commits are counters that only grow, so one packet stands for any number of batches. The commit of the last hold may
reach C after the first Data of the next one, from another member; that Data says the same, and the late commit changes nothing.

The order is total and FIFO, and uniform: by I2 what a member delivered is held by all, so recovery commits it (`rmp_recovery`),
also if that member is gone. A cast waits for the lock, and is transmitted after all that its caster had delivered,
so reliable messages are causal among themselves; semi-reliable ones in the same stream are not, so it is not promised.

A member hands out what it has voted for, and the outcomes that it knows, as a `VoteWatermark`; its journal, if it has one, writes
that down before the vote leaves. Nothing here reads it again: it is the evidence that is left when all members have failed.

Batches that wait for the lock are on no stream, so no window limits them. While C sleeps and does not accept, A's streams are
all but empty and would take more; and with the lock all batches leave in one turn, perhaps more than the streams may keep. So
their bytes are counted (`unsent_bytes`), and the member takes casts only while they are fewer than a window.

Deviations: requests are stamped, and stamps decide (the paper is silent); the lock stays with its holder until another asks, and
a hold is bounded then; positions are numbered, so that commits are cumulative across transmitters; every receiver
that holds a message votes yes, so "abort" is a decision of recovery alone. Joins and leaves go through a transmitter as in the
paper (I5), but that is the membership's coordinator, not the member that joins or leaves; and if it does not get the lock in time,
it proposes all the same: recovery settles what is in flight, as after a failure. A datagram that is older than one already shown
of its origin is dropped, so none comes twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from unisono.core.config import Config
from unisono.core.errors import Contradiction, PeerFault
from unisono.core.ordering import Ordering, Wait
from unisono.core.outbox import Outbox, VoteWatermark
from unisono.core.types import Batch, Packet, Property, Rank, Service, Slot, View
from unisono.core.weight import weigh
from unisono.core.wire import BATCH, SLOT, U64, Layout
from unisono.orders.holdback import AHEAD_MAX, reach_max
from unisono.orders.rmp_lock import GroupLock
from unisono.orders.rmp_recovery import CUT_WIRE, REPORT_WIRE, RmpCut, RmpReport, recover


class Request(NamedTuple):
    stamp: int


class Accept(NamedTuple):
    stamp: int


class Data(NamedTuple):
    number: int
    position: int
    committed: int
    batch: Batch


class Vote(NamedTuple):
    position: int


class Commit(NamedTuple):
    position: int


class Semi(NamedTuple):
    number: int
    batch: Batch


class Datagram(NamedTuple):
    batch: Batch


class Withheld(NamedTuple):
    """A batch that has its place and is not committed here."""

    slot: Slot
    batch: Batch


class Rmp(Ordering[RmpReport, RmpCut]):
    guarantees = frozenset({Property.TOTAL, Property.FIFO, Property.UNIFORM})
    service = Service.TOTAL
    services = frozenset({Service.TOTAL, Service.FIFO, Service.DATAGRAM})
    numbered = (Data, Semi)
    wire = (
        Layout(0x60, Request, (U64,)),
        Layout(0x61, Accept, (U64,)),
        Layout(0x62, Data, (SLOT, U64, U64, BATCH)),
        Layout(0x63, Vote, (U64,)),
        Layout(0x64, Commit, (U64,)),
        Layout(0x65, Semi, (SLOT, BATCH)),
        Layout(0x66, Datagram, (BATCH,)),
    )
    report_wire = REPORT_WIRE
    cut_wire = CUT_WIRE
    collect = "ring"

    def __init__(self, view: View, rank: Rank, config: Config) -> None:
        self._rank = rank
        self._size = len(view)
        self._hold_batches_max = config.hold_batches_max
        self._lock = GroupLock(rank, len(view))
        self._held = [0] * len(view)  # by origin: slots received, or cast
        self._queue: deque[Batch] = deque()  # own reliable batches that wait for the lock
        self._withheld: deque[Withheld] = deque()  # positions from `committed` to `placed`
        self._placed = 0  # positions that are here
        self._committed = 0  # of these, committed and delivered
        self._votes = [0] * len(view)  # by member: it holds the positions below, as far as it told me
        self._transmitter = rank  # whose batch has the last position
        self._voted = 0  # positions below are voted for
        self._announced = 0  # as transmitter: what the others were told is committed
        self._sent = 0  # batches of this hold
        self._watermark = VoteWatermark(view.id, 0, 0)  # what was handed out last
        self._is_wanted = False  # the lock, for a view change: nothing more is transmitted
        self._shown = [0] * len(view)  # by origin: datagrams below this index are old

    def submit(self, batch: Batch, out: Outbox) -> None:
        if batch.service is Service.DATAGRAM:
            out.to_all.append(Datagram(batch))
            out.deliver.append(batch)
        elif batch.service is Service.FIFO:
            out.to_all.append(Semi(self._next_number(), batch))
            out.deliver.append(batch)
        else:
            self._queue.append(batch)
            self.unsent_bytes += weigh(batch)
            self._transmit(out)

    def receive(self, sender: Rank, packet: Packet, out: Outbox) -> None:
        match packet:
            case Data():
                self._take(sender, packet, out)
            case Vote():
                if not self._votes[sender] < packet.position <= self._placed:
                    raise PeerFault("a vote is for what was never transmitted, or comes twice")
                self._count_vote(sender, packet.position, out)
            case Commit():
                self._demand_commit(sender, packet.position)
                self._commit(packet.position, out)
            case Request():
                if self._lock.meet(sender, packet.stamp):
                    out.to_one.append((sender, Accept(packet.stamp)))
            case Accept():
                if self._lock.accept(sender, packet.stamp):
                    self._begin_hold(out)
            case Semi():
                if packet.batch.service is not Service.FIFO:
                    raise PeerFault("a packet carries a batch of another service")
                self._demand_number(sender, packet.number)
                self._held[sender] = packet.number
                out.deliver.append(packet.batch)
            case _:
                assert isinstance(packet, Datagram)
                if packet.batch.service is not Service.DATAGRAM:
                    raise PeerFault("a packet carries a batch of another service")
                if packet.batch.first >= self._shown[sender]:
                    self._shown[sender] = packet.batch.first + packet.batch.count
                    out.deliver.append(packet.batch)

    def end_turn(self, out: Outbox) -> None:
        if self._queue and self._lock.held:
            self._transmit(out)  # what waited for a view change that does not come
        if self._voted < self._placed:
            self._vote(out)
        if self._announced < self._committed and self._transmitter == self._rank:
            out.to_all.append(Commit(self._committed))
            self._announced = self._committed
        if self._lock.waiting and self._may_release():
            for rank, stamp in self._lock.release():
                out.to_one.append((rank, Accept(stamp)))
        if (self._queue or self._is_wanted) and not self._lock.held and self._lock.asked is None:
            out.to_all.append(Request(self._lock.request()))
        if self._voted > self._watermark.voted or self._committed > self._watermark.decided:
            self._hand_out_votes(self._committed, out)

    def approach(self, wanted: bool) -> bool:
        """I5. True: I have the lock, and all hold all that was transmitted, so recovery finds nothing to complete or abort."""
        self._is_wanted = wanted
        return self._lock.held and self._committed == self._placed

    def waits(self) -> Sequence[Wait]:
        result = []
        for position, (slot, batch) in enumerate(self._withheld, self._committed):
            if slot[0] == self._rank:
                silent = tuple(rank for rank, vote in enumerate(self._votes) if vote <= position)
                result.append(Wait(batch, "not all have voted for it", silent))
            else:
                result.append(Wait(batch, "its transmitter has not committed it here", (slot[0],)))
        whom: tuple[Rank, ...] = ()
        if self._lock.held and self._is_wanted:
            reason = "a view change is about to begin"
        elif self._lock.held:
            reason, whom = "others wait for the lock, so this hold ends", tuple(self._lock.waiting)
        else:
            reason, whom = "it needs the lock on the group", self._lock.lacking()
        result += [Wait(batch, reason, whom) for batch in self._queue]
        return result

    # View change.

    def report(self) -> RmpReport:
        held = list(self._held)
        held[self._rank] += len(self._queue)
        return RmpReport(tuple(held), self._committed, tuple(one.slot for one in self._withheld), len(self._queue))

    def unsent(self) -> Sequence[Packet]:
        """Own batches that wait for the lock, numbered after those that were cast. They have no position before the cut."""
        first = self._held[self._rank] + 1
        return [Data(number, self._placed, self._committed, batch) for number, batch in enumerate(self._queue, first)]

    @staticmethod
    def merge(view: View, config: Config, reports: Mapping[Rank, RmpReport]) -> RmpCut:
        return recover(reports, reach_max(config))

    def close(self, cut: RmpCut, missing: Mapping[Slot, Packet], out: Outbox) -> None:
        batches = {one.slot: one.batch for one in self._withheld}
        for packet in self.unsent():
            assert isinstance(packet, Data)
            batches[self._rank, packet.number] = packet.batch
        received = [packet for _, packet in sorted(missing.items())]
        batches |= {slot: packet.batch for slot, packet in missing.items() if isinstance(packet, Data)}
        self._demand_cut(cut, batches)
        out.deliver += [packet.batch for packet in received if isinstance(packet, Semi)]
        for slot in cut.aborted:
            if out.noting and slot in batches:
                out.decided(batches[slot], "abort", recovery=True)
        for slot in cut.order[self._committed - cut.first :]:
            self._deliver(batches[slot], out, recovery=True)
        if self._voted:
            self._hand_out_votes(max(self._placed, self._committed), out)  # the cut decides all that there is

    # What no correct member sends.

    def _demand_number(self, sender: Rank, number: int) -> None:
        if number != self._held[sender] + 1:
            raise PeerFault("a batch is out of turn")

    def _demand_data(self, sender: Rank, packet: Data) -> None:
        self._demand_number(sender, packet.number)
        if packet.batch.service in (Service.FIFO, Service.DATAGRAM):
            raise PeerFault("a packet carries a batch of another service")
        if packet.committed > packet.position:
            raise PeerFault("a batch says that it is committed itself")
        if self._lock.held:
            raise PeerFault("one transmits at a time")
        if packet.position > self._placed + AHEAD_MAX:
            raise PeerFault("a position is further ahead than can be")
        if packet.position != self._placed:
            raise Contradiction("a position is out of turn: its transmitter or the previous one withheld positions")
        self._demand_votes(sender, packet.committed)

    def _demand_commit(self, sender: Rank, position: int) -> None:
        if position > self._placed:
            raise PeerFault("a position is committed that does not exist")
        if position > self._committed and self._withheld[position - 1 - self._committed].slot[0] != sender:
            raise PeerFault("a member commits what another one has transmitted")
        self._demand_votes(sender, position)

    def _demand_votes(self, sender: Rank, position: int) -> None:
        """Nothing is committed without this member's vote (I2). If others transmitted it, one of them may have said that it was."""
        if position > self._voted:
            start, stop = max(self._voted - self._committed, 0), position - self._committed
            is_own = all(self._withheld[at].slot[0] == sender for at in range(start, stop))
            raise (PeerFault if is_own else Contradiction)(
                "a position is committed for which this member has not voted"
            )

    def _demand_cut(self, cut: RmpCut, batches: Mapping[Slot, Batch]) -> None:
        start, aborted = self._committed - cut.first, set(cut.aborted)
        rest = cut.order[max(start, 0) :]
        kept = tuple(one.slot for one in self._withheld if one.slot not in aborted)
        if not 0 <= start <= len(cut.order) or rest[: len(kept)] != kept:
            raise PeerFault("the cut contradicts the positions that are known here")
        if len(set(rest)) < len(rest) or aborted.intersection(rest) or batches.keys() - aborted != set(rest):
            raise PeerFault("the cut does not decide once what becomes of each batch")

    # Transmitting.

    def _transmit(self, out: Outbox) -> None:
        while self._queue and self._lock.held and not self._is_wanted and not self._is_spent():
            batch = self._queue.popleft()
            self.unsent_bytes -= weigh(batch)
            number = self._next_number()
            out.to_all.append(Data(number, self._placed, self._committed, batch))
            self._announced = self._committed
            self._withheld.append(Withheld((self._rank, number), batch))
            self._transmitter = self._rank
            self._placed += 1
            self._voted = self._placed  # to transmit it is to vote for it
            self._sent += 1
            self._count_vote(self._rank, self._placed, out)

    def _begin_hold(self, out: Outbox) -> None:
        self._sent = 0
        self._commit(self._placed, out)  # I3
        self._transmit(out)

    def _is_spent(self) -> bool:
        """Whether this hold is over although there is more to transmit (I4)."""
        return bool(self._lock.waiting) and self._sent >= self._hold_batches_max

    def _may_release(self) -> bool:
        everything = self._committed == self._placed
        is_done = not self._is_wanted and (not self._queue or self._is_spent())
        return self._lock.held and everything and is_done

    def _count_vote(self, voter: Rank, position: int, out: Outbox) -> None:
        self._votes[voter] = position
        self._commit(min(self._votes), out)

    # Receiving.

    def _take(self, sender: Rank, packet: Data, out: Outbox) -> None:
        self._demand_data(sender, packet)
        self._held[sender] = packet.number
        self._withheld.append(Withheld((sender, packet.number), packet.batch))
        self._transmitter = sender
        self._placed += 1
        self._commit(packet.committed, out)

    def _vote(self, out: Outbox) -> None:
        if out.noting:
            for one in list(self._withheld)[self._voted - self._placed :]:
                out.voted(one.batch, "yes")
        self._voted = self._placed
        out.to_one.append((self._transmitter, Vote(self._placed)))

    def _commit(self, position: int, out: Outbox) -> None:
        assert position <= self._placed, "I2"
        while self._committed < position:
            self._deliver(self._withheld.popleft().batch, out)

    def _deliver(self, batch: Batch, out: Outbox, recovery: bool = False) -> None:
        if out.noting:
            out.decided(batch, "commit", recovery)
            out.ordered(batch, self._committed)
        self._committed += 1
        out.deliver.append(batch)

    def _hand_out_votes(self, decided: int, out: Outbox) -> None:
        self._watermark = out.vote_watermark = self._watermark._replace(voted=self._voted, decided=decided)

    # Slots: a member's numbered casts, in the order in which they leave.

    def _next_number(self) -> int:
        self._held[self._rank] += 1
        return self._held[self._rank]
