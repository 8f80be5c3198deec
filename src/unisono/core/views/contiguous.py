"""Numbers from 0 on, up to a first gap, and what lies beyond it."""

from __future__ import annotations


class Prefix:
    """Which numbers were met, when they come in runs, each once, and not always in order."""

    __slots__ = ("beyond", "end")

    def __init__(self) -> None:
        self.end = 0
        """All below it were met."""
        self.beyond: dict[int, int] = {}  # met, but not all before them: first → end

    def add(self, first: int, end: int) -> None:
        """Everything from `first` on and below `end` was met."""
        beyond = self.beyond
        if first != self.end:
            beyond[first] = end
            return
        while beyond and (further := beyond.pop(end, None)) is not None:
            end = further
        self.end = end

    def gaps(self, end: int) -> list[tuple[int, int]]:
        """What was not met below `end`: first and end of each run."""
        missing, start = [], self.end
        for first, stop in sorted(self.beyond.items()):
            if first > start:
                missing.append((start, min(first, end)))
            start = max(start, stop)
        if start < end:
            missing.append((start, end))
        return missing

    def skip(self, end: int) -> None:
        """All below it count as met, and what lay beyond a gap is of no interest any more."""
        self.end = end
        self.beyond.clear()

    def __contains__(self, number: int) -> bool:
        return number < self.end or any(first <= number < end for first, end in self.beyond.items())
