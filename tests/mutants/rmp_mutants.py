"""RMP with one rule left out or misread, each with the story that breaks it.

**The lock.** The paper says that connecting to all members is a lock, and not who yields when two connect at once.
  - Everyone accepts everyone (`AcceptsAlways`): A and B ask at once, both are accepted by all, both transmit position 0.
  - Who has asked accepts nobody (`YieldsToNobody`): A and B ask at once, and wait for each other for ever.
  - The lower rank wins, without stamps (`LowerRankWins`): 1. B asks; A, which wants nothing, accepts. 2. Now A asks. B's request is
    under way, but A has the lower rank, and B accepts. 3. C accepts both. Both transmit.
  - The lock is given up before the votes are in (`ReleasesEarly`): B transmits position 1 while C still lacks position 0.
  - A hold has no end (`NeverYields`): A casts and casts, and B never gets the lock.

**Two-phase commit.**
  - Receivers deliver at once (`DeliversOnReceipt`): A's message reaches B, which delivers it; A crashes; C has never seen it.
  - A majority is enough (`MajorityCommits`): the same with A's own delivery, and C, which did not vote, as the one who lacks it.

**Recovery.**
  - Only what is committed is kept (`KeepsOnlyCommitted`): A has all votes, delivers, and crashes before its commit leaves.
    Everyone holds the message, and everyone drops it.
  - Only what *all* know to be committed is kept (`DropsWhatOneDelivered`): the commit reached B alone, which delivered.
  - Everyone delivers what it withholds (`DeliversWhatItHas`): A's message reached B, and not C.
  - A message that did not reach all is dropped, whoever cast it (`AbortsTheLiving`): C crashes, and A never delivers its own.
  - What waits for the lock is forgotten (`ForgetsUnsent`): A never delivers its own message.

**Joins and leaves.**
  - Whoever coordinates proposes at once (`ProposesUnlocked`): B is transmitting, and its message has reached A and not C.
"""

from __future__ import annotations

from collections.abc import Mapping

from unisono.core.config import Config
from unisono.core.outbox import Outbox
from unisono.core.types import Batch, Packet, Rank, Slot, View
from unisono.orders.holdback import longest_held
from unisono.orders.rmp import Data, Rmp
from unisono.orders.rmp_lock import GroupLock
from unisono.orders.rmp_recovery import RmpCut, RmpReport, recover


class _AcceptingLock(GroupLock):
    __slots__ = ()

    def meet(self, sender: Rank, stamp: int) -> bool:
        return True


class AcceptsAlways(Rmp):
    def __init__(self, view: View, rank: Rank, config: Config) -> None:
        super().__init__(view, rank, config)
        self._lock = _AcceptingLock(rank, len(view))


class _StubbornLock(GroupLock):
    __slots__ = ()

    def meet(self, sender: Rank, stamp: int) -> bool:
        if self.held or self.asked is not None:
            self.waiting[sender] = stamp
            return False
        return True


class YieldsToNobody(Rmp):
    def __init__(self, view: View, rank: Rank, config: Config) -> None:
        super().__init__(view, rank, config)
        self._lock = _StubbornLock(rank, len(view))


class _RankLock(GroupLock):
    __slots__ = ()

    def meet(self, sender: Rank, stamp: int) -> bool:
        if self.held or (self.asked is not None and self._rank < sender):
            self.waiting[sender] = stamp
            return False
        return True


class LowerRankWins(Rmp):
    def __init__(self, view: View, rank: Rank, config: Config) -> None:
        super().__init__(view, rank, config)
        self._lock = _RankLock(rank, len(view))


class ReleasesEarly(Rmp):
    def _may_release(self) -> bool:
        return self._lock.held and (not self._queue or self._is_spent())


class NeverYields(Rmp):
    def _is_spent(self) -> bool:
        return False


class DeliversOnReceipt(Rmp):
    def _take(self, sender: Rank, packet: Data, out: Outbox) -> None:
        super()._take(sender, packet, out)
        self._commit(self._placed, out)


class MajorityCommits(Rmp):
    def _count_vote(self, voter: Rank, position: int, out: Outbox) -> None:
        self._votes[voter] = position
        self._commit(sorted(self._votes)[(self._size - 1) // 2], out)


def _without(reports: Mapping[Rank, RmpReport], *dropped: Slot) -> RmpCut:
    """The cut of production without these slots."""
    cut = recover(reports, 2**20)
    order = tuple(slot for slot in cut.order if slot not in dropped)
    return RmpCut(longest_held(reports), cut.first, order, (*cut.aborted, *dropped))


def _orphans(reports: Mapping[Rank, RmpReport], end: int) -> list[Slot]:
    """From position `end` on, what production commits although its transmitter is gone."""
    cut = recover(reports, 2**20)
    return [slot for slot in cut.order[end - cut.first :] if slot[0] not in reports]


class KeepsOnlyCommitted(Rmp):
    @staticmethod
    def merge(view: View, config: Config, reports: Mapping[Rank, RmpReport]) -> RmpCut:
        return _without(reports, *_orphans(reports, max(report.committed for report in reports.values())))


class DropsWhatOneDelivered(Rmp):
    @staticmethod
    def merge(view: View, config: Config, reports: Mapping[Rank, RmpReport]) -> RmpCut:
        return _without(reports, *_orphans(reports, min(report.committed for report in reports.values())))


class AbortsTheLiving(Rmp):
    @staticmethod
    def merge(view: View, config: Config, reports: Mapping[Rank, RmpReport]) -> RmpCut:
        common = min(report.committed + len(report.withheld) for report in reports.values())
        split = [slot for report in reports.values() for slot in report.withheld[max(0, common - report.committed) :]]
        return _without(reports, *split)


class ForgetsUnsent(Rmp):
    @staticmethod
    def merge(view: View, config: Config, reports: Mapping[Rank, RmpReport]) -> RmpCut:
        last = {rank: report.held[rank] - report.unsent for rank, report in reports.items()}
        return _without(
            reports, *(slot for slot in recover(reports, 2**20).order if slot[1] > last.get(slot[0], slot[1]))
        )


class DeliversWhatItHas(Rmp):
    """No agreement at all: every survivor commits what it withholds, and hands nothing to others."""

    @staticmethod
    def merge(view: View, config: Config, reports: Mapping[Rank, RmpReport]) -> RmpCut:
        held = zip(*(report.held for report in reports.values()), strict=True)
        return RmpCut(tuple(min(column) for column in held), 0, (), ())

    def close(self, cut: RmpCut, missing: Mapping[Slot, Packet], out: Outbox) -> None:
        batches: list[Batch] = [one.batch for one in self._withheld]
        for batch in batches:
            self._deliver(batch, out, recovery=True)


class CommitsUnheard(Rmp):
    """The order is right, and yet P18 is broken: nobody says that it has voted."""

    def _vote(self, out: Outbox) -> None:
        silent = Outbox()
        super()._vote(silent)
        out.to_one += silent.to_one


class ProposesUnlocked(Rmp):
    def approach(self, wanted: bool) -> bool:
        return True
