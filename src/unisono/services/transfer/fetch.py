"""The asking side of state transfer: one state is fetched from one of several candidates.

Candidates are asked one after the other. The state is pulled from the first that offers it, with a bounded number of chunks under
way. A donor that falls silent, has dropped its snapshot or is gone is replaced by the next candidate; what was pulled is kept only
if that one offers the very same bytes. When all have declined, the asker pauses and begins another round. The answers `Why.NONE`
and `Why.OBSERVER` are final for the view: their senders are not asked again.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import NamedTuple

from unisono.core.types import MemberId, ViewId
from unisono.services.transfer.messages import (
    DIGEST_BYTES,
    Ask,
    Decline,
    Done,
    Gone,
    Message,
    Offer,
    StateChunk,
    StatePull,
    Want,
    Why,
)  # fmt: skip
from unisono.services.transfer.settings import TransferSettings


def digest_of_state(data: bytes | bytearray) -> bytes:
    return blake2b(data, digest_size=DIGEST_BYTES).digest()


class FetchProgress(NamedTuple):
    """How far a fetch is."""

    donor: MemberId | None
    """The member that was asked, or that gives the state."""
    here_bytes: int
    total_bytes: int | None
    """None: no member has offered the state yet."""
    donors: int
    """How many members have offered it so far."""


class StateFetch:
    """Fetches one state. `out` holds the messages to send."""

    def __init__(self, settings: TransferSettings, want: Want | None, serial: int, now: int) -> None:
        self.want = want
        self.is_behind = False  # the asker merges, and wants a state instead of a base (T6)
        self.since_ns = now
        self.out: list[tuple[MemberId, Message]] = []
        self.refused = 0  # unusable offers and states
        self._donors = 0  # how many offered
        self._settings = settings
        self._serial = serial  # of the last question
        self._view: ViewId | None = None
        self._candidates: tuple[MemberId, ...] = ()
        self._answers: dict[MemberId, Decline] = {}  # of this view, the last of each
        self._tried: dict[MemberId, None] = {}  # in this round
        self._rest_until = 0
        self.donor: MemberId | None = None  # the member that was asked, or that gives the state
        self.offer: Offer | None = None
        self.data = bytearray()
        self._digest = b""  # of the state that `data` is the beginning of
        self._pulled = 0  # up to where chunks were asked for
        self._heard_ns = now

    # Inputs.

    def enter(self, view: ViewId, candidates: Sequence[MemberId], keep_donor: bool, now: int) -> None:
        """A view begins: messages under way are lost, and answers no longer count."""
        self._view = view
        self._candidates = tuple(candidates)
        self._answers.clear()
        self._tried.clear()
        self._rest_until = 0
        self._heard_ns = now
        if keep_donor and self.offer is not None:
            self._pulled = len(self.data)
        else:
            self.donor = self.offer = None

    def take(self, sender: MemberId, message: Offer | Decline | StateChunk | Gone, now: int) -> bool:
        """Take an answer. True: the state is complete, in `data`."""
        if isinstance(message, Offer):
            return self._take_offer(sender, message, now)
        if message.view != self._view or sender != self.donor:
            return False
        if isinstance(message, Decline):
            if message.serial == self._serial and self.offer is None:
                self.donor = None
                if message.why in _WORDS:
                    self._answers[sender] = message
                else:
                    self.refused += 1
            return False
        offer = self.offer
        if offer is None or message.number != offer.number:
            return False
        if isinstance(message, Gone):
            self.donor = self.offer = None
            return False
        return self._take_chunk(message, offer, now)

    def step(self, now: int) -> None:
        """Ask the next candidate or pull more, as is due."""
        if self.donor is not None and now >= self._heard_ns + self._settings.patience_ns:
            self.abandon()
        if self.donor is None:
            self._ask_next(now)
        offer = self.offer
        if offer is None or self.donor is None or self._view is None:
            return
        ahead = len(self.data) + self._settings.chunks_ahead * offer.chunk_bytes
        while self._pulled < min(offer.total, ahead):
            self.out.append((self.donor, StatePull(self._view, offer.number, self._pulled)))
            self._pulled += offer.chunk_bytes

    def abandon(self) -> None:
        """Give the donor up, and tell it that it may drop its snapshot."""
        if self.donor is not None and self.offer is not None:
            self.out.append((self.donor, Done(self.offer.number)))
        self.donor = self.offer = None

    # Questions.

    @property
    def serial(self) -> int:
        return self._serial

    @property
    def progress(self) -> FetchProgress:
        total = None if self.offer is None else self.offer.total
        return FetchProgress(self.donor, len(self.data), total, self._donors)

    @property
    def deadline(self) -> int:
        return self._rest_until if self.donor is None else self._heard_ns + self._settings.patience_ns

    @property
    def is_lost(self) -> bool:
        """Whether every candidate has said, in this view, that it does not hold what is wanted."""
        return all(self._is(candidate, *_FOR_GOOD) for candidate in self._candidates)

    @property
    def is_nowhere(self) -> bool:
        """Whether every candidate has said, in this view, that it waits for a state too, or for the asker's own (T6)."""
        return all(self._is(candidate, Why.WAITING, *_FOR_GOOD) for candidate in self._candidates)

    def is_first(self, me: MemberId) -> bool:
        """Whether all wait for a state, and no member below this one could begin with its own."""
        return all(
            self._is(other, Why.WAITING, Why.OBSERVER) and (other > me or not self._answers[other].initial)
            for other in self._candidates
        )

    def explain(self) -> str:
        if self.donor is not None and self.offer is not None:
            return f"{len(self.data)} of {self.offer.total} bytes are here, {self.donor} gives them"
        if self.donor is not None and self.donor not in self._answers:  # of one asked again, the last answer tells more
            return f"{self.donor} was asked and has not answered"
        said = [f"{who} {_WORDS[Why(answer.why)]}" for who, answer in self._answers.items()]
        return ", ".join(said) or "no member has been asked yet"

    # Inside.

    def _is(self, who: MemberId, *whys: Why) -> bool:
        answer = self._answers.get(who)
        return answer is not None and answer.why in whys

    def _ask_next(self, now: int) -> None:
        if now < self._rest_until or self._view is None:
            return
        for candidate in self._candidates:
            if candidate not in self._tried and not self._is(candidate, *_FOR_GOOD):
                self._tried[candidate] = None
                self._serial = (self._serial + 1) % 2**32
                self.donor, self._heard_ns = candidate, now
                self.out.append((candidate, Ask(self._view, self._serial, self.want, self.is_behind)))
                return
        self._tried.clear()
        self._rest_until = now + self._settings.retry_ns

    def _take_offer(self, sender: MemberId, offer: Offer, now: int) -> bool:
        expected = sender == self.donor and self.offer is None and offer.view == self._view
        if not expected or offer.serial != self._serial:
            self.out.append((sender, Done(offer.number)))
            return False
        self._heard_ns = now
        size_max = self._settings.state_bytes_max
        if offer.total > size_max or not offer.chunk_bytes or len(offer.digest) != DIGEST_BYTES:
            self.refused += 1
            self.out.append((sender, Done(offer.number)))
            self.donor = None
            return False
        if offer.digest != self._digest or offer.total < len(self.data):
            self.data.clear()  # another snapshot: nothing of the last one fits it
        self.offer, self._digest, self._pulled = offer, offer.digest, len(self.data)
        self._donors += 1
        return self._is_whole(offer)

    def _take_chunk(self, chunk: StateChunk, offer: Offer, now: int) -> bool:
        if chunk.offset != len(self.data) or not 0 < len(chunk.data) <= offer.total - chunk.offset:
            self.refused += 1
            return False
        self._heard_ns = now
        self.data += chunk.data
        return self._is_whole(offer)

    def _is_whole(self, offer: Offer) -> bool:
        if len(self.data) < offer.total:
            return False
        assert self.donor is not None
        self.out.append((self.donor, Done(offer.number)))
        if digest_of_state(self.data) == offer.digest:
            return True
        self.refused += 1
        self.data.clear()
        self._digest = b""
        self.donor = self.offer = None
        return False


_FOR_GOOD = (Why.NONE, Why.OBSERVER)
_WORDS = {
    Why.WAITING: "waits for a state too",
    Why.NONE: "does not hold it",
    Why.PENDING: "is not so far yet",
    Why.BUSY: "holds too many snapshots",
    Why.OBSERVER: "is an observer, which has no state",
    Why.UNREAD: "has it, and its application must ask for its next event first",
}
