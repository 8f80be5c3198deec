"""When a driver performs what a turn leaves behind, and how it waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import pytest

from tests.runtime.ports import Wire
from unisono.core.config import MILLISECOND
from unisono.core.member import Effects
from unisono.core.member.member import Member
from unisono.core.membership.detector import DetectorSettings
from unisono.core.types import Batch, MemberId, Service
from unisono.runtime.driver import Driver
from unisono.runtime.seal import Seal

BATCH = Batch(0, 0, (b"x",), Service.TOTAL)


class Spoken:
    """A member that notes what it is asked to do, and shows a message in each turn if it is told to."""

    id = "a"

    def __init__(self, log: list[str], is_showing: bool, deadline: int | None = None) -> None:
        self._log, self._is_showing, self._deadline = log, is_showing, deadline

    def receive(self, datagrams: Sequence[bytes], now: int, senders: Sequence[MemberId | None] = ()) -> None:
        self._log.append("receive")

    def act(self, now: int) -> Effects:
        self._log.append("act")
        effects = Effects()
        effects.datagrams = [(("b",), b"sent")]
        effects.events = [BATCH] if self._is_showing else []
        return effects

    def finish_turn(self) -> int | None:
        self._log.append("finish_turn")
        return self._deadline


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


def pass_once(loop: asyncio.AbstractEventLoop) -> None:
    loop.call_soon(loop.stop)
    loop.run_forever()


def driver_of(
    loop: Any,
    log: list[str],
    is_showing: bool,
    deadline: int | None = None,
    clock: Callable[[], int] = lambda: 0,
    seal: Seal | None = None,
) -> Driver:
    def show(events: list[Any], now: int) -> None:
        if events:
            log.append("show")
            loop.call_soon(log.append, "the application")

    def fail(error: Exception) -> None:
        raise error

    member = cast(Member, Spoken(log, is_showing, deadline))
    return Driver(loop, Wire(log), "chat", member, show, fail=fail, clock=clock, seal=seal)


def test_the_application_does_not_wait_for_what_a_turn_leaves_to_do(loop: asyncio.AbstractEventLoop) -> None:
    log: list[str] = []
    driver_of(loop, log, is_showing=True).turn()
    pass_once(loop)
    assert log == ["act", "send", "show", "the application", "finish_turn"]


def test_without_an_application_that_waits_a_turn_is_finished_at_once(loop: asyncio.AbstractEventLoop) -> None:
    log: list[str] = []
    driver_of(loop, log, is_showing=False).turn()
    assert log == ["act", "send", "finish_turn"]


def test_a_turn_is_finished_before_anything_else_reaches_the_member(loop: asyncio.AbstractEventLoop) -> None:
    log: list[str] = []
    driver = driver_of(loop, log, is_showing=True)
    driver.turn()
    driver.receive([memoryview(b"y")])
    driver.turn()
    pass_once(loop)
    asked = [entry for entry in log if entry in ("receive", "act", "finish_turn")]
    assert asked == ["act", "finish_turn", "receive", "act", "finish_turn", "act", "finish_turn"]


KEY = bytes(range(32))


def test_datagrams_that_are_refused_cost_no_turn(loop: asyncio.AbstractEventLoop) -> None:
    """Found by flooding: each read was a turn, whatever had come."""
    log: list[str] = []
    driver = driver_of(loop, log, is_showing=False, seal=Seal("chat", MemberId("a"), KEY))
    driver.receive([memoryview(b"forged")] * 48)
    assert log == []
    peer = Seal("chat", MemberId("b"), KEY)
    driver.receive([memoryview(b"forged"), memoryview(peer.close(b"true"))])
    assert log == ["receive", "act", "send", "finish_turn"]


def test_after_a_pause_nothing_is_closed_with_the_earlier_salt(loop: asyncio.AbstractEventLoop) -> None:
    """The process may have been copied meanwhile, and the copy goes on with the same counters."""
    now, log, seal = [0], list[str](), Seal("chat", MemberId("a"), KEY)
    driver = driver_of(loop, log, is_showing=False, clock=lambda: now[0], seal=seal)
    pause = DetectorSettings().pause_ns
    salts = []
    for leap in (0, 1, pause, pause + 1, pause, 10 * pause):
        now[0] += leap
        driver.turn()
        salts.append(seal.salts)
    assert salts == [1, 1, 1, 2, 2, 3]


class Clockwork:
    """A loop of which only timers are wanted: it keeps them."""

    def __init__(self) -> None:
        self.delays: list[float] = []

    def call_later(self, delay: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        self.delays.append(delay)
        return cast(asyncio.TimerHandle, object())


def test_a_timer_never_rings_before_its_time_so_it_cannot_spin() -> None:
    """Loops count in whole milliseconds: one set for less would ring at once, over and over, until the time has come."""
    clockwork = Clockwork()
    for deadline in (1, MILLISECOND - 1, MILLISECOND, 3 * MILLISECOND // 2):
        driver_of(clockwork, [], is_showing=False, deadline=deadline).turn()
    assert [delay * 1_000 for delay in clockwork.delays] == [1, 1, 2, 2]
