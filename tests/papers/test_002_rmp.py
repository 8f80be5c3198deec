"""Paper 002: the services, the lock, two-phase commit and recovery, sentence by sentence; and each gap as a pair.

A gap is a place where the paper is silent. Each is played on one and the same schedule: the naive variant of
`tests/mutants/rmp_mutants.py` fails, ours passes. The directory of names (section 2) is in `tests/papers/test_directory.py`.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.harness import CALM, CRASHES, UNICAST, A, B, Broken, C, D, Group, Weather, run
from tests.mutants import rmp_mutants as naive
from unisono.core.config import Config
from unisono.core.errors import Contradiction, PeerFault
from unisono.core.ordering import AnyOrdering
from unisono.core.outbox import Outbox
from unisono.core.types import Service
from unisono.orders.rmp import Accept, Commit, Data, Request, Rmp, Vote
from unisono.sim.explore.orders import Case, explore
from unisono.sim.faults import Fault
from unisono.sim.run import failure_of, simulate
from unisono.sim.scenario import Scenario, Source
from unisono.sim.swarm import scenario_of
from unisono.trace.schema import DECIDE, DELIVER, VIEW, VOTE

Order = type[AnyOrdering]


def holding(order: Order, size: int, config: Config | None = None) -> Group:
    """A group in which A has the lock, and everyone has delivered "w"."""
    group = Group(order, size, config)
    group.cast(A, "w")
    group.settle()
    return group


def broken(group: Group) -> set[Broken]:
    return set(group.violations())


# Section 1: three services.


def test_three_services_share_a_group() -> None:
    """A datagram is forgotten, a semi-reliable message comes without coordination, a reliable one to all or none."""
    group = Group(Rmp, 4)
    group.cast(A, "reading", service=Service.DATAGRAM)
    group.cast(A, "query", service=Service.FIFO)
    group.cast(A, "update")
    assert group.names(A) == ["reading", "query"], "neither waits for anyone"
    group.settle()
    assert [group.names(rank) for rank in range(4)] == [["reading", "query", "update"]] * 4


def test_reliable_service_is_the_three_things_of_section_1() -> None:
    """ "(1) delivery of each message to either all or none of the operational processes, (2) receipt of messages in the same
    order by all group members, and (3) detection of group membership changes and reporting of these changes as they
    occurred relative to the message delivery stream." Figure 3 is the third: the change has one place in everyone's stream."""
    scenario = Scenario(
        order="rmp",
        members=4,
        seed=5,
        source=Source(kind="poisson", rate=2_000, messages=200),
        faults=(Fault("crash", 12_000_000, ("d",)),),
    )
    outcome = simulate(scenario, keep=True)
    assert outcome.verdict.result == "PASS"
    assert {"P9c", "P10", "P14", "P18"} <= outcome.verdict.owed
    streams: dict[str, list[object]] = {name: [] for name in "abc"}
    for event in outcome.events:
        if event.member in streams and event.kind in (DELIVER, VIEW):
            streams[event.member].append(event.members if event.kind == VIEW else (event.origin, event.first))
    assert streams["a"] == streams["b"] == streams["c"]
    assert ("a", "b", "c") in streams["a"][1:-1]


# Section 3: the lock and the commit.


def test_a_transmission_in_every_packet() -> None:
    """Figure 2: one of four members transmits. Connections to all, data forward, confirmations backward, commit."""
    group = Group(Rmp, 4)
    group.cast(B, "m")
    others = (A, C, D)
    assert [group.carry(B, rank) for rank in others] == [Request(1)] * 3
    assert [group.carry(rank, B, UNICAST) for rank in others] == [Accept(1)] * 3
    for rank in others:
        data = group.carry(B, rank)
        assert isinstance(data, Data)
        assert (data.number, data.position, data.committed) == (1, 0, 0)
    assert group.delivered == [[], [], [], []], "members withhold the message"
    assert [group.carry(rank, B, UNICAST) for rank in others] == [Vote(1)] * 3
    assert group.names(B) == ["m"], "all have confirmed"
    assert [group.carry(B, rank) for rank in others] == [Commit(1)] * 3
    assert [group.names(rank) for rank in range(4)] == [["m"]] * 4
    assert group.packets == 5 * 3


