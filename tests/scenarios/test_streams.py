"""A4 with whole members, where the network draws lots and a planted fault takes the names of views from datagrams."""

from __future__ import annotations

import pytest

from tests.group_tools import load, passes, settles
from unisono.core.errors import PeerFault
from unisono.core.member import member as member_module
from unisono.core.streams import streams as streams_module
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
