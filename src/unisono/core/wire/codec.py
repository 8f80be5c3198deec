"""Packets to bytes and back, by a table: one `Layout` for each packet type, made of the fields below.

Each ordering declares its layouts as `wire`, `report_wire` and `cut_wire`. Numbers are little-endian::

    version u8 · kind u8 · the fields of the layout, in order, without padding

| field             | value                                              | on the wire                     |
|-------------------|----------------------------------------------------|---------------------------------|
| U8 U16 U32 U64    | an unsigned number                                 | 1, 2, 4, 8 bytes                |
| SLOT              | the number of a slot, from 1                       | u64                             |
| RANK              | a rank of the view                                 | u16                             |
| STAMP             | (counter, rank)                                    | u64, u16                        |
| VECTOR            | one number for each member                         | count u16, then u64 each        |
| STAMPS            | one stamp for each member                          | count u16, then 10 bytes each   |
| RANKS             | ranks in any number and order, repeats allowed     | count u32, then u16 each        |
| SLOTS             | slots, each as (origin, number)                    | count u32, then 10 bytes each   |
| ROW(*fields)      | a tuple of these, or the NamedTuple given as type= | the fields                      |
| LIST(field)       | values of one field, which may be a row            | count u32, then the values      |
| EACH(field)       | the same, exactly one value for each member        | count u16, then the values      |
| ALL(field)        | the same, as many as the bytes hold                | count u32, then the values      |
| TEXT BLOB         | a string; bytes                                    | length u16 or u32, then it      |
| FLAG              | True or False                                      | 1 byte                          |
| MAYBE(field)      | a value or None                                    | 1 byte, then the value          |
| BATCH             | a `Batch` of the sender                            | see `BatchField`                |

TOMP's acknowledgement, for example, is ``LIST(ROW(SLOT, U64, VECTOR, type=AckRow))``.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from struct import Struct
from struct import error as StructError
from typing import Any, Final, NamedTuple

from unisono.core.config import Config
from unisono.core.errors import Misuse
from unisono.core.types import Batch, Packet, Rank, Service
from unisono.core.wire.fields import (
    Blob,
    Bound,
    Field,
    Flag,
    Many,
    Optional,
    PacketReader,
    Reason,
    Row,
    Scalar,
    Text,
    array_of,
)

VERSION = 3

U8 = Scalar("B")
U16 = Scalar("H")
U32 = Scalar("I")
U64 = Scalar("Q")
SLOT = Scalar("Q", low=1)
RANK = Scalar("H", ranks=True)


def ROW(*fields: Field, type: type[tuple[Any, ...]] = tuple) -> Row:
    """Several fields as one value, a tuple or the NamedTuple `type`."""
    return Row(fields, type)


def LIST(item: Field) -> Many:
    """Values of one field, at most as many as an origin may have messages under way (`window_messages`)."""
    return Many(item, Bound.WINDOW)


def EACH(item: Field) -> Many:
    """Values of one field, exactly one for each member of the view."""
    return Many(item, Bound.ONE_EACH)


def ALL(item: Field) -> Many:
    """Values of one field, as many as the bytes hold: a report on a whole view has no other limit."""
    return Many(item, Bound.FITTING)


def MAYBE(item: Field) -> Optional:
    """A value of the field, or None."""
    return Optional(item)


TEXT = Text()
BLOB = Blob()
FLAG = Flag()
STAMP = ROW(U64, RANK)
VECTOR = EACH(U64)
STAMPS = EACH(STAMP)
RANKS = Many(RANK, Bound.WINDOWS)
SLOTS = ALL(ROW(RANK, SLOT))


class _Shape(NamedTuple):
    """How a run of bytes is cut into payloads."""

    cut: Struct
    largest: int


_BYTES_MAX = 2**31 - 1
"""No configuration allows a batch beyond this, and a `Struct` of this size exists on every platform."""

_KEPT_MESSAGES_MAX = 256
"""Shapes of larger batches are not cached: one takes about 40 bytes per message, and making it is cheap per message."""


def _make_shape(table: bytes) -> _Shape | None:
    """The shape that a table of lengths describes; None if they add up to more than any group allows."""
    lengths = array_of(len(table) // 4, "I").unpack(table)
    if sum(lengths) > _BYTES_MAX:
        return None
    return _Shape(Struct("%ds" * len(lengths) % lengths), max(lengths))


_recall_shape = lru_cache(maxsize=256)(_make_shape)


@lru_cache(maxsize=64)
def _alike(count: int, length: int) -> _Shape | None:
    """The shape of payloads of one length, which many batches have, however large."""
    return None if count * length > _BYTES_MAX else _Shape(Struct(f"{length}s" * count), length)


class BatchField(Field):
    """A `Batch`. Its origin is the packet's sender and is not written::

        first u64 · count u16 · service u8 · flags u8 · [addressees: count u16, u16 each]
        · placeholder: digest u64 · else: the lengths of all payloads, u32 each · the payloads

    With the lengths in one table a reader learns all boundaries in one call and cuts all payloads in another, and
    a table that was met before is not even parsed. The holder of the payloads computes the digest: one sent along
    could contradict them.
    """

    __slots__ = ()
    _HEAD = Struct("<QHBB")
    _DIGEST = Struct("<Q")
    _HAS_TO = 1
    _PLACEHOLDER = 2
    _SAFE = 4
    _FLAGS_MAX = _HAS_TO | _PLACEHOLDER | _SAFE
    _TO = Many(RANK, Bound.MEMBERS)
    _SERVICES: Final = {int(service): service for service in Service}
    _INDEX_END = 2**64

    def __init__(self) -> None:
        self.least = self._HEAD.size + 4  # one empty payload

    def size(self, value: Batch) -> int:
        size = self._HEAD.size
        if value.to is not None:
            size += self._TO.size(value.to)
        if value.payloads is None:
            return size + self._DIGEST.size
        return size + 4 * value.count + sum(map(len, value.payloads))

    def put(self, value: Batch, out: list[bytes], config: Config) -> None:
        first, count, payloads, to = value.first, value.count, value.payloads, value.to
        if not 1 <= count <= config.batch_messages_max:
            raise Misuse(
                f"a batch must have 1 to batch_messages_max = {config.batch_messages_max} messages, not {count}"
            )
        if first + count > self._INDEX_END:
            raise Misuse(f"the index of its last message is {first + count - 1}, which does not fit in 64 bits")
        flags = (self._HAS_TO if to is not None else 0) | (self._PLACEHOLDER if payloads is None else 0)
        flags |= self._SAFE if value.safe else 0
        out.append(self._HEAD.pack(first, count, value.service, flags))
        if to is not None:
            self._TO.put(to, out, config)
        if payloads is None:
            out.append(self._DIGEST.pack(value.digest))
            return
        lengths = tuple(map(len, payloads))
        if max(lengths) > config.payload_bytes_max:
            raise Misuse(f"a payload of {max(lengths)} bytes, over payload_bytes_max = {config.payload_bytes_max}")
        if count > 1 and sum(lengths) > config.batch_bytes_max:
            raise Misuse(f"payloads of {sum(lengths)} bytes, over batch_bytes_max = {config.batch_bytes_max}")
        out.append(array_of(count, "I").pack(*lengths))
        out.extend(payloads)

    def take(self, reader: PacketReader) -> Batch | None:
        head, at = self._HEAD, reader.at
        reader.at = at + head.size
        first, count, code, flags = head.unpack_from(reader.data, at)
        service = self._SERVICES.get(code)
        if service is None or flags > self._FLAGS_MAX or first + count > self._INDEX_END:
            reader.reason = Reason.VALUE
            return None
        if not 1 <= count <= reader.config.batch_messages_max:
            reader.reason = Reason.COUNT
            return None
        to = self._TO.take(reader) if flags & self._HAS_TO else None
        if reader.reason is not None:
            return None
        safe = bool(flags & self._SAFE)
        if not flags & self._PLACEHOLDER:
            return Batch(reader.sender, first, self._take_payloads(reader, count), service, to, safe=safe)
        (digest,) = self._DIGEST.unpack_from(reader.data, reader.step(self._DIGEST.size))
        return Batch(reader.sender, first, None, service, to, count, digest, safe)

    @staticmethod
    def _take_payloads(reader: PacketReader, count: int) -> tuple[bytes, ...]:
        start = reader.at + 4 * count
        table = bytes(reader.data[reader.at : start])
        if start > reader.end:
            raise StructError("the lengths of payloads end too soon")
        if table == table[:4] * count:
            shape = _alike(count, int.from_bytes(table[:4], "little"))
        else:
            shape = _recall_shape(table) if count <= _KEPT_MESSAGES_MAX else _make_shape(table)
        config = reader.config
        if (
            shape is None
            or shape.largest > config.payload_bytes_max
            or (count > 1 and shape.cut.size > config.batch_bytes_max)
        ):
            reader.reason = Reason.LENGTH
            return ()
        reader.at = start + shape.cut.size
        return shape.cut.unpack_from(reader.data, start)


BATCH = BatchField()


class Layout(NamedTuple):
    """How one packet type travels. Within a version a `kind` never changes its meaning."""

    kind: int
    type: type[tuple[Any, ...]]
    fields: tuple[Field, ...]


_UNENCODABLE = (Misuse, StructError, TypeError, AttributeError)


class Codec:
    """Encode the packets of a table, and decode them from untrusted bytes.

    What is not a packet of the table is dropped and counted in `refused`, by reason.
    """

    def __init__(self, layouts: Iterable[Layout], config: Config | None = None) -> None:
        self.layouts = tuple(layouts)
        self.refused = dict.fromkeys(Reason, 0)
        self._config = config or Config()
        self._rows: list[Row | None] = [None] * 256  # by kind
        self._by_type: dict[type, tuple[bytes, Row]] = {}  # what such a packet begins with, and the rest
        for kind, type, fields in self.layouts:
            if not 0 <= kind <= 255:
                raise Misuse(f"kind {kind} of {type.__name__} does not fit one byte: choose 0 to 255.")
            if self._rows[kind] is not None or type in self._by_type:
                raise Misuse(f"{type.__name__} cannot be kind {kind:#04x}: that kind or type has a layout already.")
            row = Row(fields, type)
            self._rows[kind] = row
            self._by_type[type] = (bytes((VERSION, kind)), row)

    def size(self, packet: Packet) -> int:
        """How many bytes `encode` would return, without making them."""
        start, row = self._find(packet)
        return len(start) + row.size(packet)

    def encode(self, packet: Packet) -> bytes:
        """The packet as bytes; `Misuse` says which field cannot travel and why."""
        start, row = self._by_type.get(type(packet)) or self._find(packet)
        out = [start]
        try:
            row.put(packet, out, self._config)
            return b"".join(out)
        except _UNENCODABLE as error:
            raise Misuse(self._explain(row, packet)) from error

    def decode(self, data: bytes | memoryview, sender: Rank, members: int) -> Packet | None:
        """The packet that `sender` encoded in a view of `members` members; None if it is refused.

        The packet shares no memory with `data`. The caller cuts datagrams into packets and knows the sender.
        """
        reader = PacketReader(data, sender, members, self._config)
        packet: Packet | None = None
        if reader.end < 2:
            reader.reason = Reason.SHORT
        elif data[0] != VERSION:
            reader.reason = Reason.VERSION
        elif (row := self._rows[data[1]]) is None:
            reader.reason = Reason.KIND
        else:
            reader.at = 2
            try:
                packet = row.take(reader)
            except StructError:
                reader.reason = Reason.SHORT
            if reader.reason is None and reader.at != reader.end:
                reader.reason = Reason.TRAILING
        if reader.reason is None:
            return packet
        self.refused[reader.reason] += 1
        return None

    def _find(self, packet: Packet) -> tuple[bytes, Row]:
        entry = self._by_type.get(type(packet))
        if entry is None:
            raise Misuse(f"{type(packet).__name__} has no layout in this codec: add one to the `wire` of its ordering.")
        return entry

    def _explain(self, row: Row, packet: Packet) -> str:
        """Find the field that cannot be encoded; only a failed encoding pays for looking."""
        name = row.type.__name__
        for i, field in enumerate(row.fields):
            out: list[bytes] = []
            try:
                field.put(packet[i], out, self._config)
                b"".join(out)
            except _UNENCODABLE as error:
                return f"{name}.{row.names[i]} cannot be encoded: {error}."
        raise AssertionError(f"every field of {name} can be encoded, but not the whole")
