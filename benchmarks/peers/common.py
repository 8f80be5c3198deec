"""What every program of the network benchmark shares, unisono's and the peers' alike: plan, payloads, pace, what is taken.

Standard library only, because each program runs in the environment of its own library. A program talks to the benchmark in lines
of JSON: it says `ready`; hears `start_ns`, a time of the one monotonic clock; casts; says how much it has `sent`; hears how much
to `expect` in all; and says what it has `taken`.
"""

from __future__ import annotations

import json
import sys
import threading
from array import array
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from struct import Struct
from time import monotonic, monotonic_ns
from typing import Any

HEAD = Struct("<IIQ")  # sender, index, when it was cast
NAME_BYTES = 8  # of a payload: sender and index
LOOK_MESSAGES = 64
"""Messages per reading of the clock: with fewer, the clock itself would be measured …"""
TIMED_MESSAGES = 16
"""… and the same where latency is measured under load."""
LATENCIES_MAX = 20_000
TICK_NS = 1_000_000
OVERTIME_NS = 100_000_000
"""Casting goes on for so long after the window, so that its end is under load too."""
SETTLE_S = 15.0
"""So long a program waits for what is still missing when the casting is over."""


@dataclass(frozen=True)
class Plan:
    """What one program of one case is to do."""

    number: int
    members: int
    size_bytes: int
    senders: str = "all"  # or "one": the last member
    rate_per_s: float | None = None  # of all senders together; None: as fast as it goes
    warm_s: float = 0.5
    seconds: float = 2.0
    ordered: str = "total"  # or "fifo": each sender's messages in their order, senders in any
    ports: tuple[int, ...] = ()
    batch: int = 1
    extra: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def from_line(cls, line: str) -> Plan:
        fields = json.loads(line)
        return cls(**fields | {"ports": tuple(fields["ports"])})

    @property
    def window_ns(self) -> tuple[int, int]:
        """The measured time, after the start."""
        return int(self.warm_s * 1e9), int((self.warm_s + self.seconds) * 1e9)

    def casts(self, number: int) -> bool:
        return self.senders == "all" or number == self.members - 1


class Pace:
    """When the next message is due. Senders take turns, so the group's messages are evenly spaced; where they would follow each
    other closer than a loop's clock ticks, each tick has its bunch."""

    def __init__(self, plan: Plan, number: int, start_ns: int) -> None:
        self.stop_ns = start_ns + plan.window_ns[1] + OVERTIME_NS
        casters = plan.members if plan.senders == "all" else 1
        self._gap_ns = 0.0 if plan.rate_per_s is None else casters * 1e9 / plan.rate_per_s
        self.is_dense = 0 < self._gap_ns < TICK_NS
        self._first_ns = start_ns + self._gap_ns * (number if casters > 1 else 0) / casters

    def wait_ns(self, index: int, now_ns: int) -> int:
        """How long until the message of that index is due; 0: now."""
        wait_ns = int(self._first_ns + index * self._gap_ns) - now_ns
        return 0 if wait_ns <= 0 else max(wait_ns, TICK_NS)


