"""A prefix, whatever the order in which its runs come."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from unisono.core.views.contiguous import Prefix


@given(st.data())
def test_runs_in_any_order_make_a_prefix(data: st.DataObject) -> None:
    ends = data.draw(st.lists(st.integers(1, 40), min_size=1, unique=True).map(sorted))
    runs = data.draw(st.permutations(list(pairwise([0, *ends]))))
    prefix, met = Prefix(), set[int]()
    for first, end in runs:
        prefix.add(first, end)
        met.update(range(first, end))
        assert {number for number in range(50) if number in prefix} == met
        assert prefix.end == min(set(range(50)) - met)
    assert not prefix.beyond, "nothing is kept of what is joined"


def test_what_is_skipped_counts_as_met() -> None:
    prefix = Prefix()
    prefix.add(5, 7)
    prefix.skip(4)
    assert [number in prefix for number in (3, 4, 5)] == [True, False, False]
    prefix.add(4, 6)
    assert prefix.end == 6
