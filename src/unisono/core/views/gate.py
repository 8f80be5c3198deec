"""The gate for safe messages: what is ordered here, and not yet taken in by every member."""

from __future__ import annotations

from collections.abc import Sequence

from unisono.core.types import Batch


class Gate:
    """Holds safe messages, and all that is ordered behind one, until no view change can lose them.

    A message waits until every member's ordering has taken in all that this one had taken in when it delivered it.
    """

    __slots__ = ("waiting",)

    def __init__(self) -> None:
        self.waiting: list[tuple[Batch, tuple[int, ...] | None]] = []
        """In their order; with how many packets of each origin all must have taken in, once that is known."""

    def hold(self, batches: Sequence[Batch]) -> None:
        """Take what the ordering has delivered in this turn. What it needs is known when the turn is over."""
        self.waiting += [(batch, None) for batch in batches]

    def release(self, taken: Sequence[int], taken_by_all: Sequence[int]) -> list[Batch]:
        """What may pass now. `taken` is how many packets of each origin this member has taken in."""
        if self.waiting[-1][1] is None:
            needs = tuple(taken)
            self.waiting = [(batch, needs if needed is None else needed) for batch, needed in self.waiting]
        passing: list[Batch] = []
        for batch, needed in self.waiting:
            if batch.safe and any(n > have for n, have in zip(needed or (), taken_by_all, strict=True)):
                break
            passing.append(batch)
        del self.waiting[: len(passing)]
        return passing

    def empty(self) -> list[Batch]:
        """The view is closed: all that waits belongs to its remainder."""
        batches = [batch for batch, _ in self.waiting]
        self.waiting.clear()
        return batches
