"""A member process with a fault between the library and its application. The checker must find it in a real run."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator

import unisono
from tests.chaos.member import Options, Program, digest, encode, main

EVERY, UNTIL = 20, 100
"""One of so many deliveries meets the fault, up to this one: what is cast last arrives, so that the run comes to rest."""

FAULTS = {
    "forgets": "together",
    "repeats": "duplication",
    "swaps": "total",
    "alters": "creation",
    "boasts": "sets",
    "hides transitions": "transition",
    "hurries": "receipts",
    "keeps half": "lineage",
}
"""What a program may do wrong, and the check that notices."""


class FaultyProgram(Program):
    """Does one thing wrong."""

    def __init__(self, options: Options, fault: str) -> None:
        super().__init__(options)
        self.fault = fault
        self.deliveries = 0
        self.held: unisono.Event | None = None
        self.last: unisono.View | None = None
        if fault == "keeps half":
            self.state.restore = self.keep_half  # type: ignore[method-assign]

    def take(self, event: unisono.Event) -> None:
        for shown in self.distort(event):
            super().take(shown)

    def distort(self, event: unisono.Event) -> Iterator[unisono.Event]:
        if isinstance(event, unisono.Delivery):
            self.deliveries += 1
            yield from self.distort_delivery(event, self.deliveries % EVERY == 0 and self.deliveries <= UNTIL)
            return
        if self.held is not None:
            yield self.held
            self.held = None
        if isinstance(event, unisono.Transition) and self.fault == "hides transitions":
            return
        if isinstance(event, unisono.View):
            before, self.last = self.last, event
            if self.fault == "boasts" and before is not None:
                event = event._replace(joined={}, together=event.members)
        yield event

    def distort_delivery(self, event: unisono.Delivery, is_struck: bool) -> Iterator[unisono.Event]:
        if is_struck and self.fault == "forgets":
            return
        if is_struck and self.fault == "swaps":
            self.held = event
            return
        if is_struck and self.fault == "alters":
            event = event._replace(payload=event.payload + b".")
        yield event
        if self.held is not None:
            yield self.held
            self.held = None
        if is_struck and self.fault == "repeats":
            yield event

    async def follow(self, message: str, receipt: unisono.Receipt, stage: str) -> None:
        if self.fault == "hurries" and stage == "delivered":
            self.log.say("receipt", m=message, stage="applied", outcome="yes")
        await super().follow(message, receipt, stage)

    def keep_half(self, data: bytes) -> None:
        kept = json.loads(data)[::2]
        self.state.applied = kept
        self.log.say("restore", digest=digest(encode(kept)), state=kept)


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    chosen = given.pop("fault")
    asyncio.run(main(FaultyProgram(Options(**given), chosen)))
