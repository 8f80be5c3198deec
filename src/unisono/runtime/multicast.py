"""IP multicast for what goes to all: one datagram on the wire instead of one a member. An option; protocols do not know of it.

It stands between a driver and its port. What is addressed to several members leaves once, to the multicast address; what is
for one member goes by unicast as before. Members of other groups and of other views hear it too and drop it: the frame says
whom it is for.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Sequence
from struct import Struct

from unisono.core.errors import Misuse
from unisono.runtime.addresses import Endpoint, split
from unisono.runtime.hub import Hub, Receiver
from unisono.runtime.udp import Datagram, UdpSocket

_MREQ = Struct("=4s4s")


def check(address: str) -> Endpoint:
    """A multicast address and a port, or one sentence why not."""
    host, port = split(address, "multicast")
    try:
        is_right = ipaddress.ip_address(host).is_multicast and ":" not in host
    except ValueError:
        is_right = False
    if not is_right or not port:
        raise Misuse(
            f"multicast {address!r} is not an IPv4 multicast address with a port: write one as in 239.1.2.3:7500."
        )
    return Endpoint(host, port)


class MulticastPort:
    """A port that sends to all by IP multicast, over the interface that its unicast address belongs to."""

    def __init__(self, loop: asyncio.AbstractEventLoop, hub: Hub, address: Endpoint) -> None:
        if hub.endpoint.family != socket.AF_INET or hub.endpoint.is_unspecified:
            raise Misuse(f"multicast needs an IPv4 address of one interface to listen on, not {hub.endpoint}.")
        self._loop = loop
        self._hub = hub
        self._all = (str(address),)
        self._address = address
        self._inlet: UdpSocket | None = None
        self.endpoint = hub.endpoint

    def open(self, group: str, receiver: Receiver) -> None:
        self._hub.open(group, receiver)
        interface = socket.inet_aton(self.endpoint.host)
        udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            udp.setblocking(False)
            udp.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            udp.bind(self._address.sockaddr)
            joining = _MREQ.pack(socket.inet_aton(self._address.host), interface)
            udp.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, joining)
            self._hub.set_options(
                (socket.IPPROTO_IP, socket.IP_MULTICAST_IF, interface),
                (socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 1),
                (socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 1),  # other members on this machine
            )
        except OSError as error:
            udp.close()
            self._hub.close(group)
            raise Misuse(
                f"multicast at {self._address} by way of {self.endpoint.host} does not work here ({error.strerror}): "
                "leave multicast out."
            ) from error
        self._inlet = UdpSocket(udp, not_from=self.endpoint.sockaddr)  # own datagrams come back too
        self._receiver = receiver
        self._loop.add_reader(self._inlet.fileno(), self._read)

    def close(self, group: str) -> None:
        if self._inlet is not None:
            self._loop.remove_reader(self._inlet.fileno())
            self._inlet.close()
            self._inlet = None
        self._hub.close(group)

    def release(self) -> None:
        self._hub.release()

    def send(self, datagrams: Sequence[tuple[tuple[str, ...], Datagram]]) -> None:
        self._hub.send([(self._all if len(to) > 1 else to, datagram) for to, datagram in datagrams])

    def source_of(self, datagram: memoryview) -> str:
        return self._hub.source_of(datagram) or ("" if self._inlet is None else self._inlet.source_of(datagram))

    def counters(self) -> dict[str, int]:
        counted = self._hub.counters()
        if self._inlet is not None:
            counted["datagrams received by multicast"] = self._inlet.datagrams_in
        return counted

    def _read(self) -> None:
        if self._inlet is not None and (datagrams := self._inlet.receive()):
            self._receiver(datagrams)
