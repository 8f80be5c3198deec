"""One box around each datagram: authenticated and encrypted, fresh, from a known life of a known member.

    sealed   version u8 (6) · 0 u8 · group u32 · identity length u8 · identity · counter u64 · box
    identity check 4 · incarnation u64 · salt (number u32 · 12 random bytes) · address

The box holds an ordinary frame; everything before it is authenticated with it. The key of a salt is HKDF-SHA256 of the group key
with the salt, bound to group, address and incarnation; the nonce is the counter, so a salt never uses one twice, and no
two lives share a key even if clock and incarnation file fail together. A datagram opens only if key, identity and counter all fit:

1. The identity's bytes are looked up among the lives that have sent something authentic. An unknown one must have the right
   check: 4 bytes of keyed BLAKE2s over the rest of the identity, which cost half a microsecond to refuse. Only then is its
   key derived. An identity whose check is right was made by a holder of the group key, so some of them are kept until a box
   opens: a captured head with an invented box behind it costs no second derivation.
2. The counter must be new in that salt's replay window (65,536 back).
3. The box must open.

The windows of the `LIVES_MAX` lives that were heard last are kept; a crowd of clients does not push out a member that speaks.
A box of a life that is forgotten, or one that was meant for another receiver or an earlier life of this one, opens here once
more: no window can know better. What it holds must bear that: streams name their view, membership the lives, point-to-point
links the life that they speak to, and clients what their contact gave them (`services/client_desk.py`).

A member takes a new salt (`resalt`) after `BOXES_MAX` boxes, and after a pause of its process, which may have been copied
meanwhile. Salts of one life are numbered. The windows of the `SALTS_MAX` latest are kept; an unknown salt that is not newer
than the latest whose window was given up is refused as replayed. So a member that takes many salts has one place among the
lives all the same, and none of its boxes opens twice.

In a forked child a seal closes nothing.

A group without a key speaks plain frames, and only on loopback, where no other machine can listen, unless told otherwise.
"""

from __future__ import annotations

import logging
import os
import re
import stat
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2s
from hmac import compare_digest
from pathlib import Path
from struct import Struct
from typing import TYPE_CHECKING, Final

from unisono.core.errors import Misuse
from unisono.core.types import MemberId
from unisono.core.wire import ReplayWindow, group_tag
from unisono.core.wire.frame import CLIENT, CONTROL, HEAD_BYTES
from unisono.runtime.forks import disown_in_children, sentence

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

SEALED: Final = 6
"""The version byte of a sealed datagram."""
SEALED_BEFORE: Final = 2
"""What it was when heads had no check."""
SALT_BYTES = 16
CHECK_BYTES = 4
KEY_BYTES = 32
TAG_BYTES = 16
LIVES_MAX = 4_096
SALTS_MAX = 4
"""Replay windows that are kept of one life."""
CANDIDATES_MAX = 256
"""Identities with the right check of which no box has opened yet."""
BOXES_MAX = 2**32
"""After this many boxes a member takes a new salt."""
_HEAD = Struct("<BBIB")
_INCARNATION = Struct("<Q")
_COUNTER = Struct("<Q")
_SALT_NUMBER = Struct("<I")
_IDENTITY_AT = _HEAD.size
_COUNTER_BYTES = _COUNTER.size
_LEAST_BYTES = _COUNTER.size + TAG_BYTES  # behind an identity
_SALT_AT = CHECK_BYTES + _INCARNATION.size  # in an identity
_ADDRESS_AT = _SALT_AT + SALT_BYTES
_REASONS = ("unsealed", "version", "short", "group", "identity", "replayed", "seal", "own", "sender")
_KEY_FORM = re.compile(r"unisono-key-1:([A-Za-z0-9_-]{43})=?\s*")
_NAMED = (bytes((CONTROL,)), bytes((CLIENT,)))  # frames that say who sent them
KEY_VARIABLE, KEY_FILE_VARIABLE = "UNISONO_KEY", "UNISONO_KEY_FILE"
KEY_FILE_BYTES_MAX = 4_096
LOGGER = logging.getLogger("unisono")
UNKNOWN: Final = "unknown"


