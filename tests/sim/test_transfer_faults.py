"""State transfer and the merge of states under faults: C22, D4, D9 and their like, on whole groups."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from unittest.mock import patch

import pytest

from tests.mutants import transfer_mutants as mutants
from tests.transfer_swarm import ORDERS, run_transfer_seed
from tests.transfer_world import AppProcess, TransferWorld
from unisono.core.config import MILLISECOND, SECOND
from unisono.core.types import MemberId
from unisono.services.transfer.transfer import Status, Transfer
from unisono.sim.group_state import BRISK, Reading
from unisono.trace.checks import Result
from unisono.trace.schema import Event
from unisono.trace.sinks import MemorySink
from unisono.trace.state_line import StateLine

MIB = 1024 * 1024


def gathered(order: str = "sequencer", names: str = "abc", **options: object) -> TransferWorld:
    world = TransferWorld(order, **options)  # type: ignore[arg-type]
    world.gather(list(names))
    assert world.run(5, lambda: world.all_live(names)), world.story()
    return world


def conclude(world: TransferWorld) -> None:
    verdict = world.conclude()
    assert verdict.result is Result.PASS, str(verdict)


def join(world: TransferWorld, name: str, seeds: str = "abc") -> AppProcess:
    world.start(name, seeds=list(seeds))
    return world.app(name)


def pulls(process: AppProcess) -> bool:
    """Whether it is in the middle of a transfer."""
    progress = process.transfer.progress
    return progress is not None and progress.total_bytes is not None and progress.here_bytes > progress.total_bytes // 3


def donor_of(process: AppProcess) -> str:
    progress = process.transfer.progress
    assert progress is not None
    assert progress.donor is not None
    return progress.donor.address


# Joining.


@pytest.mark.parametrize("order", ORDERS)
def test_an_application_that_has_not_read_yet_gives_the_state_that_it_began_with(order: str) -> None:
    """As where nothing is recorded: the ledger says what is in that state, and P19 is asked of it."""
    sink = MemorySink()
    slow = Reading(first_ns=4 * SECOND)
    world = TransferWorld(order, ballast=2_000, reading=lambda member: slow, sinks=lambda member: (sink,))
    first = join(world, "a", "")
    assert world.run(2, lambda: first.transfer.is_live), world.story()
    second = join(world, "b", "a")
    assert world.run(1, lambda: second.transfer.is_live), world.story()
    third = join(world, "c", "ab")
    assert world.run(1, lambda: third.transfer.is_live), world.story()
    assert first.app.is_untouched, "nobody has read anything"
    assert len(second.app.restored) == len(third.app.restored) == 1
    stop = world.load("abc", gap_ns=20 * MILLISECOND)
    world.run(4)
    stop()
    conclude(world)
    assert {event.kind for event in sink.events} >= {"SNAPSHOT_OUT", "SNAPSHOT_IN"}
    assert len(first.app.log) > 100


def test_a_joiner_that_stays_and_never_pulls_does_not_keep_a_snapshot_alive() -> None:
    world = gathered(ballast=100_000, transfer_settings=replace(BRISK, hold_ns=SECOND))
    joiner = join(world, "d")
    assert world.run(10, lambda: pulls(joiner))
    joiner.transfer.stop()
    donor = world.app(donor_of(joiner))
    assert world.run(3, lambda: donor.transfer.bytes_held == 0)
    joiner.transfer.go_on(joiner.clock())
    joiner.turn()
    conclude(world)


@pytest.mark.parametrize("order", ["sequencer", "causal"])
def test_a_large_state_in_small_chunks_with_loss(order: str) -> None:
    world = gathered(order, "ab", ballast=3 * MIB, transfer_settings=replace(BRISK, chunk_bytes=2_000, chunks_ahead=16))
    world.network.loss = 0.1
    stop = world.load("ab", gap_ns=20 * MILLISECOND)
    joiner = join(world, "c", "ab")
    most = 0

    def watch() -> bool:
        nonlocal most
        most = max(most, joiner.transfer.progress.donors if joiner.transfer.progress else 0)
        return joiner.transfer.is_live

    assert world.run(120, watch), world.story()
    stop()
    conclude(world)
    assert most == 1, "a slow transfer is no reason to begin again"


def test_a_donor_holds_no_more_snapshots_than_it_may() -> None:
    world = gathered(ballast=300_000, names="a", transfer_settings=replace(BRISK, snapshots_max=1))
    joiners = [join(world, name, "a") for name in "bcd"]
    most = 0

    def watch() -> bool:
        nonlocal most
        most = max(most, world.app("a").transfer.bytes_held)
        return all(joiner.transfer.is_live for joiner in joiners)

    assert world.run(20, watch), world.story()
    assert most < 400_000
    conclude(world)


def test_the_view_changes_during_a_transfer_and_it_goes_on_with_the_same_donor() -> None:
    world = gathered(ballast=600_000, names="abcd")
    stop = world.load("abcd")
    joiner = join(world, "e", "abcd")
    assert world.run(10, lambda: pulls(joiner))
    donor = donor_of(joiner)
    before = world.app(donor).transfer.bytes_given
    world.crash("d" if donor != "d" else "c")
    assert world.run(20, lambda: joiner.transfer.is_live), world.story()
    stop()
    assert 0 < world.app(donor).transfer.bytes_given - before < 600_000
    conclude(world)


def test_what_a_stopped_joiner_holds_back_is_bounded_and_the_casters_wait() -> None:
    limit = 100_000
    settings = replace(BRISK, buffer_bytes_max=limit)
    world = gathered(transfer_settings=settings)
    joiner = join(world, "d")
    assert world.run(5, lambda: joiner.view is not None)
    joiner.transfer.stop()
    stop = world.load("abc", size=200)
    assert not world.run(6, lambda: joiner.most_held > 1.2 * limit)
    held, said = joiner.most_held, len(world.app("a").app.log)
    assert held > limit / 2
    world.run(3)
    assert (joiner.most_held, len(world.app("a").app.log)) == (held, said), "everyone waits"
    joiner.transfer.go_on(joiner.clock())
    joiner.turn()
    assert world.run(5, lambda: joiner.transfer.is_live), world.story()
    world.run(0.5)
    assert len(world.app("a").app.log) > said, "everyone goes on"
    stop()
    conclude(world)


def test_a_live_application_that_stops_is_bounded_too() -> None:
    world = gathered(transfer_settings=replace(BRISK, buffer_bytes_max=50_000))
    slow = world.app("c")
    slow.transfer.stop()
    stop = world.load("ab", size=200)
    world.run(6)
    assert 25_000 < slow.most_held < 65_000
    assert "has not asked for its next event" in slow.transfer.explain()[0]
    slow.transfer.go_on(slow.clock())
    slow.turn()
    stop()
    conclude(world)


def test_without_anyone_who_may_begin_all_wait_and_say_so() -> None:
    world = TransferWorld(initial=lambda member: False)
    world.gather(list("ab"))
    world.run(1)
    assert [world.app(name).transfer.status for name in "ab"] == [Status.WAITING] * 2
    assert "a lacks the state of the group, for" in world.app("a").transfer.explain()[0]
    assert "b waits for a state too" in world.app("a").transfer.explain()[0]
    join(world, "c", "ab").transfer.initial = True
    assert world.run(5, lambda: world.all_live("abc")), world.story()
    conclude(world)


# Merging.


def split(world: TransferWorld, *parts: str, seconds: float = 3) -> None:
    world.partition(*parts)
    assert world.run(seconds, lambda: all(world.is_one(part) for part in parts)), world.story()


def test_one_got_the_base_of_a_part_that_is_gone_and_the_rest_get_it_from_there() -> None:
    world = gathered("sequencer", "abc", ballast=300_000)
    split(world, "ab", "c")
    stop = world.load("abc", gap_ns=5 * MILLISECOND)
    world.run(0.2)
    world.network.heal()
    world.network.bytes_per_s["b"] = 100_000  # it pulls slowly
    quick, slow = world.app("a"), world.app("b")
    assert world.run(10, lambda: len(quick.app.merged) > 0 and quick.transfer.is_live), world.story()
    if not slow.transfer.is_live:
        world.crash("c")
    world.network.heal()
    assert world.run(20, lambda: world.is_one("ab") and world.all_live("ab")), world.story()
    stop()
    conclude(world)
    assert any(entry[0] == "c" for entry in slow.app.log)


def test_a_founder_without_a_state_comes_to_a_group_that_has_one() -> None:
    world = TransferWorld(initial=lambda member: member.address != "z")
    world.gather(list("ab"))
    world.partition("ab", "z")
    world.start("z", seeds=["a", "b"])
    assert world.run(5, lambda: world.app("z").view is not None), world.story()
    world.app("z").cast(b"nobody has a state here")
    world.run(0.2)
    assert not world.app("z").transfer.has_state
    world.network.heal()
    assert world.run(10, lambda: world.is_one("abz") and world.all_live("abz")), world.story()
    conclude(world)
    assert not world.app("a").app.merged or all(len(parts) < 3 for parts in world.app("a").app.merged)
    assert world.app("z").app.restored


def test_a_base_is_served_only_by_those_who_hold_it_and_a_restarted_member_is_a_joiner() -> None:
    world = gathered("toto", "abc", ballast=50_000)
    stop = world.load("abc", gap_ns=5 * MILLISECOND)
    world.run(0.3)
    world.restart("c", ["a", "b"])
    assert world.run(10, lambda: world.all_live("abc")), world.story()
    stop()
    conclude(world)
    assert world.app("c").id == MemberId("c", 1)
    assert world.app("c").app.restored


CATCHES: list[tuple[type[Transfer], Callable[[], None]]] = [
    (mutants.ForgetsBackPressure, test_what_a_stopped_joiner_holds_back_is_bounded_and_the_casters_wait),
    (mutants.AsksOnlyThePart, test_one_got_the_base_of_a_part_that_is_gone_and_the_rest_get_it_from_there),
]


@pytest.mark.parametrize(("kind", "story"), CATCHES, ids=[kind.__name__ for kind, _ in CATCHES])
def test_a_story_catches_the_mutant(kind: type[Transfer], story: Callable[[], None]) -> None:
    with patch.dict(TransferWorld.__init__.__kwdefaults__, transfer_type=kind), pytest.raises(AssertionError):
        story()


# The swarm.


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("first", range(0, 24, 4))
def test_the_swarm_of_groups_with_a_state(order: str, first: int) -> None:
    for seed in range(first, first + 4):
        _, verdict = run_transfer_seed(order, seed)
        assert verdict.result is Result.PASS, f"{order}, seed {seed}: {verdict}"


# The trace.


@pytest.mark.parametrize("order", ["fifo", "toto"])
def test_snapshots_are_in_the_trace_and_p19_judges_them(order: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def run() -> tuple[list[Event], frozenset[str]]:
        sink = MemorySink()
        world = gathered(order, "abcd", sinks=lambda member: (sink,))
        stop = world.load("abcd", gap_ns=5 * MILLISECOND)
        split(world, "ab", "cd")
        world.run(0.2)
        world.network.heal()
        assert world.run(10, lambda: world.is_one("abcd") and world.all_live("abcd")), world.story()
        joiner = join(world, "e", "abcd")
        assert world.run(10, lambda: joiner.transfer.is_live), world.story()
        stop()
        return sink.events, world.conclude().broken

    events, broken = run()
    assert not broken
    kinds = [event.kind for event in events]
    assert kinds.count("SNAPSHOT_IN") >= 4 * (3 + 2 + 1), "four services; three joiners, two that merge"
    real = StateLine.enter_merge
    monkeypatch.setattr(
        StateLine, "enter_merge", lambda line, view: tuple((s, 0, "f" * 16) for s, _, _ in real(line, view))
    )
    assert run()[1] == {"P19"}
