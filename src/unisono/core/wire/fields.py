"""The fields that packets are made of: measuring, writing, and reading them from untrusted bytes.

A field is a description without state, shared by all codecs. Every `take` follows three rules:

1. A count or a length is compared with its cap and with the bytes that are left *before* anything is made
   of it. Python's integers do not wrap, so products and sums are compared as they are.
2. What does not hold is refused with a `Reason`. Bytes that end too soon raise the `struct.error` of unpacking, which the codec
   counts as `SHORT`, so no field asks how many are left. Hostile input costs no more than friendly.
3. A value has one encoding only, so what is accepted encodes to the very bytes it came from.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from enum import Enum, StrEnum
from functools import lru_cache, partial
from struct import Struct
from struct import error as StructError
from typing import Any

from unisono.core.config import Config
from unisono.core.errors import Misuse
from unisono.core.types import Rank


class Reason(StrEnum):
    """Why bytes were not accepted as a packet."""

    SHORT = "short"  # the bytes end before the field does
    TRAILING = "trailing"  # bytes are left after the last field
    VERSION = "version"  # another version of the wire format
    KIND = "kind"  # no packet of this kind in the table
    COUNT = "count"  # more items than the group allows, or not one for each member
    LENGTH = "length"  # a payload or a batch larger than the group allows
    RANK = "rank"  # a rank that the view does not have
    VALUE = "value"  # a number, service or flag that has no meaning here


class PacketReader:
    """A place in the bytes of one packet, and why they were refused if they were."""

    __slots__ = ("at", "config", "data", "end", "members", "reason", "sender")

    def __init__(self, data: bytes | memoryview, sender: Rank, members: int, config: Config) -> None:
        self.data = data
        self.at = 0
        self.end = len(data)
        self.sender = sender
        self.members = members
        self.config = config
        self.reason: Reason | None = None

    def step(self, size: int) -> int:
        """Step over `size` bytes and return where they begin. Raises, as unpacking does, if fewer are left."""
        at = self.at
        if size > self.end - at:
            raise StructError(f"{size} bytes do not follow")
        self.at = at + size
        return at


class Field(ABC):
    """One kind of field. `put` raises `Misuse` or what `struct` raises; the codec says which field it was."""

    __slots__ = ("least",)
    least: int
    """The size of the smallest value: `count` times this must be left before `count` items are read."""

    @abstractmethod
    def size(self, value: Any) -> int:
        """How many bytes `put` would write."""

    @abstractmethod
    def put(self, value: Any, out: list[bytes], config: Config) -> None:
        """Append the encoded value in pieces."""

    @abstractmethod
    def take(self, reader: PacketReader) -> Any:
        """Read one value. After a refusal, `reader.reason` is set and the result means nothing. Raises `struct.error` if too few
        bytes are left."""

    # Many values in a row; a field whose values are all of one size does better than one by one.

    def size_many(self, values: Sequence[Any]) -> int:
        return sum(map(self.size, values))

    def put_many(self, values: Sequence[Any], out: list[bytes], config: Config) -> None:
        for value in values:
            self.put(value, out, config)

    def take_many(self, reader: PacketReader, count: int) -> tuple[Any, ...]:
        values: list[Any] = []
        for _ in range(count):
            values.append(self.take(reader))
            if reader.reason is not None:
                break
        return tuple(values)


@lru_cache(maxsize=1024)
def array_of(count: int, code: str) -> Struct:
    """`count` numbers of one `struct` code, cached: making the `Struct` costs more than using it."""
    return Struct(f"<{count}{code}")


class Scalar(Field):
    """An unsigned number; `low` is the smallest that has a meaning, and a rank must be one of the view's."""

    __slots__ = ("code", "low", "ranks")

    def __init__(self, code: str, low: int = 0, ranks: bool = False) -> None:
        self.code = code
        self.least = array_of(1, code).size
        self.low = low
        self.ranks = ranks

    def size(self, value: int) -> int:
        return self.least

    def put(self, value: int, out: list[bytes], config: Config) -> None:
        self.put_many((value,), out, config)

    def take(self, reader: PacketReader) -> int:
        return self.take_many(reader, 1)[0]

    def size_many(self, values: Sequence[int]) -> int:
        return self.least * len(values)

    def put_many(self, values: Sequence[int], out: list[bytes], config: Config) -> None:
        if self.low:
            self.demand(values)
        out.append(array_of(len(values), self.code).pack(*values))

    def take_many(self, reader: PacketReader, count: int) -> tuple[int, ...]:
        numbers, at = array_of(count, self.code), reader.at
        reader.at = at + numbers.size
        values = numbers.unpack_from(reader.data, at)
        if self.low or self.ranks:
            self.check(values, reader)
        return values

    def check(self, values: Sequence[int], reader: PacketReader) -> None:
        """Refuse values that fit their bytes and yet have no meaning."""
        if self.low and values and min(values) < self.low:
            reader.reason = Reason.VALUE
        if self.ranks and values and max(values) >= reader.members:
            reader.reason = Reason.RANK

    def demand(self, values: Sequence[int]) -> None:
        if self.low and values and min(values) < self.low:
            raise Misuse(f"{min(values)} is below {self.low}, the smallest that has a meaning")


