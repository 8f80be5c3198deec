"""What a member has done so far, in numbers that a runtime may read at any time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from unisono.core.streams import StreamCounters
from unisono.core.types import MemberId
from unisono.core.wire import Refusal


class MemberCounters(NamedTuple):
    """Counts since the member was made, over all views; and the present state."""

    views: int
    casts: int
    casts_refused: int
    deliveries: int
    """To the application; placeholders of messages to others do not count."""
    suspicions: int
    pauses: int
    streams: Mapping[str, int]
    """By the names of `StreamCounters`."""
    dropped: Mapping[str, int]
    """Datagrams and packets that were discarded, by reason."""
    unfinished: int
    """Own messages that are cast and not yet delivered here."""
    held_back: int
    """Batches that the ordering holds back, or that are not yet safe."""
    window_use: Mapping[MemberId, int]
    """By peer: own packets that it has not yet acknowledged."""
    kept_bytes: int
    """Of own packets, for resending."""
    divergences: int
    """How often members were found to have delivered different messages in a view (`Diverged`)."""


class Totals:
    """The streams' counters of all views that are over."""

    __slots__ = ("_refused", "_sums")

    def __init__(self) -> None:
        self._sums = dict.fromkeys((name for name in StreamCounters.__slots__ if name != "refused"), 0)
        self._refused = dict.fromkeys(Refusal, 0)

    def add(self, counters: StreamCounters) -> None:
        """A view is over, whose streams have counted this."""
        self._sums, self._refused = self.with_current(counters)

    def with_current(self, counters: StreamCounters | None) -> tuple[dict[str, int], dict[Refusal, int]]:
        """The sums, and what was refused by reason, with those of a view that is not over."""
        if counters is None:
            return dict(self._sums), dict(self._refused)
        sums = {name: value + getattr(counters, name) for name, value in self._sums.items()}
        refused = {reason: value + counters.refused.get(reason, 0) for reason, value in self._refused.items()}
        return sums, refused


def by_layer(dropped: Mapping[str, int], layers: Mapping[str, Mapping[Any, int]]) -> dict[str, int]:
    """What the member has discarded itself, and what each layer below it has refused."""
    counts = dict(dropped)
    for layer, reasons in layers.items():
        counts |= {f"{layer}: {reason}": count for reason, count in reasons.items() if count}
    return counts
