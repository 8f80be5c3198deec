"""Streams with one rule broken each. The tests of the streams must notice every one of them."""

from __future__ import annotations

from unisono.core.streams.inbound import NEVER, Inflow
from unisono.core.streams.outbound import Outflow
from unisono.core.streams.state import SENT_TIMES, Datagrams
from unisono.core.streams.streams import Streams
from unisono.core.types import Rank
from unisono.core.wire.envelope import DELAY_MAX, Octets, Piece, Plain, Refusal


class NoTimer(Streams):
    """Forgets that something was sent: only gaps and polls heal."""

    def _arm(self, peer: Rank, now: int) -> None:
        return


class NoPoll(Streams):
    """Never asks how far the others are."""

    def _watch_stability(self, now: int) -> None:
        return


class NoTail(NoTimer, NoPoll):
    """Neither: a lost tail stays lost."""


class PollsOnlyInSilence(Streams):
    """Puts a poll off whenever anyone gets on with anything."""

    def drain(self, now: int) -> Datagrams:
        if self._watched != ([], []) and sum(self.stable) > sum(self._watched[0]) - len(self._watched[0]):
            self._poll_at = 1 << 62
        return super().drain(now)


class PutsOff(Streams):
    """Starts the timer anew when anything is acknowledged, though another stream stands still."""

    def _acknowledged(self, peer: Rank, cast: int, send: int, now: int) -> None:
        super()._acknowledged(peer, cast, send, now)
        if self._due[peer] != 1 << 62:
            self._arm(peer, now)


class NoAckOfDuplicates(NoPoll):
    """Takes a duplicate for a mistake and says nothing. (A poll would heal that.)"""

    def _offer(self, sender: Rank, body: Octets, parsed: Plain | Piece, tries: int, now: int) -> Refusal | None:
        dirty, due = dict(self._dirty), self._ack_at
        duplicates = self.counters.duplicates
        result = super()._offer(sender, body, parsed, tries, now)
        if self.counters.duplicates > duplicates:
            self._dirty, self._ack_at = dirty, due
        return result


class TakesDuplicates(Streams):
    """Shows a resent body again."""

    def _offer(self, sender: Rank, body: Octets, parsed: Plain | Piece, tries: int, now: int) -> Refusal | None:
        duplicates = self.counters.duplicates
        result = super()._offer(sender, body, parsed, tries, now)
        if self.counters.duplicates > duplicates and isinstance(parsed, Plain):
            self._show(sender, parsed.packets)
        return result


class NoKarn(Streams):
    """Measures from the latest transmission, whichever was acknowledged."""

    def _sample(self, peer: Rank, echo: int, delay: int, now: int) -> None:
        if echo != self._echoed[peer] and delay < DELAY_MAX:
            self._echoed[peer] = echo
            self._rtt[peer].sample(max(1, now - self._sent_at[(self.counter - 1) % SENT_TIMES]))


class NoBackOff(Streams):
    def _timeout(self, peer: Rank, doublings: int) -> int:
        return super()._timeout(peer, 0)


class NoJitter(Streams):
    def _timeout(self, peer: Rank, doublings: int) -> int:
        base = super()._timeout(peer, 0)
        return max(base, min(base << doublings, self._settings.retransmit_ns_max))


class NoCap(Streams):
    def _timeout(self, peer: Rank, doublings: int) -> int:
        return super()._timeout(peer, 0) << doublings


class OneGapAtATime(Streams):
    """Asks for the first gap only, and for the next when that is closed."""

    def _request(self, inflow: Inflow, start: int, stop: int, target: Rank, now: int, out: Datagrams) -> None:
        if start <= inflow.next:
            super()._request(inflow, inflow.next, inflow.next + 1, target, now, out)


class Impatient(Streams):
    """Takes whatever is late for lost, for ever."""

    def _ask(self, now: int, out: Datagrams) -> None:
        for inflow in self._gapped:
            inflow.patience, inflow.fresh_at = 0, min(inflow.fresh_at, now)
        super()._ask(now, out)


