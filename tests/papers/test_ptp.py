"""The point-to-point layer of paper 001, alone: two links and a network that does what it likes."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from random import Random

import pytest

from unisono.core.config import MILLISECOND, SECOND
from unisono.core.errors import ConfigError, Misuse
from unisono.papers.ptp.faulty_link import FaultyLink
from unisono.papers.ptp.link import (
    Acknowledgement,
    AckReceived,
    Link,
    LinkDatagram,
    LinkSettings,
    LinkTurn,
    Note,
    PeerFailed,
    Received,
    Resent,
    _Flight,
    decode,
)
from unisono.runtime.faulty import AckVerdict, Question

SMALL = LinkSettings(datagram_bytes=80, window=4)


class Wire:
    """Two ends, a and b, and what is under way between them; time is virtual."""

    def __init__(self, a: Link, b: Link, seed: int = 0, loss: float = 0.0, doubled: float = 0.0) -> None:
        self.ends = {"a": a, "b": b}
        self.now = SECOND
        self.random = Random(seed)
        self.loss, self.doubled = loss, doubled
        self.drops: Callable[[str, LinkDatagram], bool] = lambda _, __: False
        self.got: dict[str, list[bytes]] = {"a": [], "b": []}
        self.notes: dict[str, list[Note]] = {"a": [], "b": []}
        self.sent: list[tuple[int, str, LinkDatagram]] = []
        self._arrivals: list[tuple[int, int, str, bytes]] = []
        self._deadlines: dict[str, int | None] = {"a": None, "b": None}

    def turn(self, end: str) -> None:
        turn = self.ends[end].drain(self.now)
        self.got[end] += turn.messages
        self.notes[end] += turn.notes
        self._deadlines[end] = turn.deadline
        for datagram in turn.datagrams:
            seen = decode(datagram)
            assert seen is not None
            assert len(datagram) <= self.ends[end].settings.datagram_bytes
            self.sent.append((self.now, end, seen))
            for _ in range(2 if self.random.random() < self.doubled else 1):
                if self.random.random() >= self.loss and not self.drops(end, seen):
                    delay = self.random.randint(1, 20) * MILLISECOND
                    self._arrivals.append((self.now + delay, len(self.sent), "b" if end == "a" else "a", datagram))

    def run(self, seconds: float) -> None:
        end = self.now + int(seconds * SECOND)
        for name in self.ends:
            self.turn(name)
        while True:
            dues = [(due, 0, name, b"") for name, due in self._deadlines.items() if due is not None]
            due = min([*self._arrivals, *dues], default=(end + 1, 0, "", b""))
            if due[0] > end:
                self.now = end
                return
            self.now, _, name, datagram = max((self.now, *due[1:]), due)
            if datagram:
                self._arrivals.remove(due)
                self.ends[name].receive(datagram, self.now)
            self.turn(name)


def messages(count: int, random: Random) -> list[bytes]:
    return [bytes(random.randbytes(random.choice((0, 1, 10, 40, 41, 200)))) for _ in range(count)]


@pytest.mark.parametrize("seed", range(20))
def test_messages_come_whole_once_and_in_order(seed: int) -> None:
    """L1, with a fifth of the datagrams lost, a tenth doubled, and all delays random."""
    settings = LinkSettings(datagram_bytes=80, window=4, resends=50)
    wire = Wire(Link(1, settings), Link(2, settings), seed, loss=0.2, doubled=0.1)
    said = {name: messages(30, Random(f"{seed}{name}")) for name in "ab"}
    for name, link in wire.ends.items():
        for message in said[name]:
            while not link.send(message):
                wire.run(0.1)
    wire.run(60)
    assert wire.got == {"a": said["b"], "b": said["a"]}
    assert all(link.is_idle for link in wire.ends.values())


@pytest.mark.parametrize("seed", range(3))
def test_a_healthy_peer_on_a_lossy_link_refuses_nothing_and_does_not_fail(seed: int) -> None:
    """L6. Found by reading: while one datagram waited for its resend, others spent their tries on a receiver that refused them."""
    settings = LinkSettings(datagram_bytes=80, window=8, queue=1_000)
    wire = Wire(Link(1, settings), Link(2, settings), seed, loss=0.05)
    said = [b"%d" % number for number in range(1_000)]
    assert all(wire.ends["a"].send(message) for message in said)
    wire.run(600)
    assert wire.ends["b"].refused == 0
    assert not [note for note in wire.notes["a"] if isinstance(note, PeerFailed)]
    assert wire.got["b"] == said


def test_after_five_resends_the_peer_counts_as_failed() -> None:
    """L4: six sends, each after twice as long, then failure."""
    a = Link(1)
    wire = Wire(a, Link(2))
    wire.drops = lambda end, _: end == "a"
    a.send(b"anyone there?")
    a.send(b"please")
    wire.run(60)
    times = [when for when, end, _ in wire.sent if end == "a"]
    assert len(times) == 6
    waits = [later - earlier for earlier, later in pairwise(times)]
    assert all(longer == 2 * shorter for shorter, longer in pairwise(waits))
    assert wire.notes["a"] == [*(Resent(0, tries) for tries in range(2, 7)), PeerFailed(0, 6, 2)]
    assert a.is_failed
    assert a.is_idle


@pytest.mark.parametrize("resends", [0, 1, 3])
def test_the_number_of_resends_can_be_chosen(resends: int) -> None:
    wire = Wire(Link(1, LinkSettings(resends=resends)), Link(2))
    wire.drops = lambda *_: True
    wire.ends["a"].send(b"x")
    wire.run(60)
    assert len(wire.sent) == 1 + resends


@pytest.mark.parametrize("lost", ["a", "b"])
def test_after_a_failure_a_new_stream_begins(lost: str) -> None:
    """The peer may have got what was given up, or not; the next message must not wait for it, nor be taken for it."""
    wire = Wire(Link(1, LinkSettings(resends=1)), Link(2))
    wire.ends["a"].send(b"zero")
    wire.run(1)
    wire.drops = lambda end, _: end == lost
    wire.ends["a"].send(b"one")
    wire.run(5)
    assert isinstance(wire.notes["a"][-1], PeerFailed)
    wire.drops = lambda *_: False
    wire.ends["a"].send(b"two")
    wire.run(5)
    assert wire.got["b"] == ([b"zero", b"two"] if lost == "a" else [b"zero", b"one", b"two"])
    assert not wire.ends["a"].is_failed


def test_a_duplicate_is_acknowledged_again_and_not_shown_again() -> None:
    """L2: the first acknowledgement is lost."""
    wire = Wire(Link(1), Link(2))
    wire.drops = lambda end, seen: end == "b" and seen.ack is not None and seen.ack.tries == 1
    wire.ends["a"].send(b"once")
    wire.run(5)
    assert wire.got["b"] == [b"once"]
    assert wire.notes["b"] == [Received(0, 1, False), Received(0, 2, True)]
    assert wire.ends["a"].is_idle


def test_data_of_an_earlier_life_is_never_acknowledged() -> None:
    """L2: a's process was restarted, and a datagram of its first life comes late."""
    wire = Wire(Link(5), Link(2))
    late = LinkDatagram(4, 0, 0, 0, 1, None, b"from the grave", True).encode()
    wire.ends["a"].send(b"hello")
    wire.run(1)
    sent = len(wire.sent)
    wire.ends["b"].receive(late, wire.now)
    wire.run(1)
    assert wire.got["b"] == [b"hello"]
    assert len(wire.sent) == sent


