"""RMP's recovery: what becomes of messages that reached only some, when the view changes. Paper 002, section 3.

"Failure recovery techniques must ensure that if any group member receives the 'commit' and delivers the message that all
operational members will deliver the message as well." The paper does not say how. The reports of the survivors say it:

- a position that a survivor knows to be committed is committed everywhere;
- otherwise, if every survivor holds the message, it is committed: a member that is gone may have delivered it;
- otherwise no member, gone or not, ever committed it, since the survivor that lacks it never voted. If its transmitter survives,
  the message is completed: the transmitter hands it to the members that lack it. If not, all abort it.

Why this is one sequence that everyone can follow. Positions are dense, and each member holds a prefix of them (I1 of `rmp`). Let
`common` be the shortest prefix among the survivors, `top` the longest. What anyone has delivered lies below `common`, because a
commit takes every vote: so what is committed here begins with what each has delivered, the crashed ones included, and the order
is uniform. The positions from `common` to `top` were transmitted in one hold: the next holder would have needed the vote
of the member that lacks them. So they have one transmitter, and are completed or aborted as one. An aborted message is therefore
never followed by a committed one of its origin (FIFO), and no member can have delivered it and cast something because of it.

After these come the batches that survivors had submitted and not yet transmitted, by (rank, number). No other member has seen
them, so any order is legal that keeps each member's own; validity asks for all of them. Semi-reliable messages are not part
of this: all get what any survivor holds of them, as in `fifo`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from unisono.core.errors import PeerFault
from unisono.core.types import Rank, Slot
from unisono.core.wire import SLOTS, U64, VECTOR, Layout
from unisono.orders.holdback import longest_held


class RmpReport(NamedTuple):
    held: tuple[int, ...]  # my own batches that wait for the lock included
    committed: int  # number of positions that are known to be committed, and delivered here
    withheld: tuple[Slot, ...]  # the positions after them, as far as they are here
    unsent: int  # number of my own slots, the last ones, that were never transmitted


class RmpCut(NamedTuple):
    wanted: tuple[int, ...]
    first: int  # the position of order[0]
    order: tuple[Slot, ...]  # committed
    aborted: tuple[Slot, ...]  # held by some, delivered by no member


REPORT_WIRE = Layout(0x24, RmpReport, (VECTOR, U64, SLOTS, U64))
CUT_WIRE = Layout(0x35, RmpCut, (VECTOR, U64, SLOTS, SLOTS))


def recover(reports: Mapping[Rank, RmpReport], reach_max: int) -> RmpCut:
    first = min(report.committed for report in reports.values())
    for rank, report in reports.items():  # reports come from outside: nothing is made of a number before it is compared
        if report.unsent > min(report.held[rank], reach_max):
            raise PeerFault("what waits for the lock is held")
        if report.committed - first > reach_max:
            raise PeerFault("a report is further ahead than windows allow")
        _demand_sound(rank, report)
    tails = [_known(report, first) for report in reports.values()]
    common, top = min(map(len, tails)), max(map(len, tails))
    if max(report.committed for report in reports.values()) > first + common:
        raise PeerFault("a commit takes every vote")
    order = [_slot_at(place, tails) for place in range(common)]
    split = [_slot_at(place, tails) for place in range(common, top)]
    if len({origin for origin, _ in split}) > 1:
        raise PeerFault("one transmits at a time")
    completed = bool(split) and split[0][0] in reports
    if completed:
        order += split
    order += [slot for rank in sorted(reports) for slot in _unsent(rank, reports[rank])]
    aborted = () if completed else tuple(split)
    wanted = list(longest_held(reports))
    for origin, number in reversed(aborted):  # what is dropped by all need not be fetched, unless something follows it
        if wanted[origin] == number:
            wanted[origin] -= 1
    return RmpCut(tuple(wanted), first, tuple(order), aborted)


def _demand_sound(rank: Rank, report: RmpReport) -> None:
    """Raise `PeerFault` if no correct member can have sent this report, whatever the others say."""
    last: dict[Rank, int] = {}
    for origin, number in report.withheld:
        if not last.get(origin, 0) < number <= report.held[origin] - (report.unsent if origin == rank else 0):
            raise PeerFault("a report withholds what it does not hold")
        last[origin] = number
    if report.committed > sum(report.held):
        raise PeerFault("a report commits more than it holds")


def _known(report: RmpReport, first: int) -> list[Slot | None]:
    """A survivor's positions from `first` on; None: it has delivered that one, and another survivor tells its slot."""
    return [None] * (report.committed - first) + list(report.withheld)


def _slot_at(place: int, tails: list[list[Slot | None]]) -> Slot:
    """The slot at a place, from the survivors that still withhold it."""
    slots = {slot for tail in tails for slot in tail[place : place + 1] if slot is not None}
    if len(slots) != 1:
        raise PeerFault("one transmits at a time, so a position has one batch")
    return slots.pop()


def _unsent(rank: Rank, report: RmpReport) -> list[Slot]:
    return [(rank, number) for number in range(report.held[rank] - report.unsent + 1, report.held[rank] + 1)]
