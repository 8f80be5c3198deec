"""What a newcomer reads first is short, decisions say whether they still hold, and pages name files that are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text("utf-8")
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
DECISIONS = sorted((ROOT / "docs" / "decisions").glob("0*.md"))

LINES_MAX = 1_256
"""Of the whole reading list, the README's own lines included: just above what it has. An hour is about 1,100, so lower it as
files become shorter."""
COLUMNS_MAX = 100


def reading_list(readme: str) -> list[str]:
    """What the README names in `Where to read on`, in order, up to what comes after it."""
    section = readme.partition("\n## Where to read on\n")[2].partition("\n## ")[0]
    links = re.findall(r"\]\(([^)#]+\.(?:py|md|txt))\)", section.partition("\nThen")[0])
    return ["README.md", *dict.fromkeys(links)]


def lines_of(paths: list[str]) -> dict[str, int]:
    return {path: (ROOT / path).read_text("utf-8").count("\n") for path in paths}


def too_long(lines: dict[str, int]) -> str | None:
    total = sum(lines.values())
    longest = ", ".join(f"{path} {count}" for path, count in sorted(lines.items(), key=lambda item: -item[1])[:3])
    return f"{total} lines, over {LINES_MAX}: {longest}" if total > LINES_MAX else None


def test_the_heart_can_be_read_in_about_an_hour() -> None:
    assert not too_long(lines_of(reading_list(README)))


def test_the_reading_list_holds_the_heart() -> None:
    kinds = ("architecture", "types", "ordering", "fifo", "sequencer", "engine", "stories/", "by_hand")
    named = reading_list(README)[1:]
    assert len(named) == len(kinds)
    assert all(kind in path for kind, path in zip(kinds, named, strict=True))


def test_a_reading_list_that_grows_is_found() -> None:
    longer = README.replace(
        "\nThen", "10. [one more](src/unisono/runtime/group.py), [and](src/unisono/sim/loop.py)\n\nThen"
    )
    assert too_long(lines_of(reading_list(longer)))


# Decisions.

STATES = "accepted, amended by|accepted|superseded in part by|superseded by"
STATUS = re.compile(rf"\A# \d{{4}} .+\n\nStatus: ({STATES})(.*)\. Date: (\d{{4}}-\d\d-\d\d)\.\n")


def mistake_in(decision: str) -> str | None:
    """What is missing at the head of a decision: a status, a date, and what replaces it."""
    found = STATUS.match(decision)
    if found is None:
        return "it has no status and date below its title"
    names_another = re.search(r"\[[^\]]+\]\([^)]+\)", found[2]) is not None
    if (found[1] != "accepted") != names_another:
        return "it does not say what replaces it, or is accepted and names something"
    return None


@pytest.mark.parametrize("path", DECISIONS, ids=lambda path: path.stem)
def test_a_decision_has_a_status_and_a_date(path: Path) -> None:
    assert mistake_in(path.read_text("utf-8")) is None


@pytest.mark.parametrize(
    "head",
    [
        "## Context",
        "Status: accepted.",
        "Date: 2026-11-15.",
        "Status: superseded by. Date: 2026-11-15.",
        "Status: accepted. Date: lately.",
        "Status: old. Date: 2026-11-15.",
    ],
)
def test_a_decision_without_status_or_date_is_found(head: str) -> None:
    assert mistake_in(f"# 0001 Title\n\n{head}\n\n## Context\n")


def test_the_list_of_decisions_is_complete() -> None:
    listed = re.findall(r"^\| \[\d{4}\]\((.+?)\)", (ROOT / "docs/decisions/README.md").read_text("utf-8"), re.MULTILINE)
    assert listed == [path.name for path in DECISIONS]


# Names of files, and the width of prose.


FOLDERS = ("src", "tests", "examples", "benchmarks")
MODULES = [f"/{path.relative_to(ROOT)}" for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]


def missing_files(page: str) -> list[str]:
    """Modules that a page names between backquotes, alone or with the end of their path, and that are nowhere."""
    named = re.findall(r"`((?:\w+/)*\w+\.py)(?:[:#][^`]*)?`", page)
    return [name for name in named if not any(path.endswith(f"/{name}") for path in MODULES)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_name_files_that_are_there(page: Path) -> None:
    assert not missing_files(page.read_text("utf-8"))


def test_a_file_that_has_moved_is_found() -> None:
    lost = ["core/membership_ring.py", "membership_ring.py", "core/codec.py"]
    assert missing_files("`" + "` `".join([*lost, "core/types.py", "codec.py", "dev.py"]) + "`") == [*lost, "dev.py"]


def wide_lines(page: str) -> list[str]:
    """Lines of prose that are too wide: not of code, tables or headings, and no link alone."""
    prose = re.sub(r"^```.*?^```$", "", page, flags=re.MULTILINE | re.DOTALL)
    return [
        line
        for line in prose.splitlines()
        if len(line) > COLUMNS_MAX and not line.startswith(("|", "#", "![")) and " " in line.strip()[:COLUMNS_MAX]
    ]


WRITTEN = [page for page in PAGES if page.parent.name != "results" or page.name == "README.md"]  # by people


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: str(page.relative_to(ROOT)))
def test_prose_is_not_too_wide(page: Path) -> None:
    assert not wide_lines(page.read_text("utf-8"))


def test_a_wide_line_is_found() -> None:
    wide = "word " * 30
    assert wide_lines(f"{wide}\n| {wide} |\n```\n{wide}\n```\n") == [wide.rstrip("\n")]
