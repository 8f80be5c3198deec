"""Words of others on a terminal: they are shown letter by letter, in tables as elsewhere, and do nothing."""

from __future__ import annotations

from typing import Any

import pytest
from rich.console import Console

from unisono.cli import check_net, show, status
from unisono.papers.directory import commands as directory
from unisono.runtime.netcheck import Pair
from unisono.trace.sanitize import cut, sanitize, sanitize_lines

HOSTILE = ["[/b]", "[red]x", "[fe80::1]:7400#3", "a\x1b]0;owned\x07b", "\x9b2J", "\u202eb"]


@pytest.fixture
def console(monkeypatch: pytest.MonkeyPatch) -> Console:
    """What all commands print to, as wide as it must be."""
    console = Console(width=300, highlight=False, color_system="truecolor", force_terminal=True)
    for module in (check_net, directory, show, status):
        monkeypatch.setattr(module, "out", console)
    return console


def status_of(text: str) -> dict[str, Any]:
    return {
        "group": text, "order": "fifo", "member": text, "pid": 1, "view": text, "members": [text], "primary": True,
        "changing": False, "leaving": False, "unfinished": 0, "queued_batches": 0, "queued_bytes": 0, "suspects": [text],
        "undecided": text, "drops": {text: 1}, "waits": [text], "peers": [text],
    }  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE)
def test_tables_show_what_others_are_called(text: str, console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    """Found by reading: a table took names for markup. IPv6 addresses vanished, and `[/b]` ended the command."""

    def shown(times: int) -> None:
        page = capture.get()
        assert page.count(sanitize(text)) == times
        assert text == sanitize(text) or text not in page

    with console.capture() as capture:
        console.print(status._page([status_of(text)]))
    shown(9)
    monkeypatch.setattr(status, "find_members", list)
    monkeypatch.setattr(status, "choose", lambda *_: None)
    row = {"rank": 0, "member": text, "unacknowledged": 0, "self": False, "suspected": False}
    monkeypatch.setattr(status, "_ask", lambda *_: [row])
    with console.capture() as capture:
        status.members()
    shown(1)
    monkeypatch.setattr(status, "_ask", lambda *_: [text])
    with console.capture() as capture:
        status.explain()
    shown(1)
    with console.capture() as capture:
        directory._show([{"name": text, "address": "239.255.0.1", "owner": text}], json=False)
    shown(2)
    with console.capture() as capture:
        console.print(check_net._table([Pair(text, text, f"nothing arrives: {text}")]))
    shown(3)


def test_text_of_others_moves_no_cursor() -> None:
    assert sanitize("a\x1b[2Jb\r\x07é\u202e\n") == "a\\x1b[2Jb\\r\\x07é\\u202e\\n"
    assert sanitize(b"a\xffb\x9b".decode(errors="surrogateescape")) == "a\\xffb\\x9b"
    assert sanitize_lines("a\nb\r") == "a\nb\\r"
    assert cut("x" * 500) == "x" * 500
    assert cut("x" * 1_501) == "x" * 500 + "… (1,501 letters)"
