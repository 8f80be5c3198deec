"""Every fault scenario of groups A to G is told by a story or a test that carries its id, and docs/scenarios.md names them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from tests.stories.text import all_stories, read_story

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
TEST = re.compile(r"`(test_\w+|\w+\.txt)`")


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


def key_of(label: str) -> str:
    """A scenario as tests name it, from its name on the page and in stories: `C11`, `lectures (a)`."""
    return f"lectures_{label[-2]}" if label.startswith("lectures") else label.lower()


def all_told() -> dict[str, list[str]]:
    """By story and by test: the scenarios whose ids it carries."""
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    tests = {name: ids_of(name) for file in files for name in names_in(file.read_text("utf-8"))}
    return tests | {path.name: [key_of(one) for one in read_story(path).ids] for path in all_stories()}


def untold(ids: Iterable[str], told: Mapping[str, Iterable[str]]) -> list[str]:
    shown = {one for some in told.values() for one in some}
    return [one for one in ids if one not in shown]


def rows_of(page: str) -> dict[str, tuple[str, list[str]]]:
    """By id: what must hold, and the stories and tests that the page names for it."""
    rows = {}
    for label, words, tests in ROW.findall(page):
        rows[key_of(label)] = (words, TEST.findall(tests))
    return rows


def mistakes_in(page: str, told: Mapping[str, Iterable[str]]) -> list[str]:
    """What is wrong with the page: an id without a row, a row without a story or test of its id, one that is not there, and
    a story that its row does not name."""
    rows = rows_of(page)
    found = [f"{one} has no row" for one in IDS if one not in rows]
    found += [f"{one} is no scenario" for one in rows if one not in IDS]
    for one, (words, tests) in rows.items():
        found += [f"{one} says too little" for _ in [0] if len(words) < 15]
        found += [f"{one} names no test" for _ in [0] if not tests]
        found += [f"{one}: there is no {test}" for test in tests if test not in told]
        found += [f"{one}: {test} does not carry the id" for test in tests if test in told and one not in told[test]]
        stories = [name for name, ids in told.items() if name.endswith(".txt") and one in ids]
        found += [f"{one} does not name {name}" for name in stories if name not in tests]
    return found


@pytest.fixture(scope="module")
def told() -> dict[str, list[str]]:
    return all_told()


def test_every_scenario_is_told(told: dict[str, list[str]]) -> None:
    assert len(IDS) == len(set(IDS)) == 96
    assert untold(IDS, told) == []


def test_the_page_of_scenarios_is_true(told: dict[str, list[str]]) -> None:
    assert mistakes_in(PAGE.read_text("utf-8"), told) == []


def test_no_story_and_no_test_carries_the_id_of_a_scenario_that_is_none(told: dict[str, list[str]]) -> None:
    assert [name for name, ids in told.items() if not set(ids) <= set(IDS)] == []


# A check that cannot fail proves nothing.


def test_a_scenario_that_is_not_told_is_found() -> None:
    some = names_in("def test_a1_x(): ...\ndef test_c11_c13_y(): ...\nclass T:\n    def test_d4_z(self): ...")
    told = {name: ids_of(name) for name in some} | {"d1_x.txt": ["d1"]}
    assert untold(["a1", "c11", "c13", "d4", "a11", "d1"], told) == ["a11"]
    assert ids_of("test_lectures_c_x") == ["lectures_c"]
    assert ids_of("test_a_member_crashes") == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("| A1 | ", "| A5 | "),
        ("| B9 | ", "B9: "),
        ("`a2_first", "`a2_second"),
        ("`a2_first_acks.txt`", "`test_a11_the_timeout_converges_above_the_round_trip`"),
    ],
)
def test_a_page_that_is_not_true_is_found(old: str, new: str, told: dict[str, list[str]]) -> None:
    page = PAGE.read_text("utf-8")
    assert old in page
    assert mistakes_in(page.replace(old, new, 1), told)
