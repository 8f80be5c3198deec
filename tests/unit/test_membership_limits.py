"""Membership towards those who do not fit, who lie, or who are too many: refusals, impossible reports, limits."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.group_tools import passes, send, settles, watch_control, with_membership
from unisono.core.config import SECOND, Config
from unisono.core.errors import PeerFault
from unisono.core.member import member
from unisono.core.member.settings import Settings
from unisono.core.membership.contacts import HEARSAY_GREETINGS, Contacts
from unisono.core.membership.explain import REASON_CHARACTERS_MAX
from unisono.core.membership.membership import Membership
from unisono.core.membership.participant import Participant
from unisono.core.membership.settings import MembershipSettings, Policy
from unisono.core.types import MemberId, View, ViewId
from unisono.core.wire.control import Answer, Control, Hello, Propose, Refuse
from unisono.orders.registry import ORDERS
from unisono.orders.sequencer import Sequencer
from unisono.sim.group_world import QUICK, GroupWorld

# Refusals.

STRANGE = with_membership(policy=Policy.PRIMARY, refused_probe_ns=2 * SECOND)


def refuse(strange: Settings, names: str = "x") -> tuple[GroupWorld, Counter[str]]:
    """A group, and joiners whose settings do not fit; how often each greeted."""
    world = GroupWorld("fifo")
    greetings: Counter[str] = Counter()

    def watch(src: str, dst: str, message: Control) -> bool:
        greetings[src] += isinstance(message, Hello) and not message.answer
        return False

    world.gather("ab")
    watch_control(world, watch)
    world.start(*names, seeds=("a", "b", *names), settings=strange)
    world.run(10)
    return world, greetings


def test_a_joiner_that_is_refused_founds_no_group_of_its_own() -> None:
    world, greetings = refuse(STRANGE)
    x = world.processes["x"]
    assert x.view is None
    assert any("policy" in reason for reason in x.refusals), "it says why"
    (told,) = [one.sentence for one in x.member._membership.waiting()]
    assert re.fullmatch(
        r"x has no view: [ab] does not take it in, because the group uses policy='\w+', this member policy='\w+'; "
        r"join with the same settings",
        told,
    )
    assert 2 <= greetings["x"] <= 20, "it goes on asking, slowly"


def test_two_joiners_that_are_refused_found_none_together() -> None:
    world, _ = refuse(STRANGE, "xy")
    assert world.processes["x"].view is None
    assert world.processes["y"].view is None


def test_a_joiner_that_is_refused_can_be_told_to_stop() -> None:
    world, greetings = refuse(replace(STRANGE, membership=replace(STRANGE.membership, stops_when_refused=True)))
    x = world.processes["x"]
    assert x.view is None
    assert x.refusals
    assert x.member._membership.deadline is None
    assert greetings["x"] <= 2


def test_a_joiner_that_was_refused_is_taken_when_the_group_fits() -> None:
    """The group is started anew with the joiner's settings, at the same addresses."""
    world, _ = refuse(STRANGE)
    world.crash("a")
    world.crash("b")
    world.start("a", "b", seeds="ab", settings=STRANGE)
    settles(world, "abx")


def test_one_without_a_group_refuses_nobody_the_right_to_found_one() -> None:
    """Two that do not fit start at once: each may found its group, because neither was there first."""
    world = GroupWorld("fifo")
    world.start("a", seeds="ax")
    world.start("x", seeds="ax", settings=STRANGE)
    world.run(5)
    assert world.processes["a"].view is not None


def test_what_a_refusal_says_is_repeated_without_what_could_harm_a_terminal() -> None:
    world = GroupWorld("fifo")
    (a,) = world.start("a", seeds="b")
    b, membership = MemberId("b"), a.member._membership
    send(world, "a", b, Refuse("\x1b[31m" + 1_000 * "no ", ViewId(1, b), membership.greeting().nonce))
    (concern,) = membership.waiting()
    assert "because ?[31mno no" in concern.sentence
    assert len(concern.sentence) < REASON_CHARACTERS_MAX + 100


