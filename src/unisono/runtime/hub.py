"""One socket of one event loop, shared by all groups of the process that listen at its address."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from unisono.core.errors import Misuse
from unisono.core.wire import group_tag
from unisono.core.wire.frame import HEAD_BYTES
from unisono.runtime.addresses import Endpoint, bind, bind_first, bound_endpoint
from unisono.runtime.udp import UdpSocket

if TYPE_CHECKING:
    import socket

Receiver = Callable[[list[memoryview]], None]


class Hub:
    """See the module's text. The socket closes with its last group."""

    def __init__(self, loop: asyncio.AbstractEventLoop, udp: socket.socket) -> None:
        self._loop = loop
        self.endpoint = bound_endpoint(udp)
        self._udp = UdpSocket(udp)
        self.send = self._udp.send
        self.source_of = self._udp.source_of
        self._receivers: dict[bytes, Receiver] = {}
        self.claims = 0
        """How many callers are about to open a group here: each does, or calls `release`."""
        self._names: dict[bytes, str] = {}
        self.refused = 0
        """Datagrams of groups that are not here. Every group is handed them, to say so if one of its peers sent them."""
        loop.add_reader(self._udp.fileno(), self._read)

    def open(self, group: str, receiver: Receiver) -> None:
        tag = group_tag(group).to_bytes(4, "little")
        if tag in self._receivers:
            raise Misuse(
                f"{self.endpoint} already has a member of {self._names[tag]!r}: one address has one member of a group."
            )
        self._receivers[tag] = receiver
        self._names[tag] = group
        self.claims = max(0, self.claims - 1)

    def close(self, group: str) -> None:
        self._receivers.pop(group_tag(group).to_bytes(4, "little"), None)
        self._close_if_unused()

    def release(self) -> None:
        """Give the claim up that `find_hub` made."""
        self.claims = max(0, self.claims - 1)
        self._close_if_unused()

    def _close_if_unused(self) -> None:
        if not self._receivers and not self.claims and self._udp.fileno() >= 0:
            self._loop.remove_reader(self._udp.fileno())
            self._udp.close()
            hubs = _HUBS.get(self._loop, {})
            if hubs.get(str(self.endpoint)) is self:
                del hubs[str(self.endpoint)]

    def abandon(self) -> None:
        """Close the socket of a loop that has ended with groups open."""
        self._udp.close()

    def set_options(self, *options: tuple[int, int, int | bytes]) -> None:
        self._udp.set_options(*options)

    def counters(self) -> dict[str, int]:
        udp = self._udp
        counted = {
            "datagrams received": udp.datagrams_in,
            "datagrams sent": udp.datagrams_out,
            "bytes received": udp.bytes_in,
            "bytes sent": udp.bytes_out,
            "datagrams of other groups": self.refused,
        }
        return counted | {f"socket {reason}": count for reason, count in udp.lost.items()}

    def _read(self) -> None:
        datagrams = self._udp.receive()
        if not datagrams:
            return
        if len(self._receivers) == 1:  # the member itself refuses what is of another group
            (receiver,) = self._receivers.values()
            receiver(datagrams)
            self._udp.heard = None
            return
        sorted_out: dict[bytes, list[memoryview]] = {}
        for datagram in datagrams:
            sorted_out.setdefault(bytes(datagram[2:HEAD_BYTES]), []).append(datagram)
        for tag, some in sorted_out.items():
            found = self._receivers.get(tag)
            if found is not None:
                found(some)
                continue
            self.refused += len(some)
            for receiver in tuple(self._receivers.values()):
                receiver(some)
        self._udp.heard = None


_HUBS: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, Hub]] = WeakKeyDictionary()


def find_hub(loop: asyncio.AbstractEventLoop, listen: Endpoint | None, peers: Sequence[Endpoint]) -> Hub:
    """The socket at an address; without one, at the first of `peers` that is local and free. It stays open until `open` or
    `release` is called."""
    for ended in [one for one in _HUBS if one.is_closed()]:
        for hub in _HUBS.pop(ended).values():
            hub.abandon()
    hubs = _HUBS.setdefault(loop, {})
    found = hubs.get(str(listen)) if listen is not None and listen.port else None
    if found is None:
        found = Hub(loop, bind(listen) if listen is not None else bind_first(peers)[0])
        hubs[str(found.endpoint)] = found
    found.claims += 1
    return found
