"""Answers to requests: bodies that a peer lacks and asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from unisono.core.streams.acknowledging import Acknowledging
from unisono.core.streams.outbound import Outbound
from unisono.core.streams.shared import StreamParts
from unisono.core.streams.transmitter import Datagrams
from unisono.core.types import Rank

REQUESTS_MAX = 1_024
"""Maximum number of requests that are looked at in one turn, of all peers together; the rest is asked again."""
_LOOKED_AT_MAX = 2_048  # bodies that are looked at for one peer's requests in one turn

Request = tuple[int, Rank, int, int]
"""Kind of stream, origin, first number, count."""


@dataclass(slots=True)
class Answers:
    """What one peer got in answer to its requests lately, so that a flood of requests makes no flood of answers."""

    _bytes: int = 0
    _since: int = 0
    _times: dict[tuple[int, int, int], int] = field(default_factory=dict)  # body to when it was sent

    def admits(self, key: tuple[int, int, int], size: int, now: int, round_trip: int, bytes_max: int) -> bool:
        """Whether to send this body again: not while an earlier answer may be on its way, nor beyond the budget."""
        if now - self._since >= round_trip:
            self._since = now
            self._bytes = 0
            self._times = {key: at for key, at in self._times.items() if now - at < round_trip}
        if self._bytes + size > bytes_max or now - self._times.get(key, now - round_trip) < round_trip:
            return False
        self._bytes += size
        self._times[key] = now
        return True


class Answering:
    """Requests of one turn, and the bodies that they get: own ones, and other origins' casts that are kept here."""

    def __init__(self, shared: StreamParts, acks: Acknowledging, outbound: Outbound) -> None:
        self._settings = shared.settings
        self._rank = shared.rank
        self._outbound = outbound
        self._casts = shared.casts
        self._timing = shared.timing
        self._transmitter = shared.transmitter
        self._acks = acks
        self._counters = shared.counters
        self._answers = [Answers() for _ in shared.casts]
        self.requests: list[tuple[Rank, Request]] = []
        """What was asked for since the last turn, and by which peer."""

    def hear(self, peer: Rank, requests: Sequence[Request]) -> None:
        """`peer` asks for bodies."""
        self._counters.naks_received += len(requests)
        self.requests += [(peer, request) for request in requests[: REQUESTS_MAX - len(self.requests)]]

    def answer(self, now: int, out: Datagrams) -> None:
        """Send what was asked for, as far as it is here and was not sent to that peer a moment ago."""
        requests, self.requests = self.requests, []
        bytes_max = self._settings.answer_bytes_max
        looked_at: dict[Rank, int] = {}
        for peer, (kind, origin, first, count) in requests:
            own = origin == self._rank
            stream = self._outbound.stream(kind, peer)
            inflow = self._casts[origin]
            base, bodies = (stream.base, stream.bodies) if own else (inflow.kept_base, inflow.kept)
            stop = stream.sent if own else base + len(bodies)
            answers, round_trip = self._answers[peer], self._timing.round_trip(peer)
            looked = looked_at.get(peer, 0)
            start = max(first, base)
            stop = min(first + count, stop, start + _LOOKED_AT_MAX - looked)
            looked_at[peer] = looked + max(0, stop - start)
            for number in range(start, stop):
                body = bodies[number - base]
                if not answers.admits((origin, kind, number), len(body), now, round_trip, bytes_max):
                    self._counters.answers_denied += 1
                    continue
                self._counters.answers += 1
                if own:
                    self._outbound.answer(stream, number, peer, now, out)
                else:
                    self._transmitter.transmit(out, peer, now, body, 1, self._acks.rows((peer,), now, peer))
