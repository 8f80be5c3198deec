"""The giving side of state transfer: the snapshots that a donor holds, sent in chunks."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from unisono.core.types import MemberId, ViewId
from unisono.services.transfer.messages import Gone, StateChunk, StatePull
from unisono.services.transfer.settings import TransferSettings


@dataclass(slots=True)
class Snapshot:
    """A snapshot that one asker pulls."""

    asker: MemberId
    data: bytes
    is_base: bool  # shared with the merge, so it costs no memory
    due_ns: int  # when it is dropped
    view: ViewId | None = None  # in which it was pulled last …
    next: int = 0  # … and up to where: in one view every byte is sent once


class Donor:
    """Holds a bounded number of snapshots, at most one for each asker."""

    def __init__(self, settings: TransferSettings) -> None:
        self._settings = settings
        self._held: dict[int, Snapshot] = {}
        self._number = 0
        self.bytes_given = 0

    @property
    def bytes_held(self) -> int:
        return sum(len(held.data) for held in self._held.values() if not held.is_base)

    @property
    def deadline(self) -> int | None:
        return min((held.due_ns for held in self._held.values()), default=None)

    def is_full(self, asker: MemberId) -> bool:
        """Whether a snapshot for this asker would exceed the limit."""
        others = sum(not held.is_base and held.asker != asker for held in self._held.values())
        return others >= self._settings.snapshots_max

    def hold(self, asker: MemberId, data: bytes, is_base: bool, now: int) -> int:
        """Keep a snapshot for an asker in place of its previous one. Returns the snapshot's number."""
        for number in [number for number, held in self._held.items() if held.asker == asker]:
            del self._held[number]
        self._number += 1
        self._held[self._number] = Snapshot(asker, data, is_base, now + self._settings.hold_ns)
        return self._number

    def pulled(self, asker: MemberId, pull: StatePull, now: int) -> StateChunk | Gone | None:
        """The chunk asked for; None: it was sent already."""
        held = self._held.get(pull.number)
        if held is None or held.asker != asker or pull.offset >= len(held.data):
            return Gone(pull.view, pull.number)
        if held.view != pull.view:  # what was under way is lost with the old view
            held.view, held.next = pull.view, 0
        if pull.offset < held.next:
            return None
        data = held.data[pull.offset : pull.offset + self._settings.chunk_bytes]
        held.next = pull.offset + len(data)
        held.due_ns = now + self._settings.hold_ns
        self.bytes_given += len(data)
        return StateChunk(pull.view, pull.number, pull.offset, data)

    def done(self, asker: MemberId, number: int) -> None:
        """Drop a snapshot that its asker does not need any more."""
        held = self._held.get(number)
        if held is not None and held.asker == asker:
            del self._held[number]

    def keep_only(self, members: Collection[MemberId]) -> None:
        """Drop the snapshots of askers that have left the view."""
        self._held = {number: held for number, held in self._held.items() if held.asker in members}

    def expire(self, now: int) -> None:
        """Drop snapshots that were not pulled for too long."""
        self._held = {number: held for number, held in self._held.items() if held.due_ns > now}
