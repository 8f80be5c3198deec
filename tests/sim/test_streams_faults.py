"""Streams against the faults of docs/scenarios.md, A. Each rule is paired with a mutant that lacks it and must fail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest

from tests.mutants import stream_mutants as mutants
from tests.stream_harness import MS, Make, Net, S, Seen, cast_apart, catching, fails, first_time, numbered, planted
from unisono.core.streams import gaps as stream_gaps
from unisono.core.streams import inbound as stream_inbound
from unisono.core.streams import intake as stream_intake
from unisono.core.streams.outbound import Slowness
from unisono.core.streams.outflow import Outflow
from unisono.core.streams.settings import StreamSettings
from unisono.core.streams.streams import Streams
from unisono.core.types import Rank
from unisono.core.wire.envelope import CAST

SMALL = StreamSettings(datagram_bytes=300)


# A: streams.


@pytest.mark.parametrize("mutant", [mutants.NoTimer, mutants.NoPoll])
def test_a1_timer_and_poll_each_heal_a_lost_tail(mutant: type) -> None:
    """With both of them, stories tell how soon."""
    net = Net(make=planted(mutant), drop=first_time({9}))
    packets = numbered(10)
    cast_apart(net, packets)
    assert net.run_quiet() < 2 * S
    net.expect([packets, []])


def near_the_top(first: int) -> list[list[tuple[Rank, bytes]]]:
    net = Net(3, replace(SMALL, numbering_first=first), seed=7, loss=0.3)
    casts = [numbered(200, 120, f"c{rank}.") for rank in range(3)]
    sends = {(rank, (rank + 1) % 3): numbered(150, 120, f"s{rank}.") for rank in range(3)}
    for i in range(200):
        for rank in range(3):
            net.nodes[rank].cast(casts[rank][i])
            if i < 150:
                net.nodes[rank].send((rank + 1) % 3, sends[rank, (rank + 1) % 3][i])
            net.turn(rank)
        net.run(net.now + 5 * MS)
    net.run_quiet()
    net.expect(casts, sends)
    return net.got


@pytest.mark.parametrize("below", [1, 50, 199, 2**31])
def test_a7_numbering_near_the_top_of_its_range(below: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers are 32 bits on the wire and wrap; the same run results, to the byte."""
    assert near_the_top(2**32 - below) == near_the_top(0)
    for module in (stream_intake, stream_inbound, stream_gaps):
        monkeypatch.setattr(module, "extend", lambda low, near: low % 2**32)
    monkeypatch.setattr(stream_intake, "LOW", 2**64 - 1)  # rows are extended without a call
    if below < 200:
        with pytest.raises(AssertionError):
            near_the_top(2**32 - below)


@pytest.mark.parametrize("members", [2, 5])
@pytest.mark.parametrize("seal", [0, 16, 64])
def test_a10_whatever_is_too_large_is_cut_and_nothing_exceeds_the_datagram(members: int, seal: int) -> None:
    settings = replace(SMALL, seal_bytes=seal)

    def scenario(make: Make) -> None:
        for size in [*range(60, 300, 7), *range(230, 270), 1_000, 100_000]:
            net = Net(members, settings, make=make)
            packets = numbered(3, size)
            for packet in packets:
                net.nodes[0].cast(packet)
            net.nodes[1].cast(b"makes an acknowledgement ride along")
            net.turn(1)
            net.run(net.now + MS)
            net.turn(0)
            net.run_quiet()
            net.expect([packets, [b"makes an acknowledgement ride along"], *([[]] * (members - 2))])
            assert max(seen.size for seen in net.log) + seal <= settings.datagram_bytes

    class Miscounts(Outflow):
        def __init__(self, kind: int, origin: Rank, first: int, capacity: int, count_max: int) -> None:
            super().__init__(kind, origin, first, capacity + 200 * (kind == CAST), count_max)

    scenario(Streams)
    fails(scenario, Miscounts)


