"""The application's state: given to joiners, taken from donors, merged after partitions, in the order of the stream.

State transfer (`services.transfer`) shows one event at a time and is stopped until the application asks for the next one: who asks
for the next event is done with the last, so a snapshot holds exactly what was shown. An application that has not taken its first
view is not busy with anything: until then it gives the state that it joined with, or that it restored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING

from unisono.core.errors import Misuse
from unisono.core.member import Entered, Happening, Replaced
from unisono.core.types import Batch
from unisono.services.transfer import Transfer

if TYPE_CHECKING:
    from unisono.runtime.clients import Desk
    from unisono.runtime.inbox import Inbox
    from unisono.runtime.journal import Journal
    from unisono.runtime.observers import Observers
    from unisono.runtime.own_messages import OwnMessages
    from unisono.runtime.recording import Recording


@dataclass(frozen=True, slots=True)
class Hooks:
    """What an application gives to have its state carried."""

    snapshot: Callable[[], bytes]
    restore: Callable[[bytes], None]
    merge: Callable[[Sequence[bytes]], None] | None

    @classmethod
    def of(
        cls,
        snapshot: Callable[[], bytes] | None,
        restore: Callable[[bytes], None] | None,
        merge: Callable[[Sequence[bytes]], None] | None,
    ) -> Hooks | None:
        for hook, name in ((snapshot, "snapshot"), (restore, "restore"), (merge, "merge")):
            check_hook(hook, name)
        if snapshot is None and restore is None and merge is None:
            return None
        if snapshot is None or restore is None:
            raise Misuse("a state travels only with both hooks: give snapshot and restore.")
        return cls(snapshot, restore, merge)


def check_hook(hook: object, name: str) -> None:
    """It is called at its place in the stream, and what it returns is used at once."""
    if hook is not None and (not callable(hook) or iscoroutinefunction(hook)):
        what = "an `async def`" if callable(hook) else type(hook).__name__
        raise Misuse(
            f"{name} is {what}: give a plain function, because nothing can be awaited at its place in the stream."
        )


class Carrier:
    """The application as state transfer sees it: what it is shown goes to the journal and the inbox, one event at a time."""

    def __init__(
        self,
        hooks: Hooks,
        desk: Desk | None,
        inbox: Inbox,
        own: OwnMessages,
        observers: Observers,
        journal: Journal | None,
        recording: Recording | None,
    ) -> None:
        self._hooks = hooks
        self._desk = desk  # what it remembers of clients travels with the state
        self._inbox = inbox
        self._own = own
        self._observers = observers
        self._journal = journal
        self._recording = recording
        self._is_replaced = False  # the application was told that its state is thrown away, and has no other one yet
        self.transfer: Transfer | None = None

    def show(self, event: Happening) -> None:
        assert self.transfer is not None
        self._own.shown(event)
        if isinstance(event, Replaced):
            self._is_replaced = True
            for look in self._observers.replaced:
                look(event)
        if self._journal is not None:
            self._journal.deliver([event])
        self._inbox.put([event])
        if isinstance(event, Batch | Entered):  # nothing else is part of a state, or can wait for it
            self.transfer.stop()

    def skip(self, batch: Batch, is_in_state: bool) -> None:
        self._own.skipped(batch, is_in_state)
        if self._journal is not None:
            self._journal.skip(batch)

    @property
    def is_untouched(self) -> bool:
        return self._inbox.view is None

    def snapshot(self) -> bytes:
        state = self._hooks.snapshot()
        if not isinstance(state, bytes):
            raise Misuse(f"snapshot returned {type(state).__name__}: it must return bytes.")
        return state if self._desk is None else _join(self._desk.snapshot(), state)

    def restore(self, state: bytes) -> None:
        if self._desk is not None:
            memory, state = _split(state)
            self._desk.restore(memory)
        self._restore(state)

    def _restore(self, state: bytes) -> None:
        """Take a state over. If another one is thrown away for it, the application has just been told."""
        if self._recording is not None and not self._is_replaced:
            self._recording.take_state()
        self._is_replaced = False
        self._hooks.restore(state)

    @property
    def can_merge(self) -> bool:
        return self._hooks.merge is not None

    def merge(self, parts: Sequence[bytes]) -> None:
        """Without a merge hook every member takes over the state of the first part, which is the same one at all.
        Of clients the first part's memory is kept: every part has served for itself."""
        if self._desk is not None:
            pairs = [_split(part) for part in parts]
            self._desk.restore(pairs[0][0])
            parts = [state for _, state in pairs]
        if self._hooks.merge is None:
            self._restore(parts[0])
        else:
            self._hooks.merge(parts)


def _join(memory: bytes, state: bytes) -> bytes:
    return len(memory).to_bytes(4, "little") + memory + state


def _split(both: bytes) -> tuple[bytes, bytes]:
    length = int.from_bytes(both[:4], "little")
    return both[4 : 4 + length], both[4 + length :]
