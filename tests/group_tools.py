"""What tests of whole groups share: load, judgement, and faults that pick single control messages or datagrams."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, NamedTuple

from unisono.core.config import Config
from unisono.core.member.events import Entered
from unisono.core.member.member import Member, Settings
from unisono.core.membership.tickets import PAIR
from unisono.core.options import CastOptions
from unisono.core.types import MemberId, Packet, Rank
from unisono.core.wire.control import ANSWER, CUT, DECREE, ROLL, Chunk, Control, ControlCodec, Hello
from unisono.core.wire.envelope import BODY, HEAD, NAK, ROW, SEND
from unisono.core.wire.frame import HEAD_BYTES, ControlFrame, Frames
from unisono.sim.group_world import QUICK, GroupWorld, SimulatedProcess
from unisono.trace.checks import Verdict

Rule = Callable[[str, str, Control], bool]
"""Names control messages, by sender, receiver and content."""
CHUNKS = {ANSWER: "answer", CUT: "cut", ROLL: "roll", DECREE: "decree"}
_FRAMES = Frames("simulated", MemberId("onlooker"))
_CONTROL = ControlCodec(Config())


def load(world: GroupWorld, rounds: int, gap_s: float = 0.01, options: CastOptions | None = None) -> int:
    """Everyone who is up casts, again and again; how many casts were taken."""
    taken = 0
    for number in range(rounds):
        for process in world.up:
            taken += process.cast(f"{process.id}/{number}/{world.now}".encode(), options or CastOptions())
        world.run(gap_s)
    return taken


def passes(world: GroupWorld) -> Verdict:
    """Heal, come to rest within the bound, and keep every promise."""
    verdict = world.finish()
    assert verdict.result == "PASS", f"{verdict}\n{world.story()}"
    return verdict


def settles(world: GroupWorld, names: Iterable[str], seconds: float = 10) -> None:
    """One view of exactly these comes about."""
    assert world.run(seconds, lambda: world.is_one(names)), world.story()


def texts(process: SimulatedProcess) -> list[bytes]:
    """What the application was shown."""
    return [payload for _, payload in process.delivered]


def retained_packets(member: Member) -> list[Packet]:
    """What a member keeps of the packets of its view, for others that may miss them."""
    engine = member.engine
    slots = [
        (origin, number) for origin in range(len(engine.view)) for number in range(1, engine.kept.slots(origin) + 1)
    ]
    return [packet for slot in slots if (packet := engine.retained(slot)) is not None]


def with_membership(**changes: Any) -> Settings:
    return replace(QUICK, membership=replace(QUICK.membership, **changes))


def with_streams(config: Config = QUICK.config, **changes: Any) -> Settings:
    return replace(QUICK, config=config, streams=replace(QUICK.streams, **changes))


def control_in(datagram: bytes) -> Control | None:
    """The control message in a datagram, if it holds one."""
    frame = _FRAMES.open(datagram)
    message = frame.message[PAIR.size :] if isinstance(frame, ControlFrame) else b""
    return _CONTROL.read(message) if any(message) else None  # type: ignore[return-value]


def greeting(process: SimulatedProcess, sender: MemberId, **changes: Any) -> Hello:
    """The answer of a member without a view to a greeting of this process."""
    membership = process.member._membership
    hello = membership.greeting(membership.greeting().nonce)
    nothing = {"view": None, "members": (), "coordinator": sender, "suspects": (), "addresses": ()}
    return hello._replace(**nothing | changes)


def send(world: GroupWorld, to: str, sender: MemberId, message: Packet) -> None:
    """A control message in the name of `sender`, from an insider that has seen the tickets of both."""
    process, other = world.processes[to], world.processes.get(sender.address)
    given = other.member.tickets.ticket(to) if isinstance(other, SimulatedProcess) else 1
    pair = PAIR.pack(given, process.member.tickets.ticket(sender.address))
    process.take(Frames("simulated", sender).control(pair + _CONTROL.encode(message)))


def name_of(message: Control) -> str:
    """What a control message is called; a chunk, by what it is part of."""
    return CHUNKS.get(message.topic, "packets") if isinstance(message, Chunk) else type(message).__name__.lower()


def watch_control(world: GroupWorld, *rules: Rule) -> Counter[str]:
    """From now on, until the heal: each rule sees what those before it let through, and what it names is lost.

    Returns how many control messages of each name get through. A rule acts on members only by `world.after`, because it is
    asked in the middle of the sender's turn.
    """
    through: Counter[str] = Counter()

    def drops(src: str, dst: str, datagram: bytes) -> bool:
        message = control_in(datagram)
        if message is None:
            return False
        is_lost = any(rule(src, dst, message) for rule in rules)
        through[name_of(message)] += not is_lost
        return is_lost

    world.network.drops = drops
    return through


class Body(NamedTuple):
    """What a datagram of a view's streams carries: a part of somebody's casts, or of what it sent to one member."""

    is_cast: bool
    origin: Rank
    seq: int


def body_in(datagram: bytes) -> Body | None:
    """The body in a datagram; None for control messages and bare acknowledgements."""
    if not datagram.startswith(_FRAMES.stream_head):
        return None
    naks, rows, size = HEAD.unpack_from(datagram, HEAD_BYTES)[7:10]
    if not size:
        return None
    at = HEAD_BYTES + HEAD.size + rows * ROW.size + naks * NAK.size
    kind, origin, seq, _, _ = BODY.unpack_from(datagram, at)
    return Body(not kind & SEND, origin, seq)


class ClosingWorld(GroupWorld):
    """Also sees what no trace shows: every member that is named as coming along has closed with that cut, or is further."""

    def process(self, id: MemberId, settings: Settings, record: bytes | None) -> SimulatedProcess:
        process = super().process(id, settings, record)
        process.on_event = self._check
        return process

    def _check(self, _: SimulatedProcess, event: object) -> None:
        for part in event.charter.parts if isinstance(event, Entered) else ():
            for process in self.lives:
                view, closed = process.view, process.member._membership.closed
                if process.id in part.members and view is not None and view.id == part.view:
                    assert closed is not None, (
                        f"{process.id} has not closed {part.view}, and the next view is installed"
                    )
                    assert closed.id == part.cut, f"{process.id} closed {part.view} with another cut than {part.cut}"
