"""A member on PySyncObj: each cast is a replicated call, which every member applies in the order of the Raft log.

The program ticks by itself, in one thread, which is faster than the library's own thread. Casting waits while many calls are
outstanding. A call that is refused is counted and cast again.
"""

from __future__ import annotations

from importlib import import_module
from threading import Event
from typing import Any

from benchmarks.peers.common import Plan, Taken
from benchmarks.peers.frames import Looping

OUTSTANDING_MAX = 2_000
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


class PySyncObjMember(Looping):
    def open(self) -> None:
        self._inbox: list[bytes] = []
        self._group = make_group(self.plan, self._inbox)
        self._outstanding = 0
        self._again: list[bytes] = []  # refused
        while not self._group.isReady():
            self._group.doTick(TICK_S)

    def wait(self, event: Event) -> None:
        while not event.is_set():
            self._group.doTick(TICK_S)

    def cast(self, payload: bytes) -> bool:
        if self._outstanding >= OUTSTANDING_MAX:
            return False
        self._outstanding += 1

        def answered(_: Any, error: Any) -> None:
            self._outstanding -= 1
            if error:
                self._again.append(payload)

        self._group.put(payload, callback=answered)
        return True

    def take(self, taken: Taken, wait_ns: int) -> None:
        if self._again and self.cast(self._again[-1]):
            self._again.pop()
        self._group.doTick(wait_ns / 1e9)
        for payload in self._inbox:
            taken.take(payload)
        self._inbox.clear()


if __name__ == "__main__":
    PySyncObjMember.main()