def test_data_to_an_earlier_life_is_not_taken_and_comes_again_renumbered() -> None:
    """b is restarted in the middle: the new one gets the rest from number 0 on."""
    wire = Wire(Link(1), Link(2))
    wire.ends["a"].send(b"to the first")
    wire.run(1)
    wire.ends["b"] = Link(3)
    wire.ends["a"].send(b"to the second")
    wire.run(5)
    assert wire.got["b"] == [b"to the first", b"to the second"]
    assert [seen.data for _, end, seen in wire.sent if end == "a" and seen.data is not None][-1] == b"to the second"
    assert wire.ends["a"].is_idle


def test_what_was_said_to_an_earlier_life_is_nothing_to_the_next() -> None:
    """L2. Found by reading: the first datagram named no life, so whoever had captured it could have it delivered again."""
    wire = Wire(Link(1), Link(2))
    wire.ends["a"].send(b"open the door")
    wire.run(1)
    captured = [seen.encode() for _, end, seen in wire.sent if end == "a"]
    assert wire.got["b"] == [b"open the door"]
    b = Link(3)
    for datagram in captured:
        b.receive(datagram, wire.now)
        turn = b.drain(wire.now)
        assert turn.messages == []
        assert [seen.ack for one in turn.datagrams if (seen := decode(one))] in ([], [None])


