"""The gate for safe messages: hold what is ordered here until every member has processed it."""

from __future__ import annotations

from collections.abc import Sequence

from unisono.core.types import Batch


class Gate:
    """Holds safe messages, and everything ordered after one, until no view change can lose them.

    A safe message is delivered only after every member's ordering has processed everything that precedes it here.
    """

    def __init__(self) -> None:
        self.waiting: list[tuple[Batch, tuple[int, ...] | None]] = []
        """In their order, each with the packets of each origin that all must have processed; None until the turn ends."""

    def hold(self, batches: Sequence[Batch]) -> None:
        """Add what the ordering delivered in this turn; what each batch waits for is fixed when the turn ends."""
        self.waiting += [(batch, None) for batch in batches]

    def release(self, taken: Sequence[int], taken_by_all: Sequence[int]) -> list[Batch]:
        """Remove and return the batches that may pass. `taken`: packets of each origin that this member has processed."""
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
        """Remove and return all waiting batches: the view is closed, and they belong to its remainder."""
        batches = [batch for batch, _ in self.waiting]
        self.waiting.clear()
        return batches
