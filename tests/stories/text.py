"""Stories as text files: prose, commands, and below each block of commands what every member showed then.

A paragraph that holds a line ``----`` is a block: commands above that line, what they led to below. Every other paragraph is
prose and begins with a capital letter. The first line is ``# A1, A2: title``, with the scenarios of docs/scenarios.md that it
tells, or ``# title`` alone.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import unified_diff
from pathlib import Path

FOLDER = Path(__file__).parent
RULE = "----"
TITLE = re.compile(r"# (?:((?:[A-G]\d+|lectures \([a-d]\))(?:, (?:[A-G]\d+|lectures \([a-d]\)))*): )?([A-Za-z].+)")


class StoryError(Exception):
    """What is wrong with a story, with its file and line."""


@dataclass(frozen=True)
class Line:
    """One command."""

    path: Path
    number: int
    text: str

    @property
    def words(self) -> list[str]:
        return self.text.split()

    def error(self, message: str) -> StoryError:
        return StoryError(f"{self.path.name}:{self.number}: {self.text}\n  {message}")


@dataclass(frozen=True)
class Block:
    commands: tuple[Line, ...]
    begin: int
    """Where its outcome begins, as an index of the file's lines …"""
    end: int
    """… and ends."""


@dataclass(frozen=True)
class Story:
    path: Path
    lines: tuple[str, ...]
    title: str
    ids: tuple[str, ...]
    """The scenarios that it tells, as docs/scenarios.md writes them."""
    blocks: tuple[Block, ...]

    @property
    def text(self) -> str:
        return "\n".join(self.lines) + "\n"

    @property
    def settings(self) -> dict[str, list[str]]:
        """The words of each command of its first block, by their first word."""
        return {line.words[0]: line.words[1:] for line in self.blocks[0].commands}

    @property
    def variants(self) -> list[tuple[str, str]]:
        """Under which orders, and with which ways of collecting reports, it is told."""
        given = self.settings
        return [(order, way) for way in given.get("collect", [""]) for order in given.get("orders", ["sequencer"])]

    def with_outcomes(self, outcomes: Sequence[Sequence[str]]) -> str:
        """The whole text, with these outcomes in the place of those in the file."""
        lines = list(self.lines)
        for block, outcome in reversed(list(zip(self.blocks, outcomes, strict=True))):
            lines[block.begin : block.end] = outcome
        return "\n".join(lines) + "\n"

    def differences(self, told: str) -> str:
        """How another telling differs from the file, as a unified diff; empty if it does not."""
        before, now = (text.splitlines(keepends=True) for text in (self.text, told))
        return "".join(unified_diff(before, now, self.path.name, f"{self.path.name} as told now"))


def read_story(path: Path) -> Story:
    lines = tuple(path.read_text("utf-8").splitlines())
    title = TITLE.fullmatch(lines[0]) if lines else None
    if title is None:
        raise StoryError(f"{path.name}:1: the first line is no title, such as `# A1: a tail is lost`.")
    blocks, at = [], 1
    while at < len(lines):
        if not lines[at].strip():
            at += 1
            continue
        end = next((i for i in range(at, len(lines)) if not lines[i].strip()), len(lines))
        paragraph = lines[at:end]
        if RULE in paragraph:
            rule = at + paragraph.index(RULE)
            commands = tuple(Line(path, i + 1, lines[i]) for i in range(at, rule))
            blocks.append(Block(commands, rule + 1, end))
        elif not paragraph[0][0].isupper():
            raise StoryError(
                f"{path.name}:{at + 1}: neither prose, which begins with a capital, nor a block with {RULE}."
            )
        at = end
    if not blocks or blocks[-1].commands[-1].text != "judge":
        raise StoryError(f"{path.name}:{len(lines)}: the last command of a story is `judge`.")
    return Story(path, lines, title[2], tuple(title[1].split(", ")) if title[1] else (), tuple(blocks))


def takes_seconds(name: str) -> bool:
    """Whether a story is too long for the fast tests: those of load, some with large states, and those of ten variants."""
    return (
        name.startswith(("e1_", "e2_", "e4_", "e5_", "e6_", "a9_", "c22_", "crash_under", "d6_donor", "joins_with_a"))
        or len(read_story(FOLDER / f"{name}.txt").variants) >= 10
    )


def all_stories() -> list[Path]:
    return sorted(FOLDER.glob("*.txt"))
