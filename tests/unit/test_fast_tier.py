"""The fast tests stay fast: see `tests/fast_tier.py`."""

from __future__ import annotations

from pathlib import Path

from tests.fast_tier import too_long

TESTS = Path(__file__).resolve().parents[1]


def test_a_test_that_takes_a_large_share_of_the_time_is_named() -> None:
    seconds = dict.fromkeys((f"test_{number}" for number in range(90)), 1.0)
    assert too_long(seconds) == []
    assert too_long({**seconds, "test_planted": 10.0}) == [
        "test_planted took 10% of the time of all fast tests; mark it with `pytest.mark.seconds`"
    ]


def test_the_mark_stands_only_where_it_decides_something() -> None:
    """Swarms and searches, links, Spark and pages are never among the fast tests."""
    elsewhere = [path for folder in ("net", "pipeline", "sim", "web") for path in (TESTS / folder).glob("test_*.py")]
    assert elsewhere
    assert not [path.name for path in elsewhere if "mark.seconds" in path.read_text("utf-8")]
