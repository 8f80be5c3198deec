"""Carries out a plan: processes in network namespaces, faults at their times, the heal, and the wait for calm.

Whatever it does is written to `nemesis.jsonl`: started, killed, fault, skipped, heal, settled or unsettled, exit. What it needs to
know of the members it reads from their logs, like the checker.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from tests.chaos.links import Fault, Links
from tests.chaos.schedule import PATIENCE, Action, Plan
from tests.net.namespaces import Namespaces

ROOT = Path(__file__).resolve().parents[2]
LOOK_S = 0.01
PROBES = 5
PROBE_ROUNDS = 5
"""How often they are cast anew if the view changes meanwhile."""
GROUP_KEY = "unisono-key-1:" + "Y2hhb3M" * 6 + "A"
"""Of 32 bytes, for nobody but the processes of a run."""


class Interrupted(Exception):
    """The run was told to stop; nothing is to be judged."""


class Process:
    """One life of a member, and what its log says so far."""

    def __init__(self, name: str, life: int, folder: Path, prefix: Iterable[str], options: dict[str, Any]) -> None:
        self.name = name
        self.file = f"{name}-{life}.jsonl"
        self.log = folder / self.file
        self.log.touch()
        self._errors = (folder / f"{name}-{life}.stderr").open("wb")
        options = {"log": str(self.log), "name": name, "life": life, **options}
        program = "tests.chaos.faulty" if "fault" in options else "tests.chaos.member"
        environment = {key: value for key, value in os.environ.items() if not key.startswith("UNISONO")}
        self.process = subprocess.Popen(
            [*prefix, sys.executable, "-m", program, json.dumps(options)],
            stdin=subprocess.PIPE, stdout=self._errors, stderr=self._errors, cwd=ROOT, env=environment,
            start_new_session=True,  # Ctrl-C is for the runner, which ends its processes itself
        )  # fmt: skip
        self.id = ""
        self.view: dict[str, Any] = {}
        self.has_rested = self.has_ended = False
        self.probes: set[str] = set()
        self.held: set[str] = set()
        """Delivered, or in a state that was taken over."""
        self.is_stopped = self.is_leaving = self.is_reaped = False
        self._tail = self.log.open("rb")
        self._rest = b""

    def look(self) -> None:
        """Read what is new in the log."""
        *lines, self._rest = (self._rest + self._tail.read()).split(b"\n")
        for text in lines:
            line = json.loads(text)
            match line["is"]:
                case "joined":
                    self.id = line["id"]
                case "view":
                    self.view = line
                case "delivery":
                    self.held.add(line["m"])
                case "restore" | "merge":
                    self.held.update(line["state"])
                case "cast" if line["probe"]:
                    self.probes.add(line["m"])
                case "refused_cast":
                    self.probes.discard(line["m"])
                case "rest":
                    self.has_rested = True
                case "end":
                    self.has_ended = True

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    def tell(self, order: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps(order).encode() + b"\n")
            self.process.stdin.flush()

    def send_signal(self, what: signal.Signals) -> None:
        if self.is_running:
            os.kill(self.process.pid, what)

    def clear(self) -> None:
        if self.is_running:
            self.process.kill()
        self.process.wait()
        for file in (self.process.stdin, self._errors, self._tail):
            if file is not None:
                with suppress(BrokenPipeError):
                    file.close()


class Nemesis:
    """Runs one plan in one folder."""

    def __init__(self, plan: Plan, folder: Path, stop: threading.Event, patience: float = PATIENCE) -> None:
        self.plan = plan
        self.folder = folder
        self._stop = stop
        self._bound_s = patience * plan.timeout_s
        self._net = Namespaces(len(plan.names))
        self._links = Links(self._net)
        self._all: list[Process] = []
        self._current: dict[str, Process] = {}
        self._lives = dict.fromkeys(plan.names, 0)
        self._log = (folder / "nemesis.jsonl").open("w")
        self.faults: list[str] = []
        """The kind of each fault that took place."""

    def run(self) -> None:
        self.plan.write(self.folder / "plan.json")
        try:
            self._net.build()
            for name in self.plan.founders:
                self._start(name, self.plan.min_members)
            ready = self._until(
                lambda: all(self._current[name].id for name in self.plan.founders), "the founders joined"
            )
            if ready and self._carry_out() and self._heal():
                self._end()
        finally:
            for process in self._all:
                process.clear()
            self._net.remove()
            self._log.close()

    def _say(self, what: str, /, **words: object) -> None:
        self._log.write(json.dumps({"t": round(monotonic(), 6), "is": what, **words}) + "\n")
        self._log.flush()

    # Processes.

    def _start(self, name: str, min_members: int = 1) -> None:
        plan = self.plan
        self._lives[name] += 1
        join: dict[str, Any] = {
            "listen": self._net.address(name),
            "peers": [self._net.address(one) for one in plan.names],
            "order": plan.order, "policy": plan.policy, "min_members": min_members, "safe": plan.safe, "pace": plan.pace,
        }  # fmt: skip
        join |= {"key": GROUP_KEY} if plan.key else {"insecure": True}
        if plan.policy == "primary":
            join["journal"] = str(self.folder / f"journal-{name}")
        options = {
            "join": join, "hooks": plan.hooks, "rate": plan.rate, "payload_bytes": plan.payload_bytes,
            "safe_share": plan.safe_share,
        }  # fmt: skip
        if name in plan.faulty:
            options["fault"] = plan.faulty[name]
        process = Process(name, self._lives[name], self.folder, self._net.prefix(name), options)
        self._current[name] = process
        self._all.append(process)
        self._say("started", name=name, file=process.file, pid=process.process.pid)

    def _kill(self, process: Process) -> None:
        self._say("killed", name=process.name, file=process.file)
        process.is_reaped = True
        process.send_signal(signal.SIGKILL)
        process.process.wait()

    def _running(self) -> list[Process]:
        return [process for process in self._current.values() if process.is_running and not process.is_leaving]

    def _look(self) -> None:
        """Read the logs; notice processes that have ended."""
        if self._stop.is_set():
            raise Interrupted
        for process in self._all:
            if not process.is_reaped:
                code = process.process.poll()
                process.look()
                if code is not None:
                    process.is_reaped = True
                    self._say("exit", name=process.name, file=process.file, code=code)

    def _until(self, condition: Callable[[], bool], what: str) -> bool:
        """Wait until something holds; if the bound passes first, say so."""
        end = monotonic() + self._bound_s
        while True:
            self._look()
            if condition():
                return True
            if monotonic() > end:
                views = {one.name: [one.view.get("id"), one.view.get("members")] for one in self._running()}
                text = f"not within {self._bound_s:g} s ({self._bound_s / self.plan.timeout_s:g} failure timeouts): {what}."
                self._say("unsettled", text=text, views=views)
                return False
            sleep(LOOK_S)

    # Faults.

    def _carry_out(self) -> bool:
        began, due = monotonic(), list(self.plan.actions)
        while (passed := monotonic() - began) < self.plan.length_s:
            while due and due[0]["at"] <= passed:
                self._do(due.pop(0))
            self._look()
            sleep(LOOK_S)
        return True

    def _do(self, action: Action) -> None:
        is_done = self._try(action)
        self._say("fault" if is_done else "skipped", **action)
        if is_done and action["do"] not in ("undo", "go_on") and action["kind"] not in self.faults[-1:]:
            self.faults.append(action["kind"])

    def _try(self, action: Action) -> bool:
        """Do one thing. False: it is not possible as things are."""
        process = self._current.get(action.get("name", ""))
        number = action["fault"]
        match action["do"]:
            case "start":
                if process is not None and process.is_running:
                    return False
                self._start(action["name"])
            case "part":
                self._links.part(number, action["parts"])
            case "cut":
                blocked = {(receiver, sender) for receiver in action["receivers"] for sender in action["senders"]}
                self._links.add(number, Fault(blocked=blocked))
            case "lose":
                self._links.add(number, Fault(loss=dict.fromkeys(action["names"], action["percent"])))
            case "narrow":
                self._links.add(number, Fault(kilobit=dict.fromkeys(action["names"], action["kilobit"])))
            case "undo":
                self._links.undo(number)
            case _:
                if process is None or not process.is_running or process.is_leaving:
                    return False
                self._do_to(process, action)
        return True

    def _do_to(self, process: Process, action: Action) -> None:
        match action["do"]:
            case "kill":
                self._kill(process)
            case "stop":
                process.is_stopped = True
                process.send_signal(signal.SIGSTOP)
            case "go_on":
                process.is_stopped = False
                process.send_signal(signal.SIGCONT)
            case "tell":
                process.tell(action["order"])
            case "leave":
                process.is_leaving = True
                process.tell({"do": "leave"})

    # The end.

    def _heal(self) -> bool:
        """Undo everything, and wait until all that live are one view."""
        self._links.heal()
        for process in self._all:
            if process.is_running and process.is_stopped:
                process.send_signal(signal.SIGCONT)
        for process in self._running():
            process.tell({"do": "speed", "delay_s": 0})
        gone = [one for one in self._current.values() if one.is_leaving]
        if not self._until(
            lambda: not any(one.is_running for one in gone), "members that were told to leave have left"
        ):
            return False
        dead = [name for name in self.plan.names if name not in self._current or not self._current[name].is_running]
        needs_all = self.plan.policy == "primary" or len(dead) > len(self.plan.names) - 2
        for name in dead if needs_all else ():
            self._start(name)
        self._say("heal")
        return self._until(self._is_one_view, "one view of all that live")

    def _is_one_view(self) -> bool:
        living = self._running()
        ids = {process.id for process in living}
        views = [process.view for process in living]
        return all(views) and len({view["id"] for view in views}) == 1 and set(views[0]["members"]) == ids

    def _probe(self, living: Sequence[Process]) -> set[str] | None:
        """Let all cast something, and wait until all have it or the view has changed. What it was; None: it takes too long."""
        earlier = set[str]().union(*(process.probes for process in living))
        view = living[0].view["id"]
        for process in living:
            process.has_rested = False
            process.tell({"do": "probe", "count": PROBES})
        for process in living:
            process.tell({"do": "rest"})
        if not self._until(lambda: all(process.has_rested for process in living), "every receipt is decided"):
            return None
        probes = set[str]().union(*(process.probes for process in living)) - earlier

        def is_done() -> bool:
            return self._is_one_view() and (self._all_hold(probes) or living[0].view["id"] != view)

        return probes if self._until(is_done, "what was cast after the heal is delivered by all, in one view") else None

    def _all_hold(self, probes: set[str]) -> bool:
        return all(probes <= process.held for process in self._running())

    def _end(self) -> None:
        """Everything that is cast now arrives everywhere; then all say what they have, and leave."""
        living = self._running()
        probes: set[str] | None = set()
        # On a busy machine a member may be suspected wrongly, and the view changes once more.
        for _ in range(PROBE_ROUNDS):
            probes = self._probe(living)
            if probes is None:
                return
            if self._all_hold(probes):
                break
        for process in living:
            process.tell({"do": "end"})
        if not self._until(lambda: all(process.has_ended for process in living), "all have said what they have"):
            return
        self._say("settled", probes=sorted(probes or ()))
        for process in living:
            process.is_leaving = True
            process.tell({"do": "leave"})
        self._until(lambda: not any(process.is_running for process in living), "all have left")
