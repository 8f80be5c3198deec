"""Gaps in incoming streams: what is missing is asked for, first from its origin, later from other holders."""

from __future__ import annotations

from unisono.core.streams.acknowledging import Acknowledging
from unisono.core.streams.inflow import Inflow
from unisono.core.streams.settings import NEVER
from unisono.core.streams.shared import StreamParts
from unisono.core.streams.transmitter import Datagrams
from unisono.core.types import Rank
from unisono.core.wire.envelope import LOW, NAK, NAKS_MAX, ROW, SEND, extend

_ASKS_OF_ORIGIN = 2  # times that the origin is asked before other holders are


class Gaps:
    """The streams that may have a gap, and when to ask for what is missing there."""

    def __init__(self, shared: StreamParts, acks: Acknowledging) -> None:
        self._settings = shared.settings
        self._peers = shared.peers
        self._naks_max = min(NAKS_MAX, (shared.space - ROW.size) // NAK.size)  # in one datagram
        self._progress = shared.progress
        self._timing = shared.timing
        self._transmitter = shared.transmitter
        self._acks = acks
        self._counters = shared.counters
        self.inflows: dict[Inflow, None] = {}
        """The streams that may have a gap."""

    # What tells of a gap.

    def hear_end(self, inflow: Inflow, low: int, now: int) -> None:
        """The head of a datagram says how many bodies its sender has sent on one stream, by the low 32 bits."""
        end = extend(low, inflow.next)
        if end > inflow.known:
            self.learn(inflow, end, now)

    def learn(self, inflow: Inflow, end: int, now: int) -> None:
        """The stream has bodies up to `end`. What of them is not here is a gap, and is asked for."""
        if inflow.learn(end, now):
            self.inflows[inflow] = None

    def hear_rumour(self, inflow: Inflow, end: int, now: int) -> None:
        """Another member says that it has more of a stream than is here."""
        if end > inflow.known and end > inflow.rumour:
            inflow.hear_rumour(end, now + self._timing.timeout(inflow.origin, 0))
            self.inflows[inflow] = None
        elif inflow.has_given_up:
            inflow.ask_once_more(now + self._timing.timeout(inflow.origin, 0))

    # Questions.

    def all(self) -> list[tuple[Rank, int, int]]:
        """Where something is missing that was sent: origin, kind of stream, and the number that comes next there."""
        return [(inflow.origin, inflow.kind, inflow.next) for inflow in self.inflows if inflow.next < inflow.known]

    def at(self) -> int:
        """When something must be asked for."""
        return min((inflow.due for inflow in self.inflows), default=NEVER)

    # Asking.

    def ask(self, now: int, out: Datagrams) -> None:
        """Ask for new gaps at once (or after `patience`), and again when the answer is overdue, `nak_tries_max` times in all."""
        for inflow in list(self.inflows):
            if inflow.rumour_at <= now:
                inflow.believe_rumour(now)
            if inflow.next >= inflow.known:
                if inflow.is_complete():
                    del self.inflows[inflow]
                continue
            target = self._holder(inflow)
            if inflow.ask_at <= now:
                self._request(inflow, *inflow.ask_again(), target, now, out)
            if inflow.fresh_at <= now:
                self._request(inflow, *inflow.ask_fresh(now), target, now, out)
            if inflow.awaits_answer:
                inflow.await_answer(now + self._timing.timeout(target, inflow.asks))

    def _holder(self, inflow: Inflow) -> Rank:
        """Whom to ask: the origin, after that in turn the peers that say that they have what comes next, unless silent."""
        origin, tries = inflow.origin, self._timing.tries
        if inflow.kind == SEND or (inflow.asks < _ASKS_OF_ORIGIN and tries[origin] < _ASKS_OF_ORIGIN):
            return origin
        row = self._progress.acked[origin]
        holders = [peer for peer in self._peers if row[peer] > inflow.next and tries[peer] < _ASKS_OF_ORIGIN]
        return holders[inflow.turn % len(holders)] if holders else origin

    def _request(self, inflow: Inflow, start: int, stop: int, target: Rank, now: int, out: Datagrams) -> None:
        gaps = inflow.gaps(start, stop)
        self._counters.naks_sent += len(gaps)
        for i in range(0, len(gaps), self._naks_max):
            some = gaps[i : i + self._naks_max]
            naks = [NAK.pack(inflow.origin, inflow.kind, first & LOW, count) for first, count in some]
            self._transmitter.transmit(out, target, now, rows=self._acks.rows((target,), now, target), naks=naks)
