"""A simulated group whose members have a state, kept by state transfer: a replicated log.

What is checked besides the trace (P19 and what the order owes):

- no message is applied twice, and none is in a state that was not cast;
- whoever has a state never loses any of it, neither by taking one over nor by a merge;
- every message that a member delivered from the view on in which it became live is in its state;
- at the end all have a state, within the bound, and all states are equal: as sequences in a total order, else as sets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from unisono.core.config import MILLISECOND
from unisono.core.member import Entered, Happening
from unisono.core.member.member import Settings
from unisono.core.options import DEFAULT, CastOptions
from unisono.core.types import Batch, MemberId, View
from unisono.services.transfer.settings import TransferSettings
from unisono.services.transfer.transfer import Transfer
from unisono.sim.group_state import (
    AT_ONCE,
    BRISK,
    Entry,
    Reading,
    StatefulProcess,
    StatefulWorld,
    differences,
    entries,
)
from unisono.sim.group_world import BOUND_NS, QUICK, SimulatedProcess
from unisono.trace.checks.judge import Verdict


class AppProcess(StatefulProcess):
    """A process with a state that is compared with what its member delivered."""

    def __init__(self, world: TransferWorld, id: MemberId, settings: Settings, record: bytes | None) -> None:
        super().__init__(
            world,
            id,
            settings,
            record,
            transfer_type=world.transfer_type,
            transfer_settings=world.transfer_settings,
            initial=world.initial(id),
            ballast=world.ballast,
            reading=world.reading(id),
        )
        self.delivered_in: list[tuple[View, set[Entry]]] = []
        self.live_since: int | None = None  # the place in `delivered_in` of the view in which it became live
        self.most_held = 0

    def cast(self, payload: bytes, options: CastOptions = DEFAULT, is_awaited: bool = False) -> bool:
        """An application that was shown no view yet waits for no receipt: it would not have joined."""
        return super().cast(payload, options, is_awaited and self.app.shown_view is not None)

    def hand_over(self, events: list[Happening]) -> None:
        for event in events:
            if isinstance(event, Entered):
                self.delivered_in.append((event.view, set()))
            elif isinstance(event, Batch):
                view, seen = self.delivered_in[-1]
                seen.update(entries(view, event))
        super().hand_over(events)
        if self.live_since is None and self.transfer.is_live:
            self.live_since = next(
                i for i, (view, _) in enumerate(self.delivered_in) if view == self.app.shown_view
            )  # the position is in this view
        self.most_held = max(self.most_held, self.transfer.queue_bytes)


class TransferWorld(StatefulWorld):
    """A world of such processes. `initial` says who may begin with a state of its own."""

    def __init__(
        self,
        order: str = "sequencer",
        seed: object = 0,
        *,
        transfer_settings: TransferSettings = BRISK,
        transfer_type: type[Transfer] = Transfer,
        initial: Callable[[MemberId], bool] = lambda member: True,
        ballast: int = 0,
        reading: Callable[[MemberId], Reading] = lambda member: AT_ONCE,
        settings: Settings = QUICK,
        **options: Any,
    ) -> None:
        self.transfer_settings, self.transfer_type = transfer_settings, transfer_type
        self.initial, self.ballast, self.reading = initial, ballast, reading
        super().__init__(order, seed, settings, owed={"P19"}, **options)

    def process(self, id: MemberId, settings: Settings, record: bytes | None) -> SimulatedProcess:
        return AppProcess(self, id, settings, record)

    def app(self, name: str) -> AppProcess:
        process = self.processes[name]
        assert isinstance(process, AppProcess)
        return process

    def load(self, names: Sequence[str], gap_ns: int = 2 * MILLISECOND, size: int = 40) -> Callable[[], None]:
        """Cast from each of these again and again, until the returned function is called."""
        going = [True]

        def cast(name: str, count: int) -> None:
            if going[0]:
                self.processes[name].cast(f"{name}/{count}/".encode().ljust(size, b"."))
                self.after(gap_ns, lambda: cast(name, count + 1))

        for name in names:
            cast(name, 0)
        return lambda: going.__setitem__(0, False)

    def all_live(self, names: Iterable[str]) -> bool:
        return all(self.app(name).transfer.is_live for name in names)

    def faults_found(self, apps: Sequence[AppProcess]) -> list[str]:
        """What is wrong with the states, as sentences."""
        lives = [life for life in self.lives if isinstance(life, AppProcess)]
        found = [f"{life.id}: {fault}" for life in lives for fault in life.app.faults]
        if not any(process.transfer.has_state or process.transfer.initial for process in apps):
            return found  # every member that had a state is gone, and none may begin anew
        cast = {entry for life in lives for _, seen in life.delivered_in for entry in seen}
        for process in apps:
            if process.live_since is not None:
                owed = set().union(*(seen for _, seen in process.delivered_in[process.live_since :]))
                if missing := owed - process.app.known:
                    found.append(
                        f"{process.id} lacks {len(missing)} messages that it delivered, such as {min(missing)}"
                    )
            if made_up := process.app.known - cast:
                found.append(f"{process.id} has {len(made_up)} messages that nobody delivered")
        if len({process.app.snapshot() for process in apps}) > 1:  # to the byte, and in a total order as sequences
            found.append(f"the states of {', '.join(str(process.id) for process in apps)} are not equal")
        return found + differences(apps)

    def conclude(self, bound_ns: int = BOUND_NS) -> Verdict:
        """Heal, come to rest, judge the trace and the states."""
        apps = [self.app(process.id.address) for process in self.up]
        verdict = self.finish(bound_ns)
        still = [process for process in apps if not process.member.state.is_gone]
        assert not (found := self.faults_found(still)), "\n".join([*found, self.story()])
        return verdict
