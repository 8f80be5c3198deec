"""A contiguous prefix of numbers, and ranges beyond its first gap."""

from __future__ import annotations


class Contiguous:
    """Tracks a contiguous prefix 0..end plus out-of-order ranges beyond it. Each number is added at most once."""

    def __init__(self) -> None:
        self.end = 0
        """All numbers below it have been added."""
        self.beyond: dict[int, int] = {}  # ranges behind a gap: first → end

    def add(self, first: int, end: int) -> None:
        """Add the numbers from `first` to `end` - 1."""
        beyond = self.beyond
        if first != self.end:
            beyond[first] = end
            return
        while beyond and (further := beyond.pop(end, None)) is not None:
            end = further
        self.end = end

    def gaps(self, end: int) -> list[tuple[int, int]]:
        """The missing ranges below `end`: first and end of each."""
        missing, start = [], self.end
        for first, stop in sorted(self.beyond.items()):
            if first > start:
                missing.append((start, min(first, end)))
            start = max(start, stop)
        if start < end:
            missing.append((start, end))
        return missing

    def skip(self, end: int) -> None:
        """Count everything below `end` as added, and drop the ranges beyond."""
        self.end = end
        self.beyond.clear()

    def __contains__(self, number: int) -> bool:
        return number < self.end or any(first <= number < end for first, end in self.beyond.items())