def overhead(address: str) -> int:
    """How many bytes a seal adds to a datagram of this member."""
    return _HEAD.size + _ADDRESS_AT + len(address.encode()) + _COUNTER.size + TAG_BYTES


def make_key() -> str:
    """A new group key, as text for a file or an environment variable."""
    return "unisono-key-1:" + urlsafe_b64encode(os.urandom(KEY_BYTES)).decode()


def read_key(text: str, where: str) -> bytes:
    match = _KEY_FORM.fullmatch(text.strip())
    if match is None:
        raise Misuse(f"{where} holds no group key: `unisono keygen` makes one.")
    return _check_key(urlsafe_b64decode(match[1] + "="), where)


def is_key_text(key: object) -> bool:
    """Whether this is a key itself, and not the name of a file."""
    return isinstance(key, str) and key.lstrip().startswith("unisono-key-1:")


def find_key(key: str | bytes | os.PathLike[str] | None, environment: Mapping[str, str] = os.environ) -> bytes | None:
    """The group key: 32 bytes, a key's text, a file that holds it, or the environment's; None if there is none.

    In the environment, `UNISONO_KEY` has the key's text, and `UNISONO_KEY_FILE` names a file; the first one wins.
    """
    if isinstance(key, bytes):
        if len(key) != KEY_BYTES:
            raise Misuse(f"a group key has {KEY_BYTES} bytes, not {len(key)}: `unisono keygen` makes one.")
        return _check_key(key, "the given key")
    if key is None:
        if text := environment.get(KEY_VARIABLE):
            return read_key(text, f"the environment variable {KEY_VARIABLE}")
        key = environment.get(KEY_FILE_VARIABLE) or None
        if key is None:
            return None
    elif is_key_text(key):
        return read_key(str(key), "the given key")
    if not isinstance(key, str | os.PathLike):
        raise Misuse(f"a group key is a text, bytes or a file, not {type(key).__name__}: `unisono keygen` makes one.")
    path = Path(key)
    try:
        with path.open("rb") as file:
            _check_mode(path, os.fstat(file.fileno()))
            text = file.read(KEY_FILE_BYTES_MAX).decode("ascii", "replace")
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise Misuse(f"the key file {path} cannot be read: {why}. `unisono keygen` makes one.") from error
    return read_key(text, f"the file {path}")


def _check_key(key: bytes, where: str) -> bytes:
    if len(set(key)) == 1:
        raise Misuse(
            f"{where} holds one byte {KEY_BYTES} times, which anyone guesses: `unisono keygen` makes a key that none can."
        )
    return key


def _check_mode(path: Path, found: os.stat_result) -> None:
    """Who else on this machine can read the key, or put another one in its place?"""
    if not stat.S_ISREG(found.st_mode):  # a pipe is gone when it is read
        return
    if found.st_mode & stat.S_IRWXO:
        raise Misuse(
            f"every user of this machine can open the key file {path}: run `chmod 600 {path}`, or where it is mounted as a "
            "secret, give that the mode 0400; then consider whether the key is still one."
        )
    if found.st_mode & stat.S_IRWXG:
        LOGGER.warning("the group of users that owns %s can open this key file: run `chmod 600 %s`", path, path)


@dataclass(slots=True)
class _Salts:
    """The salts of one life that were heard of."""

    identities: list[bytes] = field(default_factory=list)
    """Whose windows are kept."""
    retired: int = -1
    """The highest number of a salt whose window was given up."""


class _Life:
    """One sender under one salt: its key, and which of its counters were seen."""

    __slots__ = ("box", "control_head", "member", "name", "window")

    def __init__(self, member: MemberId, name: bytes, box: AESGCM) -> None:
        self.member = member
        self.name = name
        self.box = box
        self.window = ReplayWindow()
        address = member.address.encode()
        self.control_head = _INCARNATION.pack(member.incarnation) + bytes((len(address),)) + address


