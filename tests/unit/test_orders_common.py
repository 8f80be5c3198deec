"""What every order owes to the contract, whichever it is."""

from __future__ import annotations

from inspect import signature

import pytest

import unisono
from tests.harness import CALM, CRASHES, LISTS, A, B, C, Group, Weather, make_view, run
from unisono.cli import sim
from unisono.cli.bench_group import bench
from unisono.cli.chat import chat
from unisono.cli.node import node
from unisono.core.config import Config
from unisono.core.errors import Misuse, PeerFault
from unisono.core.ordering import AnyOrdering
from unisono.core.outbox import NoteKind, Outbox
from unisono.core.types import Batch, Property, Service
from unisono.orders.registry import DEFAULT_ORDER, LAYOUTS, ORDERS, find_order
from unisono.sim.explore.orders.member import freeze_ordering
from unisono.trace.promises import promises

Order = type[AnyOrdering]
every_order = pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS.keys())


@every_order
def test_alone_a_member_delivers_what_it_casts_in_the_call(order: Order) -> None:
    group = Group(order, 1)
    group.cast(A, "x")
    group.cast(A, "y")
    assert group.names(A) == ["x", "y"]
    assert group.packets == 0
    assert list(group.orderings[A].waits()) == []


@every_order
def test_alone_a_member_changes_the_view(order: Order) -> None:
    group = Group(order, 1)
    group.cast(A, "x")
    cut = group.flush()
    assert cut.wanted == (1,)
    assert group.names(A) == ["x"]


@every_order
def test_a_view_in_which_nothing_was_cast_closes_with_nothing(order: Order) -> None:
    group = Group(order, 3)
    group.crash(C)
    cut = group.flush()
    assert cut.wanted == (0, 0, 0)
    assert group.delivered == [[], [], []]


@every_order
@pytest.mark.parametrize("weather", [CALM, LISTS, CRASHES, Weather(sizes=(3, 5), crashes=(1, 2), partial=0.4)])
def test_random_runs_keep_every_promise(order: Order, weather: Weather) -> None:
    for seed in range(100):
        assert run(order, seed, weather).violations() == {}, f"seed {seed}"


@every_order
def test_when_everything_is_delivered_nothing_waits(order: Order) -> None:
    for seed in range(30):
        group = run(order, seed)
        assert [list(ordering.waits()) for ordering in group.orderings] == [[]] * group.size


@every_order
def test_recording_changes_nothing(order: Order) -> None:
    """`noting` buys notes, and neither another packet nor another delivery."""
    for weather in (CALM, CRASHES):
        for seed in range(40):
            silent, noting = run(order, seed, weather), run(order, seed, weather, noting=True)
            assert silent.steps == noting.steps
            assert silent.delivered == noting.delivered
            assert silent.notes == [[] for _ in range(silent.size)]
            assert list(map(freeze_ordering, silent.orderings)) == list(map(freeze_ordering, noting.orderings))


@every_order
def test_total_orders_note_once_where_a_batch_stands(order: Order) -> None:
    """ORDERED marks the end of t1, before the delivery; orders without a decision note none."""
    for weather in (CALM, CRASHES):
        for seed in range(40):
            group = run(order, seed, weather, noting=True)
            for rank in group.alive:
                ordered = [note.batch for note in group.notes[rank] if note.kind is NoteKind.ORDERED]
                others = {note.kind for note in group.notes[rank]} - {NoteKind.ORDERED}
                assert others <= ({NoteKind.VOTE, NoteKind.DECIDE} if order is ORDERS["rmp"] else set())
                if Property.TOTAL not in order.guarantees:
                    assert ordered == []
                else:
                    assert sorted(map(repr, ordered)) == sorted(map(repr, group.delivered[rank])), f"seed {seed}"


@every_order
def test_the_same_inputs_give_the_same_outputs(order: Order) -> None:
    for seed in range(10):
        assert run(order, seed, CRASHES).delivered == run(order, seed, CRASHES).delivered


