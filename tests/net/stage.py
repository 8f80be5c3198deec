"""The stage of the tests: member processes, what is done to them, what they say, and the verdict on their traces.

Nobody sleeps and hopes: `until` waits for a condition, up to a generous deadline. Processes are ended by their own pid. The
processes themselves are `tests.net.member`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from tests.runtime.ports import free_addresses
from unisono.trace.checks.judge import Result, Verdict, judge_all
from unisono.trace.promises import promises
from unisono.trace.reader import close_killed, read
from unisono.trace.schema import DELIVER

DEADLINE_S = 60.0
PACE = 0.3
ROOT = Path(__file__).resolve().parents[2]
VIEWS = frozenset({"P15", "P16", "P17"})
"""What every run owes besides what its order promises."""


class Process:
    """One member process, and what it has said so far."""

    def __init__(self, name: str, address: str, options: dict[str, Any], prefix: Sequence[str] = ()) -> None:
        self.name, self.address, self.options = name, address, options
        self.lines: list[dict[str, Any]] = []
        self.view: dict[str, Any] = {}
        self.progress: dict[str, Any] = {"delivered": 0, "cast": 0, "shed": 0, "place": []}
        self.id = ""
        self.rests = self.statuses = 0
        self.status: dict[str, Any] = {}
        self.is_stopped = False
        environment = {name: value for name, value in os.environ.items() if not name.startswith("UNISONO")}
        self.process = subprocess.Popen(
            [*prefix, sys.executable, "-m", "tests.net.member", json.dumps(options)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT, env=environment,
        )  # fmt: skip
        self.complaints: list[str] = []
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._listen, self._listen_to_errors)]
        for thread in self._threads:
            thread.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._hear(json.loads(line))

    def _listen_to_errors(self) -> None:
        assert self.process.stderr is not None
        self.complaints += self.process.stderr

    def _hear(self, words: dict[str, Any]) -> None:
        match words["is"]:
            case "progress":
                self.progress = words
                return  # there are many of these
            case "joined":
                self.id = words["id"]
            case "view":
                self.view = words
            case "status":
                self.status = words
                self.statuses += 1
            case "rest":
                self.rests += 1
        self.lines.append(words)

    def said(self, kind: str) -> list[dict[str, Any]]:
        return [line for line in self.lines if line["is"] == kind]

    def tell(self, do: str, **words: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": do, **words}) + "\n")
        self.process.stdin.flush()

    @property
    def delivered(self) -> int:
        return int(self.progress["delivered"])

    @property
    def place(self) -> tuple[Any, ...]:
        """Where it is: the view, and what of it was delivered. With a state, that: a snapshot may hold some of the view."""
        view, *delivered, state = self.progress["place"] or ("", "")
        return (view, state) if state else (view, *delivered)

    @property
    def members(self) -> list[str]:
        return list(self.view.get("members", ()))

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    def send_signal(self, what: signal.Signals) -> None:
        os.kill(self.process.pid, what)
        self.is_stopped = what == signal.SIGSTOP if what in (signal.SIGSTOP, signal.SIGCONT) else self.is_stopped

    def clear(self) -> None:
        if self.is_running:
            self.process.kill()
        self.process.wait()
        for thread in self._threads:
            thread.join()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()

    def __str__(self) -> str:
        said = [line for line in self.lines if line["is"] not in ("status", "misuse", "not primary")][-6:]
        return f"{self.name} {self.address}: {self.progress} {said} {''.join(self.complaints)[-2_000:]}"


class Stage:
    """See the module's text. What all processes have in common is given here, what differs with each start."""

    def __init__(
        self, folder: Path, addresses: Sequence[str], prefixes: Sequence[Sequence[str]], **common: Any
    ) -> None:
        self.traces = folder / "traces"
        self.addresses = list(addresses)
        self.prefixes = list(prefixes)
        self.order: str = common.get("order", "sequencer")
        self.common = {
            "pace": PACE, "timeout": DEADLINE_S, "trace": str(self.traces), "run": "stage", "order": self.order, **common
        }  # fmt: skip
        self.processes: dict[str, Process] = {}  # the latest life of each
        self.all: list[Process] = []
        self.killed: set[str] = set()

    # Doing.

    def start(self, *names: str, **options: Any) -> list[Process]:
        """Start processes; the name says the address: a is the first. A name that was killed comes back."""
        started = []
        for name in names:
            number = "abcdefgh".index(name)
            address = self.addresses[number]
            wishes = {"listen": address, "peers": self.addresses, **self.common, **options}
            if wishes.get("policy") == "primary":
                wishes["journal"] = str(self.traces.parent / f"journal-{name}")
            process = Process(name, address, wishes, self.prefixes[number])
            self.processes[name] = process
            self.all.append(process)
            self.killed.discard(name)
            started.append(process)
        return started

    def gather(self, names: str, **options: Any) -> list[Process]:
        """Start processes, and wait until they are one view."""
        started = self.start(*names, **({"min_members": len(names)} | options))
        self.until_one_view(names)
        return started

    def __getitem__(self, name: str) -> Process:
        return self.processes[name]

    def tell(self, names: Iterable[str], do: str, **words: object) -> None:
        for name in names:
            self[name].tell(do, **words)

    def kill(self, name: str) -> None:
        self.killed.add(name)
        self[name].send_signal(signal.SIGKILL)
        self[name].process.wait()

    def stop(self, name: str) -> None:
        self[name].send_signal(signal.SIGSTOP)

    def go_on(self, name: str) -> None:
        self[name].send_signal(signal.SIGCONT)

    # Waiting.

    def until(self, condition: Callable[[], bool], what: str, deadline_s: float = DEADLINE_S) -> None:
        """Wait until something holds. A process that ends by itself meanwhile is an error."""
        end = monotonic() + deadline_s
        while not condition():
            for process in self.processes.values():
                if process.name not in self.killed and process.process.poll() not in (None, 0):
                    process.clear()
                    raise AssertionError(f"a process ended by itself: {process}")
            if monotonic() > end:
                raise AssertionError(
                    f"{what}: not after {deadline_s:g} s.\n" + "\n".join(map(str, self.processes.values()))
                )
            sleep(0.01)

    def until_one_view(self, names: str) -> None:
        self.until(lambda: self.agree(names), f"one view of {names}")

    def agree(self, names: str) -> bool:
        """Whether these are in one view of exactly them."""
        wanted = sorted(self[name].address for name in names)
        ids = {self[name].view.get("id") for name in names}
        return len(ids) == 1 and all(sorted(self[name].members) == wanted for name in names)

    def until_delivered(self, names: str, more: int) -> None:
        """Wait until each of these has delivered so many more messages than now."""
        wanted = {name: self[name].delivered + more for name in names}
        self.until(
            lambda: all(self[name].delivered >= count for name, count in wanted.items()),
            f"{more} more deliveries at {names}",
        )

    def ask(self, name: str) -> dict[str, Any]:
        """The status of a member as it is now."""
        process = self[name]
        before = process.statuses
        process.tell("status")
        self.until(lambda: process.statuses > before, f"a status of {name}")
        return process.status

    def settle(self, names: str) -> None:
        """Stop casting, and wait until these are one view in which all have delivered the same."""
        rests = {name: self[name].rests for name in names}
        self.tell(names, "rest")
        self.until(lambda: all(self[name].rests > count for name, count in rests.items()), f"{names} cast nothing more")
        self.until(lambda: self.agree(names) and self.is_settled(names), f"the same deliveries at {names}")

    def is_settled(self, names: str) -> bool:
        """Whether all have the same state of the same view, and nothing is under way."""
        places = {self[name].place for name in names}
        current = {self[name].view["id"] for name in names}
        return (
            len(places) == 1
            and {place[:1] for place in places} == {(view,) for view in current}
            and all(self.ask(name)["unfinished"] == 0 for name in names)
        )

    # The end.

    def leave(self, names: str) -> None:
        for name in names:
            self[name].tell("leave")
        self.until(lambda: not any(self[name].is_running for name in names), f"{names} left")
        for name in names:
            assert self[name].process.returncode == 0, str(self[name])

    def judge(self, *more: str) -> Verdict:
        """The verdict on all traces. Lives that were killed are closed first."""
        for process in self.all:
            assert not process.is_running, f"{process.name} still runs"
            if process.process.returncode == -signal.SIGKILL:  # others that have no ending could not write it
                life = process.id.partition("#")[2]
                close_killed(self.traces, member=process.address, incarnation=int(life) if life else None)
        trace = read(self.traces)
        assert any(event.kind == DELIVER for event in trace.events()), "nothing was delivered"
        (verdict,) = judge_all(trace.events(), promises(self.order) | VIEWS | set(more)).values()
        return verdict

    def finish(self, names: str, *more: str) -> None:
        """All that is left: come to rest, leave, and be judged.

        One leaves before the others: they come into a next view together, so that the trace shows whether they had the same.
        """
        self.settle(names)
        self.leave(names[0])
        if len(names) > 1:
            self.until_one_view(names[1:])
            self.leave(names[1:])
        verdict = self.judge(*more)
        assert verdict.result is Result.PASS, str(verdict)

    def clear(self) -> None:
        """End what still runs, by its pid; only what was started here."""
        for process in self.all:
            if process.is_running and process.is_stopped:
                process.send_signal(signal.SIGCONT)
            process.clear()


@contextmanager
def staged(folder: Path, count: int, **common: Any) -> Iterator[Stage]:
    """A stage on loopback, for so many processes."""
    stage = Stage(folder, free_addresses(count), [()] * count, **common)
    try:
        yield stage
    finally:
        stage.clear()
