"""Membership by the piece: settings, wire, chunks, primaries, refusals, switching, explaining."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from tests.group_tools import body_in, greeting, passes, send, settles, watch_control, with_membership
from tests.harness import make_view
from tests.mutants import membership_mutants as mutants
from unisono.core.config import SECOND, Config
from unisono.core.departure import Cause, Departure
from unisono.core.errors import ConfigError, Misuse
from unisono.core.member import member
from unisono.core.membership.chunks import IncomingChunks, chunks_of
from unisono.core.membership.context import MembershipOut
from unisono.core.membership.membership import Membership
from unisono.core.membership.primary import NOTHING, Judgement, confirmed, installed, judge
from unisono.core.membership.settings import MembershipSettings, Policy
from unisono.core.types import MemberId, View, ViewId
from unisono.core.wire import control
from unisono.core.wire.codec import Codec
from unisono.core.wire.control import (
    CHUNKED_WIRE,
    CONTROL_WIRE,
    Answer,
    Chunk,
    Confirm,
    ControlCodec,
    EarlierQuorum,
    EarlierStanding,
    HeldState,
    Hello,
    Moved,
    Part,
    Quorum,
    Standing,
)
from unisono.orders.registry import FLUSH_LAYOUTS, ORDERS
from unisono.sim.group_world import QUICK, GroupWorld, SimulatedProcess

A, B, C, D, E = (MemberId(name) for name in "abcde")
V1, V2, V3 = ViewId(1, A), ViewId(2, A), ViewId(3, MemberId("b", 7))


def of(process: SimulatedProcess) -> Membership:
    return process.member._membership


def view_of(process: SimulatedProcess) -> View:
    assert process.view is not None
    return process.view


def order_of(process: SimulatedProcess) -> str:
    return process.member.state.order


# Settings.


@pytest.mark.parametrize(
    "wrong",
    [
        {"retry_ns": 0},
        {"retry_ns": True},
        {"chunk_bytes_max": 10},
        {"members_min": 0},
        {"policy": "democracy"},
        {"collect": "pigeon"},
        {"answer_wait_ns": 5 * SECOND},
        {"peers": ("a", "a")},
    ],
)
def test_settings_that_cannot_be_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        MembershipSettings(**wrong)


def test_settings_agree_exactly_if_order_policy_and_configuration_do() -> None:
    mine = MembershipSettings().agreed("fifo", Config())
    assert mine == MembershipSettings(retry_ns=5).agreed("fifo", Config())
    assert mine != MembershipSettings(policy=Policy.PRIMARY).agreed("fifo", Config())
    assert mine != MembershipSettings().agreed("causal", Config())
    assert mine != MembershipSettings().agreed("fifo", Config(window_messages=7))


# Wire.

HOOKS = control.HookSet(True, False, True)
SETTINGS = control.GroupSettings(1, "fifo", "partitionable", HOOKS, False, Config().as_numbers())
PART = control.Part(V1, V2, (A, B), (C,))
GONE = Departure(C, Cause.SUSPECTED, A, 1_500_000_000)
CHARTER = control.Charter(V3, (A, B), (C,), "toto", (PART,), True, (V2, V1), (GONE,), True, HeldState(V1, V2), (A,))
STANDING = Standing(Quorum(V1, (A, B)), (Quorum(V2, (A,), V1),), V1)
CLOSED = control.ClosingCut(V2, (0, 2), b"cut")
SAMPLES: tuple[tuple[Any, ...], ...] = (
    Hello(SETTINGS, V1, "fifo", (A, B), A, (C,), ("x", "ü"), True),
    Hello(SETTINGS, None, "fifo", (), A, (), (), False),
    Hello(SETTINGS._replace(hooks=None, is_observer=True), None, "fifo", (), A, (), (), False),
    control.Refuse("no"),
    control.Refuse("no", V1, 2**64 - 1),
    control.Outlive(A, 2**63, 7),
    control.Notice(V1, (A,), ("x",), True, ""),
    control.Notice(V1, (A,), (), False, "", (GONE,), True),
    control.Propose(V2, None, (A, B)),
    control.Propose(V2, V1, (A, B)),
    Chunk(V2, 1, 10, 2**40, b"data"),
    control.Pull(V2, 0, 7),
    control.Fetch(V2, 3, V1, ((0, 1, 4), (2, 7, 7))),
    Confirm(V2),
    control.Install(V2),
    control.Outbid(V2, V3),
    control.Moved(V2, None),
    control.Moved(V2, V1),
    control.Dismiss(V3, V2, A, 2**40, 10**9),
    control.Answer(V1, (A, B), "fifo", b"report", CLOSED, True, False, STANDING),
    control.Answer(None, (), "fifo", b"", None, False, True, NOTHING, True, (HeldState(V1), HeldState(V2, V1))),
    control.RollCall(((A, V1), (B, None)), ((V1, (A,)),), (b"answer", b"")),
    control.Decree(CHARTER, ((V1, CLOSED, (A, B)),)),
    control.Flush(CHARTER, V1, CLOSED, ((0, 3, b"packet"), (1, 1, b""))),
    control.Flush(CHARTER._replace(primary=False, lost=Quorum(V2, (A, B))), None, None, ()),
    control.Packets(((1, 1, b"p"),)),
    STANDING,
    EarlierStanding(EarlierQuorum(V1, (A,)), ()),
)


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: type(sample).__name__)
def test_every_control_message_comes_back(sample: tuple[Any, ...]) -> None:
    codec = ControlCodec(Config())
    data = codec.encode(sample)
    assert codec.size(sample) == len(data)
    assert codec.read(data) == sample
    assert type(codec.read(data)) is type(sample)


def test_every_layout_has_a_sample() -> None:
    assert {layout.type for layout in (*CONTROL_WIRE, *CHUNKED_WIRE)} == {type(sample) for sample in SAMPLES}


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: type(sample).__name__)
def test_damaged_control_messages_are_refused_and_counted(sample: tuple[Any, ...]) -> None:
    """Every prefix is refused; a changed byte is refused or read as something else, and raises nothing."""
    codec = ControlCodec(Config())
    data = codec.encode(sample)
    for end in range(len(data)):
        assert codec.read(data[:end]) is None
    assert codec.read(data + b"\0") is None
    assert sum(codec.refused.values()) == len(data) + 1
    random = Random(1)
    for at in range(len(data)):
        for value in (0, 1, 127, 255, random.randrange(256)):
            found = codec.read(data[:at] + bytes((value,)) + data[at + 1 :])
            assert found is None or codec.encode(found) == data[:at] + bytes((value,)) + data[at + 1 :]


@pytest.mark.parametrize("name", ORDERS)
def test_reports_and_cuts_of_every_order_travel(name: str) -> None:
    """Two members of an order that have done something report, and the merged cut comes back as it went."""
    order, view, config = ORDERS[name], make_view(3), Config()
    codec = Codec((*order.wire, order.report_wire, order.cut_wire), config)
    world = GroupWorld(name)
    members = world.gather("abc")
    for number in range(4):
        for process in members:
            process.cast(b"x%d" % number)
    world.run(0.002)
    world.network.cut("a", "b")
    members[0].cast(b"y")
    world.run(0.004)
    reports = {}
    for rank, process in enumerate(members):
        report: Any = process.member.engine.block()
        data = codec.encode(report)
        assert codec.decode(data, rank, 3) == report
        reports[rank] = report
    cut = order.merge(view, config, reports)
    data = codec.encode(cut)
    assert codec.decode(data, 0, 3) == cut
    for end in range(len(data)):
        assert codec.decode(data[:end], 0, 3) is None


def test_kinds_of_reports_cuts_and_control_are_apart() -> None:
    kinds = [layout.kind for layout in (*FLUSH_LAYOUTS, *CONTROL_WIRE, *CHUNKED_WIRE)]
    assert len(set(kinds)) == len(kinds)


# Chunks.


def test_chunked_data_arrives_whatever_is_lost_and_in_whatever_order() -> None:
    random = Random(3)
    data = bytes(random.randrange(256) for _ in range(1000))
    incoming = IncomingChunks(V1, 0, len(data))
    asked = 0
    for chunk in chunks_of(V1, 0, data, 0, 64, 1):
        incoming.add(chunk)
    while not incoming.is_whole:
        pull = incoming.pull(256, again=True)
        assert pull is not None
        asked += 1
        some = list(chunks_of(V1, 0, data, pull.offset, 64, 4))
        random.shuffle(some)
        for chunk in some:
            if random.random() < 0.7:
                incoming.add(chunk)
    assert incoming.bytes() == data
    assert asked < 20


def test_pieces_that_do_not_fit_are_ignored() -> None:
    incoming = IncomingChunks(V1, 0, 10)
    assert not incoming.add(Chunk(V1, 0, 8, 10, b"abc"))
    assert not incoming.add(Chunk(V1, 0, 0, 11, b"abc"))
    assert not incoming.add(Chunk(V1, 0, 0, 10, b""))
    assert incoming.add(Chunk(V1, 0, 0, 10, b"0123456789"))
    assert not incoming.add(Chunk(V1, 0, 0, 10, b"0123456789"))
    assert incoming.bytes() == b"0123456789"


def test_empty_data_is_one_empty_chunk() -> None:
    (chunk,) = chunks_of(V1, 0, b"", 0, 64, 1)
    incoming = IncomingChunks(V1, 0, 0)
    assert not incoming.is_whole
    assert incoming.add(chunk)
    assert incoming.is_whole
    assert incoming.bytes() == b""


@pytest.mark.parametrize("order", ["sequencer", "toto", "abcast"])
def test_control_messages_stay_small_however_much_is_missing(order: str) -> None:
    world = GroupWorld(order, settings=with_membership(chunk_bytes_max=256))
    a, b, _ = world.gather("abc")
    world.network.cut("a", "c")
    for number in range(20):
        a.cast(bytes(2000) + b"%d" % number)
        b.cast(bytes(100))
        world.run(0.001)
    world.run(0.01)
    world.crash("a")
    largest, codec = 0, ControlCodec(Config())

    def measure(src: str, dst: str, message: control.Control) -> bool:
        nonlocal largest
        largest = max(largest, codec.size(message))
        return False

    watch_control(world, measure)
    settles(world, "bc")
    assert 256 < largest < 256 + 200
    passes(world)


def test_a_large_cut_in_small_pieces_gets_through_heavy_loss() -> None:
    """Found by the swarm: repeats backed off although chunks arrived, the proposer took that for silence, for ever."""
    settings = replace(QUICK, membership=MembershipSettings(chunk_bytes_max=64))
    world = GroupWorld("sequencer", 20, settings=settings)
    a, b, *_ = world.gather("abcd")
    before, count = b.view, len(b.views)
    world.network.drops = lambda src, dst, datagram: (
        dst in "cd" and b.view == before and body_in(datagram) is not None  # b has all, and only membership brings it
    )
    for number in range(30):
        a.cast(bytes(700) + b"%d" % number)
        world.run(0.001)
    world.run(0.01)
    world.crash("a")
    world.network.loss = 0.25
    settles(world, "bcd", 20)
    assert len(b.views) == count + 1, "nobody was given up"
    passes(world)


# Primaries.


def answers(
    members: Sequence[MemberId], *standings: Standing, bootstrap: bool = False, **holds: tuple[HeldState, ...]
) -> dict[MemberId, Answer]:
    """Answers with these standings, the last one for all that remain; with `holds`, of members whose application has a state."""
    told = [*standings, *[standings[-1]] * (len(members) - len(standings))]
    return {
        member: Answer(
            None, (), "fifo", b"", None, False, bootstrap, standing, bool(holds), holds.get(member.address, ())
        )
        for member, standing in zip(members, told, strict=False)
    }


def primary(
    members: Sequence[MemberId], *standings: Standing, peers: Sequence[str] = (), bootstrap: bool = False
) -> Judgement:
    return judge(members, answers(members, *standings, bootstrap=bootstrap), (), peers)


def test_the_first_primary_needs_a_majority_of_the_peers_or_the_bootstrap() -> None:
    assert primary((A, B), NOTHING, peers=("a", "b", "c")) == Judgement(True)
    assert not primary((A,), NOTHING, peers=("a", "b", "c")).is_primary
    assert primary((A,), NOTHING, bootstrap=True).is_primary
    assert not primary((A,), NOTHING).is_primary


def test_bootstrap_counts_only_where_no_primary_is_known() -> None:
    """It stays in configuration files: a second start must not found a second history."""
    assert not primary((A,), Standing(Quorum(V1, (A, B, C)), ()), bootstrap=True).is_primary


def test_a_primary_needs_a_majority_of_the_last_and_of_all_later_ones_that_were_confirmed() -> None:
    last = Quorum(V1, (A, B, C, D, E))
    attempt = Quorum(V2, (A, B, C))
    knows = Standing(last, (attempt,))
    assert not primary((C, D, E), knows).is_primary
    assert primary((C, D, E), Standing(last, ())) == Judgement(True, (V1,))
    assert primary((A, B, D), knows) == Judgement(True, (V2, V1))
    assert primary((A, B), knows, installed(knows, attempt)) == Judgement(True, (V2,))


def test_members_count_by_address_so_that_a_restarted_one_with_its_record_counts() -> None:
    last = Quorum(V1, (A, B, C))
    assert primary((MemberId("a", 5), MemberId("b", 2)), Standing(last, ())).is_primary


# Holders of a state.

V4 = ViewId(4, B)
LAST = Standing(Quorum(V2, (A, B, C), V1, True), ())


def test_a_primary_needs_a_holder_of_the_last_primarys_state() -> None:
    amnesia = judge((A, B), answers((A, B), LAST, a=()), (), ())
    assert amnesia == Judgement(False, (V2,), True, lost=LAST.last)
    parts = (Part(V2, V3, (A,)), Part(V4, V4, (B,)))
    assert judge((A, B), answers((A, B), LAST, a=(HeldState(V2),)), parts, ()) == Judgement(
        True, (V2,), True, HeldState(V2), (A,)
    )
    assert judge((A, B), answers((A, B), LAST, b=(HeldState(V2),)), parts, ()) == Judgement(
        True, (V2,), True, HeldState(V2), (B,)
    )
    assert (
        judge((A, B), answers((A, B), LAST, b=(HeldState(V1),)), parts, ()).lost == LAST.last
    )  # an older state is not enough


def test_the_first_primary_needs_no_holder_and_neither_does_a_group_without_a_state() -> None:
    assert judge((A, B), answers((A, B), NOTHING, a=()), (), ("a", "b", "c")) == Judgement(True, has_state=True)
    stateless = Standing(Quorum(V2, (A, B, C)), ())
    assert judge((A, B), answers((A, B), stateless), (), ()) == Judgement(True, (V2,))


def test_observers_that_were_primary_before_any_state_do_not_keep_one_from_beginning() -> None:
    observed = Standing(Quorum(V2, (A, B)), ())
    assert judge((A, B, C), answers((A, B, C), observed, c=()), (), ()) == Judgement(True, (V2,), True)
    unknown = Standing(Quorum(V2, (A, B), None, None), ())  # a record of an earlier version: there may have been one
    assert judge((A, B, C), answers((A, B, C), unknown, c=()), (), ()).lost == unknown.last
    assert judge((A, B), answers((A, B), unknown), (), ()).is_primary


def test_observers_that_are_the_majority_do_not_go_on_without_the_state() -> None:
    """They have no state themselves, but their records say that there was one."""
    assert judge((A, B), answers((A, B), LAST), (), ()).lost == LAST.last


def test_exactly_one_part_carries_the_state_on_the_one_from_the_primary_itself_first() -> None:
    parts = (Part(V2, V3, (C,)), Part(V4, V4, (A, B)))
    held = answers((A, B, C), LAST, a=(HeldState(V2),), b=(HeldState(V2),), c=(HeldState(V2),))
    assert judge((A, B, C), held, parts, ()).holders == (C,)
    parts = (Part(V2, V3, (C,)), Part(V2, V4, (A, B)))  # closed twice: more holders go first
    assert judge((A, B, C), held, parts, ()).holders == (A, B)
    met = (Part(V3, V4, (A, B, C)),)  # together through a view that is not primary, from which they had parted
    held = answers((A, B, C), LAST, a=(HeldState(V2, V3),), b=(HeldState(V2, V4),), c=(HeldState(V2, V4),))
    assert judge((A, B, C), held, met, ())[3:5] == (HeldState(V2, V4), (B, C))
    held = answers((A, B, C), LAST, a=(HeldState(V2),))
    assert judge((A, B, C), held, parts, ()).holders == (A,)  # b came along with a, and has no state yet


def test_a_primary_that_a_member_confirmed_and_never_installed_needs_only_the_state_it_was_to_begin_with() -> None:
    """A proposed it and crashed; B confirmed; C has not heard of it. Nothing safe was delivered there."""
    attempt = Quorum(V4, (A, B, C), V2, True)
    knows = Standing(None, (attempt,))
    parts = (Part(V2, V3, (C,)),)
    told = answers((B, C), knows, LAST, c=(HeldState(V2),))
    assert judge((B, C), told, parts, ()) == Judgement(True, (V4, V2), True, HeldState(V2), (C,))
    assert judge((B, C), answers((B, C), knows, LAST, b=()), parts, ()).lost == LAST.last
    left = Standing(None, (Quorum(V4, (A, C), V2, True),))  # one that left with it proves nothing
    assert judge((B, C, A), answers((B, C, A), left, LAST, c=(HeldState(V2),)), parts, ()).lost == left.attempts[0]


def test_a_state_is_given_up_by_its_name_and_the_latest_earlier_one_goes_on() -> None:
    gave = LAST._replace(given_up=V2)
    assert judge((A, B), answers((A, B), gave, LAST, a=()), (), ()) == Judgement(True, (V2,), True, lost=LAST.last)
    parts = (Part(V1, V3, (B,)),)
    assert judge((A, B), answers((A, B), gave, LAST, b=(HeldState(V1),)), parts, ()) == Judgement(
        True, (V2,), True, HeldState(V1), (B,), LAST.last
    )
    other = LAST._replace(given_up=V1)
    assert judge((A, B), answers((A, B), other, LAST, a=()), (), ()).lost == LAST.last


def test_a_holder_that_installs_a_primary_because_it_is_asked_from_there_says_that_it_holds_it() -> None:
    """C has confirmed, but the install was lost: the next ballot proves that there is one, and is answered in the same turn."""
    settings = with_membership(policy=Policy.PRIMARY, peers=("a", "b", "c"), has_state=True)
    world = GroupWorld("fifo", settings=settings, owed={"P20"})
    a, b, c = world.gather("abc")
    first = view_of(c).id
    assert of(c).holds == HeldState(first), "of the first primary everyone has everything"
    watch_control(world, lambda _, to, message: to == "c" and not isinstance(message, control.Propose | Chunk))
    (d,) = world.start("d", seeds="a")
    assert world.run(5, lambda: d.view is not None and first == view_of(c).id != d.view.id), world.story()
    second = view_of(d).id
    assert second == of(c).uninstalled
    ballot = ViewId(second.number + 1, b.id)
    send(world, "c", b.id, control.Propose(ballot, second, view_of(d).members))
    answer = ControlCodec(Config()).read(of(c)._participant._answer)
    assert isinstance(answer, Answer)
    assert answer.view == second
    assert answer.holds == (HeldState(second),)
    assert (of(a).holds, of(d).holds) == (HeldState(second), None)


def test_answers_that_cannot_be_are_judged_without_an_error() -> None:
    """Two records of one primary, a state without a view that it comes from, and a state that was left with no ballot's cut."""
    other = Standing(LAST.last._replace(state=None, has_state=False), (Quorum(V4, (A,)),))  # type: ignore[union-attr]
    another = other._replace(attempts=(Quorum(V4, (A,), V2),))
    assert judge((A, B, C), answers((A, B, C), LAST, other, another, a=(HeldState(V2),)), (), ()).lost is not None
    parts = (Part(V2, V3, (A, B)),)
    held = answers((A, B), LAST, a=(HeldState(V2),), b=(HeldState(V2, V2),))
    assert judge((A, B), held, parts, ())[3:5] == (HeldState(V2), (A,))


