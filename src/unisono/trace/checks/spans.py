"""Sets of message indices as ranges. A batch is a range, and on a clean trace an origin's ranges join into one."""

from __future__ import annotations

from bisect import bisect_left, bisect_right


class Spans:
    """A set of whole numbers, kept as ascending half-open ranges that do not touch. Adding at the end costs O(1)."""

    __slots__ = ("ends", "firsts")

    def __init__(self) -> None:
        self.firsts: list[int] = []
        self.ends: list[int] = []

    def __bool__(self) -> bool:
        return bool(self.ends)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Spans) and self.firsts == other.firsts and self.ends == other.ends

    __hash__ = None  # type: ignore[assignment]

    def add(self, first: int, end: int) -> None:
        """Add ``first … end-1``."""
        ends = self.ends
        if not ends or first > ends[-1]:
            self.firsts.append(first)
            ends.append(end)
        elif first == ends[-1]:
            ends[-1] = end
        else:
            firsts = self.firsts
            low = bisect_left(ends, first)  # the ranges low … high-1 touch the new one
            high = bisect_right(firsts, end)
            if low < high:
                first, end = min(first, firsts[low]), max(end, ends[high - 1])
            firsts[low:high] = [first]
            ends[low:high] = [end]

    def inside(self, first: int, end: int) -> list[tuple[int, int]]:
        """The parts of ``first … end-1`` that are in the set."""
        low, high = bisect_right(self.ends, first), bisect_left(self.firsts, end)
        ranges = zip(self.firsts[low:high], self.ends[low:high], strict=True)
        return [(max(first, one), min(end, other)) for one, other in ranges]

    def outside(self, first: int, end: int) -> list[tuple[int, int]]:
        """The parts of ``first … end-1`` that are not in the set."""
        parts = []
        for one, other in self.inside(first, end):
            if first < one:
                parts.append((first, one))
            first = other
        if first < end:
            parts.append((first, end))
        return parts

    def drop_below(self, bound: int) -> int:
        """Remove ranges that begin at or below `bound`; the end of the last of them, or `bound` if that is higher."""
        while self.firsts and self.firsts[0] <= bound:
            bound = max(bound, self.ends[0])
            del self.firsts[0], self.ends[0]
        return bound
