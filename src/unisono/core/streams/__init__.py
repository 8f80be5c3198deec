"""Reliable streams: what one member casts and sends reaches the others once and in order.

The room's heart is `Streams`; `unisono.core.streams.streams` says what its parts are.
"""

from unisono.core.streams.counters import StreamCounters as StreamCounters
from unisono.core.streams.outbound import Slowness as Slowness
from unisono.core.streams.settings import StreamSettings as StreamSettings
from unisono.core.streams.streams import Streams as Streams
