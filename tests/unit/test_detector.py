"""The failure detector: what it suspects, what it forgives, and that each of its rules is needed."""

from __future__ import annotations

from random import Random

import pytest

from unisono.core.errors import ConfigError
from unisono.core.membership.detector import Change, Detector, DetectorSettings, _Peer
from unisono.core.types import MemberId

MS = 1_000_000
S = 1_000 * MS
A, B, C = (MemberId(name) for name in "abc")
SETTINGS = DetectorSettings()


def watching(*peers: MemberId, make: type[Detector] = Detector, settings: DetectorSettings = SETTINGS) -> Detector:
    detector = make(settings, 0)
    detector.watch(peers, 0)
    return detector


def pass_time(detector: Detector, start: int, end: int, hears: dict[MemberId, int] | None = None) -> list[Change]:
    """Tick every 100 ms; each peer of `hears` is heard with its period."""
    changes = []
    for now in range(start + 100 * MS, end + 1, 100 * MS):
        for peer, period in (hears or {}).items():
            if now % period == 0:
                detector.heard(peer, now)
        changes += detector.tick(now)
    return changes


def test_a_silent_peer_is_suspected_and_a_heard_one_is_not() -> None:
    detector = watching(A, B)
    assert pass_time(detector, 0, 5 * S, {A: 300 * MS}) == [Change(B, True)]
    assert detector.suspects == (B,)


def test_the_first_suspicion_comes_at_the_lower_bound_and_not_earlier() -> None:
    detector = watching(A)
    assert pass_time(detector, 0, 1_400 * MS) == []
    assert pass_time(detector, 1_400 * MS, 1_500 * MS) == [Change(A, True)]


def test_hearing_refutes_and_the_next_suspicion_takes_longer() -> None:
    detector = watching(A)
    pass_time(detector, 0, 2 * S)
    before = detector.timeout(A)
    detector.heard(A, 2 * S + 50 * MS)
    assert not detector.suspects
    assert detector.deadline is not None
    assert detector.deadline <= 2 * S + 50 * MS
    assert detector.tick(2 * S + 60 * MS) == [Change(A, False)]
    assert detector.timeout(A) >= 2 * before


def test_without_growth_a_slow_peer_flaps() -> None:
    class NoGrowth(Detector):
        def heard(self, peer: MemberId, now: int) -> None:
            super().heard(peer, now)
            for known in self._peers.values():
                known.doublings = 0

        @staticmethod
        def _sample(known: _Peer, gap: int) -> None:
            return

    def flaps(make: type[Detector]) -> int:
        detector = watching(A, make=make)
        return len(pass_time(detector, 0, 60 * S, {A: 2 * S}))

    assert flaps(Detector) <= 2
    assert flaps(NoGrowth) > 20


def stumble(detector: Detector, start: int, times: int = 3) -> int:
    """A is silent until it is suspected, then heard, so many times; returns when."""
    now = start
    for _ in range(times):
        while not detector.suspects:
            now += 100 * MS
            detector.tick(now)
        detector.heard(A, now)
        detector.tick(now)
    return now


class NeverRelents(Detector):
    """A fault: leniency is never taken back."""

    def _relent(self, known: _Peer, now: int) -> None:
        return


class RelentsBlindly(Detector):
    """A fault: leniency is taken back although it is needed."""

    def _relent(self, known: _Peer, now: int) -> None:
        known.longest = 0
        super()._relent(known, now)


def test_leniency_is_taken_back_when_the_peer_does_not_need_it() -> None:
    """A peer that stumbled once and then was steady for minutes is found dead as fast as any other."""

    def timeout_after_steady_minutes(make: type[Detector]) -> int:
        detector = watching(A, make=make)
        start = stumble(detector, 0)
        assert detector.timeout(A) == SETTINGS.suspicion_ns_max
        assert not pass_time(detector, start, start + 5 * 60 * S, {A: 300 * MS})
        return detector.timeout(A)

    assert timeout_after_steady_minutes(Detector) == SETTINGS.suspicion_ns_min
    assert timeout_after_steady_minutes(NeverRelents) > 2 * SETTINGS.suspicion_ns_min


def test_leniency_is_not_taken_back_in_a_moment() -> None:
    detector = watching(A)
    start = stumble(detector, 0)
    pass_time(detector, start, start + 60 * S, {A: 300 * MS})
    assert detector.timeout(A) > SETTINGS.suspicion_ns_min


def test_a_peer_whose_long_silences_return_keeps_its_leniency() -> None:
    """Steady for ten seconds, then silent for three, again and again: only what it does not need is forgotten."""

    def suspicions(make: type[Detector]) -> int:
        detector = watching(A, make=make)
        now = stumble(detector, 0)
        found = 0
        for _ in range(60):
            found += len(pass_time(detector, now, now + 10 * S, {A: 300 * MS}))
            found += len(pass_time(detector, now + 10 * S, now + 13 * S))
            now += 13 * S
            detector.heard(A, now)
        return found

    assert suspicions(Detector) == 0
    assert suspicions(RelentsBlindly) > 2


def test_it_is_known_for_how_long_a_peer_was_silent() -> None:
    detector = watching(A)
    detector.heard(A, 200 * MS)
    assert detector.silence(A, 900 * MS) == 700 * MS


