"""One UDP socket: many datagrams a turn, in and out, with as few system calls as the kernel allows.

On Linux, datagrams to one address leave through one call (UDP GSO: equal in length, but for the last), and arrive through one
(GRO). Elsewhere, or where the kernel refuses, each takes a call of its own. Whatever the socket refuses counts as loss: the
streams above heal that anyway.
"""

from __future__ import annotations

import errno
import os
import socket
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from struct import Struct
from typing import Any, TypeAlias

from unisono.core.errors import UnisonoError
from unisono.runtime.addresses import Endpoint, SockAddr, sockaddr_of
from unisono.runtime.forks import disown_in_children

SOL_UDP = 17
UDP_SEGMENT = 103
UDP_GRO = 104
SEGMENTS_MAX = 64
SEGMENTS_BYTES_MAX = 65_000
BUFFER_BYTES = 65_536
BUFFERS = 48
"""Maximum number of receiving calls per turn, so that one busy socket does not shut out everything else in the process."""
SOCKET_BUFFER_BYTES = 4 << 20
LARGE_BYTES = 4_096
"""A datagram of this size is put together by the kernel alone, and the datagram after it arrives in memory of its own."""
_SIZE = Struct("=H")
_GRO_SIZE = Struct("=i")

Datagram: TypeAlias = bytes | tuple[bytes, ...]
"""One datagram, whole or in pieces."""


class UdpSocket:
    """See the module's text. It owns the socket that it is given."""

    def __init__(self, udp: socket.socket, segments: bool = True, not_from: SockAddr | None = None) -> None:
        self._udp = udp
        self._family = udp.family
        self._not_from = not_from  # whose datagrams are left out
        self._buffers = [bytearray(BUFFER_BYTES) for _ in range(BUFFERS)]
        self._views = [memoryview(buffer) for buffer in self._buffers]
        self._ancillary_bytes = socket.CMSG_SPACE(_GRO_SIZE.size) if hasattr(socket, "CMSG_SPACE") else 0
        self._sockaddrs: dict[str, SockAddr] = {}
        self._is_large = False  # the last datagram that arrived
        self.heard: SockAddr | None = None
        """The sender of the datagram that is being handled. What goes to several peers goes to this one last: where members share
        cores, a peer that is woken may take the core of the sender, and this peer is awake already."""
        self._sources: dict[int, SockAddr] = {}  # by buffer: who sent what is in it
        self.segments_out = segments and sys.platform == "linux"
        self.segments_in = self.segments_out and self._ask_for_segments()
        self.datagrams_in = self.datagrams_out = self.bytes_in = self.bytes_out = 0
        self.lost: dict[str, int] = {}
        """Datagrams that could not be sent or received, by the system's reason."""
        enlarge_buffers(udp)
        disown_in_children(self)

    def _ask_for_segments(self) -> bool:
        try:
            self._udp.setsockopt(SOL_UDP, UDP_GRO, 1)
        except OSError:
            return False
        return True

    def set_options(self, *options: tuple[int, int, int | bytes]) -> None:
        for level, name, value in options:
            self._udp.setsockopt(level, name, value)

    def fileno(self) -> int:
        return self._udp.fileno()

    def close(self) -> None:
        self._udp.close()
        self._views.clear()  # a few MiB, which would stay until some day the garbage of a whole member is collected
        self._buffers.clear()

    def disown(self) -> None:
        """In a forked child: read and send nothing, and leave the port to the parent.

        The descriptor stays open, as a socket that never has anything to read: an event loop may watch it.
        """
        file = self._udp.detach()
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as silent:
            os.dup2(silent.fileno(), file, inheritable=False)
        self._views.clear()
        self._buffers.clear()

    # In.

    def receive(self) -> list[memoryview]:
        """What has arrived, up to a limit. The views are good until the next call, and those that are read-only for ever."""
        self._sources.clear()
        arrived = []
        receive = self._udp.recvmsg_into if self.segments_in else self._recvfrom_into
        ancillary_bytes, not_from = self._ancillary_bytes, self._not_from
        for view in self._views:
            try:
                if self._is_large:  # it need not be copied out of a buffer that others will use
                    data, ancillary, _, source = self._udp.recvmsg(BUFFER_BYTES, ancillary_bytes)
                    length, view = len(data), memoryview(data)
                else:
                    length, ancillary, _, source = receive((view,), ancillary_bytes)
                self._is_large = length >= LARGE_BYTES and self.segments_in
            except (BlockingIOError, InterruptedError):
                break
            except OSError as error:
                self._lose(error)
                continue
            if source == not_from:
                continue
            self.heard = self._sources[id(view.obj)] = source
            self.bytes_in += length
            size = length
            for level, kind, data in ancillary:
                if level == SOL_UDP and kind == UDP_GRO and len(data) >= _GRO_SIZE.size:
                    size = _GRO_SIZE.unpack_from(data)[0]
            if 0 < size < length:
                whole = view[:length]
                arrived += [whole[at : at + size] for at in range(0, length, size)]
            else:
                arrived.append(view[:length])
        self.datagrams_in += len(arrived)
        return arrived

    def source_of(self, datagram: memoryview) -> str:
        """The address that a datagram of the last `receive` came from; empty: not known."""
        source = self._sources.get(id(datagram.obj))
        return "" if source is None else str(Endpoint(*source[:2]))

    def _recvfrom_into(self, views: tuple[memoryview], ancillary_bytes: int) -> tuple[int, Any, int, SockAddr]:
        length, source = self._udp.recvfrom_into(views[0])
        return length, (), 0, source

    # Out.

    def send(self, datagrams: Sequence[tuple[tuple[str, ...], Datagram]]) -> None:
        """Send each datagram to its addresses."""
        if self.segments_out and len(datagrams) > 1:
            self._send_segments(datagrams)
            return
        sendto = self._udp.sendto
        for addresses, datagram in datagrams:
            for sockaddr in self._targets(addresses):
                if not isinstance(datagram, bytes):
                    self._send_run([datagram], sockaddr)
                    continue
                try:
                    sendto(datagram, sockaddr)
                except OSError as error:
                    self._lose(error)
                else:
                    self.datagrams_out += 1
                    self.bytes_out += len(datagram)

    def _targets(self, addresses: tuple[str, ...]) -> list[SockAddr]:
        """Where to send to; the peer that is being answered comes last."""
        found, heard, is_heard = [], self.heard, False
        for address in addresses:
            try:
                sockaddr = self._sockaddrs.get(address) or self._find(address)
            except OSError as error:
                self._lose(error)
                continue
            if sockaddr == heard:
                is_heard = True
            else:
                found.append(sockaddr)
        if is_heard and heard is not None:
            found.append(heard)
        return found

    def _send_segments(self, datagrams: Iterable[tuple[tuple[str, ...], Datagram]]) -> None:
        queues: dict[str, list[Datagram]] = {}
        for addresses, datagram in datagrams:
            for address in addresses:
                queues.setdefault(address, []).append(datagram)
        for address, queue in queues.items():
            try:
                sockaddr = self._sockaddrs.get(address) or self._find(address)
            except OSError as error:
                self._lose(error, len(queue))
                continue
            for run in runs_of(queue):
                self._send_run(run, sockaddr)

    def _send_run(self, run: list[Datagram], sockaddr: SockAddr) -> None:
        first = run[0]
        try:
            if len(run) > 1:
                self._udp.sendmsg(run, ((SOL_UDP, UDP_SEGMENT, _SIZE.pack(len(first))),), 0, sockaddr)  # type: ignore[arg-type]
            elif isinstance(first, bytes) or sys.platform == "win32":
                self._udp.sendto(first if isinstance(first, bytes) else b"".join(first), sockaddr)
            else:
                self._udp.sendmsg(first, (), 0, sockaddr)
        except OSError as error:
            if len(run) > 1 and error.errno in (errno.EMSGSIZE, *_NO_SEGMENTS):
                if error.errno != errno.EMSGSIZE:  # which says that this path has become too narrow for them
                    self.segments_out = False  # the path or the kernel cannot: one by one from now on
                for datagram in run:
                    self._send_run([datagram], sockaddr)
                return
            self._lose(error, len(run))
        else:
            self.datagrams_out += len(run)
            self.bytes_out += sum(map(len, run if isinstance(first, bytes) else first))

    def _find(self, address: str) -> SockAddr:
        """Peers may make addresses up: only a number of this socket's family will do. A name would be looked up here and now."""
        try:
            found = sockaddr_of(address)
            socket.inet_pton(self._family, found[0])
        except (ValueError, UnisonoError, OSError) as error:
            raise OSError(errno.EADDRNOTAVAIL, str(error)) from error
        self._sockaddrs[address] = found
        if len(self._sockaddrs) > 65_536:
            self._sockaddrs.pop(next(iter(self._sockaddrs)))
        return found

    def _lose(self, error: OSError, count: int = 1) -> None:
        reason = errno.errorcode.get(error.errno or 0, "unknown")
        self.lost[reason] = self.lost.get(reason, 0) + count


