"""The words of a report: what each property says, and how numbers are written."""

from __future__ import annotations

from typing import NamedTuple

from unisono.trace.checks.properties import PROPERTIES
from unisono.trace.sanitize import sanitize

NAME_MAX = 64


class PropertyText(NamedTuple):
    name: str
    says: str


def describe(property: str) -> PropertyText:
    known = PROPERTIES.get(property)
    if known is None:
        return PropertyText("unknown property", "This report does not know what it says.")
    return PropertyText(known.name, known.says)


def counted(number: int, noun: str, plural: str | None = None) -> str:
    return f"{grouped(number)} {noun if number == 1 else plural or noun + 's'}"


def grouped(number: float) -> str:
    """Thousands apart by a narrow space."""
    return f"{number:,.0f}".replace(",", "\u202f")


def duration(ns: float | None) -> str:
    """Three figures and a unit; a dash for what is not known."""
    if ns is None:
        return "–"
    for unit, name in ((1e9, "s"), (1e6, "ms"), (1e3, "µs")):
        if abs(ns) >= unit * 0.9995:
            return f"{figures(ns / unit)}\u202f{name}"
    return "0" if ns == 0 else f"{ns:.0f}\u202fns"


def figures(value: float) -> str:
    """Three significant figures without an exponent."""
    if abs(value) >= 100:
        return grouped(value)
    return f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}"


def cohort(protocol: str, members: int | None, several_sizes: bool) -> str:
    """How a cohort is called: the size of the group is named only where it distinguishes."""
    return f"{protocol} n={members}" if several_sizes and members is not None else protocol


def brief(name: str) -> str:
    """A name as lists show it."""
    return shortened(sanitize(name), NAME_MAX)


def shortened(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
