"""Members that agree on what to deliver, and then one of them shows its application something else, once.

Nothing on the wire is wrong, no ordering notices it, and the member's own record of the core says what should have been shown.
Only members that compare what they delivered find it. Each does it with one batch (or two, one after the other, of one origin).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from unisono.core.member.member import Member
from unisono.core.types import Batch
from unisono.core.views.showing import Showing


class _Tampers(Showing):
    """Does something to one batch to all, from the `tampers_from`-th on."""

    tampers_from = 20
    _seen = 0
    has_tampered = False

    def _show(self, batches: Sequence[Batch]) -> None:
        start = len(self.events)
        super()._show(batches)
        shown, self.events[start:] = self.events[start:], []
        for event in shown:
            is_counted = isinstance(event, Batch) and event.to is None
            self._seen += is_counted
            if is_counted and self._seen >= self.tampers_from and not self.has_tampered:
                self.events += self._tamper(event)  # type: ignore[arg-type]
            else:
                self.events.append(event)

    def _tamper(self, batch: Batch) -> Sequence[Batch]:
        self.has_tampered = True
        return self._instead(batch)

    def _instead(self, batch: Batch) -> Sequence[Batch]:
        raise NotImplementedError


class DropsADelivery(_Tampers):
    def _instead(self, batch: Batch) -> Sequence[Batch]:
        return ()


class DoublesADelivery(_Tampers):
    def _instead(self, batch: Batch) -> Sequence[Batch]:
        return (batch, batch)


class AltersADelivery(_Tampers):
    def _instead(self, batch: Batch) -> Sequence[Batch]:
        first, *rest = batch.payloads or (b"",)
        payloads = (first[:-1] + bytes((first[-1] ^ 1,)), *rest)
        return (Batch(batch.origin, batch.first, payloads, batch.service, safe=batch.safe),)


class SwapsTwoDeliveries(_Tampers):
    _held: Batch | None = None

    def _tamper(self, batch: Batch) -> Sequence[Batch]:
        held = self._held
        if held is None:
            self._held = batch
            return ()
        if batch.origin != held.origin:
            return (batch,)
        self.has_tampered = True
        return (batch, held)


MUTANTS: tuple[type[Any], ...] = (DropsADelivery, DoublesADelivery, AltersADelivery, SwapsTwoDeliveries)


def plant(member: Member, mutant: type[Any], tampers_from: int = 20) -> None:
    """Make a running member one that shows something else, once it has shown that much more."""
    showing = member.engine.showing
    showing.__class__ = mutant
    showing.tampers_from = tampers_from  # type: ignore[attr-defined]