def test_only_one_member_transmits_at_any_time() -> None:
    """ "Message serialization under RMP is trivial since only one member can be transmitting messages at any time." """

    def watch(group: Group, rank: int) -> None:
        assert sum(ordering._lock.held for ordering in group.orderings) <= 1

    for seed in range(300):
        assert run(Rmp, seed, CALM, watch=watch).violations() == {}


def test_control_travels_beside_user_data() -> None:
    """Tagged data: while there is something to transmit, the commit needs no packet of its own."""
    group = holding(Rmp, 2)
    group.cast(A, "x")
    group.carry(A, B)
    ordering = group.orderings[A]
    out = Outbox()
    ordering.receive(B, Vote(2), out)
    ordering.submit(group.sent[-1].batch, out)
    ordering.end_turn(out)
    (data,) = out.to_all
    assert isinstance(data, Data)
    assert data.committed == 2


def test_votes_and_decisions_stand_in_the_trace() -> None:
    scenario = Scenario(order="rmp", members=3, seed=1, source=Source(messages=5))
    events = simulate(scenario, keep=True).events
    transactions = {event.transaction for event in events if event.kind == "CAST"}
    assert len(transactions) == 5
    for transaction in transactions:
        rows = [event for event in events if event.transaction == transaction]
        assert [event.decision for event in rows if event.kind == VOTE] == ["yes"] * 2
        assert [event.decision for event in rows if event.kind == DECIDE] == ["commit"] * 3


# Gap: two members ask for the lock at once.


@pytest.mark.parametrize(
    ("order", "breaks"),
    [
        (naive.AcceptsAlways, Broken.INVARIANT),  # two transmit position 0
        (naive.YieldsToNobody, Broken.VALIDITY),  # both wait for ever
        (Rmp, None),
    ],
)
def test_two_ask_at_once(order: Order, breaks: Broken | None) -> None:
    group = Group(order, 3)
    group.cast(A, "x")
    group.cast(B, "y")
    try:
        group.settle()
    except PeerFault as error:
        group.fault = str(error)
    assert broken(group) >= ({breaks} if breaks else set())
    if breaks is None:
        assert broken(group) == set()
        assert group.names(C) == ["x", "y"], "the lower (stamp, member) wins"


@pytest.mark.parametrize(("order", "holders"), [(naive.LowerRankWins, 2), (Rmp, 1)])
def test_a_request_must_carry_a_stamp(order: Order, holders: int) -> None:
    """B asks first and A accepts; then A asks. Without stamps B yields to the lower rank, and both are accepted by all."""
    group = Group(order, 3)
    group.cast(B, "y")
    group.carry(B, A)
    group.cast(A, "x")
    group.carry(A, B)
    group.carry(A, C)
    group.carry(B, C)
    for sender, receiver in ((A, B), (B, A), (C, A), (C, B)):
        if group.under_way(sender, receiver, UNICAST):
            group.carry(sender, receiver, UNICAST)
    assert sum(ordering._lock.held for ordering in group.orderings) == holders


@pytest.mark.parametrize(("order", "ahead"), [(naive.NeverYields, 41), (Rmp, 4)])
def test_nobody_starves(order: Order, ahead: int) -> None:
    """A always casts one batch more before the votes for the last are in. How many of them does B's message wait for?"""
    group = holding(order, 2, Config(hold_batches_max=4))
    group.cast(B, "y")
    group.cast(A, "a")
    group.carry(B, A)  # A is in the middle of a hold when it learns that B waits
    for _ in range(39):
        group.cast(A, "a")
        if group.under_way(A, B):
            group.carry(A, B)
        group.carry_all(B, [A], UNICAST)
    group.settle()
    assert group.names(A).index("y") == ahead
    assert group.names(B) == group.names(A)


@pytest.mark.parametrize(("order", "breaks"), [(naive.ReleasesEarly, True), (Rmp, False)])
def test_the_lock_is_given_up_only_when_all_have_voted(order: Order, breaks: bool) -> None:
    """C lacks x when B takes the lock and transmits y; C would take y for the first."""
    group = holding(order, 3)
    group.cast(A, "x")
    group.cast(B, "y")
    group.carry_all(B, [A, C])
    group.carry(A, B)
    group.carry_all(C, [B], UNICAST)
    for _ in range(len(group.under_way(A, B, UNICAST))):
        group.carry(A, B, UNICAST)
    if breaks:
        with pytest.raises(Contradiction):
            group.carry(B, C)
        return
    assert group.under_way(B, C) == []
    group.settle()
    assert broken(group) == set()


