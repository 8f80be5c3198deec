"""A contiguous prefix grows from runs in any order."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from unisono.core.views.contiguous import Contiguous


@given(st.data())
def test_runs_in_any_order_become_contiguous(data: st.DataObject) -> None:
    ends = data.draw(st.lists(st.integers(1, 40), min_size=1, unique=True).map(sorted))
    runs = data.draw(st.permutations(list(pairwise([0, *ends]))))
    numbers, met = Contiguous(), set[int]()
    for first, end in runs:
        numbers.add(first, end)
        met.update(range(first, end))
        assert {number for number in range(50) if number in numbers} == met
        assert numbers.end == min(set(range(50)) - met)
    assert not numbers.beyond, "nothing is kept of what is joined"


def test_what_is_skipped_counts_as_met() -> None:
    numbers = Contiguous()
    numbers.add(5, 7)
    numbers.skip(4)
    assert [number in numbers for number in (3, 4, 5)] == [True, False, False]
    numbers.add(4, 6)
    assert numbers.end == 6
