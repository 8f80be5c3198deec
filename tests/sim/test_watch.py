"""What waits, for whom and since when; the watchdog; and why members are gone: whole members in the simulator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from unisono.core.config import MILLISECOND, SECOND
from unisono.core.departure import Cause, Departure
from unisono.core.member import Entered, Resumed, Stalled
from unisono.core.member.member import Member, Settings
from unisono.core.member.settings import FlowSettings
from unisono.core.member.watchdog import Watchdog
from unisono.core.membership.departures import Departures
from unisono.core.membership.settings import Policy
from unisono.core.options import CastOptions
from unisono.core.types import Key, MemberId
from unisono.sim.group_world import QUICK, GroupWorld, SimulatedProcess

LOOK_NS = 20 * MILLISECOND


def watched(stall_ns: int | None = 200 * MILLISECOND, **membership: Any) -> Settings:
    flow = FlowSettings(look_ns=LOOK_NS, stall_ns=stall_ns)
    return replace(QUICK, flow=flow, membership=replace(QUICK.membership, **membership))


def gathered(order: str, seed: int, names: str = "abc", settings: Settings | None = None, **more: Any) -> GroupWorld:
    world = GroupWorld(order, seed, settings=settings or watched(), **more)
    world.gather(names)
    return world


def events(process: SimulatedProcess, *kinds: type) -> list[Any]:
    seen: list[Any] = []
    process.on_event = lambda _, event: seen.append(event) if isinstance(event, kinds) else None
    return seen


def said(process: SimulatedProcess, key: Key | None = None) -> str:
    return "\n".join(process.member.explain(key))


def seconds(sentence: str) -> float:
    return float(sentence.rpartition("(for ")[2].partition(" s)")[0])


def departures(views: Sequence[Entered]) -> dict[str, Departure]:
    return {str(member): why for view in views for member, why in view.left.items()}


# Why members are gone.


def test_one_that_left_and_one_that_crashed_are_told_apart_by_everyone() -> None:
    world = gathered("sequencer", 1, "abcd")
    seen = [events(world.processes[name], Entered) for name in "ab"]
    world.leave("c")
    world.run(2)
    world.crash("d")
    world.run(3)
    for views in seen:
        reasons = departures(views)
        assert reasons["c"].cause is Cause.LEFT
        assert str(reasons["c"]) == "left"
        assert reasons["d"].cause is Cause.SUSPECTED
        assert 250 * MILLISECOND <= reasons["d"].lasted_ns <= SECOND
        assert str(reasons["d"]).startswith(f"suspected by {reasons['d'].by} after 0.")
    assert departures(seen[0])["d"] == departures(seen[1])["d"], "the charter says it, so all say the same"


def test_a_restart_is_told_as_one() -> None:
    world = gathered("fifo", 2)
    views = events(world.processes["a"], Entered)
    world.restart("b", "abc")
    assert world.run(5, lambda: world.is_one("abc")), world.story()
    assert departures(views)["b"].cause is Cause.RESTARTED


def test_a_packet_that_no_correct_member_sends_costs_the_membership() -> None:
    world = gathered("fifo", 3)
    views = events(world.processes["b"], Entered)
    streams = world.processes["c"].member.streams
    assert streams is not None
    streams.cast(b"\xff nonsense")
    world.processes["c"].turn()
    assert world.run(2, lambda: bool(views)), world.story()
    assert departures(views)["c"].cause is Cause.FAULTY
    assert "no correct member sends" in str(departures(views)["c"])
    assert world.processes["b"].member.counters.dropped["packet"] == 1


def test_one_that_answers_no_proposal_is_told_as_such() -> None:
    """b's datagrams of streams go through, so nobody suspects it; control messages of it do not."""
    world = gathered("fifo", 4)
    views = events(world.processes["a"], Entered)
    b = world.processes["b"].member
    control = b._frames.control(b"")[:2]
    send = world.send

    def drop_control(src: str, dst: str, datagram: bytes) -> None:
        if src != "b" or datagram[:2] != control:
            send(src, dst, datagram)

    world.send = drop_control  # type: ignore[method-assign]
    world.leave("c")
    assert world.run(4, lambda: "b" in departures(views)), world.story()
    assert departures(views)["b"].cause is Cause.UNANSWERING


