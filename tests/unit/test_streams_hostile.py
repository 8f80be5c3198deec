"""Streams against whatever a hostile peer may send. Each guard is paired with a mutant that lacks it."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from tests.mutants import stream_mutants as mutants
from tests.stream_harness import MS, Forger, Make, Parts, S, catching, look, opened, plain, refusals, view_of
from unisono.core.streams.settings import StreamSettings
from unisono.core.streams.streams import Streams
from unisono.core.types import Rank
from unisono.core.wire.envelope import (
    BODY,
    CAST,
    FLAGS_MAX,
    FRAGMENT,
    PIECE,
    SEND,
    TO_ALL,
    VERSION,
    Refusal,
)

SETTINGS = StreamSettings()


def streams(rank: Rank = 1, members: int = 3, settings: StreamSettings = SETTINGS, make: Make = Streams) -> Streams:
    return make(view_of(members), rank, settings, Random(rank), 0)


# Hostile input.


def freeze(value: object, skip: frozenset[str] = frozenset({"refused"})) -> object:
    """The state of an object as a value that can be compared."""
    if isinstance(value, dict):
        return [(freeze(k), freeze(v)) for k, v in value.items()]
    if isinstance(value, list | tuple):
        return [freeze(item) for item in value]
    if isinstance(value, Random):
        return value.getstate()
    slots = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
    names = [*slots, *getattr(value, "__dict__", {})]
    if names and type(value).__module__.startswith("unisono") and not isinstance(value, StreamSettings):
        return [(name, freeze(getattr(value, name))) for name in names if name not in skip]
    return repr(value)


def lively() -> tuple[Streams, list[bytes]]:
    """A member in the middle of things, and the datagrams of all kinds that its peer 0 sends it next."""
    a, b = streams(0), streams(1)
    for i in range(3):
        a.cast(b"%d" % i * 20)
        a.send(1, b"to one")
        for to, datagram in a.drain(i * MS):
            if to in (None, 1):
                b.receive(0, datagram, i * MS)
        b.cast(b"answer")
        for to, datagram in b.drain(i * MS):
            if to in (None, 0) and i:
                a.receive(1, datagram, i * MS)
    a.cast(b"a" * 30)
    a.cast_parts(b"header", b"full", [1])
    a.cast(bytes(3_000))
    a.send(1, b"unicast")
    out = [datagram for to, datagram in a.drain(4 * MS) if to in (None, 1)]
    a.announce()
    out += [datagram for _, datagram in a.drain(5 * MS)]
    a.receive(
        1, Forger().datagram(changes={"sender": 1, "counter": 99, "cast_end": 9}), 5 * MS
    )  # of what was never sent
    out += [datagram for at in (5 * MS, S) for to, datagram in a.drain(at) if to in (None, 1)]
    b.arrived()
    kinds = [look(0, 0, 1, datagram) for datagram in out]
    assert any(seen.naks for seen in kinds)
    assert any(seen.poll for seen in kinds)
    assert any(seen.is_fragment for seen in kinds)
    assert any(seen.is_send for seen in kinds)
    assert any(len(seen.rows) == 2 for seen in kinds)
    return b, out


def test_f1_every_prefix_is_refused_counted_and_changes_nothing() -> None:
    node, datagrams = lively()
    before = freeze(node)
    tried = 0
    for datagram in datagrams:
        for size in range(0, len(datagram), 1 if len(datagram) < 400 else 7):
            node.receive(0, datagram[:size], 6 * MS)
            node.receive(0, memoryview(datagram)[:size], 6 * MS)
            tried += 2
    assert sum(node.counters.refused.values()) == tried
    assert freeze(node) == before
    for datagram in datagrams:
        node.receive(0, datagram, 6 * MS)
    assert sum(node.counters.refused.values()) in range(tried, tried + 3), "only requests for what was never sent"
    assert freeze(node) != before, "the comparison sees a change"


@pytest.mark.seconds
def test_f1_every_single_bit_flip_raises_nothing_and_takes_no_memory() -> None:
    origin, datagrams = lively()
    for datagram in datagrams:
        step = 1 if len(datagram) < 300 else 41
        for bit in range(0, 8 * len(datagram), step):
            node = deepcopy(origin)
            flipped = bytearray(datagram)
            flipped[bit // 8] ^= 1 << bit % 8
            node.receive(0, bytes(flipped), 6 * MS)
            sent = node.drain(6 * MS)
            assert sum(len(data) for _, data in sent) < 50_000
            assert node.memory.ahead + node.memory.kept < 20_000


@pytest.mark.parametrize(
    ("reason", "changes"),
    [
        (Refusal.VERSION, {"version": VERSION + 1}),
        (Refusal.VERSION, {"flags": FLAGS_MAX + 1}),
        (Refusal.SENDER, {"sender": 2}),
        (Refusal.SENDER, {"sender": 9}),
        (Refusal.ADDRESSEE, {"to": 2}),
        (Refusal.VIEW, {"view": 1}),
        (Refusal.LENGTH, {"rows": 1}),
        (Refusal.LENGTH, {"rows": 65_535}),
        (Refusal.LENGTH, {"naks": 255}),
        (Refusal.LENGTH, {"body_bytes": 65_535}),
        (Refusal.LENGTH, {"body_bytes": 0}),
        (Refusal.REPLAYED, {"counter": 0}),
        (Refusal.REPLAYED, {"counter": 2**64 - 1}),
    ],
)
def test_f2_heads_that_make_no_sense_are_refused(reason: Refusal, changes: dict[str, int]) -> None:
    node, forger = streams(), Forger()
    node.receive(0, forger.datagram(plain(0, b"x"), changes=changes), 0)
    assert refusals(node) == {reason: 1}
    assert node.arrived() == []


@pytest.mark.parametrize(
    ("reason", "parts"),
    [
        (Refusal.RANK, {"rows": ((3, 0, 0, 0, 0, 0, 0),)}),
        (Refusal.RANK, {"rows": ((0, 0, 0, 0, 0, 0, 0),)}),
        (Refusal.COUNT, {"rows": ((2, 0, 0, 0, 0, 0, 0),) * 3}),
        (Refusal.RANK, {"naks": ((3, CAST, 0, 1),)}),
        (Refusal.RANK, {"naks": ((0, CAST, 0, 1),)}),
        (Refusal.RANK, {"naks": ((2, SEND, 0, 1),)}),
        (Refusal.RANK, {"naks": ((1, 2, 0, 1),)}),
        (Refusal.COUNT, {"naks": ((2, CAST, 0, 0),)}),
        (Refusal.BODY, {"body": b"x"}),
        (Refusal.BODY, {"body": BODY.pack(4, 0, 0, 1, 0) + b"\x01\x00x"}),
        (Refusal.RANK, {"body": BODY.pack(CAST, 1, 0, 1, 0) + b"\x01\x00x"}),
        (Refusal.RANK, {"body": BODY.pack(CAST, 7, 0, 1, 0) + b"\x01\x00x"}),
        (Refusal.RANK, {"body": BODY.pack(SEND, 2, 0, 1, 0) + b"\x01\x00x"}),
        (Refusal.BODY, {"body": BODY.pack(CAST | FRAGMENT, 0, 0, 0, 0) + PIECE.pack(2**31, 0) + b"x"}),
        (Refusal.BODY, {"body": BODY.pack(CAST, 0, 0, 20_000, 0) + b"\x01\x00" * 20_000 + bytes(20_000)}),
    ],
)
def test_f2_f3_parts_that_make_no_sense_are_refused(reason: Refusal, parts: dict[str, Any]) -> None:
    node, forger = streams(), Forger()
    before = freeze(node)
    node.receive(0, forger.datagram(**parts), 0)
    assert refusals(node) == {reason: 1}
    assert freeze(node) == before


@catching(mutants.NoReplayWindow)
def test_f7_a_repeated_counter_is_refused(make: Make) -> None:
    a, b = streams(0), streams(1, make=make)
    a.cast(b"x")
    datagram = a.drain(0)[0][1]
    b.receive(0, datagram, 0)
    b.drain(10 * MS)
    before = freeze(b)
    b.receive(0, datagram, 20 * MS)
    assert refusals(b) == {Refusal.REPLAYED: 1}
    assert freeze(b) == before


@catching(mutants.BelievesAcks)
def test_f9_an_ack_of_what_was_never_sent_is_refused(make: Make) -> None:
    """0 acknowledges more than 1 has sent: packets that it could not have would be let go."""
    for row in ((1, 1, 0, 1, 1), (1, 0, 1, 0, 0), (1, 0, 0, 1, 0), (1, 0, 0, 0, 1), (2, 0, 0, 0, 1)):
        node, forger = streams(make=make), Forger()
        before = freeze(node)
        node.receive(0, forger.datagram(rows=((*row, 0, 0),)), 0)
        assert refusals(node) == {Refusal.FORGED: 1}
        assert freeze(node) == before


def test_f9_a_request_for_what_was_never_sent_is_refused() -> None:
    for nak in ((1, CAST, 0, 1), (1, SEND, 0, 1), (1, CAST, 0, 2**32 - 1), (1, CAST, 2**31 - 1, 1)):
        node, forger = streams(), Forger()
        node.receive(0, forger.datagram(naks=(nak,)), 0)
        assert refusals(node) == {Refusal.FORGED: 1}


@catching(mutants.AnswersEverything)
def test_f10_a_flood_of_requests_gets_a_bounded_answer(make: Make) -> None:
    """F10: 0 asks two thousand times within a round trip for everything that is in flight."""
    node, forger = streams(make=make), Forger()
    for _ in range(100):
        node.cast(bytes(1_000))
    node.drain(0)
    assert node.bodies_cast == 100
    answered = 0
    for i in range(100):
        datagram = forger.datagram(naks=((1, CAST, 0, 100),) * 20)
        node.receive(0, datagram, i * 10_000)
        answered += sum(len(data) for to, data in node.drain(i * 10_000) if to == 0)
    assert answered <= 100 * 1_400


def test_f10_answers_have_a_budget_for_each_round_trip() -> None:
    settings = replace(SETTINGS, answer_bytes_max=65_507, window_bytes_start=2**21)
    node, forger = streams(settings=settings), Forger()
    for _ in range(1_000):
        node.cast(bytes(1_000))
    node.drain(0)
    node.receive(0, forger.datagram(naks=((1, CAST, 0, 1_000),)), 0)
    assert 60_000 < sum(len(data) for to, data in node.drain(0) if to == 0) < 75_000
    assert node.counters.answers_denied > 900


@catching(mutants.Greedy)
def test_what_waits_behind_a_gap_is_bounded(make: Make) -> None:
    settings = replace(SETTINGS, ahead_datagrams_max=50, ahead_bytes_max=100_000)
    node, forger = streams(make=make, settings=settings), Forger()
    for seq in range(1, 200):
        node.receive(0, forger.datagram(plain(seq, bytes(1_000))), 0)
    assert node.memory.ahead < 60_000
    node, forger = streams(make=make, settings=replace(settings, ahead_datagrams_max=1_000)), Forger()
    for seq in range(1, 200):
        node.receive(0, forger.datagram(plain(seq, bytes(1_000))), 0)
    assert node.memory.ahead <= 100_000
    assert refusals(node)[Refusal.AHEAD] >= 99


@catching(mutants.TrustsForwards)
def test_f6_casts_of_another_origin_are_taken_only_if_asked_for(make: Make) -> None:
    """F6: 0 offers a cast in the name of 2, for which nobody asked."""
    node, forger = streams(make=make), Forger()
    node.receive(0, forger.datagram(plain(0, b"not mine", origin=2)), 0)
    assert node.arrived() == []
    assert refusals(node) == {Refusal.UNASKED: 1}


def test_at_the_limit_others_casts_are_shown_but_not_kept() -> None:
    settings = replace(
        SETTINGS,
        kept_bytes_max=4_096,
        window_bytes=4_096,
        window_bytes_start=4_096,
        packet_bytes_max=2_000,
    )
    node, forger = streams(settings=settings), Forger()
    for seq in range(10):
        node.receive(0, forger.datagram(plain(seq, bytes(1_000))), 0)
    assert len(node.arrived()) == 10
    assert node.memory.kept <= 4_096
    assert node.counters.unkept == 6


# Everything at random.


def random_datagram(random: Random, forger: Forger, node: Streams, sent: int) -> bytes:
    """Half of it could be true: rows, requests and bodies near what exists, and far from it."""

    def number(end: int) -> int:
        return (
            random.choice([random.randrange(end), random.randrange(8), end - 1, node.bodies_cast, node.packets_cast])
            % end
        )

    rows = tuple(
        (random.choice([1, 2, 3]), *(number(2**32) for _ in range(5)), random.randrange(2**16))
        if random.random() < 0.5
        else (1, random.randint(0, node.bodies_cast), random.randint(0, sent), 0, 0, node.counter - 1, 0)
        for _ in range(random.randint(0, 2))
    )
    naks = tuple((random.choice([1, 2]), random.choice([0, 1]), number(2**32), number(9)) for _ in range(3))
    body = random.choice(
        [
            b"",
            plain(number(30), b"x", b"yy" * 30, kind=number(2), origin=random.choice([0, 2]), marks=(number(2),)),
            BODY.pack(FRAGMENT | number(2), 0, number(30), 0, number(2)) + PIECE.pack(5_000, number(40)) + bytes(20),
            random.randbytes(30),
        ]
    )
    changes = {"flags": number(8), "cast_end": number(2**32), "send_end": number(2**32), "room": number(2**32)}
    datagram = bytearray(
        forger.datagram(body, rows, random.choice([(), naks]), {**changes, "to": random.choice([TO_ALL, 1])})
    )
    for _ in range(random.choice([0, 0, 0, 3])):
        datagram[random.randrange(len(datagram))] = random.randrange(256)
    return bytes(datagram)


@pytest.mark.parametrize("seed", range(40))
def test_random_datagrams_break_no_invariant(seed: int) -> None:
    random, forger = Random(seed), Forger()
    settings = StreamSettings(datagram_bytes=300, ahead_bytes_max=70_000, reassembly_bytes_max=10_000)
    (node, parts), now = opened(view_of(3), 1, settings, Random(1), 0), 0
    for _ in range(200):
        node.cast(bytes(random.choice([1, 100, 1_000])))
        node.send(0, bytes(random.choice([1, 100, 1_000])))
        now += random.choice([0, 1_000, MS, 300 * MS])
        node.receive(0, random_datagram(random, forger, node, parts.outflows[1].sent), now)
        node.arrived()
        out = node.drain(now)
        assert node.deadline is None or node.deadline > now, "it would spin"
        assert all(len(datagram) <= settings.datagram_bytes for _, datagram in out)
        assert sum(len(datagram) for _, datagram in out) < 2 * settings.window_bytes_start
        check_accounts(node, parts, settings)
    assert node.counters.datagrams_received
    assert sum(node.counters.refused.values())


def check_accounts(node: Streams, parts: Parts, settings: StreamSettings) -> None:
    memory, inflows, cast = node.memory, parts.inflows, parts.outflows[0]
    assert memory.ahead == sum(len(body) for inflow in inflows for body in inflow.ahead.values())
    assert memory.kept == sum(len(body) for inflow in inflows for body in inflow.kept)
    assert memory.ahead <= settings.ahead_bytes_max
    assert memory.reassembly <= settings.packet_bytes_max + settings.reassembly_bytes_max
    assert cast.kept_bytes == sum(map(len, cast.bodies))
    assert cast.flight_bytes == sum(map(len, cast.bodies[: cast.sent - cast.base]))
    assert node.kept_bytes == sum(stream.kept_bytes for stream in parts.outflows)
    assert parts.joins[0].shown == node.held()[0]