def test_the_timeout_adapts_to_long_silences_and_is_bounded() -> None:
    steady, unsteady = watching(A), watching(A)
    pass_time(steady, 0, 60 * S, {A: 300 * MS})
    random = Random(1)
    now = 0
    for _ in range(100):
        now += random.randrange(100 * MS, 1_400 * MS, MS)
        for between in range(unsteady._called_at, now, 300 * MS):
            unsteady.tick(between)
        unsteady.heard(A, now)
    assert steady.timeout(A) == SETTINGS.suspicion_ns_min
    assert SETTINGS.suspicion_ns_min < unsteady.timeout(A) <= SETTINGS.suspicion_ns_max
    unsteady._peers[A].doublings = 16
    assert unsteady.timeout(A) == SETTINGS.suspicion_ns_max


def test_a_burst_does_not_teach_that_a_heartbeat_is_long() -> None:
    detector = watching(A)
    for now in range(0, 1 * S, MS):
        detector.heard(A, now)
    assert pass_time(detector, 1 * S, 20 * S, {A: 300 * MS}) == []


@pytest.mark.parametrize("percent", [90, 110])
def test_ten_percent_of_drift_raises_no_suspicion(percent: int) -> None:
    """D14: the peer's heartbeats come early or late by a tenth, and every tenth is lost."""
    detector = watching(A)
    period = SETTINGS.heartbeat_ns * percent // 100
    for i in range(1, 2_000):
        if i % 10:
            detector.heard(A, i * period)
        assert detector.tick(i * period + MS) == []


class Unforgiving(Detector):
    """Planted fault: a leap of the clock is taken at face value."""

    def _notice(self, now: int) -> None:
        self._called_at = now


@pytest.mark.parametrize("make", [Detector, Unforgiving])
def test_a_pause_of_the_own_process_accuses_nobody(make: type[Detector]) -> None:
    """C14: stopped for a minute; what the others sent meanwhile is read after the first tick."""
    detector = watching(A, B, make=make)
    pass_time(detector, 0, 3 * S, {A: 300 * MS, B: 300 * MS})
    changes = detector.tick(63 * S)
    if make is Unforgiving:
        assert len(changes) == 2
        return
    assert changes == []
    assert detector.pauses == 1
    changes = pass_time(detector, 63 * S, 67 * S, {A: 300 * MS})
    assert changes == [Change(B, True)], "one timeout later those who are really gone are suspected"


def test_a_pause_is_found_even_if_hearing_comes_first() -> None:
    detector = watching(A, B)
    detector.heard(A, 60 * S)
    assert detector.tick(60 * S + MS) == []
    assert detector._peers[A].mean == 0, "a pause is not a silence of the peer"


def test_a_clock_that_steps_back_breaks_nothing() -> None:
    detector = watching(A)
    pass_time(detector, 0, 1 * S, {A: 300 * MS})
    detector.heard(A, 500 * MS)
    assert detector.tick(600 * MS) == []


def test_heartbeats_are_wanted_only_in_silence() -> None:
    detector = watching(A)
    assert not detector.wants_heartbeat(299 * MS)
    assert detector.wants_heartbeat(300 * MS)
    detector.sent(300 * MS)
    assert not detector.wants_heartbeat(599 * MS)
    assert not watching().wants_heartbeat(10 * S), "alone, nobody listens"


def test_the_deadline_is_kept_by_a_driver_that_obeys_it() -> None:
    """A driver that calls only by the deadline sees no pause, sends all heartbeats, and suspects in time."""
    detector = watching(A)
    now, beats, suspected_at = 0, 0, None
    while now < 5 * S:
        deadline = detector.deadline
        assert deadline is not None
        assert deadline > now or detector.suspects
        now = max(deadline, now + MS)
        if detector.wants_heartbeat(now):
            beats += 1
            detector.sent(now)
        for change in detector.tick(now):
            suspected_at = now
            assert change == Change(A, True)
    assert detector.pauses == 0
    assert 14 <= beats <= 17
    assert suspected_at == SETTINGS.suspicion_ns_min
    assert watching().deadline is None


def test_watch_keeps_history_drops_leavers_and_ends_suspicions() -> None:
    detector = watching(A, B)
    pass_time(detector, 0, 3 * S, {B: 500 * MS})
    assert detector.suspects == (A,)
    mean = detector._peers[B].mean
    detector.watch((A, B, C), 3 * S)
    assert not detector.suspects
    assert detector._peers[B].mean == mean
    assert detector.tick(3 * S + MS) == []
    detector.watch((B,), 3 * S + 2 * MS)
    detector.heard(A, 3 * S + 3 * MS)
    assert list(detector._peers) == [B]


@pytest.mark.parametrize(
    "wrong",
    [
        {"heartbeat_ns": 0},
        {"heartbeat_ns": True},
        {"deviations": "6"},
        {"heartbeat_ns": S},
        {"suspicion_ns_max": S},
        {"pause_ns": 2 * S},
        {"pause_ns": 400 * MS},
    ],
)
def test_settings_that_cannot_work_are_refused_with_a_sentence(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=r"must be|out of range|three heartbeats|raise it"):
        DetectorSettings(**wrong)  # type: ignore[arg-type]