def test_a_charter_that_cannot_be_is_refused() -> None:
    settings = with_membership(policy=Policy.PRIMARY, peers=("a",), has_state=True)
    (a,) = GroupWorld("fifo", settings=settings).gather("a")
    participant, here = of(a)._participant, view_of(a)
    ballot = ViewId(here.id.number + 1, B)
    of(a).receive(B, control.Propose(ballot, here.id, (A, B)))
    mine = control.Part(here.id, ballot, (A,))
    charter = control.Charter(ballot, (A, B), (), "fifo", (mine,), True, (), has_state=True)
    flush = control.Flush(charter, here.id, control.ClosingCut(ballot, (0,), b""), ())
    assert participant._is_sound(flush)
    assert participant._is_sound(flush._replace(charter=charter._replace(holders=(A,))))
    for wrong in (
        charter._replace(holders=(B,)),  # which comes from nowhere
        charter._replace(holders=(A, B)),
        charter._replace(holders=(A,), primary=False),
        charter._replace(parts=()),
        charter._replace(parts=(mine._replace(view=V1),)),
        charter._replace(parts=(mine._replace(cut=here.id),)),
    ):
        assert not participant._close(flush._replace(charter=wrong)), wrong
    (b,) = GroupWorld("fifo").gather("b")
    alone = control.Charter(ballot, (b.id,), (), "fifo", (), True, ())
    assert not of(b)._participant._is_sound(control.Flush(alone, None, None, ())), "no view there is primary"


