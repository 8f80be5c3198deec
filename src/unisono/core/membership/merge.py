"""What becomes of the reports of one view: which cannot be, and which cut follows from the others.

Reports come from outside. A decoded one has the right form and may still be nonsense: it can claim packets that were never cast,
or be refused by the order's `merge`. Its sender has failed: the ballot is given up, and the next one does without it. Of two
reports that are possible and contradict each other it cannot be told which is false: the ballot then fails for both.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from unisono.core.errors import Misuse, PeerFault
from unisono.core.membership.context import Context
from unisono.core.ordering import Cut, Report
from unisono.core.types import Batch, MemberId, Packet, Rank, Slot, View
from unisono.core.wire import ClosingCut


class MergingPart:
    """Members that come from one view with one cut: a `Part` of the next view, with what its members still lack."""

    def __init__(self, view: View, order: str, cut: ClosingCut, wanted: Cut) -> None:
        self.view = view
        self.order = order
        self.cut = cut
        self.wanted = wanted
        self.lacks: dict[MemberId, list[Slot]] = {}  # by member; nothing for those that have closed
        self.packets: dict[Slot, Packet] = {}  # what was fetched
        self.asking: dict[Slot, list[MemberId]] = {}  # slots to fetch, and who may have them


def find_impossible(context: Context, view: View, reports: Mapping[MemberId, Report]) -> list[MemberId]:
    """Find members whose report cannot be: none holds more of a member than it cast itself, nor is too far from the others.

    How far is measured from my own report, which I trust, or from the middle of them. Nor does anyone lack what I keep no more,
    because it was acknowledged by all. If I hold more of a member than it says to have cast, or several do, it has not told all.
    """
    own = {view.rank_of(member): report.held[view.rank_of(member)] for member, report in reports.items()}
    middle = [
        sorted(report.held[origin] for report in reports.values())[(len(reports) - 1) // 2]
        for origin in range(len(view))
    ]
    usual = reports[context.id].held if context.id in reports else middle
    found = []
    for origin, count in list(own.items()):
        more = [member for member, report in reports.items() if report.held[origin] > count]
        if len(more) > 1 or context.id in more:
            found.append(view.members[origin])
            del own[origin]
    for member, report in reports.items():
        if member in found:
            continue
        beyond = any(report.held[origin] > count for origin, count in own.items())
        distance = sum(abs(count - usual[origin]) for origin, count in enumerate(report.held))
        if (
            beyond
            or distance > context.settings.missing_max
            or _lacks_acknowledged(context, report, reports.get(context.id))
        ):
            found.append(member)
    return found


def _lacks_acknowledged(context: Context, report: Report, mine: Report | None) -> bool:
    nexts = enumerate(zip(report.held, () if mine is None else mine.held, strict=False))
    return any(lacks < held and context.engine.retained((origin, lacks + 1)) is None for origin, (lacks, held) in nexts)


def try_merge(context: Context, view: View, order: str, reports: Mapping[Rank, Report]) -> Cut | None:
    """The cut that follows from the reports; None if they cannot all be true, or if it could not be sent."""
    try:
        cut: Cut = context.orders[order].merge(view, context.config.fitted(len(view)), reports)
        context.order_codec(order).encode(cut)  # type: ignore[arg-type]
    except (PeerFault, Misuse):
        return None
    held = [max(report.held[origin] for report in reports.values()) for origin in range(len(view))]
    return cut if all(wanted <= count for wanted, count in zip(cut.wanted, held, strict=True)) else None


def find_culprits(context: Context, view: View, order: str, reports: Mapping[Rank, Report]) -> list[Rank]:
    """Whose report makes the merge impossible: by itself, or without which it is possible; else everyone's but mine."""
    alone = [rank for rank in reports if try_merge(context, view, order, {rank: reports[rank]}) is None]
    if alone:
        return alone
    found = []
    for rank in reports:
        rest = {other: report for other, report in reports.items() if other != rank}
        if rest and try_merge(context, view, order, rest) is not None:
            found.append(rank)
    return [rank for rank in found or reports if view.members[rank] != context.id] or list(reports)


def find_holders(part: MergingPart, me: MemberId) -> None:
    """Find the holders of missing slots: the proposer itself first, then the origin, then the others."""
    lacks = {member: set(slots) for member, slots in part.lacks.items()}
    for slot in sorted(set().union(*lacks.values())):
        holders = [member for member, slots in lacks.items() if slot not in slots]
        source = part.view.members[slot[0]]
        holders.sort(key=lambda member, source=source: (member != me, member != source, member))  # type: ignore[misc]
        part.asking[slot] = holders


def find_bereft(part: MergingPart, closed: Collection[MemberId]) -> list[MemberId]:
    """Members that would adopt the part's cut and take for void what another may have delivered with it: see `ballot`."""
    rank_of = part.view.rank_of
    told = {rank_of(member) for member in part.lacks if member in closed}  # they know what is void
    found = []
    for slot, packet in part.packets.items():
        batch: Batch | None = getattr(packet, "batch", None)
        to = batch.to if batch is not None and batch.payloads is None else None
        if told and to is not None and told.isdisjoint(to):
            found += [member for member, slots in part.lacks.items() if rank_of(member) in to and slot in slots]
    return found


FETCHED_AT_ONCE = 1_000
"""Maximum number of ranges in one message, which must fit into a datagram."""


def first_ranges(slots: Sequence[Slot]) -> tuple[tuple[Slot, ...], tuple[tuple[Rank, int, int], ...]]:
    """As many of these slots as one may ask for at once, and the same as ranges."""
    asked = ranges(slots)[:FETCHED_AT_ONCE]
    return tuple(slots[: sum(last - first + 1 for _, first, last in asked)]), asked


def ranges(slots: Iterable[Slot]) -> tuple[tuple[Rank, int, int], ...]:
    """Consecutive slots of one origin as one range."""
    result: list[tuple[Rank, int, int]] = []
    for origin, number in slots:
        if result and result[-1][0] == origin and result[-1][2] == number - 1:
            result[-1] = (origin, result[-1][1], number)
        else:
            result.append((origin, number, number))
    return tuple(result)
