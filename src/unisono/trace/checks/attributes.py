"""Reading the attributes of a row: they are strings, and may hold anything. What they mean is in docs/trace-conventions.md."""

from __future__ import annotations

import re

from unisono.trace.schema import Event

_WHOLE = re.compile(r"-?[0-9]{1,18}")
_DECIMAL = re.compile(r"-?[0-9]{1,18}(\.[0-9]{1,18})?")


def value_of(event: Event, name: str) -> str | None:
    return None if event.attributes is None else event.attributes.get(name)


def is_true(event: Event, name: str) -> bool:
    return value_of(event, name) == "true"


def whole(text: str | None) -> int | None:
    """A whole number of at most 18 digits; None if it is not written as one."""
    return int(text) if text is not None and _WHOLE.fullmatch(text) else None


def decimal(text: str | None) -> float | None:
    """A number with or without a fraction; None if it is not written as one."""
    return float(text) if text is not None and _DECIMAL.fullmatch(text) else None
