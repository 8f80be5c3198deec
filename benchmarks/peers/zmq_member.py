"""A member on ZeroMQ: what it casts goes to the sequencer (PUSH), what all take comes from there, numbered (SUB).

Nothing is dropped: the publisher does not drop, so a slow subscriber stops it, its queue fills, and casting has to wait. With
`batch` above 1 the application packs that many messages into one.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from benchmarks.peers.common import Taken, pack_batch, unpack_batch
from benchmarks.peers.frames import Looping

TAKEN_AT_ONCE = 256
NUMBER_BYTES = 8


def connect(context: Any, zmq: Any, ports: tuple[int, ...]) -> tuple[Any, Any]:
    """The way to the sequencer, and the one from there."""
    push, sub = context.socket(zmq.PUSH), context.socket(zmq.SUB)
    push.connect(f"tcp://127.0.0.1:{ports[0]}")
    sub.subscribe(b"")
    sub.connect(f"tcp://127.0.0.1:{ports[1]}")
    return push, sub


def take_number(message: bytes, expected: int) -> int:
    """The number that must come next. A message that was lost ends the program."""
    number = int.from_bytes(message[:NUMBER_BYTES], "little")
    if number != expected:
        raise SystemExit(f"message {expected} was lost: {number} came instead.")
    return number + 1


class ZmqMember(Looping):
    def open(self) -> None:
        self._zmq: Any = import_module("zmq")
        self._push, self._sub = connect(self._zmq.Context(), self._zmq, self.plan.ports)
        self.burst = 256 // self.plan.batch or 1
        self._next = 0

    def cast(self, payload: bytes) -> bool:
        try:
            self._push.send(payload, self._zmq.NOBLOCK)
        except self._zmq.Again:
            return False
        return True

    def make(self, index: int) -> bytes:
        if self.plan.batch == 1:
            return super().make(index)
        return pack_batch([super(ZmqMember, self).make(at) for at in range(index, index + self.plan.batch)])

    def take(self, taken: Taken, wait_ns: int) -> None:
        receive, take, again, no_block = self._sub.recv, taken.take, self._zmq.Again, self._zmq.NOBLOCK
        is_batch = self.plan.batch > 1
        for count in range(TAKEN_AT_ONCE):
            try:
                message = receive(no_block)
            except again:
                if not count:
                    self._sub.poll(wait_ns // 1_000_000)
                return
            self._next = take_number(message, self._next)
            if is_batch:
                for payload in unpack_batch(message, NUMBER_BYTES):
                    take(payload)
            else:
                take(message[NUMBER_BYTES:])


if __name__ == "__main__":
    ZmqMember.main()
