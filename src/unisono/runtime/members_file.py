"""`members.dat`: who belongs to a group, a name, a host and a port a line. `#` begins a comment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from unisono.core.errors import Misuse
from unisono.runtime.addresses import is_numeric, split
from unisono.trace.files import read_text


class Listed(NamedTuple):
    """One line of the file."""

    name: str
    host: str
    port: int
    line: int = 0

    @property
    def address(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def read_members(path: Path) -> list[Listed]:
    """The members of a file, in its order; what is wrong is told with its line."""
    try:
        text = read_text(path)
    except OSError as error:
        raise Misuse(
            f"the members file {path} cannot be read: {error.strerror or error}. Give its place with --members."
        ) from error
    except UnicodeDecodeError:
        raise Misuse(f"the members file {path} is not text: write a name, a host and a port a line.") from None
    return parse_members(text, str(path))


def parse_members(text: str, where: str) -> list[Listed]:
    listed: dict[str, Listed] = {}
    addresses: dict[tuple[str, int], str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        for one in _parse_line(line, number, f"{where}, line {number}"):
            if one.name in listed:
                raise Misuse(f"{where}, line {number}: the name {one.name!r} is there twice; give each member its own.")
            at = one.host, one.port
            if at in addresses:
                raise Misuse(
                    f"{where}, line {number}: {one.address} is {addresses[at]!r} already; give each its own port."
                )
            listed[one.name] = one
            addresses[at] = one.name
    if not listed:
        raise Misuse(f"{where} names no member: write a name, a host and a port a line, as in `alpha 127.0.0.1 7400`.")
    return list(listed.values())


def _parse_line(line: str, number: int, where: str) -> Iterator[Listed]:
    words = line.partition("#")[0].replace(",", " ").split()
    if not words:
        return
    if len(words) != 3:
        raise Misuse(f"{where}: {line.strip()!r} is not a name, a host and a port, as in `alpha 127.0.0.1 7400`.")
    name, host, port = words
    if not port.isascii() or not port.isdigit() or not 0 < int(port) <= 65_535:
        raise Misuse(f"{where}: {port!r} is not a port; write a number from 1 to 65535.")
    if ":" in host and not is_numeric(host):
        raise Misuse(f"{where}: {host!r} is not a host; write a name or an address, and the port after a space.")
    one = Listed(name, host, int(port), number)
    split(one.address, where)
    yield one


def find_member(members: Sequence[Listed], name: str | None, where: str) -> Listed:
    """The local one, by the name that it has in the file."""
    names = ", ".join(member.name for member in members)
    if name is None:
        raise Misuse(f"which member of {where} is this one? Give its name with -S: {names}.")
    for member in members:
        if member.name == name:
            return member
    raise Misuse(f"{where} has no member {name!r}: it names {names}.")
