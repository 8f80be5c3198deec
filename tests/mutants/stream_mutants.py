"""Streams with one rule broken each. The tests of the streams must notice every one of them.

A mutant is a part of `Streams` with an altered method; `tests.stream_harness.planted` puts it into the place of the real one.
"""

from __future__ import annotations

from unisono.core.streams.acknowledging import Acknowledging
from unisono.core.streams.answering import Answering
from unisono.core.streams.gaps import Gaps
from unisono.core.streams.inbound import Inbound
from unisono.core.streams.inflow import Inflow
from unisono.core.streams.intake import Intake, Row
from unisono.core.streams.outbound import Outbound
from unisono.core.streams.outflow import Outflow
from unisono.core.streams.progress import Progress
from unisono.core.streams.settings import NEVER
from unisono.core.streams.stability import StabilityWatch
from unisono.core.streams.timing import Timing
from unisono.core.streams.transmitter import Datagrams
from unisono.core.types import Rank
from unisono.core.wire.envelope import DELAY_MAX, Octets, Piece, Plain, Refusal


class NoTimer(Outbound):
    """Forgets that something was sent: only gaps and polls heal."""

    def _arm(self, peer: Rank, now: int) -> None:
        return


class NoPoll(StabilityWatch):
    """Never asks how far the others are."""

    def watch(self, now: int) -> None:
        return


class NoTail(NoTimer):
    """Neither: a lost tail stays lost."""

    also = (NoPoll,)


class PollsOnlyInSilence(StabilityWatch):
    """Puts a poll off whenever anyone gets on with anything."""

    def _put_off(self) -> bool:
        return bool(self._shown) and sum(self._progress.received_by_all) > sum(self._shown) - len(self._shown)

    def watch(self, now: int) -> None:
        if self._put_off():
            self.at = NEVER
        super().watch(now)

    def poll(self, now: int, out: Datagrams) -> None:
        if self._put_off():
            self.at = NEVER
        else:
            super().poll(now, out)


class PutsOff(Outbound):
    """Starts the timer anew when anything is acknowledged, though another stream stands still."""

    def acknowledged(self, peer: Rank, cast: int, send: int, shown: int, taken: int, now: int) -> None:
        super().acknowledged(peer, cast, send, shown, taken, now)
        if self.due[peer] != NEVER:
            self._arm(peer, now)


class NoAckOfDuplicates(Acknowledging):
    """Takes a duplicate for a mistake and says nothing. (A poll would heal that.)"""

    also = (NoPoll,)

    def owe(self, kind: int, origin: Rank, due: int) -> None:
        return


class TakesDuplicates(Inbound):
    """Shows a resent body again."""

    def offer(self, sender: Rank, body: Octets, parsed: Plain | Piece, tries: int, now: int) -> Refusal | None:
        duplicates = self._counters.duplicates
        result = super().offer(sender, body, parsed, tries, now)
        if self._counters.duplicates > duplicates and isinstance(parsed, Plain):
            self.arrivals += [(sender, packet) for packet in parsed.packets]
        return result


class NoKarn(Timing):
    """Measures from the latest transmission, whichever was acknowledged."""

    def sample(self, peer: Rank, echo: int, delay: int, now: int) -> None:
        if echo != self._echoed[peer] and delay < DELAY_MAX:
            self._echoed[peer] = echo
            latest = self._transmitter.sent_at(self._transmitter.counter - 1)
            assert latest is not None
            self._rtt[peer].sample(max(1, now - latest))


class NoBackOff(Timing):
    def timeout(self, peer: Rank, doublings: int) -> int:
        return super().timeout(peer, 0)


class NoJitter(Timing):
    def timeout(self, peer: Rank, doublings: int) -> int:
        base = super().timeout(peer, 0)
        return max(base, min(base << doublings, self._settings.retransmit_ns_max))


class NoCap(Timing):
    def timeout(self, peer: Rank, doublings: int) -> int:
        return super().timeout(peer, 0) << doublings


class OneGapAtATime(Gaps):
    """Asks for the first gap only, and for the next when that is closed."""

    def _request(self, inflow: Inflow, start: int, stop: int, target: Rank, now: int, out: Datagrams) -> None:
        if start <= inflow.next:
            super()._request(inflow, inflow.next, inflow.next + 1, target, now, out)


