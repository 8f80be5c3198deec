"""A member on corosync's closed process groups (libcpg, by ctypes): agreed order; casting waits while the daemon refuses."""

from __future__ import annotations

import ctypes
import select
from time import monotonic, sleep
from typing import Any

from benchmarks.peers.common import Taken
from benchmarks.peers.frames import Looping

OK, TRY_AGAIN = 1, 6
DISPATCH_ALL = 2
AGREED = 2
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


class CorosyncMember(Looping):
    _members = 0
    _taken: Taken | None = None

    def _on_message(self, _handle: int, _group: int, _node: int, _pid: int, message: int, length: int) -> None:
        if self._taken is not None:
            self._taken.take(ctypes.string_at(message, length))

    def _on_change(self, _handle: int, _group: int, _members: int, count: int, *_: int) -> None:
        self._members = count

    def open(self) -> None:
        """The daemon may be starting still, and its ring forming."""
        deadline = monotonic() + JOIN_S
        library: Any = ctypes.CDLL("libcpg.so.4")
        self._library, self._handle = library, ctypes.c_uint64()
        self._callbacks = Callbacks(ON_MESSAGE(self._on_message), ON_CHANGE(self._on_change))
        name = Name(len(GROUP), GROUP)
        self._until(lambda: library.cpg_initialize(ctypes.byref(self._handle), ctypes.byref(self._callbacks)), deadline)
        self._until(lambda: library.cpg_join(self._handle, ctypes.byref(name)), deadline)
        descriptor = ctypes.c_int()
        self._until(lambda: library.cpg_fd_get(self._handle, ctypes.byref(descriptor)), deadline)
        self._poll = select.poll()
        self._poll.register(descriptor.value, select.POLLIN)
        while self._members < self.plan.members:
            if monotonic() > deadline:
                raise SystemExit(f"only {self._members} of {self.plan.members} members joined within {JOIN_S:g} s.")
            self._dispatch(100)

    @staticmethod
    def _until(attempt: Any, deadline: float) -> None:
        while (answer := attempt()) != OK:
            if monotonic() > deadline:
                raise SystemExit(f"the daemon answers with error {answer}.")
            sleep(0.05)

    def _dispatch(self, wait_ms: int) -> None:
        if not self._poll.poll(wait_ms):
            return
        answer = self._library.cpg_dispatch(self._handle, DISPATCH_ALL)
        if answer not in (OK, TRY_AGAIN):
            raise SystemExit(f"the daemon is gone: error {answer}.")

    def take(self, taken: Taken, wait_ns: int) -> None:
        self._taken = taken
        self._dispatch(wait_ns // 1_000_000)

    def cast(self, payload: bytes) -> bool:
        vector = Vector(payload, len(payload))
        answer = self._library.cpg_mcast_joined(self._handle, AGREED, ctypes.byref(vector), 1)
        if answer not in (OK, TRY_AGAIN):
            raise SystemExit(f"the daemon refuses a message: error {answer}.")
        return bool(answer == OK)


if __name__ == "__main__":
    CorosyncMember.main()
