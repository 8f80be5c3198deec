"""Writes the trace of a member: what happens inside, what its application is shown, and what its receipts answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from unisono.core.events import Replaced
from unisono.core.transition import Transition
from unisono.core.types import Batch, MemberId
from unisono.runtime.events import View

if TYPE_CHECKING:
    from unisono.runtime.driver import Clock
    from unisono.runtime.inbox import Shown
    from unisono.runtime.observers import Observers
    from unisono.runtime.receipts import Stage
    from unisono.trace.recorder import Recorder


class Recording:
    """Observes one member for its recorder."""

    def __init__(self, recorder: Recorder, clock: Clock) -> None:
        self._recorder = recorder
        self._clock = clock
        self._has_ended = False

    def begin(self, observers: Observers, now: int) -> None:
        """Observe from now on."""
        observers.noted.append(self._recorder.turn)
        observers.shown.append(self._show)
        observers.receipt.append(self._answer)
        self._recorder.join(now)

    def end(self, crash: str | None) -> None:
        """The member has left or, for the reason given, crashed."""
        self._has_ended = True
        if crash is None:
            self._recorder.leave(self._clock())
        else:
            self._recorder.crash(self._clock(), crash)
        self._recorder.sink.close()

    @property
    def gaps(self) -> int:
        """Rows that could not be written."""
        return self._recorder.gaps

    def _show(self, event: Shown) -> None:
        recorder, now = self._recorder, self._clock()
        if isinstance(event, Batch):
            recorder.show_batch(event)
        elif isinstance(event, Transition):
            recorder.show_transition(now, event.together, event.is_primary)
        elif isinstance(event, Replaced):
            recorder.show_state(now, event.kept, True, (event.lost, event.kept))
        elif isinstance(event, View):
            recorder.show_view(now, event.id, event.members, event.together, event.joined, event.left, event.is_primary)

    def _answer(self, stage: Stage, index: int, outcome: str, known: Sequence[MemberId]) -> None:
        if not self._has_ended:
            self._recorder.show_receipt(self._clock(), stage.value, index, 1, outcome, known)

    def take_state(self) -> None:
        """A state was taken over, and none of the group's own was thrown away for it."""
        self._recorder.show_state(self._clock(), None, False)
