"""Whole groups in the simulator: real datagrams, real membership; the scenarios that need all parts together, by their names."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from tests.group_tools import retained_packets
from unisono.core.config import MILLISECOND, SECOND, Config
from unisono.core.errors import Misuse, NotPrimary
from unisono.core.member.member import Member, Settings
from unisono.core.membership.settings import MembershipSettings, Policy
from unisono.core.options import CastOptions
from unisono.core.streams.settings import StreamSettings
from unisono.core.types import Service
from unisono.orders.registry import ORDERS
from unisono.sim.group_world import QUICK, GroupWorld, Process


def load(world: GroupWorld, rounds: int, gap_s: float = 0.01, options: CastOptions | None = None) -> int:
    """Everyone who is up casts, again and again; how many casts were taken."""
    taken = 0
    for number in range(rounds):
        for process in world.up:
            taken += process.cast(f"{process.id}/{number}".encode(), options or CastOptions())
        world.run(gap_s)
    return taken


def passes(world: GroupWorld) -> None:
    verdict = world.finish()
    assert verdict.result == "PASS", f"{verdict}\n{world.story()}"


def with_membership(**changes: object) -> Settings:
    values = {name: getattr(QUICK.membership, name) for name in MembershipSettings.__slots__}
    return Settings(QUICK.config, QUICK.streams, QUICK.detector, MembershipSettings(**values | changes))


def texts(process: Process) -> list[bytes]:
    return [payload for _, payload in process.delivered]


@pytest.mark.parametrize("order", list(ORDERS))
def test_a_member_crashes_under_load_and_the_rest_agree(order: str) -> None:
    world = GroupWorld(order, seed=1)
    world.network.loss = 0.05
    world.gather("abcd")
    load(world, 20)
    world.crash("b")
    load(world, 40)
    passes(world)
    assert [view.members for view in world.processes["a"].views][-1] == tuple(world.processes[n].id for n in "acd")


def test_a6_c19_a_restart_at_the_same_address_is_a_new_member() -> None:
    """C19 and A6: old datagrams of the life before still fly, and count for nothing."""
    world = GroupWorld("sequencer", seed=2)
    world.network.replay = 0.3
    world.gather("abc")
    load(world, 20)
    world.restart("b", "abc")
    load(world, 60)
    assert world.run(5, lambda: world.is_one("abc")), world.story()
    load(world, 10)
    passes(world)
    assert world.network.replayed > 50
    both = [view for view in world.processes["a"].views if len({m.address for m in view.members}) < len(view)]
    assert not both, "no view holds two lives of one address"


def test_c14_a_long_pause_excludes_cleanly_and_the_member_comes_back() -> None:
    """C14: stopped for longer than the failure timeout, casts queued, then woken: excluded, learns it, rejoins as itself."""
    world = GroupWorld("abcast", seed=3)
    world.gather("abc")
    load(world, 10)
    world.pause("c", 2 * SECOND)
    load(world, 150)
    assert len(world.processes["a"].views[-1]) == 2
    assert world.run(6, lambda: world.is_one("abc")), world.story()
    assert world.processes["c"].id.incarnation == 0
    load(world, 10)
    passes(world)


def test_d4_d11_partitions_with_unstable_messages_merge_without_an_operator() -> None:
    """D4, D11: {a,b} | {c,d} with messages under way on both sides; each goes on; after the heal they find each other."""
    world = GroupWorld("causal", seed=4)
    world.gather("abcd")
    load(world, 5, gap_s=0.001)
    world.partition("ab", "cd")
    load(world, 200)
    assert {len(process.views[-1]) for process in world.up} == {2}
    world.network.partition(())
    assert world.run(8, lambda: world.is_one("abcd")), world.story()
    load(world, 10)
    passes(world)


def test_d2_a_one_way_link_does_not_stop_the_group() -> None:
    """D2: c hears everyone, nobody hears c's datagrams to a."""
    world = GroupWorld("sequencer", seed=5)
    world.gather("abc")
    world.network.cut("c", "a")
    load(world, 300)
    assert all(len(texts(world.processes[name])) > 100 for name in "ab")
    passes(world)