class Mute(Departures):
    """A fault: the proposer keeps its reasons to itself."""

    def write(self, views, participants, leavers):  # type: ignore[no-untyped-def]
        return ()


def test_a_charter_without_reasons_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unisono.core.membership.membership.Departures", Mute)
    with pytest.raises(AssertionError):
        test_one_that_left_and_one_that_crashed_are_told_apart_by_everyone()


def test_a_reason_that_a_later_version_added_is_no_reason() -> None:
    departure = Departure(MemberId("a"), 200, MemberId("b"))
    assert departure.cause is Cause.LOST
    assert str(departure) == "lost"


def test_suspicions_and_evictions_of_the_long_gone_are_bounded() -> None:
    """Members that crashed and never came back were remembered for ever."""
    config = replace(QUICK.config, members_max=4)
    world = gathered("fifo", 5, "ab", replace(watched(), config=config))
    member = world.processes["a"].member
    for number in range(50):
        ghost = MemberId(f"ghost{number}")
        member.suspect(ghost, Cause.SUSPECTED)
        member._membership._beliefs.shun(ghost)
    assert len(member.state.suspects) == 4
    assert len(member._membership._beliefs.suspects) == 4
    assert len(member._membership._beliefs._shunned) == 4
    assert member.state.suspects[-1] == MemberId("ghost49"), "the newest stay"


# Explain.


def test_a_held_message_is_dated_within_a_look() -> None:
    world = gathered("sequencer", 6)
    world.pause("a", 150 * MILLISECOND)
    world.processes["b"].cast(b"x")
    world.run(0.1)
    (sentence,) = (one for one in world.processes["b"].member.explain() if "held back" in one)
    assert "waits for a" in sentence
    assert 0.1 - 2 * LOOK_NS / SECOND <= seconds(sentence) <= 0.1, sentence
    assert said(world.processes["b"], Key(world.processes["b"].id, 0)) == sentence