@pytest.mark.parametrize("resends", [0, 5])
def test_a_knock_costs_a_round_trip_and_none_of_the_tries(resends: int) -> None:
    """L3: both begin at once, and nobody waits for a timeout."""
    settings = LinkSettings(resends=resends)
    wire = Wire(Link(1, settings), Link(2, settings))
    for name, link in wire.ends.items():
        link.send(f"first of {name}".encode())
        link.send(f"second of {name}".encode())
    wire.run(0.15)
    assert wire.got == {name: [f"{n} of {other}".encode() for n in ("first", "second")] for name, other in ("ab", "ba")}
    assert not [note for notes in wire.notes.values() for note in notes if isinstance(note, Resent | PeerFailed)]
    assert all(link.is_idle for link in wire.ends.values())


def test_a_new_life_never_gets_half_a_message() -> None:
    """L5: the first life acknowledged some pieces of a long message and died."""
    wire = Wire(Link(1, SMALL), Link(2, SMALL))
    wire.ends["a"].send(b"short")
    wire.run(1)
    wire.drops = lambda end, seen: end == "a" and seen.seq >= 3
    wire.ends["a"].send(b"x" * 200)
    wire.ends["a"].send(b"whole")
    wire.run(0.2)
    wire.drops = lambda *_: False
    wire.ends["b"] = Link(3, SMALL)
    wire.run(10)
    assert wire.got["b"] == [b"short", b"whole"]


def test_before_the_peer_is_known_one_datagram_is_under_way() -> None:
    """L3"""
    wire = Wire(Link(1, SMALL), Link(2, SMALL))
    wire.drops = lambda *_: True
    for number in range(3):
        wire.ends["a"].send(bytes([number]))
    wire.run(0.1)
    assert [seen.seq for _, end, seen in wire.sent] == [0]


def test_acknowledgements_ride_on_data() -> None:
    wire = Wire(Link(1), Link(2))
    wire.ends["a"].send(b"ping")
    wire.run(1)
    wire.sent.clear()
    wire.ends["a"].send(b"ping")
    wire.turn("a")
    wire.ends["b"].send(b"pong")
    wire.ends["b"].receive(wire.sent[-1][2].encode(), wire.now)
    wire.turn("b")
    ((_, _, carried),) = [one for one in wire.sent if one[1] == "b"]
    assert carried.data == b"pong"
    assert carried.ack is not None
    assert carried.ack.seq == 1


def test_no_round_trip_is_measured_with_what_was_sent_twice() -> None:
    """Karn: the acknowledgement of a resent datagram says nothing about either transmission."""
    a = Link(1)
    wire = Wire(a, Link(2))
    wire.drops = lambda end, seen: end == "a" and seen.tries == 1
    a.send(b"x")
    wire.run(5)
    assert a.is_idle
    assert a.rtt_ns == 0
    wire.drops = lambda *_: False
    a.send(b"y")
    wire.run(1)
    assert 2 * MILLISECOND <= a.rtt_ns <= 40 * MILLISECOND


def test_a_larger_datagram_waits_longer() -> None:
    def timeout(size: int) -> int:
        link = Link(1)
        link.send(bytes(size))
        deadline = link.drain(0).deadline
        assert deadline is not None
        return deadline

    assert timeout(1_400) > timeout(10) >= LinkSettings().timeout_ns_min


