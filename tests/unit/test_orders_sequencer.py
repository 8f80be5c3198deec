"""The sequencer: numbers, waits, and the three rules of its merge. The lecture's examples are in `tests/papers`."""

from __future__ import annotations

import pytest

from tests.harness import A, B, C, D, Group, make_view
from unisono.core.config import Config
from unisono.core.errors import PeerFault
from unisono.core.outbox import NoteKind
from unisono.orders.sequencer import CausalTotal, Data, Order, Sequencer, SequencerCut, SequencerReport


def report(
    held: tuple[int, ...], order: tuple[int, ...], delivered: int, seen: tuple[tuple[int, int, int], ...]
) -> SequencerReport:
    """Of a member that has forgotten nothing."""
    return SequencerReport(held, order, delivered, seen, 0, (0,) * len(held))


def merge(size: int, **reports: SequencerReport) -> SequencerCut:
    return Sequencer.merge(make_view(size), Config(), {"abcd".index(name): report for name, report in reports.items()})


def test_the_sequencer_delivers_at_once_and_announces_once_a_turn() -> None:
    group = Group(Sequencer, 2)
    group.cast(A, "x")
    assert group.names(A) == ["x"]
    data, order = group.under_way(A, B)
    assert isinstance(data, Data)
    assert order == Order(0, (A,))


def test_others_wait_for_the_number_of_their_own_message() -> None:
    group = Group(Sequencer, 2)
    group.cast(B, "x")
    (wait,) = group.orderings[B].waits()
    assert (wait.reason, wait.waits_for) == ("the sequencer has not numbered it here", (A,))
    group.settle()
    assert group.names(B) == ["x"]


def test_a_batch_says_how_much_of_the_order_its_caster_had_delivered() -> None:
    group = Group(Sequencer, 3)
    group.cast(A, "x")
    group.cast(A, "y")
    group.carry_all(A, [B])
    group.cast(B, "z")
    (packet,) = group.under_way(B, C)
    assert isinstance(packet, Data)
    assert (packet.number, packet.seen) == (1, 2)


def test_positions_are_noted_when_number_and_batch_are_both_here() -> None:
    group = Group(Sequencer, 3, noting=True)
    group.cast(B, "x")
    group.cast(B, "y")
    group.carry_all(B, [A])
    assert [note.position for note in group.notes[A]] == [0, 1]
    group.carry(A, C)  # the number of x, before x
    assert group.notes[C] == []
    group.carry(B, C)
    group.carry(B, C)  # y, before its number
    assert [(note.kind, note.position) for note in group.notes[C]] == [(NoteKind.ORDERED, 0)]
    group.carry(A, C)
    assert [note.position for note in group.notes[C]] == [0, 1]


def test_the_longest_known_order_is_taken() -> None:
    cut = merge(
        3,
        b=report((1, 1, 0), (A,), 1, ((B, 1, 0),)),
        c=report((1, 1, 0), (A, B), 2, ()),
    )
    assert cut == SequencerCut((1, 1, 0), ((A, 1), (B, 1)))


def test_the_order_ends_at_the_first_number_whose_batch_nobody_holds() -> None:
    """Position 1 is lost with A; B's batch at position 2 had seen nothing of it, and follows by its name."""
    cut = merge(3, b=report((1, 2, 0), (B, A, A, B), 1, ((A, 1, 0), (B, 2, 1))))
    assert cut == SequencerCut((1, 2, 0), ((B, 1), (A, 1), (B, 2)))
    cut = merge(3, c=report((0, 1, 0), (A, B), 0, ((B, 1, 0),)))
    assert cut == SequencerCut((0, 1, 0), ((B, 1),))


def test_a_batch_that_follows_a_lost_one_is_dropped_with_its_successors() -> None:
    cut = merge(3, c=report((0, 2, 1), (A,), 0, ((B, 1, 1), (B, 2, 1), (C, 1, 0))))
    assert cut == SequencerCut((0, 0, 1), ((C, 1),))


def test_leftovers_follow_by_their_names() -> None:
    cut = merge(4, c=report((0, 2, 1, 1), (D,), 1, ((B, 1, 0), (B, 2, 1), (C, 1, 1))))
    assert cut == SequencerCut((0, 2, 1, 1), ((D, 1), (B, 1), (B, 2), (C, 1)))


def test_b7_survivors_complete_what_the_sequencer_numbered_for_some() -> None:
    """It crashes after numbering to a subset."""
    group = Group(CausalTotal, 4)
    group.cast(C, "y")
    group.cast(B, "x")
    group.carry(C, A)
    group.carry(B, A)
    group.carry_all(A, [D])  # D alone knows the numbers, and has neither batch
    group.carry(B, C)
    group.crash(A)
    cut = group.flush()
    assert cut.order == ((C, 1), (B, 1))
    assert group.names(B) == group.names(C) == group.names(D) == ["y", "x"]


def test_closing_notes_positions_that_were_not_known() -> None:
    group = Group(CausalTotal, 3, noting=True)
    group.cast(B, "x")
    group.cast(C, "y")
    group.crash(A)
    group.flush()
    assert [note.position for note in group.notes[B]] == [0, 1]
    assert [note.position for note in group.notes[C]] == [0, 1]


def test_a_merge_begins_where_the_member_that_has_forgotten_most_begins() -> None:
    """b has forgotten two positions and knows four; c has forgotten one, knows five, and has delivered three."""
    b = SequencerReport((2, 2, 1), (A, B), 4, ((B, 2, 0),), 2, (1, 0, 1))
    c = SequencerReport((2, 2, 1), (C, A, B, B), 3, ((B, 1, 0), (B, 2, 0)), 1, (1, 0, 0))
    assert merge(3, b=b, c=c) == SequencerCut((2, 2, 1), ((A, 2), (B, 1), (B, 2)), 2)


def test_who_has_forgotten_closes_and_reports_from_its_base() -> None:
    group = Group(Sequencer, 2)
    for name in "uvw":
        group.cast(A, name)
    group.settle()
    for ordering in group.orderings:
        assert isinstance(ordering, Sequencer)
        ordering.forget(2)
        report = ordering.report()
        assert (report.order, report.base, report.before, report.delivered) == ((A,), 2, (2, 0), 3)
    group.cast(B, "x")
    group.settle()
    assert group.names(B) == ["u", "v", "w", "x"]


def test_who_has_forgotten_what_somebody_lacks_is_found_out() -> None:
    hasty = SequencerReport((2, 0, 0), (), 2, (), 2, (2, 0, 0))
    behind = SequencerReport((2, 0, 0), (A,), 1, ((A, 2, 0),), 0, (0, 0, 0))
    with pytest.raises(PeerFault, match="forgotten what another one lacks"):
        merge(3, b=hasty, c=behind)
