"""One box around each datagram: authenticated and encrypted, fresh, from a known life of a known member.

    sealed   version u8 (2) · 0 u8 · group u32 · identity length u8 · incarnation u64 · salt 16 · address · counter u64 · box

The box holds an ordinary frame; everything before it is authenticated with it. The key of a life is HKDF-SHA256 of the group key
with the boot salt, bound to group, address and incarnation; the nonce is the counter, so a life never uses one twice, and no
two lives share a key even if clock and incarnation file fail together. A datagram opens only if key, identity and counter all fit:

1. The identity's bytes are looked up among the lives that have sent something authentic. An unknown one costs a key derivation
   and nothing is kept of it unless the box opens.
2. The counter must be new in that life's replay window (65,536 back).
3. The box must open.

Of the `LIVES_MAX` lives that were heard last the windows are kept, so many clients do not push out a member that speaks. A box
of a life that is forgotten, or one that was meant for another receiver or an earlier life of this one, opens here once more: no
window can know better. What it holds must bear that: streams name their view, membership the lives, point-to-point links the life
that they speak to, and clients what their contact gave them (`services/client_desk.py`).

A group without a key speaks plain frames, and only where nobody else can listen (loopback) unless told otherwise.
"""

from __future__ import annotations

import os
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from struct import Struct
from typing import TYPE_CHECKING, Final

from unisono.core.envelope import ReplayWindow
from unisono.core.errors import Misuse
from unisono.core.frame import CLIENT, CONTROL, HEAD_BYTES, group_tag
from unisono.core.types import MemberId

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

SEALED: Final = 2
"""The version byte of a sealed datagram."""
SALT_BYTES = 16
KEY_BYTES = 32
TAG_BYTES = 16
LIVES_MAX = 4_096
_HEAD = Struct("<BBIB")
_INCARNATION = Struct("<Q")
_COUNTER = Struct("<Q")
_KEY_FORM = re.compile(r"unisono-key-1:([A-Za-z0-9_-]{43})=?\s*")
_NAMED = (bytes((CONTROL,)), bytes((CLIENT,)))  # frames that say who sent them
KEY_VARIABLE = "UNISONO_KEY"


def overhead(address: str) -> int:
    """How many bytes a seal adds to a datagram of this member."""
    return _HEAD.size + _INCARNATION.size + SALT_BYTES + len(address.encode()) + _COUNTER.size + TAG_BYTES


def make_key() -> str:
    """A new group key, as text for a file or an environment variable."""
    return "unisono-key-1:" + urlsafe_b64encode(os.urandom(KEY_BYTES)).decode()


def read_key(text: str, where: str) -> bytes:
    match = _KEY_FORM.fullmatch(text.strip())
    if match is None:
        raise Misuse(f"{where} holds no group key: `unisono keygen` makes one.")
    return urlsafe_b64decode(match[1] + "=")


def find_key(key: str | bytes | os.PathLike[str] | None, environment: Mapping[str, str] = os.environ) -> bytes | None:
    """The group key: 32 bytes, a key's text, a file that holds it, or the environment's; None if there is none."""
    if isinstance(key, bytes):
        if len(key) != KEY_BYTES:
            raise Misuse(f"a group key has {KEY_BYTES} bytes, not {len(key)}: `unisono keygen` makes one.")
        return key
    if key is None:
        text = environment.get(KEY_VARIABLE)
        return None if not text else read_key(text, f"the environment variable {KEY_VARIABLE}")
    if isinstance(key, str) and key.startswith("unisono-key-1:"):
        return read_key(key, "the given key")
    if not isinstance(key, str | os.PathLike):
        raise Misuse(f"a group key is a text, bytes or a file, not {type(key).__name__}: `unisono keygen` makes one.")
    path = Path(key)
    try:
        text = path.read_text(encoding="ascii", errors="replace")
    except OSError as error:
        raise Misuse(f"the key file {path} cannot be read: {error.strerror}. `unisono keygen` makes one.") from error
    return read_key(text, f"the file {path}")


class _Life:
    """One sender: its key, and which of its counters were seen."""

    __slots__ = ("box", "control_head", "member", "window")

    def __init__(self, member: MemberId, box: AESGCM) -> None:
        self.member = member
        self.box = box
        self.window = ReplayWindow()
        address = member.address.encode()
        self.control_head = _INCARNATION.pack(member.incarnation) + bytes((len(address),)) + address


