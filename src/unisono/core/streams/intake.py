"""What a datagram from a peer does. It is checked completely before anything of it counts."""

from __future__ import annotations

from collections.abc import Sequence

from unisono.core.streams.acknowledging import Acknowledging
from unisono.core.streams.answering import Answering, Request
from unisono.core.streams.gaps import Gaps
from unisono.core.streams.inbound import Inbound
from unisono.core.streams.outbound import Outbound
from unisono.core.streams.shared import StreamParts
from unisono.core.types import Rank
from unisono.core.wire import Octets, Refusal, ReplayWindow
from unisono.core.wire.envelope import (
    FLAGS_MAX,
    HALF,
    HEAD,
    LOW,
    NAK,
    POLL,
    ROW,
    SEND,
    SHARED_BYTES,
    TO_ALL,
    VERSION,
    Piece,
    Plain,
    extend,
)

Row = tuple[Rank, int, int, int, int, int, int]
"""Origin, numbers of cast and unicast bodies, of packets shown and taken in, echo, delay."""


class Intake:
    """Takes a datagram apart, and hands each part of it to where it belongs."""

    def __init__(
        self,
        shared: StreamParts,
        view: int,
        replay: Sequence[ReplayWindow],
        acks: Acknowledging,
        outbound: Outbound,
        answering: Answering,
        gaps: Gaps,
        inbound: Inbound,
    ) -> None:
        self._view = view
        self._rank = shared.rank
        self._members = len(shared.casts)
        self._replay = replay
        self._cast = shared.cast
        self._sends = shared.sends
        self._casts = shared.casts
        self._receives = shared.receives
        self._progress = shared.progress
        self._timing = shared.timing
        self._acks = acks
        self._outbound = outbound
        self._answering = answering
        self._gaps = gaps
        self._inbound = inbound
        self._counters = shared.counters

    def take(self, sender: Rank, datagram: bytes | memoryview, now: int) -> None:
        """Take a datagram that the driver has from `sender`. What is wrong with it is counted in `refused`.

        If only its body is refused, its envelope still counts.
        """
        size = len(datagram)
        if size < HEAD.size:
            return self._refuse(Refusal.SHORT)
        (version, flags, origin, to, view, counter, tries, naks, rows, body_bytes, room, cast_end, send_end) = (
            HEAD.unpack_from(datagram)
        )
        if version != VERSION or flags > FLAGS_MAX:
            return self._refuse(Refusal.VERSION)
        if origin != sender or sender == self._rank or sender >= self._members:
            return self._refuse(Refusal.SENDER)
        if view != self._view:
            return self._refuse(Refusal.VIEW)
        if to != TO_ALL and to != self._rank:
            return self._refuse(Refusal.ADDRESSEE)
        rows_end = HEAD.size + rows * ROW.size
        naks_end = rows_end + naks * NAK.size
        if size != naks_end + body_bytes:
            return self._refuse(Refusal.LENGTH)
        replay = self._replay[sender]
        is_next = 0 < counter - replay.highest <= replay.LEAP_MAX  # as it mostly is
        if not is_next and not replay.fresh(counter):
            return self._refuse(Refusal.REPLAYED)

        # Check every part before using any.
        acknowledged: list[Row] = []
        requested: list[Request] = []
        parsed: Plain | Piece | None = None
        body: Octets = b""
        if rows:
            checked = self._check_rows(sender, datagram[HEAD.size : rows_end])
            if isinstance(checked, Refusal):
                return self._refuse(checked)
            acknowledged = checked
        if naks:
            asked = self._check_naks(sender, datagram[rows_end:naks_end])
            if isinstance(asked, Refusal):
                return self._refuse(asked)
            requested = asked
        if body_bytes:
            body = datagram[naks_end:]
            if body_bytes < SHARED_BYTES or not isinstance(body, memoryview) or not body.readonly:
                body = bytes(body)
            taken_apart = self._inbound.take_apart(sender, body)
            if isinstance(taken_apart, Refusal):
                return self._refuse(taken_apart)
            parsed = taken_apart

        # It is authentic and well-formed.
        replay.add(counter)
        counters = self._counters
        counters.datagrams_received += 1
        counters.bytes_received += size
        causes_answer = parsed is not None or bool(requested) or bool(flags & POLL)  # and is measured by it
        is_newest = self._timing.heard(sender, counter, now, causes_answer)
        if flags and causes_answer:
            self._acks.hear_flags(sender, flags, now)
        if acknowledged:
            self._apply_rows(sender, acknowledged, now)
        if is_newest:
            self._progress.hear_room(sender, room)
        if requested:
            self._answering.hear(sender, requested)
        refusal = self._inbound.offer(sender, body, parsed, tries, now) if parsed is not None else None
        inflow = self._casts[sender]
        if cast_end != inflow.known & LOW:
            self._gaps.hear_end(inflow, cast_end, now)
        if to != TO_ALL:
            self._gaps.hear_end(self._receives[sender], send_end, now)
        if refusal is not None:
            self._refuse(refusal)

    def _refuse(self, why: Refusal) -> None:
        self._counters.refused[why] += 1

    def _check_rows(self, sender: Rank, table: bytes | memoryview) -> list[Row] | Refusal:
        if len(table) > ROW.size * (self._members - 1):
            return Refusal.COUNT
        own, members = self._rank, self._members
        progress = self._progress
        result: list[Row] = []
        for origin, cast, send, shown, taken, echo, delay in ROW.iter_unpack(table):
            if origin >= members or origin == sender:
                return Refusal.RANK
            near = progress.acked[origin][sender]  # `extend`, written out: it is called for every number of every row
            cast = near + ((cast - near + HALF) & LOW) - HALF
            near = progress.shown[origin][sender]
            shown = near + ((shown - near + HALF) & LOW) - HALF
            near = progress.taken[origin][sender]
            taken = near + ((taken - near + HALF) & LOW) - HALF
            if origin == own:  # the numbers of the stream to the sender mean something to me alone
                stream = self._sends[sender]
                near = stream.base
                send = near + ((send - near + HALF) & LOW) - HALF
                if send > stream.sent or cast > self._cast.sent or shown > self._outbound.packets_cast:
                    return Refusal.FORGED
            if taken > shown:
                return Refusal.FORGED
            result.append((origin, cast, send, shown, taken, echo, delay))
        return result

    def _check_naks(self, sender: Rank, table: bytes | memoryview) -> list[Request] | Refusal:
        result: list[Request] = []
        for origin, kind, first, count in NAK.iter_unpack(table):
            if origin >= self._members or origin == sender or kind > SEND or (kind == SEND and origin != self._rank):
                return Refusal.RANK
            if origin == self._rank:
                stream = self._sends[sender] if kind == SEND else self._cast
                first = extend(first, stream.base)
                if first + count > stream.sent:
                    return Refusal.FORGED
            else:
                first = extend(first, self._casts[origin].next)
            if not count:
                return Refusal.COUNT
            result.append((kind, origin, first, count))
        return result

    def _apply_rows(self, sender: Rank, rows: Sequence[Row], now: int) -> None:
        own, progress = self._rank, self._progress
        for origin, cast, send, shown, taken, echo, delay in rows:
            if origin == own:
                self._timing.sample(sender, echo, delay, now)
                self._outbound.acknowledged(sender, cast, send, shown, taken, now)
                continue
            inflow = self._casts[origin]
            if progress.hear(origin, sender, cast, shown, taken):
                inflow.release(progress.acked_by_all[origin])
            if cast > inflow.next:
                self._gaps.hear_rumour(inflow, cast, now)
