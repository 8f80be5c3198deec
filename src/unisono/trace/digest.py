"""One hash for a whole trace (P24: same seed, same code, same digest).

Rows are hashed life by life in their local order, and the lives in order of their names, so the digest does not depend on how the
rows of different members were interleaved or stored, nor on Python's hash seed. The name of the run is left out, because
the same run done twice has two names.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from hashlib import blake2b
from typing import Any

from unisono.trace.schema import NAMES, Event, values_of

_RUN = NAMES.index("run")
_encode = json.JSONEncoder(separators=(",", ":"), sort_keys=True, check_circular=False).encode


class TraceDigest:
    """Takes events as they come; `hexdigest` may be asked at any time."""

    def __init__(self) -> None:
        self._lives: dict[tuple[str, str, int], Any] = {}

    def update(self, event: Event) -> None:
        life = (event.group, event.member, event.incarnation)
        state = self._lives.get(life)
        if state is None:
            state = self._lives[life] = blake2b(digest_size=16)
        values = values_of(event)
        state.update(_encode(values[:_RUN] + values[_RUN + 1 :]).encode("ascii") + b"\n")

    def write(self, events: Iterable[Event]) -> None:
        """So that a digest can be taken while a run is recorded, as one more sink."""
        for event in events:
            self.update(event)

    def close(self) -> None:
        """There is nothing to close."""

    def hexdigest(self) -> str:
        whole = blake2b(digest_size=16)
        for life in sorted(self._lives):
            whole.update(_encode(life).encode("ascii") + self._lives[life].digest())
        return whole.hexdigest()


def digest_of_trace(events: Iterable[Event]) -> str:
    """The digest of these events; each member's must be in its local order."""
    digest = TraceDigest()
    digest.write(events)
    return digest.hexdigest()
