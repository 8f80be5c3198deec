"""Clients beside whole members in the simulator: every process has a desk and an application that keeps a log and answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from unisono.core.member.member import Settings
from unisono.core.types import Batch, MemberId
from unisono.services.client import Client, ClientSettings, Outcome
from unisono.services.client_desk import ClientDesk, DeskSettings
from unisono.services.client_messages import Errand, Wanted
from unisono.sim.group_world import GroupWorld, SimulatedProcess

LIMITS = DeskSettings()


class Served(SimulatedProcess):
    """A process with a desk. Its application serves every new errand once and notes it."""

    def __init__(self, world: GroupWorld, id: MemberId, settings: Settings, record: bytes | None) -> None:
        super().__init__(world, id, settings, record)
        assert isinstance(world, ClientWorld)
        self.desk = world.desk_type(self.member, world.group, world.desk_settings)
        self.log: list[tuple[str, bytes]] = []
        self.serve: Callable[[Errand], bytes | None] = lambda errand: (
            b"%s: " % self.id.address.encode() + errand.payload
        )
        self.on_event = self._happen

    def take(self, datagram: bytes) -> None:
        if self.alive and self.paused_until <= self.world.now:
            for one in self.desk.receive([datagram]):
                super().take(bytes(one))
            self.turn()

    def _happen(self, process: SimulatedProcess, event: Any) -> None:
        if not isinstance(event, Batch):
            return
        for payload in event.payloads or ():
            errand = self.desk.open(payload)
            if errand is not None and errand.is_new:
                self.log.append((str(errand.client), errand.payload))
                self.desk.answer(errand, self.serve(errand))

    def turn(self) -> None:
        super().turn()
        for address, datagram in self.desk.drain():
            self._send(address, datagram)


class Outsider:
    """A client in the world."""

    def __init__(self, world: ClientWorld, name: str, contacts: Sequence[str], settings: ClientSettings | None) -> None:
        self.world = world
        self.client = Client(MemberId(name), world.group, contacts, settings)
        self.outcomes: dict[int, Outcome] = {}
        self._armed: int | None = None

    def ask(self, payload: bytes, wanted: Wanted = Wanted.CONTACT) -> int:
        number = self.client.request(payload, self.world.now, wanted)
        assert number is not None, "too many are under way"
        self.turn()
        return number

    def take(self, datagram: bytes) -> None:
        self.client.receive([datagram], self.world.now)
        self.turn()

    def turn(self) -> None:
        effects = self.client.drain(self.world.now)
        for address, datagram in effects.datagrams:
            self.world.send(self.client.id.address, address, datagram)
        for outcome in effects.events:
            assert outcome.number not in self.outcomes, "one outcome each"
            self.outcomes[outcome.number] = outcome
        if effects.deadline is not None and effects.deadline != self._armed:
            self._armed = effects.deadline
            self.world.at(effects.deadline, self._ticker(effects.deadline))

    def _ticker(self, deadline: int) -> Callable[[], None]:
        def tick() -> None:
            if self._armed == deadline:
                self._armed = None
                self.turn()

        return tick


class ClientWorld(GroupWorld):
    def __init__(
        self,
        *args: Any,
        desk_type: type[ClientDesk] = ClientDesk,
        desk_settings: DeskSettings = LIMITS,
        **options: Any,
    ) -> None:
        super().__init__(*args, **options)
        self.desk_type, self.desk_settings = desk_type, desk_settings
        self.outsiders: dict[str, Outsider] = {}

    def process(self, id: MemberId, settings: Settings, record: bytes | None) -> SimulatedProcess:
        return Served(self, id, settings, record)

    def outsider(self, name: str, contacts: Sequence[str], settings: ClientSettings | None = None) -> Outsider:
        self.outsiders[name] = Outsider(self, name, contacts, settings)
        return self.outsiders[name]

    def _arrive(self, src: str, dst: str, datagram: bytes) -> None:
        if dst in self.outsiders:
            if self.network.reaches(src, dst):
                self.outsiders[dst].take(datagram)
            return
        super()._arrive(src, dst, datagram)

    def served(self, name: str) -> Served:
        process = self.processes[name]
        assert isinstance(process, Served)
        return process

    def logs(self) -> list[list[tuple[str, bytes]]]:
        return [process.log for process in self.up if isinstance(process, Served)]
