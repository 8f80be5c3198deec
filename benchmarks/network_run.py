"""One run of one case on one system: start its programs, let them cast and take, measure from outside, end them."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from time import monotonic_ns
from typing import Any

from benchmarks.network_cases import Case
from benchmarks.network_judge import Load, Sample, find_fault, foreign_cores
from benchmarks.peers.common import SETTLE_S, Plan

ROOT = Path(__file__).resolve().parents[1]
READY_S = 40.0
SERVER_END_S = 5.0
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
LEAD_NS = 300_000_000
"""So long before the first cast everyone hears when it will be."""
KILL_SHARE = 0.2  # of the window


class Failure(Exception):
    """A run that yields no figures; the text says why."""


class Program:
    """A process that was started here, and is ended here. Its errors go to a file; the last line of it tells what happened."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, errors: Path) -> None:
        self.name = name
        self.process = process
        self._errors = errors

    @classmethod
    async def start(cls, name: str, command: Sequence[str], folder: Path, quiet: bool = False) -> Program:
        """`quiet`: what it prints is no talk with the benchmark, and goes where its errors go."""
        errors = folder / f"{name}.err"
        with errors.open("wb") as sink:
            process = await asyncio.create_subprocess_exec(
                *command, stdin=asyncio.subprocess.PIPE, stdout=sink if quiet else asyncio.subprocess.PIPE, stderr=sink,
                cwd=ROOT, env=os.environ | {"PYTHONHASHSEED": "0"}, limit=1 << 24,
            )  # fmt: skip
        return cls(name, process, errors)

    def say(self, **fields: Any) -> None:
        assert self.process.stdin is not None
        with suppress(ConnectionError):
            self.process.stdin.write(json.dumps(fields).encode() + b"\n")

    async def hear(self, word: str, seconds: float) -> dict[str, Any]:
        """The next line, which must hold that word."""
        assert self.process.stdout is not None
        try:
            line = await asyncio.wait_for(self.process.stdout.readline(), seconds)
        except TimeoutError:
            raise Failure(f"{self.name} did not say {word!r} within {seconds:g} s{self.last_words()}") from None
        if not line:
            raise Failure(f"{self.name} ended early{self.last_words()}")
        heard: dict[str, Any] = json.loads(line)
        if word not in heard:
            raise Failure(f"{self.name} said {line!r:.80} instead of {word!r}")
        return heard

    def last_words(self) -> str:
        lines = self._errors.read_text("utf-8", "replace").strip().splitlines()
        return f": {lines[-1]}" if lines else ""

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            self.process.kill()

    async def end(self) -> None:
        """A member that has reported has nothing left to do."""
        self.kill()
        await self.process.wait()

    async def end_server(self) -> None:
        """A server may have to tidy up; if that takes too long, it is killed."""
        with suppress(ProcessLookupError):
            self.process.terminate()
        try:
            await asyncio.wait_for(self.process.wait(), SERVER_END_S)
        except TimeoutError:
            await self.end()


async def start_server(
    name: str, command: Sequence[str], folder: Path, stack: AsyncExitStack, quiet: bool = False
) -> Program:
    server = await Program.start(name, command, folder, quiet)
    stack.push_async_callback(server.end_server)
    return server


@dataclass(frozen=True)
class System:
    """Something to measure. `servers` starts what its members need, and returns a step to take when they are ready, if any."""

    name: str
    module: str
    interpreter: str
    ports: Callable[[int], int]
    servers: Callable[[Plan, Path, AsyncExitStack], Awaitable[Servers]] | None = None
    batch: int = 1
    udp: bool = False
    has_latency: bool = True


@dataclass
class Servers:
    """Running servers, and what remains to be done when the members are ready."""

    programs: list[Program]
    when_ready: Callable[[], Awaitable[None]] | None = None
    wrap: Callable[[int, list[str]], list[str]] | None = None


def free_ports(count: int, udp: bool = False) -> tuple[int, ...]:
    """Ports of the loopback interface that are free now."""
    kind = socket.SOCK_DGRAM if udp else socket.SOCK_STREAM
    sockets = [socket.socket(socket.AF_INET, kind) for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return tuple(sorted(one.getsockname()[1] for one in sockets))
    finally:
        for one in sockets:
            one.close()


def load_of(pids: Sequence[int]) -> Load:
    """CPU so far. Interrupts are left out: the kernel does not say on whose behalf they were. Stolen time counts as others'."""
    fields = [int(field) for field in Path("/proc/stat").read_text("ascii").split("\n", 1)[0].split()[1:]]
    user, nice, system, steal = fields[0], fields[1], fields[2], fields[7]
    return Load((user + nice + system + steal) / TICKS_PER_S, sum(map(spent_s, (os.getpid(), *pids))))


def spent_s(pid: int) -> float:
    """Seconds of CPU of one process so far; nothing if it is gone."""
    try:
        after_name = Path(f"/proc/{pid}/stat").read_text("ascii", "replace").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(after_name[11]) + int(after_name[12])) / TICKS_PER_S


