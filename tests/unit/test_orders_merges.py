"""What a view change makes of reports: the rules of each order's merge, one case each. Stories tell of whole view changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.harness import A, B, C, D, make_view
from unisono.core.config import Config
from unisono.core.errors import PeerFault
from unisono.core.types import Slot
from unisono.core.wire.codec import Codec
from unisono.orders.fifo import Fifo, FifoCut, FifoReport
from unisono.orders.holdback import VectorReport, causally_closed, longest_held
from unisono.orders.rmp import Rmp
from unisono.orders.rmp_recovery import RmpCut, RmpReport
from unisono.orders.sequencer import Sequencer, SequencerCut, SequencerReport
from unisono.orders.stamps import Stamp, StampCut, StampReport, merge_stamps


def merged(merge: Callable[..., Any], **reports: Any) -> Any:
    """The cut of a view of as many members as a report tells of."""
    size = len(next(iter(reports.values())).held)
    return merge(make_view(size), Config(), {"abcd".index(name): report for name, report in reports.items()})


def numbered(
    held: tuple[int, ...], order: tuple[int, ...], delivered: int, seen: tuple[tuple[int, int, int], ...]
) -> SequencerReport:
    """Of a member that has forgotten nothing."""
    return SequencerReport(held, order, delivered, seen, 0, (0,) * len(held))


def stamped(
    held: tuple[int, ...],
    counter: int,
    delivered: tuple[int, ...],
    finals: tuple[tuple[Slot, Stamp], ...] = (),
    waiting: tuple[tuple[Slot, Stamp], ...] = (),
) -> StampReport:
    flat = [tuple((*slot, *stamp) for slot, stamp in rows) for rows in (finals, waiting)]
    return StampReport(held, counter, delivered, flat[0], flat[1])


FINAL_9D = (((B, 1), (9, D)),)

CASES: dict[str, tuple[Callable[..., Any], dict[str, Any], Any]] = {
    "fifo: the longest prefix that a survivor holds": (
        Fifo.merge,
        {"a": FifoReport((2, 0, 1)), "c": FifoReport((1, 0, 3))},
        FifoCut((2, 0, 3)),
    ),
    "sequencer: the longest known order": (
        Sequencer.merge,
        {"b": numbered((1, 1, 0), (A,), 1, ((B, 1, 0),)), "c": numbered((1, 1, 0), (A, B), 2, ())},
        SequencerCut((1, 1, 0), ((A, 1), (B, 1))),
    ),
    # Position 1 is lost with a; b's batch at position 2 had seen nothing of it, and follows by its name.
    "sequencer: up to the first number whose batch nobody holds": (
        Sequencer.merge,
        {"b": numbered((1, 2, 0), (B, A, A, B), 1, ((A, 1, 0), (B, 2, 1)))},
        SequencerCut((1, 2, 0), ((B, 1), (A, 1), (B, 2))),
    ),
    "sequencer: also if that is the first number": (
        Sequencer.merge,
        {"c": numbered((0, 1, 0), (A, B), 0, ((B, 1, 0),))},
        SequencerCut((0, 1, 0), ((B, 1),)),
    ),
    "sequencer: what follows something lost is dropped with its successors": (
        Sequencer.merge,
        {"c": numbered((0, 2, 1), (A,), 0, ((B, 1, 1), (B, 2, 1), (C, 1, 0)))},
        SequencerCut((0, 0, 1), ((C, 1),)),
    ),
    "sequencer: leftovers go by their names": (
        Sequencer.merge,
        {"c": numbered((0, 2, 1, 1), (D,), 1, ((B, 1, 0), (B, 2, 1), (C, 1, 1)))},
        SequencerCut((0, 2, 1, 1), ((D, 1), (B, 1), (B, 2), (C, 1))),
    ),
    # b has forgotten two positions and knows four; c has forgotten one, knows five, and has delivered three.
    "sequencer: from where the member begins that has forgotten most": (
        Sequencer.merge,
        {
            "b": SequencerReport((2, 2, 1), (A, B), 4, ((B, 2, 0),), 2, (1, 0, 1)),
            "c": SequencerReport((2, 2, 1), (C, A, B, B), 3, ((B, 1, 0), (B, 2, 0)), 1, (1, 0, 0)),
        },
        SequencerCut((2, 2, 1), ((A, 2), (B, 1), (B, 2)), 2),
    ),
    "stamps: final ones stay": (
        merge_stamps,
        {
            "a": stamped((1, 1, 0), 9, (0, 0, 0), (((A, 1), (5, C)),), (((B, 1), (2, A)),)),
            "b": stamped((1, 1, 0), 3, (0, 0, 0), (), (((A, 1), (1, B)), ((B, 1), (3, B)))),
        },
        StampCut((1, 1, 0), ((B, 1), (A, 1))),
    ),
    # b has delivered y, whose final stamp is 2.c, and never saw x: it must come behind y.
    "stamps: who never stamped it contributes its counter plus one": (
        merge_stamps,
        {
            "b": stamped((0, 1, 0), 2, (0, 1, 0), (((B, 1), (2, C)),)),
            "c": stamped((1, 1, 0), 2, (0, 0, 0), (((B, 1), (2, C)),), (((A, 1), (1, C)),)),
        },
        StampCut((1, 1, 0), ((B, 1), (A, 1))),
    ),
    # The final stamp 9.d of b's first came from d, which is gone; the floor holds b's second behind it, the final one first.
    "stamps: never before its origin's previous message": (
        merge_stamps,
        {
            "a": stamped((0, 2, 0, 0), 2, (0, 0, 0, 0), (), (((B, 1), (1, A)), ((B, 2), (2, A)))),
            "b": stamped((0, 2, 0, 0), 9, (0, 0, 0, 0), FINAL_9D, (((B, 2), (2, B)),)),
        },
        StampCut((0, 2, 0, 0), ((B, 1), (B, 2))),
    ),
    # All delivered b's first with 9.d; c's is stamped lower than b's second may end: 9.c, then the floor 9.d.
    "stamps: the floor counts from what everyone delivered": (
        merge_stamps,
        {
            "a": stamped((0, 2, 1, 0), 9, (0, 1, 0, 0), FINAL_9D, (((B, 2), (8, A)), ((C, 1), (9, A)))),
            "c": stamped((0, 2, 1, 0), 9, (0, 1, 0, 0), FINAL_9D, (((B, 2), (7, C)), ((C, 1), (9, C)))),
        },
        StampCut((0, 2, 1, 0), ((C, 1), (B, 2))),
    ),
    "stamps: what everyone delivered is not in the cut": (
        merge_stamps,
        {
            "a": stamped((1, 0), 1, (1, 0), (((A, 1), (1, B)),)),
            "b": stamped((1, 0), 1, (1, 0), (((A, 1), (1, B)),)),
        },
        StampCut((1, 0), ()),
    ),
    "rmp: a commit that one survivor knows is everyone's": (
        Rmp.merge,
        {"b": RmpReport((2, 0, 0), 2, (), 0), "c": RmpReport((2, 0, 0), 0, ((A, 1), (A, 2)), 0)},
        RmpCut((2, 0, 0), 0, ((A, 1), (A, 2)), ()),
    ),
    "rmp: what all survivors hold is committed": (
        Rmp.merge,
        {"b": RmpReport((2, 0, 0), 1, ((A, 2),), 0), "c": RmpReport((2, 0, 0), 1, ((A, 2),), 0)},
        RmpCut((2, 0, 0), 1, ((A, 2),), ()),
    ),
    "rmp: what only some hold is completed by its transmitter": (
        Rmp.merge,
        {"a": RmpReport((2, 0, 0), 0, ((A, 1), (A, 2)), 0), "c": RmpReport((1, 0, 0), 0, ((A, 1),), 0)},
        RmpCut((2, 0, 0), 0, ((A, 1), (A, 2)), ()),
    ),
    "rmp: and aborted if its transmitter is gone": (
        Rmp.merge,
        {"b": RmpReport((3, 0, 0), 0, ((A, 1), (A, 2), (A, 3)), 0), "c": RmpReport((1, 0, 0), 0, ((A, 1),), 0)},
        RmpCut((1, 0, 0), 0, ((A, 1),), ((A, 2), (A, 3))),
    ),
    # Slot 2 of a is a reliable message that only b has, slot 3 a semi-reliable one.
    "rmp: a semi-reliable message behind an aborted one is kept": (
        Rmp.merge,
        {"b": RmpReport((3, 0, 0), 1, ((A, 2),), 0), "c": RmpReport((1, 0, 0), 1, (), 0)},
        RmpCut((3, 0, 0), 1, (), ((A, 2),)),
    ),
    "rmp: what waited for the lock follows by its name": (
        Rmp.merge,
        {"a": RmpReport((1, 0, 2, 0), 1, ((C, 1),), 1), "c": RmpReport((0, 0, 2, 0), 1, ((C, 1),), 1)},
        RmpCut((1, 0, 2, 0), 1, ((C, 1), (A, 1), (C, 2)), ()),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_merge_keeps_its_rules(case: str) -> None:
    merge, reports, cut = CASES[case]
    assert merged(merge, **reports) == cut


@pytest.mark.parametrize(
    ("merge", "reports", "sentence"),
    [
        (
            Sequencer.merge,
            {
                "b": SequencerReport((2, 0, 0), (), 2, (), 2, (2, 0, 0)),
                "c": SequencerReport((2, 0, 0), (A,), 1, ((A, 2, 0),), 0, (0, 0, 0)),
            },
            "forgotten what another one lacks",
        ),
        (
            Rmp.merge,
            {"a": RmpReport((1, 0, 0), 0, ((A, 1),), 0), "b": RmpReport((0, 1, 0), 0, ((B, 1),), 0)},
            "one transmits at a time",
        ),
    ],
)
def test_reports_that_contradict_each_other_are_found_out(
    merge: Callable[..., Any], reports: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(PeerFault, match=sentence):
        merged(merge, **reports)


def held_back(*waiting: tuple[int, int, int, tuple[int, ...]], held: tuple[int, ...]) -> VectorReport:
    """Of a member that has delivered nothing."""
    return VectorReport(held, (0,) * len(held), waiting)


@pytest.mark.parametrize(
    ("reports", "closed"),
    [
        pytest.param(
            [VectorReport((2, 0, 0), (2, 0, 0), ()), VectorReport((1, 1, 0), (1, 1, 0), ())],
            (2, 1, 0),
            id="the union of what was delivered",
        ),
        pytest.param(
            [held_back((C, 1, 1, (0, 1, 0)), held=(0, 0, 1)), VectorReport((0, 1, 0), (0, 1, 0), ())],
            (0, 1, 1),
            id="what is held back joins when another survivor has its past",
        ),
        pytest.param(
            [
                held_back((C, 1, 1, (0, 1, 0)), (C, 2, 1, (0, 1, 1)), held=(0, 0, 2)),
                VectorReport((0, 0, 0), (0, 0, 0), ()),
            ],
            (0, 0, 0),
            id="what nobody holds the past of is dropped with its successors",
        ),
        # The largest closed set: a's waits for a lost packet of d, c's only for one of b, which a survivor has.
        pytest.param(
            [
                held_back((A, 1, 1, (0, 0, 0, 1)), (C, 1, 1, (0, 1, 0, 0)), (C, 2, 1, (0, 1, 1, 0)), held=(1, 0, 2, 0)),
                VectorReport((0, 1, 0, 0), (0, 1, 0, 0), ()),
            ],
            (0, 1, 2, 0),
            id="one origin that is stuck does not keep the others out",
        ),
        pytest.param(
            [VectorReport((1, 1, 0), (5, 0, 0), ((B, 1, 2, (5, 0, 0)),)), VectorReport((0, 0, 0), (0, 0, 0), ())],
            (1, 1, 0),
            id="slots and messages are counted apart",
        ),
    ],
)
def test_a_cut_is_causally_closed(reports: list[VectorReport], closed: tuple[int, ...]) -> None:
    assert causally_closed(dict(enumerate(reports))) == closed


def test_longest_held() -> None:
    assert longest_held({A: FifoReport((2, 0)), B: FifoReport((1, 5))}) == (2, 5)


def test_reports_and_cuts_survive_the_wire() -> None:
    codec = Codec((Rmp.report_wire, Rmp.cut_wire))
    for packet in (
        RmpReport((2, 0, 5), 7, ((A, 2), (C, 5)), 3),
        RmpCut((2, 0, 5), 7, ((A, 2), (C, 5)), ((B, 1),)),
    ):
        assert codec.decode(codec.encode(packet), A, 3) == packet
