"""What a member has done so far, in numbers that a runtime may read at any time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from unisono.core.member.comparison import Comparer
from unisono.core.member.suspicions import Suspicions
from unisono.core.member.watchdog import Watchdog
from unisono.core.streams import StreamCounters, Streams
from unisono.core.types import MemberId, Rank
from unisono.core.views import ViewEngine
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


class Refuses(Protocol):
    """A layer that counts what it has refused."""

    @property
    def refused(self) -> Mapping[Any, int]: ...


class Counting:
    """Reads the counters of a member off its parts. Free until it is asked."""

    def __init__(
        self,
        engine: ViewEngine,
        suspicions: Suspicions,
        comparer: Comparer,
        watchdog: Watchdog,
        layers: Mapping[str, Refuses],
        dropped: Mapping[str, int],
    ) -> None:
        """`dropped`: what the member has discarded itself; `layers`: what counts the rest, by name."""
        self._engine = engine
        self._suspicions = suspicions
        self._comparer = comparer
        self._watchdog = watchdog
        self._layers = layers
        self._dropped = dropped
        self._streams = StreamTotals()
        self._views = 0

    def enter(self, streams: Streams) -> None:
        """A view was installed, with these streams."""
        self._streams.enter(streams)
        self._views += 1

    def read(self) -> MemberCounters:
        """What happened so far, in numbers."""
        engine, streams = self._engine, self._streams
        sums, of_streams = streams.sums()
        refused: dict[str, Mapping[Any, int]] = {name: layer.refused for name, layer in self._layers.items()}
        return MemberCounters(
            views=self._views,
            casts=engine.casting.index,
            casts_refused=self._watchdog.refused,
            deliveries=engine.showing.given,
            suspicions=self._suspicions.count,
            pauses=self._suspicions.pauses,
            streams=sums,
            dropped=by_layer(self._dropped, refused | {"stream": of_streams}),
            unfinished=engine.casting.unfinished,
            held_back=len(engine.waits()) + len(engine.showing.gate.waiting),
            window_use={engine.view.members[rank]: count for rank, count in streams.window_use().items()},
            kept_bytes=streams.kept_bytes,
            divergences=self._comparer.divergences,
        )


class StreamTotals:
    """The streams' counters, summed over all views."""

    def __init__(self) -> None:
        self._current: Streams | None = None
        # Of all views that are over.
        self._sums = dict.fromkeys((name for name in StreamCounters.__slots__ if name != "refused"), 0)
        self._refused = dict.fromkeys(Refusal, 0)

    def enter(self, streams: Streams) -> None:
        """A view was installed, with these streams: those of the view before count nothing more."""
        self._sums, self._refused = self.sums()
        self._current = streams

    def sums(self) -> tuple[dict[str, int], dict[Refusal, int]]:
        """The sums, and what was refused by reason, with those of the view that is not over."""
        if self._current is None:
            return dict(self._sums), dict(self._refused)
        counters = self._current.counters
        sums = {name: value + getattr(counters, name) for name, value in self._sums.items()}
        refused = {reason: value + counters.refused.get(reason, 0) for reason, value in self._refused.items()}
        return sums, refused

    def window_use(self) -> dict[Rank, int]:
        """By peer in the view: own packets that it has not yet acknowledged."""
        return {} if self._current is None else self._current.window_use()

    @property
    def kept_bytes(self) -> int:
        """Of own packets in the view, for resending."""
        return 0 if self._current is None else self._current.kept_bytes


def by_layer(dropped: Mapping[str, int], layers: Mapping[str, Mapping[Any, int]]) -> dict[str, int]:
    """What the member has discarded itself, and what each layer below it has refused."""
    counts = dict(dropped)
    for layer, reasons in layers.items():
        counts |= {f"{layer}: {reason}": count for reason, count in reasons.items() if count}
    return counts
