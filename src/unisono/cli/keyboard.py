"""Reads lines from standard input in the background, and writes text above the line being typed.

Reading has a thread of its own: a program that receives must never wait for a person. On a terminal, what arrives is written
above the prompt, and the prompt and what was typed so far are written again, as far as readline knows it.

A line that was typed disappears from the prompt, so that it can be shown where it belongs: Enter hands the line over and empties
it, and `input` goes on without a new line on the screen. Erasing an echoed line instead would race with what arrives just then.
Where Python has no GNU readline, a typed line stays on the screen.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Lock, Semaphore, Thread

from unisono.cli.streams import to_text
from unisono.trace.sanitize import sanitize

AHEAD_LINES_MAX = 1_000
"""Maximum number of lines read ahead; a piped file waits."""


HAND_OVER = (
    "set bell-style none",
    "set enable-bracketed-paste off",  # pasted lines are lines
    "tab: self-insert",
    r'"\C-x\C-t": complete',  # calls the completer, which takes the line
    r'"\C-x\C-e": end-of-history',  # so that a line of the history stays what it was
    r'"\C-x\C-k": kill-whole-line',
    r'"\C-m": "\C-x\C-t\C-x\C-e\C-x\C-k"',
    r'"\C-j": "\C-x\C-t\C-x\C-e\C-x\C-k"',
)
"""What Enter does, for readline."""


class Keyboard:
    """See the module's text. A program has one."""

    def __init__(self, prompt: str = "") -> None:
        self.is_terminal = sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()
        self._prompt = prompt if self.is_terminal else ""
        self._lines: asyncio.Queue[str | None] = asyncio.Queue()
        self._room = Semaphore(AHEAD_LINES_MAX)
        self._loop = asyncio.get_running_loop()
        self._writing = Lock()
        self._is_typing = False
        self._ended = asyncio.Event()

    def __enter__(self) -> Keyboard:
        self._attributes = _terminal_attributes()
        Thread(target=self._read, name="keyboard", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        _restore_terminal(self._attributes)
        if self._is_typing:
            self._write("\r\x1b[K" if self.is_terminal else "")

    # In.

    def __aiter__(self) -> AsyncIterator[str]:
        return self

    async def __anext__(self) -> str:
        line = await self._lines.get()
        if line is None:
            raise StopAsyncIteration
        self._room.release()
        return line

    @property
    def waiting(self) -> int:
        """Lines that were read and not yet taken."""
        return self._lines.qsize() - self._ended.is_set()

    async def ended(self) -> int:
        """Wait until the input has ended. Returns how many lines are left to take."""
        await self._ended.wait()
        return self.waiting

    def _read(self) -> None:
        with suppress(RuntimeError):  # the loop is closed: no line is wanted any longer
            if self.is_terminal:
                self._read_terminal()
            else:
                for line in _piped():
                    self._put(line)
            self._loop.call_soon_threadsafe(self._end)

    def _put(self, line: str) -> None:
        self._room.acquire()
        self._loop.call_soon_threadsafe(self._lines.put_nowait, line)

    def _end(self) -> None:
        self._lines.put_nowait(None)
        self._ended.set()

    def _read_terminal(self) -> None:
        _hand_over_lines(self._put)
        self._is_typing = True
        try:
            while True:
                self._put(input(self._prompt))
        except (EOFError, OSError):
            return
        finally:
            self._is_typing = False

    # Out.

    def say(self, text: str) -> None:
        """Write a line for people, with foreign text made safe."""
        self.write_line(sanitize(text))

    def write_line(self, text: str) -> None:
        """Write a line unchanged, above the line being typed."""
        if self._is_typing:
            self._write(f"\r\x1b[K{text}\n{self._prompt}{sanitize(_typed_so_far())}")
        else:
            self._write(f"{text}\n")

    def _write(self, text: str) -> None:
        with self._writing, suppress(BlockingIOError):
            sys.stdout.write(text)
            sys.stdout.flush()


def _piped() -> Iterator[str]:
    """Lines of a pipe or a file. By hand: a buffered reader that waits in a thread would not let the process end."""
    rest = b""
    while True:
        try:
            piece = os.read(0, 1 << 16)
        except OSError:
            piece = b""
        if not piece:
            break
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            yield to_text(line).rstrip("\r")
    if rest:
        yield to_text(rest)


def _hand_over_lines(take: Callable[[str], None]) -> None:
    """Let Enter hand over what was typed; without GNU readline, `input` returns it as always."""
    try:
        import readline
    except ImportError:
        return
    if "libedit" in (readline.__doc__ or ""):
        return

    def complete(_: str, attempt: int) -> None:
        if attempt == 0:
            line = readline.get_line_buffer()
            if line:
                readline.add_history(line)
            take(line)

    readline.set_completer(complete)
    for wish in HAND_OVER:
        readline.parse_and_bind(wish)


def _typed_so_far() -> str:
    readline = sys.modules.get("readline")
    return readline.get_line_buffer() if readline is not None else ""


def _terminal_attributes() -> list[object] | None:
    with suppress(ImportError, OSError, ValueError):
        import termios

        with suppress(termios.error):
            return termios.tcgetattr(sys.stdin.fileno())
    return None


def _restore_terminal(attributes: list[object] | None) -> None:
    if attributes is not None:
        import termios

        with suppress(termios.error, OSError, ValueError):
            termios.tcsetattr(sys.stdin.fileno(), termios.TCSADRAIN, attributes)  # type: ignore[arg-type]


@contextmanager
def ending_signals() -> Iterator[asyncio.Event]:
    """An event that SIGINT and SIGTERM set, so that a member can leave instead of dying."""
    import signal

    loop = asyncio.get_running_loop()
    end = asyncio.Event()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in before:
        loop.add_signal_handler(number, end.set)
    try:
        yield end
    finally:
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)
