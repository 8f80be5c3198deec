"""Which life of the process at an address this is: a number that must rise with every start, and never come again.

Of two lives at one address the group believes the one with the higher number, and a message's key holds the number. So a number
that repeats would give two messages one key, and one that falls would be taken for a ghost. Two witnesses say what is high enough:

- the **record**, written at the last start, holds the last number;
- the **wall clock**, in nanoseconds, is above every number that was taken from it before.

The new number is above what both say, so one of them is enough. A record that is missing, truncated or altered (it has a
checksum) says nothing. A clock that was set back says too little, and the record makes up for it. What this rests on: at every
start the record is whole, *or* the clock reads more than every number so far. If both fail at once, the number falls and nothing
here can see it: the record is lost, and the clock was set back, or an earlier life was named by a clock that was ahead. A member
that remembers the higher number then says so (`control.Outlive`), and the process begins another life above it. Only if the
number should be exactly that of an earlier life, keys repeat.

A number that is years ahead of the clock is not believed (`highest_credible`): what comes from such a life is dropped, because
one forged number, or one start under a wrong clock, would otherwise raise all later ones for good.

The core has no clock and no disk: the driver reads both, and writes the new record to stable storage *before* the first
datagram leaves.
"""

from __future__ import annotations

from hashlib import blake2b
from struct import Struct
from typing import NamedTuple

from unisono.core.errors import Misuse

INCARNATION_MAX = 2**63 - 1
"""The largest that a trace can hold; the wall clock gets there in the year 2262."""

AHEAD_NS_MAX = 10 * 366 * 24 * 3_600 * 10**9
"""How far a life may be ahead of another machine's clock: ten years."""

_MAGIC = b"unisono incarnation 1\n"
_NUMBER = Struct("<Q")
_CHECK_BYTES = 8


class NewIncarnation(NamedTuple):
    """The number of this life, and what must be persisted before anyone hears of it."""

    incarnation: int
    record: bytes


def begin_life(record: bytes | None, wall_ns: int) -> NewIncarnation:
    """The next life: after the one in the record, if that can be read, and not before the clock."""
    last = read_record(record)
    number = max(wall_ns, 0 if last is None else last + 1)
    if number > INCARNATION_MAX:
        raise Misuse(
            f"incarnation {number} is beyond {INCARNATION_MAX}: set the clock right, and start under a new address."
        )
    return NewIncarnation(number, make_record(number))


def highest_credible(wall_ns: int) -> int:
    """The highest incarnation that a process can have begun under, as this machine's clock sees it."""
    return min(wall_ns + AHEAD_NS_MAX, INCARNATION_MAX)


def make_record(incarnation: int) -> bytes:
    body = _MAGIC + _NUMBER.pack(incarnation)
    return body + blake2b(body, digest_size=_CHECK_BYTES).digest()


def read_record(record: bytes | None) -> int | None:
    """The last incarnation; None if there is no record, or if it is not what was written."""
    if record is None or len(record) != len(_MAGIC) + _NUMBER.size + _CHECK_BYTES:
        return None
    (number,) = _NUMBER.unpack_from(record, len(_MAGIC))
    return int(number) if number <= INCARNATION_MAX and make_record(number) == record else None
