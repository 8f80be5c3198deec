"""What an application is shown and told, for the trace of its member."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from unisono.core.events import Replaced
from unisono.core.types import Batch, MemberId, Transition
from unisono.runtime.events import View

if TYPE_CHECKING:
    from unisono.runtime.driver import Driver
    from unisono.runtime.inbox import Shown
    from unisono.runtime.receipts import Stage
    from unisono.trace.recorder import Recorder


class Recording:
    """Stands where events are put into the application's stream, and where receipts answer."""

    def __init__(self, driver: Driver, recorder: Recorder) -> None:
        self._driver = driver
        self._recorder = recorder

    def event(self, event: Shown) -> None:
        recorder, now = self._recorder, self._driver.clock()
        if isinstance(event, Batch):
            recorder.show_batch(event)
        elif isinstance(event, Transition):
            recorder.show_transition(now, event.together, event.is_primary)
        elif isinstance(event, Replaced):
            recorder.show_state(now, event.kept, True, (event.lost, event.kept))
        elif isinstance(event, View):
            recorder.show_view(now, event.id, event.members, event.together, event.joined, event.left, event.is_primary)

    def receipt(self, stage: Stage, index: int, outcome: str, known: Sequence[MemberId]) -> None:
        if not self._driver.is_stopped:  # or its trace has ended
            self._recorder.show_receipt(self._driver.clock(), stage.value, index, 1, outcome, known)

    def state_taken(self) -> None:
        """A state was taken over, and none of the group's own was thrown away for it."""
        self._recorder.show_state(self._driver.clock(), None, False)
