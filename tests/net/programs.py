"""Programs of the command line as processes: started, typed into, listened to, ended. Nobody sleeps; everyone waits for a line."""

from __future__ import annotations

import io
import os
import pty
import re
import selectors
import signal
import socket
import subprocess
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

from unisono.cli import main

DEADLINE_S = 30.0


def free_ports(count: int) -> list[int]:
    """Ports of loopback that nobody uses."""
    sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(count)]
    try:
        for udp in sockets:
            udp.bind(("127.0.0.1", 0))
        return [udp.getsockname()[1] for udp in sockets]
    finally:
        for udp in sockets:
            udp.close()


def addresses(count: int) -> list[str]:
    return [f"127.0.0.1:{port}" for port in free_ports(count)]


def _heed_interrupts() -> None:
    """A shell starts what runs in the background deaf to SIGINT, and children inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Program:
    """One process of `unisono`."""

    def __init__(self, *arguments: str, folder: Path, terminal: bool = False, own_group: bool = False) -> None:
        environment = os.environ | {"COLUMNS": "200", "NO_COLOR": "1", "XDG_RUNTIME_DIR": str(folder), "TERM": "xterm"}
        for name in ("UNISONO_DEBUG", "UNISONO_KEY", "UNISONO_KEY_FILE"):
            environment.pop(name, None)
        self._terminal: int | None = None
        inner: int | None = None
        if terminal:
            self._terminal, inner = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "unisono", *arguments],
            stdin=inner if terminal else subprocess.PIPE,
            stdout=inner if terminal else subprocess.PIPE,
            stderr=inner if terminal else subprocess.STDOUT,
            cwd=folder,
            env=environment,
            preexec_fn=_heed_interrupts,
            process_group=0 if own_group else None,
        )
        if inner is not None:
            os.close(inner)
        self.text = ""
        self._at = 0  # how much of the text was waited for

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()
        if self._terminal is not None:
            os.close(self._terminal)

    @property
    def _out(self) -> int:
        if self._terminal is not None:
            return self._terminal
        assert self.process.stdout is not None
        return self.process.stdout.fileno()

    def type(self, text: str) -> None:
        """Type text; a line ends with a newline."""
        if self._terminal is not None:
            os.write(self._terminal, text.encode())
        else:
            assert self.process.stdin is not None
            self.process.stdin.write(text.encode())
            self.process.stdin.flush()

    def say(self, line: str) -> None:
        self.type(line + "\n")

    def expect(self, pattern: str) -> re.Match[str]:
        """Wait for a pattern after everything that was waited for before."""
        end = time.monotonic() + DEADLINE_S
        while (found := re.compile(pattern).search(self.text, self._at)) is None:
            assert self._read(end), f"{pattern!r} did not come; what came: {self.text[self._at :]!r} of {self.text!r}"
        self._at = found.end()
        return found

    def see(self, text: str) -> None:
        """Wait until a text is anywhere in what came."""
        end = time.monotonic() + DEADLINE_S
        while text not in self.text:
            assert self._read(end), f"{text!r} did not come; what came: {self.text!r}"

    def _read(self, end: float) -> bool:
        """More text. False: there is none, in time or at all."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._out, selectors.EVENT_READ)
            if not selector.select(max(0.0, end - time.monotonic())):
                return False
        try:
            piece = os.read(self._out, 1 << 16)
        except OSError:  # a terminal whose process is gone
            piece = b""
        self.text += piece.decode(errors="replace")
        return bool(piece)

    def end_input(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    def finish(self, how: signal.Signals | None = None) -> int:
        """End the input or send a signal, then wait; the exit code."""
        if how is not None:
            self.process.send_signal(how)
        elif self.process.stdin is not None:
            self.end_input()
        return self.wait()

    def wait(self) -> int:
        end = time.monotonic() + DEADLINE_S
        while self._read(end):
            pass
        return self.process.wait(max(1.0, end - time.monotonic()))


class Done:
    """A command that has ended. It ran in this process, which saves the second that a new one takes to start."""

    def __init__(self, *arguments: str, folder: Path | None = None, environment: dict[str, str] | None = None) -> None:
        signals = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGPIPE)}
        before, here, words = dict(os.environ), os.getcwd(), sys.argv
        out, err = io.StringIO(), io.StringIO()
        try:
            for name in [name for name in os.environ if name.startswith("UNISONO")]:
                del os.environ[name]
            os.environ |= {"COLUMNS": "100", "NO_COLOR": "1"} | (environment or {})
            if folder is not None:
                os.environ["XDG_RUNTIME_DIR"] = (environment or {}).get("XDG_RUNTIME_DIR", str(folder))
                os.chdir(folder)
            sys.argv = ["unisono", *arguments]
            with redirect_stdout(out), redirect_stderr(err):
                main()
            self.code = 0
        except SystemExit as end:
            self.code = end.code if isinstance(end.code, int) else int(bool(end.code))
        finally:
            sys.argv = words
            os.chdir(here)
            os.environ.clear()
            os.environ |= before
            for number, handler in signals.items():
                signal.signal(number, handler)
        self.out, self.err = out.getvalue(), err.getvalue()
