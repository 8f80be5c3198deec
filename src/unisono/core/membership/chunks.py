"""A report, or a cut with its packets, may be larger than a control message, so it travels in chunks.

The first chunk is pushed. The receiver, which then knows the whole size, pulls what follows, a few chunks at a time; a chunk
that is lost is pulled again. The sender keeps the bytes and no state of the transfer.

**One pull at a time.** A pull calls many chunks up, so a chunk must not call up a pull unless there is a reason for a new one,
or each of the many that are on their way would call up as many again. There are four reasons:

1. All that was asked for is here.
2. The end of what was asked for is here: what is missing before it is lost, or overtaken. A pull brings its end once. But a network
   may repeat it, so something new must have come since the last pull, too: pulls of this kind are never more than chunks.
3. The first chunk comes again: the sender waits, and has repeated it. It is pushed at the sender's pace, and no pull brings
   it once it is here.
4. `again`: the receiver has waited.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from unisono.core.types import ViewId
from unisono.core.wire.control import Chunk, Pull


@dataclass(slots=True)
class IncomingChunks:
    """Chunks on their way in. Memory is taken for what has arrived, never for what a header promises."""

    ballot: ViewId
    topic: int
    total: int
    gap: int = 0  # everything below it is here
    _chunks: dict[int, bytes] = field(default_factory=dict)
    _kept_bytes: int = 0  # never more than the whole, however chunks overlap
    _pulled: int = 0  # everything below it was asked for
    # Since the last request:
    _is_ended: bool = False  # the end of what was asked for has come
    _is_news: bool = False  # something new has come
    _is_urged: bool = False  # the first chunk has come again

    def add(self, chunk: Chunk) -> bool:
        """Take a chunk in; False if it is nothing new or does not fit."""
        data = chunk.data
        end = chunk.offset + len(data)
        if chunk.total != self.total or end > self.total or (not data and self.total):
            return False
        self._is_ended |= end >= min(self._pulled, self.total)
        if chunk.offset in self._chunks:
            self._is_urged |= chunk.offset == 0
            return False
        if self._kept_bytes + len(data) > self.total:
            return False
        self._kept_bytes += len(data)
        self._chunks[chunk.offset] = data
        self._is_news = True
        while (known := self._chunks.get(self.gap)) is not None and known:
            self.gap += len(known)
        return True

    @property
    def is_whole(self) -> bool:
        return self.gap >= self.total and bool(self._chunks)

    def bytes(self) -> bytes:
        parts, at = [], 0
        while at < self.total:
            parts.append(self._chunks[at])
            at += len(self._chunks[at])
        return b"".join(parts)

    def pull(self, reach: int, again: bool = False) -> Pull | None:
        """The next request, if there is a reason for one; None: wait."""
        is_lost = self._is_ended and self._is_news
        if self.is_whole or not (self.gap >= self._pulled or is_lost or self._is_urged or again):
            return None
        self._is_ended = self._is_news = self._is_urged = False
        self._pulled = self.gap + reach
        return Pull(self.ballot, self.topic, self.gap)


def chunks_of(ballot: ViewId, topic: int, data: bytes, offset: int, size: int, count: int) -> Iterator[Chunk]:
    """At most `count` chunks of `size` bytes, from an offset on; empty data is one empty chunk."""
    total = len(data)
    if offset == total == 0:
        yield Chunk(ballot, topic, 0, 0, b"")
    for at in range(offset, min(total, offset + size * count), size):
        yield Chunk(ballot, topic, at, total, data[at : at + size])
