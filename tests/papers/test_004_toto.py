"""Paper 004 (Dolev, Kramer, Malki): Table 1 on a DAG rebuilt from the text of Figure 1, criterion DEL, and the bounds of ToTo.

Machines a to e are the ranks 0 to 4. Our code keeps, for each candidate, the set of members that voted for it; `printed_vector`
translates that back into the paper's extended vector timestamps.
"""

from __future__ import annotations

from itertools import product
from math import floor, inf
from random import Random
from typing import Any

import pytest

from tests.harness import CRASHES, MIXED, A, B, C, D, E, Group, Weather, make_view, run
from unisono.core.config import Config
from unisono.core.errors import ConfigError
from unisono.core.outbox import NoteKind, Outbox
from unisono.core.types import Batch, Rank, Service, View
from unisono.orders.agreed import Agreed, Candidate, Node
from unisono.orders.all_ack import AllAck
from unisono.orders.toto import Toto

STAR = "*"
CAUSAL = Service.CAUSAL
Component = float | str
Vector = tuple[Component, ...]


# Section 4.1 as printed, except that * takes part in no comparison.


def less(a: Component, b: Component) -> bool:
    return not isinstance(a, str) and not isinstance(b, str) and a < b


def win(first: Vector, second: Vector, phi: float) -> int | str:
    if sum(less(a, b) for a, b in zip(first, second, strict=True)) > phi:
        return 1
    if sum(less(b, a) for a, b in zip(first, second, strict=True)) > phi:
        return 0
    return "χ"


def may_win(first: Vector, second: Vector, phi: float) -> bool:
    """1 is in Future(first, second)."""
    known = [(a, b) for a, b in zip(first, second, strict=True) if STAR not in (a, b)]
    return sum(not less(a, b) for a, b in known) < len(first) - phi


def future(first: Vector, second: Vector, phi: float) -> set[int | str]:
    result: set[int | str] = set()
    if may_win(first, second, phi):
        result.add(1)
    if win(first, second, phi) == "χ":
        result.add("χ")
    if may_win(second, first, phi):
        result.add(0)
    return result


# What our code holds, in the paper's words.


def members_of(bits: int) -> str:
    return "".join("abcdefgh"[rank] for rank in range(8) if bits >> rank & 1)


def printed_vector(ordering: Agreed, candidate: Candidate) -> Vector:
    """* for members outside the tail; for a vote the number of the packet that cast it; otherwise infinity."""
    result: list[Component] = []
    for rank in range(ordering._size):
        if not ordering._tail >> rank & 1:
            result.append(STAR)
        elif candidate.votes >> rank & 1:
            result.append(ordering._nodes[rank][0].number)
        else:
            result.append(inf)
    return tuple(result)


class Undecided(Toto):
    """ToTo that never finds criterion DEL true, so that one can look at what it would decide on."""

    def _choose(self) -> list[Candidate]:
        return []


def figure_1(order: type[Agreed]) -> Group:
    """The DAG of Figure 1 with each machine casting when it has what its message acknowledges.

    From the text: m_d2 acknowledges m_c1 and m_e2, and through them m_a1, m_d1 and m_e1; m_c2 follows m_c1 and no other
    candidate; m_a2 follows all three. Table 1 counts d in the tail of m_b1, although m_d2, the first word of d, does not
    follow it (its component is infinity, and NVT is 2): so d has a later message that does.
    """
    group = Group(order, 5)
    group.cast(A, "a1", CAUSAL)
    group.carry_all(A, [D, C])
    group.cast(D, "d1", CAUSAL)
    group.carry_all(D, [C, E])
    group.carry_all(A, [E])
    group.cast(E, "e1", CAUSAL)
    group.carry_all(E)  # m_e1 is known everywhere before the candidates
    group.carry_all(A)
    group.carry_all(D)
    group.cast(B, "b1")
    group.cast(C, "c1")
    group.cast(E, "e2")
    group.carry_all(C, [D])
    group.carry_all(E, [D])
    group.cast(D, "d2", CAUSAL)
    group.cast(C, "c2")
    for candidate in (B, C, E):
        group.carry_all(candidate, [A])
    group.cast(A, "a2", CAUSAL)
    group.carry_all(B, [D])
    group.cast(D, "d3", CAUSAL)
    while group.streams:
        group.carry(*min(group.streams))
    return group


