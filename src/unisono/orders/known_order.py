"""A total order as far as members know it, when one member numbers all batches and each origin's are numbered as they were cast.

By position, it says whose next batch it is. What every member has delivered is forgotten: positions below a base, of which only
each origin's count is kept. Bases differ from member to member, and none is above what any member has delivered, so the highest
among the reports will do for all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from unisono.core.errors import PeerFault
from unisono.core.ordering import Report
from unisono.core.types import Rank


class KnownOrder:
    """What one member knows."""

    def __init__(self, before: Iterable[int], base: int = 0, origins: Iterable[Rank] = ()) -> None:
        self.before = list(before)
        """By origin: batches among the positions that are forgotten."""
        self.base = base
        """Positions below it are forgotten."""
        self.origins = list(origins)
        """By position, from the base on: whose next batch it is."""

    def counts(self, position: int) -> list[int]:
        """By origin: batches below this position."""
        counts = self.before.copy()
        for origin in self.origins[: position - self.base]:
            counts[origin] += 1
        return counts

    def forget(self, position: int) -> None:
        """Forget all below this position."""
        self.before = self.counts(position)
        del self.origins[: position - self.base]
        self.base = position

    def agrees(self, other: KnownOrder) -> bool:
        """Whether both can be known of one order."""
        early, late = (self, other) if self.base <= other.base else (other, self)
        skip = late.base - early.base
        if any(a != b for a, b in zip(early.origins[skip:], late.origins, strict=False)):
            return False
        return skip > len(early.origins) or early.counts(late.base) == late.before


class OrderReport(Report, Protocol):
    """What a member reports of it."""

    @property
    def order(self) -> tuple[Rank, ...]:
        """By position, from `base` on."""

    @property
    def delivered(self) -> int:
        """Positions below it are delivered here."""

    @property
    def seen(self) -> tuple[tuple[Rank, int, int], ...]:
        """Batches that are held back: origin, number, and how much of the order their caster had delivered."""

    @property
    def base(self) -> int: ...

    @property
    def before(self) -> tuple[int, ...]: ...


def longest_known(reports: Mapping[Rank, OrderReport]) -> KnownOrder:
    """The longest order that a survivor knows, without what any of them has forgotten.

    Raises `PeerFault` if the reports cannot all be true.
    """
    known = [_known(report) for report in reports.values()]
    longest = max(known, key=lambda one: one.base + len(one.origins))
    base = max(one.base for one in known)
    if any(report.delivered < base for report in reports.values()):
        raise PeerFault("a report has forgotten what another one lacks")
    if not all(one.agrees(longest) for one in known):
        raise PeerFault("two reports know different orders")
    longest.forget(base)
    return longest


def _known(report: OrderReport) -> KnownOrder:
    """Raise `PeerFault` if no correct member can have sent this report, whatever the others say."""
    known = KnownOrder(report.before, report.base, report.order)
    if sum(known.before) != known.base or not 0 <= report.delivered - known.base <= len(known.origins):
        raise PeerFault("a report delivers what it does not know")
    counts = known.counts(report.delivered)
    last = [0] * len(counts)
    for origin, number, seen in report.seen:
        counts[origin] += 1
        if number != counts[origin] or seen < last[origin]:
            raise PeerFault("a report lists batches that cannot follow each other")
        last[origin] = seen
    if tuple(counts) != report.held:
        raise PeerFault("a report does not list what it holds")
    return known