def test_a_full_queue_says_no_and_loses_nothing() -> None:
    a = Link(1, LinkSettings(queue=2))
    assert a.send(b"1")
    assert a.send(b"2")
    assert not a.send(b"3")
    wire = Wire(a, Link(2))
    wire.run(1)
    assert a.send(b"3")
    wire.run(1)
    assert wire.got["b"] == [b"1", b"2", b"3"]


def test_what_is_too_large_is_refused_with_a_sentence() -> None:
    with pytest.raises(Misuse, match="too large"):
        Link(1, LinkSettings(message_bytes_max=10)).send(b"x" * 11)
    with pytest.raises(ConfigError, match="resends = 101 is out of range"):
        LinkSettings(resends=101)


@pytest.mark.parametrize("seed", range(5))
def test_damaged_datagrams_do_no_harm(seed: int) -> None:
    random = Random(seed)
    wire = Wire(Link(1), Link(2))
    wire.ends["a"].send(b"before")
    wire.run(1)
    good = LinkDatagram(1, 2, 0, 1, 1, Acknowledgement(0, 0, 1, 7), b"", True).encode()
    for _ in range(2_000):
        bad = bytearray(good[: random.randrange(len(good))] if random.random() < 0.5 else good)
        bad[:2] = random.randbytes(2)[: len(bad)]
        if bad[:1] != good[:1] or len(bad) < len(good):
            wire.ends["b"].receive(bytes(bad), wire.now)
            assert wire.ends["b"].drain(wire.now).datagrams == []
    wire.ends["a"].send(b"after")
    wire.run(5)
    assert wire.got["b"] == [b"before", b"after"]


# Faults by hand.


class Decided(Link):
    """A link behind a wrapper, with somebody who decides about each acknowledgement at once."""

    def __init__(self, life: int, decide: Callable[[Question], AckVerdict]) -> None:
        super().__init__(life)
        self.told: list[str] = []
        self.asked: list[Question] = []
        self._open: list[Question] = []
        self._decide = decide
        self._wrapper = FaultyLink(_Inner(self), "a", self.told.append, self._open.append)

    def drain(self, now: int) -> LinkTurn:
        turn = self._wrapper.drain(now)
        while self._open:
            self.asked.append(self._open.pop(0))
            self._wrapper.decide(self._decide(self.asked[-1]), now)
        later = self._wrapper.drain(now)  # what was decided without a delay
        return later._replace(
            datagrams=turn.datagrams + later.datagrams,
            messages=turn.messages + later.messages,
            notes=turn.notes + later.notes,
        )


class _Inner(Link):
    """The same link without the wrapper."""

    def __init__(self, outer: Link) -> None:
        self.__dict__ = outer.__dict__


def test_an_altered_acknowledgement_is_one_of_nothing() -> None:
    """Even one that names another datagram which is under way: the check does not fit."""
    b = Decided(2, lambda question: AckVerdict(seq=3 - question.seq if question.seq and len(b.asked) < 5 else None))
    wire = Wire(Link(1), b)
    wire.ends["a"].send(b"zero")
    wire.run(1)
    wire.ends["a"].send(b"one")
    wire.ends["a"].send(b"two")
    wire.run(5)
    assert wire.got["b"] == [b"zero", b"one", b"two"]
    assert "ACK 1 to a altered to 2" in b.told
    assert [note for note in wire.notes["a"] if isinstance(note, AckReceived) and note.is_meaningless]
    assert any(isinstance(note, Resent) for note in wire.notes["a"])
    assert wire.ends["a"].is_idle


def test_a_dropped_or_delayed_acknowledgement_means_a_resend() -> None:
    verdicts = [AckVerdict(is_dropped=True), AckVerdict(delay_ns=SECOND)]
    b = Decided(2, lambda _: verdicts.pop(0) if verdicts else AckVerdict())
    wire = Wire(Link(1), b)
    wire.ends["a"].send(b"zero")
    wire.run(10)
    assert wire.got["b"] == [b"zero"]
    assert b.told[0] == "ACK 0 to a dropped"
    assert "ACK 0 to a delayed by 1 s" in b.told
    assert len(b.asked) >= 3  # each receipt is asked about anew
    assert wire.ends["a"].is_idle