TABLE_1 = [  # as printed: candidate, Tail, NTail, VT, NVT
    ("b1", "abd", 3, (2, 1, inf, inf, inf), 2),
    ("c1", "acd", 3, (2, inf, 1, 2, inf), 3),
    ("e2", "ade", 3, (2, inf, inf, 2, 2), 3),
]


@pytest.mark.parametrize("machine", range(5))
def test_table_1(machine: int) -> None:
    """Section 4.1, Table 1: the candidates' quantifying functions, the same at every machine that has the whole DAG."""
    ordering: Agreed = figure_1(Undecided).orderings[machine]
    table = []
    for candidate in sorted(ordering._candidates, key=lambda c: c.origin):
        name = f"{'abcde'[candidate.origin]}{candidate.node.number}"
        tail, votes = candidate.tail, candidate.votes
        vector = printed_vector(ordering, candidate)
        assert votes.bit_count() == sum(k not in (STAR, inf) for k in vector)
        table.append((name, members_of(tail), tail.bit_count(), vector, votes.bit_count()))
    assert table == TABLE_1
    assert [batch.first for _, batch in ordering._pending[C]] == [0, 1]  # m_c2 is pending, and no candidate


def test_figure_1_acknowledgements() -> None:
    """Section 2.1: m_d2 "explicitly acknowledges messages m_c1, m_e2 and implicitly ... m_a1, m_d1 and m_e1"."""
    group = figure_1(Undecided)
    d2 = next(node for node in group.orderings[A]._nodes[D] if node.number == 2)
    assert d2.reach == (1, 0, 1, 2, 2)


def test_while_some_are_silent_their_components_are_stars() -> None:
    """Before a, c and d have spoken about any candidate, Table 1 has * in their columns."""
    group = Group(Undecided, 5)
    group.cast(B, "b1")
    group.cast(E, "e1")
    group.carry(E, B)
    first, second = group.orderings[B]._candidates
    assert printed_vector(group.orderings[B], first) == (STAR, 1, STAR, STAR, inf)
    assert printed_vector(group.orderings[B], second) == (STAR, inf, STAR, STAR, 1)


def test_figure_1_is_delivered() -> None:
    """With every machine in the tail and nobody beaten, DEL 2(b) holds: the three sources in lexicographical order, then m_c2."""
    for name in ("b1", "c1", "e2"):
        vector = next(row[3] for row in TABLE_1 if row[0] == name)
        others = [row[3] for row in TABLE_1 if row[0] != name]
        assert not any(may_win(other, vector, 2.5) for other in others)  # a source
    group = figure_1(Toto)
    group.settle()
    agreed = ["b1", "c1", "e2", "c2"]
    for machine in range(5):
        assert [name for name in group.names(machine) if name in agreed] == agreed
    assert group.violations() == {}


class Remembering(Toto):
    """Keeps the whole DAG, where ours forgets what follows nothing pending."""

    def __init__(self, view: View, rank: Rank, config: Config) -> None:
        super().__init__(view, rank, config)
        self.dag: list[list[Node]] = [[] for _ in view.members]

    def _enter(self, origin: Rank, number: int, acks: tuple[int, ...], batch: Batch | None, out: Outbox) -> None:
        self.dag[origin].append(Node(number, (*acks[:origin], number, *acks[origin + 1 :])))
        super()._enter(origin, number, acks, batch, out)


@pytest.mark.seconds
def test_tails_and_votes_are_those_of_the_definition_after_every_turn() -> None:
    """Section 4.1, items 1 and 3, from the whole DAG: so after a delivery too, when ours computes them from what it kept."""

    def compare(group: Group, rank: int) -> None:
        ordering = group.orderings[rank]
        candidates = ordering._candidates
        followers = [[n for n in nodes if any(c.followed_by(n) for c in candidates)] for nodes in ordering.dag]
        assert ordering._tail == sum(1 << q for q, nodes in enumerate(followers) if nodes)
        for c in candidates:
            assert c.tail == sum(1 << q for q, nodes in enumerate(followers) if any(map(c.followed_by, nodes)))
            assert c.votes == sum(1 << q for q, nodes in enumerate(followers) if nodes and c.followed_by(nodes[0]))

    for seed in range(200):
        group = run(Remembering, seed, Weather(sizes=(3, 5), casts=(4, 12), causal=0.3), watch=compare)
        assert group.violations() == {}, f"seed {seed}"


