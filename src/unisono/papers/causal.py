"""`unisono causal`: causally ordered multicast among the members of a file. Paper 001, section 3."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from unisono.cli import group_options as o
from unisono.cli.keyboard import Keyboard
from unisono.cli.session import attend
from unisono.cli.streams import to_bytes, to_text
from unisono.core.errors import Misuse
from unisono.core.member import Happening, Member, Settings
from unisono.core.membership import DetectorSettings, MembershipSettings
from unisono.core.streams import StreamSettings
from unisono.core.types import Batch, MemberId
from unisono.orders.causal import Causal
from unisono.papers.by_hand import Prompts
from unisono.runtime.addresses import Endpoint, resolve_all
from unisono.runtime.checksum import CHECKSUM_BYTES
from unisono.runtime.events import Delivery, Event, View
from unisono.runtime.faulty import AckVerdict, Faults, FaultyMember
from unisono.runtime.group import Group
from unisono.runtime.join import Joining
from unisono.runtime.loop import run
from unisono.runtime.members_file import Listed, find_member, read_members
from unisono.runtime.options import FRAME_BYTES, JoinOptions
from unisono.runtime.running import RunningMember
from unisono.runtime.seal import find_key, overhead
from unisono.sim.units import parse_duration

DATAGRAM_BYTES_MAX = 1_472
"""With the headers of UDP and IP: 1,500."""


def causal(
    local: Annotated[str | None, typer.Option("-S", "--local", help="This member's name in the members file.")] = None,
    members: Annotated[
        Path, typer.Option("--members", help="File with the members: one name, host and port per line.")
    ] = Path("members.dat"),
    resends: Annotated[
        int,
        typer.Option(
            "-n",
            "--resends",
            help="Number of unanswered resends after which a member counts as failed.",
            min=0,
            max=100,
        ),
    ] = 5,
    ack_delay: Annotated[
        int, typer.Option("-t", "--ack-delay", help="Microseconds by which to delay ACKs.", min=0)
    ] = 0,
    last_delay: Annotated[
        int,
        typer.Option(
            "-T", "--last-delay", help="Microseconds by which to delay messages to the last active member.", min=0
        ),
    ] = 0,
    alter: Annotated[
        bool, typer.Option("-s", "--alter", help="Ask for each message whether to change the number of its ACK.")
    ] = False,
    debug_ptp: Annotated[
        bool, typer.Option("-D", "--debug-ptp", help="Print receptions, acknowledgements, resends and failures.")
    ] = False,
    debug_causal: Annotated[
        bool, typer.Option("-C", "--debug-causal", help="Print deliveries, held-back messages and vectors.")
    ] = False,
    keep_alive: Annotated[str, typer.Option(help="Interval at which a silent member sends a heartbeat.")] = "10s",
    group: Annotated[str, typer.Option(help="The group's name.")] = "causal",
    key: o.KeyFile = None,
    insecure: o.Insecure = False,
) -> None:
    """Chat in causal order among the members of a file: a reply never appears before the message it replies to.

    Each typed line goes to all members; `@beta,gamma text` goes to these alone. A failed member is dropped and the others
    continue; once restarted, it joins again. Receiving never waits for typing.
    """
    listed = read_members(members)
    own = find_member(listed, local, str(members))
    people = People(listed)
    found = find_key(key)
    address = people.address_of(own)
    options = JoinOptions(
        group,
        listen=address,
        peers=people.addresses,
        order="causal",
        settings=causal_settings(address, found, parse_duration(keep_alive)),
        key=found,
        insecure=insecure,
        control=True,
    )
    faults = Faults(resends, ack_delay * 1_000, last_delay * 1_000)

    async def main() -> None:
        with Keyboard(f"{own.name}> ") as keyboard:
            program = Program(keyboard, people, faults, alter, debug_ptp, debug_causal)
            joining = Joining(options, prepare=program.prepare)
            await attend(joining, keyboard, program.show, program.take, begin=program.begin, finish=program.finish)

    run(main())


def causal_settings(address: str, key: bytes | None, keep_alive_ns: int) -> Settings:
    """Datagrams of 1,500 bytes at the most, and a failure detector that leaves the verdict to the plain rule of resends."""
    room = DATAGRAM_BYTES_MAX - FRAME_BYTES - (CHECKSUM_BYTES if key is None else overhead(address))
    try:
        detector = DetectorSettings(
            heartbeat_ns=keep_alive_ns,
            suspicion_ns_min=3 * keep_alive_ns,
            suspicion_ns_max=4 * keep_alive_ns,
            pause_ns=2 * keep_alive_ns,
        )
    except Misuse:
        raise Misuse("--keep-alive is out of range: choose 1ms to 10min.") from None
    return Settings(
        streams=replace(StreamSettings(), datagram_bytes=room),
        detector=detector,
        membership=MembershipSettings(chunk_bytes_max=1_024),
    )


class People:
    """Names for addresses."""

    def __init__(self, listed: Sequence[Listed]) -> None:
        endpoints = resolve_all([one.address for one in listed], "the members file's")
        self._endpoints: dict[str, Endpoint] = {}
        self._names: dict[str, str] = {}
        for one, endpoint in zip(listed, endpoints, strict=True):
            if (other := self._names.get(str(endpoint))) is not None:
                first = next(before for before in listed if before.name == other)
                raise Misuse(
                    f"the members file, line {one.line}: {one.address} is the same address as {first.address} of {other!r} in line "
                    f"{first.line}; give each its own port."
                )
            self._endpoints[one.name] = endpoint
            self._names[str(endpoint)] = one.name

    @property
    def addresses(self) -> list[str]:
        return list(self._names)

    def address_of(self, one: Listed) -> str:
        return str(self._endpoints[one.name])

    def name_of(self, member: MemberId) -> str:
        return self._names.get(member.address, str(member))

    def place_of(self, member: MemberId) -> tuple[int, str]:
        """Where it stands in the file; who is not in it comes last."""
        return (
            self.addresses.index(member.address) if member.address in self._names else len(self._names),
            str(member),
        )

    def find(self, name: str, members: Sequence[MemberId]) -> MemberId:
        for member in members:
            if self.name_of(member) == name:
                return member
        raise Misuse(
            f"{name!r} is not in the group now: {', '.join(map(self.name_of, sorted(members, key=self.place_of)))} are."
        )


class Program:
    """What the user sees and types."""

    def __init__(
        self, keyboard: Keyboard, people: People, faults: Faults, alter: bool, debug_ptp: bool, debug_causal: bool
    ) -> None:
        self._keyboard, self._people, self._faults = keyboard, people, faults
        self._debug_ptp, self._debug_causal = debug_ptp, debug_causal
        self._prompts = Prompts(keyboard, self._decide, True, False) if alter else None
        self._faulty: FaultyMember
        self._running: RunningMember

    def prepare(self, running: RunningMember) -> None:
        self._running = running
        self._faulty = FaultyMember(
            running.member,
            self._faults,
            self._people.name_of,
            self._tell,
            None if self._prompts is None else self._prompts.ask,
            self._tell_packet if self._debug_causal else None,
            self._people.place_of,
        )
        running.wrap_member(lambda member: cast(Member, self._faulty))
        if self._debug_causal:
            running.observers.turn.append(self._tell_turn)

    def begin(self, group: Group) -> None:
        self._keyboard.say(f"You are {self._people.name_of(group.id)}. Type a line to send it, Ctrl-D to leave.")

    def finish(self) -> None:
        if self._prompts is not None:
            self._prompts.finish()

    def _decide(self, verdict: AckVerdict) -> None:
        self._faulty.decide(verdict, self._running.now)
        self._running.driver.wake()

    def show(self, event: Event) -> None:
        name_of = self._people.name_of
        if isinstance(event, Delivery):
            self._keyboard.say(f"{name_of(event.sender)}: {to_text(event.payload)}")
        elif isinstance(event, View):
            for member, why in event.left.items():
                self._keyboard.say(f"* {name_of(member)} is dropped: {why}")
            active = sorted(event.members, key=self._people.place_of)
            self._keyboard.say(f"* active: {', '.join(map(name_of, active))}")

    async def take(self, group: Group, line: str) -> bool:
        if self._prompts is not None and self._prompts.is_waiting:
            self._prompts.answer(line)
            return True
        to = None
        if line.startswith("@"):
            names, _, line = line[1:].partition(" ")
            to = [self._people.find(name, group.members) for name in names.split(",") if name]
        if line:
            await group.cast(to_bytes(line), to=to)
        return True

    # Debugging.

    def _tell(self, text: str) -> None:
        if self._debug_ptp:
            self._keyboard.say(f"[ptp] {text}")

    def _tell_packet(self, origin: MemberId, packet: Any) -> None:
        batch: Batch = packet.batch
        vector = self._vector(packet.vector)
        self._keyboard.say(f"[causal] {self._people.name_of(origin)}:{batch.first} came with vector {vector}")

    def _tell_turn(self, events: list[Happening], now: int) -> None:
        member = self._running.member
        for event in events:
            if isinstance(event, Batch):
                for number in range(event.first, event.first + event.count):
                    name = self._people.name_of(member.engine.view.members[event.origin])
                    self._keyboard.say(f"[causal] delivered {name}:{number}")
        if any(isinstance(event, Batch) for event in events):
            ordering = member.engine.ordering
            if isinstance(ordering, Causal):
                self._keyboard.say(f"[causal] vector here {self._vector(ordering.vector)}")
            waits = [
                f"{self._people.name_of(member.engine.view.members[one.batch.origin])}:{one.batch.first}"
                for one in ordering.waits()
            ]
            self._keyboard.say(f"[causal] held back: {', '.join(waits) or 'nothing'}")

    def _vector(self, vector: Sequence[int]) -> str:
        members = self._running.member.engine.view.members
        names = map(self._people.name_of, members)
        return "(" + ", ".join(f"{name} {count}" for name, count in zip(names, vector, strict=False)) + ")"
