"""A real name server (dnsmasq) in a namespace, for the others on its bridge. What it knows can be changed while it runs."""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep

from tests.net.namespaces import SETTINGS, Namespaces, run

DOMAIN = "lab.test"
START_S = 10.0


def missing_dns() -> str | None:
    """Why there can be no name server here; None: there can."""
    return None if shutil.which("dnsmasq") else "there is no program dnsmasq: install the package dnsmasq-base"


class NameServer:
    """See the module's text."""

    def __init__(self, folder: Path, net: Namespaces, name: str) -> None:
        self._net, self._name = net, name
        self._records = folder / "hosts"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._write(ready=["192.0.2.1"])  # a signal before it listens to signals would end it
        self._process = subprocess.Popen(
            [
                *self._net.prefix(self._name), "dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--no-resolv",
                "--no-hosts", f"--addn-hosts={self._records}", f"--local=/{DOMAIN}/", "--local-ttl=0", "--pid-file",
                "--user=root", "--bind-interfaces", f"--listen-address={self._net.host(self._name)}",
            ],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        for one in self._net.names:
            folder = SETTINGS / self._net.space(one)
            folder.mkdir(parents=True)
            text = f"nameserver {self._net.host(self._name)}\noptions timeout:1 attempts:1\n"
            (folder / "resolv.conf").write_text(text)
        end = monotonic() + START_S
        while "192.0.2.1" not in self.look_up("ready"):
            assert monotonic() < end, "the name server does not answer"
            assert self._process.poll() is None, "the name server has ended"
            sleep(0.05)

    def look_up(self, host: str) -> str:
        """All addresses of a name, as a member in the first namespace finds them."""
        prefix = self._net.prefix(self._net.names[0])
        done = subprocess.run(
            [*prefix, "getent", "ahosts", f"{host}.{DOMAIN}"], capture_output=True, text=True, check=False
        )
        return done.stdout

    def set(self, **records: list[str]) -> None:
        """These are all the names there are from now on."""
        self._write(**records)
        assert self._process is not None
        self._process.send_signal(signal.SIGHUP)

    def _write(self, **records: list[str]) -> None:
        lines = [f"{number} {host}.{DOMAIN}\n" for host, numbers in records.items() for number in numbers]
        self._records.write_text("".join(lines))

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        for one in self._net.names:
            shutil.rmtree(SETTINGS / self._net.space(one), ignore_errors=True)
        with suppress(OSError):  # unless others are there
            SETTINGS.rmdir()


@contextmanager
def serving_names(folder: Path, net: Namespaces, name: str) -> Iterator[NameServer]:
    """A name server in one namespace, which all of them ask."""
    server = NameServer(folder, net, name)
    try:
        server.start()
        yield server
    finally:
        server.stop()


def add_ipv6(net: Namespaces) -> None:
    """Give every namespace an IPv6 address, fd99::1 and up, beside its IPv4 address."""
    for number, name in enumerate(net.names, start=1):
        run("ip", "-n", net.space(name), "address", "add", f"fd99::{number}/64", "dev", "wire", "nodad")