def test_records() -> None:
    quorum = Quorum(V2, (A, B))
    standing = confirmed(NOTHING, quorum)
    assert standing == Standing(None, (quorum,))
    assert confirmed(standing, quorum) is standing
    assert installed(standing, quorum) == Standing(quorum, ())


def test_a_record_that_cannot_be_read_stops_the_start() -> None:
    with pytest.raises(Misuse, match="record"):
        GroupWorld("fifo").start("a", record=b"nonsense")


class Watched(Membership):
    """Sees in each turn that whoever confirms a primary has persisted it before."""

    persisted = 0

    def drain(self) -> MembershipOut:
        out = super().drain()
        for _, message in out.sends:
            if isinstance(message, Confirm) and message.ballot == self.uninstalled:
                self.persisted += bool(out.records)
                assert out.records or self.persisted
        return out


def test_what_is_confirmed_is_persisted_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(member, "Membership", Watched)
    settings = with_membership(policy=Policy.PRIMARY, peers=("a", "b", "c"))
    world = GroupWorld("fifo", settings=settings, owed={"P20"})
    members = world.gather("abc")
    assert sum(of(process).persisted for process in members) >= 2  # type: ignore[attr-defined]
    assert all(of(process).is_primary for process in members)
    passes(world)


# Refusals, switching, questions.