def test_a10_a_message_of_sixteen_mebibytes_comes_through_whole() -> None:
    net = Net(settings=StreamSettings(datagram_bytes=60_000), loss=0.02, seed=3)
    packet = Random(1).randbytes(16 * 2**20)
    net.nodes[0].cast(packet)
    net.nodes[0].cast(b"after it")
    net.turn(0)
    assert not net.nodes[0].writable()
    net.run_quiet()
    net.expect([[packet, b"after it"], []])
    assert net.nodes[0].writable()
    assert net.nodes[1].memory.reassembly == 0


@pytest.mark.parametrize("round_trip_s", [1, 2, 4, 7, 10])
def test_a11_the_timeout_converges_above_the_round_trip(round_trip_s: int) -> None:
    settings = StreamSettings(retransmit_ns_start=1 * S, retransmit_ns_max=5 * S)

    def scenario(make: Make) -> None:
        half = round_trip_s * S // 2
        net = Net(settings=settings, delay_ns=(half, half), make=make)
        packets = numbered(400)
        cast_apart(net, packets[:300], gap_ns=300 * MS)
        resent = net.nodes[0].counters.resent
        assert net.nodes[0].timeout(1) > round_trip_s * S
        cast_apart(net, packets[300:], gap_ns=300 * MS)
        net.run_quiet()
        net.expect([packets, []])
        assert net.nodes[0].counters.resent == resent, "no more resends once the round trip is known"

    scenario(Streams)
    if round_trip_s > 1:
        fails(scenario, mutants.NoKarn)


@catching(mutants.NoBackOff, mutants.NoJitter, mutants.NoCap)
def test_a12_a_peer_silent_for_minutes(make: Make) -> None:
    net = Net(3, make=make)
    net.stopped.add(2)
    packets = numbered(1_000)
    for packet in packets:
        net.nodes[0].cast(packet)
    net.turn(0)
    net.run(240 * S)
    times = [seen.at for seen in net.log if seen.sender == 0 and seen.to == 2 and seen.tries]
    pauses = [b - a for a, b in pairwise(times)]
    assert len(times) < 70, "back-off"
    assert max(pauses) < 6_300 * MS, "cap"
    assert len(set(pauses[-10:])) == 10, "jitter"
    assert net.nodes[0].silent_tries(2) >= 40
    assert net.nodes[0].silent_tries(1) == 0
    assert net.nodes[0].slowest() == (2, Slowness.SILENT)
    net.stopped.clear()
    net.turn(2)
    net.run_quiet()
    net.expect([packets, [], []])
    assert net.nodes[0].silent_tries(2) == 0


@catching(mutants.OneGapAtATime)
def test_a14_all_gaps_of_a_burst_are_asked_for_in_one_round(make: Make) -> None:
    lost = set(Random(4).sample(range(200), 60)) - {199}
    settings = StreamSettings(retransmit_ns_start=1 * S)
    net = Net(settings=settings, delay_ns=(125 * MS, 125 * MS), drop=first_time(lost), make=make)
    packets = numbered(200)
    cast_apart(net, packets, gap_ns=100_000)
    net.run_quiet()
    net.expect([packets, []])
    asked = [(nak[2], nak[3]) for seen in net.log for nak in seen.naks]
    assert sorted(seq for first, count in asked for seq in range(first, first + count)) == sorted(lost)
    answered = max(seen.at for seen in net.log if seen.is_cast)
    assert answered <= 20 * MS + 250 * MS, "the last answer leaves one round trip after the last loss"
    assert net.nodes[0].counters.resent == 0


def late_and_not_lost(make: Make) -> int:
    """Nothing is lost, everything comes in disorder."""
    net = Net(delay_ns=(1 * MS, 3 * MS), make=make, seed=2)
    packets = numbered(2_000)
    cast_apart(net, packets, gap_ns=200_000)
    net.run_quiet()
    net.expect([packets, []])
    return net.total("answers")


def test_a_network_that_reorders_is_given_time() -> None:
    assert late_and_not_lost(Streams) < 200
    assert late_and_not_lost(planted(mutants.Impatient)) > 500


# Third members.