@pytest.mark.parametrize("order", ["sequencer", "fifo"])
def test_d3_a_broken_triangle_settles(order: str) -> None:
    """D3: a–b and b–c are up, a–c is cut."""
    world = GroupWorld(order, seed=6)
    world.gather("abc")
    world.network.cut("a", "c")
    world.network.cut("c", "a")
    load(world, 400)
    changes = [len(process.views) for process in world.up]
    load(world, 200)
    assert [len(process.views) for process in world.up] == changes, "views do not flap"
    passes(world)


def test_d14_clocks_that_drift_do_not_matter() -> None:
    """D14: ten per cent, both ways."""
    world = GroupWorld("toto", seed=7)
    world.gather("abc")
    world.processes["a"].drift(1.1)
    world.processes["b"].drift(0.9)
    load(world, 200)
    assert [len(process.views) for process in world.up] == [1, 1, 1]
    passes(world)


def test_d15_a_collapse_of_bandwidth_is_survived() -> None:
    """D15: one member's line carries next to nothing for a while."""
    world = GroupWorld("sequencer", seed=8)
    world.gather("abc")
    world.network.bytes_per_s["b"] = 8_000
    load(world, 200)
    world.network.bytes_per_s.clear()
    load(world, 20)
    passes(world)


def test_c18_everyone_starts_at_once_and_forms_one_group() -> None:
    """C18, with all parts: few views, one group."""
    names = [f"m{number}" for number in range(16)]
    world = GroupWorld("sequencer", seed=9)
    world.gather(names, seconds=20)
    assert max(len(process.views) for process in world.up) <= 4
    load(world, 3)
    passes(world)


def test_c9_leaving_in_an_orderly_way_loses_nothing() -> None:
    """C8, C9: the coordinator and the next in line leave at once, under load."""
    world = GroupWorld("tomp", seed=10)
    world.gather("abcd")
    load(world, 20)
    world.leave("a")
    world.leave("b")
    load(world, 60)
    assert all(process.ended for process in world.lives if process.id.address in "ab")
    passes(world)


@pytest.mark.parametrize("collect", ["star", "ring"])
@pytest.mark.parametrize("leaver", ["a", "b"])
def test_c8_one_that_leaves_before_it_has_a_view_takes_nothing_in(leaver: str, collect: str) -> None:
    """C8, P17: it has confirmed its first view, a as the proposer. What it acknowledged there, nobody would have received."""
    world = GroupWorld("causal", seed=18, settings=with_membership(collect=collect))
    world.start("a", "b", seeds="ab")
    gone = world.processes[leaver]
    assert world.run(5, lambda: gone.member._membership.uninstalled is not None), world.story()
    world.leave(leaver)
    assert gone.ended
    load(world, 200, options=CastOptions(safe=True))
    assert gone.views == []
    assert gone.delivered == []
    assert len(texts(world.up[0])) > 0, world.story()
    passes(world)


def test_the_order_is_switched_on_a_running_group() -> None:
    """Nothing is lost or delivered twice; the new order begins with the next view."""
    world = GroupWorld("fifo", seed=11, owed=())
    world.gather("abc")
    taken = load(world, 20)
    world.processes["b"].member.switch("causal")
    world.processes["b"].turn()
    taken += load(world, 40)
    assert [process.member.order for process in world.up] == ["causal"] * 3
    passes(world)
    said = [sorted(texts(process)) for process in world.lives]
    assert said[0] == said[1] == said[2]
    assert len(said[0]) == taken + len(said), "every cast and everyone's last words, each once"


def test_d16_a_primary_partition_goes_on_and_the_others_are_read_only() -> None:
    """D16: 5 → {3,2} → {2,1,2} → heal."""
    settings = with_membership(policy=Policy.PRIMARY, peers=tuple("abcde"))
    world = GroupWorld("sequencer", seed=12, settings=settings, owed=("P20",))
    world.gather("abcde")
    assert all(process.member.is_primary for process in world.up)
    world.partition("abc", "de")
    world.run(3)
    assert [world.processes[name].member.is_primary for name in "abcde"] == [True, True, True, False, False]
    with pytest.raises(
        NotPrimary, match=r"it has 2 of the 5 members of the last primary, view \S+, and needs 3; missing: a, b, c\. "
    ):
        world.processes["d"].member.cast(b"no")
    world.partition("ab", "c", "de")
    world.run(3)
    assert [world.processes[name].member.is_primary for name in "abcde"] == [True, True, False, False, False]
    world.network.partition(())
    assert world.run(10, lambda: world.is_one("abcde")), world.story()
    assert all(process.member.is_primary for process in world.up)
    passes(world)


