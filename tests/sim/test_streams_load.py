"""Streams under load (docs/scenarios.md, E), and random runs. Each rule is paired with a mutant that lacks it and must fail."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from tests.mutants import stream_mutants as mutants
from tests.stream_harness import MS, Make, Net, S, cast_apart, catching, first_time, numbered, planted
from unisono.core.streams.outbound import Slowness
from unisono.core.streams.settings import StreamSettings
from unisono.core.streams.streams import Streams
from unisono.core.types import Rank
from unisono.core.wire.envelope import HEAD

SMALL = StreamSettings(datagram_bytes=300)


# E: load.


@catching(mutants.IgnoresRoom)
def test_e1_a_slow_application_slows_the_caster(make: Make) -> None:
    """Member 2's application has room for 100 packets and takes one every 10 ms; 0 casts whenever it may."""
    net = Net(3, make=make)
    cast: list[bytes] = []
    culprits: set[object] = set()
    queue = seen = 0
    for step in range(2_000):
        net.run(step * MS)
        queue += len(net.got[2]) - seen
        seen = len(net.got[2])
        if step % 10 == 0 and queue:
            queue -= 1
        assert queue <= 101 + 10, "what was under way when it filled up"
        net.nodes[2].set_free_room(100 - queue)
        net.turn(2)
        for _ in range(10):
            if net.nodes[0].writable():
                cast.append(f"{step} {len(cast)}".encode())
                net.nodes[0].cast(cast[-1])
            else:
                culprits.add(net.nodes[0].slowest())
        net.turn(0)
    assert 250 <= len(cast) <= 320, "as fast as the application, and no faster"
    assert (2, Slowness.ROOM) in culprits
    net.nodes[2].set_free_room(None)
    net.turn(2)
    net.run_quiet()
    net.expect([cast, [], []])


@catching(mutants.NoPoll)
def test_e1_news_of_room_that_are_lost_are_asked_for(make: Make) -> None:
    net = Net(make=make)
    net.nodes[1].set_free_room(0)
    cast_apart(net, [b"one"])
    net.run(100 * MS)
    assert not net.nodes[0].writable()
    net.drop = lambda seen: seen.sender == 1
    net.nodes[1].set_free_room(10)
    net.turn(1)
    net.run(net.now + 50 * MS)
    net.drop = lambda seen: False
    net.run_quiet()
    assert net.nodes[0].writable()


@pytest.mark.parametrize("limit", ["bytes", "packets"])
def test_e1_a_stopped_receiver_stops_the_caster_and_memory_is_bounded(limit: str) -> None:
    settings = StreamSettings(window_bytes=20_000, window_bytes_start=20_000)
    if limit == "packets":
        settings = StreamSettings(window_packets=200)
    net = Net(3, settings)
    net.stopped.add(2)
    cast = 0
    for _ in range(500):
        while net.nodes[0].writable():
            net.nodes[0].cast(bytes(100))
            cast += 1
        net.turn(0)
        net.run(net.now + 100 * MS)
    assert cast == 200 if limit == "packets" else cast < 210
    assert net.nodes[0].kept_bytes <= 20_000 + 1_400 + 100
    assert net.nodes[1].memory.kept <= 20_000 + 1_400 + 100
    assert net.nodes[0].slowest() == (2, Slowness.SILENT)


def test_e1_full_halves_for_a_stopped_addressee_count_too() -> None:
    net = Net(3, StreamSettings(window_bytes=100_000, window_bytes_start=100_000))
    net.stopped.add(2)
    cast = 0
    while net.nodes[0].writable():
        net.nodes[0].cast_parts(b"header", bytes(10_000), [2])
        net.turn(0)
        cast += 1
    assert cast <= 11
    net.run(net.now + 20 * MS)
    assert net.nodes[0].slowest() == (2, Slowness.BEHIND)


@catching(mutants.DataFirst)
def test_e4_control_never_waits_behind_data(make: Make) -> None:
    """E4: 0's window is full of data that 2 does not acknowledge. 1 casts: 0 must acknowledge, ask, and send."""
    settings = StreamSettings(window_bytes=4_000, window_bytes_start=4_000)
    net = Net(3, settings, make=make, drop=lambda seen: seen.sender == 1 and seen.seq == 0 and seen.tries == 0)
    net.stopped.add(2)
    while net.nodes[0].writable():
        net.nodes[0].cast(bytes(1_000))
    net.turn(0)
    net.run(50 * MS)
    assert not net.nodes[0].writable()
    cast_apart(net, [b"lost", b"seen"], rank=1)
    net.nodes[0].send(1, b"a word to one")
    net.turn(0)
    net.run(net.now + 20 * MS)
    assert [packet for _, packet in net.got[0]] == [b"lost", b"seen"]
    assert (0, b"a word to one") in net.got[1]
    assert net.nodes[1].acknowledged_by(0) == 2, "acknowledged"