class NeverLooks(Member):
    """A fault: it dates what waits only when it is asked."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._watchdog.look_at = 2**62


def test_without_looks_nothing_is_dated() -> None:
    world = gathered("sequencer", 6, kind=NeverLooks)
    world.pause("a", 150 * MILLISECOND)
    world.processes["b"].cast(b"x")
    world.run(0.1)
    assert all(seconds(one) == 0 for one in world.processes["b"].member.explain() if "held back" in one)


def test_one_message_is_explained_wherever_it_is() -> None:
    world = gathered("sequencer", 7)
    a, b = world.processes["a"], world.processes["b"]
    assert "b:0 is not known at b: the next message cast here gets the number 0" in said(b, Key(b.id, 0))
    assert "has not cast it, or it is on its way" in said(a, Key(b.id, 0))
    assert "x is not in view" in said(a, Key(MemberId("x"), 3))
    b.member.cast(b"queued")
    assert "waits in the queue of b: it leaves with this turn" in said(b, Key(b.id, 0))
    b.turn()
    world.run(0.2)
    assert "b:0 is delivered at a, between 0." in said(a, Key(b.id, 0))
    assert "b:0 is delivered at b" in said(b, Key(b.id, 0))


def test_an_own_message_that_others_lack_says_who() -> None:
    world = gathered("fifo", 8)
    a = world.processes["a"]
    world.network.cut("a", "c")
    a.cast(b"x")
    world.run(0.05)
    assert "Not known to have taken in all that a cast: c." in said(a, Key(a.id, 0))


def test_a_safe_message_names_who_has_not_taken_it_in() -> None:
    world = gathered("fifo", 9)
    a = world.processes["a"]
    world.network.cut("a", "c")
    a.cast(b"x", CastOptions(safe=True))
    world.run(0.1)
    sentence = said(a, Key(a.id, 0))
    assert sentence.startswith("a:0 is not yet safe at a: it waits for c to take it in (for 0.0")


def test_a_gap_in_a_stream_is_told() -> None:
    world = gathered("fifo", 10, settings=replace(watched(), streams=replace(QUICK.streams, nak_delay_ns=SECOND // 2)))
    a, b = world.processes["a"], world.processes["b"]
    world.network.lose("a", "b", 1.0)
    a.cast(b"lost")
    world.network.lose("a", "b", 0.0)
    a.cast(b"comes")
    world.run(0.01)
    assert "a:0 is not known at b: b lacks a datagram of a" in said(b, Key(a.id, 0))


def test_a_message_cast_during_a_view_change_says_that_it_waits_for_the_next_view() -> None:
    world = gathered("fifo", 11)
    a = world.processes["a"]
    world.crash("c")
    assert world.run(2, lambda: a.member.state.is_blocked)
    key = a.member.cast(b"next")
    assert key is not None
    assert "the view changes, and it belongs to the next one" in said(a, key)
    assert "1 messages of a wait for the next view" in said(a)
    assert "with its proposal" in said(a) or "of view" in said(a)


# The watchdog.


def test_the_watchdog_speaks_at_growing_intervals_and_tells_when_it_moves() -> None:
    world = gathered("sequencer", 12, settings=watched(stall_ns=100 * MILLISECOND))
    b = world.processes["b"]
    seen = events(b, Stalled, Resumed)
    ordering = world.processes["a"].member.engine.ordering
    ordering.end_turn = lambda out: None  # type: ignore[method-assign]  # the sequencer numbers nothing
    b.cast(b"x")
    world.run(2)
    stalls = [event for event in seen if isinstance(event, Stalled)]
    assert 3 <= len(stalls) <= 5, "after 0.1, 0.2, 0.4, 0.8 and 1.6 s"
    assert all("b:0 is held back at b" in stalled.sentences[0] for stalled in stalls)
    waits = [seconds(stalled.sentences[0]) for stalled in stalls]
    assert all(later >= 1.8 * earlier for earlier, later in pairwise(waits)), waits
    assert not any(isinstance(event, Resumed) for event in seen)
    del ordering.end_turn
    world.processes["a"].turn()
    world.run(1)
    assert isinstance(seen[-1], Resumed)
    assert 1.5 * SECOND < seen[-1].lasted_ns < 3.5 * SECOND


def test_a_group_in_which_everything_moves_hears_nothing_of_the_watchdog() -> None:
    world = gathered("abcast", 13, settings=watched(stall_ns=100 * MILLISECOND))
    world.network.loss = 0.05
    seen = [events(process, Stalled) for process in world.up]
    for _ in range(200):
        for process in world.up:
            process.cast(b"x")
        world.run(0.01)
    assert seen == [[], [], []]


def test_a_joiner_that_finds_no_one_is_not_silent_about_it() -> None:
    world = GroupWorld("fifo", 14, settings=watched(members_min=3))
    world.start("a", "b", seeds="ab")
    seen = events(world.processes["a"], Stalled)
    world.run(1)
    assert seen
    assert "a has no view: it has met 1 others, and 3 members must be there" in seen[-1].sentences[0]
    assert seconds(seen[-1].sentences[0]) >= 0.2
    assert "which has no view yet" in said(world.processes["a"], Key(MemberId("b"), 0))


def test_a_leave_that_does_not_end_is_told() -> None:
    world = gathered("fifo", 15, "ab")
    world.network.cut("b", "a")
    world.leave("b")
    seen = events(world.processes["b"], Stalled)
    world.run(0.6)
    assert any("b wants to leave" in one for stalled in seen for one in stalled.sentences), seen


def test_a_view_that_may_not_cast_is_told() -> None:
    settings = watched(policy=Policy.PRIMARY, peers=tuple("abc"))
    world = gathered("fifo", 16, settings=settings, owed=("P20",))
    seen = events(world.processes["c"], Stalled)
    world.partition("ab", "c")
    world.run(3)
    assert any("is not the primary one" in one for stalled in seen for one in stalled.sentences), seen


def test_a_view_change_that_hangs_is_told_with_ballot_and_phase() -> None:
    settings = watched(answer_wait_ns=2 * SECOND, proposal_wait_ns=6 * SECOND)
    world = gathered("fifo", 17, settings=settings)
    seen = events(world.processes["a"], Stalled)
    world.leave("c")
    assert world.run(2, lambda: world.processes["a"].member.state.is_blocked)
    world.network.cut("b", "a")
    world.run(0.9)
    told = [one for stalled in seen for one in stalled.sentences if "with its proposal" in one]
    assert told, seen
    assert "for the answer of b" in told[0] or "for the confirmation of b" in told[0]


class Deaf(Watchdog):
    """A fault: it forgets since when something waits."""

    def _date(self, waiting, now):  # type: ignore[no-untyped-def]
        self._since = {one.key: now for one in waiting}


def test_a_watchdog_that_forgets_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unisono.core.member.member.Watchdog", Deaf)
    with pytest.raises(AssertionError):
        test_a_joiner_that_finds_no_one_is_not_silent_about_it()


def reported(is_asked: bool) -> list[tuple[int, Stalled | Resumed]]:
    """When and what a watchdog reports of a wait, with or without questions in between."""
    world = gathered("sequencer", 12, settings=watched(stall_ns=100 * MILLISECOND))
    b = world.processes["b"]
    seen: list[tuple[int, Stalled | Resumed]] = []
    b.on_event = lambda _, event: seen.append((world.now, event)) if isinstance(event, Stalled | Resumed) else None
    world.pause("a", 200 * MILLISECOND)
    b.cast(b"x")
    for _ in range(100):
        world.run(0.003)
        if is_asked:
            assert b.member.explain() + b.member.explain(most=1) + b.member.explain(Key(b.id, 0))
    return seen


def test_asking_does_not_change_what_the_watchdog_reports() -> None:
    assert reported(is_asked=True) == reported(is_asked=False) != []


class DatesWhenAsked(Watchdog):
    """A fault: a question dates what waits, as a look does."""

    def explain(self, now: int, most: int | None = None) -> list[str]:
        self._date(list(self.waiting(now)), now)
        return super().explain(now, most)


def test_a_question_that_dates_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unisono.core.member.member.Watchdog", DatesWhenAsked)
    with pytest.raises(AssertionError):
        test_asking_does_not_change_what_the_watchdog_reports()


def test_the_watchdog_is_off_unless_it_is_asked_for() -> None:
    world = gathered("sequencer", 18, settings=QUICK)
    seen = events(world.processes["b"], Stalled)
    world.pause("a", 200 * MILLISECOND)
    world.processes["b"].cast(b"x")
    world.run(3)
    assert not seen


# Numbers.


def test_the_counters_count_over_views_and_says_how_things_stand() -> None:
    world = gathered("sequencer", 19)
    world.network.loss = 0.2
    for _ in range(50):
        for process in world.up:
            process.cast(b"x")
        world.run(0.01)
    world.crash("c")
    world.run(2)
    member = world.processes["a"].member
    counters = member.counters
    assert counters.views == 2
    assert counters.casts == 50
    assert counters.deliveries == len(world.processes["a"].delivered) == 150
    assert counters.suspicions >= 1
    assert counters.streams["datagrams_sent"] > 100
    assert counters.streams["datagrams_received"] > 100
    assert counters.streams["resent"] + counters.streams["answers"] > 0
    assert set(counters.window_use) == {world.processes["b"].id}
    assert counters.held_back == counters.unfinished == 0
    before = counters.streams["datagrams_received"]
    assert member.streams is not None
    assert before > member.streams.counters.datagrams_received, "the first view is counted too"


def test_a_few_sentences_cost_no_more_than_a_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """`status` shows eight and had a thousand made."""
    from unisono.core.member import explain

    world = gathered("fifo", 6)
    world.pause("c", 150 * MILLISECOND)
    sender = world.processes["b"]
    for number in range(200):
        assert sender.cast(f"{number}".encode(), CastOptions(safe=True))
        world.run(0.0001)
    made: list[Any] = []
    key = explain._key

    def count(*arguments: Any) -> tuple[object, ...]:
        made.append(arguments)
        return key(*arguments)

    monkeypatch.setattr(explain, "_key", count)
    few = sender.member.explain(most=8)
    assert len(few) == 8
    assert len(made) <= 8
    whole = sender.member.explain()
    assert len(whole) > 100
    assert whole[:8] == few, "they keep their dates"
