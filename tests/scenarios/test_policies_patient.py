"""A caster that waits for room asks once, and not again and again; and it too is rid of a receiver that stands still."""

from __future__ import annotations

import pytest

from tests.scenarios.test_policies import Caster, Reader, passes, settings
from unisono.core.config import MILLISECOND, SECOND
from unisono.core.member.settings import Slow
from unisono.core.member.watchdog import Watchdog
from unisono.sim.group_world import GroupWorld

pytestmark = pytest.mark.seconds


class Patient(Caster):
    """Like a task that awaits room: refused once, it does not ask again before the window opens."""

    def _cast(self) -> None:
        if self.process.member.state.is_writable or not self.waited:
            self.waited = 0
            super()._cast()
        else:
            self.process.world.after(self.gap_ns, self._cast)


def hangs(seed: int) -> tuple[GroupWorld, Reader, Patient]:
    """c is a little slower than a casts, for some seconds; then it stands still."""
    world = GroupWorld("sequencer", seed, settings=settings(Slow.EVICT))
    world.gather("abc")
    reader, caster = Reader(world.processes["c"], 6 * MILLISECOND), Patient(world.processes["a"])
    world.run(3.3)
    assert len(world.processes["a"].views) == 1, "slower than the others is not slow"
    reader.gap_ns = 3_600 * SECOND
    return world, reader, caster


@pytest.mark.parametrize("seed", [5, 7, 8])
def test_who_stands_still_is_evicted_although_the_caster_was_refused_once_and_waits(seed: int) -> None:
    """Found by reading: a refusal was forgotten when the window was judged, and a task that waits is not refused again."""
    world, _, caster = hangs(seed)
    assert world.run(4, lambda: len(world.processes["a"].views[-1]) == 2), world.story()
    before = caster.taken
    world.run(0.5)
    assert caster.taken > before + 50
    world.processes["c"].member.set_free_room(None)
    passes(world, caster)


def test_if_a_refusal_counted_only_once_the_caster_would_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    look = Watchdog._look_at_window

    def forgetful(watch: Watchdog, now: int) -> None:
        look(watch, now)
        if watch._hold is not None and watch._hold.judged_at == now:
            watch._hold.is_felt = False

    monkeypatch.setattr(Watchdog, "_look_at_window", forgetful)
    for seed in (5, 7, 8):
        world, _, _ = hangs(seed)
        world.run(4)
        if len(world.processes["a"].views[-1]) == 3:
            return
    pytest.fail("nobody waited for ever")
