"""A manager of the directory of names on UDP: `directory` is the protocol, this gives it a socket, a clock and a voice.

    datagram   5 u8 · 0x30 u8 · incarnation u64 · length u8 · address · a message (`messages`)

Addresses of the pool are numbers; as multicast addresses they are 239.255.0.0 and up.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from struct import Struct
from time import monotonic_ns
from typing import Any

from unisono.core.errors import Misuse
from unisono.core.types import MemberId
from unisono.papers.directory.directory import Claimed, ClaimRefused, Directory, DirectorySettings, Lost
from unisono.papers.directory.messages import Announce, Message, NameTaken, Probe, Query, Release, make_directory_codec
from unisono.runtime.addresses import Endpoint, sockaddr_of
from unisono.runtime.seal import Seal
from unisono.trace.files import read_text

VERSION, KIND = 5, 0x30
_HEAD = Struct("<BBQB")
DATAGRAMS_A_TURN = 256
OUTCOMES_KEPT = 1_024


class DirectoryNode:
    """One manager that runs."""

    def __init__(
        self,
        udp: socket.socket,
        own: MemberId,
        managers: Sequence[Endpoint],
        key: bytes | None,
        permanent: Mapping[str, int],
        settings: DirectorySettings | None = None,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.directory = Directory(own, settings, permanent)
        self.permanent = dict(permanent)
        self._udp = udp
        self._others = [str(one) for one in managers if str(one) != own.address]
        self._seal = None if key is None else Seal("directory", own, key)
        self._codec = make_directory_codec()
        address = own.address.encode()
        self._head = _HEAD.pack(VERSION, KIND, own.incarnation, len(address)) + address
        self._tell = tell
        self._timer: asyncio.TimerHandle | None = None
        self._outcomes: dict[str, dict[str, Any]] = {}  # of claims, by name
        self.refused = 0

    def open(self) -> None:
        asyncio.get_running_loop().add_reader(self._udp.fileno(), self._read)

    def close(self) -> None:
        """Release the owned names, so that they need not expire."""
        for name in self.directory.owned:
            self.directory.release(name)
        self._turn()
        if self._timer is not None:
            self._timer.cancel()
        asyncio.get_running_loop().remove_reader(self._udp.fileno())

    # Questions of commands.

    def answer(self, question: Mapping[str, Any]) -> Any:
        name = str(question.get("name", ""))
        match question.get("ask"):
            case "status":
                return {"manager": str(self.directory.id), "others": self._others, "owned": len(self.directory.owned)}
            case "claim":
                self._outcomes.pop(name, None)
                self.directory.claim(name, monotonic_ns())
                self._turn()
                return self._outcomes.get(name)
            case "outcome":
                return self._outcomes.get(name)
            case "release":
                self.directory.release(name)
                self._outcomes.pop(name, None)
                self._turn()
                return None
            case "lookup":
                found = self.directory.lookup(name)
                self._turn()
                return None if found is None else self._row(name, found, self.directory.owner_of(name))
            case "list":
                return self._rows()
            case "permanent":
                return [self._row(name, address, None) for name, address in sorted(self.permanent.items())]
        raise Misuse(f"a manager does not know the question {question.get('ask')!r}.")

    def _rows(self) -> list[dict[str, Any]]:
        return [self._row(entry.name, entry.address, entry.owner) for entry in self.directory.entries()]

    def _row(self, name: str, address: int, owner: MemberId | None) -> dict[str, Any]:
        return {"name": name, "number": address, "address": group_address(address), "owner": owner and str(owner)}

    # Turns.

    def _read(self) -> None:
        for _ in range(DATAGRAMS_A_TURN):
            try:
                data = self._udp.recv(65_536)
            except BlockingIOError:
                break
            except OSError:
                continue
            self.receive(data)
        self._turn()

    def receive(self, data: bytes) -> None:
        """Take in a datagram. Anything that is not from another manager is counted as refused."""
        datagram = data if self._seal is None else self._seal.open(data)
        if datagram is None or len(datagram) < _HEAD.size or datagram[:2] != bytes((VERSION, KIND)):
            self.refused += 1
            return
        _, _, incarnation, length = _HEAD.unpack_from(datagram)
        at = _HEAD.size + length
        try:
            sender = MemberId(datagram[_HEAD.size : at].decode(), incarnation)
        except UnicodeDecodeError:
            self.refused += 1
            return
        message = self._codec.decode(memoryview(datagram)[at:], 0, 1)
        if sender.address not in self._others or not isinstance(
            message, Probe | NameTaken | Announce | Release | Query
        ):
            self.refused += 1
            return
        self.directory.receive(sender, message, monotonic_ns())

    def encode(self, message: Message) -> bytes:
        """The datagram that carries a message of this manager, before it is sealed."""
        return self._head + self._codec.encode(message)

    def _turn(self) -> None:
        now = monotonic_ns()
        self.directory.tick(now)
        messages, events = self.directory.drain()
        for message in messages:
            datagram = self.encode(message)
            for other in self._others:
                self._send(datagram, other)
        for event in events:
            self._show(event)
        if self._timer is not None:
            self._timer.cancel()
        deadline = self.directory.deadline
        if deadline is not None:
            self._timer = asyncio.get_running_loop().call_later(max(0, deadline - now) / 1e9, self._turn)

    def _send(self, datagram: bytes, to: str) -> None:
        try:
            self._udp.sendto(datagram if self._seal is None else self._seal.close(datagram), sockaddr_of(to))
        except OSError:
            return  # as if it were lost: everything is asked several times

    def _show(self, happened: Claimed | ClaimRefused | Lost) -> None:
        if isinstance(happened, Claimed):
            self._outcomes[happened.name] = self._row(happened.name, happened.address, self.directory.id)
            self._tell(f"claimed {happened.name!r}: {group_address(happened.address)}")
        elif isinstance(happened, ClaimRefused):
            self._outcomes[happened.name] = {"refused": happened.reason}
            self._tell(f"refused: {happened.reason}")
        else:
            self._outcomes[happened.name] = {"refused": f"{happened.owner} has {happened.name!r} too, and keeps it."}
            self._tell(f"lost {happened.name!r} to {happened.owner}, which has it too")
        while len(self._outcomes) > OUTCOMES_KEPT:
            del self._outcomes[next(iter(self._outcomes))]


def group_address(number: int) -> str:
    """What a number of the pool stands for."""
    return f"239.255.{number >> 8 & 255}.{number & 255}"


def read_permanent(path: Path) -> dict[str, int]:
    """The table of permanent groups: a name and a number a line."""
    try:
        lines = read_text(path).splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror or error if isinstance(error, OSError) else "it is not text"
        raise Misuse(f"the table of permanent groups {path} cannot be read: {why}.") from error
    table: dict[str, int] = {}
    for number, line in enumerate(lines, start=1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        if len(words) != 2 or not words[1].isascii() or not words[1].isdigit() or int(words[1]) >= 65_536:
            raise Misuse(f"{path}, line {number}: {line.strip()!r} is not a name and a number below 65536.")
        if words[0] in table or int(words[1]) in table.values():
            raise Misuse(f"{path}, line {number}: {line.strip()!r} repeats a name or a number; give each its own.")
        table[words[0]] = int(words[1])
    return table