class Impatient(Gaps):
    """Takes whatever is late for lost, for ever."""

    def ask(self, now: int, out: Datagrams) -> None:
        for inflow in self.inflows:
            inflow.patience, inflow.fresh_at = 0, min(inflow.fresh_at, now)
        super().ask(now, out)


class AsksForEver(Gaps):
    def ask(self, now: int, out: Datagrams) -> None:
        for inflow in self.inflows:
            inflow.asks = 0
        super().ask(now, out)


class AsksOriginOnly(Gaps):
    def _holder(self, inflow: Inflow) -> Rank:
        return inflow.origin


class IgnoresRumours(Gaps):
    """Does not draw conclusions from what third members say they have."""

    def ask(self, now: int, out: Datagrams) -> None:
        for inflow in self.inflows:
            inflow.rumour_at = NEVER
        super().ask(now, out)


class IgnoresRoom(Progress):
    def hear_room(self, peer: Rank, room: int) -> None:
        return


class NeverShrinks(Outbound):
    """Takes no notice of loss."""

    def _resend(self, peer: Rank, now: int, out: Datagrams) -> None:
        size = self.window.size
        super()._resend(peer, now, out)
        self.window.size = size

    def answer(self, stream: Outflow, number: int, peer: Rank, now: int, out: Datagrams) -> None:
        size = self.window.size
        super().answer(stream, number, peer, now, out)
        self.window.size = size


class DataFirst(Acknowledging):
    """Control waits behind data: nothing but data leaves while some is under way."""

    def acknowledge(self, now: int, out: Datagrams) -> None:
        shown, stable = self._progress.own_shown, self._progress.received_by_all
        if not any(shown[rank] > stable[rank] for rank in range(len(shown)) if rank not in self._peers):
            super().acknowledge(now, out)


class NeverPushes(Outbound):
    """A full window waits for acknowledgements that wait for company."""

    def _flags(self, stream: Outflow) -> int:
        return 0


class GivesUpForGood(Gaps):
    """Having asked in vain, never asks again, whoever says that it has what is missing."""

    def hear_rumour(self, inflow: Inflow, end: int, now: int) -> None:
        if end > inflow.known:
            super().hear_rumour(inflow, end, now)


class AnswersEverything(Answering):
    """No limit on answers: each request is served in full."""

    def answer(self, now: int, out: Datagrams) -> None:
        requests, self.requests = self.requests, []
        for request in requests:
            self.requests = [request]
            self._answers = [type(answers)() for answers in self._answers]
            super().answer(now, out)
        self.requests = []


class BelievesAcks(Intake):
    """Takes an acknowledgement of what was never sent for good."""

    def _check_rows(self, sender: Rank, table: bytes | memoryview) -> list[Row] | Refusal:
        outbound, stream, own = self._outbound, self._sends[sender], self._cast
        sent, own.sent = own.sent, 1 << 40
        packets, outbound.packets_cast = outbound.packets_cast, 1 << 40
        stream_sent, stream.sent = stream.sent, 1 << 40
        result = super()._check_rows(sender, table)
        own.sent, outbound.packets_cast, stream.sent = sent, packets, stream_sent
        return result


class Greedy(Inflow):
    """Holds whatever comes, however far ahead."""

    def hold(self, seq: int, body: Octets) -> bool:
        if not super().hold(seq, body):
            self.ahead[seq] = body
            self._memory.ahead += len(body)
        return True


class NoReplayWindow(Intake):
    def take(self, sender: Rank, datagram: bytes | memoryview, now: int) -> None:
        assert isinstance(self._replay, list)
        self._replay[sender] = type(self._replay[sender])()
        super().take(sender, datagram, now)


class TrustsForwards(Inbound):
    """Takes another origin's casts from anyone, asked for or not."""

    def offer(self, sender: Rank, body: Octets, parsed: Plain | Piece, tries: int, now: int) -> Refusal | None:
        return super().offer(body[1] | body[2] << 8, body, parsed, tries, now)
