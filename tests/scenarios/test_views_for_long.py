"""Groups that last: many crashes, a full view, first ballots that fail, processes that stall. All found by reading."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.group_tools import control_in, send, settles, texts, with_membership
from unisono.core.membership.settings import Policy
from unisono.core.types import Packet, ViewId
from unisono.core.wire.control import Moved, Notice
from unisono.orders.registry import ORDERS
from unisono.sim.group_world import QUICK, GroupWorld


def test_views_that_do_not_fit_into_one_stay_apart() -> None:
    world = GroupWorld("fifo", seed=6, settings=replace(QUICK, config=replace(QUICK.config, members_max=3)))
    world.gather("ab")
    world.network.partition((("a", "b"), ("c", "d")))
    world.start(*"cd", seeds="cd")
    settles(world, "cd")
    world.processes["c"].member.join(["a"])
    world.network.heal()
    world.run(10)
    assert world.is_one("ab")
    assert world.is_one("cd")


def test_a_process_that_stalls_now_and_then_still_notices_a_crash() -> None:
    """Every stall was taken for a new beginning, so that silence never added up."""
    world = GroupWorld("fifo", seed=1)
    world.gather("ab")
    pause = 4 * QUICK.detector.pause_ns // 3

    def nap() -> None:
        world.pause("a", pause)
        world.after(pause + 3 * QUICK.detector.heartbeat_ns // 2, nap)

    world.after(1, nap)
    world.run(0.5)
    world.crash("b")
    assert world.run(30, lambda: world.is_one("a"))
    assert world.processes["a"].member.counters.pauses > 2


@pytest.mark.parametrize("chunk_bytes_max", [100, 1_200])
def test_one_that_cannot_close_is_left_behind(chunk_bytes_max: int) -> None:
    """If its cut came in several chunks it asked for them again and again, was taken for alive, and all stood still."""
    world = GroupWorld("fifo", seed=1, settings=with_membership(chunk_bytes_max=chunk_bytes_max))
    world.gather("abc")
    world.has_liars = True  # to c, the cut of an order that it does not know is one
    c = world.processes["c"].member
    c._membership._context.orders = {name: order for name, order in ORDERS.items() if name != "toto"}
    a = world.processes["a"]
    a.member.switch("toto")
    a.turn()
    assert world.run(20, lambda: world.is_one("ab")), world.story()
    assert a.cast(b"on we go")
    assert world.run(5, lambda: b"on we go" in texts(world.processes["b"]))


class Stammering:
    """The codec of a member that sends something wrong, once."""

    def __init__(self, codec: object) -> None:
        self._codec = codec
        self._has_stammered = False

    def encode(self, packet: Packet) -> bytes:
        if self._has_stammered or not hasattr(packet, "batch"):
            return self._codec.encode(packet)  # type: ignore[attr-defined,no-any-return]
        self._has_stammered = True
        return b"\x02\xfewhat"

    def decode(self, *arguments: object) -> Packet | None:
        return self._codec.decode(*arguments)  # type: ignore[attr-defined,no-any-return]


@pytest.mark.parametrize("order", ["fifo", "causal", "sequencer", "abcast", "tomp", "all-ack", "toto", "rmp"])
def test_what_follows_a_packet_that_cannot_be_read_is_not_taken_in(order: str) -> None:
    """It broke what the ordering is given, and stopped every member but the one that had sent it."""
    world = GroupWorld(order, seed=1)
    a, b, c = world.gather("abc")
    world.run(0.1)
    c.member._codec = Stammering(c.member._codec)  # type: ignore[assignment]
    for text in (b"one", b"two"):
        assert c.cast(text)
    assert world.run(20, lambda: {p.id.address for p in (a, b) if p.view and len(p.view) == 2} == {"a", "b"})
    assert a.cast(b"three")
    assert world.run(5, lambda: texts(a) == texts(b) == [b"three"])


# A member that has left a view behind, and is its coordinator.


def test_who_is_told_something_of_a_view_that_it_left_behind_says_so() -> None:
    world = GroupWorld("fifo", seed=1)
    a, b = world.gather("ab")
    assert a.view is not None
    said: list[Moved] = []

    def listen(source: str, to: str, datagram: bytes) -> bool:
        message = control_in(datagram)
        if isinstance(message, Moved):
            said.append(message)
        return False

    world.network.drops = listen
    later, mine = ViewId(9, b.id), a.view.id
    send(world, "a", b.id, Notice(later, (), (), True, "", ()))
    assert said == [Moved(later, mine)]


def test_without_what_was_confirmed_there_can_be_two_primaries() -> None:
    """Why the runtime refuses the primary policy without a journal."""
    settings = with_membership(policy=Policy.PRIMARY, peers=("a", "b", "c"))
    world = GroupWorld("sequencer", seed=1, settings=settings, owed=("P20",))
    world.gather("abc")
    world.partition("a", "bc")
    assert world.run(10, lambda: world.is_one("bc") and world.is_one("a"))
    world.crash("c")
    world.partition("ac", "b")
    world.start("c", seeds="abc", record=None)
    assert world.run(10, lambda: world.is_one("ac"))
    assert world.finish().broken == {"P20"}
