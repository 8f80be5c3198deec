"""Probes between all pairs: what is concluded from who hears whom."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from unisono.core.config import MILLISECOND
from unisono.runtime import netcheck
from unisono.runtime.netcheck import Pair, Prober, judge

PEERS = ["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"]
A, B, C = PEERS


def probe(
    rounds: int, passes: Callable[[str, str, int, int], bool], up: list[str] | None = None, peers: list[str] = PEERS
) -> dict[str, Prober]:
    """Rounds of probes, 20 ms apart, each 3 ms on its way; `passes(source, target, bytes, round)` says what arrives."""
    probers = {name: Prober(name, peers) for name in up or peers}
    for number in range(rounds):
        now = (1 + number) * 20 * MILLISECOND
        sent = [(name, to, data) for name, prober in probers.items() for to, data in prober.probe(now)]
        for source, target, data in sent:
            if target in probers and passes(source, target, len(data), number):
                probers[target].receive(data, now + 3 * MILLISECOND)
    return probers


def by_pair(prober: Prober) -> dict[tuple[str, str], Pair]:
    return {(one.source, one.target): one for one in judge([prober])}


def test_a_whole_network_is_fine_at_everyone() -> None:
    probers = probe(200, lambda *_: True)
    for prober in probers.values():
        assert prober.has_heard_all
        pairs = by_pair(prober)
        assert len(pairs) == 6
        assert all(one.is_good and one.loss == 0 and one.largest == 60_000 for one in pairs.values())
        assert {one.rtt_ns for one in pairs.values()} == {6 * MILLISECOND}


def test_a_one_way_link_is_seen_by_everyone() -> None:
    """B hears nothing of A, and A hears B."""
    probers = probe(200, lambda source, target, *_: (source, target) != (A, B))
    for prober in probers.values():
        pairs = by_pair(prober)
        assert pairs[A, B].verdict == "nothing arrives, though the way back is open"
        assert sum(one.is_good for one in pairs.values()) == 5
        assert not prober.has_heard_all


def test_a_cut_between_two_is_known_through_the_third() -> None:
    probers = probe(200, lambda source, target, *_: {source, target} != {A, B})
    for prober in probers.values():
        pairs = by_pair(prober)
        assert pairs[A, B].verdict == pairs[B, A].verdict == "nothing arrives"
        assert pairs[A, C].is_good


MANY = [f"[2001:db8::{number:x}]:65{number:03}" for number in range(1, 41)]


def test_a_large_group_learns_of_all_pairs() -> None:
    """Forty rows do not fit into a probe; two that hear nothing of each other are known to all the same."""
    source, target = MANY[3], MANY[17]
    probers = probe(60, lambda one, other, *_: (one, other) != (source, target), peers=MANY)
    for prober in probers.values():
        pairs = by_pair(prober)
        assert sum(one.is_good for one in pairs.values()) == 40 * 39 - 1
        assert pairs[source, target].verdict == "nothing arrives, though the way back is open"


def test_no_probe_is_larger_than_it_says() -> None:
    sizes = []

    def passes(source: str, target: str, size: int, number: int) -> bool:
        sizes.append(size)
        return True

    probe(60, passes, peers=MANY)
    assert set(sizes) == {netcheck.SMALL_BYTES, *netcheck.SIZES_BYTES}


def test_large_probes_do_not_come_all_at_once() -> None:
    """A socket holds a few of the largest; eight addresses that begin together would lose them, and say that none passes."""
    came: dict[tuple[str, int], int] = {}
    peers = MANY[:8]

    def passes(source: str, target: str, size: int, number: int) -> bool:
        came[target, number] = came.get((target, number), 0) + (size > netcheck.SMALL_BYTES)
        return True

    probers = probe(60, passes, peers=peers)
    assert max(came.values()) <= 2
    assert all(one.largest == 60_000 for one in by_pair(probers[peers[0]]).values())


def test_one_that_is_not_up_is_said() -> None:
    pairs = by_pair(probe(50, lambda *_: True, up=[A, B])[A])
    assert "may not be up" in pairs[C, A].verdict
    assert "not heard" in pairs[A, C].verdict
    assert pairs[A, B].is_good


def test_loss_is_counted_by_direction() -> None:
    probers = probe(400, lambda source, target, _, number: (source, target) != (A, B) or number % 4 != 1)
    pairs = by_pair(probers[C])
    assert pairs[A, B].loss == pytest.approx(0.25, abs=0.02)
    assert pairs[A, B].verdict == "lossy"
    assert pairs[B, A].loss == 0


def test_the_largest_datagram_that_passes_is_found() -> None:
    probers = probe(200, lambda source, target, size, _: (source, target) != (A, B) or size <= 1_472)
    assert by_pair(probers[C])[A, B].largest == 1_472
    assert by_pair(probers[C])[A, B].is_good


def test_probes_that_nobody_understands_are_counted() -> None:
    prober = Prober(A, PEERS)
    good = Prober(B, PEERS).probe(1)[0][1]
    text = json.loads(good[4:].rstrip(b"\0"))

    def packed(**changes: object) -> bytes:
        data = json.dumps(text | changes).encode()
        return netcheck._HEAD.pack(4, 0x20, len(data)) + data

    bad = [
        b"", b"\4", good[:30], b"\5" + good[1:], packed(n="x"), packed(n=None), packed(rows=[]), packed(rows={B: 1}),
        packed(rows={B: [1, {A: [1, 2]}]}), packed(**{"from": "198.51.100.7:1"}), packed(**{"from": A}), packed(at=1e999),
    ]  # fmt: skip
    for number, one in enumerate(bad, start=1):
        prober.receive(one, 2)
        assert prober.refused == number
    prober.receive(good, 2)
    assert prober.refused == len(bad)
    assert B in prober._heard
    prober.receive(
        packed(rows={B: {"198.51.100.7:1": [1] * netcheck.VALUES}, "198.51.100.7:1": {B: [1] * netcheck.VALUES}}), 3
    )
    assert prober.rows == {B: {}}  # what nobody asked about is not kept


class ForgetsToPassOn(Prober):
    """Tells of itself alone."""

    def _some_rows(self) -> netcheck.Rows:
        return {self.own: super()._some_rows()[self.own]}


class BeginsAnew(Prober):
    """Tells what has room in a probe, and always the same."""

    def _some_rows(self) -> netcheck.Rows:
        self._told = [0, 0]
        return super()._some_rows()


class FillsSockets(Prober):
    """Sends large probes to all in the same round."""

    def probe(self, now: int) -> list[tuple[str, bytes]]:
        out = super().probe(now)
        small = [one for one in out if len(one[1]) == netcheck.SMALL_BYTES]
        return small + [(peer, self._make(peer, 0, 60_000, now, {})) for peer in self.others if self._rounds % 5 == 0]


class CountsLarge(Prober):
    """Takes every datagram for a small probe."""

    def receive(self, datagram: bytes, now: int) -> None:
        super().receive(datagram, now)
        for heard in self._heard.values():
            heard.received = max(heard.received, heard.highest - heard.first + 1)


@pytest.mark.parametrize(
    ("mutant", "test"),
    [
        (ForgetsToPassOn, test_a_cut_between_two_is_known_through_the_third),
        (CountsLarge, test_loss_is_counted_by_direction),
        (BeginsAnew, test_a_large_group_learns_of_all_pairs),
        (FillsSockets, test_large_probes_do_not_come_all_at_once),
    ],
)
def test_a_planted_fault_is_found(
    mutant: type[Prober], test: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "Prober", mutant)
    with pytest.raises(AssertionError):
        test()
