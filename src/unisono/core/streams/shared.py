"""What the parts of one view's streams have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from unisono.core.streams.counters import StreamCounters
from unisono.core.streams.inflow import Inflow
from unisono.core.streams.outflow import Outflow
from unisono.core.streams.progress import Progress
from unisono.core.streams.settings import StreamSettings
from unisono.core.streams.timing import Timing
from unisono.core.streams.transmitter import Transmitter
from unisono.core.types import Rank


class StreamParts(NamedTuple):
    """The streams of one member in one view, and what is known of the others. Each part takes from it what it needs."""

    settings: StreamSettings
    rank: Rank
    peers: tuple[Rank, ...]
    space: int
    """Of a datagram, after its head."""
    cast: Outflow
    sends: Sequence[Outflow]
    casts: Sequence[Inflow]
    receives: Sequence[Inflow]
    progress: Progress
    transmitter: Transmitter
    timing: Timing
    counters: StreamCounters
