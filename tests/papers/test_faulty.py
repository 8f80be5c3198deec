"""The wrapper between a member and its network, in virtual time: ACKs that are late, altered or dropped; the rule of resends."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

import unisono
from unisono import Delivery, Group, JoinOptions, View
from unisono.core.config import MILLISECOND, SECOND
from unisono.core.member.member import Member
from unisono.core.types import MemberId
from unisono.papers.by_hand import Prompts
from unisono.papers.causal import causal_settings
from unisono.runtime.faulty import AckVerdict, Faults, FaultyMember, Question
from unisono.runtime.join import Joining
from unisono.runtime.running import RunningMember
from unisono.sim.loop import Network, in_virtual_time

NAMES = {f"10.0.0.{number}:7400": name for number, name in enumerate(("alpha", "beta", "gamma"), start=1)}
ADDRESSES = list(NAMES)
Events = list[tuple[float, str]]


def name_of(member: MemberId) -> str:
    return NAMES[member.address]


class Party:
    """One member behind a wrapper, and what it told and saw, with times in seconds."""

    def __init__(self, faults: Faults, asks: bool) -> None:
        self.told: Events = []
        self.seen: Events = []
        self.asked: list[Question] = []
        self._faults, self._asks = faults, asks
        self.group: Group
        self.wrapper: FaultyMember

    def prepare(self, running: RunningMember) -> None:
        clock = running.driver.clock
        self.wrapper = FaultyMember(
            running.member,
            self._faults,
            name_of,
            lambda text: self.told.append((clock() / 1e9, text)),
            self.asked.append if self._asks else None,
        )
        running.wrap_member(lambda member: cast(Member, self.wrapper))

    def unwrap(self, member: Member) -> Member:
        return self.wrapper._member

    async def watch(self) -> None:
        async for event in self.group:
            now = self.group.running.now / 1e9
            if isinstance(event, Delivery):
                self.seen.append((now, event.payload.decode()))
            elif isinstance(event, View):
                self.seen.append((now, " ".join(map(name_of, event.members))))

    def texts(self) -> list[str]:
        return [text for _, text in self.told]

    def when(self, text: str, events: Events | None = None) -> float:
        return next(at for at, seen in (self.told if events is None else events) if seen == text)


async def gather(count: int, faults: dict[str, Faults], asks: str = "") -> list[Party]:
    parties = [Party(faults.get(name, Faults()), name == asks) for name in list(NAMES.values())[:count]]

    async def enter(address: str, party: Party) -> None:
        peers = ADDRESSES[:count]
        settings = causal_settings(address, None, 10 * SECOND)
        options = JoinOptions("lab", listen=address, peers=peers, order="causal", min_members=count, settings=settings)
        party.group = await Joining(options, prepare=party.prepare)

    await asyncio.gather(*(enter(address, party) for address, party in zip(ADDRESSES, parties, strict=False)))
    party_tasks.extend(asyncio.ensure_future(party.watch()) for party in parties)
    return parties


party_tasks: list[Any] = []


@pytest.fixture(autouse=True)
def _no_tasks_left() -> None:
    party_tasks.clear()


@unisono.sim.test()
async def test_a_delayed_acknowledgement_delays_nothing_else() -> None:
    a, b = await gather(2, {"beta": Faults(ack_delay_ns=500 * MILLISECOND), "alpha": Faults(resends=50)})
    began = a.group.running.now / 1e9
    await a.group.cast(b"one")
    await asyncio.sleep(3)
    assert b.when("one", b.seen) - began < 0.1
    assert a.when("ACK 0 received of beta") - began >= 0.5
    assert b.when("ACK 0 to alpha delayed by 500000 µs") < b.when("ACK 0 sent to alpha") - 0.4
    assert "resend 1 of 0 to beta" in a.texts()
    began = a.group.running.now / 1e9
    await b.group.cast(b"two")  # it does not wait for the acknowledgement that would ride on it
    await a.group.cast(b"three")
    await asyncio.sleep(3)
    assert a.when("two", a.seen) - began < 0.1
    assert sorted(text for _, text in a.seen if len(text) < 6) == ["one", "three", "two"]


@unisono.sim.test()
async def test_the_last_member_gets_messages_late_and_in_causal_order() -> None:
    a, b, c = await gather(3, {"alpha": Faults(resends=50, last_delay_ns=200 * MILLISECOND)})
    await a.group.cast(b"cause")
    while "cause" not in [text for _, text in b.seen]:
        await asyncio.sleep(0.001)
    await b.group.cast(b"effect")
    await asyncio.sleep(2)
    assert c.when("cause", c.seen) - b.when("cause", b.seen) > 0.15
    assert [text for _, text in c.seen if "alpha" not in text] == ["cause", "effect"]


@unisono.sim.test()
async def test_after_the_resends_a_member_counts_as_failed_and_the_rest_go_on(network: Network) -> None:
    a, b, c = await gather(3, {"alpha": Faults(resends=3), "beta": Faults(resends=3)})
    network.crash(c.group)
    await a.group.cast(b"x")
    await asyncio.sleep(8)
    resends = [text for text in a.texts() if text.startswith("resend")]
    assert resends == [f"resend {number} of 0 to gamma" for number in (1, 2, 3)]
    assert "gamma did not acknowledge 0 after 4 sends: it counts as failed" in a.texts()
    assert a.seen[-1][1] == "alpha beta"
    assert "x" in [text for _, text in b.seen]
    assert b.seen[-1][1] == "alpha beta"


@pytest.mark.parametrize("seq", [1, 7, 2**31])
@unisono.sim.test()
async def test_an_altered_acknowledgement_deceives_nobody(seq: int) -> None:
    """It acknowledges what was never cast: it is refused, and the message is sent again until the true one comes."""
    a, b = await gather(2, {"alpha": Faults(resends=50)}, asks="beta")
    await a.group.cast(b"one")
    await asyncio.sleep(1)
    assert b.asked == [Question("alpha", 0)]  # the resends wait for the same answer
    assert "one" in [text for _, text in b.seen]
    b.wrapper.decide(AckVerdict(seq=seq), b.group.running.now)
    b.group.running.driver.wake()
    await asyncio.sleep(5)
    assert f"ACK 0 to alpha altered to {seq}" in b.texts()
    acks = [text for text in a.texts() if text.startswith("ACK")]
    assert acks == [f"ACK {seq} received of beta, which acknowledges nothing"]
    assert len(b.asked) == 2  # the resend is asked about anew
    b.wrapper.decide(AckVerdict(is_dropped=True), b.group.running.now)
    await asyncio.sleep(5)
    b.wrapper.decide(AckVerdict(), b.group.running.now)
    b.group.running.driver.wake()
    await asyncio.sleep(5)
    assert "ACK 0 received of beta" in a.texts()
    assert [text for _, text in b.seen].count("one") == 1
    assert a.group.running.member.state.settled_index == 1


@unisono.sim.test()
async def test_no_datagram_of_the_program_has_more_than_1500_bytes(network: Network) -> None:
    """1.8: with 28 bytes of headers; a long message is cut and rebuilt, also where a view change hands it over."""
    sizes: list[int] = []
    network.drops = lambda source, target, data: bool(sizes.append(len(data)))  # type: ignore[func-returns-value]
    a, b, c = await gather(3, {})
    await a.group.cast(b"x" * 20_000)
    await c.group.leave()
    await a.group.cast(b"y" * 5_000)
    await asyncio.sleep(3)
    assert [len(text) for _, text in b.seen if text[0] in "xy"] == [20_000, 5_000]
    assert 1_000 < max(sizes) <= 1_472


def test_without_faults_it_changes_nothing() -> None:
    def story(wrapped: bool) -> tuple[list[str], int]:
        async def main(network: Network) -> tuple[list[str], int]:
            a, b = await gather(2, {})
            if not wrapped:
                for party in (a, b):
                    party.group.running.wrap_member(party.unwrap)
            for number in range(20):
                await a.group.cast(str(number).encode())
            await asyncio.sleep(2)
            return [text for _, text in b.seen], network.sent

        return in_virtual_time(main)

    assert story(True) == story(False)


# Planted faults.


class DelaysAll(FaultyMember):
    """Delays the data with the acknowledgement that rides on it."""

    def _look_out(self, sending: Any, now: int) -> Any:
        delay = self._faults.ack_delay_ns
        for one in super()._look_out(sending, now) if delay else ():
            self._later.put(now + delay, (one, ""))
        return [] if delay else super()._look_out(sending, now)


class DelaysNothing(FaultyMember):
    def __init__(self, member: Member, faults: Faults, *more: Any) -> None:
        super().__init__(member, faults._replace(last_delay_ns=0), *more)


class NeverFails(FaultyMember):
    def __init__(self, member: Member, faults: Faults, *more: Any) -> None:
        super().__init__(member, faults._replace(resends=1_000), *more)


class AltersNothing(FaultyMember):
    def decide(self, verdict: AckVerdict, now: int) -> None:
        super().decide(verdict._replace(seq=None), now)


@pytest.mark.parametrize(
    ("mutant", "test"),
    [
        (DelaysAll, test_a_delayed_acknowledgement_delays_nothing_else),
        (DelaysNothing, test_the_last_member_gets_messages_late_and_in_causal_order),
        (NeverFails, test_after_the_resends_a_member_counts_as_failed_and_the_rest_go_on),
        (AltersNothing, lambda: test_an_altered_acknowledgement_deceives_nobody(7)),
    ],
    ids=lambda value: getattr(value, "__name__", "test"),
)
def test_a_planted_fault_is_found(mutant: type[FaultyMember], test: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "FaultyMember", mutant)
    with pytest.raises((AssertionError, StopIteration, IndexError, RuntimeError)):
        test()


class Screen:
    """A keyboard that nobody types on."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, text: str) -> None:
        self.lines.append(text)


def test_a_number_that_an_acknowledgement_has_no_room_for_is_no_answer() -> None:
    """Found by reading: it was taken, and could not be sent."""
    screen, decided = Screen(), list[AckVerdict]()
    prompts = Prompts(screen, decided.append, numbers=True, delays=True)  # type: ignore[arg-type]
    prompts.ask(Question("peer", 0))
    for words in (str(2**32), "9" * 5_000, "-1", "²"):
        prompts.answer(words)
        assert screen.lines[-2] == f"{words!r} is no answer."
    prompts.answer(str(2**32 - 1))
    for words in ("9" * 30, "2000h"):
        prompts.answer(words)
        assert screen.lines[-2] == f"{words!r} is no answer."
    prompts.answer("2")
    assert decided == [AckVerdict(seq=2**32 - 1, delay_ns=2_000_000_000)]
