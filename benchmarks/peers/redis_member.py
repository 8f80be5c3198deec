"""A member on a Redis stream: each cast is an XADD, everyone reads the stream with XREAD.

One thread and one connection: two threads would spend their time in handing Python's lock to each other. The stream keeps
everything, so nothing is lost however slow a reader is.
"""

from __future__ import annotations

import sys
from importlib import import_module
from time import monotonic_ns
from typing import Any

from benchmarks.peers.common import Line, Pace, Plan, Taken, make_payload, padding_of

STREAM = "group"
FIELD = b"p"
READ_MESSAGES_MAX = 1_000
BURST = 64
"""Number of casts between two reads."""
BLOCK_MS = 5


class Program:
    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._redis: Any = import_module("redis").Redis(host="127.0.0.1", port=plan.ports[0])
        self._last: Any = b"0"  # of the stream's entries that were taken
        self._padding = padding_of(plan)

    def run(self) -> None:
        line, number = Line(), self._plan.number
        self._redis.ping()
        line.say(ready=True, rank=number)
        start_ns = line.wait_for_start()
        taken = Taken(self._plan, number, start_ns)
        self._exchange(taken, line, start_ns)
        line.say(**taken.report(), rank=number)
        line.wait_for_end()

    def _exchange(self, taken: Taken, line: Line, start_ns: int) -> None:
        plan = self._plan
        pace = Pace(plan, plan.number, start_ns)
        index, is_paced, has_said = 0, plan.rate_per_s is not None, False
        casts = plan.casts(plan.number)
        while True:
            now = monotonic_ns()
            if now >= pace.stop_ns:
                if not has_said:
                    has_said = True
                    line.say(sent=index, rank=plan.number)
                if line.is_done(taken):
                    return
                self._take_some(taken, BLOCK_MS)
                continue
            if casts and now >= start_ns:
                for _ in range(BURST):
                    now = monotonic_ns()
                    if now >= pace.stop_ns or (is_paced and pace.wait_ns(index, now)):
                        break
                    payload = make_payload(plan.number, index, now, self._padding)
                    self._redis.xadd(STREAM, {FIELD: payload})
                    index += 1
            wait_ms = pace.wait_ns(index, now) // 1_000_000 if casts and is_paced else BLOCK_MS
            self._take_some(taken, None if casts and not is_paced else max(1, min(BLOCK_MS, wait_ms)))

    def _take_some(self, taken: Taken, block_ms: int | None) -> None:
        streams = self._redis.xread({STREAM: self._last}, count=READ_MESSAGES_MAX, block=block_ms)
        # Older versions of the protocol answer with pairs, newer ones with a mapping.
        for _, entries in (streams.items() if isinstance(streams, dict) else streams) or ():
            for key, fields in entries:
                taken.take(fields[FIELD])
                self._last = key


if __name__ == "__main__":
    Program(Plan.from_line(sys.argv[1])).run()
