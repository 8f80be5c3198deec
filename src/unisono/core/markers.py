"""Markers: places in the order that members compare at. Each is cast as a message to no recipient."""

from __future__ import annotations

from typing import NamedTuple

from unisono.core.digest import digest_of
from unisono.core.types import Rank, Service


class Marker(NamedTuple):
    """A place in the order that is shown to no application: where members compare what they have delivered so far."""

    origin: Rank
    index: int  # type: ignore[assignment]  # hides tuple.index, which no code calls on a marker
    service: Service
    asks: bool
    """Its caster compares; otherwise it answers another member's marker."""


MARKER_PAYLOADS = {True: b"unisono: compare here", False: b"unisono: and here"}
"""What a marker holds, by whether it asks. It is for no recipient: all members see its digest, and none its payload."""
MARKERS = {digest_of((payload,)): asks for asks, payload in MARKER_PAYLOADS.items()}
"""The digests of markers, and whether each asks."""