def test_nobody_waits_while_a_question_is_open() -> None:
    """The data that an acknowledgement would ride on leaves at once; the acknowledgement waits for its verdict."""
    told: list[str] = []
    asked: list[Question] = []
    link = Link(2)
    wrapper = FaultyLink(link, "a", told.append, asked.append)
    link.receive(LinkDatagram(1, 2, 0, 0, 1, None, b"in", True).encode(), SECOND)
    link.send(b"out")
    turn = wrapper.drain(SECOND)
    assert turn.messages == [b"in"]
    assert [(seen.data, seen.ack) for one in turn.datagrams if (seen := decode(one))] == [(b"out", None)]
    assert asked == [Question("a", 0)]
    wrapper.decide(AckVerdict(delay_ns=MILLISECOND), SECOND)
    assert not wrapper.drain(SECOND).datagrams
    assert wrapper.drain(SECOND).deadline == SECOND + MILLISECOND
    (late,) = wrapper.drain(SECOND + MILLISECOND).datagrams
    seen = decode(late)
    assert seen is not None
    assert seen.ack is not None
    assert seen.data is None


# Planted faults.


class AcksStale(Link):
    """Takes data of an earlier life."""

    def receive(self, datagram: bytes, now: int) -> None:
        seen = decode(datagram)
        super().receive(seen._replace(life=max(seen.life, self._peer_life)).encode() if seen else datagram, now)


class TakesTwice(Link):
    """Forgets what it has taken."""

    def _take(self, seen: LinkDatagram, data: bytes) -> None:
        if seen.seq < self._expected:
            self._messages.append(data)
        super()._take(seen, data)


class TakesUnordered(Link):
    """Does not wait for what is missing."""

    def _take(self, seen: LinkDatagram, data: bytes) -> None:
        self._expected = min(seen.seq, self._expected) if seen.seq < self._expected else seen.seq
        super()._take(seen, data)


class ResendsOnceMore(Link):
    def _repeat(self, seq: int, flight: _Flight, now: int) -> bool:
        if flight.tries == self.settings.resends + 1:
            flight.tries -= 1
        return super()._repeat(seq, flight, now)


class KeepsNumbers(Link):
    """Goes on with its numbers after a failure."""

    def _renumber(self) -> None:
        epoch, seq = self._epoch, self._seq
        super()._renumber()
        self._epoch, self._seq = epoch, seq


class TrustsNumbers(Link):
    """Believes an acknowledgement by its number alone."""

    def _acknowledged(self, ack: Acknowledgement, now: int) -> None:
        flight = self._flights.get(ack.seq)
        super()._acknowledged(ack if flight is None else ack._replace(check=flight.check), now)


class ForgetsParts(Link):
    """A new life of the peer gets the rest of what the last one had begun to get."""

    def _renumber(self) -> None:
        self._begun.clear()
        super()._renumber()


@pytest.mark.parametrize(
    ("mutant", "test"),
    [
        (AcksStale, test_data_of_an_earlier_life_is_never_acknowledged),
        (TakesTwice, test_a_duplicate_is_acknowledged_again_and_not_shown_again),
        (TakesUnordered, lambda: test_messages_come_whole_once_and_in_order(1)),
        (ResendsOnceMore, test_after_five_resends_the_peer_counts_as_failed),
        (KeepsNumbers, lambda: test_after_a_failure_a_new_stream_begins("a")),
        (TrustsNumbers, test_an_altered_acknowledgement_is_one_of_nothing),
        (ForgetsParts, test_a_new_life_never_gets_half_a_message),
    ],
    ids=lambda value: getattr(value, "__name__", "test"),
)
def test_a_planted_fault_is_found(
    mutant: type[Link], test: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "Link", mutant)
    with pytest.raises(AssertionError):
        test()