class Taken:
    """What one member has taken: how much, when, and in which order."""

    def __init__(self, plan: Plan, number: int, start_ns: int) -> None:
        begin, end = plan.window_ns
        self.begin_ns, self.end_ns = start_ns + begin, start_ns + end
        self._number = number
        self._is_timed = plan.rate_per_s is not None
        self._is_total = plan.ordered == "total"
        self.count = 0
        self._chain = 0
        self._chains: dict[int, int] = {}
        self.counts: Counter[int] = Counter()
        self._marks: list[tuple[int, int]] = []  # (time, count) at the window's begin and end
        self._latencies = array("Q")
        self._gap_ns, self._last_ns = 0, 0
        self.take: Callable[[bytes], None] = self._take_timed if self._is_timed else self._take_fast
        if Pace(plan, number, start_ns).is_dense:
            self.take = self._take_dense
        if not self._is_total:
            self.take = self._take_by_sender

    def _take_fast(self, payload: bytes) -> None:
        self._chain = hash((self._chain, payload[:NAME_BYTES]))
        self.count = count = self.count + 1
        if not count % LOOK_MESSAGES:
            self._look(monotonic_ns())

    def _take_timed(self, payload: bytes) -> None:
        now = monotonic_ns()
        sender, _, cast_ns = HEAD.unpack_from(payload)
        self._chain = hash((self._chain, payload[:NAME_BYTES]))
        self.count += 1
        self.counts[sender] += 1
        self._look(now)
        if self.begin_ns <= now and self._last_ns:
            self._gap_ns = max(self._gap_ns, now - self._last_ns)
        self._last_ns = now
        if sender != self._number and self.begin_ns <= cast_ns < self.end_ns:
            self._latencies.append(now - cast_ns)

    def _take_dense(self, payload: bytes) -> None:
        """Time one message in `TIMED_MESSAGES`: there are enough of them."""
        if not self.count % TIMED_MESSAGES:
            self._take_timed(payload)
            return
        sender = payload[0]
        self._chain = hash((self._chain, payload[:NAME_BYTES]))
        self.count += 1
        self.counts[sender] += 1

    def _take_by_sender(self, payload: bytes) -> None:
        sender, index, _ = HEAD.unpack_from(payload)
        self._chains[sender] = hash((self._chains.get(sender, 0), index))
        self.count = count = self.count + 1
        if not count % LOOK_MESSAGES:
            self._look(monotonic_ns())

    def _look(self, now: int) -> None:
        marks = self._marks
        if len(marks) < 2 and now >= (self.end_ns if marks else self.begin_ns):
            marks.append((now, self.count))

    def report(self) -> dict[str, Any]:
        marks = self._marks
        if not marks:
            marks = [(self.begin_ns, self.count)]
        if len(marks) < 2:
            marks = [*marks, (max(monotonic_ns(), self.end_ns), self.count)]
        (begin_ns, first), (end_ns, last) = marks
        latencies = sorted(self._latencies)
        return {
            "taken": self.count,
            "chain": self._chain if self._is_total else hash(tuple(sorted(self._chains.items()))),
            "per_s": (last - first) / (end_ns - begin_ns) * 1e9,
            "latencies_ns": latencies[:: 1 + len(latencies) // LATENCIES_MAX],
            "gap_ns": self._gap_ns,
        }


class Line:
    """The talk with the benchmark. A thread listens, so no loop has to.

    A program ends when it is `over` for everyone: one that goes early would disturb the others.
    """

    def __init__(self) -> None:
        self.started = threading.Event()
        self._start_ns = 0
        self._expected: dict[int, int] | None = None
        self.over = threading.Event()
        self._deadline = 0.0
        threading.Thread(target=self._listen, daemon=True).start()

    def say(self, **fields: Any) -> None:
        print(json.dumps(fields), flush=True)

    def _listen(self) -> None:
        for line in sys.stdin:
            heard = json.loads(line)
            if "start_ns" in heard:
                self._start_ns = heard["start_ns"]
                self.started.set()
            elif "expect" in heard:
                self._deadline = monotonic() + SETTLE_S
                self._expected = {int(sender): count for sender, count in heard["expect"].items()}
        self.over.set()
        self.started.set()

    def wait_for_start(self) -> int:
        """When the casting begins. Call it where waiting is allowed."""
        self.started.wait()
        if self.over.is_set():
            sys.exit(1)
        return self._start_ns

    def is_done(self, taken: Taken) -> bool:
        """Whether everything expected was taken, or will not come any more."""
        expected = self._expected
        if self.over.is_set():
            return True
        if expected is None:
            return False
        if taken.counts:
            arrived = all(taken.counts.get(sender, 0) >= count for sender, count in expected.items())
        else:
            arrived = taken.count >= sum(expected.values())
        return arrived or monotonic() > self._deadline


def make_payload(number: int, index: int, now_ns: int, padding: bytes) -> bytes:
    return HEAD.pack(number, index, now_ns) + padding


def padding_of(plan: Plan) -> bytes:
    return bytes(plan.size_bytes - HEAD.size)


def pack_batch(payloads: list[bytes]) -> bytes:
    """An application's batch: how many, their lengths, then the payloads."""
    lengths = [len(payload) for payload in payloads]
    return b"".join((Struct(f"<H{len(lengths)}I").pack(len(lengths), *lengths), *payloads))


def unpack_batch(message: bytes, start: int = 0) -> list[bytes]:
    count = int.from_bytes(message[start : start + 2], "little")
    lengths = Struct(f"<{count}I").unpack_from(message, start + 2)
    at = start + 2 + 4 * count
    payloads = []
    for length in lengths:
        payloads.append(message[at : at + length])
        at += length
    return payloads
