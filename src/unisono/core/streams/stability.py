"""Watching over stability: what is not known to be everywhere in time is asked for."""

from __future__ import annotations

from unisono.core.streams.acknowledging import Acknowledging
from unisono.core.streams.settings import NEVER
from unisono.core.streams.shared import StreamParts
from unisono.core.streams.timing import DOUBLINGS_MAX
from unisono.core.streams.transmitter import Datagrams
from unisono.core.wire.envelope import POLL


class StabilityWatch:
    """Polls the peers that have not told that they have, and have taken in, what is here. Without loss it never does."""

    def __init__(self, shared: StreamParts, acks: Acknowledging) -> None:
        self._peers = shared.peers
        self._progress = shared.progress
        self._timing = shared.timing
        self._transmitter = shared.transmitter
        self._acks = acks
        self._counters = shared.counters
        self.at = NEVER
        """When to poll."""
        self._doublings = 0
        self._shown: list[int] = []  # what should be stable by then
        self._taken: list[int] = []  # … and taken in by all

    def watch(self, now: int) -> None:
        """What is here now should be stable by then, whatever else comes meanwhile."""
        if self._progress.is_all_taken:
            self.at = NEVER
            self._doublings = 0
        elif self.at == NEVER:
            self._shown, self._taken = self._progress.own_shown.copy(), self._progress.own_taken.copy()
            longest = 0
            for peer in self._peers:
                longest = max(longest, self._timing.timeout(peer, self._doublings))
            self.at = now + 2 * longest

    def poll(self, now: int, out: Datagrams) -> None:
        """Something does not get stable: ask the peers whose acknowledgements are missing here."""
        self.at = NEVER
        laggards = [peer for peer in self._peers if self._progress.lags(peer, self._shown, self._taken)]
        self._doublings = min(self._doublings + 1, DOUBLINGS_MAX) if laggards else 0
        for peer in laggards:
            self._timing.tried(peer)
            self._counters.polls_sent += 1
            rows = self._acks.all_rows(peer, now)  # a peer that lacks something learns here that I have it
            self._transmitter.transmit(out, peer, now, rows=rows, flags=POLL)
