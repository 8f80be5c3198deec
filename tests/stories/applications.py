"""What applications of a story do all the time: read at a pace of their own, and cast whenever they may."""

from __future__ import annotations

from unisono.core.errors import Shed
from unisono.sim.group_world import SimulatedProcess

ROOM = 20
"""How many packets of one origin a slow reader can queue."""


def repeated(title: str, size: int) -> bytes:
    """A payload of this size, or as long as its title: the title again and again."""
    return (title + f" {title}" * (size // len(title)))[: max(size, len(title))].encode()


def title_of(payload: bytes) -> str:
    """What a payload repeats; what is not whole is shown as it is."""
    text = payload.decode()
    title = text.partition(" ")[0]
    return title if payload == repeated(title, len(payload)) else text


class Reader:
    """Queues what it is shown and takes one at a time; its room is told to the member."""

    def __init__(self, process: SimulatedProcess, gap_ns: int | None) -> None:
        self.process, self.gap_ns = process, gap_ns
        self._seen = 0
        process.on_event = lambda process, event: self._tell()
        self._tell()
        self._take_one()

    def _take_one(self) -> None:
        if self.gap_ns is not None:
            if self.process.is_up and self._seen < len(self.process.delivered):
                self._seen += 1
                self._tell()
                self.process.turn()
            self.process.world.after(self.gap_ns, self._take_one)

    def read_every(self, gap_ns: int | None) -> None:
        was, self.gap_ns = self.gap_ns, gap_ns
        if was is None:
            self._take_one()

    def _tell(self) -> None:
        self.process.member.set_free_room(max(0, ROOM - len(self.process.delivered) + self._seen))


class Caster:
    """Casts again and again. A patient one, once refused, waits until the window opens, like a task."""

    def __init__(self, process: SimulatedProcess, gap_ns: int, size: int, is_patient: bool) -> None:
        self.process, self.gap_ns, self.size, self.is_patient = process, gap_ns, size, is_patient
        self.taken = self.refused = 0
        self.why = "it must wait"
        self.is_over = self._waits = False
        self._cast()

    def _cast(self) -> None:
        process = self.process
        if self.is_over or not process.is_up:
            return
        process.world.after(self.gap_ns, self._cast)
        if process.view is None or (self.is_patient and self._waits and not process.member.state.is_writable):
            return
        try:
            key = process.member.cast(repeated(f"{process.id.address}{self.taken + 1}", self.size))
        except Shed as error:
            key, self.why = None, str(error)
        self._waits = key is None
        self.taken += key is not None
        self.refused += key is None
        process.turn()

    def stop(self) -> None:
        self.is_over = True

    def __str__(self) -> str:
        refused = "it is never refused" if not self.refused else f"it is refused {self.refused} times: {self.why}"
        return f"{self.process.id.address} has cast {self.taken}, and {refused}"