@pytest.mark.parametrize(
    ("order", "policy", "told"),
    [
        ("fifo", Policy.PRIMARY, "policy='partitionable', this member policy='primary'"),
        ("causal", Policy.PARTITIONABLE, "order='fifo', this member order='causal'"),
    ],
)
def test_a_joiner_with_other_settings_is_refused_and_told_why(order: str, policy: Policy, told: str) -> None:
    world = GroupWorld("fifo")
    world.gather("ab")
    world.order = order
    (c,) = world.start("c", seeds="a", settings=with_membership(policy=policy))
    world.run(3)
    assert c.refusals[0] == f"the group uses {told}; join with the same settings."
    assert world.is_one("ab")


def test_switching_the_order_takes_effect_with_the_next_view() -> None:
    world = GroupWorld("fifo")
    members = world.gather("abc")
    members[1].cast(b"before")
    members[2].member.switch("causal")
    members[2].turn()
    assert world.run(5, lambda: {order_of(process) for process in members} == {"causal"})
    members[1].cast(b"after")
    (d,) = world.start("d", seeds="a")  # configured as the group once was: it learns the order with its first view
    settles(world, "abcd")
    assert order_of(d) == "causal"
    passes(world)


def test_a_switch_to_an_unknown_order_is_misuse() -> None:
    (a,) = GroupWorld("fifo").start("a")
    with pytest.raises(Misuse, match="no order"):
        a.member.switch("alphabetical")


