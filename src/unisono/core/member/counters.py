"""What a member has done so far, in numbers that a runtime may read at any time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from unisono.core.streams.counters import StreamCounters
from unisono.core.types import MemberId
from unisono.core.wire.envelope import Refusal

if TYPE_CHECKING:
    from unisono.core.member.member import Member


class Tally(NamedTuple):
    """Counts since the member was made, over all views; and how things stand now."""

    views: int
    casts: int
    casts_refused: int
    deliveries: int
    """To the application: placeholders of what is addressed to others are none."""
    suspicions: int
    pauses: int
    streams: Mapping[str, int]
    """By the names of `StreamCounters`."""
    dropped: Mapping[str, int]
    """Datagrams and packets that were not used, by reason."""
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
        for name in self._sums:
            self._sums[name] += getattr(counters, name)
        for reason, count in counters.refused.items():
            self._refused[reason] += count

    def with_current(self, counters: StreamCounters | None) -> tuple[dict[str, int], dict[Refusal, int]]:
        """The sums, and what was refused by reason, with a view that is not over."""
        total = Totals()
        total._sums, total._refused = dict(self._sums), dict(self._refused)
        if counters is not None:
            total.add(counters)
        return total._sums, total._refused


def tally(member: Member) -> Tally:
    """Costs something only when it is asked for: what is counted all the time is counted by turn or by batch."""
    seat, streams = member._seat, member._streams
    sums, refused = member._totals.with_current(None if streams is None else streams.counters)
    dropped = dict(member.dropped)
    layers: dict[str, Mapping[Any, int]] = {
        "frame": member._frames.refused,
        "stream": refused,
        "control": member._control.refused,
        "membership": member._membership.refused,
        "comparison": member._comparer.refused,
    }
    for layer, reasons in layers.items():
        dropped |= {f"{layer}: {reason}": count for reason, count in reasons.items() if count}
    use = {} if streams is None else streams.window_use()
    return Tally(
        member._views,
        0 if seat is None else seat.accepted,
        member._watch.refused,
        0 if seat is None else seat.given,
        member._suspicions,
        member._detector.pauses,
        sums,
        dropped,
        0 if seat is None else seat.unfinished,
        0 if seat is None else len(seat.waits()) + len(seat.gated()),
        {member._members[rank]: count for rank, count in use.items()},
        0 if streams is None else streams.kept_bytes,
        member._comparer.divergences,
    )
