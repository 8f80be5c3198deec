"""What all-ack and ToTo share: one causal stream in which every packet acknowledges, seen as a growing graph. Paper 004, section 2.

Every packet of a member, a batch or an explicit acknowledgement, carries in `acks` how many packets of each member its sender had
taken in. So the packets form a DAG, the same at all members, revealed in different orders but always causally closed. A packet
**follows** those that its `acks` cover, and itself. Two services share the stream: a *causal* batch is delivered as soon as it is
in the graph; an *agreed* (total) one is **pending** until the protocol decides. A pending batch that follows no other pending
batch is a **candidate**. When enough packets follow the candidates, the protocol picks some, and they are delivered in the
order (origin, number).

| packet | stream | meaning                                                                                             |
|--------|--------|-----------------------------------------------------------------------------------------------------|
| Data   | cast   | packet `number` of this origin with a batch; `acks[k]` packets of k came before it (own: number - 1) |
| Ack    | cast   | the same without a batch: an idle member acknowledges after `ack_delay`                              |

I1  a packet enters the graph after everything that it follows.
I2  following is transitive, because `acks` count all that was in the caster's graph, and that is closed (I1).
I3  a member's later packets follow what its earlier ones do: so the first packet of q that follows any candidate, and q's
    last packet, say all that the decisions ask of q.

By q's first packet that follows some candidate, q **votes** for the candidates that it follows. `tail` is the set of members
that voted; a candidate's `votes` are those who voted for it, its `tail` those of whom any packet follows it. After a delivery all
of this is computed anew from the graph for the new candidates; packets that follow nothing pending are forgotten.
(The paper's * is "not in tail"; k is "in votes"; infinity is "in tail but not in votes". As q's first packet is one
and the same for all candidates, comparing two vectors reduces to comparing two sets of voters.)

View change. `merge` takes the largest causally closed set that the survivors hold, explicit acknowledgements included, and drops
what follows a lost packet. `close` takes that set in, then acts as if every survivor had cast a packet that follows it all, and
declares those who left *defunct*: they count as members of `tail` that vote for nobody they had not voted for. Now everyone has
the same graph, complete in the sense that `tail` is everybody, whatever the candidates: all pending batches
are decided. A survivor that decided earlier, on less, decided the same: a decision holds in every extension of the graph
that it was made on, which is what the protocols prove, and a defunct member's missing vote is a legal extension.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from unisono.core.config import Config
from unisono.core.errors import PeerFault
from unisono.core.ordering import Ordering, Wait
from unisono.core.outbox import Outbox
from unisono.core.types import Batch, Packet, Property, Rank, Service, Slot, View
from unisono.core.wire import ALL, BATCH, RANK, SLOT, VECTOR, Layout
from unisono.orders.holdback import (
    VECTOR_REPORT_WIRE,
    Held,
    VectorHoldback,
    VectorReport,
    causally_closed,
    demand_closed,
    vector_report,
)


class Data(NamedTuple):
    number: int
    acks: tuple[int, ...]
    batch: Batch


class Ack(NamedTuple):
    number: int
    acks: tuple[int, ...]


class AgreedCut(NamedTuple):
    wanted: tuple[int, ...]
    survivors: tuple[Rank, ...]


class Node(NamedTuple):
    """A packet in the graph: `reach[k]` packets of k are followed by it, itself included."""

    number: int
    reach: tuple[int, ...]


class Candidate:
    """A pending batch that follows no other pending batch, with what the graph says of it (sets of ranks as bits)."""

    __slots__ = ("node", "origin", "tail", "votes")

    def __init__(self, origin: Rank, node: Node) -> None:
        self.origin = origin
        self.node = node
        self.votes = 0
        self.tail = 0

    def followed_by(self, node: Node) -> bool:
        return node.reach[self.origin] >= self.node.number


class Agreed(Ordering[VectorReport, AgreedCut]):
    guarantees = frozenset({Property.TOTAL, Property.FIFO, Property.CAUSAL})
    service = Service.TOTAL
    services = frozenset({Service.TOTAL, Service.CAUSAL})
    numbered = (Data, Ack)
    wire = (Layout(0x1A, Data, (SLOT, VECTOR, BATCH)), Layout(0x1B, Ack, (SLOT, VECTOR)))
    report_wire = VECTOR_REPORT_WIRE
    cut_wire = Layout(0x34, AgreedCut, (VECTOR, ALL(RANK)))
    acknowledges = True

    def __init__(self, view: View, rank: Rank, config: Config) -> None:
        size = len(view)
        self._rank = rank
        self._size = size
        self._everyone = (1 << size) - 1
        self._held = [0] * size  # by origin: packets received
        self._holdback = VectorHoldback(size)  # `taken` counts the packets in the graph
        self._nodes: list[deque[Node]] = [
            deque() for _ in range(size)
        ]  # by origin: packets that follow something pending
        self._pending: list[deque[tuple[Node, Batch]]] = [
            deque() for _ in range(size)
        ]  # by origin: agreed, undelivered
        self._candidates: list[Candidate] = []
        self._tail = 0
        self._defunct = 0  # members that left, only while the view is closed
        self._owes = False  # an agreed batch of another is in the graph and no own packet follows it
        self._breadths: dict[Slot, int] = {}  # while someone records: concurrency at entry, for the index of latency

    # Normal running.

    def submit(self, batch: Batch, out: Outbox) -> None:
        number, acks = self._next_packet()
        out.to_all.append(Data(number, acks, batch))
        self._enter(self._rank, number, acks, batch, out)

    def receive(self, sender: Rank, packet: Packet, out: Outbox) -> None:
        assert isinstance(packet, Data | Ack)
        if packet.number != self._held[sender] + 1:
            raise PeerFault("a packet is out of turn")
        self._holdback.demand(sender, packet.acks, self._rank)
        self._take(sender, packet, out)

    def _take(self, sender: Rank, packet: Data | Ack, out: Outbox) -> None:
        self._held[sender] = packet.number
        for origin, held in self._holdback.add(sender, Held(packet.number, packet.acks, 1, packet)):
            ready = held.packet
            self._enter(origin, held.number, held.vector, ready.batch if isinstance(ready, Data) else None, out)

    def quiet(self, out: Outbox) -> None:
        if self._owes:
            number, acks = self._next_packet()
            out.to_all.append(Ack(number, acks))
            self._enter(self._rank, number, acks, None, out)

    def waits(self) -> Sequence[Wait]:
        result = [
            Wait(held.packet.batch, "its causal past is not all here", self._holdback.blockers(held))
            for _, held in self._holdback.waiting()
            if isinstance(held.packet, Data)
        ]
        silent = tuple(rank for rank in range(self._size) if not self._tail >> rank & 1)
        for queue in self._pending:
            for _, batch in queue:
                result.append(Wait(batch, "too few members have acknowledged the candidates", silent))
        return result

    # View change.

    def report(self) -> VectorReport:
        return vector_report(self._held, self._holdback)

    @staticmethod
    def merge(view: View, config: Config, reports: Mapping[Rank, VectorReport]) -> AgreedCut:
        if any(row[2] != 1 for report in reports.values() for row in report.waiting):
            raise PeerFault("a report counts a packet more than once")
        return AgreedCut(causally_closed(reports), tuple(sorted(reports)))

    def close(self, cut: AgreedCut, missing: Mapping[Slot, Packet], out: Outbox) -> None:
        packets = {slot: packet for slot, packet in sorted(missing.items()) if isinstance(packet, Data | Ack)}
        demand_closed(
            self._held, self._holdback, ((*slot, 1, packet.acks) for slot, packet in packets.items()), cut.wanted
        )
        if tuple(sorted(set(cut.survivors))) != cut.survivors or self._rank not in cut.survivors:
            raise PeerFault("the cut does not count its own survivors")
        for (origin, _), packet in packets.items():
            self._take(origin, packet, out)
        assert tuple(self._holdback.taken) == cut.wanted, "the cut is causally closed"
        everything = Node(max(cut.wanted) + 1, cut.wanted)
        for survivor in cut.survivors:
            self._nodes[survivor].append(everything)
        self._defunct = self._everyone & ~sum(1 << rank for rank in cut.survivors)
        self._survey()
        self._deliver_decided(out)
        assert not any(self._pending), "a full tail decides everything"

    # The graph.

    def _next_packet(self) -> tuple[int, tuple[int, ...]]:
        acks = tuple(self._holdback.taken)
        number = acks[self._rank] + 1
        self._held[self._rank] = number
        self._holdback.advance(self._rank, 1)
        self._owes = False
        return number, acks

    def _enter(self, origin: Rank, number: int, acks: tuple[int, ...], batch: Batch | None, out: Outbox) -> None:
        """Put a packet into the graph, deliver a causal batch, and see what it decides for the agreed ones."""
        node = Node(number, (*acks[:origin], number, *acks[origin + 1 :]))
        if batch is not None:
            if batch.service is Service.CAUSAL:
                out.deliver.append(batch)
            else:
                self._add_pending(origin, node, batch)
                if out.noting:
                    self._breadths[origin, number] = self._breadth(acks)
        self._count_vote(origin, node)
        if self._candidates:
            self._deliver_decided(out)

    def _add_pending(self, origin: Rank, node: Node, batch: Batch) -> None:
        if origin != self._rank:
            self._owes = True
        reach = node.reach
        follows = any(queue and reach[rank] >= queue[0][0].number for rank, queue in enumerate(self._pending))
        self._pending[origin].append((node, batch))
        if not follows:
            self._candidates.append(Candidate(origin, node))

    def _count_vote(self, origin: Rank, node: Node) -> None:
        bit = 1 << origin
        followed = [candidate for candidate in self._candidates if candidate.followed_by(node)]
        if not followed:
            return  # such a packet votes for nobody, now and later
        self._nodes[origin].append(node)
        for candidate in followed:
            candidate.tail |= bit
        if not self._tail & bit:
            self._tail |= bit
            for candidate in followed:
                candidate.votes |= bit

    def _deliver_decided(self, out: Outbox) -> None:
        while self._candidates and (chosen := self._choose()):
            for candidate in sorted(chosen, key=lambda c: (c.origin, c.node.number)):
                node, batch = self._pending[candidate.origin].popleft()
                if out.noting:
                    self._note(candidate.origin, node, batch, out)
                out.deliver.append(batch)
            self._survey()

    def _survey(self) -> None:
        """Compute candidates, votes and tails anew from the graph."""
        heads = [(rank, queue[0][0]) for rank, queue in enumerate(self._pending) if queue]
        self._candidates = [
            Candidate(rank, node)
            for rank, node in heads
            if not any(node.reach[other] >= head.number for other, head in heads if other != rank)
        ]
        self._tail = self._defunct
        for origin, nodes in enumerate(self._nodes):
            while nodes and not any(candidate.followed_by(nodes[0]) for candidate in self._candidates):
                nodes.popleft()
            if nodes:
                bit = 1 << origin
                self._tail |= bit
                for candidate in self._candidates:
                    if candidate.followed_by(nodes[0]):
                        candidate.votes |= bit
                    if candidate.followed_by(nodes[-1]):
                        candidate.tail |= bit

    @abstractmethod
    def _choose(self) -> list[Candidate]:
        """The candidates to deliver next, as a set; empty: wait for more packets."""

    # Measures of the paper's section 6, only while someone records.

    def _breadth(self, acks: tuple[int, ...]) -> int:
        """Of how many members the graph holds a packet that the packet with these acks does not follow, its own sender included."""
        return sum(taken > known for taken, known in zip(self._holdback.taken, acks, strict=True))

    def _note(self, origin: Rank, node: Node, batch: Batch, out: Outbox) -> None:
        acks = (*node.reach[:origin], node.number - 1, *node.reach[origin + 1 :])
        omega = self._breadths.pop((origin, node.number), 1)
        out.ordered(batch, None, index_of_latency=self._breadth(acks), concurrency=omega)
