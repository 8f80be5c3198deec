"""A member on corosync's closed process groups (libcpg, by ctypes): agreed order; casting waits while the daemon refuses."""

from __future__ import annotations

import ctypes
import select
import sys
from time import monotonic, monotonic_ns, sleep
from typing import Any

from benchmarks.peers.common import Line, Pace, Plan, Taken, make_payload, padding_of

OK, TRY_AGAIN = 1, 6
DISPATCH_ALL = 2
AGREED = 2
BURST = 64
POLL_MS = 2
JOIN_S = 30.0
GROUP = b"bench"


class Name(ctypes.Structure):
    _fields_ = (("length", ctypes.c_uint32), ("value", ctypes.c_char * 128))


class Vector(ctypes.Structure):
    _fields_ = (("base", ctypes.c_char_p), ("length", ctypes.c_size_t))


ON_MESSAGE = ctypes.CFUNCTYPE(
    None, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t
)
ON_CHANGE = ctypes.CFUNCTYPE(
    None, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t,
    ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t,
)  # fmt: skip


class Callbacks(ctypes.Structure):
    _fields_ = (("on_message", ON_MESSAGE), ("on_change", ON_CHANGE))


class Program:
    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._library: Any = ctypes.CDLL("libcpg.so.4")
        self._handle = ctypes.c_uint64()
        self._members = 0
        self._taken: Taken | None = None
        self._callbacks = Callbacks(ON_MESSAGE(self._on_message), ON_CHANGE(self._on_change))
        self._padding = padding_of(plan)

    def _on_message(self, _handle: int, _group: int, _node: int, _pid: int, message: int, length: int) -> None:
        if self._taken is not None:
            self._taken.take(ctypes.string_at(message, length))

    def _on_change(self, _handle: int, _group: int, _members: int, count: int, *_: int) -> None:
        self._members = count

    def run(self) -> None:
        self._join()
        line, number = Line(), self._plan.number
        line.say(ready=True, rank=number)
        start_ns = line.wait_for_start()
        self._taken = taken = Taken(self._plan, number, start_ns)
        self._exchange(taken, line, start_ns)
        line.say(**taken.report(), rank=number)
        line.wait_for_end()

    def _join(self) -> None:
        """The daemon may be starting still, and its ring forming."""
        deadline = monotonic() + JOIN_S
        library = self._library
        name = Name(len(GROUP), GROUP)
        self._until(lambda: library.cpg_initialize(ctypes.byref(self._handle), ctypes.byref(self._callbacks)), deadline)
        self._until(lambda: library.cpg_join(self._handle, ctypes.byref(name)), deadline)
        descriptor = ctypes.c_int()
        self._until(lambda: library.cpg_fd_get(self._handle, ctypes.byref(descriptor)), deadline)
        self._poll = select.poll()
        self._poll.register(descriptor.value, select.POLLIN)
        while self._members < self._plan.members:
            if monotonic() > deadline:
                raise SystemExit(f"only {self._members} of {self._plan.members} members joined within {JOIN_S:g} s.")
            self._dispatch(100)

    @staticmethod
    def _until(attempt: Any, deadline: float) -> None:
        while (answer := attempt()) != OK:
            if monotonic() > deadline:
                raise SystemExit(f"the daemon answers with error {answer}.")
            sleep(0.05)

    def _dispatch(self, wait_ms: int) -> bool:
        if not self._poll.poll(wait_ms):
            return False
        answer = self._library.cpg_dispatch(self._handle, DISPATCH_ALL)
        if answer not in (OK, TRY_AGAIN):
            raise SystemExit(f"the daemon is gone: error {answer}.")
        return True

    def _exchange(self, taken: Taken, line: Line, start_ns: int) -> None:
        plan = self._plan
        pace = Pace(plan, plan.number, start_ns)
        index, is_paced, has_said = 0, plan.rate_per_s is not None, False
        casts = plan.casts(plan.number)
        while True:
            now = monotonic_ns()
            wait_ms = POLL_MS
            if now >= pace.stop_ns:
                if not has_said:
                    has_said = True
                    line.say(sent=index, rank=plan.number)
                if line.is_done(taken):
                    return
            elif casts and now >= start_ns:
                for _ in range(BURST):
                    now = monotonic_ns()
                    if now >= pace.stop_ns or (is_paced and pace.wait_ns(index, now)):
                        break
                    if not self._cast(make_payload(plan.number, index, now, self._padding)):
                        break  # no room: take, and try again
                    index += 1
                else:
                    wait_ms = 0
                if is_paced:
                    wait_ms = min(POLL_MS, pace.wait_ns(index, now) // 1_000_000)
            self._dispatch(wait_ms)

    def _cast(self, payload: bytes) -> bool:
        vector = Vector(payload, len(payload))
        answer = self._library.cpg_mcast_joined(self._handle, AGREED, ctypes.byref(vector), 1)
        if answer not in (OK, TRY_AGAIN):
            raise SystemExit(f"the daemon refuses a message: error {answer}.")
        return bool(answer == OK)


if __name__ == "__main__":
    Program(Plan.from_line(sys.argv[1])).run()