# Win, Future and DEL.


def candidates_of(
    votes: tuple[int, ...], tail: int, size: int, phi: float
) -> tuple[Any, list[Candidate], list[Vector]]:
    """A ToTo that holds these candidates, each with the members (as bits) that voted for it, and the vectors of the paper."""
    ordering: Any = Toto(make_view(size), A, Config(phi=phi))
    ordering._tail = tail
    for origin, bits in enumerate(votes):
        candidate = Candidate(origin, Node(1, (0,) * size))
        candidate.votes = candidate.tail = bits & tail
        ordering._candidates.append(candidate)
    result = ordering._candidates
    vectors = [
        tuple(STAR if not tail >> q & 1 else 1 if c.votes >> q & 1 else inf for q in range(size)) for c in result
    ]
    return ordering, result, vectors


@pytest.mark.parametrize(("size", "phi"), [(2, 1), (3, 1.5), (3, 2), (3, 2.5), (4, 2), (4, 2.5), (4, 3)])
def test_win_and_future_by_sets_of_votes(size: int, phi: float) -> None:
    """Our sets of voters give the paper's Win, Future and sources, for every pair of candidates and every tail."""
    everyone = (1 << size) - 1
    for tail, first, second in product(range(everyone + 1), repeat=3):
        if (first | second) & ~tail:
            continue
        ordering, (x, y), (vx, vy) = candidates_of((first, second), tail, size, phi)
        assert ordering._is_beaten(y) == (win(vx, vy, phi) == 1) == (future(vx, vy, phi) == {1})
        assert ordering._is_beaten(x) == (win(vx, vy, phi) == 0)
        assert ordering._may_lose(y) == (1 in future(vx, vy, phi))
        assert ordering._may_lose(x) == (0 in future(vx, vy, phi))
        if tail == everyone:
            assert len(future(vx, vy, phi)) == 1  # "the latest this can be is when NTail = n"


@pytest.mark.parametrize(("size", "phi"), [(3, 1.5), (4, 2), (4, 3), (5, 2.5)])
def test_w_1(size: int, phi: float) -> None:
    """(W.1): a candidate that was beaten beats nobody."""
    everyone = (1 << size) - 1
    for a, b, c in product(range(everyone + 1), repeat=3):
        _, (x, y, z), _ = candidates_of((a, b, c), everyone, size, phi)
        if (x.votes & ~y.votes).bit_count() > phi:
            assert (y.votes & ~z.votes).bit_count() <= phi


def test_below_n_half_w_1_would_not_hold() -> None:
    """Why phi must be at least n/2: with phi = 1 of 4, x beats y and y beats x."""
    _, (x, y), _ = candidates_of((0b0011, 0b1100), 0b1111, 4, 2)
    assert (x.votes & ~y.votes).bit_count() > 1
    assert (y.votes & ~x.votes).bit_count() > 1


def bits(members: str) -> int:
    return sum(1 << "abcdefgh".index(member) for member in members)


DEL = [
    # members, phi, votes for each candidate, who is in the tail, the candidates that are delivered
    ("nothing without more than phi members", 5, 2.5, ["ab"], "ab", []),
    ("a majority for the only candidate", 5, 2.5, ["abc"], "abc", [0]),
    ("a larger phi asks for more", 5, 3, ["abc"], "abc", []),
    ("x beats y for good, with e silent", 5, 2.5, ["abc", "d"], "abcd", [0]),
    ("y may lose and is not beaten: not internally stable", 5, 2.5, ["abc", "cd"], "abcd", []),
    ("e has voted for x", 5, 2.5, ["abce", "cd"], "abcde", [0]),
    ("e has voted for both", 5, 2.5, ["abce", "cde"], "abcde", [0, 1]),
    ("neither can beat the other any more", 5, 2.5, ["abc", "bcd"], "abcd", [0, 1]),
    ("nobody has more than phi votes", 4, 2, ["ab", "c"], "abc", []),
    ("2(b): everyone has spoken, the votes are split", 4, 2, ["ab", "cd"], "abcd", [0, 1]),
    ("2(a): the source y is followed by too few", 8, 4, ["abcde", "def", "g"], "abcdefg", []),
]


