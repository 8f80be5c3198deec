"""Faults for a member process: each changes the code of its own process.

**Two deliveries in the other order.** Once, the member holds a delivery of another origin back until
the next one has passed it. It tells the others nothing of it, so the group goes on.
"""

from __future__ import annotations

from unisono.core.outbox import Outbox
from unisono.core.types import Batch, Packet, Rank
from unisono.orders.sequencer import Sequencer

HEALTHY_MESSAGES = 40
"""How many deliveries go well first."""


def swap_deliveries() -> None:
    """Hold one delivery of another member back, once, until the next one has passed it."""
    receive = Sequencer.receive
    delivered = 0
    held: list[Batch] = []
    is_done = False

    def swapping(self: Sequencer, sender: Rank, packet: Packet, out: Outbox) -> None:
        nonlocal delivered, is_done
        before = len(out.deliver)
        receive(self, sender, packet, out)
        new = out.deliver[before:]
        delivered += len(new)
        if is_done or delivered < HEALTHY_MESSAGES or not new:
            return
        if held:
            out.deliver[before:] = [new[0], *held, *new[1:]]
            held.clear()
            is_done = True
        elif new[-1].origin != self._rank:
            held.append(out.deliver.pop())

    Sequencer.receive = swapping  # type: ignore[method-assign]
