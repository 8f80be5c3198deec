"""The outermost bytes of every datagram: which group, and whether it belongs to a view's streams or to membership.

    head     version u8 · kind u8 · group u32
    STREAM   a datagram of the view's streams (`envelope`), which names view and sender
    CONTROL  incarnation u64 · length u8 · address · tickets (`tickets`) · a message of membership (`control`)
    CLIENT   the same without tickets: a message between a member and a client outside (`services.client_messages`)

A control message names its sender, because it may come from a process that is in no view; so does a client's. The group
is a hash of its name: one socket serves many groups, and a datagram of another group is dropped before anything else of it is read.
"""

from __future__ import annotations

from hashlib import blake2b
from struct import Struct
from typing import NamedTuple

from unisono.core.errors import Misuse
from unisono.core.incarnation import INCARNATION_MAX
from unisono.core.types import MemberId

VERSION = 7
"""The first byte. Earlier versions, and other kinds of datagrams at the same sockets, begin with other numbers."""
STREAM, CONTROL, CLIENT = 1, 2, 3
_HEAD = Struct("<BBI")
_SENDER = Struct("<QB")
HEAD_BYTES = _HEAD.size
ADDRESS_BYTES_MAX = 255


def group_tag(name: str) -> int:
    """A group's name in 32 bits."""
    return int.from_bytes(blake2b(name.encode(), digest_size=4).digest(), "little")


class Frames:
    """Makes and opens the frames of one member of one group; what is refused is counted by reason."""

    def __init__(self, group: str, member: MemberId, incarnation_max: int = INCARNATION_MAX) -> None:
        """`incarnation_max`: what comes from a higher life is refused (`incarnation.highest_credible`)."""
        tag = group_tag(group)
        address = member.address.encode()
        if not 0 < len(address) <= ADDRESS_BYTES_MAX:
            raise Misuse(
                f"the address {member.address!r} has {len(address)} bytes: give one of 1 to {ADDRESS_BYTES_MAX}."
            )
        self.stream_head = _HEAD.pack(VERSION, STREAM, tag)
        """What a datagram of the view's streams begins with."""
        sender = _SENDER.pack(member.incarnation, len(address)) + address
        self._control = _HEAD.pack(VERSION, CONTROL, tag) + sender
        self._client = _HEAD.pack(VERSION, CLIENT, tag) + sender
        self._incarnation_max = incarnation_max
        self.refused = {"version": 0, "group": 0, "kind": 0, "sender": 0, "incarnation": 0}

    def control(self, message: bytes) -> bytes:
        return self._control + message

    def client(self, message: bytes) -> bytes:
        return self._client + message

    def is_client(self, datagram: bytes | memoryview) -> bool:
        """Whether a datagram is between this group and a client; `open` refuses those."""
        return datagram[:HEAD_BYTES] == self._client[:HEAD_BYTES]

    def open_client(self, datagram: bytes | memoryview) -> ControlFrame | None:
        """What a datagram for which `is_client` holds says; None if it is no use."""
        return self._open_control(memoryview(datagram))

    def open(self, datagram: bytes | memoryview) -> ControlFrame | None:
        """What a datagram of membership says; None if it is nothing for this group.

        The caller has looked for `stream_head` before, which most datagrams begin with.
        """
        if len(datagram) < HEAD_BYTES or datagram[0] != VERSION:
            self.refused["version"] += 1
            return None
        if datagram[2:HEAD_BYTES] != self.stream_head[2:HEAD_BYTES]:
            self.refused["group"] += 1
            return None
        if datagram[1] != CONTROL:
            self.refused["kind"] += 1
            return None
        return self._open_control(memoryview(datagram))

    def _open_control(self, datagram: memoryview) -> ControlFrame | None:
        start = HEAD_BYTES + _SENDER.size
        if len(datagram) >= start:
            incarnation, length = _SENDER.unpack_from(datagram, HEAD_BYTES)
            if incarnation > self._incarnation_max:
                self.refused["incarnation"] += 1
                return None
            if length and len(datagram) >= start + length:
                try:
                    address = str(datagram[start : start + length], "utf-8")
                except UnicodeDecodeError:
                    pass
                else:
                    return ControlFrame(MemberId(address, incarnation), datagram[start + length :])
        self.refused["sender"] += 1
        return None


class ControlFrame(NamedTuple):
    """A message of membership or of a client, and who says that it sent it."""

    sender: MemberId
    message: memoryview
