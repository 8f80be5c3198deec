"""The kernel of every simulated world: virtual time, and hosts that stand still, drift and crash in it.

A world says what its hosts run and what a network between them does: `world` has engines of one view over modelled streams,
`group_world` whole members over datagrams. Everything that is to come lies in one heap, which breaks ties by the order in which
it was asked for, so the same world with the same seed has exactly one run.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from random import Random
from typing import Any, TypeAlias

from unisono.core.config import SECOND

Scheduled: TypeAlias = tuple[int, int, int, Any, Any]
"""(time, tie, -1, None, function to call), or (time, tie, number of a host, sender, what arrives there)."""


class VirtualTime:
    """Virtual time, and what is to come in it. A world is one, with hosts and a network in it."""

    def __init__(self, seed: object) -> None:
        self.seed = seed
        self.now = 0
        self.tie = 0
        self.heap: list[Scheduled] = []

    def stream(self, purpose: str) -> Random:
        """A random stream of its own for one purpose. Seeding by text does not depend on the hash seed."""
        return Random(f"{self.seed}/{purpose}")

    def at(self, time: int, action: Callable[[], object]) -> None:
        """Let something happen at a time; ties happen in the order in which they were asked for."""
        self.tie += 1
        heappush(self.heap, (max(time, self.now), self.tie, -1, None, action))

    def after(self, delay: int, action: Callable[[], object]) -> None:
        self.at(self.now + delay, action)

    def run(self, seconds: float, until: Callable[[], bool] | None = None) -> bool:
        """Let time pass, until `until` holds if it is given. Returns whether it holds."""
        end = self.now + int(seconds * SECOND)
        heap = self.heap
        while heap and heap[0][0] <= end:
            self.now, _, _, _, action = heappop(heap)
            action()
            if until is not None and until():
                return True
        self.now = end
        return until is not None and until()


class Host:
    """A simulated process, whatever runs in it: its clock, its timer, and what keeps it from taking turns.

    While it is hindered, what arrives waits in its mailbox, and a timer that rings is overdue until it wakes.
    """

    __slots__ = (
        "_armed",
        "_base",
        "_rate",
        "_since",
        "alive",
        "busy_until",
        "is_hindered",
        "mailbox",
        "paused_until",
        "time",
    )

    def __init__(self, time: VirtualTime) -> None:
        self.time = time
        self.alive = True
        self.is_hindered = False  # dead, paused or busy
        self.paused_until = 0
        self.busy_until = 0
        self.mailbox: list[Any] = []
        self._armed: int | None = None  # the deadline for which the timer is set
        self._base, self._since, self._rate = time.now, time.now, 1.0

    def turn(self) -> None:
        """Take a turn and perform its effects."""
        raise NotImplementedError

    def resume(self, mailbox: list[Any], is_overdue: bool) -> None:
        """Go on with what arrived meanwhile; `is_overdue`: the timer has rung."""
        raise NotImplementedError

    # Hindrances.

    def pause(self, until: int) -> None:
        """Stand still; of several pauses the last to end counts."""
        self.paused_until = max(self.paused_until, until)
        self._hinder(self.paused_until)

    def occupy(self, until: int) -> None:
        """Be busy with the last turn."""
        self.busy_until = until
        self._hinder(until)

    def _hinder(self, until: int) -> None:
        self.is_hindered = True
        self.time.at(until, self.wake)

    def wake(self) -> None:
        """Go on, if nothing hinders any more."""
        now = self.time.now
        if not self.alive or self.paused_until > now or self.busy_until > now:
            return
        self.is_hindered = False
        is_overdue = self._armed is not None and self.clock() >= self._armed
        if is_overdue:
            self._armed = None
        mailbox, self.mailbox = self.mailbox, []
        self.resume(mailbox, is_overdue)

    def crash(self) -> None:
        self.alive, self.is_hindered = False, True

    # Its own clock, which may drift.

    def clock(self) -> int:
        passed = self.time.now - self._since
        return self._base + (passed if self._rate == 1.0 else int(passed * self._rate))

    def drift(self, rate: float) -> None:
        self._base, self._since, self._rate = self.clock(), self.time.now, rate

    def when(self, local: int) -> int:
        """When its clock will have reached this."""
        return self._since + int((local - self._base) / self._rate) + 1

    def arm(self, deadline: int | None) -> None:
        """Set the timer; the one before no longer rings."""
        if deadline is not None and deadline != self._armed:
            self._armed = deadline
            self.time.at(self.when(deadline), lambda: self._ring(deadline))

    def _ring(self, deadline: int) -> None:
        if self._armed != deadline:
            return
        if not self.is_hindered:
            self._armed = None
            self.turn()
        elif self.alive and self.clock() < deadline:  # its clock has slowed down since: the timer rings again
            self._armed = None
            self.arm(deadline)
        # Otherwise it is overdue, and the host sees to it when it wakes.
