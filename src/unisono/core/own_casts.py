"""Which own messages every member has taken in: a prefix of them, as far as is known."""

from __future__ import annotations

from collections import deque

from unisono.core.types import Batch


class OwnCasts:
    """Messages need not leave in the order in which they were cast: an order may let some wait and others pass them."""

    __slots__ = ("_beyond", "_left", "stable_index")

    def __init__(self) -> None:
        self.stable_index = 0
        """Every member that came along has taken in all own messages below this index."""
        self._left: deque[tuple[int, int, int]] = deque()  # own packets by then; the batch's first index, and its end
        self._beyond: dict[int, int] = {}  # taken in by all, but not all before them: first → end

    def leave(self, packets: int, batch: Batch) -> None:
        """A batch has left with the packet of this number."""
        self._left.append((packets, batch.first, batch.first + batch.count))

    def taken(self, packets: int) -> None:
        """So many own packets have been taken in by all."""
        left, beyond = self._left, self._beyond
        while left and left[0][0] <= packets:
            _, first, end = left.popleft()
            beyond[first] = end
            while beyond and (stable := beyond.pop(self.stable_index, None)) is not None:
                self.stable_index = stable

    def renew(self, index: int) -> None:
        """A view has ended: all below this index that it delivered, all who come along have."""
        self.stable_index = index
        self._left.clear()
        self._beyond.clear()
