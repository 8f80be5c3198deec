"""Random numbers that are keyed by what they decide, not by the order of drawing.

A link has a key from the seed and its two ends, and its n-th datagram the key n steps on. So what becomes of a datagram does not
depend on what was drawn for others, and a fault that is taken away changes only what follows from it. One number decides one
thing about one datagram: for each further thing, the key is altered by a constant.

The numbers are those of wyrand: a Weyl sequence, and a product of 128 bits that is folded. Python's own `hash` would be
faster and differs between builds.
"""

from __future__ import annotations

from hashlib import blake2b
from statistics import NormalDist

MASK = (1 << 64) - 1
STEP = 0xA0761D6478BD642F
_FOLD = 0xE7037ED1A0B428DB
_FRACTION = (1 << 53) - 1
_SCALE = 2.0**-53
_DEVIATION = NormalDist().inv_cdf


def key_of(*names: object) -> int:
    """The key of what these names say, such as a seed and a link."""
    text = "/".join(map(str, names))
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")


def number(key: int) -> float:
    """A number from 0 to 1, not included, for this key."""
    product = key * (key ^ _FOLD)
    return ((product >> 64 ^ product) & _FRACTION) * _SCALE


class Lots:
    """Random numbers for what draws more than one, such as a model of delays; its owner sets the key before each use."""

    __slots__ = ("key",)

    def __init__(self) -> None:
        self.key = 0

    def random(self) -> float:
        drawn = number(self.key)
        self.key += 1
        return drawn

    def gauss(self, mu: float, sigma: float) -> float:
        return mu + sigma * _DEVIATION(self.random() or _SCALE)


def pick(key: int, count: int) -> int:
    """A whole number below `count` for this key."""
    return int(number(key) * count)
