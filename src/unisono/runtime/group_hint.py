"""A hint: one datagram by which a member tells a peer of its own that the two are in different groups.

    plain    version u8 (3) · 0 u8 · group u32 · address length u8 · address · name
    sealed   version u8 (3) · 1 u8 · group u32 · nonce 12 · box (address length u8 · address · name)

Frames carry a hash of their group's name, so a member that hears of another group cannot say which one. A hint carries the
name. `group` is the hash of the group that it is *for*, `address` the sender's own. With a group key, the box is closed with a
key that is derived from it for hints alone, whatever the group: strangers learn nothing from a hint and cannot make one.

A hint answers a datagram, is never larger than that, goes to named peers only, and rarely (`named_peers`). It changes nothing
but a sentence, and nothing answers it, so one that is replayed or forged, where there is no key, does no harm beyond that.
"""

from __future__ import annotations

import os
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from unisono.core.wire import group_tag

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

HINT: Final = 8
"""The version byte of a hint."""
NONCE_BYTES = 12
_HEAD = Struct("<BBI")
_PLAIN, _SEALED = 0, 1


class GroupHint(NamedTuple):
    """What a hint says: a member's address, and the name of its group."""

    address: str
    group: str


class Hints:
    """Makes and reads the hints of one member of one group."""

    def __init__(self, group: str, address: str, key: bytes | None) -> None:
        self._tag = group_tag(group)
        self._is_sealed = key is not None
        self._box = None if key is None else _derive(key)
        own = address.encode()
        self._body = bytes((len(own),)) + own + group.encode()

    def make(self, group_tag: int, bytes_max: int) -> bytes | None:
        """A hint for a member of another group, by that group's hash; None if it would be larger than allowed."""
        head = _HEAD.pack(HINT, _SEALED if self._is_sealed else _PLAIN, group_tag)
        if self._box is None:
            hint = head + self._body
        else:
            nonce = os.urandom(NONCE_BYTES)
            hint = head + nonce + self._box.encrypt(nonce, self._body, head)
        return hint if len(hint) <= bytes_max else None

    def read(self, datagram: memoryview | bytes) -> GroupHint | None:
        """What a hint for this member says; None if it is not for this group, or not authentic."""
        if len(datagram) <= _HEAD.size:
            return None
        head = bytes(datagram[: _HEAD.size])
        if _HEAD.unpack(head) != (HINT, _SEALED if self._is_sealed else _PLAIN, self._tag):
            return None
        body = bytes(datagram[_HEAD.size :])
        if self._box is not None:
            from cryptography.exceptions import InvalidTag

            try:
                body = self._box.decrypt(body[:NONCE_BYTES], body[NONCE_BYTES:], head)
            except (InvalidTag, ValueError):  # ValueError: it is too short for a nonce
                return None
        end = 1 + body[0] if body else 0
        if not 1 < end < len(body):
            return None
        try:
            return GroupHint(body[1:end].decode(), body[end:].decode())
        except UnicodeDecodeError:
            return None


def _derive(key: bytes) -> AESGCM:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return AESGCM(HKDF(algorithm=SHA256(), length=32, salt=None, info=b"unisono group hint 1").derive(key))
