"""Streams one call at a time: sharing, acknowledging, joining, limits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from random import Random
from typing import Any

import pytest

from tests.stream_harness import MS, Forger, Make, Net, S, look, plain, planted, refusals, view_of
from unisono.core.errors import ConfigError, Misuse
from unisono.core.streams.inflow import Inflow
from unisono.core.streams.settings import StreamSettings
from unisono.core.streams.streams import Streams
from unisono.core.streams.timing import Rtt
from unisono.core.types import Rank
from unisono.core.wire.envelope import (
    CAST,
    SEND,
    Refusal,
    ReplayWindow,
    make_pieces,
)

SETTINGS = StreamSettings()


def streams(rank: Rank = 1, members: int = 3, settings: StreamSettings = SETTINGS, make: Make = Streams) -> Streams:
    return make(view_of(members), rank, settings, Random(rank), 0)


# A turn.


def test_packets_of_one_turn_share_a_datagram() -> None:
    node = streams()
    for i in range(20):
        node.cast(b"%d" % i)
    out = node.drain(0)
    assert [to for to, _ in out] == [None]
    assert node.drain(0) == []


def test_a_datagram_is_filled_and_not_overfilled() -> None:
    node = streams()
    for _ in range(100):
        node.cast(bytes(100))
    sizes = [len(datagram) for _, datagram in node.drain(0)]
    assert len(sizes) == 9
    assert max(sizes) <= SETTINGS.datagram_bytes
    assert min(sizes[:-1]) > SETTINGS.datagram_bytes * 0.85


def test_an_acknowledgement_rides_on_a_cast_of_the_same_turn() -> None:
    a, b = streams(0), streams(1)
    a.cast(b"x")
    b.receive(0, a.drain(0)[0][1], MS)
    assert b.arrived() == [(0, b"x")]
    b.cast(b"y")
    out = b.drain(MS)
    assert len(out) == 1
    a.receive(1, out[0][1], 2 * MS)
    assert [a.acknowledged_by(peer) for peer in (1, 2)] == [1, 0]
    assert b.counters.acks_alone == 0


def test_an_acknowledgement_alone_waits_a_little_and_goes_to_all() -> None:
    a, b = streams(0), streams(1)
    a.cast(b"x")
    b.receive(0, a.drain(0)[0][1], MS)
    assert b.drain(MS) == []
    assert b.deadline == MS + SETTINGS.ack_delay_ns
    assert [to for to, _ in b.drain(b.deadline)] == [None]
    assert b.counters.acks_alone == 1


@pytest.mark.parametrize("datagram_bytes", [1_400, 60_000])
def test_what_arrives_shares_no_memory_with_the_drivers_buffer(datagram_bytes: int) -> None:
    settings = replace(SETTINGS, datagram_bytes=datagram_bytes)
    a, b, buffer = streams(0, settings=settings), streams(1, settings=settings), bytearray(65_536)
    packets = [b"small", bytes(range(256)) * 20]
    for packet in packets:
        a.cast(packet)
    out = a.drain(0)
    sent = b"".join(datagram for _, datagram in out)
    for _, datagram in out:
        buffer[: len(datagram)] = datagram
        b.receive(0, memoryview(buffer)[: len(datagram)], 0)
        buffer[:] = bytes(len(buffer))
    assert b.arrived() == [(0, packet) for packet in packets]
    assert all(body in sent for body in b.kept_of(0))


def test_a_large_body_of_a_datagram_that_never_changes_is_not_copied() -> None:
    settings = replace(SETTINGS, datagram_bytes=60_000)
    a, b = streams(0, settings=settings), streams(1, settings=settings)
    a.cast(bytes(range(256)) * 20)
    ((_, datagram),) = a.drain(0)
    b.receive(0, memoryview(datagram), 0)
    assert b.arrived() == [(0, bytes(range(256)) * 20)]
    (kept,) = b.kept_of(0)
    assert isinstance(kept, memoryview)
    assert kept.obj is datagram


def test_nobody_is_slow_when_nothing_is_under_way() -> None:
    net = Net(3)
    assert net.nodes[0].slowest() is None
    net.nodes[0].cast(b"x")
    assert net.nodes[0].slowest() is not None
    net.turn(0)
    net.run_quiet()
    assert net.nodes[0].slowest() is None


def test_many_datagrams_are_acknowledged_without_waiting() -> None:
    a, b = streams(0), streams(1)
    for i in range(SETTINGS.ack_datagrams_max):
        assert b.drain(0) == []
        a.cast(b"%d" % i)
        b.receive(0, a.drain(0)[0][1], 0)
    assert len(b.drain(0)) == 1


def test_a_unicast_is_acknowledged_to_its_sender_alone() -> None:
    a, b = streams(0), streams(1)
    a.send(1, b"x")
    b.receive(0, a.drain(0)[0][1], MS)
    assert b.arrived() == [(0, b"x")]
    assert b.drain(MS) == []
    assert b.deadline == MS + SETTINGS.ack_delay_ns
    ((to, datagram),) = b.drain(b.deadline)
    assert to == 0
    a.receive(1, datagram, 4 * MS)
    assert a.kept_bytes == 0
    assert b.deadline is None
    a.drain(4 * MS)
    assert a.deadline is None


def test_a_heartbeat_tells_everything_to_all() -> None:
    node = streams()
    node.announce()
    ((to, datagram),) = node.drain(0)
    assert to is None
    assert [row[0] for row in look(0, 1, 0, datagram).rows] == [0, 2]
    assert node.drain(0) == []


def test_taken_by_all_waits_for_every_ordering() -> None:
    """That all have received a packet is not enough for `safe`."""
    net = Net(3)
    net.takes.remove(2)
    net.nodes[0].cast(b"x")
    net.turn(0)
    net.run(100 * MS)
    assert [node.received_by_all[0] for node in net.nodes] == [1, 1, 1]
    assert [node.taken_by_all[0] for node in net.nodes] == [0, 0, 0]
    net.takes.add(2)
    net.turn(2)
    net.run_quiet()
    assert [node.taken_by_all[0] for node in net.nodes] == [1, 1, 1]


def test_a_member_alone_is_always_stable_and_silent() -> None:
    node = streams(0, 1)
    for _ in range(10):
        node.cast(b"x")
    assert node.drain(0) == []
    assert node.deadline is None
    assert node.received_by_all == node.taken_by_all == [10]
    assert node.writable()
    assert node.slowest() is None
    node.announce()
    assert node.drain(0) == []


def test_the_next_view_goes_on_with_counters_and_replay_windows() -> None:
    windows = [ReplayWindow() for _ in range(3)]
    old = Streams(view_of(3, 1), 1, SETTINGS, Random(1), 0, replay=windows)
    sender = Streams(view_of(3, 1), 0, SETTINGS, Random(0), 0)
    sender.cast(b"x")
    old.receive(0, sender.drain(0)[0][1], 0)
    later = Streams(view_of(3, 2), 0, SETTINGS, Random(0), 0, first_counter=sender.counter)
    new = Streams(view_of(3, 2), 1, SETTINGS, Random(1), 0, replay=windows)
    later.cast(b"y")
    new.receive(0, later.drain(0)[0][1], 0)
    assert new.arrived() == [(0, b"y")]
    reused = Streams(view_of(3, 2), 0, SETTINGS, Random(0), 0)
    reused.cast(b"z")
    new.receive(0, reused.drain(0)[0][1], 0)
    assert refusals(new) == {Refusal.REPLAYED: 1}


@pytest.mark.parametrize(
    "wrong",
    [
        lambda node: node.cast(b""),
        lambda node: node.cast(bytes(SETTINGS.packet_bytes_max + 1)),
        lambda node: node.send(1, b"to myself"),
        lambda node: node.send(3, b"to nobody"),
        lambda node: node.cast_parts(b"h", b"f", [3]),
        lambda node: node.cast_parts(b"h", b"f", [-1]),
        lambda node: streams(3),
        lambda node: Streams(view_of(3), 1, SETTINGS, Random(0), 0, first_counter=0),
    ],
)
def test_misuse_is_refused_with_a_sentence(wrong: Callable[[Streams], object]) -> None:
    with pytest.raises(Misuse):
        wrong(streams())


def test_ignoring_writable_ends_at_a_hard_limit() -> None:
    node = streams(settings=replace(SETTINGS, kept_bytes_max=32 * 2**20))
    node.cast(bytes(16 * 2**20))
    node.drain(0)
    node.cast(bytes(8 * 2**20))
    with pytest.raises(Misuse, match="writable"):
        node.cast(bytes(9 * 2**20))


# The round trip.


def test_the_timeout_follows_the_round_trip_and_its_deviation() -> None:
    rtt = Rtt(start=200 * MS, least=10 * MS)
    assert rtt.timeout == 200 * MS
    for _ in range(100):
        rtt.sample(50 * MS)
    assert 50 * MS <= rtt.timeout < 52 * MS
    for i in range(100):
        rtt.sample(50 * MS + (i % 2) * 40 * MS)
    assert 100 * MS < rtt.timeout < 200 * MS
    for _ in range(200):
        rtt.sample(1 * MS)
    assert rtt.timeout == 10 * MS


def test_more_in_flight_means_a_longer_timeout() -> None:
    node = streams()
    before = node.timeout(0)
    node.cast(bytes(200_000))
    node.drain(0)
    assert node.timeout(0) >= before + 190 * SETTINGS.retransmit_ns_per_kib


# Settings.


@pytest.mark.parametrize("name", [field.name for field in fields(StreamSettings)])
def test_every_setting_is_validated(name: str) -> None:
    for wrong in (-1, True, "many", 2**62):
        with pytest.raises(ConfigError, match=name):
            StreamSettings(**{name: wrong})  # type: ignore[arg-type]


def test_settings_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ConfigError, match="above window_bytes"):
        StreamSettings(window_bytes=2_048, window_bytes_start=4_096)
    with pytest.raises(ConfigError, match="above retransmit_ns_max"):
        StreamSettings(retransmit_ns_min=9 * S, retransmit_ns_start=9 * S)


# Casts to some.


def test_addressees_see_the_full_half_at_the_place_of_the_header() -> None:
    net = Net(3)
    net.nodes[0].cast(b"before")
    net.nodes[0].cast_parts(b"place", b"secret", [0, 2])
    net.nodes[0].cast(b"after")
    net.turn(0)
    net.run_quiet()
    assert net.got[1] == [(0, b"before"), (0, b"place"), (0, b"after")]
    assert net.got[2] == [(0, b"before"), (0, b"secret"), (0, b"after")]
    assert not any(b"secret" in repr(seen).encode() for seen in net.log if seen.to == 1)
    assert all(node.received_by_all[0] == 3 for node in net.nodes)


@pytest.mark.parametrize("lost", ["cast", "send"])
def test_either_half_may_come_first_and_stability_waits_for_both(lost: str) -> None:
    net = Net(3, drop=lambda seen: seen.to == 2 and (seen.is_cast if lost == "cast" else seen.is_send))
    net.nodes[0].cast_parts(b"place", b"secret", [2])
    net.nodes[0].cast(b"after")
    net.turn(0)
    net.run(150 * MS)
    assert net.got[2] == []
    assert net.nodes[2].held()[0] == 0
    assert net.nodes[1].received_by_all[0] == 0, "2 has not received all that it is to receive"
    net.drop = lambda seen: False
    net.run_quiet()
    assert net.got[2] == [(0, b"secret"), (0, b"after")]
    assert net.nodes[1].received_by_all[0] == 2


def test_halves_larger_than_a_datagram_are_joined_too() -> None:
    net = Net(3, settings=StreamSettings(datagram_bytes=300), loss=0.2, seed=3)
    header, full = Random(1).randbytes(2_000), Random(2).randbytes(50_000)
    for _ in range(3):
        net.nodes[0].cast_parts(header, full, [1])
        net.nodes[0].send(1, b"beside")
    net.turn(0)
    net.run_quiet()
    assert [packet for _, packet in net.got[1] if packet != b"beside"] == [full] * 3
    assert [packet for _, packet in net.got[2]] == [header] * 3


def test_the_largest_halves_travel_and_larger_ones_are_refused_whole() -> None:
    settings = StreamSettings(datagram_bytes=300, packet_bytes_max=5_000, kept_bytes_max=2**23)
    net = Net(3, settings)
    net.nodes[0].cast_parts(bytes(5_000), b"x" * 5_000, [1, 2])
    for halves in ((bytes(5_001), b"x"), (b"x", bytes(5_001)), (b"", b"x")):
        with pytest.raises(Misuse):
            net.nodes[0].cast_parts(*halves, [1, 2])
    net.turn(0)
    net.run_quiet()
    assert net.got[1] == net.got[2] == [(0, b"x" * 5_000)]
    assert net.nodes[0].held()[0] == 1


def test_what_waits_for_its_other_half_is_bounded() -> None:
    settings = replace(SETTINGS, ahead_bytes_max=70_000, datagram_bytes=60_000)
    for stream in (CAST, SEND):
        node, forger = streams(settings=settings), Forger()
        for seq in range(10):
            marked = b"\x01\x00\x01\x00" if stream == CAST else seq.to_bytes(4, "little")
            body = plain(seq, marked + bytes(50_000), kind=stream, marks=(0,))
            node.receive(0, forger.datagram(body), 0)
        assert node.waiting_for_halves(0) <= 70_000 + 50_100
        assert refusals(node)[Refusal.MEMORY] >= 1


def test_halves_that_make_no_sense_are_counted() -> None:
    node, forger = streams(), Forger()
    node.receive(0, forger.datagram(plain(0, b"\x09\x00", kind=CAST, marks=(0,))), 0)
    node.receive(0, forger.datagram(plain(0, b"\x09\x00", kind=SEND, marks=(0,))), 0)
    node.receive(0, forger.datagram(plain(1, b"\x00\x00\x00\x80x", kind=SEND, marks=(0,))), 0)
    assert refusals(node) == {Refusal.PART: 3}
    assert node.arrived() == []


# Fragments (A9).


class Mixes(Inflow):
    """Planted fault: pieces are put together as they come."""

    def assemble(self, piece: Any) -> Any:
        return super().assemble(piece._replace(offset=self.got, total=self._total or piece.total))


@pytest.mark.parametrize("make", [Inflow, Mixes])
def test_a9_interrupted_and_restarted_fragments_never_mix(make: type[Inflow]) -> None:
    node, forger = streams(make=planted(make)), Forger()
    one = make_pieces(CAST, 0, 0, b"1" * 3_000, False, 1_000)
    two = make_pieces(CAST, 0, 2, b"2" * 3_000, False, 1_000)
    for body in (*one[:2], *two):
        node.receive(0, forger.datagram(body), 0)
    node.receive(0, forger.datagram(plain(6, b"plain")), 0)
    shown = [packet for _, packet in node.arrived()]
    if make is Mixes:
        assert any(set(packet) == set(b"12") for packet in shown)
        return
    assert set(shown) <= {b"2" * 3_000, b"plain"}
    assert refusals(node)[Refusal.FRAGMENT] >= 1
    assert node.memory.reassembly == 0


def test_reassembly_is_bounded_and_who_has_begun_can_finish() -> None:
    settings = replace(SETTINGS, reassembly_bytes_max=5_000)
    node = streams(settings=settings)
    pieces = {rank: make_pieces(CAST, rank, 0, bytes([rank]) * 4_000, False, 1_000) for rank in (0, 2)}
    forgers = {rank: Forger() for rank in (0, 2)}

    def give(rank: Rank, i: int) -> None:
        node.receive(rank, forgers[rank].datagram(pieces[rank][i], changes={"sender": rank}), 0)

    give(0, 0)
    give(2, 0)
    assert refusals(node) == {Refusal.MEMORY: 1}
    for i in range(1, len(pieces[0])):
        give(0, i)
    for i in range(len(pieces[2])):
        give(2, i)
    assert [packet for _, packet in node.arrived()] == [bytes([0]) * 4_000, bytes([2]) * 4_000]
