"""Real links between member processes: each has a network namespace, and all are on one bridge in a namespace of its own.

The bridge can be parted. Links go down and up, lose datagrams or cut one direction (nftables, at the receiver), and become narrow
(tbf, at the sender). Nothing of it touches the machine's own network. Namespaces have the pid of their test in their names; those
of tests that are no more are removed by the next one.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

from tests.net.stage import Stage

MTU = 1_500
PORT = 7400
PARTS_MAX = 2
SETTINGS = Path("/etc/netns")
"""Files here, in a folder with a namespace's name, stand for those in /etc for what `ip netns exec` runs in it."""
_NUMBERS = count()
_NAME = re.compile(r"unisono-(\d+)-\d+-\w")


class Namespaces:
    """So many namespaces, a to h, with the addresses 10.99.0.1 and up, on one bridge."""

    def __init__(self, size: int) -> None:
        self._base = f"unisono-{os.getpid()}-{next(_NUMBERS)}"
        self.names = "abcdefgh"[:size]
        self.made: list[str] = []

    def build(self) -> None:
        bridge = self._make("z")
        for number in range(PARTS_MAX):
            run("ip", "-n", bridge, "link", "add", f"bridge{number}", "type", "bridge")
            run("ip", "-n", bridge, "link", "set", "dev", f"bridge{number}", "up")
        for name in self.names:
            space = self._make(name)
            run(
                "ip", "-n", space, "link", "add", "wire", "mtu", str(MTU), "type", "veth",
                "peer", "name", f"to-{name}", "netns", bridge,
            )  # fmt: skip
            run("ip", "-n", bridge, "link", "set", "dev", f"to-{name}", "mtu", str(MTU), "master", "bridge0", "up")
            run("ip", "-n", space, "address", "add", f"{self.host(name)}/24", "dev", "wire")
            run("ip", "-n", space, "link", "set", "wire", "up")
            run("ip", "-n", space, "link", "set", "lo", "up")

    def _make(self, name: str) -> str:
        space = self.space(name)
        self.made.append(space)
        run("ip", "netns", "add", space)
        return space

    def space(self, name: str) -> str:
        return f"{self._base}-{name}"

    def host(self, name: str) -> str:
        return f"10.99.0.{self.names.index(name) + 1}"

    def address(self, name: str) -> str:
        return f"{self.host(name)}:{PORT}"

    def prefix(self, name: str) -> tuple[str, ...]:
        """What runs a command inside; it becomes the command, so its pid is the command's."""
        return ("ip", "netns", "exec", self.space(name))

    def remove(self) -> None:
        for space in reversed(self.made):
            subprocess.run(["ip", "netns", "delete", space], capture_output=True, check=False)

    # Faults.

    def cut(self, receivers: str, senders: str) -> None:
        """The receivers hear nothing of the senders any more; what they send arrives."""
        for name in receivers:
            hosts = ", ".join(self.host(sender) for sender in senders)
            self._rules(name, f"ip saddr {{ {hosts} }} counter drop")

    def part(self, *parts: str) -> None:
        """Parts that do not hear each other: each gets a bridge of its own. One part of all: the network is whole again."""
        for number, part in enumerate(parts):
            bridge = f"bridge{number}"
            for name in part:
                run("ip", "-n", self.space("z"), "link", "set", "dev", f"to-{name}", "master", bridge)

    def lose(self, percent: int, names: str | None = None) -> None:
        """So many of a hundred packets get lost on their way in, by chance."""
        for name in names or self.names:
            self._rules(name, f"meta l4proto udp numgen random mod 100 < {percent} counter drop")

    def _rules(self, name: str, rule: str) -> None:
        text = f"table inet stage {{\n chain in {{\n type filter hook input priority 0;\n {rule}\n }}\n}}\n"
        self.heal(name)
        run(*self.prefix(name), "nft", "-f", "-", text=text)

    def dropped(self, name: str) -> int:
        """How many packets the rules have dropped."""
        listed = run(*self.prefix(name), "nft", "list", "table", "inet", "stage")
        return sum(map(int, re.findall(r"counter packets (\d+)", listed)))

    def heal(self, names: str | None = None) -> None:
        """No more rules."""
        for name in names or self.names:
            run(*self.prefix(name), "nft", "flush", "ruleset")

    def unplug(self, names: str) -> None:
        """Links down: whoever sends there gets no error, and nothing arrives."""
        for name in names:
            run("ip", "-n", self.space("z"), "link", "set", "dev", f"to-{name}", "down")

    def plug(self, names: str) -> None:
        for name in names:
            run("ip", "-n", self.space("z"), "link", "set", "dev", f"to-{name}", "up")

    def narrow(self, names: str, kilobit_per_s: int) -> None:
        """What these send leaves so slowly; a queue of 32 KiB, and the rest is lost."""
        for name in names:
            run(
                "tc", "-n", self.space(name), "qdisc", "replace", "dev", "wire", "root", "tbf",
                "rate", f"{kilobit_per_s}kbit", "burst", "4kb", "limit", "32kb",
            )  # fmt: skip

    def widen(self, names: str) -> None:
        for name in names:
            run("tc", "-n", self.space(name), "qdisc", "delete", "dev", "wire", "root")

    def fragments(self, name: str) -> int:
        """How many IP fragments a namespace has made because a datagram was larger than the link's MTU."""
        text = run(*self.prefix(name), "cat", "/proc/net/snmp")
        titles, values = (line.split()[1:] for line in text.splitlines() if line.startswith("Ip:"))
        return int(dict(zip(titles, values, strict=True))["FragCreates"])


def run(*command: str, text: str = "") -> str:
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr.strip()}"
    return done.stdout


@cache
def missing() -> str | None:
    """Why there can be no namespaces here; None: there can."""
    for program, package in (("ip", "iproute2"), ("tc", "iproute2"), ("nft", "nftables")):
        if shutil.which(program) is None:
            return f"there is no program {program}: install the package {package}"
    if os.geteuid() != 0:
        return "making network namespaces needs root"
    trial = Namespaces(1)
    try:
        trial.build()
        trial.lose(1)
        trial.narrow("a", 1_000)
    except AssertionError as error:
        return f"this kernel or container allows no network namespaces, nftables or tbf: {error}"
    finally:
        trial.remove()
    return None


def sweep() -> None:
    """Remove what tests left behind that were killed."""
    for folder in (Path("/run/netns"), SETTINGS):
        for path in folder.iterdir() if folder.is_dir() else ():
            found = _NAME.fullmatch(path.name)
            if found is not None and not Path(f"/proc/{found[1]}").exists():
                if folder == SETTINGS:
                    shutil.rmtree(path)
                else:
                    subprocess.run(["ip", "netns", "delete", path.name], capture_output=True, check=False)


@contextmanager
def wired(folder: Path, size: int, **common: Any) -> Iterator[tuple[Stage, Namespaces]]:
    """A stage whose processes are in namespaces."""
    sweep()
    net = Namespaces(size)
    stage: Stage | None = None
    try:
        net.build()
        addresses: Sequence[str] = [net.address(name) for name in net.names]
        stage = Stage(folder, addresses, [net.prefix(name) for name in net.names], **common)
        yield stage, net
    finally:
        if stage is not None:
            stage.clear()
        net.remove()