@catching(mutants.NoPoll)
def test_a_lost_acknowledgement_to_a_third_member_is_polled_for(make: Make) -> None:
    """0 casts; 1's acknowledgement reaches 0 and is lost on its way to 2. Nobody owes 2 a resend."""
    lost: list[Seen] = []

    def drop(seen: Seen) -> bool:
        if seen.sender == 1 and seen.to == 2 and not lost:
            lost.append(seen)
            return True
        return False

    net = Net(3, drop=drop, make=make)
    cast_apart(net, [b"one"])
    net.run_quiet()
    assert lost
    net.expect([[b"one"], [], []])


@catching(mutants.PollsOnlyInSilence)
def test_a_missing_acknowledgement_is_polled_for_in_a_busy_group(make: Make) -> None:
    """As before, but everyone is busy: there is always progress, and 1 has no reason to tell of 0's old cast again."""
    lost: list[Seen] = []

    def drop(seen: Seen) -> bool:
        if (
            seen.sender == 1
            and seen.to == 2
            and len(lost) < 2
            and any(row[0] == 0 and row[1] == 1 for row in seen.rows)
        ):
            lost.append(seen)
            return True
        return False

    net = Net(3, drop=drop, make=make)
    cast_apart(net, [b"one"], rank=0)
    for i in range(1_000):
        cast_apart(net, [b"%d" % i], rank=1 + i % 2, gap_ns=2 * MS)
    assert lost
    assert net.nodes[2].received_by_all[0] == 1


@catching(mutants.PutsOff)
def test_a_stream_that_stands_still_is_not_put_off_by_another(make: Make) -> None:
    """The cast is lost, and so are all requests and polls; unicasts to the same peer go on and are acknowledged."""
    net = Net(make=make, drop=lambda seen: (seen.is_cast and not seen.tries) or bool(seen.naks) or seen.poll)
    cast_apart(net, [b"one"])
    for i in range(200):
        net.nodes[0].send(1, b"%d" % i)
        net.turn(0)
        net.run(net.now + 5 * MS)
    assert (0, b"one") in net.got[1]


def test_without_loss_nobody_polls_resends_or_asks() -> None:
    net = Net(5)
    for i in range(20):
        cast_apart(net, numbered(3, tag=f"{i}."), rank=i % 5, gap_ns=7 * MS)
    net.run_quiet()
    assert [net.total(name) for name in ("polls_sent", "resent", "answers", "naks_sent", "duplicates")] == [0] * 5


def misses_all_but(reached: tuple[int, ...]) -> Callable[[Seen], bool]:
    return lambda seen: seen.sender == 0 and seen.to == 2 and seen.seq not in reached


@catching(mutants.AsksOriginOnly, mutants.IgnoresRumours)
def test_whoever_holds_a_cast_answers_for_an_origin_that_is_gone(make: Make) -> None:
    """C2: 0 reaches 1 with both casts and 2 with neither, or only the second, and dies. 1 helps out."""
    nothing: tuple[int, ...] = ()
    for reached in (nothing, (1,)):
        net = Net(3, drop=misses_all_but(reached), make=make)
        cast_apart(net, [b"one", b"two"])
        net.run(net.now + 1 * MS)
        net.stopped.add(0)
        net.run(net.now + 5 * S)
        assert net.got[2] == [(0, b"one"), (0, b"two")]
        assert net.nodes[1].counters.answers


@catching(mutants.AsksForEver)
def test_a_gap_is_asked_for_so_often_and_no_more(make: Make) -> None:
    """The gap can never be closed: asking ends."""
    net = Net(2, drop=lambda seen: seen.sender == 0 and seen.seq == 0, make=make)
    cast_apart(net, [b"one", b"two"])
    net.run(MS)
    net.stopped.add(0)
    net.run(600 * S)
    assert len([seen for seen in net.log if seen.naks]) <= 1 + StreamSettings().nak_tries_max


def test_stable_bodies_are_let_go_by_everyone() -> None:
    net = Net(4, loss=0.2, seed=5)
    packets = numbered(100, 500)
    cast_apart(net, packets, gap_ns=MS)
    net.run_quiet()
    net.expect([packets, [], [], []])
    for node in net.nodes:
        assert node.kept_bytes == 0
        assert node.memory.kept == node.memory.ahead == 0
        assert not any(node.kept_of(origin) for origin in range(len(net.nodes)))
