"""Receivers that stay slow: settings that cannot be, who must go, and evictions among all other faults. Stories (`e1_*`, `e2_*`)
tell of each policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

from unisono.core.config import MILLISECOND, SECOND, Config
from unisono.core.errors import ConfigError, Misuse
from unisono.core.member import Effects
from unisono.core.member.member import Member, Settings
from unisono.core.member.settings import FlowSettings, Slow
from unisono.core.member.watchdog import Watchdog
from unisono.core.membership.contacts import Contacts
from unisono.core.membership.context import Context, Engine, Evicted, Installer
from unisono.core.membership.departures import Departures
from unisono.core.streams.settings import StreamSettings
from unisono.core.types import MemberId, View, ViewId
from unisono.orders.registry import ORDERS
from unisono.sim.group_swarm import try_group_seed
from unisono.sim.group_world import QUICK, GroupWorld

pytestmark = pytest.mark.seconds


def settings(slow: Slow, **changes: Any) -> Settings:
    flow = FlowSettings(
        slow=slow, evict_after_ns=800 * MILLISECOND, evict_datagrams_min=50, look_ns=50 * MILLISECOND, **changes
    )
    membership = replace(QUICK.membership, rest_ns=2 * SECOND, rest_ns_max=20 * SECOND, drain_wait_ns=6 * SECOND)
    return replace(QUICK, flow=flow, membership=membership)


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
