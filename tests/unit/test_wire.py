"""The codec: what is encoded comes back, and nothing that anyone may send does harm."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from itertools import product
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unisono.core.config import Config
from unisono.core.errors import Misuse
from unisono.core.types import Batch, Packet, Service
from unisono.core.wire.codec import (
    BATCH,
    EACH,
    LIST,
    RANK,
    RANKS,
    ROW,
    SLOT,
    STAMP,
    STAMPS,
    U8,
    U16,
    U32,
    U64,
    VECTOR,
    VERSION,
    BatchField,
    Codec,
    Layout,
    _make_shape,
)
from unisono.core.wire.fields import Bound, Field, Many, Reason, Row, Scalar
from unisono.orders.registry import LAYOUTS
from unisono.sim.fuzz import EXTREMES, examine, make_samples, overwrite

MEMBERS = 4


class Numbers(NamedTuple):
    """Every scalar, leading and not."""

    byte: int
    short: int
    number: int
    stamp: tuple[int, int]
    rank: int
    long: int


class Data(NamedTuple):
    number: int
    batch: Batch


class Vectors(NamedTuple):
    slots: tuple[int, ...]
    messages: tuple[int, ...]
    stamps: tuple[tuple[int, int], ...]


class Order(NamedTuple):
    first: int
    origins: tuple[int, ...]


class Flat(NamedTuple):
    rows: tuple[tuple[int, int, int], ...]


class AckRow(NamedTuple):
    number: int
    counter: int
    vector: tuple[int, ...]


class Nested(NamedTuple):
    rows: tuple[AckRow, ...]


class FinalRow(NamedTuple):
    number: int
    stamp: tuple[int, int]
    least: tuple[int, ...]
    stamps: tuple[tuple[int, int], ...]


class Deep(NamedTuple):
    rows: tuple[FinalRow, ...]


OWN = (
    Layout(0xF0, Numbers, (U8, U16, SLOT, STAMP, RANK, U64)),
    Layout(0xF1, Data, (SLOT, BATCH)),
    Layout(0xF2, Vectors, (VECTOR, VECTOR, STAMPS)),
    Layout(0xF3, Order, (U64, RANKS)),
    Layout(0xF4, Flat, (LIST(ROW(SLOT, U64, RANK)),)),
    Layout(0xF5, Nested, (LIST(ROW(SLOT, U64, VECTOR, type=AckRow)),)),
    Layout(0xF6, Deep, (LIST(ROW(SLOT, STAMP, VECTOR, STAMPS, type=FinalRow)),)),
)
TABLE = OWN + LAYOUTS
SAMPLES = make_samples(Codec(TABLE), seed=1, each=3, members=MEMBERS)
a_layout = pytest.mark.parametrize("layout", TABLE, ids=lambda it: f"{it.type.__module__}.{it.type.__name__}")
a_sample = pytest.mark.parametrize("packet", SAMPLES, ids=lambda it: type(it).__name__)


@pytest.fixture
def codec() -> Codec:
    return Codec(TABLE)


@pytest.fixture
def traced() -> Iterator[None]:
    """`examine` judges memory too."""
    tracemalloc.start()
    yield
    tracemalloc.stop()


def values_of(field: Field) -> st.SearchStrategy[Any]:
    match field:
        case Scalar():
            return st.integers(field.low, MEMBERS - 1 if field.ranks else 256**field.least - 1)
        case Row():
            return st.tuples(*map(values_of, field.fields)).map(getattr(field.type, "_make", tuple))
        case Many():
            low, high = (MEMBERS, MEMBERS) if field.bound is Bound.ONE_EACH else (0, 9)
            return st.lists(values_of(field.item), min_size=low, max_size=high).map(tuple)
        case BatchField():
            return batches()
    raise AssertionError(field)


@st.composite
def batches(draw: st.DrawFn) -> Batch:
    payloads = draw(st.lists(st.binary(max_size=40), min_size=1, max_size=6))
    first = draw(st.integers(0, 2**64 - len(payloads)))
    to = draw(st.none() | st.lists(st.integers(0, MEMBERS - 1), max_size=MEMBERS).map(tuple))
    service, safe = draw(st.sampled_from(Service)), draw(st.booleans())
    batch = Batch(draw(st.integers(0, MEMBERS - 1)), first, payloads, service, to, safe=safe)
    return draw(st.sampled_from((batch, batch.placeholder())))


def origin_of(packet: Packet) -> int:
    return next((value.origin for value in packet if isinstance(value, Batch)), 0)


def refuse(codec: Codec, data: bytes, reason: Reason, members: int = MEMBERS) -> None:
    """The codec refuses these bytes, counts why, and nothing else."""
    expected = codec.refused | {reason: codec.refused[reason] + 1}
    assert codec.decode(data, 0, members) is None
    assert codec.refused == expected


def survive(codec: Codec, data: bytes) -> bool:
    """The codec accepts these bytes faithfully (True), or refuses and counts them, at a bounded cost."""
    verdict = examine(codec, data, 0, MEMBERS)
    assert verdict.failure is None, f"{verdict.failure}: {data.hex()}"
    return verdict.accepted


def a_batch(*payloads: bytes, first: int = 0, to: tuple[int, ...] | None = None) -> Batch:
    return Batch(0, first, payloads, Service.TOTAL, to)


# What is encoded comes back.


@a_layout
@settings(deadline=None)
@given(data=st.data())
def test_a_packet_comes_back_and_its_size_is_known_beforehand(layout: Layout, data: st.DataObject) -> None:
    codec = Codec(TABLE)
    packet = data.draw(values_of(Row(layout.fields, layout.type)))
    encoded = codec.encode(packet)
    assert codec.size(packet) == len(encoded)
    decoded = codec.decode(encoded, origin_of(packet), MEMBERS)
    assert decoded == packet
    assert type(decoded) is layout.type
    assert encoded[:2] == bytes((VERSION, layout.kind))


def test_the_sender_is_the_origin_of_a_batch(codec: Codec) -> None:
    decoded = codec.decode(codec.encode(Data(1, a_batch(b"x"))), 3, MEMBERS)
    assert decoded == Data(1, Batch(3, 0, (b"x",), Service.TOTAL))


def test_a_placeholder_keeps_count_addressees_and_digest(codec: Codec) -> None:
    batch = a_batch(b"for you", b"only", to=(1, 3)).placeholder()
    decoded = codec.decode(codec.encode(Data(1, batch)), 0, MEMBERS)
    assert decoded is not None
    assert decoded[1] == batch
    assert decoded[1].digest == batch.digest


def test_rows_keep_their_type(codec: Codec) -> None:
    packet = Nested((AckRow(1, 2, (0,) * MEMBERS),))
    decoded = codec.decode(codec.encode(packet), 0, MEMBERS)
    assert decoded is not None
    assert isinstance(decoded[0][0], AckRow)


def test_a_decoded_packet_shares_no_memory_with_its_datagram(codec: Codec) -> None:
    packet = Data(1, a_batch(b"payload", b"", b"other"))
    datagram = bytearray(codec.encode(packet))
    decoded: Any = codec.decode(memoryview(datagram), 0, MEMBERS)
    datagram[:] = bytes(len(datagram))
    assert decoded == packet
    assert all(type(payload) is bytes for payload in decoded.batch.payloads)


@pytest.mark.parametrize("count", [1, 255, 256, 257, 4_096])
def test_batches_of_any_length_come_back(codec: Codec, count: int) -> None:
    packet = Data(1, a_batch(*(bytes(i % 7) for i in range(count))))
    assert codec.decode(codec.encode(packet), 0, MEMBERS) == packet


def test_a_message_larger_than_a_batch_travels_alone() -> None:
    codec = Codec(OWN, Config(batch_bytes_max=10, payload_bytes_max=20))
    packet = Data(1, a_batch(bytes(20)))
    assert codec.decode(codec.encode(packet), 0, MEMBERS) == packet


def test_the_layout_on_the_wire_does_not_change(codec: Codec) -> None:
    """Other processes run other builds: whoever changes these bytes must change VERSION."""
    batch = a_batch(b"one", b"", b"three", first=7, to=(2,))
    assert codec.encode(Data(5, batch)).hex(" ") == (
        "03 f1 05 00 00 00 00 00 00 00 07 00 00 00 00 00 00 00 03 00 03 01 01 00 02 00 "
        "03 00 00 00 00 00 00 00 05 00 00 00 6f 6e 65 74 68 72 65 65"
    )
    assert codec.encode(Order(3, (1, 0))).hex(" ") == "03 f3 03 00 00 00 00 00 00 00 02 00 00 00 01 00 00 00"


def test_one_value_of_any_field_for_each_member() -> None:
    own = Codec((Layout(1, Flat, (EACH(ROW(RANK, U8, U8)),)),))
    packet = Flat(((0, 1, 1), (1, 2, 2), (2, 3, 3)))
    assert own.decode(own.encode(packet), 0, 3) == packet
    refuse(own, own.encode(packet), Reason.COUNT)


# What was damaged (F1, F2).


@a_sample
def test_every_prefix_is_refused(codec: Codec, packet: Packet) -> None:
    encoded = codec.encode(packet)
    for length in range(len(encoded)):
        refuse(codec, encoded[:length], Reason.SHORT)


@a_sample
def test_trailing_bytes_are_refused(codec: Codec, packet: Packet) -> None:
    refuse(codec, codec.encode(packet) + b"\0", Reason.TRAILING)


@a_sample
def test_a_flipped_bit_is_refused_or_leads_to_another_packet(codec: Codec, packet: Packet) -> None:
    encoded = codec.encode(packet)
    for bit in range(8 * len(encoded)):
        flipped = bytearray(encoded)
        flipped[bit >> 3] ^= 1 << (bit & 7)
        survive(codec, bytes(flipped))


@pytest.mark.parametrize("packet", SAMPLES[::3], ids=lambda it: type(it).__name__)
@pytest.mark.usefixtures("traced")
def test_extreme_numbers_anywhere_take_no_memory(codec: Codec, packet: Packet) -> None:
    encoded = codec.encode(packet)
    for at, width, value in product(range(2, len(encoded)), (2, 4, 8), EXTREMES):
        if value < 256**width:
            survive(codec, overwrite(encoded, at, width, value))


@given(data=st.binary(max_size=200), kind=st.sampled_from(TABLE).map(lambda layout: layout.kind))
def test_random_bytes_are_survived(data: bytes, kind: int) -> None:
    codec = Codec(TABLE)
    survive(codec, data)
    survive(codec, bytes((VERSION, kind)) + data)


def test_an_empty_input_is_short(codec: Codec) -> None:
    refuse(codec, b"", Reason.SHORT)


@pytest.mark.parametrize("version", [0, VERSION + 1, 255])
def test_an_unknown_version_is_counted(codec: Codec, version: int) -> None:
    refuse(codec, bytes((version, 0xF0)) + bytes(50), Reason.VERSION)


def test_an_unknown_kind_is_counted(codec: Codec) -> None:
    refuse(codec, bytes((VERSION, 0x00)) + bytes(50), Reason.KIND)


COUNT_AT = 10  # in an encoded Order: after version, kind and `first`


@pytest.mark.parametrize(
    ("count", "reason"),
    [
        (0, Reason.TRAILING),
        (1, Reason.TRAILING),
        (3, Reason.SHORT),
        (65_536 * MEMBERS, Reason.SHORT),
        (65_536 * MEMBERS + 1, Reason.COUNT),
        (2**31, Reason.COUNT),  # times two bytes it is 0 in 32 bits
        (2**32 - 1, Reason.COUNT),
    ],
)
@pytest.mark.usefixtures("traced")
def test_a_count_is_refused_before_memory_is_taken(codec: Codec, count: int, reason: Reason) -> None:
    lie = overwrite(codec.encode(Order(1, (0, 1))), COUNT_AT, 4, count)
    refuse(codec, lie, reason)
    assert not survive(codec, lie)


def test_a_count_is_compared_with_the_bytes_left_before_any_item_is_read(codec: Codec) -> None:
    """Else a long list of rows would be read up to its end before it is refused."""
    encoded = codec.encode(Nested((AckRow(1, 0, (0,) * MEMBERS),)))
    for count in (3, 60_000):  # the row has 50 bytes; a row of its type has at least 18
        lie = overwrite(overwrite(encoded, 2, 4, count), 6, 8, 0)  # and the first row has a slot 0
        refuse(codec, lie, Reason.SHORT)


LENGTHS_AT = 22  # in an encoded Data without addressees: after version, kind, `number` and the batch's head


@pytest.mark.parametrize(
    ("lengths", "reason"),
    [
        ((0, 0), Reason.TRAILING),
        ((3, 3), Reason.SHORT),
        ((2**20, 0), Reason.SHORT),
        ((2**20, 1), Reason.LENGTH),  # over batch_bytes_max
        ((2**31, 2**31), Reason.LENGTH),  # 0 in 32 bits
        ((2**32 - 1, 6), Reason.LENGTH),  # 5 in 32 bits, which is what there is
        ((2**32 - 1, 2**32 - 1), Reason.LENGTH),
    ],
)
@pytest.mark.usefixtures("traced")
def test_lengths_are_refused_before_memory_is_taken(codec: Codec, lengths: tuple[int, int], reason: Reason) -> None:
    lie = codec.encode(Data(1, a_batch(b"ab", b"cde")))
    for i, length in enumerate(lengths):
        lie = overwrite(lie, LENGTHS_AT + 4 * i, 4, length)
    refuse(codec, lie, reason)
    assert not survive(codec, lie)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({2: bytes(8)}, Reason.VALUE),  # slots are numbered from 1
        ({10: b"\xff" * 8}, Reason.VALUE),  # the index of the second message would not fit
        ({18: b"\0\0"}, Reason.COUNT),  # an empty batch
        ({18: b"\xff\xff"}, Reason.COUNT),
        ({20: b"\0"}, Reason.VALUE),  # no such service
        ({20: b"\5"}, Reason.VALUE),
        ({21: b"\10"}, Reason.VALUE),  # no such flag
    ],
)
def test_numbers_without_a_meaning_are_refused(codec: Codec, changed: dict[int, bytes], reason: Reason) -> None:
    encoded = bytearray(codec.encode(Data(1, a_batch(b"ab", b"cde"))))
    for at, piece in changed.items():
        encoded[at : at + len(piece)] = piece
    refuse(codec, bytes(encoded), reason)


@pytest.mark.parametrize(
    "packet",
    [
        Numbers(0, 0, 1, (0, 3), 0, 0),
        Numbers(0, 0, 1, (0, 0), 3, 0),
        Order(0, (0, 1, 3)),
        Flat(((1, 0, 0), (1, 0, 3))),
        Data(1, a_batch(b"", to=(3,))),
    ],
)
def test_a_rank_must_be_of_the_view(codec: Codec, packet: Packet) -> None:
    encoded = codec.encode(packet)
    assert codec.decode(encoded, 0, 4) == packet
    refuse(codec, encoded, Reason.RANK, members=3)


@pytest.mark.parametrize("members", [1, 3, 5])
def test_a_vector_has_one_entry_for_each_member(codec: Codec, members: int) -> None:
    encoded = codec.encode(Vectors((0,) * 4, (0,) * 4, ((0, 0),) * 4))
    assert codec.decode(encoded, 0, 4) is not None
    refuse(codec, encoded, Reason.COUNT, members=members)


def test_the_first_reason_stands(codec: Codec) -> None:
    encoded = codec.encode(Data(1, a_batch(b"ab", b"cde", to=(3,))))
    worse = overwrite(encoded, LENGTHS_AT + 4, 4, 2**32 - 1)  # after the addressees, another lie
    refuse(codec, worse, Reason.RANK, members=3)


def test_lengths_beyond_any_limit_have_no_shape() -> None:
    """A `Struct` of 2 GiB or more cannot be made on every platform, so none is attempted."""
    assert _make_shape(b"\xff\xff\xff\x3f" * 2) is not None
    assert _make_shape(b"\xff\xff\xff\x3f" * 2 + b"\2\0\0\0") is None
    assert _make_shape(b"\0\0\0\x80" * 2) is None  # 0 in 32 bits


def test_no_more_addressees_than_members(codec: Codec) -> None:
    refuse(codec, codec.encode(Data(1, a_batch(b"", to=(0, 0, 1)))), Reason.COUNT, members=2)


@pytest.mark.parametrize(
    ("limits", "packet", "reason"),
    [
        ({"batch_messages_max": 1}, Data(1, a_batch(b"", b"")), Reason.COUNT),
        ({"payload_bytes_max": 4}, Data(1, a_batch(b"12345")), Reason.LENGTH),
        ({"batch_bytes_max": 4}, Data(1, a_batch(b"123", b"45")), Reason.LENGTH),
        ({"window_messages": 1}, Flat(((1, 0, 0), (2, 0, 0))), Reason.COUNT),
        ({"window_messages": 1}, Order(0, (0,) * (MEMBERS + 1)), Reason.COUNT),
    ],
)
def test_the_limits_of_the_group_hold_on_both_sides(
    codec: Codec, limits: dict[str, int], packet: Packet, reason: Reason
) -> None:
    narrow = Codec(OWN, Config.from_mapping(limits | {"members_max": MEMBERS}))
    refuse(narrow, codec.encode(packet), reason)
    with pytest.raises(Misuse):
        narrow.encode(packet)


@pytest.mark.parametrize(
    "packet",
    [
        Order(0, tuple(i % 1000 for i in range(60_000))),
        Flat(tuple((i + 1, i + 1000, 900) for i in range(20_000))),
        Data(1, a_batch(*(b"xy" for _ in range(4_096)))),
        Data(1, a_batch(bytes(1_000_000))),
    ],
    ids=["ranks", "rows", "messages", "bytes"],
)
@pytest.mark.usefixtures("traced")
def test_memory_is_a_small_multiple_of_the_largest_inputs(codec: Codec, packet: Packet) -> None:
    verdict = examine(codec, codec.encode(packet), 0, members=1000)
    assert verdict.accepted, verdict.failure


# What cannot be encoded.


class Stranger(NamedTuple):
    number: int


@pytest.mark.parametrize(
    ("packet", "sentence"),
    [
        (Stranger(1), "Stranger has no layout"),
        (Data(0, a_batch(b"")), "Data.number cannot be encoded"),
        (Data(2**64, a_batch(b"")), "Data.number cannot be encoded"),
        (Data(-1, a_batch(b"")), "Data.number cannot be encoded"),
        (Data(1, a_batch()), "Data.batch cannot be encoded: a batch must have 1 to"),
        (Data(1, a_batch(*[b""] * 4_097)), "batch_messages_max = 4096"),
        (Data(1, a_batch(bytes(2**24 + 1))), "payload_bytes_max = 16777216"),
        (Data(1, a_batch(bytes(2**20), b"x")), "batch_bytes_max = 1048576"),
        (Data(1, a_batch(b"", b"", first=2**64 - 1)), "18446744073709551616, which does not fit in 64 bits"),
        (Data(1, a_batch("text")), "Data.batch cannot be encoded"),  # type: ignore[arg-type]
        (Data(1, None), "Data.batch cannot be encoded"),  # type: ignore[arg-type]
        (Flat(((1, 2),)), "a row of 2 values, where 3 belong"),  # type: ignore[arg-type]
        (Flat(((1, 2, 3, 4),)), "a row of 4 values, where 3 belong"),  # type: ignore[arg-type]
        (Vectors((0,) * 1_025, (), ()), "Vectors.slots cannot be encoded: 1025 items"),
        (Order(0, (65_536,)), "Order.origins cannot be encoded"),
    ],
)
def test_what_cannot_be_encoded_is_said_in_a_sentence(codec: Codec, packet: Packet, sentence: str) -> None:
    with pytest.raises(Misuse, match=sentence):
        codec.encode(packet)


@pytest.mark.parametrize(
    "layouts",
    [
        (Layout(1, Data, (SLOT, BATCH)), Layout(1, Order, (U64, RANKS))),
        (Layout(1, Data, (SLOT, BATCH)), Layout(2, Data, (SLOT, BATCH))),
        (Layout(256, Data, (SLOT, BATCH)),),
        (Layout(-1, Data, (SLOT, BATCH)),),
        (Layout(1, Data, (SLOT,)),),
        (Layout(1, Data, (SLOT, BATCH, U32)),),
    ],
    ids=["kind twice", "type twice", "kind too large", "kind negative", "field missing", "field too many"],
)
def test_a_table_that_makes_no_sense_is_refused(layouts: tuple[Layout, ...]) -> None:
    with pytest.raises(Misuse):
        Codec(layouts)
