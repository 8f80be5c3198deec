"""What all streams of one member know, and how a datagram is put together from it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from unisono.core.errors import Misuse
from unisono.core.streams.inbound import NEVER, Inflow, Join, Memory
from unisono.core.streams.outbound import Outflow
from unisono.core.streams.pacing import Answers, Counters, Window
from unisono.core.streams.rtt import Rtt
from unisono.core.streams.settings import StreamSettings
from unisono.core.types import Rank, View
from unisono.core.wire.envelope import (
    BODY,
    CAST,
    DELAY_MAX,
    DELAY_UNIT_NS,
    HEAD,
    NO_LIMIT,
    ROW,
    SEND,
    TO_ALL,
    VERSION,
    Octets,
    ReplayWindow,
    view_tag,
)

if TYPE_CHECKING:
    from random import Random

LOW = 2**32 - 1
SENT_TIMES = 16_384
"""Of so many last transmissions the time is known, for samples of the round trip."""
DOUBLINGS_MAX = 20

Datagrams = list[tuple[Rank | None, bytes]]


class StreamState:
    """The state of `Streams`. Tables are by origin, then by peer; who needs no packets of an origin counts as having all."""

    __slots__ = (
        "_ack_at",
        "_ack_ones",
        "_acked",
        "_announce",
        "_answers",
        "_busy",
        "_cast",
        "_casts",
        "_dirty",
        "_doublings",
        "_due",
        "_echo",
        "_echo_at",
        "_echoed",
        "_gapped",
        "_has_cast",
        "_is_urged",
        "_prompted",
        "_has_taken",
        "_joins",
        "_kept_max",
        "_members",
        "_memory",
        "_newest",
        "_own_shown",
        "_own_taken",
        "_paced_until",
        "_are_sends_next",
        "_packet_max",
        "_peers",
        "_poll_at",
        "_poll_doublings",
        "_piece_max",
        "_polled",
        "_prefix",
        "_random",
        "_rank",
        "_receives",
        "_replay",
        "_requests",
        "_room",
        "_room_told",
        "_room_until",
        "_rows_max",
        "_rtt",
        "_sends",
        "_sends_bytes",
        "_sent_at",
        "_settings",
        "_shown",
        "_space",
        "_taken",
        "_tries",
        "_unacked",
        "_unacked_bytes",
        "_untaken",
        "_view",
        "_watched",
        "_window",
        "arrivals",
        "broken",
        "counter",
        "counters",
        "deadline",
        "packets_cast",
        "relayed",
        "stable",
        "taken_by_all",
    )

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
        if first_counter < 1 or (replay is not None and len(replay) != members):
            raise Misuse("counters begin at 1, and replay windows are one for each member.")
        settings = settings.shared_by(members)
        self._settings = settings
        self._random = random
        self._packet_max = settings.packet_bytes_max
        self._kept_max = settings.kept_bytes_max
        self._piece_max = settings.packet_bytes_max + 2 + 2 * members  # with the addressees of a marked packet
        self._rank = rank
        self._members = members
        self._view = view_tag(view)
        self._prefix = prefix  # every datagram begins with it
        self._peers = tuple(peer for peer in range(members) if peer != rank)
        first = settings.numbering_first
        self.counters = Counters()
        self.deadline: int | None = None
        """Call `drain` by then; None: nothing is owed. Valid after each drain."""

        # Sending.
        space = settings.datagram_bytes - settings.seal_bytes - HEAD.size
        self._space = space  # of a datagram, after its head
        self._rows_max = space // ROW.size
        capacity = space - BODY.size - min(ROW.size * (members - 1), settings.datagram_bytes // 8)
        self._cast = Outflow(CAST, rank, first, capacity, settings.packets_per_datagram_max)
        self._sends = [Outflow(SEND, rank, first, capacity, settings.packets_per_datagram_max) for _ in range(members)]
        self._sends_bytes = 0  # kept in all of these
        self._busy: dict[Rank, None] = {}  # peers whose unicast stream has something to send
        self.packets_cast = first
        """So far."""
        self._window = Window(settings, now)
        self.counter = first_counter  # of the next transmission; the streams of the next view go on from here
        self._sent_at = [0] * SENT_TIMES
        self._paced_until = NEVER  # when the rate limit lets the next body pass
        self._are_sends_next = False  # … and whether unicast bodies are to be the first then
        self._has_cast = False  # in this turn

        # Receiving.
        self._memory = Memory()
        self._casts = [Inflow(origin, CAST, settings, self._memory) for origin in range(members)]
        self._receives = [Inflow(origin, SEND, settings, self._memory) for origin in range(members)]
        self._joins = [Join(rank, members, settings.ahead_bytes_max, first) for _ in range(members)]
        self._gapped: dict[Inflow, None] = {}  # streams that may have a gap
        self.arrivals: list[tuple[Rank, Octets]] = []
        """What `arrived` returns next."""
        self.relayed: set[Rank] = set()
        """Origins of whose cast stream another member has handed on a part. What came in it need not be theirs."""
        self.broken: set[Rank] = set()
        """Origins whose bodies were taken in and hold something that is no packet, so that what follows is incomplete."""
        self._replay = list(replay) if replay is not None else [ReplayWindow() for _ in range(members)]

        # How far everyone is.
        self._acked = [[first] * members for _ in range(members)]  # bodies of the origin's cast stream
        self._shown = [[first] * members for _ in range(members)]  # packets of it
        self._taken = [[first] * members for _ in range(members)]  # packets of it that the ordering has taken in
        for table in (self._acked, self._shown, self._taken):
            for origin in range(members):
                table[origin][origin] = NEVER
        self._own_shown = [first] * members  # by origin: my column of `_shown`
        self._own_taken = [first] * members
        self._untaken: dict[
            Rank, None
        ] = {}  # origins of which something has arrived since the ordering took in what had
        self.stable = [first] * members
        """By origin: how many packets of its cast stream every member of the view has received."""
        self.taken_by_all = [first] * members
        """By origin: how many of them every member's ordering has taken in."""

        # Peers: round trips, timers, room.
        self._rtt = [Rtt(settings.retransmit_ns_start, settings.retransmit_ns_min) for _ in range(members)]
        self._due = [NEVER] * members  # when to send the first unacknowledged body again
        self._doublings = [0] * members  # of that timer, since the last progress
        self._tries = [0] * members  # sent again since anything was heard
        self._newest = [0] * members  # highest counter heard
        self._echo = [0] * members  # counter that the next row echoes, 0: none
        self._echo_at = [0] * members
        self._echoed = [0] * members  # of my own counters, the last that the peer echoed
        self._room_until = [NEVER] * members  # how many of my cast packets the peer has room for
        self._answers = [Answers() for _ in range(members)]
        self._requests: list[tuple[Rank, int, Rank, int, int]] = []  # peer, kind, origin, first, count

        # What I owe.
        self._room = NO_LIMIT
        self._room_told = NO_LIMIT
        self._dirty: dict[Rank, None] = {}  # origins whose row has changed since all were told
        self._unacked = 0  # bodies since then
        self._unacked_bytes = 0
        self._ack_at = NEVER
        self._ack_ones: dict[Rank, int] = {}  # peers that must hear of me alone, and by when
        self._polled: dict[Rank, None] = {}  # peers that asked for all rows
        self._announce = False
        self._is_urged = False  # somebody waits for own casts to be stable
        self._prompted: dict[Rank, int] = {}  # peers that wait to hear what is taken in here, and until when they may
        self._has_taken = False  # something was taken in that was not told since
        self._poll_at = NEVER
        self._poll_doublings = 0
        self._watched: tuple[list[int], list[int]] = ([], [])  # what should be stable, and taken by all, by then

    def _raise(self, table: list[list[int]], floors: list[int], origin: Rank, peer: Rank, value: int) -> None:
        """Note how far `peer` is with `origin`, and how far all are."""
        row = table[origin]
        old = row[peer]
        if value > old:
            row[peer] = value
            if old == floors[origin]:
                floors[origin] = min(row)

    def _owe(self, kind: int, origin: Rank, due: int) -> None:
        """A body of `origin` came. By `due` all must hear how far I am with its casts, only the origin with what it sent to me."""
        if not kind & SEND:
            self._dirty[origin] = None
            if due < self._ack_at:
                self._ack_at = due
        elif due < self._ack_ones.get(origin, NEVER):
            self._ack_ones[origin] = due

    # Time.

    def _timeout(self, peer: Rank, doublings: int) -> int:
        """How long to wait for `peer`: the round trip, its delay of acknowledgements, and what is in flight."""
        settings = self._settings
        flight = self._cast.flight_bytes + self._sends[peer].flight_bytes
        base = self._rtt[peer].timeout() + settings.ack_delay_ns + (settings.retransmit_ns_per_kib * flight >> 10)
        if not doublings:
            return base
        timeout = max(base, min(base << doublings, settings.retransmit_ns_max))
        return timeout + self._random.randrange(timeout * settings.retransmit_jitter_percent // 100 + 1)

    def _round_trip(self, peer: Rank) -> int:
        rtt = self._rtt[peer]
        return rtt.smoothed if rtt.samples else self._settings.retransmit_ns_start

    def _owes_me(self, peer: Rank) -> bool:
        """Whether `peer` has not acknowledged everything that was sent to it."""
        stream = self._sends[peer]
        return self._acked[self._rank][peer] < self._cast.sent or stream.base < stream.sent

    def _arm(self, peer: Rank, now: int) -> None:
        self._due[peer] = now + self._timeout(peer, self._doublings[peer])

    def _sample(self, peer: Rank, echo: int, delay: int, now: int) -> None:
        """`peer` got the datagram with the counter `echo` and answered after `delay`. Karn: which transmission is certain."""
        age = (self.counter - echo) & LOW
        if echo == self._echoed[peer] or not 0 < age <= min(SENT_TIMES, self.counter - 1):
            return
        self._echoed[peer] = echo
        if delay < DELAY_MAX:
            trip = now - self._sent_at[(self.counter - age) % SENT_TIMES] - delay * DELAY_UNIT_NS
            self._rtt[peer].sample(max(trip, 1))

    # Datagrams.

    def _rows(self, origins: Iterable[Rank], now: int) -> list[bytes]:
        """How far I am with each of these origins."""
        pack = ROW.pack
        rows = []
        for origin in origins:
            echo = self._echo[origin]
            rows.append(
                pack(
                    origin,
                    self._casts[origin].next & LOW,
                    self._receives[origin].next & LOW,
                    self._own_shown[origin] & LOW,
                    self._own_taken[origin] & LOW,
                    echo & LOW,
                    min((now - self._echo_at[origin]) // DELAY_UNIT_NS, DELAY_MAX) if echo else DELAY_MAX,
                )
            )
        return rows

    def _emit(
        self,
        out: Datagrams,
        to: Rank | None,
        now: int,
        body: Octets = b"",
        tries: int = 0,
        rows: Sequence[bytes] = (),
        naks: Sequence[bytes] = (),
        flags: int = 0,
    ) -> None:
        """One transmission: a fresh envelope around a body, or around none."""
        counter = self.counter
        self.counter = counter + 1
        self._sent_at[counter % SENT_TIMES] = now
        head = HEAD.pack(
            VERSION,
            flags,
            self._rank,
            TO_ALL if to is None else to,
            self._view,
            counter,
            min(tries, 255),
            len(naks),
            len(rows),
            len(body),
            self._room,
            self._cast.sent & LOW,
            0 if to is None else self._sends[to].sent & LOW,
        )
        datagram = b"".join((self._prefix, head, *rows, *naks, body))
        out.append((to, datagram))
        if to is not None and rows:
            self._ack_ones.pop(to, None)  # its own row is always among them
        self.counters.datagrams_sent += 1
        self.counters.bytes_sent += len(datagram)
