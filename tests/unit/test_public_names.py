"""Whatever a program gets to see of its group, it can name: `unisono` exports the types of it."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any, get_args, get_type_hints

import pytest

import unisono

EXPORTED = {id(getattr(unisono, name)) for name in unisono.__all__}


def types_in(hint: Any) -> Iterator[type]:
    """The classes of unisono that an annotation is made of."""
    if isinstance(hint, type) and hint.__module__.startswith("unisono."):
        yield hint
    for inner in get_args(hint):
        yield from types_in(inner)


def shown_by(event: type) -> Iterator[type]:
    """The classes of an event's fields and properties, and of theirs in turn."""
    hints = dict(get_type_hints(event))
    for name, value in inspect.getmembers(event, lambda value: isinstance(value, property)):
        hints[name] = get_type_hints(value.fget)["return"]
    for hint in hints.values():
        for found in types_in(hint):
            yield found
            yield from shown_by(found)


def test_names_are_listed_once() -> None:
    assert len(set(unisono.__all__)) == len(unisono.__all__)


@pytest.mark.parametrize("event", get_args(unisono.Event), ids=lambda event: event.__name__)
def test_an_event_and_all_that_is_in_it_is_public(event: type) -> None:
    hidden = {one.__qualname__ for one in (event, *shown_by(event)) if id(one) not in EXPORTED}
    assert not hidden


def test_why_a_member_is_gone_can_be_asked_by_its_cause() -> None:
    gone, other = unisono.MemberId("a"), unisono.MemberId("b")
    departure = unisono.Departure(gone, unisono.Cause.LEFT, other)
    assert departure.cause is unisono.Cause.LEFT
    assert str(departure) == "left"