class _Own:
    """What closes own datagrams: a key, and the counters that it was not used with yet.

    One object, so that every thread that closes a datagram has a key and a counter that belong together.
    """

    __slots__ = ("box", "counters", "prefix")

    def __init__(self, prefix: bytes, box: AESGCM, boxes_max: int) -> None:
        self.prefix = prefix
        self.box = box
        self.counters: Iterator[int] = iter(range(1, boxes_max + 1))


class Seal:
    """Closes and opens the datagrams of one member of one group."""

    name = "seal"

    def __init__(self, group: str, member: MemberId, key: bytes, boxes_max: int = BOXES_MAX) -> None:
        from cryptography.exceptions import InvalidTag

        self._not_authentic = InvalidTag
        self._key = key
        self._tag = group_tag(group).to_bytes(4, "little")
        self._group = group.encode()
        self._check_state = blake2s(key=self._derive_bytes(b"", b"unisono 1 check "), digest_size=CHECK_BYTES)
        self._incarnation, self._address = _INCARNATION.pack(member.incarnation), member.address.encode()
        self._name = self._incarnation + self._address
        self._boxes_max = boxes_max
        self._inherited = ""  # why a forked child cannot use this
        self._made_in = os.getpid()
        self._who = f"{member} joined {group!r}"
        self.salts = 0
        """How many were used so far."""
        self._own: _Own
        self.resalt()
        self._lives: dict[bytes, _Life] = {}  # by identity: all that have sent something authentic
        self._heard: OrderedDict[bytes, _Salts] = OrderedDict()  # by name; the one that was heard last is last
        self._candidates: OrderedDict[bytes, _Life] = OrderedDict()  # by identity; no box has opened yet
        self.refused = dict.fromkeys(_REASONS, 0)
        self.reason = ""
        """Why the latest datagram that did not open was refused; `unknown`: failed authentication, of a life unknown here."""
        self.sender: MemberId | None = None
        """The member that sealed the datagram opened last. A stream's frame only claims a rank, which depends on the view."""
        disown_in_children(self)

    def resalt(self) -> None:
        """Close what comes with another key, and count anew: the process may have been copied, or the counters are used up."""
        if self._inherited:
            raise Misuse(self._inherited)
        salt = _SALT_NUMBER.pack(self.salts) + os.urandom(SALT_BYTES - _SALT_NUMBER.size)
        self.salts += 1
        life = self._incarnation + salt + self._address
        identity = self._check(life) + life
        prefix = bytes((SEALED, 0)) + self._tag + bytes((len(identity),)) + identity
        self._own = _Own(prefix, self._derive(salt, self._name), self._boxes_max)

    def disown(self) -> None:
        """In a forked child: its parent uses the same key and counters, so nothing can be closed here."""
        self._inherited = sentence(self._who, self._made_in)
        self._own.counters = iter(())  # and another salt is refused
        self._key = b""

    def _derive(self, salt: bytes, name: bytes) -> AESGCM:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        return AESGCM(self._derive_bytes(salt, b"unisono 1 ", name))

    def _derive_bytes(self, salt: bytes, purpose: bytes, name: bytes = b"") -> bytes:
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF

        about = purpose + len(self._group).to_bytes(2, "little") + self._group + name
        return HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=salt, info=about).derive(self._key)

    def _check(self, life: bytes) -> bytes:
        """What only holders of the key can put beside an incarnation, a salt and an address."""
        state = self._check_state.copy()
        state.update(life)
        return state.digest()

    def close(self, frame: bytes) -> bytes:
        return b"".join(self.pieces(frame))

    def pieces(self, frame: bytes) -> tuple[bytes, ...]:
        """The same datagram, not yet put together."""
        own = self._own
        while (counter := next(own.counters, None)) is None:
            self.resalt()
            own = self._own
        head = own.prefix + _COUNTER.pack(counter)
        return head, own.box.encrypt(head[-8:] + b"\0\0\0\0", frame, head)

    def open(self, datagram: memoryview | bytes) -> bytes | None:
        """The frame in a datagram; None, and counted, if it is not authentic or not fresh."""
        if len(datagram) < _IDENTITY_AT or datagram[0] != SEALED:
            return self._refuse("version" if datagram[:1] == bytes((SEALED_BEFORE,)) else "unsealed")
        if datagram[2:HEAD_BYTES] != self._tag:
            return self._refuse("group")
        at = _IDENTITY_AT + datagram[6]
        if len(datagram) < at + _LEAST_BYTES:
            return self._refuse("short")
        identity = bytes(datagram[_IDENTITY_AT:at])
        life = known = self._lives.get(identity)
        if life is None:
            life = self._newcomer(identity)
            if life is None:
                return None
        counter = _COUNTER.unpack_from(datagram, at)[0]
        if not life.window.fresh(counter):
            return self._refuse("replayed")
        head = bytes(datagram[: at + _COUNTER_BYTES])
        try:
            frame = life.box.decrypt(head[-8:] + b"\0\0\0\0", datagram[at + _COUNTER_BYTES :], head)
        except self._not_authentic:
            self._refuse("seal")
            if known is None:  # or else it was damaged on its way
                self.reason = UNKNOWN
            return None
        if frame[1:2] in _NAMED and not frame.startswith(life.control_head, HEAD_BYTES):
            return self._refuse("sender")
        life.window.add(counter)
        if known is None:
            self._admit(identity, life)
        else:
            self._heard.move_to_end(life.name)
        self.sender = life.member
        return frame

    def _newcomer(self, identity: bytes) -> _Life | None:
        """A life, or a salt of one, of which no box has opened yet. None, and counted: it is of no use."""
        life = self._candidates.get(identity)
        if life is None:
            if not compare_digest(self._check(identity[CHECK_BYTES:]), identity[:CHECK_BYTES]):
                self._refuse("seal")
                self.reason = UNKNOWN
                return None
            life = self._candidate(identity)
            if life is None:
                return None
        salts = self._heard.get(life.name)
        if salts is not None and _salt_number(identity) <= salts.retired:
            self._refuse("replayed")
            return None
        return life

    def _candidate(self, identity: bytes) -> _Life | None:
        """Derive the key of an identity that a holder of the group key has made."""
        address = identity[_ADDRESS_AT:]
        name = identity[CHECK_BYTES:_SALT_AT] + address
        try:
            text = address.decode()
        except UnicodeDecodeError:
            text = ""
        if not text:
            self._refuse("identity")
            return None
        if name == self._name:
            self._refuse("own")
            return None
        box = self._derive(identity[_SALT_AT:_ADDRESS_AT], name)
        member = MemberId(text, _INCARNATION.unpack_from(name)[0])
        life = self._candidates[identity] = _Life(member, name, box)
        if len(self._candidates) > CANDIDATES_MAX:
            self._candidates.popitem(last=False)
        return life

    def _admit(self, identity: bytes, life: _Life) -> None:
        """The first box under this salt has opened."""
        del self._candidates[identity]
        self._lives[identity] = life
        salts = self._heard.setdefault(life.name, _Salts())
        self._heard.move_to_end(life.name)
        salts.identities.append(identity)
        if len(salts.identities) > SALTS_MAX:
            oldest = min(salts.identities, key=_salt_number)
            salts.identities.remove(oldest)
            salts.retired = _salt_number(oldest)
            del self._lives[oldest]
        if len(self._heard) > LIVES_MAX:
            for forgotten in self._heard.popitem(last=False)[1].identities:
                del self._lives[forgotten]

    def _refuse(self, reason: str) -> bytes | None:
        self.refused[reason] += 1
        self.reason = reason
        return None


def _salt_number(identity: bytes) -> int:
    number: int = _SALT_NUMBER.unpack_from(identity, _SALT_AT)[0]
    return number


def claimed_address(datagram: memoryview | bytes) -> str:
    """The address that a sealed datagram says to be from, before anything vouches for it; empty: it says none."""
    if len(datagram) <= _IDENTITY_AT or datagram[0] != SEALED:
        return ""
    start, end = _IDENTITY_AT + _ADDRESS_AT, _IDENTITY_AT + datagram[6]
    try:
        return str(datagram[start:end], "utf-8") if end <= len(datagram) else ""
    except UnicodeDecodeError:
        return ""
