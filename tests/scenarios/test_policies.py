"""Receivers that stay slow, as whole members: each policy, who is named, what the evicted one learns, and when it comes back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

from unisono.core.config import MILLISECOND, SECOND, Config
from unisono.core.departure import Cause
from unisono.core.errors import ConfigError, Misuse, Shed
from unisono.core.member import Effects, Entered
from unisono.core.member.member import Member, Settings
from unisono.core.member.settings import FlowSettings, Slow
from unisono.core.member.watchdog import Watchdog
from unisono.core.membership.contacts import Contacts
from unisono.core.membership.context import Context, Engine, Evicted, Installer
from unisono.core.membership.departures import Departures
from unisono.core.streams.outbound import Slowness
from unisono.core.streams.settings import KIB, StreamSettings
from unisono.core.streams.streams import Streams
from unisono.core.types import Batch, MemberId, View, ViewId
from unisono.orders.registry import ORDERS
from unisono.sim.group_swarm import try_group_seed
from unisono.sim.group_world import QUICK, GroupWorld, SimulatedProcess

pytestmark = pytest.mark.seconds

ROOM = 20
"""So many packets of one origin the slow application can queue."""


def settings(slow: Slow, **changes: Any) -> Settings:
    flow = FlowSettings(
        slow=slow, evict_after_ns=800 * MILLISECOND, evict_datagrams_min=50, look_ns=50 * MILLISECOND, **changes
    )
    membership = replace(QUICK.membership, rest_ns=2 * SECOND, rest_ns_max=20 * SECOND, drain_wait_ns=6 * SECOND)
    return replace(QUICK, flow=flow, membership=membership)


class Reader:
    """An application that queues what it is shown and reads at its own pace; its room is told to the member."""

    def __init__(self, process: SimulatedProcess, gap_ns: int) -> None:
        self.process, self.gap_ns = process, gap_ns
        self.queue = self.read = 0
        process.on_event = self._on_event
        process.member.set_free_room(ROOM)
        process.world.after(gap_ns, self._take_one)

    def _on_event(self, process: SimulatedProcess, event: object) -> None:
        if isinstance(event, Batch):
            self.queue += 1
            self._tell()

    def _take_one(self) -> None:
        if self.queue and self.process.is_up:
            self.queue -= 1
            self.read += 1
            self._tell()
            self.process.turn()
        self.process.world.after(self.gap_ns, self._take_one)

    def _tell(self) -> None:
        self.process.member.set_free_room(max(0, ROOM - self.queue))


class Caster:
    """Casts whenever it may, every 5 ms, and counts what became of it."""

    def __init__(self, process: SimulatedProcess) -> None:
        self.process, self.gap_ns = process, 5 * MILLISECOND
        self.taken = self.waited = 0
        self.is_over = False
        self.shed: list[str] = []
        process.world.after(self.gap_ns, self._cast)

    def _cast(self) -> None:
        process = self.process
        if process.is_up and process.view is not None and not self.is_over:
            try:
                key = process.member.cast(b"x" * 100)
            except Shed as error:
                self.shed.append(str(error))
            else:
                self.taken += key is not None
                self.waited += key is None
            process.turn()
            process.world.after(self.gap_ns, self._cast)


def entered(process: SimulatedProcess) -> list[Entered]:
    """Collects the views of a process from now on, beside whatever else listens."""
    seen: list[Entered] = []
    listen(process, lambda event: seen.append(event) if isinstance(event, Entered) else None)
    return seen


def evictions(process: SimulatedProcess) -> list[Evicted]:
    seen: list[Evicted] = []
    listen(process, lambda event: seen.append(event) if isinstance(event, Evicted) else None)
    return seen


def listen(process: SimulatedProcess, hear: Callable[[object], None]) -> None:
    before = process.on_event

    def both(process: SimulatedProcess, event: object) -> None:
        hear(event)
        if before is not None:
            before(process, event)

    process.on_event = both


def one_slow_reader(
    slow: Slow, seed: int, kind: type[Member] = Member, gap_ns: int = 500 * MILLISECOND
) -> tuple[GroupWorld, Reader, Caster]:
    """E1: a, b and c; c's application reads at one per cent of the speed at which a casts."""
    world = GroupWorld("sequencer", seed, settings=settings(slow), kind=kind)
    world.gather("abc")
    return world, Reader(world.processes["c"], gap_ns), Caster(world.processes["a"])


