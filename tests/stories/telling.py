"""Tells a story: plays its commands under each of its orders, and notes what the members show. README.md has the language."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from tests.stories.by_hand import ByHand
from tests.stories.members import Members
from tests.stories.showing import by_variant, merged
from tests.stories.text import Block, Line, Story, StoryError
from unisono.core.errors import UnisonoError


class Stage(Protocol):
    """What stories are played on."""

    def begin(self) -> None:
        """A block begins."""

    def do(self, line: Line) -> list[str]:
        """Carry a command out; returns what it says."""

    def shown(self) -> list[tuple[str, list[str]]]:
        """By name: what each member has shown since the last time."""

    def close(self) -> None:
        """The story is over."""


def tell(story: Story) -> str:
    """The text of the story with what happens now."""
    kind: Callable[[str, str], Stage] = ByHand if "engines" in story.settings else Members
    with _place(story.blocks[0].commands[0]):
        stages = {variant: kind(*variant) for variant in story.variants}
    told = [(variant, _told(story, stage)) for variant, stage in stages.items()]
    return story.with_outcomes(
        [by_variant([(variant, outcomes[i]) for variant, outcomes in told]) for i in range(len(story.blocks))]
    )


def _told(story: Story, stage: Stage) -> list[list[str]]:
    outcomes = [_play(block, stage) for block in story.blocks]
    stage.close()
    return outcomes


def _play(block: Block, stage: Stage) -> list[str]:
    said: list[str] = []
    stage.begin()
    for line in block.commands:
        with _place(line):
            said += stage.do(line)
    return [*merged(stage.shown()), *said]


@contextmanager
def _place(line: Line) -> Iterator[None]:
    """Whatever goes wrong, it is told with the line."""
    wrong: Any = (UnisonoError, ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError)
    try:
        yield
    except StoryError as error:
        text = str(error)
        raise (error if text.startswith(f"{line.path.name}:") else line.error(text)) from None
    except wrong as error:
        raise line.error(f"{type(error).__name__}: {error}") from error
