"""all-ack and ToTo with one thing done in the obvious way.

**Acknowledgements travel beside the data** (all-ack).
  1. A casts x, and B casts y. y reaches A, which has both, delivers x, y by their names, and acknowledges y.
  2. The acknowledgement overtakes x on its way to B. B has y and a word of everyone: it delivers y, and x when it comes.

**A component * compared** (ToTo). Counting "* <= *" as true, or reading * as infinity, comes to the same: a member that has said
nothing counts as one that prefers neither of two candidates.
  1. Five members, phi = 2.5. C casts y and E casts x. D votes for x alone and A for both, so x has three votes. B is silent at A.
  2. If B votes for x alone, x beats y by the votes of E, D and B. A takes B's * for a word against that, thinks that
     neither can beat the other any more, and delivers both by their names: y, x.
  3. B did vote for x alone. At B, x beats y and is delivered first.

**Infinity for a packet that follows no candidate** (Figure 3, step 2, as printed). The same story with a member that has said
something else.
  1. Five members, phi = 2.5. D casts y and E casts x. C casts a causal message before it has seen either.
  2. At B, x has the votes of E, A and B, and y those of D and B. B takes C's message for a vote for neither, and delivers y, x.
  3. C's first packet that follows a candidate votes for x alone. With it x beats y, and everyone else delivers x first.

**Nothing computed anew after a delivery.**
  1. A casts x1, x2. B has x1 alone and casts y. With y everyone has a packet that follows x1: B delivers x1.
  2. B keeps the tail of everyone, which stood for x1, and takes the next candidate y for settled. It delivers y.
  3. At A, x2 and y are candidates together, and are delivered by their names: x2, y.

**A view change that does not hand over explicit acknowledgements** (ToTo).
  1. Three members, phi = 1.5. B casts y and C casts x. A acknowledges x explicitly, before y arrives: x has two
     votes, and A delivers it.
  2. B crashes, and A and C change the view before the acknowledgement reaches C.
  3. The first word of A that C has is A's flush message, which follows both: C delivers y, x by their names.

For all-ack that alone breaks nothing, because its decision depends on the batches that everyone follows, not on who voted first.
But **an acknowledgement that stays missing** keeps back what follows it:
  1. A acknowledges x of D explicitly, and D, which has that, casts y. C has nothing of all this.
  2. B crashes. At the view change C is given x and y, without the acknowledgement that y follows.
  3. y never enters the graph of C; the others deliver it.
"""

from __future__ import annotations

from collections.abc import Mapping

from unisono.core.config import Config
from unisono.core.outbox import Outbox
from unisono.core.types import Batch, Packet, Rank, Slot, View
from unisono.orders.agreed import Ack, Agreed, AgreedCut, Candidate, Data, Node
from unisono.orders.all_ack import AllAck
from unisono.orders.holdback import Held
from unisono.orders.toto import Toto, _beats


class AcksBeside(AllAck):
    """Explicit acknowledgements go by unicast, without a number, and count the moment they arrive."""

    def quiet(self, out: Outbox) -> None:
        if self._owes:
            self._owes = False
            ack = Ack(0, tuple(self._holdback.taken))
            out.to_one += [(peer, ack) for peer in range(self._size) if peer != self._rank]
            self._count(self._rank, ack, out)

    def receive(self, sender: Rank, packet: Packet, out: Outbox) -> None:
        if isinstance(packet, Ack):
            self._count(sender, packet, out)
        else:
            super().receive(sender, packet, out)

    def _count(self, origin: Rank, ack: Ack, out: Outbox) -> None:
        self._count_vote(origin, Node(0, ack.acks))
        self._deliver_decided(out)


class StarCompared(Toto):
    """Members that are not in the tail take part in the comparison: * <= *."""

    def _may_lose(self, m: Candidate) -> bool:
        return any(_beats(other, m) > self._phi for other in self._candidates if other is not m)


class InfinityForStrangers(Toto):
    """A packet that follows no candidate sets its sender's components to infinity, until one that does."""

    def __init__(self, view: View, rank: Rank, config: Config) -> None:
        super().__init__(view, rank, config)
        self._infinite: dict[Slot, int] = {}  # by candidate: members outside the tail whose component is infinity

    def _count_vote(self, origin: Rank, node: Node) -> None:
        if not self._tail >> origin & 1 and not any(c.followed_by(node) for c in self._candidates):
            for c in self._candidates:
                slot = (c.origin, c.node.number)
                self._infinite[slot] = self._infinite.get(slot, 0) | 1 << origin
        super()._count_vote(origin, node)

    def _survey(self) -> None:
        super()._survey()
        self._infinite = {}

    def _may_lose(self, m: Candidate) -> bool:
        def compared(other: Candidate) -> int:
            both = [self._infinite.get((c.origin, c.node.number), 0) for c in (m, other)]
            return (self._tail | both[0] & both[1]).bit_count()

        enough = self._size - self._phi
        return any(compared(c) - _beats(c, m) < enough for c in self._candidates if c is not m)


class NothingAnew(Toto):
    """Candidates that stay keep their votes and tails, and so does the group."""

    def _survey(self) -> None:
        before = {(c.origin, c.node.number): c for c in self._candidates}
        tail = self._tail
        super()._survey()
        self._candidates = [before.get((c.origin, c.node.number), c) for c in self._candidates]
        self._tail |= tail


class _AcksNotHandedOver(Agreed):
    """At a view change an explicit acknowledgement that is missing here fills its place in the stream and says nothing."""

    def close(self, cut: AgreedCut, missing: Mapping[Slot, Packet], out: Outbox) -> None:
        self._silent = {slot for slot, packet in missing.items() if isinstance(packet, Ack)}
        super().close(cut, missing, out)

    def _enter(self, origin: Rank, number: int, acks: tuple[int, ...], batch: Batch | None, out: Outbox) -> None:
        if (origin, number) not in getattr(self, "_silent", ()):
            super()._enter(origin, number, acks, batch, out)


class TotoAcksNotHandedOver(_AcksNotHandedOver, Toto):
    pass


class AcksLost(AllAck):
    """At a view change an explicit acknowledgement that is missing here stays missing, and so does what follows it."""

    def close(self, cut: AgreedCut, missing: Mapping[Slot, Packet], out: Outbox) -> None:
        for (origin, number), packet in sorted(missing.items()):
            if isinstance(packet, Data):
                self._held[origin] = number
                for sender, held in self._holdback.add(origin, Held(number, packet.acks, 1, packet)):
                    assert isinstance(held.packet, Data)
                    self._enter(sender, held.number, held.vector, held.packet.batch, out)
        super().close(cut._replace(wanted=tuple(self._holdback.taken)), {}, out)
