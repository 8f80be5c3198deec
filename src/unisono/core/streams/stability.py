"""Watching over stability: what is not known to be everywhere in time is asked for."""

from __future__ import annotations

from collections.abc import Sequence

from unisono.core.streams.acknowledging import Acknowledging
from unisono.core.streams.counters import StreamCounters
from unisono.core.streams.progress import Progress
from unisono.core.streams.settings import NEVER
from unisono.core.streams.timing import DOUBLINGS_MAX, Timing
from unisono.core.streams.transmitter import Datagrams, Transmitter
from unisono.core.types import Rank
from unisono.core.wire.envelope import POLL


class StabilityWatch:
    """Polls the peers that have not told that they have, and have taken in, what is here. Without loss it never does."""

    __slots__ = (
        "_acks",
        "_counters",
        "_doublings",
        "_peers",
        "_progress",
        "_shown",
        "_taken",
        "_timing",
        "_transmitter",
        "at",
    )

    def __init__(
        self,
        peers: Sequence[Rank],
        progress: Progress,
        timing: Timing,
        transmitter: Transmitter,
        acks: Acknowledging,
        counters: StreamCounters,
    ) -> None:
        self._peers = peers
        self._progress = progress
        self._timing = timing
        self._transmitter = transmitter
        self._acks = acks
        self._counters = counters
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
