"""The shrinker: from a failing scenario to the smallest one that still fails in the same way.

Greedy: try the changes that the scenario names, most radical first; keep a change if it still fails, and go on behind it; begin
again until none helps. What counts as a failure is the caller's; a failure is the same if it breaks the same property.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol, TypeVar

RUNS_MAX = 400


class Shrinkable(Protocol):
    """A scenario that knows simpler ones."""

    def smaller(self: ScenarioT) -> Iterator[ScenarioT]: ...


ScenarioT = TypeVar("ScenarioT", bound=Shrinkable)


def shrink(
    scenario: ScenarioT, sentence: str, failure_of: Callable[[ScenarioT], str | None], runs_max: int = RUNS_MAX
) -> tuple[ScenarioT, str]:
    """Return the smallest failing scenario found within `runs_max` runs, and what fails in it."""
    runs = start = 0
    while True:
        for place, smaller in enumerate(scenario.smaller()):
            if place < start:
                continue
            if runs == runs_max:
                return scenario, sentence
            runs += 1
            found = failure_of(smaller)
            if found is not None and _broken(found) == _broken(sentence):
                scenario, sentence, start = smaller, found, place
                break
        else:
            if not start:
                return scenario, sentence
            start = 0


def without_parts(some: tuple[Any, ...], least: int = 1) -> Iterator[tuple[Any, ...]]:
    """A list without all of it, without each half, each quarter, and so on, down to parts of this size."""
    size = len(some)
    while size >= max(1, least):
        for start in range(0, len(some), size):
            yield some[:start] + some[start + size :]
        size = 0 if size == 1 else (size + 1) // 2


def _broken(sentence: str) -> str:
    """The property, or the exception and its place."""
    return sentence.partition(":")[0]