class Seal:
    """Closes and opens the datagrams of one member of one group."""

    name = "seal"

    def __init__(self, group: str, member: MemberId, key: bytes) -> None:
        self._key = key
        self._tag = group_tag(group).to_bytes(4, "little")
        self._group = group.encode()
        salt = os.urandom(SALT_BYTES)
        address = member.address.encode()
        self._identity = _INCARNATION.pack(member.incarnation) + salt + address
        self._prefix = _HEAD.pack(SEALED, 0, group_tag(group), len(self._identity)) + self._identity
        self._box = self._derive(self._identity)
        self._counter = 0
        self._lives: OrderedDict[bytes, _Life] = OrderedDict()  # the one that was heard last is last
        self.refused = dict.fromkeys(("unsealed", "short", "group", "identity", "replayed", "seal", "own", "sender"), 0)
        self.sender: MemberId | None = None
        """Who has sealed the datagram that was opened last. One of a stream claims a rank instead, which depends on the view."""
        self.stranger = ""
        """Who the latest datagrams that did not open say to be from: somebody unknown here, and nothing vouches for it."""
        self.stranger_datagrams = 0
        """How many in a row. The next one of theirs that opens ends it."""

    def _derive(self, identity: bytes) -> AESGCM:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF

        salt = identity[_INCARNATION.size : _INCARNATION.size + SALT_BYTES]
        life = identity[: _INCARNATION.size] + identity[_INCARNATION.size + SALT_BYTES :]
        about = b"unisono 1 " + len(self._group).to_bytes(2, "little") + self._group + life
        return AESGCM(HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=salt, info=about).derive(self._key))

    def close(self, frame: bytes) -> bytes:
        return b"".join(self.pieces(frame))

    def pieces(self, frame: bytes) -> tuple[bytes, ...]:
        """The same datagram, not yet put together."""
        self._counter = counter = self._counter + 1
        head = self._prefix + _COUNTER.pack(counter)
        return head, self._box.encrypt(head[-8:] + b"\0\0\0\0", frame, head)

    def open(self, datagram: memoryview | bytes) -> bytes | None:
        """The frame in a datagram; None, and counted, if it is not authentic or not fresh."""
        from cryptography.exceptions import InvalidTag

        if len(datagram) < _HEAD.size or datagram[0] != SEALED:
            return self._refuse("unsealed")
        if datagram[2:HEAD_BYTES] != self._tag:
            return self._refuse("group")
        at = _HEAD.size + datagram[6]
        if len(datagram) < at + _COUNTER.size + TAG_BYTES:
            return self._refuse("short")
        identity = bytes(datagram[_HEAD.size : at])
        life = self._lives.get(identity)
        if life is None:
            if identity == self._identity:
                return self._refuse("own")
            life = self._newcomer(identity)
            if life is None:
                return self._refuse("identity")
        counter = _COUNTER.unpack_from(datagram, at)[0]
        if not life.window.fresh(counter):
            return self._refuse("replayed")
        head = bytes(datagram[: at + _COUNTER.size])
        try:
            frame = life.box.decrypt(head[-8:] + b"\0\0\0\0", datagram[at + _COUNTER.size :], head)
        except InvalidTag:
            if identity not in self._lives:  # or else it was damaged on its way
                self._note_stranger(life.member.address)
            return self._refuse("seal")
        if frame[1:2] in _NAMED and not frame.startswith(life.control_head, HEAD_BYTES):
            return self._refuse("sender")
        if self.stranger_datagrams and life.member.address == self.stranger:
            self.stranger_datagrams = 0
        life.window.add(counter)
        self._lives[identity] = life
        self._lives.move_to_end(identity)
        if len(self._lives) > LIVES_MAX:
            self._lives.popitem(last=False)
        self.sender = life.member
        return frame

    def _newcomer(self, identity: bytes) -> _Life | None:
        start = _INCARNATION.size + SALT_BYTES
        try:
            address = identity[start:].decode()
        except UnicodeDecodeError:
            return None
        if len(identity) <= start:
            return None
        return _Life(MemberId(address, _INCARNATION.unpack_from(identity)[0]), self._derive(identity))

    def _note_stranger(self, address: str) -> None:
        """One address is all that is kept, whatever comes."""
        if address != self.stranger:
            self.stranger, self.stranger_datagrams = address, 0
        self.stranger_datagrams += 1

    def _refuse(self, reason: str) -> bytes | None:
        self.refused[reason] += 1
        return None
