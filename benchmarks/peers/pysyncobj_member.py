"""A member on PySyncObj: each cast is a replicated call, which every member applies in the order of the Raft log.

The program ticks by itself, in one thread, which is faster than the library's own thread. Casting waits while many calls are
outstanding. A call that is refused is counted and cast again.
"""

from __future__ import annotations

import sys
from importlib import import_module
from time import monotonic_ns
from typing import Any

from benchmarks.peers.common import Line, Pace, Plan, Taken, make_payload, padding_of

OUTSTANDING_MAX = 2_000
BURST = 64
TICK_S = 0.002


def make_group(plan: Plan, inbox: list[bytes]) -> Any:
    library: Any = import_module("pysyncobj")
    addresses = [f"127.0.0.1:{port}" for port in plan.ports]
    own = addresses.pop(plan.number)
    # Entries leave in batches when there are many, one by one when they are paced: the better choice of each.
    config = library.SyncObjConf(autoTick=False, appendEntriesUseBatch=plan.rate_per_s is None)

    class Group(library.SyncObj):  # type: ignore[misc]
        @library.replicated  # type: ignore[untyped-decorator]
        def put(self, payload: bytes) -> None:
            inbox.append(payload)

    return Group(own, addresses, config)


class Program:
    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._inbox: list[bytes] = []
        self._group = make_group(plan, self._inbox)
        self._outstanding = 0
        self._again: list[bytes] = []  # refused

    def run(self) -> None:
        plan, group, line = self._plan, self._group, Line()
        while not group.isReady():
            group.doTick(TICK_S)
        line.say(ready=True, rank=plan.number)
        while not line.is_started:
            group.doTick(TICK_S)
        start_ns = line.wait_for_start()
        taken = Taken(plan, plan.number, start_ns)
        index = self._exchange(taken, line, start_ns)
        line.say(**taken.report(), rank=plan.number, sent_in_all=index)
        while not line.is_over:
            group.doTick(TICK_S)

    def _exchange(self, taken: Taken, line: Line, start_ns: int) -> int:
        plan, group, inbox = self._plan, self._group, self._inbox
        pace, padding = Pace(plan, plan.number, start_ns), padding_of(plan)
        index, is_paced, has_said = 0, plan.rate_per_s is not None, False
        while True:
            now = monotonic_ns()
            wait_s = TICK_S
            if now >= pace.stop_ns and not self._again:
                if not has_said:
                    has_said = True
                    line.say(sent=index, rank=plan.number)
                if line.is_done(taken):
                    return index
            elif self._again:
                self._call(self._again.pop())
            elif plan.casts(plan.number) and now >= start_ns:
                for _ in range(1 if is_paced else BURST):
                    if self._outstanding >= OUTSTANDING_MAX or (is_paced and pace.wait_ns(index, now)):
                        break
                    self._call(make_payload(plan.number, index, monotonic_ns(), padding))
                    index += 1
                wait_s = min(TICK_S, pace.wait_ns(index, now) / 1e9) if is_paced else 0.0
            group.doTick(wait_s)
            for payload in inbox:
                taken.take(payload)
            inbox.clear()

    def _call(self, payload: bytes) -> None:
        self._outstanding += 1

        def answered(_: Any, error: Any) -> None:
            self._outstanding -= 1
            if error:
                self._again.append(payload)

        self._group.put(payload, callback=answered)


if __name__ == "__main__":
    Program(Plan.from_line(sys.argv[1])).run()
