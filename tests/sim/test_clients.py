"""Clients outside of the group, with whole members in the simulator: an answer or a named failure, an effect once."""

from __future__ import annotations

import pytest

from tests.client_world import ClientWorld, Outsider
from tests.group_tools import passes, settles, with_membership
from tests.mutants.client_mutants import CastsAndForgets, RemembersNothing
from unisono.core.config import MILLISECOND, SECOND
from unisono.core.membership.settings import Policy
from unisono.services.client import Answered, ClientSettings, Failed
from unisono.services.client_desk import ClientDesk, DeskSettings
from unisono.services.client_messages import Wanted


@pytest.mark.parametrize("order", ["sequencer", "rmp", "toto"])
def test_a_request_through_any_member_is_seen_by_all_and_answered_by_the_contact(order: str) -> None:
    world = ClientWorld(order, seed=1)
    world.gather("abc")
    outsider = world.outsider("x", "bca")
    number = outsider.ask(b"hello")
    world.run(3)
    assert outsider.outcomes[number] == Answered(number, ((world.processes["b"].id, b"b: hello"),), True)
    assert world.logs() == [[("x", b"hello")]] * 3, "with the client's identity"
    passes(world)


def test_all_answer_if_the_client_wants_it() -> None:
    world = ClientWorld("sequencer", seed=2)
    world.gather("abc")
    outsider = world.outsider("x", "a")
    number = outsider.ask(b"?", Wanted.ALL)
    world.run(3)
    outcome = outsider.outcomes[number]
    assert isinstance(outcome, Answered)
    assert outcome.is_whole
    assert {member.address: answer for member, answer in outcome.answers} == {n: n.encode() + b": ?" for n in "abc"}
    passes(world)


def test_locating_a_resource_is_answered_by_the_one_that_has_it() -> None:
    world = ClientWorld("sequencer", seed=3)
    world.gather("abcd")
    for name in "abcd":
        served = world.served(name)
        served.serve = lambda errand, served=served: (  # type: ignore[misc]
            b"here" if errand.payload == b"printer" and served.id.address == "c" else None
        )
    outsider = world.outsider("x", "a", ClientSettings(wait_ns=2 * SECOND))
    found, nowhere = outsider.ask(b"printer", Wanted.ANY), outsider.ask(b"unicorn", Wanted.ANY)
    world.run(4)
    assert outsider.outcomes[found] == Answered(found, ((world.processes["c"].id, b"here"),), True)
    assert outsider.outcomes[nowhere] == Failed(nowhere, "no contact answered")
    passes(world)


def introduce(world: ClientWorld, outsider: Outsider, contact: str) -> None:
    """Until the contact has said how a stranger is to ask; the request is on its way there again."""
    assert world.run(3, lambda: outsider.client.is_known_to(contact))


def contact_dies_before_answering(desk: type[ClientDesk] = ClientDesk) -> tuple[ClientWorld, Answered]:
    """a casts the errand, and crashes as soon as the others have it; its answer never leaves."""
    world = ClientWorld("sequencer", seed=4, desk_type=desk)
    world.gather("abc")
    outsider = world.outsider("x", "abc")
    number = outsider.ask(b"pay")
    introduce(world, outsider, "a")
    world.network.cut("a", "x")
    assert world.run(3, lambda: all(world.served(name).log for name in "bc"))
    world.crash("a")
    world.run(5)
    outcome = outsider.outcomes[number]
    assert isinstance(outcome, Answered), outcome
    return world, outcome


def test_the_contact_crashes_after_casting_and_the_effect_happens_once() -> None:
    world, outcome = contact_dies_before_answering()
    assert outcome.answers[0][1] == b"b: pay", "from memory, through the next contact"
    assert world.logs() == [[("x", b"pay")]] * 2
    passes(world)


def test_a_desk_that_remembers_nothing_serves_twice() -> None:
    world, _ = contact_dies_before_answering(RemembersNothing)
    assert world.logs() != [[("x", b"pay")]] * 2


def test_a_request_through_two_contacts_at_once_is_served_once() -> None:
    """Both cast it before either has delivered the other's."""
    world = ClientWorld("sequencer", seed=5, delay="constant:50ms")
    world.gather("abc")
    outsider = world.outsider("x", "ab", ClientSettings(retry_ns=10 * MILLISECOND))
    outsider.ask(b"once")
    world.run(3)
    assert world.logs() == [[("x", b"once")]] * 3
    passes(world)


@pytest.mark.parametrize("seed", range(6))
def test_every_request_has_an_effect_once_under_loss_and_crashes(seed: int) -> None:
    world = ClientWorld("sequencer", seed=f"clients/{seed}")
    world.gather("abcd")
    world.network.loss, world.network.duplicate, world.network.reorder = 0.2, 0.2, 0.2
    outsiders = [world.outsider(name, order) for name, order in (("x", "abcd"), ("y", "badc"), ("z", "dcba"))]
    for step in range(12):
        for outsider in outsiders:
            outsider.ask(f"{outsider.client.id}/{step}".encode())
        world.run(0.05)
        if step == 5:
            world.crash("a")
    world.network.loss = 0.0
    world.run(12)
    for outsider in outsiders:
        assert len(outsider.outcomes) == 12
        assert all(isinstance(outcome, Answered) for outcome in outsider.outcomes.values())
    for log in world.logs():
        assert len(log) == len(set(log)) == 36
    assert world.logs()[0] == world.logs()[1] == world.logs()[2], "in one order"
    passes(world)


