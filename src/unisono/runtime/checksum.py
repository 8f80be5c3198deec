"""What a datagram of a group without a key ends with: a checksum, against damage on its way. Against people only a key helps.

UDP has one of its own, of 16 bits, which some networks switch off and which lets one damaged datagram in 65,536 pass. A
damaged datagram that looks well-formed would be a lie in a member's name, so it must not get as far as the member.
"""

from __future__ import annotations

from collections.abc import Callable
from zlib import crc32

from unisono.core.types import MemberId
from unisono.core.wire import group_tag
from unisono.core.wire.frame import HEAD_BYTES, VERSION

CHECKSUM_BYTES = 4
CHECKED_BYTES_MAX = 9_216
"""Bytes from the beginning that are covered: what a network carries in one piece. Only loopback carries larger datagrams."""


class Checksum:
    """Closes and opens the datagrams of one group, as a `Seal` does where there is a key."""

    name = "checksum"
    sender: MemberId | None = None
    """A checksum says nothing of who sent a datagram."""

    def __init__(self, group: str) -> None:
        self._tag = group_tag(group).to_bytes(4, "little")
        self.refused = {"damaged": 0}
        self.reason = ""
        """Why the latest datagram that did not open was refused."""
        self.foreign: Callable[[memoryview | bytes], object] = lambda datagram: None
        """Called with each datagram of another group or version."""

    def resalt(self) -> None:
        """There is no key, so nothing can be used twice."""

    def close(self, frame: bytes) -> bytes:
        """The datagram for a frame."""
        checked = frame if len(frame) <= CHECKED_BYTES_MAX else memoryview(frame)[:CHECKED_BYTES_MAX]
        return frame + crc32(checked, len(frame)).to_bytes(CHECKSUM_BYTES, "little")

    def pieces(self, frame: bytes) -> tuple[bytes, ...]:
        """The same datagram, not yet put together."""
        checked = crc32(memoryview(frame)[:CHECKED_BYTES_MAX], len(frame))
        return frame, checked.to_bytes(CHECKSUM_BYTES, "little")

    def open(self, datagram: memoryview | bytes) -> memoryview | bytes | None:
        """The frame in a datagram; None, and counted, if it is damaged. Datagrams of another group or version
        are passed on: the reader of frames refuses them, and says why."""
        if len(datagram) < HEAD_BYTES or datagram[0] != VERSION or datagram[2:HEAD_BYTES] != self._tag:
            self.foreign(datagram)
            return datagram
        frame = datagram[:-CHECKSUM_BYTES]
        stands = crc32(frame[:CHECKED_BYTES_MAX], len(frame))
        if int.from_bytes(datagram[-CHECKSUM_BYTES:], "little") != stands:
            self.refused["damaged"] += 1
            self.reason = "damaged"
            return None
        return frame
