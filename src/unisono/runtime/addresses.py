"""Addresses as people write them (`10.0.0.7:7400`, `[::1]:7400`, `alpha.example:7400`) and as sockets want them."""

from __future__ import annotations

import errno
import ipaddress
import socket
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeAlias

from unisono.core.errors import Misuse, UnisonoError
from unisono.runtime.errors import Unavailable

SockAddr: TypeAlias = tuple[str, int] | tuple[str, int, int, int]


class Endpoint(NamedTuple):
    """A numeric address and a port. Its text is what other members know it by."""

    host: str
    port: int

    @property
    def family(self) -> socket.AddressFamily:
        return socket.AF_INET6 if ":" in self.host else socket.AF_INET

    @property
    def is_loopback(self) -> bool:
        return self._ip.is_loopback

    @property
    def is_unspecified(self) -> bool:
        return self._ip.is_unspecified

    @property
    def _ip(self) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
        """An IPv4 address written as IPv6 (`::ffff:127.0.0.1`) reaches what the IPv4 address reaches."""
        ip = ipaddress.ip_address(self.host.partition("%")[0])
        return getattr(ip, "ipv4_mapped", None) or ip

    @property
    def sockaddr(self) -> SockAddr:
        return sockaddr_of(str(self))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def split(text: str, what: str) -> tuple[str, int]:
    """Host and port of an address; `what` names it in the error."""
    if not isinstance(text, str):
        raise Misuse(f"{what} {text!r} is not text: write host:port, as in '127.0.0.1:7400'.")
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise Misuse(f"{what} {text!r} is ambiguous: write an IPv6 address in brackets, as in [::1]:7400.")
    if not colon or not host or not port.isascii() or not port.isdigit():
        raise Misuse(f"{what} {text!r} is not an address: write host:port, as in 127.0.0.1:7400.")
    if int(port) > 65_535:
        raise Misuse(f"{what} {text!r}: the port must be 0 to 65535, as in 127.0.0.1:7400.")
    return host, int(port)


def resolve(text: str, what: str, family: int = 0) -> Endpoint:
    """The numeric form of an address. A host name may take a while: call it where waiting is allowed."""
    return resolve_records(text, what, family)[0]


def resolve_records(text: str, what: str, family: int = 0) -> list[Endpoint]:
    """All numeric addresses that an address stands for, at least one. Raises `Unresolved` for a name that is not known now."""
    host, port = split(text, what)
    try:
        found = socket.getaddrinfo(host, port, family, socket.SOCK_DGRAM)
    except (socket.gaierror, ValueError) as error:  # ValueError: no name of a host can be written so
        if is_numeric(host):
            kind = "IPv6" if family == socket.AF_INET6 else "IPv4"
            raise Misuse(
                f"{what} {text!r} is of another family than the other addresses: write all of them as {kind}."
            ) from error
        said = f"{what} {text!r}: the host {host!r} is not known here; check the name or write its number."
        raise (Unresolved(said) if isinstance(error, socket.gaierror) else Misuse(said)) from error
    return list(dict.fromkeys(Endpoint(str(address[0]), port) for *_, address in found))


class Unresolved(Unavailable):
    """A name that is not known, or not yet."""


def resolve_all(texts: Sequence[str], what: str, family: int = 0) -> list[Endpoint]:
    """The numeric forms of addresses that one socket is to reach, and so all of one family.

    Without one: that of the first that is written as a number, else of the first. A name may stand for addresses of both.
    """
    found: list[Endpoint] = []
    family = family or next((int(one.family) for one in map(_written, texts) if one is not None), 0)
    for text in texts:
        found.append(resolve(text, what, family))
        family = int(found[0].family)
    return found


def _written(text: str) -> Endpoint | None:
    host, _, _ = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    return Endpoint(host, 0) if is_numeric(host) else None


def check_family(endpoints: Iterable[tuple[Endpoint, str]]) -> None:
    """Refuse numeric addresses of both families for one port. A host name may stand for either."""
    first: Endpoint | None = None
    for endpoint, what in endpoints:
        if not is_numeric(endpoint.host):
            continue
        first = first or endpoint
        if endpoint.family != first.family:
            raise Misuse(
                f"{what} '{endpoint}' is {_kind(endpoint)}, but {first} is {_kind(first)}: "
                "write all as IPv4, or all as IPv6."
            )


def _kind(endpoint: Endpoint) -> str:
    return "IPv6" if endpoint.family == socket.AF_INET6 else "IPv4"


def is_numeric(host: str) -> bool:
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


