"""The benchmark of weeks, in small: a killed driver says what the plain judge says."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from benchmarks.weeks import run

GROWTH_MAX = 2.0
FILES_MAX = 600
"""Files are merged and cleaned away when there are many: this is beyond all of these limits together."""


def test_three_days_with_a_kill(tmp_path: Path) -> None:
    found = run(days=3, kills=1, folder=tmp_path)
    assert found["kills"] == 1
    assert not found["problems"]
    assert found["hook calls"] >= found["violations"] > 0


@pytest.mark.slow
def test_four_weeks_with_ten_kills_and_nothing_grows(tmp_path: Path) -> None:
    found = run(days=28, kills=10, folder=tmp_path)
    assert found["kills"] == 10
    assert not found["problems"]
    assert found["violations"] <= found["hook calls"] <= found["violations"] + 10
    for name in ("memory MB", "state kB"):
        sizes = found["growth"][name]
        assert sizes["last quarter"] <= GROWTH_MAX * sizes["second quarter"], (name, sizes)
    assert found["growth"]["data files"]["last quarter"] < FILES_MAX
    assert found["growth"]["checkpoint files"]["last quarter"] < FILES_MAX
