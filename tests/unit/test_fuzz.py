"""The fuzzer: it finds what is planted, and finds nothing in the codec of all orders."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from unisono.core.config import Config
from unisono.core.errors import Misuse
from unisono.core.types import Batch, Packet, Service
from unisono.core.wire import codec as codec_module
from unisono.core.wire.codec import BATCH, SLOT, U32, Codec, Layout
from unisono.core.wire.fields import Bound, Field, Many, PacketReader
from unisono.orders.registry import make_codec
from unisono.sim.fuzz import FAILURES_KEPT, MEMBERS, examine, fuzz, make_samples, overwrite


class Planted(NamedTuple):
    """A packet with a field whose codec is at fault."""

    value: Any


class Data(NamedTuple):
    number: int
    batch: Batch


DATA = Data(1, Batch(0, 0, (b"ab", b"cde"), Service.TOTAL))
LENGTHS_AT = 22  # in an encoded Data: after version, kind, `number` and the batch's head


@pytest.fixture
def codec() -> Codec:
    return make_codec(Config())


@pytest.fixture
def traced() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


def failure_of(codec: Codec, data: bytes) -> str | None:
    return examine(codec, data, 0, MEMBERS).failure


@pytest.mark.seconds
def test_the_codec_of_all_orders_survives(codec: Codec) -> None:
    report = fuzz(codec, make_samples(codec, seed=1), inputs=20_000, seed=1)
    assert report.failures == ()
    assert report.passed
    assert report.accepted + sum(report.refused.values()) == report.inputs == 20_000
    assert report.peak_bytes > 0


@pytest.mark.seconds
def test_every_outcome_occurs(codec: Codec) -> None:
    report = fuzz(codec, make_samples(codec, seed=1), inputs=20_000, seed=2)
    assert report.accepted > 1_000
    assert min(report.refused.values()) > 100, report.refused


def test_every_layout_has_samples_that_come_back(codec: Codec) -> None:
    samples = make_samples(codec, seed=3, each=4)
    assert [type(sample) for sample in samples] == [it.type for it in codec.layouts for _ in range(4)]
    assert all(examine(codec, codec.encode(sample), 0, MEMBERS).accepted for sample in samples)


def test_the_same_seed_gives_the_same_report(codec: Codec) -> None:
    samples = make_samples(codec, seed=1)
    first, again, other = (fuzz(codec, samples, inputs=2_000, seed=seed) for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_progress_is_told(codec: Codec) -> None:
    told: list[int] = []
    fuzz(codec, make_samples(codec, seed=1, each=1), inputs=20_001, seed=1, progress=told.append)
    assert told == [10_000, 20_000]


def test_without_samples_there_is_nothing_to_damage(codec: Codec) -> None:
    with pytest.raises(Misuse, match="make_samples"):
        fuzz(codec, [], inputs=1, seed=1)


def test_a_number_is_overwritten_in_place() -> None:
    assert overwrite(bytes(6), 1, 4, 2**32 - 1) == b"\0\xff\xff\xff\xff\0"
    assert overwrite(bytes(4), 3, 4, 2**32 - 1) == b"\0\0\0\xff"


# Deliberate mistakes: each must be seen, by a single look and by the fuzzer.


class Unchecked(Exception):
    """Where the codec waits for this, bytes that end too soon go through to the caller."""


class Trusting(Field):
    """Bytes with their length before them, by someone who believes the length."""

    least = 2

    def size(self, value: bytes) -> int:
        return 2 + len(value)

    def put(self, value: bytes, out: list[bytes], config: Config) -> None:
        out += [len(value).to_bytes(2, "little"), value]

    def take(self, reader: PacketReader) -> bytes:
        at = reader.step(2)
        length = int.from_bytes(reader.data[at : at + 2], "little")
        reader.at = min(reader.at + length, reader.end)
        return bytes(reader.data[at + 2 : at + 2 + length])


class Eager(Many):
    """Takes the memory first, and looks at the bytes that are left afterwards."""

    def take(self, reader: PacketReader) -> tuple[Any, ...]:
        room = [0] * int.from_bytes(reader.data[reader.at : reader.at + 2], "little")
        values = super().take(reader)
        room[: len(values)] = values
        return values


class Silent(Codec):
    """Does not count what it refuses."""

    def decode(self, data: bytes | memoryview, sender: int, members: int) -> Packet | None:
        packet = super().decode(data, sender, members)
        self.refused = dict.fromkeys(self.refused, 0)
        return packet


def test_a_missing_length_check_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    codec = Codec((Layout(1, Data, (SLOT, BATCH)),))
    encoded = codec.encode(DATA)
    monkeypatch.setattr(codec_module, "StructError", Unchecked)
    assert failure_of(codec, encoded) is None
    for damaged in (encoded[:-1], encoded[:8], overwrite(encoded, LENGTHS_AT, 4, 2**19)):
        assert "decode raised error" in str(failure_of(codec, damaged))
    report = fuzz(codec, [DATA], inputs=2_000, seed=1)
    assert report.failed > len(report.failures) == FAILURES_KEPT
    assert not report.passed


def test_a_failure_carries_its_input(monkeypatch: pytest.MonkeyPatch) -> None:
    codec = Codec((Layout(1, Data, (SLOT, BATCH)),))
    monkeypatch.setattr(codec_module, "StructError", Unchecked)
    for what, data_hex, sender, members in fuzz(codec, [DATA], inputs=500, seed=1).failures:
        assert examine(codec, bytes.fromhex(data_hex), sender, members).failure == what


def test_a_trusted_length_is_caught() -> None:
    codec = Codec((Layout(1, Planted, (Trusting(),)),))
    encoded = codec.encode(Planted(b"abc"))
    assert failure_of(codec, encoded) is None
    assert "encodes to other bytes" in str(failure_of(codec, encoded[:-1]))
    assert fuzz(codec, [Planted(b"abc")], inputs=500, seed=1).failed


@pytest.mark.usefixtures("traced")
def test_memory_taken_before_the_check_is_caught() -> None:
    codec = Codec((Layout(1, Planted, (Eager(U32, Bound.ONE_EACH),)),))
    sample = Planted((1,) * MEMBERS)
    assert failure_of(codec, codec.encode(sample)) is None
    assert "decode took" in str(failure_of(codec, overwrite(codec.encode(sample), 2, 2, 2**16 - 1)))
    assert fuzz(codec, [sample], inputs=500, seed=1).failed


def test_a_refusal_that_is_not_counted_is_caught() -> None:
    codec = Silent((Layout(1, Data, (SLOT, BATCH)),))
    assert failure_of(codec, codec.encode(DATA)) is None
    assert failure_of(codec, b"") == "a refusal was counted 0 times"


def test_a_field_without_samples_is_named() -> None:
    with pytest.raises(Misuse, match="Trusting has no samples"):
        make_samples(Codec((Layout(1, Planted, (Trusting(),)),)), seed=1)
