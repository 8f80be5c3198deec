"""What must be recorded so that a property can be judged at all: without it, that nothing is broken says nothing.

The order of another system is a list of properties that its author chose (`promises.LISTED`). One of them of which nothing is
recorded is **not judged**, and keeps its run from passing. The orders of this program owe what applications are shown (P25–P29)
whether or not it was recorded, so nothing is asked of them here.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from unisono.trace.promises import UNIFORM, properties_listed
from unisono.trace.schema import (
    CAST,
    COUNTERS,
    DECIDE,
    DELIVER,
    DROP,
    HEAL,
    PLACE,
    RECEIPT,
    RECEIVE,
    SHOW,
    SNAPSHOT_IN,
    SNAPSHOT_OUT,
    TOTAL,
    VIEW,
    VOTE,
    Event,
)

MESSAGES = frozenset({CAST, DELIVER, PLACE})


class Evidence(NamedTuple):
    """Rows by which some properties can be judged: of one of these kinds, and with what else is named."""

    properties: frozenset[str]
    kinds: frozenset[str]
    attribute: str | None = None
    """They have this attribute, or one that ends so if it begins with ``_`` …"""
    value: str | None = None
    """… with this value."""
    service: str | None = None

    def shows(self, event: Event) -> bool:
        """Whether a row of one of these kinds is such a row."""
        if self.service is not None and event.service != self.service:
            return False
        if self.attribute is None:
            return True
        attributes = event.attributes or {}
        if self.attribute.startswith("_"):
            return any(name.endswith(self.attribute) for name in attributes)
        found = attributes.get(self.attribute)
        return found is not None and self.value in (None, found)


def _of(properties: str, *kinds: str, attribute: str | None = None, value: str | None = None) -> Evidence:
    return Evidence(frozenset(properties.split()), frozenset(kinds), attribute, value)


EVIDENCE: tuple[Evidence, ...] = (
    Evidence(UNIFORM, MESSAGES, service=TOTAL),
    _of("P17", CAST, attribute="safe", value="true"),
    _of("P18", VOTE, DECIDE),
    _of("P19", SNAPSHOT_OUT, SNAPSHOT_IN),
    _of("P20 P27 P29", VIEW, attribute="primary"),
    _of("P21", RECEIVE, DROP),
    _of("P21", COUNTERS, attribute="injected"),
    _of("P22", HEAL, attribute="bound_ns"),
    _of("P23", COUNTERS, attribute="_limit"),
    _of("P25", SHOW),
    _of("P26 P28", RECEIPT),
)
WITH_EVIDENCE = frozenset[str]().union(*(one.properties for one in EVIDENCE))


def not_judged(order: str, recorded: Collection[str], has_messages: bool) -> str | None:
    """Why a view of this order cannot pass: properties in its list of which nothing is recorded.

    Where no message was cast or delivered, the order of messages (P9, P10) needs no evidence.
    """
    asked = WITH_EVIDENCE if has_messages else WITH_EVIDENCE - UNIFORM
    missing = sorted(asked.intersection(properties_listed(order) or ()) - set(recorded))
    return f"{', '.join(missing)} not judged: nothing is recorded by which it could be" if missing else None