@pytest.mark.parametrize(
    ("size", "phi", "votes", "tail", "chosen"), [row[1:] for row in DEL], ids=[row[0] for row in DEL]
)
def test_criterion_del(size: int, phi: float, votes: list[str], tail: str, chosen: list[int]) -> None:
    """Section 4.2, criterion DEL, by hand; every candidate's own tail is those who voted for it."""
    ordering, candidates, _ = candidates_of(tuple(bits(members) for members in votes), bits(tail), size, phi)
    assert ordering._choose() == [candidates[at] for at in chosen]


def test_criterion_del_2a_waits_for_the_tail_of_every_source() -> None:
    """The last case above: one more member follows y, with a packet that is not its first word, and both sources go."""
    ordering, candidates, _ = candidates_of((bits("abcde"), bits("def"), bits("g")), bits("abcdefg"), 8, 4)
    candidates[1].tail |= bits("a")
    assert ordering._choose() == candidates[:2]


def test_a_majority_of_acknowledgements_delivers() -> None:
    """Four members, phi = 2: the caster and two others are enough."""
    group = Group(Toto, 4)
    group.cast(A, "x")
    group.carry(A, B)
    group.quiet(B)
    group.carry(B, A)
    assert group.names(A) == []
    group.carry(A, C)
    group.quiet(C)
    group.carry(C, A)
    assert group.names(A) == ["x"]
    group.settle()
    assert group.violations() == {}


def test_sources_are_delivered_in_lexicographical_order() -> None:
    """By (sender, counter), whichever came first."""
    group = Group(Toto, 2)
    group.cast(B, "y")
    group.cast(A, "x")
    group.carry(A, B)
    group.carry(B, A)
    assert group.names(A) == group.names(B) == ["x", "y"]


# Phi.


@pytest.mark.parametrize(("size", "phi"), [(1, None), (1, 0.5), (2, 1), (3, 1.5), (3, 2.9), (5, 2.5), (8, 4), (8, 7)])
def test_phi_may_be_fractional(size: int, phi: float | None) -> None:
    """Section 4.2: n/2 <= phi < n; the default is n/2."""
    toto: Any = Toto(make_view(size), A, Config(phi=phi))
    assert toto._phi == (size / 2 if phi is None else phi)


