"""Every fault scenario of groups A to G has a test that carries its id, and docs/scenarios.md names tests that exist."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "scenarios.md"

NUMBERS = {
    "a": (1, 2, 3, 4, 6, 7, 9, 10, 11, 12, 13, 14),
    "b": (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14),
    "c": (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 14, 17, 18, 19, 20, 21, 22),
    "d": (1, 2, 3, 4, 6, 7, 8, 9, 11, 12, 13, 14, 15, 16),
    "e": (1, 2, 4, 5, 6, 7, 8, 9),
    "f": (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 15, 16, 17, 18, 19, 20, 21),
    "g": (1, 2, 3, 4, 5, 6, 7),
}
LECTURE = ("lectures_a", "lectures_b", "lectures_c", "lectures_d")
IDS = (*(f"{group}{number}" for group, numbers in NUMBERS.items() for number in numbers), *LECTURE)

PREFIX = re.compile(r"test_((?:[a-g]\d+_)+|lectures_[a-d]_)")
ROW = re.compile(r"^\| ([A-G]\d+|lectures \([a-d]\)) \| (.+?) \| (.+?) \|$", re.MULTILINE)
TEST = re.compile(r"`(test_\w+)`")


def names_in(source: str) -> list[str]:
    """The tests that a file defines."""
    return [
        node.name
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    ]


def ids_of(name: str) -> list[str]:
    """The scenarios that a test's name begins with: `test_c11_c13_…` shows two."""
    found = PREFIX.match(name)
    return [] if found is None else [found[1][:-1]] if found[1].startswith("lectures") else found[1].split("_")[:-1]


def without_test(ids: Iterable[str], names: Iterable[str]) -> list[str]:
    shown = {one for name in names for one in ids_of(name)}
    return [one for one in ids if one not in shown]


def rows_of(page: str) -> dict[str, tuple[str, list[str]]]:
    """By id: what must hold, and the tests that the page names for it."""
    rows = {}
    for label, words, tests in ROW.findall(page):
        key = f"lectures_{label[-2]}" if label.startswith("lectures") else label.lower()
        rows[key] = (words, TEST.findall(tests))
    return rows


def mistakes_in(page: str, names: Iterable[str]) -> list[str]:
    """What is wrong with the page: an id without a row, a row without a test of its id, a test that is not there."""
    known, rows = set(names), rows_of(page)
    found = [f"{one} has no row" for one in IDS if one not in rows]
    found += [f"{one} is no scenario" for one in rows if one not in IDS]
    for one, (words, tests) in rows.items():
        found += [f"{one} says too little" for _ in [0] if len(words) < 15]
        found += [f"{one} names no test" for _ in [0] if not tests]
        found += [f"{one}: there is no {test}" for test in tests if test not in known]
        found += [f"{one}: {test} does not carry the id" for test in tests if test in known and one not in ids_of(test)]
    return found


@pytest.fixture(scope="module")
def names() -> list[str]:
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    return [name for file in files for name in names_in(file.read_text("utf-8"))]


def test_every_scenario_has_a_test(names: list[str]) -> None:
    assert len(IDS) == len(set(IDS)) == 96
    assert without_test(IDS, names) == []


def test_the_page_of_scenarios_is_true(names: list[str]) -> None:
    assert mistakes_in(PAGE.read_text("utf-8"), names) == []


def test_no_test_carries_the_id_of_a_scenario_that_is_none(names: list[str]) -> None:
    assert [name for name in names if not set(ids_of(name)) <= set(IDS)] == []


# A check that cannot fail proves nothing.


def test_a_scenario_without_a_test_is_found() -> None:
    some = names_in("def test_a1_x(): ...\ndef test_c11_c13_y(): ...\nclass T:\n    def test_d4_z(self): ...")
    assert without_test(["a1", "c11", "c13", "d4", "a11", "d1"], some) == ["a11", "d1"]
    assert ids_of("test_lectures_c_x") == ["lectures_c"]
    assert ids_of("test_a_member_crashes") == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("| A1 | ", "| A5 | "),
        ("| B9 | ", "B9: "),
        ("`test_a2_", "`test_a2_nothing_like_"),
        ("`test_a2_", "`test_a3_"),
    ],
)
def test_a_page_that_is_not_true_is_found(old: str, new: str, names: list[str]) -> None:
    page = PAGE.read_text("utf-8")
    assert old in page
    assert mistakes_in(page.replace(old, new, 1), names)