def test_an_oversized_packet_enters_an_empty_window_only() -> None:
    settings = replace(SMALL, window_bytes=2_000, window_bytes_start=2_000)
    net = Net(settings=settings)
    packets = [bytes(50_000), b"next"]
    assert net.nodes[0].writable()
    net.nodes[0].cast(packets[0])
    assert not net.nodes[0].writable()
    net.turn(0)
    in_flight = sum(seen.size for seen in net.log)
    assert in_flight < 2_000 * 1.3, "it is cut, and its pieces keep to the window"
    net.run_quiet()
    assert net.nodes[0].writable()
    net.nodes[0].cast(packets[1])
    net.turn(0)
    net.run_quiet()
    net.expect([packets, []])


@catching(mutants.NeverPushes)
def test_a_full_window_does_not_wait_for_delayed_acknowledgements(make: Make) -> None:
    """Two datagrams fill the window, and acknowledgements wait for company for a second."""
    settings = replace(SMALL, window_bytes=1_024, window_bytes_start=1_024, ack_delay_ns=1 * S, ack_datagrams_max=100)
    net = Net(settings=settings, make=make)
    packet = bytes(10_000)
    net.nodes[0].cast(packet)
    net.turn(0)
    net.run(200 * MS)
    assert net.got[1] == [(0, packet)]


def test_the_window_shrinks_on_loss_and_grows_again() -> None:
    def sizes(make: Make) -> tuple[int, int, int]:
        net = Net(make=make, settings=StreamSettings(window_bytes_start=100_000, window_bytes_min=4_096))
        packets = numbered(400, 1_000)
        net.drop = first_time(set(range(10, 400, 20)))
        cast_apart(net, packets[:200], gap_ns=200_000)
        low = net.nodes[0].window_bytes
        net.drop = lambda seen: False
        cast_apart(net, packets[200:], gap_ns=200_000)
        net.run_quiet()
        net.expect([packets, []])
        return 100_000, low, net.nodes[0].window_bytes

    start, low, high = sizes(Streams)
    assert low < start // 2
    assert high > low
    start, low, high = sizes(planted(mutants.NeverShrinks))
    assert low >= start


def test_a_rate_limit_is_kept() -> None:
    net = Net(settings=StreamSettings(rate_bytes_per_s=100_000))
    packets = numbered(500, 1_000)
    for packet in packets:
        net.nodes[0].cast(packet)
    net.turn(0)
    net.run(2 * S)
    sent = sum(seen.size for seen in net.log if seen.is_cast)
    assert 190_000 <= sent <= 215_000
    net.run_quiet()
    net.expect([packets, []])


# All at once.


def soak(seed: int, make: Make = Streams) -> Net:
    random = Random(f"{seed}/soak")
    members = random.randint(2, 5)
    settings = StreamSettings(
        datagram_bytes=random.choice([300, 1_400, 9_000]),
        numbering_first=random.choice([0, 2**32 - 20]),
        window_bytes_start=random.choice([1_024, 4_096, 65_536]),
    )
    net = Net(
        members,
        settings,
        seed,
        loss=random.uniform(0, 0.3),
        duplicate=random.uniform(0, 0.2),
        delay_ns=(1 * MS, random.choice([1, 3, 20]) * MS),
        make=make,
    )
    casts: list[list[bytes]] = [[] for _ in range(members)]  # as everyone sees them, but for parts
    parts: list[dict[int, tuple[bytes, set[Rank]]]] = [{} for _ in range(members)]
    sends: dict[tuple[Rank, Rank], list[bytes]] = {}
    for turn in range(random.randint(1, 30)):
        rank = random.randrange(members)
        node = net.nodes[rank]
        for i in range(random.randint(1, 8)):
            packet = f"{rank}.{turn}.{i}.".encode() + bytes(random.choice([0, 10, 100, 1_000, 5_000]))
            choice = random.random()
            if choice < 0.6:
                node.cast(packet)
                casts[rank].append(packet)
            elif choice < 0.75:
                to = set(random.sample(range(members), random.randint(0, members)))
                parts[rank][len(casts[rank])] = (packet, to)
                casts[rank].append(b"placeholder of " + packet[:20])
                node.cast_parts(casts[rank][-1], packet, to)
            else:
                to_one = random.choice([peer for peer in range(members) if peer != rank])
                node.send(to_one, packet)
                sends.setdefault((rank, to_one), []).append(packet)
        net.turn(rank)
        net.run(net.now + random.choice([0, 0, 1, 5, 50]) * MS)
    net.run_quiet()

    def seen(origin: Rank, rank: Rank) -> list[bytes]:
        full = {i: packet for i, (packet, to) in parts[origin].items() if rank in to}
        return [full.get(i, packet) for i, packet in enumerate(casts[origin])]

    net.expect(casts, sends, seen)
    for node in net.nodes:
        assert node.memory.ahead == node.memory.kept == node.memory.reassembly == 0
        assert node.kept_bytes == 0
        refused = {reason.value: count for reason, count in node.counters.refused.items() if count}
        assert refused.keys() <= {"replayed", "unasked"}
    return net