def test_a_cast_that_waits_for_the_next_view_waits_for_a_primary_one() -> None:
    settings = with_membership(policy=Policy.PRIMARY, peers=tuple("abcde"))
    world = GroupWorld("sequencer", seed=4, settings=settings, owed={"P20"})
    world.gather("abcde")
    world.partition("abc", "de")
    minority = world.processes["e"]
    assert world.run(10, lambda: minority.member.is_blocked)
    assert minority.member.is_primary, "it does not know yet"
    assert minority.cast(b"waits")
    assert world.run(10, lambda: world.is_one("de"))
    world.run(1)
    assert not minority.member.is_primary
    assert b"waits" not in texts(minority)
    world.network.heal()
    assert world.run(20, lambda: all(b"waits" in texts(process) for process in world.up)), world.story()
    assert all(texts(process).count(b"waits") == 1 for process in world.up)
    passes(world)


def test_a_record_outlives_a_life_that_wrote_none() -> None:
    """a knows of the primary {a, b}, and its next life confirms no primary; the life after that must not forget it with c."""
    settings = with_membership(policy=Policy.PRIMARY, peers=tuple("abc"))
    world = GroupWorld("sequencer", seed=15, settings=settings, owed={"P20"})
    world.gather("abc")
    world.partition("ab", "c")
    assert world.run(10, lambda: world.is_one("ab") and world.is_one("c")), world.story()
    assert [world.processes[name].member.is_primary for name in "abc"] == [True, True, False]
    world.partition("ac", "b")
    for _ in range(3):
        world.restart("a", "abc")
        assert world.run(10, lambda: world.is_one("ac")), world.story()
        assert not world.processes["a"].member.is_primary, "one of two is no majority of the last primary"
    world.network.heal()
    assert world.run(10, lambda: world.is_one("abc")), world.story()
    assert all(process.member.is_primary for process in world.up)
    passes(world)


def test_joiners_with_other_settings_are_refused_with_the_reason() -> None:
    world = GroupWorld("sequencer", seed=13)
    world.gather("ab")
    other = Settings(Config(batch_messages_max=7), QUICK.streams, QUICK.detector, QUICK.membership)
    (stranger,) = world.start("x", seeds="ab", settings=other)
    world.run(1)
    assert any("batch_messages_max=7" in reason for reason in stranger.refusals), stranger.refusals
    assert world.is_one("ab"), "the group did not notice"
    world.crash("x")
    passes(world)


def test_who_has_sent_a_wrong_packet_is_put_out_and_forgiven_later() -> None:
    world = GroupWorld("sequencer", seed=3)
    world.gather("abc")
    wrong = world.processes["b"].member
    assert wrong.streams is not None
    wrong.streams.cast(b"\xff no packet")  # as a stranger's datagram, or a damaged one, would look
    world.processes["b"].turn()
    assert world.run(5, lambda: world.is_one("ac")), world.story()
    assert world.run(60, lambda: world.is_one("abc")), world.story()
    load(world, 5)
    passes(world)


@pytest.mark.parametrize("order", ["fifo", "sequencer", "abcast", "toto"])
def test_safe_messages_survive_a_crash_right_after_delivery(order: str) -> None:
    """P17: whoever delivered a safe message knew that everybody's ordering had taken it in."""
    world = GroupWorld(order, seed=14, owed=("P17",))
    world.network.loss = 0.1
    world.gather("abc")
    load(world, 30, options=CastOptions(safe=True))
    world.crash("a")
    load(world, 30, options=CastOptions(safe=True))
    passes(world)


class Hasty(Member):
    """Shows safe messages at once."""

    def _take_engine_turn(self, streams, effects):  # type: ignore[no-untyped-def]
        streams.taken_by_all[:] = [2**40] * len(streams.taken_by_all)
        super()._take_engine_turn(streams, effects)


def test_a_member_that_shows_safe_messages_at_once_is_caught() -> None:
    """C21 too: stability must be counted over the members of the view, as they are."""
    world = GroupWorld("sequencer", seed=15, kind=Hasty, owed=("P17",))
    world.gather("abc")
    for other in "bc":
        world.network.cut("a", other)
    load(world, 4, options=CastOptions(safe=True))
    world.crash("a")
    verdict = world.finish()
    assert "P17" in verdict.broken, verdict