class Row(Field):
    """Fields one after another: a tuple, or the NamedTuple `type`. Leading scalars are read as one `Struct`."""

    __slots__ = ("_bounded", "_head", "_lead", "_make", "_rest", "fields", "names", "type")

    def __init__(self, fields: tuple[Field, ...], type: type[tuple[Any, ...]] = tuple) -> None:
        names: tuple[str, ...] = getattr(type, "_fields", tuple(map(str, range(len(fields)))))
        if not fields or len(names) != len(fields):
            raise Misuse(f"{type.__name__} has {len(names)} fields and cannot be laid out as {len(fields)}.")
        self.fields = fields
        self.names = names
        self.type = type
        self._make: Callable[[Sequence[Any]], Any] = type if type is tuple else partial(tuple.__new__, type)
        lead: list[Scalar] = []
        for field in fields:
            if not isinstance(field, Scalar):
                break
            lead.append(field)
        self._lead = len(lead)
        self._head = Struct("<" + "".join(scalar.code for scalar in lead))
        self._bounded = tuple((i, scalar) for i, scalar in enumerate(lead) if scalar.low or scalar.ranks)
        self._rest = tuple(enumerate(fields))[self._lead :]
        self.least = sum(field.least for field in fields)

    def size(self, value: tuple[Any, ...]) -> int:
        size = self._head.size
        for i, field in self._rest:
            size += field.size(value[i])
        return size

    def put(self, value: tuple[Any, ...], out: list[bytes], config: Config) -> None:
        if len(value) != len(self.fields):
            raise Misuse(f"a row of {len(value)} values, where {len(self.fields)} belong")
        for i, scalar in self._bounded:
            if value[i] < scalar.low:
                scalar.demand(value[i : i + 1])
        out.append(self._head.pack(*value[: self._lead]))
        for i, field in self._rest:
            field.put(value[i], out, config)

    def take(self, reader: PacketReader) -> Any:
        head, at = self._head, reader.at
        reader.at = at + head.size
        values = head.unpack_from(reader.data, at)
        for i, scalar in self._bounded:
            if scalar.ranks or values[i] < scalar.low:
                scalar.check(values[i : i + 1], reader)
        if not self._rest:
            return self._make(values)
        mixed = list(values)
        for _, field in self._rest:
            if reader.reason is not None:
                return None
            mixed.append(field.take(reader))
        return self._make(mixed)

    def size_many(self, values: Sequence[tuple[Any, ...]]) -> int:
        return sum(map(self.size, values)) if self._rest else self._head.size * len(values)

    def take_many(self, reader: PacketReader, count: int) -> tuple[Any, ...]:
        if self._rest or not count:
            return super().take_many(reader, count)
        at = reader.step(self._head.size * count)
        rows = tuple(self._head.iter_unpack(memoryview(reader.data)[at : reader.at]))
        for i, scalar in self._bounded:
            scalar.check([row[i] for row in rows], reader)
        return rows if self._make is tuple else tuple(map(self._make, rows))