# Reports that cannot be.


class Liar(Participant):
    """Spoils its report."""

    def _make_answer(self) -> Answer:
        answer = super()._make_answer()
        if self._context.id.address != "c" or answer.view is None or len(answer.members) < 4:
            return answer
        codec = self._context.order_codec(self.order)
        report = codec.decode(answer.report, answer.members.index(self._context.id), len(answer.members))
        assert report is not None
        return answer._replace(report=codec.encode(type(self).lie(report)))  # type: ignore[attr-defined]


def lying(lie: Callable[[object], object]) -> type[Membership]:
    participant = type("OneLiar", (Liar,), {"lie": staticmethod(lie)})
    return type("Lying", (Membership,), {"participant_type": participant})


def more_than_was_cast(report):  # type: ignore[no-untyped-def]
    return report._replace(held=(2**31, *report.held[1:]))


def more_of_the_dead(report):  # type: ignore[no-untyped-def]
    return report._replace(held=(*report.held[:-1], 2**31))


@pytest.mark.parametrize("collect", ["star", "ring"])
@pytest.mark.parametrize("lie", [more_than_was_cast, more_of_the_dead])
@pytest.mark.parametrize("order", list(ORDERS))
def test_a_report_that_cannot_be_costs_its_sender_the_ballot_and_not_the_group(
    order: str, lie: Callable[[object], object], collect: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(member, "Membership", lying(lie))
    a_ballot_fails_for_a_report(GroupWorld(order, settings=with_membership(collect=collect)))


def a_ballot_fails_for_a_report(world: GroupWorld) -> None:
    world.has_liars = True
    members = world.gather("abcd")
    for process in members:
        process.cast(b"m")
    world.run(0.01)
    world.crash("d")
    settles(world, "ab")
    assert members[0].member._membership.refused["report"] >= 1


class Tripping(Sequencer):
    """Its merge trips over the report of rank 2, alone or together with rank 0's, or over any at all."""

    tripped = "alone"

    @staticmethod
    def merge(view, config, reports):  # type: ignore[no-untyped-def]
        if len(view) == 4 and Tripping.tripped == "alone" and 2 in reports:
            raise PeerFault("it cannot be")
        if len(view) == 4 and Tripping.tripped == "together" and {0, 2} <= reports.keys():
            raise PeerFault("they cannot both be")
        return Sequencer.merge(view, config, reports)


@pytest.mark.parametrize("tripped", ["alone", "together"])
def test_a_merge_that_trips_over_a_report_leaves_its_sender_out(tripped: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tripping, "tripped", tripped)
    a_ballot_fails_for_a_report(GroupWorld("sequencer", orders={**ORDERS, "sequencer": Tripping}))


def test_a_cut_that_wants_more_than_there_is_is_refused_without_counting_it_out() -> None:
    """A participant compares numbers, not lists: a cut may want four thousand million packets."""
    from unisono.core.membership.participant import lacking_count
    from unisono.orders.fifo import Fifo

    cut = Fifo.cut_wire.type((2**32 - 1, 0))
    assert lacking_count((5, 0), cut) == 2**32 - 6  # type: ignore[arg-type]


# Limits.


def make_contacts(limit: int) -> Contacts:
    return Contacts(MemberId("a"), MembershipSettings(addresses_max=limit))


def test_hearsay_does_not_crowd_out_seeds_and_members() -> None:
    contacts = make_contacts(4)
    contacts.learn(("seed",), is_firm=True)
    contacts.learn(f"h{number}" for number in range(100))
    assert contacts.addresses == ("seed", "h0", "h1", "h2"), "beyond the limit hearsay is not taken in"
    b, c = MemberId("b"), MemberId("c")
    contacts.installed(View(ViewId(1, b), (b, c)))
    assert set(contacts.addresses) == {"seed", "b", "c", "h2"}, "and it gives way to what is known"
    contacts.learn((f"s{number}" for number in range(5)), is_firm=True)
    assert set(contacts.addresses) == {"seed", "b", "c", "s0"}


def test_what_was_hearsay_and_is_confirmed_stays() -> None:
    contacts = make_contacts(2)
    contacts.learn(("x",))
    contacts.learn(("x",), is_firm=True)
    contacts.learn(("y", "z"), is_firm=True)
    assert contacts.addresses == ("x", "y")


def test_an_address_that_a_name_stands_for_no_longer_is_forgotten_after_some_greetings() -> None:
    contacts = Contacts(MemberId("a"), MembershipSettings())
    contacts.learn(("moved", "here"), is_firm=True)
    contacts.doubt(("moved",))
    assert contacts.firm_addresses == ("here",)
    for _ in range(HEARSAY_GREETINGS):
        assert "moved" in contacts.next_addresses(None)
    assert contacts.next_addresses(None) == ["here"]


def test_lives_outside_of_the_view_are_forgotten_first() -> None:
    contacts = make_contacts(3)
    b = MemberId("b", 5)
    contacts.meet(b)
    contacts.installed(View(ViewId(1, b), (b,)))
    for number in range(50):
        assert contacts.meet(MemberId(f"x{number}", 1))
    assert contacts.is_stale(MemberId("b", 4)), "who is in the view is remembered"
    assert not contacts.meet(MemberId("b", 4))
    assert len(contacts._newest) == 3
    assert contacts.is_stale(MemberId("x49", 0))
    assert not contacts.is_stale(MemberId("x0", 0)), "one that is long gone is not"


def test_suspects_and_those_who_did_not_answer_are_limited() -> None:
    world = GroupWorld("fifo", settings=replace(QUICK, config=Config(members_max=8)))
    (a,) = world.gather("a")
    known = a.member._membership._beliefs
    for number in range(100):
        a.member._membership.suspect(MemberId(f"x{number}"))
        known.shun(MemberId(f"x{number}"))
    assert list(known.suspects) == [MemberId(f"x{number}") for number in range(92, 100)], "the oldest are forgotten"
    assert len(known._shunned) == 8


def test_a_group_that_was_flooded_with_addresses_still_merges() -> None:
    world = GroupWorld("fifo", settings=with_membership(addresses_max=16))
    world.gather("ab")
    world.partition("a", "b")
    assert world.run(10, lambda: world.is_one("a") and world.is_one("b"))
    flood = tuple(MemberId(f"nobody{number}") for number in range(200))
    for name in "ab":
        for number in range(100):
            sender = MemberId(f"flood{number}")
            send(world, name, sender, Propose(ViewId(1, sender), None, flood))
    world.network.heal()
    settles(world, "ab", 20)
    passes(world)


def test_a_table_full_of_hearsay_does_not_keep_a_firm_address_waiting() -> None:
    """One stranger that named 4,000 addresses made each firm one wait for two minutes between greetings."""
    contacts = Contacts(MemberId("a"), MembershipSettings())
    limit = MembershipSettings().probe_addresses_max
    contacts.learn(f"hearsay {number}" for number in range(4_000))
    contacts.learn(("partner",), is_firm=True)
    contacts.learn(f"late {number}" for number in range(limit))
    for _ in range(10):
        chosen = contacts.next_addresses(None)
        assert "partner" in chosen
        assert len(chosen) == len(set(chosen)) == limit, "all places are used"
    contacts.learn((f"firm {number}" for number in range(limit)), is_firm=True)
    greeted = {one for _ in range(4) for one in contacts.next_addresses(None)}
    assert len([one for one in greeted if one.startswith("firm")]) == limit, "all in turn"
    assert len([one for one in greeted if one.startswith("hearsay")]) == 4 * limit // 2, "hearsay has its share"
