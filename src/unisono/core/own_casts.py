"""Which own messages every member has taken in: a prefix of them, as far as is known."""

from __future__ import annotations

from collections import deque

from unisono.core.prefix import Prefix
from unisono.core.types import Batch


class OwnCasts:
    """Messages need not leave in the order in which they were cast: an order may let some wait and others pass them."""

    __slots__ = ("_left", "_stable")

    def __init__(self) -> None:
        self._left: deque[tuple[int, int, int]] = deque()  # own packets by then; the batch's first index, and its end
        self._stable = Prefix()

    @property
    def stable_index(self) -> int:
        """Every member that came along has taken in all own messages below this index."""
        return self._stable.end

    def leave(self, packets: int, batch: Batch) -> None:
        """A batch has left with the packet of this number."""
        self._left.append((packets, batch.first, batch.first + batch.count))

    def taken(self, packets: int) -> None:
        """So many own packets have been taken in by all."""
        left = self._left
        while left and left[0][0] <= packets:
            _, first, end = left.popleft()
            self._stable.add(first, end)

    def renew(self, index: int) -> None:
        """A view has ended: all below this index that it delivered, all who come along have."""
        self._stable.skip(index)
        self._left.clear()
