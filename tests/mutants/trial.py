"""One mutant of the catalogue let loose. In a module of its own, so that worker processes find it."""

from __future__ import annotations

from time import monotonic
from typing import NamedTuple

from tests.mutants.catalogue import ROWS
from tests.mutants.ways import find


class Caught(NamedTuple):
    """What became of one mutant. It travels between processes."""

    place: int
    seeds: int | None
    seconds: float
    fault: str | None


def try_row(place: int) -> Caught:
    """Let the mutant of a row loose. Never raises."""
    row, begun = ROWS[place], monotonic()
    try:
        seeds, fault = row.way.catch(find(row.mutant)), None
    except Exception as error:
        seeds, fault = None, f"{type(error).__name__}: {error}"
    return Caught(place, seeds, monotonic() - begun, fault)
