"""Parcels: a report or a cut with its packets may be large, a control message is not, so large things travel in pieces.

The first piece is pushed. The receiver, which then knows the whole size, pulls what follows, a few pieces at a time; a piece
that is lost is pulled again. The sender keeps the bytes and no state of the transfer.
"""

from __future__ import annotations

from collections.abc import Iterator

from unisono.core.control import Piece, Pull
from unisono.core.types import ViewId


class Parcel:
    """A parcel on its way in. Memory is taken for what has arrived, never for what a header promises."""

    __slots__ = ("_last", "_pieces", "_pulled", "ballot", "gap", "topic", "total")

    def __init__(self, ballot: ViewId, topic: int, total: int) -> None:
        self.ballot = ballot
        self.topic = topic
        self.total = total
        self.gap = 0  # everything below it is here
        self._pieces: dict[int, bytes] = {}
        self._pulled = 0  # everything below it was asked for
        self._last = 0  # the end of the furthest piece: if it is here, what is missing before it is lost

    def add(self, piece: Piece) -> bool:
        """Take a piece in; False if it is nothing new or does not fit."""
        data = piece.data
        if piece.total != self.total or piece.offset + len(data) > self.total or piece.offset in self._pieces:
            return False
        if not data and self.total:
            return False
        self._pieces[piece.offset] = data
        self._last = max(self._last, piece.offset + len(data))
        while (known := self._pieces.get(self.gap)) is not None and known:
            self.gap += len(known)
        return True

    @property
    def is_whole(self) -> bool:
        return self.gap >= self.total and bool(self._pieces)

    def bytes(self) -> bytes:
        parts, at = [], 0
        while at < self.total:
            parts.append(self._pieces[at])
            at += len(self._pieces[at])
        return b"".join(parts)

    def pull(self, reach: int, again: bool = False) -> Pull | None:
        """The next request: when all that was asked for is here, or `again` after a while; None: wait."""
        if self.is_whole or (self.gap < self._pulled and self._last < min(self._pulled, self.total) and not again):
            return None
        self._pulled = self.gap + reach
        return Pull(self.ballot, self.topic, self.gap)


def pieces(ballot: ViewId, topic: int, data: bytes, offset: int, size: int, count: int) -> Iterator[Piece]:
    """So many pieces of a parcel from an offset on; an empty parcel is one empty piece."""
    total = len(data)
    if offset == total == 0:
        yield Piece(ballot, topic, 0, 0, b"")
    for at in range(offset, min(total, offset + size * count), size):
        yield Piece(ballot, topic, at, total, data[at : at + size])
