"""What an application is shown, with one rule broken each: the members agree among themselves, and tell the application otherwise.

**Name everybody.** 1. A and B close a view with a message that C lacks. 2. All three come into the next view, and each is told that
the others came along. 3. States diverge, and nobody knows.

**Joined as those who were not in the last view.** The same, told by `joined` and `left`.

**Stable when it is delivered here.** 1. A casts, delivers its own message and is told that it is stable. 2. A crashes, or is cut
off: nobody else has it.

**The remainder first.** What a cut adds is shown as if it had been delivered in the view, before the application knows that it
ends.

**Lose an event, or alter one, on the way.** The core has delivered it, and its rows say so.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from unisono.core.events import Entered
from unisono.core.member.stability import Stability
from unisono.core.streams.streams import Streams
from unisono.core.transition import Transition
from unisono.core.types import Batch, MemberId, View
from unisono.core.views.engine import ViewEngine
from unisono.core.wire.control import Charter
from unisono.sim.group_world import Process

EVERY = 40
"""One event in so many is lost or altered."""


class NamesEverybody(ViewEngine):
    _coming: View | None = None

    def install(self, view: View, *args: Any, **options: Any) -> None:
        self._coming = view
        super().install(view, *args, **options)
        self._coming = None

    def depart(self, together: Sequence[MemberId], is_primary: bool) -> None:
        if self._coming is not None:
            together = [member for member in self._coming.members if member in self.view.members]
        super().depart(together, is_primary)


class JoinedAsBefore(Entered):
    @classmethod
    def of(
        cls, view: View, charter: Charter, previous: View | None, together: tuple[MemberId, ...], is_primary: bool
    ) -> Entered:
        entered = Entered.of(view, charter, previous, together, is_primary)
        before = () if previous is None else previous.members
        joined = {member: arrival for member, arrival in entered.joined.items() if member not in before}
        left = {member: departure for member, departure in entered.left.items() if member not in view.members}
        return entered._replace(joined=joined, left=left)


class StableOnReceipt(Stability):
    def deliver_own(self, streams: Streams) -> None:
        self._own_casts.safe(self._engine.showing.own_shown)


class RemainderFirst(ViewEngine):
    def depart(self, together: Sequence[MemberId], is_primary: bool) -> None:
        super().depart(together, is_primary)
        at = max(at for at, event in enumerate(self.showing.events) if isinstance(event, Transition))
        self.showing.events.append(self.showing.events.pop(at))


class LosesAnEvent(Process):
    _seen = 0

    def _show(self, event: Any) -> None:
        self._seen += isinstance(event, Batch)
        if not isinstance(event, Batch) or self._seen % EVERY:
            super()._show(event)


class AltersAnEvent(Process):
    _seen = 0

    def _show(self, event: Any) -> None:
        self._seen += isinstance(event, Batch)
        if isinstance(event, Batch) and not self._seen % EVERY:
            event = _altered(event)
        super()._show(event)


class AltersAView(Process):
    def _show(self, event: Any) -> None:
        if isinstance(event, Entered) and len(event.view) > 2:
            event = event._replace(view=View(event.view.id, event.view.members[::-1]))
        super()._show(event)


def _altered(batch: Batch) -> Batch:
    payloads: Iterable[bytes] = (payload + b"!" for payload in batch.payloads or ())
    return Batch(batch.origin, batch.first, tuple(payloads), batch.service, batch.to, safe=batch.safe)
