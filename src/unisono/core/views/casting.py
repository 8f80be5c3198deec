"""Own messages between `cast` and the ordering: accepted, counted against the window, and cut into batches."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate

from unisono.core.config import Config
from unisono.core.errors import Misuse
from unisono.core.markers import MARKER_PAYLOADS
from unisono.core.options import DEFAULT, CastOptions
from unisono.core.ordering import AnyOrdering
from unisono.core.types import Batch, Rank, Service, View
from unisono.core.weight import MESSAGE_HEAD_BYTES, PACKET_HEAD_BYTES


class Casting:
    """The queue of own messages. It outlives views: what is not submitted in one waits here for the next."""

    def __init__(self, config: Config) -> None:
        self._runs: list[tuple[CastOptions, list[bytes]]] = []  # accepted, not yet submitted, by runs of like options
        self._window = config.window_messages
        self._batch_messages_max = config.batch_messages_max
        self._payload_bytes_max = config.payload_bytes_max
        self._safe = config.safe
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

    def accept(self, payload: bytes, options: CastOptions, view: View, order: type[AnyOrdering]) -> int:
        """Accept a message and return its index. Raises `Misuse` if it cannot be cast in this view, under this order."""
        size = len(payload)
        if size > self._payload_bytes_max:
            raise Misuse(
                f"a payload of {size} bytes is over the limit of {self._payload_bytes_max}: "
                "cut it, or raise payload_bytes_max."
            )
        if options is DEFAULT:
            return self._add(payload, options)
        _check(options, view, order)
        copies = len(options.to or (0,))  # each addressee gets its own
        if copies * (size + PACKET_HEAD_BYTES) > self.copies_bytes_max:
            raise Misuse(
                f"a message of {size} bytes to {copies} members takes more than the "
                f"{self.copies_bytes_max} bytes that can be kept: name fewer at a time, leave `to` out, "
                "or raise kept_bytes_max."
            )
        return self._add(payload, options, copies)

    def accept_marker(self, asks: bool, service: Service) -> int:
        """Accept a marker: a message to no recipient."""
        return self._add(MARKER_PAYLOADS[asks], CastOptions((), service))

    def accept_many(self, payloads: list[bytes]) -> None:
        """Accept messages without options that are known to have room (`room_messages`) and to be small enough."""
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

    def _add(self, payload: bytes, options: CastOptions, copies: int = 1) -> int:
        """Each addressee gets a copy; that to all counts as one."""
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

    def take(self, view: View, rank: Rank, order: type[AnyOrdering]) -> list[Batch]:
        """Empty the queue into batches of this view: one where options and limits allow it."""
        batches: list[Batch] = []
        runs, self._runs = self._runs, []
        first = self.index - self.count
        self.count = self.bytes = 0
        for options, payloads in runs:
            # What was cast under another order may ask for a service that this one does not carry.
            service = options.service if options.service in order.services else order.service
            to = None
            if options.to is not None:  # an addressee that left while the cast waited has no rank in this view
                to = tuple(rank for rank, member in enumerate(view.members) if member in options.to)
            safe = self._safe if options.safe is None else options.safe
            for some in (payloads,) if len(payloads) == 1 else self._cut(payloads):
                batches.append(Batch(rank, first, some, service, to, safe=safe))
                first += len(some)
        return batches

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


def _check(options: CastOptions, view: View, order: type[AnyOrdering]) -> None:
    if options.service is not None and options.service not in order.services:
        offered = ", ".join(sorted(service.name.lower() for service in order.services))
        raise Misuse(f"this order does not carry {options.service.name.lower()} messages: choose {offered}.")
    if options.to == ():
        raise Misuse("a message is addressed to nobody: name at least one member, or leave `to` out for all.")
    for member in options.to or ():
        if member not in view.members:
            raise Misuse(f"{member} is not a member of view {view.id}: name members of it, or leave `to` out for all.")