class AsksForEver(Streams):
    def _ask(self, now: int, out: Datagrams) -> None:
        for inflow in self._gapped:
            inflow.asks = 0
        super()._ask(now, out)


class AsksOriginOnly(Streams):
    def _holder(self, inflow: Inflow) -> Rank:
        return inflow.origin


class IgnoresRumours(Streams):
    """Does not draw conclusions from what third members say they have."""

    def _ask(self, now: int, out: Datagrams) -> None:
        for inflow in self._gapped:
            inflow.rumour_at = 1 << 62
        super()._ask(now, out)


class IgnoresRoom(Streams):
    def receive(self, sender: Rank, datagram: bytes | memoryview, now: int) -> None:
        super().receive(sender, datagram, now)
        self._room_until[sender] = NEVER


class NeverShrinks(Streams):
    def _resend(self, peer: Rank, now: int, out: Datagrams) -> None:
        size = self._window.size
        super()._resend(peer, now, out)
        self._window.size = size

    def _answer(self, now: int, out: Datagrams) -> None:
        size = self._window.size
        super()._answer(now, out)
        self._window.size = size


class DataFirst(Streams):
    """Control waits behind data: nothing but data leaves while some is under way."""

    def _acknowledge(self, now: int, out: Datagrams) -> None:
        if self._cast.flight_bytes < self._window.size // 2:
            super()._acknowledge(now, out)


class NeverPushes(Streams):
    """A full window waits for acknowledgements that wait for company."""

    def _push(self, stream: Outflow) -> int:
        return 0


class GivesUpForGood(Streams):
    """Having asked in vain, never asks again, whoever says that it has what is missing."""

    def _hear_rumour(self, inflow: Inflow, end: int, now: int) -> None:
        if end > inflow.known:
            super()._hear_rumour(inflow, end, now)


class AnswersEverything(Streams):
    """No limit on answers: each request is served in full."""

    def _answer(self, now: int, out: Datagrams) -> None:
        requests, self._requests = self._requests, []
        for request in requests:
            self._requests = [request]
            self._answers = [type(answers)() for answers in self._answers]
            super()._answer(now, out)
        self._requests = []


class BelievesAcks(Streams):
    """Takes an acknowledgement of what was never sent for good."""

    def _check_rows(self, sender: Rank, table: bytes | memoryview) -> list[tuple[int, ...]] | Refusal:  # type: ignore[override]
        sent, self._cast.sent = self._cast.sent, 1 << 40
        packets, self.packets_cast = self.packets_cast, 1 << 40
        stream = self._sends[sender]
        stream_sent, stream.sent = stream.sent, 1 << 40
        result = super()._check_rows(sender, table)
        self._cast.sent, self.packets_cast, stream.sent = sent, packets, stream_sent
        return result  # type: ignore[return-value]


class Greedy(Streams):
    """Holds whatever comes, however far ahead."""

    def _offer(self, sender: Rank, body: Octets, parsed: Plain | Piece, tries: int, now: int) -> Refusal | None:
        result = super()._offer(sender, body, parsed, tries, now)
        if result is Refusal.AHEAD:
            inflow = self._casts[sender]
            inflow.ahead[len(inflow.ahead) + 10**6] = body
        return result


class NoReplayWindow(Streams):
    def _receive(self, sender: Rank, datagram: bytes | memoryview, now: int) -> Refusal | None:
        self._replay[sender] = type(self._replay[sender])()
        return super()._receive(sender, datagram, now)


class TrustsForwards(Streams):
    """Takes another origin's casts from anyone, asked for or not."""

    def _offer(self, sender: Rank, body: Octets, parsed: Plain | Piece, tries: int, now: int) -> Refusal | None:
        return super()._offer(body[1] | body[2] << 8, body, parsed, tries, now)