_NO_SEGMENTS = (errno.EIO, errno.EINVAL, errno.EOPNOTSUPP, errno.ENOPROTOOPT)


def enlarge_buffers(udp: socket.socket) -> None:
    """Make the socket's buffers as large as allowed; a privileged process may exceed the system's limit."""
    for option, forced in ((socket.SO_RCVBUF, 33), (socket.SO_SNDBUF, 32)):
        for choice in (forced, option) if sys.platform == "linux" else (option,):
            try:
                udp.setsockopt(socket.SOL_SOCKET, choice, SOCKET_BUFFER_BYTES)
                break
            except OSError:
                continue


def runs_of(datagrams: Iterable[Datagram]) -> list[list[Datagram]]:
    """Cut a queue into runs that one call can send: all of one length, but the last of a run may be shorter. What comes in pieces
    is large and goes alone."""
    runs: list[list[Datagram]] = []
    size = total = 0
    is_open = False
    for datagram in datagrams:
        if not isinstance(datagram, bytes):
            runs.append([datagram])
            is_open = False
            continue
        length = len(datagram)
        run = runs[-1] if is_open else []
        if is_open and length <= size and len(run) < SEGMENTS_MAX and total + length <= SEGMENTS_BYTES_MAX:
            run.append(datagram)
            total += length
            is_open = length == size
        else:
            runs.append([datagram])
            size = total = length
            is_open = True
    return runs
