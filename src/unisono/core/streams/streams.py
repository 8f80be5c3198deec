"""Reliable streams below the orderings: all streams of ONE member in ONE view.

Each member has one cast stream, to all others, and one unicast stream for each peer. What goes in as packets comes out at the
others exactly once and in order per stream. `seq` counts the *bodies* of a stream from 0: datagrams' worth of packets.

How loss heals, fastest first:

1. A receiver sees a gap, because of a later body or because the head of any datagram says how far its sender is. It asks for
   all gaps at once (NAK), first the origin, later members that say that they hold them. Where bodies come late rather than not
   at all, it learns to wait a little before it asks (`Inflow.patience`).
2. The tail of a stream is lost, and nothing follows: the sender's timer for that peer sends the first unacknowledged body
   again. Its head says how far the stream goes, so one resend makes the receiver ask for the rest.
3. An acknowledgement to a *third* member is lost. No member resends to it. But it sees that a packet does not get stable, and
   polls the members whose acknowledgements it lacks. Without loss no poll is sent.

The parts, each in a file of its own; a part knows only parts above it:

| part            | what it owns                                                                                  |
|-----------------|-----------------------------------------------------------------------------------------------|
| `Outflow`       | one outgoing stream: packets become bodies, kept until every addressee has acknowledged them  |
| `Inflow` `Join` | one incoming stream: order, gaps, reassembly; the joint of header and payload                 |
| `Progress`      | the acknowledgement matrix: who has what, what all received                                   |
| `Transmitter`   | the envelope of each transmission, its counter and its time                                   |
| `Timing`        | round trips, timeouts, tries in vain                                                          |
| `StreamParts`   | all of these, for the parts below                                                             |
| `Acknowledging` | what is owed to be told, and by when                                                          |
| `Outbound`      | own streams: queues, `Window`, retransmission timers                                          |
| `Answering`     | bodies that peers asked for                                                                   |
| `Gaps`          | what is missing here, and when to ask for it                                                  |
| `Inbound`       | bodies that come in, and the packets that they show                                           |
| `StabilityWatch`| what should be stable, and when to poll                                                       |
| `Intake`        | a datagram: checked completely, then handed to the parts                                      |

Invariants:

I1  Nothing is sent for ever: every timer stops when what it waits for has come (`deadline` is None then).
I2  A datagram that is refused changes nothing. If only its body finds no room, its envelope still counts.
I3  Acknowledgements, requests and polls are never held up by window or rate.
I4  A number acknowledged never exceeds a number sent.

Deviations from paper 001: acknowledgements are cumulative and go to all; they name the datagram that caused them, so that a resent
body may be measured too, and Karn's rule is kept because no sample is ambiguous; the number of tries is only reported
(`silent_tries`), and membership decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from unisono.core.errors import Misuse
from unisono.core.streams.acknowledging import Acknowledging
from unisono.core.streams.answering import Answering
from unisono.core.streams.counters import StreamCounters
from unisono.core.streams.gaps import Gaps
from unisono.core.streams.inbound import Inbound
from unisono.core.streams.inflow import Inflow, Memory
from unisono.core.streams.intake import Intake
from unisono.core.streams.outbound import Outbound
from unisono.core.streams.outflow import Outflow
from unisono.core.streams.progress import Progress
from unisono.core.streams.settings import NEVER, StreamSettings
from unisono.core.streams.shared import StreamParts
from unisono.core.streams.stability import StabilityWatch
from unisono.core.streams.timing import Timing
from unisono.core.streams.transmitter import Datagrams, Transmitter
from unisono.core.types import Rank, View
from unisono.core.wire import Octets, ReplayWindow, view_tag
from unisono.core.wire.envelope import BODY, CAST, HEAD, ROW, SEND

if TYPE_CHECKING:
    from random import Random


class Streams:
    """All streams of one member in one view. A turn is any number of inputs, `arrived`, and one `drain`."""

    def __init__(
        self,
        view: View,
        rank: Rank,
        settings: StreamSettings,
        random: Random,
        now: int,
        first_counter: int = 1,
        replay: Sequence[ReplayWindow] | None = None,
        prefix: bytes = b"",
    ) -> None:
        members = len(view)
        if not 0 <= rank < members:
            raise Misuse(f"rank {rank} is not in a view of {members} members.")
        if first_counter < 1:
            raise Misuse(f"first_counter = {first_counter} is out of range: counters begin at 1.")
        if replay is not None and len(replay) != members:
            raise Misuse(f"there are {len(replay)} replay windows for {members} members: give one for each member.")
        settings = settings.shared_by(members)
        first, tag = settings.numbering_first, view_tag(view)
        peers = tuple(peer for peer in range(members) if peer != rank)
        space = settings.datagram_bytes - settings.seal_bytes - HEAD.size  # of a datagram, after its head
        capacity = space - BODY.size - min(ROW.size * (members - 1), settings.datagram_bytes // 8)  # of a body
        count_max = settings.packets_per_datagram_max
        cast = Outflow(CAST, rank, first, capacity, count_max)
        sends = [Outflow(SEND, rank, first, capacity, count_max) for _ in range(members)]
        memory = Memory()
        casts = [Inflow(origin, CAST, settings, memory) for origin in range(members)]
        receives = [Inflow(origin, SEND, settings, memory) for origin in range(members)]
        if replay is None:
            replay = [ReplayWindow() for _ in range(members)]

        counters = StreamCounters()
        progress = Progress(rank, members, first)
        transmitter = Transmitter(tag, rank, first_counter, prefix, cast, sends, counters)
        timing = Timing(settings, random, transmitter, cast, sends)
        shared = StreamParts(
            settings, rank, peers, space, cast, sends, casts, receives, progress, transmitter, timing, counters
        )
        acks = Acknowledging(shared)
        outbound = Outbound(shared, acks, now)
        answering = Answering(shared, acks, outbound)
        gaps = Gaps(shared, acks)
        inbound = Inbound(shared, acks, gaps)
        intake = Intake(shared, tag, replay, acks, outbound, answering, gaps, inbound)
        self._rank = rank
        self._peers = peers
        self.memory = memory
        """What all incoming streams hold, in bytes."""
        self._progress = progress
        self._transmitter = transmitter
        self._timing = timing
        self._acks = acks
        self._outbound = outbound
        self._answering = answering
        self._gaps = gaps
        self._inbound = inbound
        self._watch = StabilityWatch(shared, acks)
        self.counters = counters
        self.deadline: int | None = None
        """Call `drain` by then; None: nothing is owed. Valid after each drain."""
        self.counter = first_counter
        """Of the next transmission, valid after each drain. The streams of the next view go on from here."""

        # What only hands on is the part's own: no call in between.
        self.cast = outbound.cast
        self.cast_parts = outbound.cast_parts
        self.send = outbound.send
        self.urge = outbound.urge
        self.writable = outbound.writable
        self.slowest = outbound.slowest
        self.announce = acks.announce
        self.hurry = acks.hurry
        self.set_free_room = transmitter.set_room
        self.receive = intake.take
        self.arrived = inbound.arrived
        self.arrivals = inbound.arrivals
        self.waiting_for_halves = inbound.waiting_for_halves
        self.relayed = inbound.relayed
        self.broken = inbound.broken
        self.gaps = gaps.all
        self.behind = progress.behind
        self.received_by_all = progress.received_by_all
        self.taken_by_all = progress.taken_by_all
        self.take_all = progress.take_all
        self.untaken = progress.untaken

    # The end of a turn.

    def drain(self, now: int) -> Datagrams:
        """Everything that must leave now, control first. None as an addressee means all others."""
        out = self.act(now)
        self.finish_turn(now)
        return out

    def act(self, now: int) -> Datagrams:
        """The urgent half of `drain`. `finish_turn` must follow before anything else comes in."""
        out: Datagrams = []
        own, progress, outbound = self._rank, self._progress, self._outbound
        new = outbound.packets_cast - progress.own_shown[own]
        if new:
            self.counters.packets_sent += new
            progress.cast(outbound.packets_cast)
        if self._gaps.inflows:
            self._gaps.ask(now, out)
        if self._acks.polled:
            self._acks.answer_polls(now, out)
        if min(outbound.due) <= now:
            outbound.resend(now, out)
        if self._answering.requests:
            self._answering.answer(now, out)
        if self._watch.at <= now:
            self._watch.poll(now, out)
        outbound.transmit(now, out)
        if outbound.is_urged:
            outbound.ask_for_acknowledgements(now, out)
        self._acks.acknowledge(now, out)
        self.counter = self._transmitter.counter
        return out

    def finish_turn(self, now: int) -> None:
        """The other half: look after what not all have received, and see when something is due."""
        outbound, acks = self._outbound, self._acks
        if outbound.has_cast:
            outbound.arm_timers(now)
        self._watch.watch(now)
        due = min(acks.at, self._watch.at, outbound.window.paced_until, *outbound.due, *acks.alone.values())
        if self._gaps.inflows:
            due = min(due, self._gaps.at())
        self.deadline = None if due == NEVER else due

    # Questions.

    @property
    def packets_cast(self) -> int:
        """So far."""
        return self._outbound.packets_cast

    @property
    def is_paced(self) -> bool:
        """Whether the rate limit held something back in the last turn."""
        return self._outbound.window.paced_until != NEVER

    @property
    def kept_bytes(self) -> int:
        """Of own packets, waiting or in flight."""
        return self._outbound.kept_bytes

    @property
    def window_bytes(self) -> int:
        """How many bytes of own bodies may be in flight now."""
        return self._outbound.window.size

    @property
    def rate_bytes_per_s(self) -> int | None:
        """The rate limit of this view; None: no limit."""
        return self._outbound.window.rate

    @property
    def bodies_cast(self) -> int:
        """How many bodies of the own cast stream have left."""
        return self._outbound.to_all.sent

    def bodies_of(self, origin: Rank) -> int:
        """How many bodies of an origin's cast stream are here without a gap."""
        return self._inbound.casts[origin].next

    def kept_of(self, origin: Rank) -> list[Octets]:
        """Bodies of an origin's cast stream that are kept for peers that may lack them."""
        return self._inbound.casts[origin].kept

    def timeout(self, peer: Rank) -> int:
        """How long to wait for a peer's acknowledgement, in ns, before anything is sent again."""
        return self._timing.timeout(peer, 0)

    def held(self) -> tuple[int, ...]:
        """By origin: how many packets of its cast stream have arrived without a gap; of one's own, how many were cast."""
        return self._progress.held(self._outbound.packets_cast)

    def acknowledged_by(self, peer: Rank) -> int:
        """How many bodies of my cast stream a peer has acknowledged."""
        return self._progress.acked[self._rank][peer]

    def window_use(self) -> dict[Rank, int]:
        """By peer: how many packets of my cast stream it has not yet acknowledged."""
        row = self._progress.shown[self._rank]
        return {peer: self._outbound.packets_cast - row[peer] for peer in self._peers}

    def silent_tries(self, rank: Rank) -> int:
        """How often something was sent again to a member, or it was polled, since anything authentic came from it."""
        return self._timing.tries[rank]
