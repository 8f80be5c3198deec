"""Hostile bytes for the codec: random ones, and valid packets that were damaged on purpose.

Whatever comes in, a codec must refuse it and count why, or decode it to a packet that encodes to the very same
bytes; it never raises, and it takes no more memory than a small multiple of the input. Everything else is a
failure, reported with its input. The same seed makes the same inputs.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple

from unisono.core.errors import Misuse
from unisono.core.types import Batch, Packet, Rank, Service
from unisono.core.wire import BatchField, Codec
from unisono.core.wire.fields import Bound, Field, Many, Row, Scalar

MEMBERS = 5
FAILURES_KEPT = 20
PROGRESS_EVERY = 10_000

MEMORY_PER_BYTE = 32
"""A Python integer takes 36 bytes in a tuple where the wire has two: this is the multiple for a tuple of ranks."""
MEMORY_AT_LEAST = 64 * 1024
"""Room for the codec's caches of `Struct`s, which grow by leaps until they are full."""


class FuzzFailure(NamedTuple):
    """One input that a codec did not survive, and what happened."""

    what: str
    data_hex: str
    sender: Rank
    members: int


@dataclass(frozen=True)
class FuzzReport:
    """What became of the inputs. `failures` are the first few of `failed`."""

    inputs: int
    accepted: int
    refused: Mapping[str, int]
    failed: int
    failures: tuple[FuzzFailure, ...]
    peak_bytes: int = field(compare=False)
    """The most memory that one input took; it depends on the interpreter, so two reports may differ in it."""

    @property
    def passed(self) -> bool:
        return self.failed == 0


def fuzz(
    codec: Codec,
    samples: Sequence[Packet],
    inputs: int,
    seed: int,
    progress: Callable[[int], None] | None = None,
    members: int = MEMBERS,
) -> FuzzReport:
    """Feed `inputs` inputs to the codec, made from samples: valid packets of a view of `members` members."""
    if not samples:
        raise Misuse("there is nothing to damage: give at least one sample, or use make_samples().")
    random = Random(seed)
    packets = [codec.encode(sample) for sample in samples]
    before = dict(codec.refused)
    accepted = failed = peak = 0
    failures: list[FuzzFailure] = []
    with _traced_memory():
        for done in range(inputs):
            data = _make_input(random, packets)
            sender = done % members
            verdict = examine(codec, data, sender, members)
            accepted += verdict.accepted
            peak = max(peak, verdict.peak_bytes)
            if verdict.failure is not None:
                failed += 1
                if len(failures) < FAILURES_KEPT:
                    failures.append(FuzzFailure(verdict.failure, data.hex(), sender, members))
            if progress is not None and (done + 1) % PROGRESS_EVERY == 0:
                progress(done + 1)
    refused = {reason.value: count - before[reason] for reason, count in codec.refused.items()}
    return FuzzReport(inputs, accepted, refused, failed, tuple(failures), peak)


class FuzzVerdict(NamedTuple):
    """What one input led to. Neither accepted nor failed means: refused and counted, as it should be."""

    accepted: bool
    failure: str | None
    peak_bytes: int


def examine(codec: Codec, data: bytes, sender: Rank, members: int) -> FuzzVerdict:
    """Decode one input and judge how the codec took it. Memory is judged only while `tracemalloc` runs."""
    tracemalloc.reset_peak()
    start_bytes, _ = tracemalloc.get_traced_memory()
    refused = sum(codec.refused.values())
    try:
        packet = codec.decode(data, sender, members)
    except Exception as error:
        return FuzzVerdict(False, f"decode raised {error!r}", 0)
    peak_bytes = tracemalloc.get_traced_memory()[1] - start_bytes
    if peak_bytes > memory_bytes_max(len(data)):
        return FuzzVerdict(False, f"decode took {peak_bytes} bytes for an input of {len(data)}", peak_bytes)
    if packet is None:
        counted = sum(codec.refused.values()) - refused
        failure = None if counted == 1 else f"a refusal was counted {counted} times"
        return FuzzVerdict(False, failure, peak_bytes)
    try:
        faithful = codec.encode(packet) == data and codec.size(packet) == len(data)
    except Exception as error:
        return FuzzVerdict(False, f"what was decoded cannot be encoded: {error!r}", peak_bytes)
    if not faithful:
        return FuzzVerdict(False, f"what was decoded encodes to other bytes: {packet!r}", peak_bytes)
    return FuzzVerdict(True, None, peak_bytes)