def peak_bytes(pids: Sequence[int]) -> int:
    """The largest of these processes at its peak."""
    peaks = [0]
    for pid in pids:
        with suppress(OSError):
            for line in Path(f"/proc/{pid}/status").read_text("ascii", "replace").splitlines():
                if line.startswith("VmHWM:"):
                    peaks.append(int(line.split()[1]) * 1_024)
    return max(peaks)


async def measure(system: System, case: Case, warm_s: float, seconds: float) -> Sample:
    """One sample. Whatever fails is told in it: a benchmark of several systems goes on."""
    try:
        return await Run(system, case, warm_s, seconds).measure()
    except (Failure, OSError) as error:
        return Sample(fault=str(error))


class Run:
    def __init__(self, system: System, case: Case, warm_s: float, seconds: float) -> None:
        self._system = system
        self._case = case
        self._warm_s = warm_s
        self._seconds = case.seconds or seconds

    async def measure(self) -> Sample:
        with tempfile.TemporaryDirectory(prefix="unisono-bench-") as name:
            async with AsyncExitStack() as stack:
                return await self._measure(Path(name), stack)

    async def _measure(self, folder: Path, stack: AsyncExitStack) -> Sample:
        system, case = self._system, self._case
        ports = free_ports(system.ports(case.members), system.udp)
        plans = [self._plan(number, ports, folder) for number in range(case.members)]
        servers = Servers([]) if system.servers is None else await system.servers(plans[0], folder, stack)
        members = [await self._start(plan, folder, stack, servers) for plan in plans]
        ready = await asyncio.gather(*(member.hear("ready", READY_S) for member in members))
        by_rank = {heard["rank"]: member for heard, member in zip(ready, members, strict=True)}
        if servers.when_ready is not None:
            await servers.when_ready()
        start_ns = monotonic_ns() + LEAD_NS
        for member in members:
            member.say(start_ns=start_ns)
        pids = [program.process.pid for program in (*servers.programs, *members)]
        begin_ns, end_ns = (start_ns + offset for offset in plans[0].window_ns)
        await sleep_until(begin_ns)
        before = load_of(pids)
        if case.kills:
            await sleep_until(begin_ns + int((end_ns - begin_ns) * KILL_SHARE))
            victim = by_rank.pop(0)
            pids.remove(victim.process.pid)
            before = before._replace(ours_s=before.ours_s - spent_s(victim.process.pid))  # it was ours until now
            victim.kill()
        await sleep_until(end_ns)
        after, memory_bytes = load_of(pids), peak_bytes(pids)
        reports, sent = await self._collect(by_rank)
        per_s = min(report["per_s"] for report in reports)
        span_s = (end_ns - begin_ns) / 1e9
        return Sample(
            per_s=per_s,
            latencies_ns=[latency for report in reports for latency in report["latencies_ns"]],
            cpu_us=(after.ours_s - before.ours_s) / (per_s * span_s) * 1e6 if per_s else 0.0,
            memory_bytes=memory_bytes,
            gap_ms=max(report["gap_ns"] for report in reports) / 1e6 if case.kills else 0.0,
            foreign=foreign_cores(before, after, span_s),
            fault=find_fault(reports, None if case.kills else sent),
        )

    def _plan(self, number: int, ports: tuple[int, ...], folder: Path) -> Plan:
        case = self._case
        extra = dict(case.extra) | {"group": f"bench-{os.getpid()}-{ports[0]}"}
        if extra.pop("key", False):
            extra["key"] = "unisono-key-1:" + "A" * 43
        if extra.pop("trace", False):
            extra["trace"] = str(folder / "trace")
        return Plan(
            number, case.members, case.size_bytes, case.senders, case.rate_per_s, self._warm_s, self._seconds,
            case.ordered, ports, self._system.batch, extra,
        )  # fmt: skip

    async def _start(self, plan: Plan, folder: Path, stack: AsyncExitStack, servers: Servers) -> Program:
        command = [self._system.interpreter, "-m", self._system.module, json.dumps(asdict(plan))]
        if servers.wrap is not None:
            command = servers.wrap(plan.number, command)
        member = await Program.start(f"member-{plan.number}", command, folder)
        stack.push_async_callback(member.end)
        return member

    async def _collect(self, members: Mapping[int, Program]) -> tuple[list[dict[str, Any]], int]:
        """What each has taken, after all was sent; and how much that was."""
        sent = {
            rank: heard["sent"]
            for rank, heard in zip(
                members, await asyncio.gather(*(one.hear("sent", SETTLE_S) for one in members.values())), strict=True
            )
        }
        for member in members.values():
            member.say(expect=sent)
        reports = await asyncio.gather(*(one.hear("taken", 2 * SETTLE_S) for one in members.values()))
        return list(reports), sum(sent.values())


async def sleep_until(when_ns: int) -> None:
    await asyncio.sleep(max(0, when_ns - monotonic_ns()) / 1e9)