def test_who_is_greeted_from_a_view_that_it_has_left_behind_says_so() -> None:
    """It confirmed that view, and then another one was installed late. To the others it is there: it greets them, and may be the
    one that is to propose."""
    a, b = GroupWorld("fifo").gather("ab")
    mine, higher = view_of(a).id, ViewId(view_of(a).id.number + 1, b.id)
    of(a).receive(b.id, greeting(a, b.id, view=higher, members=(b.id,)))
    assert (b.id, Moved(higher, mine)) not in of(a)._context.out.sends
    of(a).receive(b.id, greeting(a, b.id, view=higher, members=(a.id, b.id)))
    assert (b.id, Moved(higher, mine)) in of(a)._context.out.sends


def test_a_view_goes_on_without_one_that_says_that_it_is_elsewhere() -> None:
    world = GroupWorld("fifo")
    a, b, _ = world.gather("abc")
    before = view_of(b)
    for name in "bc":
        send(world, name, a.id, Moved(before.id, ViewId(before.id.number - 1, a.id)))
    assert world.run(5, lambda: view_of(b).id > before.id and len(view_of(b)) == 2)
    settles(world, "abc")
    passes(world)


def test_a_view_that_is_about_to_lose_somebody_is_not_merged_with() -> None:
    """Its coordinator suspects one of its own: a ballot with all of them waits for that one in vain, and keeps the others from
    going on without it."""
    (a,) = GroupWorld("fifo").gather("a")
    hello = greeting(a, D, view=ViewId(7, D), members=(D, E))
    of(a).receive(D, hello._replace(suspects=(E, B)))
    assert of(a)._beliefs.newcomers() == {}
    of(a).receive(D, hello._replace(suspects=(B,)))  # of those outside of a view nobody has to wait
    assert set(of(a)._beliefs.newcomers()) == {D, E}