def passes(world: GroupWorld, caster: Caster) -> None:
    caster.is_over = True
    verdict = world.finish(bound_ns=25 * SECOND)
    assert verdict.result == "PASS", f"{verdict}\n{world.story()}"


# E1.


def test_e1_block_slows_the_caster_down_and_names_the_slow_one() -> None:
    world, reader, caster = one_slow_reader(Slow.BLOCK, 1)
    world.run(4)
    assert caster.waited > 500
    assert not caster.shed
    assert reader.read <= caster.taken <= reader.read + ROOM + 5, "no faster than it reads"
    culprit = world.processes["a"].member.slowest
    assert culprit is not None
    assert (culprit.member, culprit.why) == (world.processes["c"].id, Slowness.ROOM)
    assert 2 * SECOND < culprit.lasted_ns < 4 * SECOND
    assert len(world.processes["a"].views) == 1, "nobody is thrown out"
    reader.gap_ns = MILLISECOND
    passes(world, caster)


def test_e1_shed_refuses_at_once_and_says_whom_to_thank() -> None:
    world, reader, caster = one_slow_reader(Slow.SHED, 2)
    world.run(4)
    assert len(caster.shed) > 500
    assert not caster.waited, "under this policy nobody is told to wait"
    assert "c holds the window shut, because it has no room for more" in caster.shed[-1]
    assert len(world.processes["a"].views) == 1
    reader.gap_ns = MILLISECOND
    caster.is_over = True
    world.run(1)
    assert world.processes["b"].delivered == world.processes["a"].delivered
    sent = [payload for _, payload in world.processes["b"].delivered]
    assert len(sent) == caster.taken, "what got a key is delivered, everything else left no trace"
    passes(world, caster)


def test_e1_evict_removes_the_slow_one_and_everyone_knows_why() -> None:
    world, reader, caster = one_slow_reader(Slow.EVICT, 3)
    views = {name: entered(world.processes[name]) for name in "ab"}
    told = evictions(world.processes["c"])
    assert world.run(3, lambda: all(len(world.processes[name].views[-1]) == 2 for name in "ab")), world.story()
    c = world.processes["c"].id
    for name in "ab":
        (departure,) = views[name][0].left.values()
        assert (departure.member, departure.cause, departure.by) == (c, Cause.SLOW, world.processes["a"].id)
        assert departure.lasted_ns >= 800 * MILLISECOND
        assert "evicted: a could not cast" in str(departure)
    before = caster.taken
    world.run(0.5)
    assert caster.taken - before > 80, "the others go on at full speed"
    assert [event.by for event in told] == [world.processes["a"].id], "the evicted one learns it, once"
    reader.gap_ns = MILLISECOND
    assert world.run(6, lambda: world.is_one("abc")), world.story()
    passes(world, caster)


def test_explain_says_who_holds_the_window_shut() -> None:
    world, _, _ = one_slow_reader(Slow.BLOCK, 13)
    world.run(1)
    said = world.processes["a"].member.explain()
    assert any(one.startswith("casts wait at a: c holds the window shut, because it has no room") for one in said), said


def test_large_messages_are_much_work_and_not_slowness() -> None:
    """A line carries few of them in the time, but many datagrams."""
    world = GroupWorld("fifo", 14, settings=settings(Slow.EVICT))
    world.gather("ab")
    a, b = world.processes["a"], world.processes["b"]
    world.network.bytes_per_s["a"] = 1_000_000
    for _ in range(600):
        a.cast(bytes(400_000))
        world.run(0.005)
    assert a.member.counters.casts_refused > 100
    assert 2 <= len(b.delivered) <= 20, "so few that a count of messages would call it slow"
    assert len(a.views) == 1


def test_without_counting_datagrams_large_messages_would_be_slowness(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Streams, "acknowledged_by", lambda self, peer: self.packets_cast - self.window_use()[peer])
    with pytest.raises(AssertionError):
        test_large_messages_are_much_work_and_not_slowness()


def test_a_member_blames_nobody_for_its_own_rate() -> None:
    """Something is always in flight and not yet acknowledged, but what waits does not wait for that."""
    given = settings(Slow.EVICT)
    slowly = replace(given, streams=replace(given.streams, rate_bytes_per_s=10_000))
    world = GroupWorld("fifo", 15, settings=slowly, delay="constant:80ms")
    world.gather("ab")
    a = world.processes["a"]
    views = len(a.views)
    for _ in range(600):
        a.cast(bytes(100_000))
        world.run(0.005)
    assert a.member.counters.casts_refused > 100
    assert len(a.views) == views
    assert any("casts wait at a: its own rate limit holds them" in one for one in a.member.explain())