def test_e9_memory_is_bounded_when_a_receiver_stands_still() -> None:
    """E9: a caster that nobody listens to is refused; what is kept stays within the window."""
    streams = StreamSettings(window_bytes=64 * 1024, window_packets=500, window_bytes_start=64 * 1024)
    settings = Settings(QUICK.config, streams, QUICK.detector, QUICK.membership)
    world = GroupWorld("fifo", seed=16, settings=settings)
    world.gather("ab")
    world.pause("b", 150 * MILLISECOND)
    caster = world.processes["a"]
    taken = 0
    for _ in range(20_000):
        taken += caster.cast(bytes(200))
    assert taken < 2_000, "the caster felt it"
    member = caster.member
    assert member.streams is not None
    assert member.streams.kept_bytes < 256 * 1024
    world.run(1)
    assert load(world, 20) == 40, "and goes on when the receiver does"
    passes(world)


def test_retained_packets_are_forgotten_once_all_have_taken_them_in() -> None:
    world = GroupWorld("sequencer", seed=17)
    world.gather("abc")
    load(world, 300)
    world.run(1)
    for process in world.up:
        assert len(retained_packets(process.member)) < 30, "a thousand slots were cast"
    passes(world)


def test_the_same_seed_gives_the_same_run() -> None:
    def digest(seed: int) -> list[tuple[bytes, ...]]:
        world = GroupWorld("toto", seed)
        world.network.loss = 0.2
        world.gather("abcd")
        load(world, 30)
        world.crash("c")
        load(world, 30)
        world.finish()
        return [tuple(texts(process)) for process in world.lives]

    assert digest(5) == digest(5)
    assert digest(5) != digest(6)


def test_explain_names_whom_a_message_waits_for() -> None:
    world = GroupWorld("sequencer", seed=18)
    world.gather("abc")
    world.pause("a", 150 * MILLISECOND)
    world.processes["b"].cast(b"x")
    world.run(0.05)
    said: Iterable[str] = world.processes["b"].member.explain()
    assert any("b:0 is held back at b" in one and "waits for a" in one for one in said), list(said)
    passes(world)


def test_a_safe_message_of_one_who_is_alone_is_shown_in_its_turn() -> None:
    """Found by reading: it waited for the next turn, whatever that was for."""
    world = GroupWorld("sequencer", seed=31)
    (a,) = world.gather("a")
    a.cast(b"x", CastOptions(safe=True))
    assert texts(a) == [b"x"]


def test_a_message_to_more_than_can_be_kept_is_refused_and_harms_nobody() -> None:
    """Found by reading: it was accepted, and stopped the member in its turn."""
    streams = StreamSettings(
        window_bytes=64 * 1024, window_bytes_start=64 * 1024, kept_bytes_max=400_000, packet_bytes_max=200_000
    )
    config = replace(QUICK.config, payload_bytes_max=150_000, batch_bytes_max=150_000)
    world = GroupWorld("fifo", seed=32, settings=Settings(config, streams, QUICK.detector, QUICK.membership))
    a, *others = world.gather("abcd")
    everyone = CastOptions(to=tuple(process.id for process in others))
    with pytest.raises(Misuse, match="a message of 100000 bytes to 3 members takes more than"):
        a.member.cast(bytes(100_000), everyone)
    assert a.cast(bytes(80_000), everyone)
    passes(world)


def test_under_rmp_a_message_that_waits_for_the_lock_is_not_stable_because_a_later_one_is() -> None:
    """Found by reading: the receipt of a message that never left said that every member had it."""
    world = GroupWorld("rmp", seed=33)
    a, _, _ = world.gather("abc")
    for name in "bc":
        world.network.cut(name, "a")
    assert a.cast(b"ordered")
    world.run(0.01)
    assert a.cast(b"at once", CastOptions(service=Service.FIFO))
    assert texts(a)[-1:] == [b"at once"], "the second one was delivered here"
    assert a.member.streams is not None
    a.member.streams.taken_by_all[:] = [2**40] * 3
    a.member.drain(a.clock())
    assert a.member.settled_index == 0
    world.network.heal()
    world.run(1)
    assert a.member.settled_index == 2
    passes(world)
