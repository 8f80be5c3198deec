"""The fast tests stay fast: see `tests/fast_tier.py`."""

from __future__ import annotations

from tests.fast_tier import too_long


def test_a_test_that_takes_a_large_share_of_the_time_is_named() -> None:
    seconds = dict.fromkeys((f"test_{number}" for number in range(90)), 1.0)
    assert too_long(seconds) == []
    assert too_long({**seconds, "test_planted": 10.0}) == [
        "test_planted took 10% of the time of all fast tests; mark it with `pytest.mark.seconds`"
    ]
