"""What a stay delivered, as a set: for the properties that do not ask in which order."""

from __future__ import annotations

from collections.abc import Sequence

from unisono.trace.checks.model import DATAGRAM, PLACED, Stay
from unisono.trace.checks.spans import Spans


def delivered_sets(stay: Stay, *, placed: bool) -> dict[int, Spans]:
    """By the origin's number: the indices that were delivered in this stay, and those placed if that is asked; no datagrams."""
    sets: dict[int, Spans] = {}
    for (number, first, end), mark in zip(stay.spans, stay.marks, strict=True):
        if not mark & DATAGRAM and (placed or not mark & PLACED):
            spans = sets.get(number)
            if spans is None:
                spans = sets[number] = Spans()
            spans.add(first, end)
    return sets


def same_sets(stays: Sequence[Stay]) -> bool:
    """Whether all delivered or placed the same messages, read off the counters that the history keeps.

    Where the counters do not tell the whole story (`strange`), the answer is no, and one has to look closer.
    """
    one = stays[0]
    return all(
        stay.view is one.view
        and stay.next == one.next
        and stay.early_ranges() == one.early_ranges()
        and not stay.strange
        for stay in stays
    )