@pytest.mark.parametrize(
    ("size", "phi", "sentence"),
    [
        (5, 2, "phi = 2 is out of range for 5 members: choose 2.5 <= phi < 5, or leave it out for 2.5."),
        (5, 2.49, "phi = 2.49 is out of range for 5 members: choose 2.5 <= phi < 5, or leave it out for 2.5."),
        (4, 4, "phi = 4 is out of range for 4 members: choose 2 <= phi < 4, or leave it out for 2."),
        (4, -1, "phi = -1 is out of range for 4 members: choose 2 <= phi < 4, or leave it out for 2."),
        (4, float("nan"), "phi = nan is out of range for 4 members: choose 2 <= phi < 4, or leave it out for 2."),
    ],
)
def test_a_phi_that_would_break_agreement_is_refused(size: int, phi: float, sentence: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Toto(make_view(size), A, Config(phi=phi))
    assert str(refused.value) == sentence


# Measures and bounds of section 6.

WIDE = Weather(sizes=(2, 6), casts=(3, 10), phis=True)


def indices(group: Group) -> list[int]:
    return [
        note.attributes["index_of_latency"]  # type: ignore[misc]
        for notes in group.notes
        for note in notes
        if note.kind is NoteKind.ORDERED and note.attributes is not None
    ]


@pytest.mark.seconds
def test_the_index_of_latency_of_toto_lies_between_phi_plus_one_and_n() -> None:
    """Section 6: "the index of latency of ToTo ranges between Phi+1 to n", here with every phi."""
    lowest = 0
    for seed in range(300):
        group = run(Toto, seed, WIDE, noting=True)
        least = floor(group.config.threshold(group.size)) + 1
        found = indices(group)
        assert len(found) == len(group.sent) * group.size
        assert all(least <= index <= group.size for index in found), f"seed {seed}"
        lowest += sum(index == least for index in found if least < group.size)
    assert lowest > 0


def test_the_index_of_latency_of_all_ack_is_n() -> None:
    """Section 6: "most existing symmetric protocols have index of latency n"."""
    for seed in range(200):
        group = run(AllAck, seed, noting=True)
        assert set(indices(group)) == {group.size}


def test_toto_delivers_what_all_machines_acknowledged() -> None:
    """Section 1: "it always delivers a message after all the machines acknowledge its reception"."""

    def no_pending_message_is_followed_by_all(group: Group, rank: int) -> None:
        ordering = group.orderings[rank]
        for origin, queue in enumerate(ordering._pending):
            for node, _ in queue:
                last = [nodes[-1].reach[origin] if nodes else 0 for nodes in ordering._nodes]
                assert min(last) < node.number

    for seed in range(200):
        group = run(Toto, seed, MIXED, watch=no_pending_message_is_followed_by_all)
        assert group.violations() == {}, f"seed {seed}"


def test_toto_delivers_earlier_than_all_ack_on_average() -> None:
    """Section 1, "early delivery". Not each message: what ToTo puts behind others, all-ack may deliver together with them."""
    earlier = later = 0
    for seed in range(200):
        theirs, ours = run(AllAck, seed), run(Toto, seed)
        assert theirs.steps == ours.steps
        earlier += sum(ours.when[what] < step for what, step in theirs.when.items())
        later += sum(ours.when[what] > step for what, step in theirs.when.items())
    assert earlier > 3 * later


# Both services in one stream (section 2.1), and machines that leave (section 5).


@pytest.mark.parametrize("order", [Toto, AllAck])
def test_causal_and_agreed_messages_share_one_stream(order: type[Agreed]) -> None:
    """A causal message is delivered at once, even behind an agreed one that waits; an agreed one waits for its whole past."""
    group = Group(order, 3)
    group.cast(A, "agreed")
    group.cast(A, "causal", CAUSAL)
    assert group.names(A) == ["causal"]
    group.carry(A, B)
    group.carry(A, B)
    group.cast(B, "reply", CAUSAL)
    group.carry(B, C)
    assert group.names(C) == []  # the reply's past is not here
    group.carry(A, C)
    assert group.names(C) == []
    group.carry(A, C)
    assert [name for name in group.names(C) if name != "agreed"] == ["causal", "reply"]
    group.settle()
    assert group.violations() == {}


@pytest.mark.parametrize("order", [Toto, AllAck])
def test_b14_mixed_streams_keep_both_promises(order: type[Agreed]) -> None:
    for seed in range(300):
        assert run(order, seed, MIXED).violations() == {}, f"seed {seed}"


@pytest.mark.parametrize("order", [Toto, AllAck])
def test_a_machine_that_left_is_waited_for_no_longer(order: type[Agreed]) -> None:
    """Section 5.2, Crash(q): what waits for q's acknowledgement is delivered at the configuration change, before the new one."""
    group = Group(order, 2)
    group.cast(A, "x")
    assert group.names(A) == []
    group.crash(B)
    group.flush()
    assert group.names(A) == ["x"]


@pytest.mark.parametrize("order", [Toto, AllAck])
def test_what_follows_a_lost_message_is_discarded_by_all(order: type[Agreed]) -> None:
    group = Group(order, 4)
    group.cast(A, "x", CAUSAL)
    group.carry(A, B)
    group.cast(B, "y")
    group.carry(B, C)
    group.crash(A)
    group.crash(B)
    cut = group.flush()
    assert cut.wanted == (0, 0, 0, 0)
    assert group.names(C) == group.names(D) == []


@pytest.mark.parametrize("order", [Toto, AllAck])
def test_partitions_each_go_on_with_their_own_order(order: type[Agreed]) -> None:
    """Section 3: connected machines agree; an order may differ across partitions."""
    random = Random(4)
    group = Group(order, 5)
    for rank in (A, B, C, D, E):
        group.cast(rank, "abcde"[rank])
    for stream in random.sample(sorted(group.streams), 12):
        group.carry(*stream)
    for part in ({A, B}, {C, D, E}):
        group.alive = part
        group.flush()
        first, *others = (group.names(rank) for rank in sorted(part))
        assert all(names == first for names in others)
        assert {"abcde"[rank] for rank in part} <= set(first)


@pytest.mark.parametrize("order", [Toto, AllAck])
def test_survivors_of_crashes_agree(order: type[Agreed]) -> None:
    mixed = Weather(sizes=(3, 5), crashes=CRASHES.crashes, causal=0.3)
    for seed in range(300):
        assert run(order, seed, mixed).violations() == {}, f"seed {seed}"
