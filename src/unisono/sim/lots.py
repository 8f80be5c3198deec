"""Random numbers that are keyed by what they decide, not by the order of drawing.

A link has a key from the seed and its two ends, and its n-th datagram the key n steps on. So what becomes of a datagram does not
depend on what was drawn for others, and a fault that is taken away changes only what follows from it. One number decides one
thing about one datagram: for each further thing, the key is altered by a constant.

The numbers are those of wyrand: a Weyl sequence, and a product of 128 bits that is folded. Python's own `hash` would be
faster and differs between builds.
"""

from __future__ import annotations

from hashlib import blake2b

MASK = (1 << 64) - 1
STEP = 0xA0761D6478BD642F
FOLD = 0xE7037ED1A0B428DB
FRACTION = (1 << 53) - 1
LEAST = 2.0**-53
"""Between two numbers that can be drawn."""


def key_of(*names: object) -> int:
    """The key of what these names say, such as a seed and a link."""
    text = "/".join(map(str, names))
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")


def number(key: int) -> float:
    """A number from 0 to 1, not included, for this key."""
    product = key * (key ^ FOLD)
    return ((product >> 64 ^ product) & FRACTION) * LEAST


def pick(key: int, count: int) -> int:
    """A whole number below `count` for this key."""
    return int(number(key) * count)
