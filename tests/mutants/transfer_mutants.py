"""State transfer with one rule broken each: what every rule is for.

**No frontier.** The snapshot says that it holds nothing of its view, so the joiner applies what is in it again.

**Applies twice.** The joiner restores, and shows all it has held back.

**Mixes donors.** 1. A gives half of its snapshot and crashes. 2. B offers its own, of another point. 3. The joiner goes on
from the offset reached, and does not look at the digest.

**Does not wait for the deliveries of a snapshot (T5).** 1. A delivers its own m at once, gives J a snapshot with it and crashes.
2. m reached nobody: J has it in its state, the others do not.

**Merges by arrival.** Every member has its own base first, so the bytes come in another order everywhere.

**Merges without asking all.** 1. A part's donor is silent or declines once. 2. Whoever met that merges without the part, and
the others with it.

**Serves its state while it merges.** A joiner gets the state of one part.

**Keeps the pulled state over a merge (T3).** A joiner of part P ends with the state of P, and skips the merge.

**Everyone begins.** All members of the first view take their own initial state instead of the lowest one's.

**Drops the buffer of the snapshot's view.** The joiner shows only what comes after the snapshot arrived.

**Forgets back-pressure.** Nobody is told that there is no free room.

**Holds every snapshot.** A donor never lets one go.

**Asks only the part.** 1. All of a part crash after A got their base. 2. A merges with it; B asks nobody but that part, and
merges without it.
"""

from __future__ import annotations

from unisono.core.member import Entered
from unisono.core.types import MemberId
from unisono.core.wire.control import part_of
from unisono.services.transfer import messages as wire
from unisono.services.transfer.donor import Donor
from unisono.services.transfer.fetch import StateFetch
from unisono.services.transfer.merge import Merge
from unisono.services.transfer.transfer import Status, Transfer


class NoFrontier(Transfer):
    def _offer_state(self, asker: MemberId, ask: wire.Ask) -> wire.Offer | wire.Decline:
        offer = super()._offer_state(asker, ask)
        return offer._replace(frontier=()) if isinstance(offer, wire.Offer) else offer


class AppliesTwice(Transfer):
    def _adopt(self, donor: MemberId, offer: wire.Offer, data: bytes, place: int) -> None:
        self._backlog.drop_below = lambda reach: []  # type: ignore[method-assign]
        super()._adopt(donor, offer, data, place)


class _MixingFetch(StateFetch):
    def _take_offer(self, sender: MemberId, offer: wire.Offer, now: int) -> bool:
        self._digest = offer.digest  # so that what is here seems to be of this snapshot
        return super()._take_offer(sender, offer, now)

    def _is_whole(self, offer: wire.Offer) -> bool:
        return len(self.data) >= offer.total


class MixesDonors(Transfer):
    fetch_type = _MixingFetch


class DoesNotWaitForDeliveries(Transfer):
    def _try_to_adopt(self, donor: MemberId, offer: wire.Offer, data: bytes) -> bool:
        place = self._backlog.place_of(offer.at)
        self._ready = None
        if place is not None:
            self._adopt(donor, offer, data, place)
        return True


class MergesByArrival(Transfer):
    def _finish_merge(self) -> None:
        assert self._merge is not None
        self._merge.order = list(self._merge.bases)
        super()._finish_merge()


class _HastyFetch(StateFetch):
    @property
    def is_lost(self) -> bool:
        return any(self._is(candidate, wire.Why.NONE) for candidate in self._candidates) or super().is_lost


class MergesWithoutAskingAll(Transfer):
    fetch_type = _HastyFetch


class ServesWhileMerging(Transfer):
    def _answer(self, asker: MemberId, ask: wire.Ask) -> wire.Offer | wire.Decline:
        if ask.want is None and self.status is Status.MERGING:
            return self._offer_state(asker, ask)
        return super()._answer(asker, ask)


class KeepsOverMerge(Transfer):
    """A waiting member goes on with a transfer into a merging view, and takes what it gets for the merged state."""

    def _take_view(self, entered: Entered) -> None:
        fetch, waits = self._fetch, self.status is Status.WAITING
        super()._take_view(entered)
        part = part_of(entered.charter, self.id)
        if waits and fetch is not None and self._fetch is None and part is not None and self.status is Status.WAITING:
            self._fetch = fetch
            fetch.enter(entered.view.id, self._candidates(None), fetch.donor in part.members, self._now)

    def _begin_merge(self, entered: Entered) -> None:
        if self.restores:
            self._position.show(self._backlog.pop())
        else:
            super()._begin_merge(entered)


class EveryoneBegins(Transfer):
    def _pursue(self) -> bool:
        if self.status is Status.WAITING and self._charter is not None and not self._charter.parts:
            self._begin()
            return True
        return super()._pursue()


class DropsTheBuffer(Transfer):
    def _adopt(self, donor: MemberId, offer: wire.Offer, data: bytes, place: int) -> None:
        super()._adopt(donor, offer, data, place)
        while self._backlog:
            event = self._backlog.pop()
            if isinstance(event, Entered):
                self._position.show(event)


class ForgetsBackPressure(Transfer):
    def _tell_room(self) -> None:
        pass


class _HoardingDonor(Donor):
    deadline = None

    def done(self, asker: MemberId, number: int) -> None:
        pass

    def expire(self, now: int) -> None:
        pass

    def keep_only(self, members: object) -> None:
        pass


class HoldsEverySnapshot(Transfer):
    donor_type = _HoardingDonor


class _ShortSightedMerge(Merge):
    def candidates(self, key: wire.PartKey, me: MemberId) -> list[MemberId]:
        return [member for member in super().candidates(key, me) if member in self.parts[key]]


class AsksOnlyThePart(Transfer):
    """It leaves a part out as soon as none of that part is left, although somebody else may have its base."""

    def _begin_merge(self, entered: Entered) -> None:
        super()._begin_merge(entered)
        if self._merge is not None:
            self._merge.__class__ = _ShortSightedMerge
