"""Free addresses on loopback, and a port that leads nowhere."""

from __future__ import annotations

import socket
from collections.abc import Sequence

from unisono.runtime.addresses import Endpoint
from unisono.runtime.hub import Receiver
from unisono.runtime.udp import Datagram


def free_addresses(count: int, host: str = "127.0.0.1") -> list[str]:
    """Addresses that were free a moment ago. All are held until the last is found, so they differ."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sockets = [socket.socket(family, socket.SOCK_DGRAM) for _ in range(count)]
    try:
        for one in sockets:
            one.bind((host, 0))
        ports = [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()
    return [f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for port in ports]


class Wire:
    """A port that notes when something leaves."""

    endpoint = Endpoint("127.0.0.1", 1)

    def __init__(self, log: list[str]) -> None:
        self._log = log

    def open(self, group: str, receiver: Receiver) -> None: ...

    def close(self, group: str) -> None: ...

    def release(self) -> None: ...

    def send(self, datagrams: Sequence[tuple[tuple[str, ...], Datagram]]) -> None:
        self._log.append("send")

    def source_of(self, datagram: memoryview) -> str:
        return ""

    def counters(self) -> dict[str, int]:
        return {}