def test_a_view_with_a_member_that_is_suspected_here_is_not_merged_with() -> None:
    """Found by the swarm: it was proposed, and dropped, thousands of times a second."""
    (a,) = GroupWorld("fifo").gather("a")
    of(a).receive(D, greeting(a, D, view=ViewId(7, D), members=(D, E)))
    assert set(of(a)._beliefs.newcomers()) == {D, E}
    of(a).suspect(E)
    assert of(a)._beliefs.newcomers() == {}


def test_who_promised_a_ballot_that_its_proposer_has_left_behind_does_not_wait_for_it() -> None:
    world = GroupWorld("fifo")
    (a,) = world.gather("a")

    def due() -> int:
        """When it is to propose."""
        of(a).observe()
        found = of(a)._timing.due
        assert found is not None
        return found

    ballot = ViewId(view_of(a).id.number + 1, D)
    of(a).receive(D, control.Propose(ballot, view_of(a).id, (a.id, D, E)))
    patient = due()
    assert patient > world.now
    of(a).contact(E, ViewId(ballot.number + 1, E))  # the proposer may still be at work
    of(a).contact(D, None)
    assert due() == patient
    of(a).contact(D, ViewId(ballot.number + 1, D))
    assert due() <= world.now


CATCHES: list[tuple[type[Membership], Callable[[], None]]] = [
    (mutants.NeverDenies, test_who_is_greeted_from_a_view_that_it_has_left_behind_says_so),
    (mutants.MergesWithTheAccused, test_a_view_that_is_about_to_lose_somebody_is_not_merged_with),
    (
        mutants.WaitsForTheForsaken,
        test_who_promised_a_ballot_that_its_proposer_has_left_behind_does_not_wait_for_it,
    ),
]


