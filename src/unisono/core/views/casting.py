"""Own messages between `cast` and the ordering: accepted, counted against the window, and cut into batches."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate

from unisono.core.config import Config
from unisono.core.ordering import MESSAGE_HEAD_BYTES, PACKET_HEAD_BYTES
from unisono.core.types import DEFAULT, CastOptions


class Casting:
    """The queue of own messages. It knows no views: what is not submitted in one waits here for the next."""

    __slots__ = (
        "_batch_messages_max",
        "_runs",
        "_window",
        "batch_bytes_max",
        "bytes",
        "bytes_max",
        "copies_bytes_max",
        "count",
        "index",
        "unfinished",
    )

    def __init__(self, config: Config) -> None:
        self._runs: list[tuple[CastOptions, list[bytes]]] = []  # accepted, not yet submitted, by runs of like options
        self._window = config.window_messages
        self._batch_messages_max = config.batch_messages_max
        self.count = 0
        """How many messages are accepted and not yet submitted."""
        self.bytes = 0
        """What is accepted and not yet submitted, as the streams will count it."""
        self.index = 0
        """The index of the next own message, across views."""
        self.unfinished = 0
        """Own messages accepted and not yet delivered here: what the window holds."""
        self.batch_bytes_max = config.batch_bytes_max
        """A batch closes before it would exceed this; within what the group allows, each member may choose."""
        self.bytes_max = 1 << 62
        """More is not accepted in one turn, during a view change, or while the ordering lets own batches wait to be cast; all
        that may then leave at once. An empty queue takes a message of any size."""
        self.copies_bytes_max = 1 << 62
        """What the copies of one message may take, one for each member that it is addressed to."""

    @property
    def submitted(self) -> int:
        """How many own messages have left the queue."""
        return self.index - self.count

    @property
    def room_messages(self) -> int:
        """How many messages the window takes now."""
        return self._window - self.unfinished

    def has_room(self, unsent_bytes: int) -> bool:
        """Whether the window takes another message. `unsent_bytes`: what own batches weigh that the ordering lets wait."""
        return self.unfinished < self._window and self.bytes + unsent_bytes < self.bytes_max

    def add(self, payload: bytes, options: CastOptions, copies: int = 1) -> int:
        """Accept a message and return its index. Each of its addressees gets a copy; that to all counts as one."""
        self.bytes += copies * (len(payload) + MESSAGE_HEAD_BYTES)
        runs = self._runs
        if runs and runs[-1][0] == options and options.to != ():  # a marker is a batch of its own
            runs[-1][1].append(payload)
        else:
            runs.append((options, [payload]))
            self.bytes += copies * PACKET_HEAD_BYTES
        self.count += 1
        self.unfinished += 1
        self.index += 1
        return self.index - 1

    def add_many(self, payloads: list[bytes]) -> None:
        """Accept messages without options."""
        count = len(payloads)
        if self._runs and self._runs[-1][0] is DEFAULT:
            self._runs[-1][1].extend(payloads)
        else:
            self._runs.append((DEFAULT, payloads))
            self.bytes += PACKET_HEAD_BYTES
        self.bytes += sum(map(len, payloads)) + MESSAGE_HEAD_BYTES * count
        self.count += count
        self.unfinished += count
        self.index += count

    def take(self) -> list[tuple[int, list[bytes], CastOptions]]:
        """Empty the queue: each piece that becomes one batch, with the index of its first message."""
        pieces: list[tuple[int, list[bytes], CastOptions]] = []
        runs, self._runs = self._runs, []
        first = self.index - self.count
        self.count = self.bytes = 0
        for options, payloads in runs:
            for some in (payloads,) if len(payloads) == 1 else self._cut(payloads):
                pieces.append((first, some, options))
                first += len(some)
        return pieces

    def _cut(self, payloads: list[bytes]) -> list[list[bytes]]:
        """Cut one run of messages where the limits of a batch are."""
        messages_max, bytes_max = self._batch_messages_max, self.batch_bytes_max
        if len(payloads) <= messages_max and sum(map(len, payloads)) <= bytes_max:
            return [payloads]
        ends = list(accumulate(map(len, payloads)))
        pieces: list[list[bytes]] = []
        start = size = 0
        while start < len(payloads):  # one message alone may exceed the limit of bytes
            stop = min(max(bisect_right(ends, size + bytes_max), start + 1), start + messages_max)
            pieces.append(payloads[start:stop])
            start, size = stop, ends[stop - 1]
        return pieces
