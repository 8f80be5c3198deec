"""A member on ZeroMQ: what it casts goes to the sequencer (PUSH), what all take comes from there, numbered (SUB).

Nothing is dropped: the publisher does not drop, so a slow subscriber stops it, its queue fills, and casting has to wait. With
`batch` above 1 the application packs that many messages into one.
"""

from __future__ import annotations

import sys
from importlib import import_module
from time import monotonic_ns
from typing import Any

from benchmarks.peers.common import Line, Pace, Plan, Taken, make_payload, pack_batch, padding_of, unpack_batch

POLL_MS = 2
BURST = 256
NUMBER_BYTES = 8


def run(plan: Plan) -> None:
    zmq: Any = import_module("zmq")
    line = Line()
    context = zmq.Context()
    push, sub = context.socket(zmq.PUSH), context.socket(zmq.SUB)
    push.connect(f"tcp://127.0.0.1:{plan.ports[0]}")
    sub.subscribe(b"")
    sub.connect(f"tcp://127.0.0.1:{plan.ports[1]}")
    line.say(ready=True, rank=plan.number)
    start_ns = line.wait_for_start()
    taken = Taken(plan, plan.number, start_ns)
    sent = Exchange(zmq, push, sub, plan, taken).run(start_ns, line)
    line.say(**taken.report(), rank=plan.number, sent_in_all=sent)
    line.wait_for_end()
    context.destroy(linger=0)


class Exchange:
    """Takes and casts in one loop: never waits for the one without doing the other."""

    def __init__(self, zmq: Any, push: Any, sub: Any, plan: Plan, taken: Taken) -> None:
        self._zmq, self._push, self._sub, self._plan, self._taken = zmq, push, sub, plan, taken
        self._padding = padding_of(plan)
        self._next = 0  # the number that must come next

    def run(self, start_ns: int, line: Line) -> int:
        zmq, plan = self._zmq, self._plan
        pace = Pace(plan, plan.number, start_ns)
        index, is_paced, batch = 0, plan.rate_per_s is not None, plan.batch
        casts = plan.casts(plan.number)
        has_said = False
        waiting: bytes | None = None  # made, and refused for want of room
        while True:
            got = self._take_some()
            now = monotonic_ns()
            if now >= pace.stop_ns and waiting is None:
                if not has_said:
                    has_said = True
                    line.say(sent=index, rank=plan.number)
                if line.is_done(self._taken):
                    return index
            elif casts and now >= start_ns and not (is_paced and pace.wait_ns(index, now)):
                for _ in range(1 if is_paced else BURST // batch or 1):
                    if waiting is None:
                        waiting = self._make(index)
                        index += batch
                    try:
                        self._push.send(waiting, zmq.NOBLOCK)
                        waiting = None
                    except zmq.Again:
                        break
                if waiting is None:
                    continue
            if not got:
                self._idle(pace.wait_ns(index, now) if is_paced and casts else POLL_MS * 1_000_000)

    def _idle(self, wait_ns: int) -> None:
        self._sub.poll(min(POLL_MS, wait_ns // 1_000_000) or (0 if wait_ns < 200_000 else 1))

    def _make(self, index: int) -> bytes:
        number, padding = self._plan.number, self._padding
        if self._plan.batch == 1:
            return make_payload(number, index, monotonic_ns(), padding)
        return pack_batch(
            [make_payload(number, at, monotonic_ns(), padding) for at in range(index, index + self._plan.batch)]
        )

    def _take_some(self) -> bool:
        receive, take, again, no_block = self._sub.recv, self._taken.take, self._zmq.Again, self._zmq.NOBLOCK
        is_batch = self._plan.batch > 1
        for count in range(BURST):
            try:
                message = receive(no_block)
            except again:
                return count > 0
            number = int.from_bytes(message[:NUMBER_BYTES], "little")
            if number != self._next:
                raise SystemExit(f"message {self._next} was lost: {number} came instead.")
            self._next = number + 1
            if is_batch:
                for payload in unpack_batch(message, NUMBER_BYTES):
                    take(payload)
            else:
                take(message[NUMBER_BYTES:])
        return True


if __name__ == "__main__":
    run(Plan.from_line(sys.argv[1]))