@pytest.mark.parametrize(("kind", "story"), CATCHES, ids=[kind.__name__ for kind, _ in CATCHES])
def test_a_story_catches_the_mutant(
    kind: type[Membership], story: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(member, "Membership", kind)
    with pytest.raises(AssertionError):
        story()


def test_explain_says_who_is_waited_for() -> None:
    world = GroupWorld("fifo", settings=with_membership(answer_wait_ns=SECOND, proposal_wait_ns=3 * SECOND))
    a, b, _ = world.gather("abc")
    assert of(a).explain() is None
    watch_control(world, lambda src, dst, message: isinstance(message, Chunk))
    world.crash("c")
    assert world.run(5, lambda: of(a).is_proposing)
    world.run(0.5)
    text = of(a).explain()
    assert text is not None
    assert text.startswith("a has waited 0.4")
    assert text.endswith("with its proposal 2@a for the answer of b.")
    assert of(b).explain() is not None
    assert not of(b).stalled


def test_one_alone_founds_a_group_and_leaves_it() -> None:
    world = GroupWorld("fifo")
    (a,) = world.start("a")
    assert a.view == View(ViewId(1, A), (A,))
    a.cast(b"m")
    world.leave("a")
    assert a.ended
    assert world.finish(last_words=False).result == "PASS"


def test_nothing_happens_before_join_and_after_leaving() -> None:
    world = GroupWorld("fifo")
    _, b = world.gather("ab")
    world.leave("b")
    assert world.run(5, lambda: b.ended)
    assert of(b).deadline is None
    of(b).receive(A, control.Propose(ViewId(99, A), V1, (A, B)))
    assert of(b).drain().sends == []
    assert not b.refusals


def test_of_two_wishes_for_an_order_one_wins_and_they_do_not_take_turns() -> None:
    world = GroupWorld("fifo")
    members = world.gather("abc")
    for process, order in zip(members[1:], ("causal", "toto"), strict=True):
        process.member.switch(order)
        process.turn()
    world.run(5)
    before = [len(process.views) for process in members]
    world.run(10)
    assert [len(process.views) for process in members] == before
    assert order_of(members[0]) in ("causal", "toto")


def test_strangers_take_no_more_memory_than_allowed() -> None:
    (a,) = GroupWorld("fifo", settings=with_membership(addresses_max=5)).start("a")
    hello = of(a).greeting()
    for number in range(50):
        stranger = MemberId(f"s{number}")
        of(a).receive(stranger, hello._replace(view=ViewId(1, stranger), members=(stranger,), coordinator=stranger))
    assert len(of(a)._contacts.contacts) <= 5
    assert len(of(a).addresses) <= 5
    assert of(a).refused["too many contacts"] == 45
