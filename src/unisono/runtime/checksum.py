"""What a datagram of a group without a key ends with: a checksum, against damage on its way. Against people only a key helps.

UDP has one of its own, of 16 bits, which some networks switch off and which lets one damaged datagram in 65,536 pass. A
damaged datagram that looks well-formed would be a lie in a member's name, so it must not get as far as the member.
"""

from __future__ import annotations

from collections.abc import Callable
from zlib import crc32

from unisono.core.types import MemberId
from unisono.core.wire.frame import HEAD_BYTES, VERSION, group_tag

CHECKSUM_BYTES = 4
CHECKED_BYTES_MAX = 9_216
"""So much from the beginning is covered: whatever a network carries in one piece. Larger datagrams exist on loopback alone."""


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
        return b"".join(self.pieces(frame))

    def pieces(self, frame: bytes) -> tuple[bytes, ...]:
        """The same datagram, not yet put together."""
        checked = crc32(memoryview(frame)[:CHECKED_BYTES_MAX], len(frame))
        return frame, checked.to_bytes(CHECKSUM_BYTES, "little")

    def open(self, datagram: memoryview | bytes) -> memoryview | bytes | None:
        """The frame in a datagram; None, and counted, if it is damaged. What is of another group or version is not judged here:
        whoever looks at frames refuses it, and says so better."""
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
