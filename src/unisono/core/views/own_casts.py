"""How far own messages are known to have come: delivered here, taken in by every member, or in doubt since their view ended."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from operator import le
from types import MappingProxyType
from typing import NamedTuple

from unisono.core.types import MemberId
from unisono.core.views.contiguous import Contiguous

Span = tuple[int, int]
"""Own messages by index: the first, and the one behind the last."""


class Doubt(NamedTuple):
    """Own messages whose view ended before every member was known to have them."""

    first: int
    end: int
    known: tuple[MemberId, ...]
    """The members that are known to have them."""


class OwnCasts:
    """Which own messages are **stable**: every member of their view delivers them unless it crashes itself.

    The condition is that of the gate for safe messages. A message that this member has delivered is stable once every member's
    ordering has taken in all that this one's had taken in by then: every report at the end of the view then holds the message,
    all that precedes it and what decided its place.
    """

    def __init__(self) -> None:
        self._marks: deque[tuple[Sequence[int], list[Span]]] = deque()  # packets that all must have taken in, for these
        self._settled = Contiguous()  # stable, or in doubt for good

    @property
    def settled_index(self) -> int:
        """All own messages below this index are stable, except those in doubt."""
        return self._settled.end

    def delivered(self, spans: list[Span], taken: Sequence[int]) -> None:
        """Messages were delivered here. `taken`: the packets of each origin that this member had taken in by then."""
        self._marks.append((taken, spans))

    def safe(self, spans: Iterable[Span]) -> None:
        """The gate has let messages pass."""
        for first, end in spans:
            self._settled.add(first, end)

    def taken(self, taken_by_all: Sequence[int]) -> None:
        """Every member has taken in this number of packets of each origin."""
        marks = self._marks
        while marks and all(map(le, marks[0][0], taken_by_all)):
            self.safe(marks.popleft()[1])

    @property
    def is_waiting(self) -> bool:
        """Whether a message that was delivered here is not known to be stable."""
        return bool(self._marks)

    def renew(
        self,
        index: int,
        known: tuple[MemberId, ...],
        is_everyone: bool,
        addressed: Mapping[Span, tuple[MemberId, ...]] = MappingProxyType({}),
    ) -> list[Doubt]:
        """A view has ended that was given all own messages below this index, and these members closed it alike.

        `addressed`: the messages that were not for everyone. Returns the messages that are in doubt from now on.
        """
        self._marks.clear()
        doubts: list[Doubt] = []
        if not is_everyone:
            for (first, end), members in addressed.items():
                if first >= self._settled.end and first not in self._settled and set(members) <= set(known):
                    self._settled.add(first, end)
            doubts = [Doubt(first, end, known) for first, end in self._settled.gaps(index)]
        self._settled.skip(index)
        return doubts
