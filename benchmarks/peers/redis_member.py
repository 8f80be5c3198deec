"""A member on a Redis stream: each cast is an XADD, everyone reads the stream with XREAD.

One thread and one connection: two threads would spend their time in handing Python's lock to each other. The stream keeps
everything, so nothing is lost however slow a reader is.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from benchmarks.peers.common import Taken
from benchmarks.peers.frames import Looping

STREAM = "group"
FIELD = b"p"
READ_MESSAGES_MAX = 1_000


class RedisMember(Looping):
    poll_ns = 5_000_000

    def open(self) -> None:
        self._redis: Any = import_module("redis").Redis(host="127.0.0.1", port=self.plan.ports[0])
        self._last: Any = b"0"  # of the stream's entries that were taken
        self._redis.ping()

    def cast(self, payload: bytes) -> bool:
        self._redis.xadd(STREAM, {FIELD: payload})
        return True

    def take(self, taken: Taken, wait_ns: int) -> None:
        block_ms = wait_ns // 1_000_000 or None  # 0 would be for ever
        streams = self._redis.xread({STREAM: self._last}, count=READ_MESSAGES_MAX, block=block_ms)
        # Older versions of the protocol answer with pairs, newer ones with a mapping.
        for _, entries in (streams.items() if isinstance(streams, dict) else streams) or ():
            for key, fields in entries:
                taken.take(fields[FIELD])
                self._last = key


if __name__ == "__main__":
    RedisMember.main()
