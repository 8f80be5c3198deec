"""Scenarios A with whole members: what becomes of datagrams, lives and fragments when a whole group stands on them.

Here the network draws lots; without that, `tests/stories` tells of them. The streams alone: `tests/sim/test_streams_faults.py`.
"""

from __future__ import annotations

from random import Random

import pytest

from tests.group_tools import load, passes, settles, texts, with_streams
from unisono.core.config import MILLISECOND
from unisono.core.errors import PeerFault
from unisono.core.member import member as member_module
from unisono.core.streams import streams as streams_module
from unisono.core.streams.inflow import Inflow
from unisono.core.types import View
from unisono.sim.group_world import GroupWorld

# A4: the state of a connection is that of a view. One that forgets it comes back as another, and numbers begin anew.


def one_forgets_everything(seed: int) -> GroupWorld:
    """b loses its state in the middle of the load, and starts again before the others notice; old datagrams still fly."""
    world = GroupWorld("fifo", seed)
    world.network.replay = world.network.loss = 0.2
    world.gather("abc")
    load(world, 20)
    world.restart("b", "abc")
    load(world, 60)
    settles(world, "abc")
    load(world, 20)
    return world


@pytest.mark.parametrize("seed", range(3))
def test_a4_a_peer_forgets_its_state_and_numberings_do_not_mix(seed: int) -> None:
    world = one_forgets_everything(seed)
    passes(world)
    a, c = world.processes["a"], world.processes["c"]
    for process in (a, c):
        own = [text for who, text in process.delivered if who == process.id]
        for other in (a, c):
            assert [text for who, text in other.delivered if who == process.id] == own, "nothing of the living is lost"


def test_a4_without_the_name_of_the_view_in_datagrams_numberings_mix(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted fault: all views look alike on the wire, so the datagrams of one are taken for those of another."""

    def same(view: View) -> int:
        return 7

    monkeypatch.setattr(member_module, "view_tag", same)
    monkeypatch.setattr(streams_module, "view_tag", same)
    with pytest.raises((AssertionError, PeerFault)):
        passes(one_forgets_everything(0))


# A9: a large message is many datagrams, and its caster ends, comes back, and goes on in the middle of them.


def whole(text: bytes) -> bool:
    """Whether all bytes of a message are of one message: it is one byte repeated, as often as its first four say."""
    return len(set(text[4:])) == 1 and len(text) == int.from_bytes(text[:4], "little")


def large(number: int, size: int) -> bytes:
    return size.to_bytes(4, "little") + bytes([number % 256]) * (size - 4)


def fragments_are_interrupted(seed: int) -> GroupWorld:
    world = GroupWorld("fifo", seed, settings=with_streams(datagram_bytes=512))
    world.network.loss = world.network.reorder = 0.1
    world.gather("abc")
    random = Random(seed)
    for number in range(40):
        for process in world.up:
            process.cast(large(random.randrange(256), random.choice((2_000, 6_000, 12_000))))
        world.run(0.01)
        if number in (10, 20):
            world.restart("b", "abc")  # in the middle of whatever it was sending and receiving
        if number == 30:
            world.pause("c", 100 * MILLISECOND)
    settles(world, "abc", 15)
    return world


def test_a9_fragments_interrupted_by_restarts_never_mix() -> None:
    world = fragments_are_interrupted(4)
    seen = [text for life in world.lives for text in texts(life) if not text.startswith(b"last words")]
    assert len(seen) > 100
    assert all(map(whole, seen))
    passes(world)


class Shuffles(Inflow):
    """Puts the pieces of a packet together by their arrival, whatever they belong to."""

    def drop_held(self, seq: int) -> None:
        super().drop_held(seq)
        if len(self._pieces) > 1:
            self._pieces[0], self._pieces[-1] = self._pieces[-1], self._pieces[0]


def test_a9_pieces_put_together_by_arrival_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams_module, "Inflow", Shuffles)
    with pytest.raises(AssertionError):
        passes(fragments_are_interrupted(4))