def test_a_member_that_forgets_its_own_rate_blames_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Streams, "is_paced", False)
    with pytest.raises(AssertionError):
        test_a_member_blames_nobody_for_its_own_rate()


def test_a_busy_receiver_is_not_slow() -> None:
    """A window that is full all the time is what a healthy group under full load looks like: pace counts, not time."""
    world, _, caster = one_slow_reader(Slow.EVICT, 4, gap_ns=8 * MILLISECOND)
    world.run(4)
    assert caster.waited > 50, "its window was shut again and again"
    assert len(world.processes["a"].views) == 1
    passes(world, caster)


class EvictsByTheClock(Member):
    """A fault: who holds the window shut for long goes, however much it takes in."""

    def __init__(self, member: MemberId, group: str, orders: Any, order: str, given: Settings, *rest: Any) -> None:
        flow = replace(given.flow, evict_datagrams_min=2**31 - 1)
        super().__init__(member, group, orders, order, replace(given, flow=flow), *rest)


def test_without_the_pace_a_busy_receiver_would_be_evicted() -> None:
    world, _, _ = one_slow_reader(Slow.EVICT, 4, kind=EvictsByTheClock, gap_ns=8 * MILLISECOND)
    world.run(4)
    assert len(world.processes["a"].views) > 1


@pytest.mark.parametrize("order", ["sequencer", "toto", "all-ack"])
def test_a_member_that_casts_and_does_not_read_is_evicted(order: str) -> None:
    """Others answer its messages, and it acknowledges the answers: that looked like the pace of a busy receiver."""
    world = GroupWorld(order, 5, settings=settings(Slow.EVICT))
    world.gather("abc")
    Reader(world.processes["c"], gap_ns=3_600 * SECOND)
    for name in "ac":
        Caster(world.processes[name])
    assert world.run(3, lambda: all(len(world.processes[name].views[-1]) == 2 for name in "ab")), world.story()
    assert world.processes["a"].member.counters.casts_refused > 50


@pytest.mark.parametrize("order", ["sequencer", "toto", "all-ack"])
def test_a_member_that_casts_and_reads_slowly_is_not_evicted(order: str) -> None:
    world = GroupWorld(order, 6, settings=settings(Slow.EVICT))
    world.gather("abc")
    Reader(world.processes["c"], gap_ns=4 * MILLISECOND)
    casters = [Caster(world.processes[name]) for name in "ac"]
    world.run(4)
    assert casters[0].waited > 50, "its window was shut again and again"
    assert len(world.processes["a"].views) == 1
    casters[1].is_over = True
    passes(world, casters[0])


@pytest.mark.parametrize("slow", "abc")
def test_whoever_is_slow_goes_and_whoever_says_so_stays(slow: str) -> None:
    """The coordinator too, and also if the accuser comes after the accused: an eviction points one way."""
    others = "abc".replace(slow, "")
    for accuser in others:
        world = GroupWorld("fifo", f"{slow}/{accuser}", settings=settings(Slow.EVICT))
        world.gather("abc")
        Reader(world.processes[slow], 500 * MILLISECOND)
        Caster(world.processes[accuser])
        wanted = [world.processes[name].id for name in others]
        gone = lambda: all(list(world.processes[n].views[-1].members) == wanted for n in others)  # noqa: B023, E731
        assert world.run(3, gone), world.story()


class Unshielded(Departures):
    """A fault: an eviction is told like a suspicion, and the coordinator takes nobody's side."""

    def hear(self, sender, grounds, view):  # type: ignore[no-untyped-def]
        accused = [ground.member for ground in grounds if ground.cause is Cause.SLOW]
        super().hear(sender, [ground for ground in grounds if ground.cause is not Cause.SLOW], view)
        if accused:
            victim = max(sender, *accused)
            self.evicting.setdefault(victim, grounds[0]._replace(member=victim))