@every_order
def test_a_turn_without_inputs_emits_nothing(order: Order) -> None:
    ordering: AnyOrdering = order(make_view(3), A, Config())
    out = Outbox()
    ordering.quiet(out)
    ordering.end_turn(out)
    assert (out.to_all, out.to_one, out.deliver) == ([], [], [])


@every_order
def test_a_batch_is_delivered_as_one(order: Order) -> None:
    group = Group(order, 2)
    group.cast(B, "x", count=5)
    group.settle()
    assert [batch.count for batch in group.delivered[A]] == [5]


@every_order
def test_packets_of_one_origin_must_come_in_order(order: Order) -> None:
    group = Group(order, 3, in_order=False)
    group.cast(B, "w")
    group.settle()  # where one must have a lock to transmit, B has it now
    group.cast(B, "x")
    group.cast(B, "y")
    with pytest.raises(PeerFault):
        group.carry(B, C, at=1)


@every_order
def test_each_order_names_its_service_and_its_packets(order: Order) -> None:
    assert order.service in order.services
    assert order.guarantees
    on_the_wire = {layout.type for layout in LAYOUTS}
    assert set(order.numbered) <= on_the_wire
    assert all("number" in packet._fields for packet in order.numbered)  # type: ignore[attr-defined]


def test_what_the_orders_promise() -> None:
    fifo, causal, total = Property.FIFO, Property.CAUSAL, Property.TOTAL
    assert {name: set(order.guarantees) for name, order in ORDERS.items()} == {
        "fifo": {fifo},
        "causal": {fifo, causal},
        "sequencer": {total},
        "fifo-total": {fifo, total},
        "causal-total": {fifo, causal, total},
        "abcast": {fifo, total},
        "tomp": {fifo, total},
        "all-ack": {fifo, causal, total},
        "toto": {fifo, causal, total},
        "rmp": {fifo, total, Property.UNIFORM},
    }


def test_which_orders_carry_several_services() -> None:
    assert {name for name, order in ORDERS.items() if len(order.services) > 1} == {"all-ack", "toto", "rmp"}
    assert ORDERS["toto"].services == {Service.CAUSAL, Service.TOTAL}
    assert ORDERS["rmp"].services == {Service.DATAGRAM, Service.FIFO, Service.TOTAL}


def test_orders_are_found_by_name() -> None:
    assert find_order("toto") is ORDERS["toto"]
    with pytest.raises(Misuse, match=r"there is no order 'total': choose among fifo, causal, sequencer, .*toto, rmp\."):
        find_order("total")


def test_a_digest_tells_boundaries_apart() -> None:
    """What the placeholder shows of a payload that its holder never gets."""
    one, other = (Batch(A, 0, payloads, Service.FIFO) for payloads in ([b"ab", b"c"], [b"a", b"bc"]))
    assert one.digest != other.digest
    assert one.placeholder().digest == one.digest
    assert one.placeholder().payloads is None
    assert (one.placeholder().first, one.placeholder().count) == (0, 2)
    assert one != one.placeholder()


def test_the_default_order_promises_everything_that_its_code_keeps() -> None:
    """Found by comparing: the default promised total order alone, at the cost of one that is FIFO and causal as well."""
    default = ORDERS[DEFAULT_ORDER]
    same_code = {name for name, order in ORDERS.items() if order.submit is default.submit}
    assert {"sequencer", "fifo-total", "causal-total"} <= same_code
    assert all(ORDERS[name].guarantees <= default.guarantees for name in same_code)
    assert all(promises(name) <= promises(DEFAULT_ORDER) for name in same_code)
    taking = (unisono.join, chat, node, bench, sim.run, sim.diagram)
    defaults = {signature(function).parameters["order"].default for function in taking}
    assert defaults == {DEFAULT_ORDER}
