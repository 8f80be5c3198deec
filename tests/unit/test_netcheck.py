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
LIFE = 1_800_000_000_000


def probe(
    rounds: int, passes: Callable[[str, str, int, int], bool], up: list[str] | None = None, peers: list[str] = PEERS
) -> dict[str, Prober]:
    """Rounds of probes, 20 ms apart, each 3 ms on its way; `passes(source, target, bytes, round)` says what arrives."""
    probers = {name: Prober(name, peers, LIFE) for name in up or peers}
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


MANY = [f"[2001:db8::{number:x}]:65{number:03}" for number in range(1, 17)]


def test_a_large_group_learns_of_all_pairs() -> None:
    """So many rows do not fit into a probe; two that hear nothing of each other are known to all the same."""
    source, target = MANY[3], MANY[11]
    probers = probe(60, lambda one, other, *_: (one, other) != (source, target), peers=MANY)
    for prober in probers.values():
        pairs = by_pair(prober)
        assert sum(one.is_good for one in pairs.values()) == 16 * 15 - 1
        assert pairs[source, target].verdict == "nothing arrives, though the way back is open"


def test_no_probe_is_larger_than_it_says() -> None:
    sizes = []

    def passes(source: str, target: str, size: int, number: int) -> bool:
        sizes.append(size)
        return True

    probe(35, passes, peers=MANY)
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


def test_a_way_that_is_too_narrow_for_a_group_is_not_fine() -> None:
    """Found by reading: small probes came through, so the way was fine; a member's datagrams would not have come."""
    narrow = by_pair(probe(200, lambda source, target, size, _: (source, target) != (A, B) or size < 1_200)[C])
    assert narrow[A, B].verdict == "only 1,000 bytes get through: a group needs 1,200"
    assert sum(one.is_good for one in narrow.values()) == 5
    short = by_pair(probe(20, lambda source, target, size, _: (source, target) != (A, B) or size < 1_200)[B])
    assert short[A, B].verdict == "too short to tell whether 1,200 bytes get through: measure longer"
    least = by_pair(probe(200, lambda source, target, size, _: (source, target) != (A, B) or size <= 1_200)[C])
    assert least[A, B].is_good


def exchange(probers: dict[str, Prober], now: int, heard: Callable[[str, str], bool] = lambda *_: True) -> None:
    """One round in which all that is heard arrives at once."""
    for source, prober in probers.items():
        for target, data in prober.probe(now):
            if target in probers and heard(source, target):
                probers[target].receive(data, now + 1)


def test_one_that_is_started_again_is_counted_anew() -> None:
    """Found by reading: its numbers began again and were counted with the old ones, so that less than nothing was lost."""
    probers = {name: Prober(name, PEERS, LIFE) for name in PEERS}
    for now in range(1, 201):
        exchange(probers, now)
    assert all(one.is_good for one in by_pair(probers[C]).values())
    probers[A] = Prober(A, PEERS, LIFE + 5)
    for now in range(201, 301):
        exchange(probers, now, lambda source, target: (source, target) != (B, A))  # it does not hear B any more
    for prober in probers.values():
        pairs = by_pair(prober)
        assert all(one.loss is None or one.loss == 0 for one in pairs.values())
        assert pairs[B, A].verdict == "nothing arrives, though the way back is open"
    assert probers[B]._heard[A].received == 100
    assert B not in probers[C].rows[A]


def test_a_later_life_counts_for_whoever_hears_it_only_through_others() -> None:
    known: netcheck.Rows = {A: {B: [LIFE, 900, 1, 9, 9, 0, 0], C: [LIFE, 900, 1, 9, 9, 0, 0]}}
    netcheck.learn(known, {A: {C: [LIFE + 1, 1, 1, 1, 1, 0, 0]}}, PEERS)
    assert known == {A: {C: [LIFE + 1, 1, 1, 1, 1, 0, 0]}}
    netcheck.learn(known, {A: {C: [LIFE, 901, 1, 9, 9, 0, 0]}}, PEERS)
    assert known == {A: {C: [LIFE + 1, 1, 1, 1, 1, 0, 0]}}


def test_probes_that_come_twice_or_late_were_not_lost() -> None:
    heard = netcheck.Heard()
    for number in (5, 4, 4, 5, 7):
        heard.count(number)
        assert heard.is_possible
    assert (heard.first, heard.highest, heard.rounds) == (4, 7, 4)
    assert heard.loss == 0.25  # the sixth


@pytest.mark.parametrize(
    "values", [[1, 5, 4, 1, 0, 0], [1, 1, 5, 6, 0, 0], [1, 1, 5, -1, 0, 0], [1, 1, 5, 5, -1, 0], [1, 1, 5, 5, 0, -1]]
)
def test_rows_that_cannot_be_are_refused(values: list[int]) -> None:
    """Found by reading: a row of as many rounds as none was divided by."""
    prober, liar = Prober(A, PEERS, LIFE), Prober(B, PEERS, LIFE)
    liar.rows = {C: {A: [LIFE, *values]}}
    liar._rounds = 2  # others' rows are told in every other round
    for to, data in liar.probe(1):
        if to == A:
            prober.receive(data, 2)
    assert prober.refused == 1
    assert prober.rows == {}
    judge([prober])


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