def test_an_eviction_that_does_not_point_one_way_hits_the_accuser(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unisono.core.membership.membership.Departures", Unshielded)
    with pytest.raises(AssertionError):
        test_whoever_is_slow_goes_and_whoever_says_so_stays("b")


# Coming back.


def test_an_evicted_member_comes_back_only_when_it_has_drained() -> None:
    world, reader, _ = one_slow_reader(Slow.EVICT, 5)
    told = evictions(world.processes["c"])
    world.run(5, lambda: bool(told))
    reader.gap_ns = 10**15  # it takes nothing at all any more
    assert not world.run(4.5, lambda: world.is_one("abc")), "its rest of 2 s is over, but it has not drained"
    assert any("was evicted" in said and "drained" in said for said in world.processes["c"].member.explain())
    reader.queue = 0
    reader._tell()
    assert world.run(2, lambda: world.is_one("abc")), world.story()


def test_an_evicted_member_that_never_drains_comes_back_in_the_end_and_rests_longer_each_time() -> None:
    """No cycle of join and evict at high frequency: the rests double, even though it is slow for ever."""
    world, reader, caster = one_slow_reader(Slow.EVICT, 6)
    told = evictions(world.processes["c"])
    reader.gap_ns, caster.gap_ns = 10**15, 50 * MILLISECOND
    world.run(30)
    assert 2 <= len(told) <= 4, "it was let in again, and not all the time"
    rests = [event.rest_ns for event in told]
    assert rests == sorted(rests)
    assert rests[0] == 2 * SECOND
    assert rests[1] == 4 * SECOND


class Restless(Departures):
    """A fault: nobody turns an evicted member away, and it does not wait either."""

    def is_resting(self, member):  # type: ignore[no-untyped-def]
        return False

    @property
    def rests(self) -> bool:
        return False


def test_without_a_rest_join_and_evict_follow_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unisono.core.membership.membership.Departures", Restless)
    world, reader, caster = one_slow_reader(Slow.EVICT, 6)
    told = evictions(world.processes["c"])
    reader.gap_ns, caster.gap_ns = 10**15, 50 * MILLISECOND
    world.run(30)
    assert len(told) > 8


def test_one_that_does_not_know_that_it_was_evicted_is_told_when_it_comes() -> None:
    """The first dismissal is lost: it greets, is turned away, and learns it."""
    world, _, _ = one_slow_reader(Slow.EVICT, 7)
    told = evictions(world.processes["c"])
    ab = [world.processes[name] for name in "ab"]
    assert world.run(3, lambda: any(process.member.state.is_blocked for process in ab)), world.story()
    for name in "ab":
        world.network.cut(name, "c")
    world.run(1)
    assert not told
    world.network.heal()
    assert world.run(2, lambda: bool(told)), world.story()
    assert not world.is_one("abc")


def test_two_members_alone_can_evict_each_other_and_the_one_that_stays_turns_the_other_away() -> None:
    world = GroupWorld("fifo", 8, settings=settings(Slow.EVICT))
    world.gather("ab")
    Reader(world.processes["b"], 500 * MILLISECOND)
    Caster(world.processes["a"])
    told = evictions(world.processes["b"])
    assert world.run(3, lambda: len(world.processes["a"].views[-1]) == 1), world.story()
    world.run(1)
    assert told
    assert not world.is_one("ab")


# E2.


@pytest.mark.parametrize("slow", list(Slow))
def test_e2_the_slow_member_crashes_while_a_sender_waits_for_its_window(slow: Slow) -> None:
    streams = replace(QUICK.streams, window_bytes=8 * KIB, window_packets=20, window_bytes_start=8 * KIB)
    world = GroupWorld("sequencer", 9, settings=replace(settings(slow), streams=streams))
    world.gather("abc")
    world.pause("c", 10 * SECOND)
    caster = Caster(world.processes["a"])
    views = entered(world.processes["a"])
    world.run(0.2)
    taken = caster.taken
    assert caster.waited + len(caster.shed) > 5, "the window is shut"
    culprit = world.processes["a"].member.slowest
    assert culprit is not None
    assert culprit.member == world.processes["c"].id
    world.crash("c")
    assert world.run(3, lambda: bool(views)), world.story()
    (departure,) = views[0].left.values()
    assert departure.cause is Cause.SUSPECTED, "a silent member is suspected, and not called slow"
    world.run(0.5)
    assert caster.taken > taken + 50, "and the sender goes on"
    passes(world, caster)


# Settings.


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"slow": "drop"}, "slow must be block, shed or evict"),
        ({"slow": Slow.EVICT, "evict_after_ns": SECOND}, "less than two looks"),
        ({"evict_datagrams_min": 0}, "out of range"),
        ({"look_ns": True}, "must be a whole number"),
        ({"stall_ns": MILLISECOND}, "shorter look_ns"),
    ],
)
def test_impossible_policies_are_refused_with_a_sentence(wrong: dict[str, Any], sentence: str) -> None:
    with pytest.raises(Misuse, match=sentence):
        FlowSettings(**wrong)


