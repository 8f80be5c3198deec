"""The history of benchmarks: one line for each record, and a page drawn from them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from benchmarks import history
from benchmarks.history import KEPT, Record, figures_of, load, write

OUTPUTS = {
    "alone": {"cpu_us": {"cast": 50.5, "deliver": 40.0}, "calls": {"cast": 7}},
    "ordering": {"orders": {"fifo": {"1": 0.5, "4": 0.2}}},
    "simulator": {"orders": {"fifo": {"deliveries_per_second": 374_000, "turns_per_delivery": 2}}},
}


@pytest.mark.parametrize(
    ("benchmark", "figures"),
    [("alone", {"cast": 50.5, "deliver": 40.0}), ("ordering", {"fifo": 0.5}), ("simulator", {"fifo": 374_000})],
)
def test_of_each_benchmark_the_named_figures_are_kept(benchmark: str, figures: dict[str, float]) -> None:
    assert figures_of(benchmark, OUTPUTS[benchmark]) == figures


def test_what_is_kept_comes_from_benchmarks_that_are_there() -> None:
    assert all(history.HISTORY.with_name(f"{name}.py").exists() for name in KEPT)


def test_a_record_is_one_line_with_date_commit_machine_and_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    printed = json.dumps(OUTPUTS["alone"])
    monkeypatch.setattr("benchmarks.history.subprocess.run", lambda command, **_: _Done(printed, command))
    monkeypatch.setattr(history, "commit", lambda: "abc1234-dirty")
    path = tmp_path / "history.jsonl"
    for _ in range(2):
        made = history.record("alone", path)
    assert load(path) == [made, made]
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", made.date)
    assert re.fullmatch(r"\d+ cores, \w+, \w+ 3\.\d+\.\d+", made.machine)
    assert (made.commit, made.figures) == ("abc1234-dirty", {"cast": 50.5, "deliver": 40.0})


class _Done:
    def __init__(self, stdout: str, command: list[str]) -> None:
        assert command[2:] == ["benchmarks.alone", "--json"]
        self.stdout = stdout


def test_the_page_shows_every_record_and_a_picture_of_the_last_machine_s(tmp_path: Path) -> None:
    old = Record("2026-01-01", "aaa", "1 cores, a, CPython 3.11.0", "alone", {"cast": 1.0})
    new = Record("2026-01-02", "bbb", "2 cores, b, CPython 3.13.0", "alone", {"cast": 2.5, "deliver": 3.0})
    (tmp_path / "results").mkdir()
    write([old, new, new], tmp_path / "results" / "history.md")
    page = (tmp_path / "results" / "history.md").read_text("utf-8")
    assert "| 2026-01-01 | aaa | 1 cores, a, CPython 3.11.0 | 1 |  |" in page
    assert page.count("| 2026-01-02 | bbb | 2 cores, b, CPython 3.13.0 | 2.5 | 3 |") == 2
    (link,) = re.findall(r"\((img/.*\.svg)\)", page)
    assert "deliver" in (tmp_path / "results" / link).read_text("utf-8")


def test_the_page_is_drawn_from_the_history() -> None:
    assert history.PAGE.read_text("utf-8") == history.page_of(load())