@pytest.mark.parametrize("tens", range(30))
def test_soak_exactly_once_in_order_and_quiet_at_the_end(tens: int) -> None:
    for seed in range(10 * tens, 10 * tens + 10):
        soak(seed)


def crash_soak(seed: int, make: Make = Streams) -> None:
    """A member dies in the middle. What any survivor has of its casts, every survivor gets, without a view change."""
    random = Random(f"{seed}/crash")
    members = random.randint(3, 5)
    net = Net(members, SMALL, seed, loss=random.uniform(0, 0.3), delay_ns=(1 * MS, 5 * MS), make=make)
    victim, casts = random.randrange(members), random.randint(1, 40)
    for i in range(casts):
        for rank in range(members):
            net.nodes[rank].cast(f"{rank}.{i}.".encode() + bytes(random.choice([0, 200, 700])))
            net.turn(rank)
        net.run(net.now + random.choice([0, 1, 5]) * MS)
    net.stopped.add(victim)
    net.run(net.now + 120 * S)
    survivors = {rank: node for rank, node in enumerate(net.nodes) if rank != victim}
    for origin in range(members):
        held = [node.held()[origin] for rank, node in survivors.items() if rank != origin]
        assert len(set(held)) == 1, f"of {origin}: {held}"
    assert all(
        node.silent_tries(rank) <= 15 for node in survivors.values() for rank in range(members) if rank != victim
    )


@pytest.mark.parametrize("tens", range(10))
def test_soak_survivors_of_a_crash_get_what_any_of_them_has(tens: int) -> None:
    for seed in range(10 * tens, 10 * tens + 10):
        crash_soak(seed)


@pytest.mark.parametrize("mutant", [mutants.AsksOriginOnly, mutants.IgnoresRumours, mutants.GivesUpForGood])
def test_soak_with_crashes_notices_mutants(mutant: type) -> None:
    caught = 0
    for seed in range(100):
        try:
            crash_soak(seed, planted(mutant))
        except AssertionError:
            caught += 1
            break
    assert caught


@pytest.mark.parametrize("mutant", [mutants.NoTail, mutants.NoPoll, mutants.TakesDuplicates])
def test_soak_notices_mutants(mutant: type) -> None:
    caught = 0
    for seed in range(20):
        try:
            soak(seed, planted(mutant))
        except AssertionError:
            caught += 1
    assert caught > 5


def test_a_large_view_whose_acknowledgements_do_not_fit_one_datagram() -> None:
    net = Net(30, SMALL, loss=0.05, seed=8)
    casts: list[list[bytes]] = [[] for _ in range(30)]
    for i in range(3):
        for rank in range(0, 30, 4):
            casts[rank].append(b"%d.%d" % (rank, i))
            net.nodes[rank].cast(casts[rank][-1])
            net.turn(rank)
        net.run(net.now + 3 * MS)
    net.run_quiet()
    net.expect(casts)
    assert max(seen.size for seen in net.log) <= SMALL.datagram_bytes


def test_the_same_seed_gives_the_same_run() -> None:
    assert soak(17).log == soak(17).log
    assert soak(17).log != soak(18).log


def test_every_transmission_has_a_counter_of_its_own() -> None:
    net = soak(23)
    for rank in range(net.members):
        to_one = [seen.counter for seen in net.log if seen.sender == rank and not seen.to_all]
        to_all = {seen.counter for seen in net.log if seen.sender == rank and seen.to_all}
        assert len(set(to_one)) == len(to_one)
        assert sorted([*to_one, *to_all]) == list(range(1, net.nodes[rank].counter))
    assert HEAD.size == 40
