"""Transmission: a fresh envelope around a body, or around none."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TypeAlias

from unisono.core.streams.counters import StreamCounters
from unisono.core.streams.outflow import Outflow
from unisono.core.types import Rank
from unisono.core.wire import Octets
from unisono.core.wire.envelope import HEAD, LOW, NO_LIMIT, TO_ALL, VERSION

Datagrams: TypeAlias = list[tuple[Rank | None, bytes]]
"""Each with its addressee; None: all others."""

SENT_TIMES = 16_384
"""Number of transmissions, the latest ones, whose time is remembered for samples of the round trip."""


class Transmitter:
    """Numbers each transmission, and tells in its head how far the sender's streams go and what it has room for."""

    def __init__(
        self,
        view: int,
        rank: Rank,
        counter: int,
        prefix: bytes,
        cast: Outflow,
        sends: Sequence[Outflow],
        counters: StreamCounters,
    ) -> None:
        self._view = view
        self._rank = rank
        self._prefix = prefix  # every datagram begins with it
        self._cast = cast
        self._sends = sends
        self._counters = counters
        self._times: deque[int] = deque(maxlen=SENT_TIMES)
        self.counter = counter
        """Of the next transmission. The streams of the next view go on from here."""
        self.room = NO_LIMIT
        """How many more packets of each origin can be taken in here."""

    def set_room(self, packets: int | None) -> None:
        """Tell the others how many more packets of *each* origin can be taken in; None: any number.

        They keep to it when they cast data. It is not enforced here: a packet that would free the holdback must get in.
        """
        self.room = NO_LIMIT if packets is None else max(0, min(packets, NO_LIMIT - 1))

    def transmit(
        self,
        out: Datagrams,
        to: Rank | None,
        now: int,
        body: Octets = b"",
        tries: int = 0,
        rows: Sequence[bytes] = (),
        naks: Sequence[bytes] = (),
        flags: int = 0,
    ) -> None:
        counter = self.counter
        self.counter = counter + 1
        self._times.append(now)
        head = HEAD.pack(
            VERSION,
            flags,
            self._rank,
            TO_ALL if to is None else to,
            self._view,
            counter,
            tries if tries < 255 else 255,
            len(naks),
            len(rows),
            len(body),
            self.room,
            self._cast.sent & LOW,
            0 if to is None else self._sends[to].sent & LOW,
        )
        datagram = b"".join((self._prefix, head, *rows, *naks, body))
        out.append((to, datagram))
        counters = self._counters
        counters.datagrams_sent += 1
        counters.bytes_sent += len(datagram)

    def sent_at(self, low: int) -> int | None:
        """When the transmission left whose counter has these low 32 bits; None if that is not known (any more)."""
        age = (self.counter - low) & LOW
        return self._times[-age] if 0 < age <= len(self._times) else None
