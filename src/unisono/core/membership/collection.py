"""How the answers and confirmations of a ballot reach its proposer: by star, or by ring.

A ballot has two rounds in which it hears from everyone: it collects answers, and it closes. In each it asks its collection whom
to address itself, and hands it what goes around. A ring that is too slow leaves the rest of the round to the star: until then the
proposer is patient. See `ring` for why both ways come to the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from unisono.core.membership.context import Context
from unisono.core.membership.ring import Ring, ring_of
from unisono.core.types import MemberId, ViewId
from unisono.core.wire.control import DECREE, ROLL, Answer, Decree, RollCall


class Star:
    """How one ballot collects what its participants say: the proposer asks each of them itself, and nothing goes around."""

    patient_until = 0
    """Until then the proposer repeats nothing and gives no participant up; 0: it is the star's turn."""

    def begin_round(self) -> None:
        """Everyone is to answer, or everyone is to close."""

    def end_round(self) -> None:
        """Everyone has, or the proposer asks the rest directly."""

    def is_direct(self, member: MemberId) -> bool:
        """Whether the proposer addresses this member itself in this round."""
        return True

    def call_roll(self, answer: Answer) -> None:
        """The proposer's own answer is here."""

    def announce(self, decree: Decree) -> None:
        """The proposer has written the charter."""

    def read_roll(self, sender: MemberId, roll: RollCall) -> Iterable[tuple[MemberId, Answer | None]]:
        """Who has answered by a roll call that came around, and what; None for what is no answer."""
        return ()

    def is_closed(self, sender: MemberId) -> bool:
        """Whether a decree from this member has come around: then all have closed and could confirm."""
        return False


class TokenRound(Star):
    """A token goes around: in the first round it gathers answers, in the second it brings the cuts."""

    def __init__(self, context: Context, ring: Ring, ballot: ViewId, bases: Mapping[MemberId, ViewId | None]) -> None:
        self._context = context
        self._ring = ring
        self._ballot = ballot
        self._bases = tuple(sorted(bases.items()))
        self._line = ring_of(bases, context.id)

    def begin_round(self) -> None:
        self.patient_until = self._context.now + self._context.settings.answer_wait_ns

    def end_round(self) -> None:
        self.patient_until = 0

    def is_direct(self, member: MemberId) -> bool:
        return not self.patient_until or member == self._context.id

    def call_roll(self, answer: Answer) -> None:
        """It is the first on the roll."""
        if self.patient_until:
            views = () if answer.view is None else ((answer.view, answer.members),)
            mine = self._context.codec.encode(answer._replace(members=()))
            self._ring.pass_on(self._ballot, ROLL, self._line[1], RollCall(self._bases, views, (mine,)))

    def announce(self, decree: Decree) -> None:
        self._ring.pass_on(self._ballot, DECREE, self._line[1], decree)

    def read_roll(self, sender: MemberId, roll: RollCall) -> Iterable[tuple[MemberId, Answer | None]]:
        if sender != self._line[-1] or len(roll.answers) != len(self._line):
            return
        views = dict(roll.views)
        for member, data in zip(self._line, roll.answers, strict=True):
            answer = self._context.codec.read(data)
            if isinstance(answer, Answer):
                yield member, answer._replace(members=() if answer.view is None else views.get(answer.view, ()))
            else:
                yield member, None

    def is_closed(self, sender: MemberId) -> bool:
        return sender == self._line[-1]
