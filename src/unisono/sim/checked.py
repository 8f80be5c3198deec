"""Checks of values that come from outside: one clear sentence for each way in which they can be wrong."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, replace
from pathlib import Path
from traceback import extract_tb
from typing import Any, TypeVar

from unisono.core.errors import Misuse

MadeT = TypeVar("MadeT")


def blame(error: Exception) -> str:
    """An exception inside a run, as a sentence: what, and where it was raised."""
    place = extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} in {Path(place.filename).name}:{place.lineno}: {error}"


def check_whole(name: str, value: Any, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise Misuse(f"{name} must be a whole number, not {value!r}.")
    if not low <= value <= high:
        raise Misuse(f"{name} = {value} is out of range: choose {low} to {high}.")


def check_number(name: str, value: Any, low: float, high: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise Misuse(f"{name} must be a number, not {value!r}.")
    if not low <= value <= high:
        raise Misuse(f"{name} = {value:g} is out of range: choose {low:g} to {high:g}.")


def check_share(name: str, value: Any, high: float = 1.0) -> None:
    check_number(name, value, 0.0, high)


def check_flag(name: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise Misuse(f"{name} must be true or false, not {value!r}.")


def text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise Misuse(f"{name} must be a text, not {value!r}.")
    return value


def mapping(value: Any, what: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise Misuse(f"{what} must be an object with names and values, not {type(value).__name__}.")
    return value


def items(value: Any, what: str) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise Misuse(f"{what} must be a list, not {type(value).__name__}.")
    return list(value)


def make(cls: type[MadeT], what: str, data: Any, **readers: Callable[[Any], Any]) -> MadeT:
    """A dataclass from an object of JSON. `readers` turn the values of some fields into what the class holds."""
    values = dict(mapping(data, what))
    known = [one.name for one in fields(cls)]  # type: ignore[arg-type]
    for name in values:
        if name not in known:
            raise Misuse(f"{what} has no field {name!r}: choose among {', '.join(known)}.")
    for name, read in readers.items():
        if name in values:
            values[name] = read(values[name])
    try:
        return cls(**values)
    except TypeError as error:
        raise Misuse(f"{what} does not fit: {error}.") from None


def variants(thing: MadeT, changes: Iterable[Mapping[str, Any]]) -> Iterator[MadeT]:
    """A dataclass with each of these changes, except those that change nothing or make no sense."""
    for change in changes:
        try:
            variant = replace(thing, **change)  # type: ignore[type-var]
        except Misuse:
            continue
        if variant != thing:
            yield variant
