"""Processes whose application has a state: a replicated log, kept by state transfer.

    member ─ events ─▶ Transfer ─▶ LogState, which records what it is shown, and reads it in its own time

The application reads as one of `runtime` does. It is shown one event at a time, and is busy until it has taken that one and asks
for the next. Its state is made of what it has taken, so while it has not taken its first view, it gives what it began with.

What is wrong with a state by itself is noted as a fault: a message that is applied twice, or that is lost from a state without
the application's having been told (`Replaced`).
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Sequence
from hashlib import blake2b
from random import Random
from typing import Any, NamedTuple

from unisono.core.config import MILLISECOND
from unisono.core.member import Entered, Happening, Replaced, Settings
from unisono.core.types import Batch, MemberId, Service, View
from unisono.services.transfer import Transfer, TransferSettings
from unisono.sim.group_world import GroupWorld, SimulatedProcess

BRISK = TransferSettings(chunk_bytes=4_096, patience_ns=800 * MILLISECOND, retry_ns=20 * MILLISECOND)
"""Timers that go with those of `group_world.QUICK`."""

Entry = tuple[str, int, str]
"""A message in the log: origin, index, hash of the payload."""


class Reading(NamedTuple):
    """How fast an application reads."""

    first_ns: int = 0
    """How long its first view waits to be taken."""
    gap_ns: int = 0
    """How long it is busy with each event before it asks for the next."""

    @classmethod
    def draw(cls, random: Random) -> Reading:
        first = random.choice((0, 0, 0, 20, 300, 1_500)) * MILLISECOND
        return cls(first, random.choice((0, 0, 0, MILLISECOND // 4, MILLISECOND)))


AT_ONCE = Reading()


class LogState:
    """The application: a log of all messages, and ballast that makes the state large."""

    def __init__(
        self, is_total: bool, witness: Callable[[Happening | None], None], *, ballast: str = "", can_merge: bool = True
    ) -> None:
        self.is_total = is_total
        self.ballast = ballast
        self.can_merge = can_merge
        self.log: list[Entry] = []
        self.known: set[Entry] = set()
        self.view: View | None = None  # the latest that it has taken
        self.shown_view: View | None = None
        self.unread: deque[Entered | Batch] = deque()
        self.merged: list[list[bytes]] = []
        self.restored: list[bytes] = []
        self.happened: list[str] = []
        self.faults: list[str] = []
        self.stop: Callable[[], None] = lambda: None  # what is shown before the application asks for more
        self._witness = witness  # of everything shown; None: of a state that is taken over, with nothing lost
        self._may_lose = False  # the application was told that its state is thrown away

    def show(self, event: Happening) -> None:
        self._witness(event)
        if isinstance(event, Entered | Batch):  # nothing else is part of a state, or can wait for it
            self.unread.append(event)
            self.stop()
        if isinstance(event, Entered):
            self.shown_view = event.view
        elif isinstance(event, Replaced):
            self._may_lose = True
            self.happened.append("replaced")

    def take(self) -> None:
        """Take the next event."""
        event = self.unread.popleft()
        if isinstance(event, Entered):
            self.view = event.view
            self.happened.append(f"view {event.view.id}")
        elif event.to is None:  # a state is made of messages to all
            assert self.view is not None, "a message before any view"
            self.happened.append("batch")
            for entry in entries(self.view, event):
                if entry in self.known:
                    self.faults.append(f"{entry} was applied twice")
                self.known.add(entry)
                self.log.append(entry)

    @property
    def is_untouched(self) -> bool:
        return self.view is None

    def skip(self, batch: Batch, is_in_state: bool) -> None:
        """Nothing is counted here: what is in a state is found there."""

    def snapshot(self) -> bytes:
        log = self.log if self.is_total else sorted(self.log)
        return json.dumps({"log": log, "ballast": self.ballast}).encode()

    def restore(self, state: bytes) -> None:
        if not self._may_lose:
            self._witness(None)
        self.happened.append("restore")
        self.restored.append(state)
        parsed = json.loads(state)
        self.ballast = parsed["ballast"]
        self._become([tuple(entry) for entry in parsed["log"]])

    def merge(self, parts: Sequence[bytes]) -> None:
        if not self.can_merge:
            self.restore(parts[0])
            return
        self.happened.append("merge")
        self.merged.append(list(parts))
        log: dict[Entry, None] = {}
        for part in parts:
            log.update(dict.fromkeys(tuple(entry) for entry in json.loads(part)["log"]))
        self.ballast = json.loads(parts[0])["ballast"]
        self._become(list(log))

    def _become(self, log: list[Entry]) -> None:
        lost = self.known - set(log)
        if lost and not self._may_lose:
            self.faults.append(f"{len(lost)} messages were lost from the state, such as {min(lost)}")
        self._may_lose = False
        self.log, self.known = log, set(log)


def entries(view: View, batch: Batch) -> list[Entry]:
    """The messages of a batch as the log has them."""
    origin = str(view.members[batch.origin])
    return [
        (origin, batch.first + i, blake2b(payload, digest_size=4).hexdigest())
        for i, payload in enumerate(batch.payloads or ())
    ]


class StatefulProcess(SimulatedProcess):
    """A process with such an application, and state transfer between it and the member."""

    def __init__(
        self,
        world: GroupWorld,
        id: MemberId,
        settings: Settings,
        record: bytes | None,
        *,
        transfer_type: type[Transfer] = Transfer,
        transfer_settings: TransferSettings = BRISK,
        initial: bool = True,
        ballast: int = 0,
        can_merge: bool = True,
        reading: Reading = AT_ONCE,
    ) -> None:
        super().__init__(world, id, settings, record)
        is_total = world.orders[world.order].service is Service.TOTAL
        text = blake2b(str(id).encode()).hexdigest() * (ballast // 128)
        self.app = LogState(is_total, self._witness, ballast=text, can_merge=can_merge)
        self.transfer = transfer_type(
            self.member,
            self.app,
            transfer_settings,
            initial=initial,
            ledger=self.recorder.follow_state(world.offered) if world.is_recorded else None,
            now=self.clock(),
        )
        self.app.stop = self._busy
        self.reading = reading
        self.is_reading = False  # the application is busy with what it was shown
        self._reads_at: int | None = None  # when it takes an event or asks for the next; None: it was shown none
        self.fresh: list[Happening] = []
        self.on_event = lambda process, event: self.fresh.append(event)
        self._tick_at: int | None = None

    def turn(self) -> None:
        """A turn of the member, then of state transfer, until neither has anything more to say."""
        while True:
            super().turn()
            if self.ended:
                return
            sent = self.transfer.sent
            events, self.fresh = self.fresh, []
            self.hand_over(events)
            if self.transfer.sent == sent:
                break
        self._arm()

    def hand_over(self, events: list[Happening]) -> None:
        """Let state transfer take what the member showed."""
        self.transfer.take(events, self.clock())
        self.transfer.tick(self.clock())
        self._read()

    def _busy(self) -> None:
        self.is_reading = True
        self.transfer.stop()

    def _read(self) -> None:
        """Let the application take what it was shown, and ask for more, as its pace allows."""
        now = self.world.now
        while self.is_reading:
            if self._reads_at is None:
                self._read_at(now + self.reading.first_ns)
            assert self._reads_at is not None
            if self._reads_at > now:
                return
            if self.app.unread:
                self.app.take()
                self._read_at(now + self.reading.gap_ns)
            else:
                self.is_reading = False
                self.transfer.go_on(self.clock())

    def _read_at(self, time: int) -> None:
        self._reads_at = time
        if time > self.world.now:
            self.world.at(time, self._turn_again)

    def _turn_again(self) -> None:
        if self.is_up and not self.is_hindered:
            self.turn()

    def record_shown(self, event: Any) -> None:
        """State transfer stands between: what the application is shown is recorded when it is."""

    def _witness(self, event: Happening | None) -> None:
        if self.ended:
            return
        if event is None:
            self.shown.append(event)
            self.recorder.show_state(self.world.now, None, False)
        elif isinstance(event, Replaced):
            self.shown.append(event)
            self.recorder.show_state(self.world.now, event.kept, True, (event.lost, event.kept))
        else:
            super().record_shown(event)

    def _arm(self) -> None:
        due = self.transfer.deadline
        if due is None or (self._tick_at is not None and self._tick_at <= due):
            return
        self._tick_at = due

        def tick() -> None:
            self._tick_at = None
            self._turn_again()

        self.world.at(self.when(due), tick)


class StatefulWorld(GroupWorld):
    """A world in which every application has a state."""

    can_merge = True

    def process(self, id: MemberId, settings: Settings, record: bytes | None) -> SimulatedProcess:
        reading = Reading.draw(self.stream(f"reading {id}"))
        return StatefulProcess(self, id, settings, record, can_merge=self.can_merge, reading=reading)

    def is_at_rest(self) -> bool:
        """Nor does any application lack its state, or messages that it has not taken."""
        apps = [process for process in self.up if isinstance(process, StatefulProcess)]
        return (
            super().is_at_rest()
            and all(one.transfer.is_live and not one.app.unread for one in apps)
            and (self.is_read_only or len({len(one.app.log) for one in apps}) < 2)
        )

    @property
    def is_read_only(self) -> bool:
        return not all(process.member.state.is_primary for process in self.up)

    def give_up_lost_state(self) -> None:
        """If the last member that had the state is gone, do what an operator would do."""
        self.network.heal()
        self.run(20, lambda: self.is_one([process.id.address for process in self.up]))
        waiting = [process for process in self.up if process.member.state.lost_state is not None]
        if waiting and not waiting[0].is_hindered:
            lost = waiting[0].member.state.lost_state
            assert lost is not None
            self.count("give up")
            waiting[0].member.give_up(lost)
            waiting[0].turn()

    def wrong_states(self) -> list[str]:
        """What is wrong with the states at the end, as sentences."""
        apps = [life for life in self.lives if isinstance(life, StatefulProcess)]
        found = [f"{life.id}: {fault}" for life in apps for fault in life.app.faults]
        last = [life for life in apps if life.alive and not life.member.state.is_gone]
        may_differ = not all(life.member.state.is_primary for life in last)
        return found if may_differ else found + differences(last)


def differences(processes: Sequence[StatefulProcess]) -> list[str]:
    """What is wrong with the states of members of one view that has come to rest, as sentences."""
    waiting = [
        f"{process.id} is not live: it {process.transfer.status.value}. {' '.join(process.transfer.explain())}"
        for process in processes
        if not process.transfer.is_live
    ]
    waiting += [f"{process.id} has not read what it was shown" for process in processes if process.app.unread]
    if waiting:
        return waiting
    if len({tuple(sorted(process.app.log)) for process in processes}) < 2:  # their order is the trace's business
        return []
    sizes = {str(process.id): len(process.app.log) for process in processes}
    return [f"the states of {', '.join(sizes)} are not equal: {sizes} messages"]
