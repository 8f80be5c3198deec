"""What a stay delivered: as sets, where nothing is asked about the order, and as the sequence of the service `total`.

Sequences are compared batch by batch. Two members may have cut the same messages into different batches; then all
sequences are cut at the same places, so that two units are either the same messages or have none in common.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from unisono.trace.checks.model import DATAGRAM, PLACED, TOTAL, Span, Stay
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


class Ordered(NamedTuple):
    """What a stay delivered and placed of the service `total`, in order, with the local indices of the rows."""

    stay: Stay
    units: list[Span]
    locals: Sequence[int]

    @property
    def name(self) -> str:
        return self.stay.life.name


def ordered(stay: Stay, before_block: bool = False) -> Ordered:
    """The whole sequence, or what came before the member blocked for a view change."""
    end = len(stay.spans) if stay.block is None or not before_block else stay.block
    if stay.totals == len(stay.spans):
        return Ordered(stay, stay.spans[:end], stay.locals[:end])
    chosen = [place for place in range(end) if stay.marks[place] & TOTAL]
    return Ordered(stay, [stay.spans[place] for place in chosen], [stay.locals[place] for place in chosen])


def is_prefix(short: list[Span], long: list[Span]) -> bool:
    return len(short) <= len(long) and (short == long if len(short) == len(long) else short == long[: len(short)])


def are_prefixes(sequences: Sequence[Ordered]) -> bool:
    """Whether all are prefixes of the longest: then nothing about their order differs."""
    longest = max((sequence.units for sequence in sequences), key=len, default=[])
    return all(is_prefix(sequence.units, longest) for sequence in sequences)


def aligned(sequences: Sequence[Ordered]) -> list[Ordered]:
    """The same sequences, cut so that units are equal or disjoint."""
    cuts = _cuts({unit for sequence in sequences for unit in sequence.units})
    return [_cut(sequence, cuts) for sequence in sequences] if cuts else list(sequences)


def _cuts(units: Iterable[Span]) -> dict[int, list[int]]:
    """By origin, where units must be cut: every border of a unit, for the origins some of whose units overlap."""
    cuts: dict[int, list[int]] = {}
    borders: dict[int, list[Span]] = {}
    for unit in sorted(units):
        borders.setdefault(unit[0], []).append(unit)
    for number, ascending in borders.items():
        if any(one[2] > other[1] for one, other in pairwise(ascending)):
            cuts[number] = sorted({border for unit in ascending for border in unit[1:]})
    return cuts


def _cut(sequence: Ordered, cuts: dict[int, list[int]]) -> Ordered:
    units: list[Span] = []
    locals_: list[int] = []
    for (number, first, end), local in zip(sequence.units, sequence.locals, strict=True):
        places = cuts.get(number, [])
        inner = places[bisect_right(places, first) : bisect_left(places, end)]
        for low, high in zip([first, *inner], [*inner, end], strict=True):
            units.append((number, low, high))
            locals_.append(local)
    return Ordered(sequence.stay, units, locals_)


def distinct(sequences: Sequence[Ordered]) -> list[Ordered]:
    """One of each kind: sequences that are a prefix of another one add nothing to a comparison."""
    kept: list[Ordered] = []
    for sequence in sorted(sequences, key=lambda sequence: (-len(sequence.units), sequence.name)):
        if not any(is_prefix(sequence.units, other.units) for other in kept):
            kept.append(sequence)
    return sorted(kept, key=lambda sequence: sequence.name)


def first_places(units: Sequence[Span]) -> dict[Span, int]:
    """Where each unit comes first; a repetition is the business of P2."""
    places: dict[Span, int] = {}
    for place, unit in enumerate(units):
        places.setdefault(unit, place)
    return places