def memory_bytes_max(size: int) -> int:
    """What decoding an input of this size may take."""
    return MEMORY_AT_LEAST + MEMORY_PER_BYTE * size


@contextmanager
def _traced_memory() -> Iterator[None]:
    """Run `tracemalloc`, and leave it as it was."""
    was_running = tracemalloc.is_tracing()
    tracemalloc.start()
    try:
        yield
    finally:
        if not was_running:
            tracemalloc.stop()


# The inputs.


def _make_input(random: Random, packets: Sequence[bytes]) -> bytes:
    return random.choice(_DAMAGES)(random, random.choice(packets), random.choice(packets))


def _noise(random: Random, data: bytes, _other: bytes) -> bytes:
    """Random bytes, three times out of four behind a version and a kind that exist."""
    noise = random.randbytes(int(random.random() * 96))
    return noise if random.random() < 0.25 else data[:2] + noise


def _flip(random: Random, data: bytes, _other: bytes) -> bytes:
    """One to eight bits are wrong."""
    changed = bytearray(data)
    for _ in range(1 + int(random.random() * 8)):
        bit = int(random.random() * len(data) * 8)
        changed[bit >> 3] ^= 1 << (bit & 7)
    return bytes(changed)


def _cut(random: Random, data: bytes, _other: bytes) -> bytes:
    """The end is missing."""
    return data[: int(random.random() * len(data))]


def _extend(random: Random, data: bytes, other: bytes) -> bytes:
    """Something follows."""
    return data + other[: 1 + int(random.random() * len(other))]


def _splice(random: Random, data: bytes, other: bytes) -> bytes:
    """The head of one packet, the tail of another."""
    return data[: int(random.random() * len(data))] + other[int(random.random() * len(other)) :]


def _tamper(random: Random, data: bytes, _other: bytes) -> bytes:
    """A number, which may be a count or a length, is extreme; half the time it is among the first fields."""
    width = 1 << int(random.random() * 4)
    at = 2 + int(random.random() * (len(data) if random.random() < 0.5 else 32))
    return overwrite(data, at, width, random.choice(EXTREMES))


EXTREMES = (0, 1, 2, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**63, 2**64 - 1)


def overwrite(data: bytes, at: int, width: int, value: int) -> bytes:
    """Replace the number of this width at this place, as far as the bytes go."""
    piece = (value & ((1 << 8 * width) - 1)).to_bytes(width, "little")
    return (data[:at] + piece + data[at + width :])[: len(data)]


_DAMAGES: tuple[Callable[[Random, bytes, bytes], bytes], ...]
_DAMAGES = (_noise, _flip, _cut, _extend, _splice, _tamper, _tamper)


# The samples.


def make_samples(codec: Codec, seed: int, each: int = 8, members: int = MEMBERS) -> list[Packet]:
    """Small valid packets, `each` of every layout of the codec, for a view of `members` members."""
    random = Random(seed)
    return [_sample(Row(layout.fields, layout.type), random, members) for layout in codec.layouts for _ in range(each)]


def _sample(kind: Field, random: Random, members: int) -> Any:
    """One valid value of a field."""
    match kind:
        case Scalar():
            high = members if kind.ranks else 1 << random.randrange(1, 8 * kind.least + 1)
            return random.randrange(kind.low, max(high, kind.low + 1))
        case Row():
            values = [_sample(part, random, members) for part in kind.fields]
            return tuple(values) if kind.type is tuple else kind.type(*values)
        case Many():
            count = members if kind.bound is Bound.ONE_EACH else random.randrange(min(4, members + 1))
            return tuple(_sample(kind.item, random, members) for _ in range(count))
        case BatchField():
            return _sample_batch(random, members)
    raise Misuse(f"{type(kind).__name__} has no samples: add a case for it here.")


def _sample_batch(random: Random, members: int) -> Batch:
    payloads = [random.randbytes(random.choice((0, 1, 8, 8, 8, 30))) for _ in range(random.randrange(1, 6))]
    to = tuple(sorted(random.sample(range(members), random.randrange(1, members + 1))))
    batch = Batch(
        random.randrange(members),
        random.getrandbits(random.choice((8, 32, 63))),
        payloads,
        random.choice(list(Service)),
        random.choice((None, None, to)),
    )
    return batch if random.random() < 0.75 else batch.placeholder()
