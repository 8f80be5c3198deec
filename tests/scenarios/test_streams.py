"""Scenarios A with whole members: what becomes of datagrams, lives and fragments when a whole group stands on them.

The streams alone are tried in `tests/sim/test_streams_faults.py`. Every run here has two faults, heals, and is judged.
"""

from __future__ import annotations

import errno
from random import Random

import pytest

from tests.group_tools import control_in, load, passes, settles, texts, with_streams
from tests.mutants.membership_mutants import TrustsStaleIncarnations
from unisono.core.config import MILLISECOND, SECOND
from unisono.core.errors import PeerFault
from unisono.core.member import member as member_module
from unisono.core.streams import streams as streams_module
from unisono.core.streams.inflow import Inflow
from unisono.core.types import View
from unisono.sim.group_world import GroupWorld

orders = pytest.mark.parametrize("order", ["fifo", "causal-total", "tomp", "toto", "rmp"])


@pytest.mark.parametrize("order", ["fifo", "sequencer", "abcast", "toto"])
def test_a1_first_and_last_datagram_lost_in_a_whole_group_then_silence(order: str) -> None:
    """Each caster's first datagram, and its last, is lost on every link; nothing follows, and yet all arrives."""
    world = GroupWorld(order, seed=1)
    a, b, c = world.gather("abc")
    hit: set[tuple[str, str]] = set()

    def first_on_each_link(src: str, dst: str, datagram: bytes) -> bool:
        fresh = (src, dst) not in hit
        hit.add((src, dst))
        return fresh

    for number in range(5):
        if number in (0, 4):
            hit.clear()
            world.network.drops = first_on_each_link
        for process in (a, b, c):
            assert process.cast(f"{process.id}{number}".encode())
        world.run(0.03)
    world.run(1)
    assert world.network.lost >= 12
    assert sorted(texts(a)) == sorted(texts(b)) == sorted(texts(c))
    assert len(texts(a)) == 15
    passes(world)


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


# A6: of two lives at one address the newest counts.


def two_lives_interleave() -> tuple[GroupWorld, int]:
    """b ends twice; all that its earlier lives ever said comes again and again, between what the last one says.

    Returns how many ballots the others then needed for one view of all.
    """
    world = GroupWorld("sequencer", seed=2)
    said: list[tuple[str, bytes]] = []

    def listen(src: str, dst: str, datagram: bytes) -> bool:
        if src == "b" and world.processes["b"].id.incarnation < 2:
            said.append((dst, datagram))
        return False

    def repeat(dst: str, datagram: bytes) -> None:
        world.at(world.now, lambda: world.processes[dst].take(datagram))

    world.network.drops = listen
    world.gather("abc")
    load(world, 10)
    world.restart("b", "abc")
    load(world, 10)  # the second fault: the new life is hardly known when it ends too
    world.restart("b", "abc")
    settles(world, "abc")
    before = world.processes["a"].views[-1].id.number
    for _ in range(4):
        for dst, datagram in said:
            if dst != "b":
                repeat(dst, datagram)
                world.run(0.0005)
        load(world, 5)
    settles(world, "abc", 15)
    load(world, 10)
    assert len(said) > 50
    return world, world.processes["a"].views[-1].id.number - before


def test_a6_old_and_new_datagrams_of_a_restarted_peer_interleave_and_the_newest_life_wins() -> None:
    world, changes = two_lives_interleave()
    assert changes == 0, "ghosts move nobody"
    passes(world)
    assert world.processes["a"].views[-1].members == tuple(world.processes[name].id for name in "abc")
    assert world.processes["b"].id.incarnation == 2


def test_a6_whoever_trusts_stale_lives_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(member_module, "Membership", TrustsStaleIncarnations)
    _, changes = two_lives_interleave()
    assert changes > 0


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


# A13: the system refuses to send.

REFUSALS = (errno.ENOBUFS, errno.EPERM, errno.EMSGSIZE, errno.ECONNREFUSED)


@orders
def test_a13_what_the_system_refuses_to_send_counts_as_lost(order: str) -> None:
    """Every fourth datagram is refused, with one error or another; then one member crashes. Nobody notices but the counter."""
    world = GroupWorld(order, seed=5)
    luck = Random(5)
    world.network.fails = lambda src, dst, datagram: luck.choice(REFUSALS) if luck.random() < 0.25 else 0
    world.gather("abcd")
    load(world, 20)
    world.crash("b")
    load(world, 40)
    refused = {error for process in world.lives for error in process.unsent}
    assert refused == set(REFUSALS)
    assert sum(sum(process.unsent.values()) for process in world.lives) > 100
    passes(world)


def test_a13_a_turn_goes_on_after_a_datagram_that_could_not_be_sent() -> None:
    """Everything to b fails for a while (it has no route): c is not made to wait for that."""
    world = GroupWorld("fifo", seed=6)
    a, b, c = world.gather("abc")
    world.network.fails = lambda src, dst, datagram: errno.EPERM if (src, dst) == ("a", "b") else 0
    for number in range(5):
        a.cast(b"%d" % number)
    world.run(0.02)
    assert texts(c) == [b"0", b"1", b"2", b"3", b"4"]
    assert a.unsent[errno.EPERM] > 0
    assert not b.unsent
    world.network.fails = None
    passes(world)


def test_a13_control_that_cannot_be_sent_is_repeated() -> None:
    """Each kind of control message is refused the first time on every link; joins, a crash and a leave come about."""
    world = GroupWorld("sequencer", seed=7)
    seen: set[tuple[str, str, type]] = set()

    def first_of_each_kind(src: str, dst: str, datagram: bytes) -> int:
        message = control_in(datagram)
        if message is None or (src, dst, type(message)) in seen:
            return 0
        seen.add((src, dst, type(message)))
        return errno.ENOBUFS

    world.network.fails = first_of_each_kind
    world.gather("abcd")
    world.crash("d")
    load(world, 40)
    world.leave("a")
    load(world, 40)
    settles(world, "bc")
    assert len({kind for _, _, kind in seen}) >= 6
    passes(world)


def test_a12_a_peer_silent_for_minutes_is_left_out_and_costs_little() -> None:
    """With a thousand messages queued for it: it is suspected, the group goes on, and datagrams to it become rare."""
    world = GroupWorld("fifo", seed=8)
    a, b, c = world.gather("abc")
    load(world, 5)
    world.pause("c", 200 * SECOND)
    for number in range(1_000):
        a.cast(b"%d" % number)
    world.run(10)
    assert len(a.views[-1]) == 2
    assert len(texts(b)) >= 1_000
    mailbox = len(c.mailbox)
    world.run(100)
    assert (len(c.mailbox) - mailbox) / 100 < 40, "greetings alone, a few a second"
    passes(world)