class Bound(Enum):
    """How many items a sequence may have. What one origin has under way is limited by `window_messages`."""

    ONE_EACH = "one for each member"
    MEMBERS = "at most one for each member"
    WINDOW = "at most one for each message that one origin has under way"
    WINDOWS = "at most one for each message that anyone has under way"
    FITTING = "as many as the bytes hold"

    def allows(self, count: int, members: int, config: Config) -> bool:
        if self is Bound.ONE_EACH:
            return count == members
        if self is Bound.MEMBERS:
            return count <= members
        if self is Bound.WINDOW:
            return count <= config.window_messages
        if self is Bound.FITTING:
            return count < 2**32  # a reader compares the count with the bytes that are left, as for every bound
        return count <= config.window_messages * members


class Many(Field):
    """A tuple of like items, with their count before them.

    A reader knows how many members the view has; a writer only checks what holds for every view of the group.
    """

    __slots__ = ("_count", "bound", "item")

    def __init__(self, item: Field, bound: Bound) -> None:
        self.item = item
        self.bound = bound
        self._count = array_of(1, "H" if bound in (Bound.ONE_EACH, Bound.MEMBERS) else "I")
        self.least = self._count.size

    def size(self, value: Sequence[Any]) -> int:
        return self._count.size + self.item.size_many(value)

    def put(self, value: Sequence[Any], out: list[bytes], config: Config) -> None:
        count = len(value)
        members = min(count, config.members_max) if self.bound is Bound.ONE_EACH else config.members_max
        if not self.bound.allows(count, members, config):
            raise Misuse(f"{count} items are too many: {self.bound.value}")
        out.append(self._count.pack(count))
        self.item.put_many(value, out, config)

    def take(self, reader: PacketReader) -> tuple[Any, ...]:
        head, at = self._count, reader.at
        reader.at = at + head.size
        (count,) = head.unpack_from(reader.data, at)
        if not self.bound.allows(count, reader.members, reader.config):
            reader.reason = Reason.COUNT
        elif count * self.item.least > reader.end - reader.at:
            reader.reason = Reason.SHORT
        else:
            return self.item.take_many(reader, count)
        return ()


class Blob(Field):
    """Bytes that mean nothing here, with their length before them."""

    __slots__ = ()
    _LENGTH = Struct("<I")

    def __init__(self) -> None:
        self.least = self._LENGTH.size

    def size(self, value: Any) -> int:
        return self._LENGTH.size + len(value)

    def put(self, value: Any, out: list[bytes], config: Config) -> None:
        out.append(self._LENGTH.pack(len(value)))
        out.append(value)

    def take(self, reader: PacketReader) -> Any:
        (length,) = self._LENGTH.unpack_from(reader.data, reader.step(self._LENGTH.size))
        at = reader.step(length)
        return bytes(reader.data[at : reader.at])


class Text(Blob):
    """A string of at most 65,535 bytes in UTF-8, with its length before it."""

    __slots__ = ()
    _LENGTH = Struct("<H")

    def size(self, value: str) -> int:
        return super().size(value.encode())

    def put(self, value: str, out: list[bytes], config: Config) -> None:
        super().put(value.encode(), out, config)

    def take(self, reader: PacketReader) -> str:
        try:
            return str(super().take(reader), "utf-8")
        except UnicodeDecodeError:
            reader.reason = Reason.VALUE
            return ""


class Optional(Field):
    """A value or None, told apart by a byte before it."""

    __slots__ = ("item",)

    def __init__(self, item: Field) -> None:
        self.item = item
        self.least = 1

    def size(self, value: Any) -> int:
        return 1 if value is None else 1 + self.item.size(value)

    def put(self, value: Any, out: list[bytes], config: Config) -> None:
        out.append(b"\0" if value is None else b"\1")
        if value is not None:
            self.item.put(value, out, config)

    def take(self, reader: PacketReader) -> Any:
        at = reader.step(1)
        if reader.data[at] > 1:
            reader.reason = Reason.VALUE
            return None
        return self.item.take(reader) if reader.data[at] else None


class Flag(Field):
    """True or False in one byte."""

    __slots__ = ()

    def __init__(self) -> None:
        self.least = 1

    def size(self, value: bool) -> int:
        return 1

    def put(self, value: bool, out: list[bytes], config: Config) -> None:
        out.append(b"\1" if value else b"\0")

    def take(self, reader: PacketReader) -> bool:
        at = reader.step(1)
        if reader.data[at] > 1:
            reader.reason = Reason.VALUE
        return reader.data[at] == 1
