"""Ranges behave like the sets of numbers that they stand for."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from unisono.trace.checks.spans import Spans

ranges = st.tuples(st.integers(0, 30), st.integers(1, 8)).map(lambda pair: (pair[0], pair[0] + pair[1]))


def numbers(parts: list[tuple[int, int]]) -> set[int]:
    return {number for first, end in parts for number in range(first, end)}


@given(st.lists(ranges, max_size=12), ranges)
def test_like_a_set(added: list[tuple[int, int]], asked: tuple[int, int]) -> None:
    spans = Spans()
    for first, end in added:
        spans.add(first, end)
    expected = numbers(added)
    held = list(zip(spans.firsts, spans.ends, strict=True))
    assert numbers(held) == expected
    assert held == sorted(held)
    assert all(one[1] < other[0] for one, other in pairwise(held)), "ranges that touch are joined"
    assert numbers(spans.inside(*asked)) == expected & set(range(*asked))
    assert numbers(spans.outside(*asked)) == set(range(*asked)) - expected
    assert bool(spans) == bool(added)


@given(st.lists(ranges, max_size=12), st.integers(0, 40))
def test_what_follows_a_bound_without_a_gap_is_taken_off(added: list[tuple[int, int]], bound: int) -> None:
    spans = Spans()
    for first, end in added:
        spans.add(first, end)
    expected = bound
    while expected in numbers(added):
        expected += 1
    assert spans.drop_below(bound) == expected
    assert all(first > expected for first in spans.firsts)


def test_equal_sets_are_equal_however_they_were_made() -> None:
    one, other = Spans(), Spans()
    one.add(0, 4)
    other.add(2, 4)
    other.add(0, 2)
    assert one == other
    other.add(5, 6)
    assert one != other