def test_a_holder_that_dies_releases_the_lock_by_recovery() -> None:
    """In the next view nobody holds it, and what the others had waiting is delivered."""
    group = holding(Rmp, 3)
    group.cast(B, "y")
    group.crash(A)
    group.flush()
    assert group.names(B) == group.names(C) == ["w", "y"]
    again = Group(Rmp, 2)
    again.cast(A, "next")
    again.settle()
    assert again.names(B) == ["next"]


# Gap: what becomes of a message that reached only some.


def lost_commit(order: Order, *, reaches_b: bool) -> Group:
    """A has every vote for x and delivers it; its commit reaches B, or nobody; A crashes."""
    group = holding(order, 3)
    group.cast(A, "x")
    group.carry_all(A)
    group.carry_all(B, [A], UNICAST)
    group.carry_all(C, [A], UNICAST)
    assert group.names(A) == ["w", "x"]
    if reaches_b:
        group.carry(A, B)
    group.crash(A)
    group.flush()
    return group


def test_commit_reached_some_survivors_only() -> None:
    """Commit everywhere."""
    ours = lost_commit(Rmp, reaches_b=True)
    assert ours.names(B) == ours.names(C) == ["w", "x"]
    with pytest.raises(PeerFault, match="the cut contradicts"):
        lost_commit(naive.DropsWhatOneDelivered, reaches_b=True)


def test_no_survivor_saw_a_commit_and_all_hold_it() -> None:
    """Commit: the transmitter delivered it before it crashed, and the order is uniform."""
    ours = lost_commit(Rmp, reaches_b=False)
    assert ours.names(A) == ours.names(B) == ours.names(C) == ["w", "x"]
    theirs = lost_commit(naive.KeepsOnlyCommitted, reaches_b=False)
    assert (theirs.names(A), theirs.names(B)) == (["w", "x"], ["w"]), "what A delivered is contradicted"


def reached_some(order: Order, crashed: int) -> Group:
    """x of A reaches B and not C; then one member crashes."""
    group = holding(order, 4)
    group.cast(A, "x")
    group.carry(A, B)
    group.crash(crashed)
    group.flush()
    return group


def test_only_some_hold_it_and_the_transmitter_survives() -> None:
    """Complete it: the transmitter hands it to the others."""
    ours = reached_some(Rmp, D)
    assert ours.names(A) == ours.names(B) == ours.names(C) == ["w", "x"]
    assert broken(reached_some(naive.AbortsTheLiving, D)) == {Broken.VALIDITY}


def test_only_some_hold_it_and_the_transmitter_is_gone() -> None:
    """Discard it: nobody can have delivered it."""
    ours = reached_some(Rmp, A)
    assert ours.names(B) == ours.names(C) == ours.names(D) == ["w"]
    assert Broken.AGREEMENT in broken(reached_some(naive.DeliversWhatItHas, A))


@pytest.mark.parametrize("order", [naive.DeliversOnReceipt, naive.MajorityCommits])
def test_delivering_before_all_have_voted_is_never_safe(order: Order) -> None:
    """Whatever recovery does: x is delivered by B, or by A and B, and C has never seen it."""
    case = Case.of(1, 0, 0)
    assert explore(case, order, crashes=1).violation is not None
    assert explore(case, Rmp, crashes=2).violation is None


def test_what_waits_for_the_lock_is_not_forgotten() -> None:
    def wait(order: Order) -> Group:
        group = holding(order, 3)
        group.cast(B, "y")
        group.crash(C)
        group.flush()
        return group

    assert wait(Rmp).names(A) == ["w", "y"]
    assert broken(wait(naive.ForgetsUnsent)) == {Broken.VALIDITY}


# Gap: recovery carries a generation; a failure in it restarts it with a higher one.


