"""Free addresses on loopback."""

from __future__ import annotations

import socket


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
