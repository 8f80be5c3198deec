"""The examples, with real processes on loopback: what a reader would type, and what must be seen."""

from __future__ import annotations

import importlib.util
import os
import queue
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from time import monotonic
from types import ModuleType

import pytest

import unisono
from tests.runtime.ports import free_addresses

ROOT = Path(__file__).resolve().parents[2]
WAIT_S = 60.0


class Program:
    """One running example: type lines, wait for lines."""

    def __init__(self, *words: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, *words],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
        )
        self.seen: list[str] = []
        self._lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line.rstrip("\n"))
        self._lines.put(None)

    def type(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def wait_for(self, pattern: str) -> str:
        """The next line that matches."""
        end = monotonic() + WAIT_S
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, end - monotonic()))
            except queue.Empty:
                raise AssertionError(f"no line like {pattern!r} after {self.seen}") from None
            if line is None:
                raise AssertionError(f"ended before a line like {pattern!r}: {self.seen}")
            self.seen.append(line)
            if re.search(pattern, line):
                return line

    def end(self) -> None:
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.close()
        if self.process.poll() is None:
            try:
                self.process.wait(WAIT_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def kill(self) -> None:
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()


@contextmanager
def running(*commands: tuple[str, ...]) -> Iterator[list[Program]]:
    programs = [Program(*command) for command in commands]
    try:
        yield programs
    finally:
        for program in programs:
            program.end()


def rotated(addresses: list[str], i: int) -> tuple[str, ...]:
    return (*addresses[i:], *addresses[:i])


def test_the_bulletin_board_has_one_numbering_and_survives_a_kill() -> None:
    addresses = free_addresses(3)
    board = "examples/bulletin_board.py"
    commands = [(board, *rotated(addresses, i), "--name", name) for i, name in enumerate(("ann", "bob", "cid"))]
    with running(*commands) as (ann, bob, cid):
        for one in (ann, bob, cid):
            one.wait_for("-- 3 members")
        ann.type("post lunch?")
        bob.wait_for(r"1\. ann: lunch\?")
        bob.type("reply 1 at noon")
        for one in (ann, cid):
            one.wait_for(r"1\. ↳ bob: at noon")
        ann.kill()
        bob.wait_for("-- 2 members")
        cid.type("post where is ann?")
        bob.wait_for(r"2\. cid: where is ann\?")
        cid.wait_for(r"2\. cid")
        late = Program(board, *rotated(addresses, 0), "--name", "dan")
        try:
            late.wait_for("-- 3 members")
            late.type("show")
            late.wait_for(r"2\. cid: where is ann\?")
            assert late.seen[-3:] == ["1. ann: lunch?", "   ↳ bob: at noon", "2. cid: where is ann?"]
        finally:
            late.end()


def test_the_replicated_map_agrees_on_who_was_first_and_a_joiner_has_it_all() -> None:
    addresses = free_addresses(3)
    with running(*(("examples/replicated_map.py", *rotated(addresses, i)) for i in range(2))) as (one, other):
        one.wait_for("ready")
        other.wait_for("ready")
        one.type("set light off")
        one.wait_for("^off$")
        for program in (one, other):
            program.type("swap light off on")
        answers = sorted(program.wait_for("^(on|no: light is on)$") for program in (one, other))
        assert answers == ["no: light is on", "on"]
        with running(("examples/replicated_map.py", *rotated(addresses, 2))) as (late,):
            late.wait_for("ready")
            late.type("add visits 1")
            late.wait_for("^1$")
            late.type("all")
            late.wait_for('"light": "on"')


def test_the_score_board_has_one_winner() -> None:
    addresses = free_addresses(2)
    board = "examples/score_board.py"
    commands = [
        (board, *rotated(addresses, i), "--player", name, "--goal", "5") for i, name in enumerate(("ann", "bob"))
    ]
    with running(*commands) as programs:
        for one in programs:
            one.wait_for("-- 2 playing")
        for _ in range(5):
            for one in programs:
                one.type("")
        winners = {one.wait_for("has won$") for one in programs}
        assert len(winners) == 1


@pytest.mark.seconds
def test_a_client_locates_things_and_takes_each_once() -> None:
    addresses = free_addresses(2)
    locate = "examples/locate.py"
    with running(
        (locate, "keep", addresses[0], addresses[1], "--has", "printer"),
        (locate, "keep", addresses[1], addresses[0], "--has", "plotter"),
    ) as keepers:
        for one in keepers:
            one.wait_for("-- 2 keepers")

        def ask(verb: str, thing: str) -> str:
            contacts = ("--contact", addresses[0], "--contact", addresses[1])
            done = subprocess.run(
                [sys.executable, locate, verb, thing, *contacts],
                cwd=ROOT,
                capture_output=True,
                text=True,
                timeout=WAIT_S,
            )
            return (done.stdout + done.stderr).strip()

        end = monotonic() + WAIT_S
        while ask("find", "plotter") != f"plotter is at {addresses[1]}":  # its keeper may not have told of it yet
            assert monotonic() < end
        assert ask("take", "plotter") == f"plotter is at {addresses[1]}, and yours now"
        assert ask("take", "plotter") == f"plotter is at {addresses[1]}, but taken"
        assert ask("take", "piano") == "nobody has piano"
        for one in keepers:
            one.process.send_signal(signal.SIGTERM)


BY_HAND = (ROOT / "examples" / "by_hand.py").read_text("utf-8")


def test_two_members_by_hand_agree_without_a_network() -> None:
    done = subprocess.run(
        [sys.executable, "examples/by_hand.py"], cwd=ROOT, capture_output=True, text=True, timeout=WAIT_S
    )
    assert done.stdout.splitlines() == [
        "0.050 s  a:1 enters a view of 2",
        "0.050 s  b:1 enters a view of 2",
        "2.000 s  a:1 delivers question and remark",
        "2.000 s  b:1 delivers question and remark",
        "2.000 s  a:1 delivers answer",
        "2.000 s  b:1 delivers answer",
    ], done.stderr


@pytest.mark.parametrize(
    "next_one",
    [
        "network.pop()",
        "network.pop(chance.randrange(len(network)))",
        "(network.pop(0)[0], b'') if chance.random() < 0.2 else network.pop(0)",
    ],
    ids=["the newest first", "in any order", "a fifth is lost"],
)
def test_members_by_hand_cope_with_what_the_comment_suggests(next_one: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "network.pop(0)" in BY_HAND
    exec(BY_HAND.replace("network.pop(0)", next_one), {"__name__": "by_hand", "chance": Random(7)})
    lines = capsys.readouterr().out.splitlines()
    a, b = ([line.split("delivers ")[1] for line in lines if f"{place} delivers" in line] for place in ("a:1", "b:1"))
    assert a == b
    assert sorted(" and ".join(a).split(" and ")) == ["answer", "question", "remark"]


def load(name: str) -> ModuleType:
    """An example as a module, whose parts can be called."""
    spec = importlib.util.spec_from_file_location(f"example_{name}", ROOT / "examples" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_what_nobody_has_cannot_be_taken() -> None:
    """Found by reading: it counted as taken, and when somebody brought one nobody could have it any more."""
    locate = load("locate")
    keepers = [locate.Keeper() for _ in range(2)]
    client = unisono.MemberId("127.0.0.1:9", 1)
    for number, keeper in enumerate(keepers):
        keeper.name = f"k{number}"
        keeper.learn("k0", ["printer"])
        assert keeper.answer(client, b'["take", "plotter"]') is None
        keeper.learn("k1", ["plotter"])
    answers = [keeper.answer(client, b'["take", "plotter"]') for keeper in keepers]
    assert answers == [None, b"plotter is at k1, and yours now"]
    assert [keeper.answer(client, b'["take", "plotter"]') for keeper in keepers][1] == b"plotter is at k1, but taken"
    assert keepers[0].snapshot() == keepers[1].snapshot()
    late = locate.Keeper()
    late.restore(keepers[0].snapshot())
    assert late.snapshot() == keepers[0].snapshot()
    late.forget_all_but({"k0"})
    assert late.shelves == {"k0": ["printer"]}


@pytest.mark.parametrize("request_", [b"", b"\xff", b"7", b'["take"]', b'{"a": 1}', b"[" * 100_000, b'["take", [1]]'])
def test_no_keeper_ends_by_what_a_client_sends(request_: bytes) -> None:
    """Found by reading: one request that nobody understands ended every keeper."""
    keeper = load("locate").Keeper()
    assert keeper.answer(unisono.MemberId("127.0.0.1:9", 1), request_) is None
    assert keeper.taken == {}


def test_boards_are_merged_item_by_item_whatever_they_say() -> None:
    """Found by reading: of two items with the same words only one was left after a partition."""
    board = load("bulletin_board").Board
    common, left, right = board(), board(), board()
    for part in (common, left, right):
        part.apply("a:0", {"kind": "post", "from": "ann", "text": "lunch?"})
        part.apply("b:0", {"kind": "reply", "from": "bob", "text": "yes", "to": 1})
    left.apply("a:1", {"kind": "post", "from": "ann", "text": "lunch?"})
    left.apply("b:1", {"kind": "reply", "from": "bob", "text": "yes", "to": 1})
    right.apply("c:0", {"kind": "post", "from": "cid", "text": "tea"})
    common.merge([left.snapshot(), right.snapshot()])
    assert common.lines() == ["1. ann: lunch?", "   ↳ bob: yes", "   ↳ bob: yes", "2. ann: lunch?", "3. cid: tea"]


@pytest.mark.parametrize(
    ("words", "line", "seen"),
    [
        (("bulletin_board", "--name", "ann"), b"post caf\xe9 " + b"x" * 70_000, "1. ann: caf\ufffd xxx"),
        (("replicated_map",), b"set k caf\xe9" + b"x" * 70_000, "caf\ufffdxxx"),
        (("score_board", "--player", "ann"), b"\xff" * 70_000, "ann 1"),
    ],
    ids=["bulletin_board", "replicated_map", "score_board"],
)
def test_what_is_read_may_be_a_file_with_anything_in_it(
    words: tuple[str, ...], line: bytes, seen: str, tmp_path: Path
) -> None:
    """Found by reading: a file, nothing at all, a long line and a byte that is no text each ended it, or it hung."""
    name, *more = words
    file = tmp_path / "typed"
    for content in (line + b"\n", b""):
        file.write_bytes(content)
        with file.open("rb") as stdin:
            done = subprocess.run(
                [sys.executable, f"examples/{name}.py", *free_addresses(1), *more],
                cwd=ROOT, stdin=stdin, capture_output=True, text=True, timeout=WAIT_S, env=os.environ | {"PYTHONUTF8": "1"},
            )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert (seen in done.stdout) == bool(content)


def test_the_readme_program_is_the_example_and_says_hello() -> None:
    code = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    assert code is not None
    example = (ROOT / "examples" / "hello.py").read_text("utf-8")
    assert example.endswith(code[1])
    with running(("examples/hello.py",), ("examples/hello.py",)) as programs:
        for one in programs:
            one.wait_for("hello from 127.0.0.1:740")
            one.wait_for("hello from 127.0.0.1:740")
        for one in programs:
            one.kill()


@pytest.mark.parametrize("name", ["bulletin_board", "replicated_map", "score_board", "locate"])
def test_bad_input_is_one_sentence(name: str) -> None:
    words = {
        "bulletin_board": ["7400", "--name", "x"],
        "score_board": ["7400", "--player", "x"],
        "locate": ["keep", "7400"],
    }
    done = subprocess.run(
        [sys.executable, f"examples/{name}.py", *words.get(name, ["7400"])],
        cwd=ROOT, capture_output=True, text=True, timeout=WAIT_S,
    )  # fmt: skip
    assert done.returncode == 1
    assert "write host:port" in done.stderr
    assert "Traceback" not in done.stderr
