"""The sequencer of the ZeroMQ peer: takes messages from all (PULL) and publishes them numbered. It never drops one."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

from benchmarks.peers.common import Line, Plan

NUMBER_BYTES = 8


def run(plan: Plan) -> None:
    zmq: Any = import_module("zmq")
    line = Line()
    context = zmq.Context()
    pull, publish = context.socket(zmq.PULL), context.socket(zmq.XPUB)
    publish.setsockopt(zmq.XPUB_NODROP, 1)  # a full subscriber stops the publisher
    publish.setsockopt(zmq.XPUB_VERBOSE, 1)
    pull.bind(f"tcp://127.0.0.1:{plan.ports[0]}")
    publish.bind(f"tcp://127.0.0.1:{plan.ports[1]}")
    line.say(ready=True)
    for _ in range(plan.members):
        publish.recv()  # a subscription
    line.say(subscribed=True)
    number = 0
    while True:
        message = pull.recv()
        publish.send(number.to_bytes(NUMBER_BYTES, "little") + message)
        number += 1


if __name__ == "__main__":
    run(Plan.from_line(sys.argv[1]))