def test_settings_that_do_not_fit_each_other_are_refused() -> None:
    with pytest.raises(ConfigError, match="a silent member should be suspected"):
        Settings(flow=FlowSettings(slow=Slow.EVICT, evict_after_ns=SECOND, look_ns=MILLISECOND))
    with pytest.raises(ConfigError, match="two windows and one packet"):
        Settings(streams=StreamSettings(kept_bytes_max=20 << 20))
    for config in (Config(payload_bytes_max=17 << 20), Config(batch_bytes_max=17 << 20), Config(members_max=60_000)):
        with pytest.raises(ConfigError, match="packet_bytes_max = 16842752 cannot hold"):
            Settings(config)
    with pytest.raises(ConfigError, match="rest_ns_max"):
        replace(QUICK.membership, rest_ns=SECOND, rest_ns_max=MILLISECOND)


# Who must go, by the piece.


A, B, C = (MemberId(name) for name in "abc")
VIEW = View(ViewId(1, A), (A, B, C))


def departures_of(member: MemberId) -> Departures:
    settings = QUICK.membership
    context = Context(member, cast(Engine, None), cast(Installer, None), ORDERS, "fifo", QUICK.config, settings)
    return Departures(context, Contacts(member, settings))


def test_of_two_that_find_each_other_slow_the_first_accuser_stays() -> None:
    departures = departures_of(A)
    for accuser, accused in ((C, B), (B, C)):
        other = departures_of(accuser)
        other.evict(accused, SECOND)
        departures.hear(accuser, other.told(()), VIEW)
    assert list(departures.evicting) == [B]
    assert departures.evicting[B].by == C


def test_nobody_is_evicted_on_the_word_of_a_third_about_itself_or_me() -> None:
    departures, other = departures_of(A), departures_of(B)
    for accused in (A, B, MemberId("x")):
        other.evict(accused, SECOND)
    departures.hear(B, other.told(()), VIEW)
    assert not departures.evicting


def test_the_watch_is_asleep_unless_it_is_needed() -> None:
    """Under `block` and without a watchdog, a look never wakes anybody."""
    for slow, stall_ns, needed in ((Slow.BLOCK, None, False), (Slow.EVICT, None, True), (Slow.SHED, SECOND, True)):
        world = GroupWorld("fifo", 12, settings=settings(slow, stall_ns=stall_ns))
        world.gather("a")
        watch = world.processes["a"].member._watchdog
        assert isinstance(watch, Watchdog)
        assert watch.is_needed is needed


# Evictions among all other faults.


class Torn(Member):
    """Its application stops and goes on at random for four seconds, and everyone who holds a window shut for a moment goes."""

    def __init__(self, member: MemberId, group: str, orders: Any, order: str, given: Settings, *rest: Any) -> None:
        flow = replace(settings(Slow.EVICT).flow, evict_after_ns=300 * MILLISECOND, evict_datagrams_min=2**31 - 1)
        rests = replace(
            given.membership, rest_ns=300 * MILLISECOND, rest_ns_max=600 * MILLISECOND, drain_wait_ns=SECOND
        )
        super().__init__(member, group, orders, order, replace(given, flow=flow, membership=rests), *rest)

    def act(self, now: int) -> Effects:
        if self.now >= 4 * SECOND:
            self.set_free_room(None)
        elif self._random.random() < 0.01:
            self.set_free_room(self._random.choice((0, 0, 5, None)))
        effects = super().act(now)
        EVICTIONS.extend(event for event in effects.events if isinstance(event, Evicted))
        return effects


EVICTIONS: list[Evicted] = []


def torment(orders: Sequence[str], seeds: Sequence[int]) -> None:
    EVICTIONS.clear()
    for order in orders:
        for seed in seeds:
            run = try_group_seed(order, seed, kind=Torn)
            assert run.sentence is None, f"{order} seed {seed}: {run.sentence}"
    assert EVICTIONS, "nobody was evicted: this showed nothing"


def test_evictions_in_the_middle_of_everything_break_no_promise() -> None:
    torment(("sequencer", "causal"), (0, 2))


@pytest.mark.slow
def test_many_evictions_in_the_middle_of_everything_break_no_promise() -> None:
    torment(list(ORDERS), range(20))