def sockaddr_of(address: str) -> SockAddr:
    """What `sendto` wants, of a numeric address in its text form."""
    host, port = split(address, "the address")
    if ":" not in host:
        return host, port
    host, _, scope = host.partition("%")
    return host, port, 0, socket.if_nametoindex(scope) if scope and not scope.isdigit() else int(scope or 0)


def bind(listen: Endpoint) -> socket.socket:
    """A bound UDP socket, or one sentence why not."""
    udp = socket.socket(listen.family, socket.SOCK_DGRAM)
    try:
        udp.setblocking(False)
        udp.bind(listen.sockaddr)
    except OSError as error:
        udp.close()
        if error.errno == errno.EADDRINUSE:
            raise PortTaken(
                f"the address {listen} is taken by another process: choose another port, or end that process."
            ) from error
        if error.errno == errno.EADDRNOTAVAIL:
            raise NotLocal(
                f"the address {listen} does not belong to this machine: listen on a local one, and name the outer one with "
                "advertise."
            ) from error
        raise Misuse(f"the address {listen} cannot be listened on: {error.strerror}.") from error
    return udp


def is_local(host: str) -> bool:
    """Whether a numeric address belongs to this machine."""
    try:
        bind(Endpoint(host, 0)).close()
    except UnisonoError:
        return False
    return True


class PortTaken(Unavailable):
    """Another process listens there."""


class NotLocal(Misuse):
    """The address is another machine's."""


def bind_first(peers: Iterable[Endpoint]) -> tuple[socket.socket, Endpoint]:
    """A socket at the first of these that is local and free."""
    tried, is_taken = [], False
    for endpoint in peers:
        try:
            return bind(endpoint), endpoint
        except (PortTaken, NotLocal) as error:
            is_taken |= isinstance(error, PortTaken)
            tried.append(f"{endpoint} ({'taken' if isinstance(error, PortTaken) else 'not local'})")
    if not tried:
        raise Misuse("this member has no address to listen on: give listen, or peers with a local address among them.")
    said = f"no address of peers is local and free: {', '.join(tried)}. Give listen."
    raise Unavailable(said) if is_taken else Misuse(said)


def bound_endpoint(udp: socket.socket) -> Endpoint:
    """Where a socket listens; port 0 has become a real one."""
    name = udp.getsockname()
    return Endpoint(str(name[0]), int(name[1]))


def path_mtu(udp_family: int, to: SockAddr) -> int | None:
    """The largest packet of the path to an address, as the routing table knows it."""
    option = getattr(socket, "IPV6_MTU", 24) if udp_family == socket.AF_INET6 else getattr(socket, "IP_MTU", 14)
    level = socket.IPPROTO_IPV6 if udp_family == socket.AF_INET6 else socket.IPPROTO_IP
    with socket.socket(udp_family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(to)
            return probe.getsockopt(level, option)
        except OSError:
            return None


LOOPBACK_DATAGRAM_BYTES = 60_000
LOOPBACK_MTU = 65_536
DATAGRAM_BYTES_MIN = 1_200
HEADERS_BYTES = {socket.AF_INET: 28, socket.AF_INET6: 48}


def datagram_bytes(own: Endpoint, peers: Iterable[Endpoint]) -> int:
    """The largest datagram that fits every path to the peers without being cut on the way.

    Where members may be on other machines, peers on this one say nothing: the way to them is the loopback interface's.
    """
    sizes = [
        mtu - HEADERS_BYTES[own.family]
        for peer in peers
        if peer != own
        and (mtu := path_mtu(own.family, peer.sockaddr)) is not None
        and (own.is_loopback or mtu < LOOPBACK_MTU)
    ]
    if not sizes:
        return LOOPBACK_DATAGRAM_BYTES if own.is_loopback else 1_500 - HEADERS_BYTES[own.family]
    return max(DATAGRAM_BYTES_MIN, min(*sizes, LOOPBACK_DATAGRAM_BYTES))


def outer_host(own: Endpoint, peers: Sequence[Endpoint], expects_more: bool = False) -> str:
    """Which of this machine's addresses the peers would see; if not all are known yet, what most of the world would see."""
    seen: list[str] = []
    anywhere = [Endpoint("2001:db8::1" if own.family == socket.AF_INET6 else "192.0.2.1", own.port)]
    for peer in [*peers, *(anywhere if expects_more else ())]:
        with socket.socket(own.family, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect(peer.sockaddr)  # which sends nothing
                seen.append(str(probe.getsockname()[0]))
            except OSError:
                continue
    outside = [host for host in seen if not Endpoint(host, 0).is_loopback]  # a machine's own name is often on loopback
    if outside or seen:
        return (outside or seen)[0]
    raise Misuse(f"{own} is every address of this machine: say with advertise which one the others shall use.")
