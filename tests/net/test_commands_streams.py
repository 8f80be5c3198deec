"""Standard streams as people and supervisors leave them: closed, in an old encoding, with bytes in them that are no text."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.net.programs import DEADLINE_S, Program, addresses, free_ports


def shell(
    line: str, *words: str, folder: Path, environment: dict[str, str] | None = None, given: bytes = b""
) -> tuple[int, bytes]:
    """Run a command as a shell line with redirections; its exit code and what it wrote to either stream."""
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {line}', "sh", sys.executable, "-m", "unisono", *words],
        input=given,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd=folder,
        env=os.environ | {"XDG_RUNTIME_DIR": str(folder)} | (environment or {}),
        timeout=DEADLINE_S,
    )
    return done.returncode, done.stdout


@pytest.mark.parametrize(
    ("command", "closed"),
    [("node", "<&-"), ("node", ">&-"), ("node", "<&- >&- 2>&-"), ("chat", "<&- >&-"), ("causal", "<&- >&-")],
)
def test_a_member_runs_with_streams_that_are_closed(command: str, closed: str, folder: Path) -> None:
    """Found by reading: its event loop became standard input, and the process was aborted."""
    (folder / "members.dat").write_text(f"alpha 127.0.0.1 {free_ports(1)[0]}\n", "utf-8")
    words = {"causal": ("-S", "alpha")}.get(command, ("lab", "--listen", addresses(1)[0]))
    code, said = shell(closed, command, *words, folder=folder)
    assert code == 0, said
    assert b"Traceback" not in said


def test_a_party_runs_with_its_input_closed(folder: Path) -> None:
    here, there = free_ports(2)
    code, said = shell("<&-", "ptp", "-H", "127.0.0.1", "-P", str(there), "-p", str(here), folder=folder)
    assert (code, said) == (0, b"")


def test_a_terminal_that_lacks_a_letter_is_shown_its_number(folder: Path) -> None:
    """Found by reading: what somebody else casts ended a member whose terminal could not show it."""
    old = {"PYTHONIOENCODING": "latin-1"}
    words = ("node", "lab", "--listen", addresses(1)[0])
    code, said = shell("", *words, folder=folder, environment=old, given="a → é\n".encode())
    assert code == 0, said
    assert rb":0 a \u2192 " + b"\xe9" in said
    code, said = shell("", *words, "--json", folder=folder, environment=old, given="→ 🎵\n".encode())
    assert code == 0, said
    rows = [json.loads(line) for line in said.decode("latin-1").splitlines()]
    assert [row["payload"] for row in rows if row["event"] == "delivery"] == ["→ 🎵"]
    code, said = shell("", "compare", "fifo", "-m", "10", folder=folder, environment=old)
    assert code == 0, said


def test_bytes_that_are_no_text_are_cast_as_they_are(folder: Path) -> None:
    """Found by reading: they became question marks on the way, for everyone and without a word."""
    here = addresses(1)[0]
    code, said = shell("", "node", "lab", "--listen", here, "--json", folder=folder, given=b"a\xff\xfeb\n")
    assert code == 0
    rows = [json.loads(line) for line in said.splitlines()]
    assert [row["payload_base64"] for row in rows if row["event"] == "delivery"] == ["Yf/+Yg=="]
    code, said = shell("", "node", "lab", "--listen", here, folder=folder, given=b"a\xff\xfeb\n")
    assert code == 0
    assert rb":0 a\xff\xfeb" in said


@pytest.mark.parametrize("command", ["node", "chat"])
def test_a_stray_byte_on_a_terminal_ends_nobody(command: str, folder: Path) -> None:
    with Program(command, "lab", "--listen", addresses(1)[0], folder=folder, terminal=True) as one:
        one.expect("view 1@|You are in")
        assert one._terminal is not None
        os.write(one._terminal, b"a\xffb\n")
        one.say("and on")
        if command == "node":
            one.expect(re.escape(r":0 a\xffb"))
            one.expect(":1 and on")
        else:
            one.say("/who")
            one.expect("here: ")
        assert one.finish(signal.SIGINT) == 0


def test_people_are_told_each_others_bytes(folder: Path) -> None:
    code, said = shell(
        "", "chat", "lab", "-n", "ann", "-l", addresses(1)[0], folder=folder, given=b"a\xffb \xe2\x86\x92\n"
    )
    assert code == 0
    assert rb"ann: a\xffb " + "→".encode() in said
