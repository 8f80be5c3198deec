"""The commands that join groups and ask members: mistakes are one sentence, help teaches, options are read as they are written."""

from __future__ import annotations

import io
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.net.programs import Done
from unisono.cli import chat
from unisono.cli.show import print_json
from unisono.core.errors import Misuse
from unisono.sim.units import parse_size


def test_a_key_file_that_every_user_can_open_is_one_sentence(tmp_path: Path) -> None:
    assert Done("keygen", "group.key", folder=tmp_path).code == 0
    (tmp_path / "group.key").chmod(0o644)
    answer = Done("node", "lab", "--listen", "127.0.0.1:0", "--key", "group.key", folder=tmp_path)
    assert answer.code == 2
    assert "chmod 600 group.key" in answer.err
    assert answer.err.count("\n") == 1


def test_keygen_writes_for_its_user_alone_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        assert Done("keygen", "group.key", folder=tmp_path).code == 0
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "group.key").stat().st_mode) == 0o600


def test_orders_are_completed_in_the_shell() -> None:
    words = {"COMP_WORDS": "unisono node lab --order to", "COMP_CWORD": "4", "_UNISONO_COMPLETE": "complete_bash"}
    command = [
        sys.executable,
        "-c",
        "import sys; sys.argv = ['unisono']; from unisono.cli.app import app; app(prog_name='unisono')",
    ]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | words)
    assert done.stdout.split() == ["tomp", "toto"]


def test_help_teaches(tmp_path: Path) -> None:
    for command in ("node", "chat", "causal", "ptp", "status", "check-net", "directory", "bench", "keygen"):
        answer = Done(command, "-h", folder=tmp_path)
        assert answer.code == 0
        assert "Usage" in answer.out


@pytest.mark.parametrize(
    ("text", "size"), [("64", 64), ("64B", 64), ("64kB", 64_000), ("1.5 KiB", 1_536), ("2mb", 2_000_000)]
)
def test_sizes_are_read_with_their_units(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "kB", "-1", "64 bits", "1e3", "0x10"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(Misuse, match="is not a size"):
        parse_size(text)


@pytest.mark.parametrize(("encoding", "line"), [("utf-8", '["→"]\n'), ("latin-1", '["\\u2192"]\n')])
def test_json_is_written_at_once_and_is_json_in_every_encoding(
    encoding: str, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by reading: `--watch --json` into a pipe was silent until the pipe's buffer was full."""
    pipe = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(pipe, encoding))
    print_json(["→"])
    assert pipe.getvalue().decode(encoding) == line


def test_a_user_without_a_name_is_called_by_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """Found by reading: in a container, whose users have no names, a chat did not begin."""

    def nobody() -> str:
        raise KeyError("uid not found")

    monkeypatch.setattr(chat, "getuser", nobody)
    assert chat._user() == f"user {os.getuid()}"


def test_whoever_interrupts_a_command_that_is_still_being_loaded_sees_no_page() -> None:
    code = (
        "import sys\n"
        "from unisono.__main__ import main\n"
        "class Interrupted:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'unisono.cli': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupted())\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (130, "")