def restarted(adopt: bool) -> tuple[list[str], list[str]]:
    """x of A reached B alone. D crashes: recovery completes x, and B closes with that cut. Then A crashes too, before C closed.

    The second recovery, by B and C. An answer of the higher generation carries the cut that its sender already closed with.
    """
    group = holding(Rmp, 4)
    group.cast(A, "x")
    group.carry(A, B)
    group.crash(D)
    reports: dict[int, Any] = {rank: group.orderings[rank].report() for rank in (A, B, C)}
    first = Rmp.merge(group.view, group.config, reports)
    later = Rmp.merge(group.view, group.config, {rank: reports[rank] for rank in (B, C)})
    delivered = []
    for rank, cut in ((B, first), (C, first if adopt else later)):
        out = Outbox()
        missing = {(A, 2): Data(2, 1, 1, group.sent[1].batch)} if rank == C else {}
        group.orderings[rank].close(cut, missing, out)
        delivered.append(group.names(rank) + [batch.payloads[0].decode() for batch in out.deliver if batch.payloads])
    return delivered[0], delivered[1]


def test_a_restarted_recovery_adopts_what_was_already_closed() -> None:
    assert restarted(adopt=False) == (["w", "x"], ["w"]), "merged anew, B is contradicted"
    assert restarted(adopt=True) == (["w", "x"], ["w", "x"])


def test_a_recovery_that_nobody_closed_may_start_anew() -> None:
    """Whoever drops out between reports and cut: those who are left follow the new cut, and the crashed are prefixes of it."""
    weather = Weather(sizes=(4, 5), crashes=(1, 2))
    for seed in range(200):
        group = run(Rmp, seed, weather)
        assert group.violations() == {}, f"seed {seed}"
        whole = group.delivered[min(group.alive)]
        for delivered in group.delivered:
            assert delivered == whole[: len(delivered)], f"seed {seed}"


# Each variant is also found by the swarm: seeds on which it fails and ours passes.


@pytest.mark.parametrize(
    ("mutant", "seed", "broken"),
    [
        (naive.YieldsToNobody, 1, "P4:"),
        (naive.AcceptsAlways, 1, "PeerFault"),
        (naive.LowerRankWins, 2, "PeerFault"),
        (naive.ReleasesEarly, 2, "PeerFault"),
        (naive.DeliversOnReceipt, 1, "P18:"),
        (naive.MajorityCommits, 2, "PeerFault"),
        (naive.KeepsOnlyCommitted, 91, "P10:"),
        (naive.DropsWhatOneDelivered, 215, "PeerFault"),
        (naive.AbortsTheLiving, 18, "P4:"),
        (naive.ForgetsUnsent, 0, "P4:"),
        (naive.CommitsUnheard, 1, "P18:"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_the_swarm_catches_a_broken_protocol(mutant: Order, seed: int, broken: str) -> None:
    sentence = failure_of(scenario_of("rmp", seed), mutant)
    assert sentence is not None
    assert sentence.startswith(broken)
    assert failure_of(scenario_of("rmp", seed)) is None, "ours passes on the same scenario"


@pytest.mark.parametrize(
    ("mutant", "counts", "property"),
    [
        (naive.KeepsOnlyCommitted, (1, 0), "P10:"),
        (naive.DropsWhatOneDelivered, (1, 0), "P10:"),
        (naive.AbortsTheLiving, (1, 0), "P4:"),
        (naive.ForgetsUnsent, (1, 0), "P4:"),
        (naive.YieldsToNobody, (1, 1), "P4:"),
        (naive.LowerRankWins, (1, 1), "PeerFault"),
        (naive.AcceptsAlways, (1, 1), "PeerFault"),
        (naive.ReleasesEarly, (1, 1), "PeerFault"),
        (naive.DeliversWhatItHas, (1, 0), "P4:"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_the_explorer_catches_a_broken_protocol(mutant: Order, counts: tuple[int, ...], property: str) -> None:
    report = explore(Case.of(*counts), mutant, crashes=1)
    assert report.violation is not None
    assert report.violation.sentence.startswith(property)


def test_random_crashes_keep_every_promise() -> None:
    for seed in range(500):
        assert run(Rmp, seed, CRASHES).violations() == {}, f"seed {seed}"