def test_a_client_whose_contacts_are_all_dead_gets_a_named_failure() -> None:
    world = ClientWorld("sequencer", seed=6)
    world.gather("ab")
    outsider = world.outsider("x", ("p", "q"), ClientSettings(wait_ns=1 * SECOND))
    number = outsider.ask(b"?")
    world.run(2)
    assert outsider.outcomes == {number: Failed(number, "no contact answered")}
    passes(world)


def test_a_part_that_is_not_primary_refuses_and_another_contact_helps() -> None:
    settings = with_membership(policy=Policy.PRIMARY, peers=tuple("abc"))
    world = ClientWorld("sequencer", seed=7, settings=settings, owed=("P20",))
    world.gather("abc")
    world.partition("abx", "c")
    world.run(2)
    world.network.partition(())
    world.network.cut("c", "a")
    world.network.cut("c", "b")
    world.network.cut("a", "c")
    world.network.cut("b", "c")
    outsider = world.outsider("x", "ca")
    alone = world.outsider("y", "c", ClientSettings(wait_ns=1 * SECOND))
    number, other = outsider.ask(b"?"), alone.ask(b"?")
    world.run(3)
    assert isinstance(outsider.outcomes[number], Answered)
    assert alone.outcomes[other] == Failed(other, "the contact's view is not the primary one")
    passes(world)


def test_a_joiner_that_takes_the_memory_over_recognises_what_was_served() -> None:
    world = ClientWorld("sequencer", seed=8)
    world.gather("ab")
    outsider = world.outsider("x", "a")
    outsider.ask(b"before")
    world.run(3)
    data = world.served("a").desk.snapshot()
    world.start("c", seeds="ab")
    settles(world, "abc")
    c = world.served("c")
    c.desk.restore(data)
    late = world.outsider("x", "c")  # the same client, which heard nothing
    number = late.ask(b"before")
    world.run(3)
    assert late.outcomes[number] == Answered(number, ((c.id, b"a: before"),), True)
    assert c.log == []
    passes(world)


def test_a_flood_of_clients_is_bounded_and_others_are_still_served() -> None:
    limits = DeskSettings(clients_max=8, pending_max=4, pending_of_one_max=2)
    world = ClientWorld("sequencer", seed=9, desk_settings=limits)
    world.gather("ab")
    flood = [world.outsider(f"f{number}", "a", ClientSettings(wait_ns=5 * SECOND)) for number in range(60)]
    for outsider in flood:
        outsider.ask(b"flood")
    desk = world.served("a").desk
    assert world.run(10, lambda: desk.pending > 4) is False
    assert len(desk.remembered()) <= 8
    assert all(outsider.outcomes for outsider in flood), "an answer or a named failure, for everyone"
    assert sum(isinstance(outsider.outcomes[1], Answered) for outsider in flood) > 20
    passes(world)


def test_a_member_that_crashed_while_serving_leaves_nothing_half_done() -> None:
    """The errand is cast in a view that ends with its contact: it is delivered by all survivors or by none, and then retried."""
    world = ClientWorld("sequencer", seed=10, delay="constant:5ms")
    world.gather("abc")
    outsider = world.outsider("x", "abc")
    number = outsider.ask(b"m")
    introduce(world, outsider, "a")
    world.run(0.006)
    world.crash("a")
    world.run(6)
    assert isinstance(outsider.outcomes[number], Answered)
    assert world.logs() == [[("x", b"m")]] * 2
    passes(world)


def test_an_answer_that_is_lost_is_given_again() -> None:
    world = ClientWorld("sequencer", seed=11)
    world.gather("abc")
    outsider = world.outsider("x", "a")
    outsider.ask(b"m")
    introduce(world, outsider, "a")
    world.network.cut("a", "x")
    world.after(500 * MILLISECOND, world.network.heal)
    world.run(3)
    assert isinstance(outsider.outcomes[1], Answered)
    assert world.logs() == [[("x", b"m")]] * 3
    passes(world)


@pytest.mark.parametrize(("desk", "is_flooded"), [(ClientDesk, False), (CastsAndForgets, True)])
def test_a_desk_that_forgets_what_it_cast_floods_the_group(desk: type[ClientDesk], is_flooded: bool) -> None:
    """The guard that a request under way is not cast again by the same contact."""
    world = ClientWorld("sequencer", seed=12, desk_type=desk)
    world.gather("ab")
    world.pause("a", 100 * MILLISECOND)  # which gives out the numbers
    outsider = world.outsider("x", "b", ClientSettings(retry_ns=10 * MILLISECOND))
    outsider.ask(b"m")
    world.run(2)
    assert (len(world.served("b").delivered) > 1) is is_flooded
