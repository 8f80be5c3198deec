"""One member of a simulated group tells one lie, and the others are watched.

A lie is a packet, a report, a cut or a control message in which one thing is replaced: a number by one that cannot be (0, one less,
one more, far ahead, the largest), a list by one that is shorter, longer, empty or turned round, a batch by one of another
service, of other addressees, without its payloads. It is told where the liar encodes it, so it travels like the truth.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from unisono.core.config import Config
from unisono.core.departure import Cause
from unisono.core.member.member import Member, Settings
from unisono.core.options import CastOptions
from unisono.core.types import Batch, MemberId, Packet, Property, Service
from unisono.core.wire.codec import Codec
from unisono.core.wire.control import ControlCodec
from unisono.orders import abcast, rmp, tomp
from unisono.sim.group_world import QUICK, GroupWorld, Process

NAMES = "abcd"
NUMBERS = (0, 1, 4, 2**16 - 1, 2**32 - 1, 2**33, 2**62, 2**63, 2**64 - 1)
REFUSED = ("packet", "impossible packet")
UNICAST = (abcast.Propose, tomp.Acknowledge, rmp.Accept, rmp.Vote)
"""What only one member is told."""
Hook = Callable[[Packet], Packet]


def lies(value: Any) -> Iterator[Any]:
    """Everything that this value becomes when one thing in it is replaced."""
    match value:
        case bool():
            yield not value
        case Service():
            yield from (other for other in Service if other is not value)
        case int():
            yield from (n for n in dict.fromkeys((value - 1, value + 1, *NUMBERS)) if n != value and n >= 0)
        case Batch():
            yield from _batches(value)
        case tuple():
            remake = getattr(type(value), "_make", tuple)
            for at in range(len(value)):
                if hasattr(value, "_fields") or at in (0, len(value) - 1):
                    yield from (remake((*value[:at], lie, *value[at + 1 :])) for lie in lies(value[at]))
            if not hasattr(value, "_fields"):
                yield from (other for other in _lists(value) if other != value)


def _lists(value: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    yield ()
    yield value[:-1]
    yield value + value[-1:]
    yield value[::-1]


def _batches(batch: Batch) -> Iterator[Batch]:
    def changed(first: int, payloads: Sequence[bytes] | None, service: Service) -> Batch:
        return Batch(batch.origin, first, payloads, service, batch.to, batch.count, batch.digest, batch.safe)

    for first in lies(batch.first):
        yield changed(first, batch.payloads, batch.service)
    for service in lies(batch.service):
        yield changed(batch.first, batch.payloads, service)
    yield changed(batch.first, None, batch.service)


class LyingCodec(Codec):
    """Encodes what the hook makes of a packet, or the packet itself if that has no encoding."""

    __slots__ = ("hook", "within")

    def __init__(self, within: Codec, hook: Hook) -> None:
        super().__init__(within.layouts, within._config)
        self.within = within
        self.hook = hook

    def encode(self, packet: Packet) -> bytes:
        return super().encode(self.hook(packet))


class LyingControlCodec(ControlCodec):
    __slots__ = ("hook",)

    def __init__(self, config: Config, hook: Hook) -> None:
        super().__init__(config)
        self.hook = hook

    def encode(self, packet: Packet) -> bytes:
        return super().encode(self.hook(packet))


class Witness(Member):
    """A correct member that remembers whom it has blamed."""

    def __init__(self, *arguments: Any) -> None:
        self.blamed: list[MemberId] = []
        super().__init__(*arguments)

    def suspect(self, member: MemberId, cause: Cause) -> None:
        if cause is Cause.FAULTY:
            self.blamed.append(member)
        super().suspect(member, cause)


class Liar(Member):
    """A member that tells the lie of that number about the first packet of that type, once it is asked to."""

    def __init__(self, *arguments: Any) -> None:
        self.subject: type | None = None
        self.number = 0
        self.count = 0
        self.told: tuple[Packet, Packet] | None = None
        super().__init__(*arguments)
        host = self._membership._context
        honest = host.order_codec
        host.order_codec = lambda order: LyingCodec(honest(order), self.falsify)  # type: ignore[method-assign]
        host.codec = self._control = LyingControlCodec(self.settings.config, self.falsify)

    def suspect(self, member: MemberId, cause: Cause) -> None:
        """It tells one lie, and no more: it does not accuse those who answer to it."""
        if cause is not Cause.FAULTY:
            super().suspect(member, cause)

    def install(self, *arguments: Any) -> None:
        super().install(*arguments)
        self._codec = LyingCodec(self._codec, self.falsify)

    def falsify(self, packet: Packet) -> Packet:
        if self.subject is not type(packet) or self.told is not None:
            return packet
        found: list[Packet] = []
        for other in lies(packet):
            try:
                Codec((self._layout(type(packet)),), self.settings.config).encode(other)
            except Exception:
                continue  # it has no encoding
            found.append(other)
        self.count = len(found)
        if self.number < len(found):
            self.told = (packet, found[self.number])
            return found[self.number]
        return packet

    def _layout(self, kind: type) -> Any:
        order = self._orders[self._order]
        known = (*order.wire, order.report_wire, order.cut_wire, *self._control.layouts)
        return next(layout for layout in known if layout.type is kind)


class LiarsProcess(Process):
    """What the liar does to itself is nobody's concern."""

    def take(self, datagram: bytes) -> None:
        try:
            super().take(datagram)
        except Exception as error:
            self._end(error)

    def turn(self) -> None:
        try:
            super().turn()
        except Exception as error:
            self._end(error)

    def _end(self, error: Exception) -> None:
        self.error = error
        self.alive, self.ended = False, True


class LyingWorld(GroupWorld):
    """Four members, of which one lies."""

    def __init__(self, order: str, liar: str, seed: object = 1, settings: Settings = QUICK, **more: Any) -> None:
        super().__init__(order, seed, settings, kind=Witness, **more)
        self.has_liars = True
        self.liar = liar
        self.gather(NAMES)

    def process(self, id: MemberId, settings: Settings, record: bytes | None) -> Process:
        if id.address != self.liar:
            return super().process(id, settings, record)
        self.kind = Liar
        try:
            return LiarsProcess(self, id, settings, record)
        finally:
            self.kind = Witness

    @property
    def correct(self) -> list[Process]:
        return [process for name, process in self.processes.items() if name != self.liar]

    def load(self, word: str, rounds: int = 6, pause_s: float = 0.01) -> None:
        """Everyone casts, again and again, in every service that the order has."""
        services = sorted(self.orders[self.order].services)
        for number in range(rounds):
            service = services[number % len(services)]
            for process in list(self.processes.values()):
                text = f"{word} {number} of {process.id.address}, {service.name.lower()}"
                process.cast(text.encode(), CastOptions(service=service))
            self.run(pause_s)

    def tell(self, subject: type, number: int, prompt: Callable[[], None] | None = None) -> Liar:
        """The liar tells the lie of that number about its next packet of that type, while all of them cast."""
        liar = self.processes[self.liar].member
        assert isinstance(liar, Liar)
        self.load("before")
        liar.subject, liar.number = subject, number
        if prompt is not None:
            prompt()
        self.load("meanwhile", 12)
        return liar

    def judge(self) -> str | None:
        """What the correct members were promised and did not get; None if all is well."""
        correct = self.correct
        self.run(8, self._is_calm)
        names = [process.id.address for process in correct]
        if not self._is_calm():
            return "the correct members do not come into one view:\n" + self.story()
        for process in correct:
            blamed = [member for member in process.member.blamed if member.address != self.liar]  # type: ignore[attr-defined]
            if blamed:
                return f"{process.id} blames {blamed[0]}, which is correct: {process.member.lie}"
        marks = [f"mark of {name}".encode() for name in names]
        for process, mark in zip(correct, marks, strict=True):
            process.cast(mark)
        everywhere = lambda: all(mark in [p for _, p in one.delivered] for one in correct for mark in marks)  # noqa: E731
        if not self.run(8, everywhere):
            return "the correct members do not go on delivering:\n" + self.story()
        is_total = Property.TOTAL in self.orders[self.order].guarantees
        delivered = [
            [m for m in one.delivered if m[1] in marks or (self.is_refused_by_all and not m[1].endswith(b"datagram"))]
            for one in correct
        ]
        if any(sorted(one) != sorted(delivered[0]) for one in delivered):
            return "the correct members have delivered different messages"
        if is_total and len(self.orders[self.order].services) == 1 and any(one != delivered[0] for one in delivered):
            return "the correct members have delivered in different orders"
        return None

    @property
    def is_refused_by_all(self) -> bool:
        """Whether every correct member that was told the lie has seen that it is one. Otherwise some may have acted on it."""
        liar = self.processes[self.liar].member
        assert isinstance(liar, Liar)
        refused = sum(not one.member.dropped.keys().isdisjoint(REFUSED) for one in self.correct)
        return refused >= (1 if liar.subject in UNICAST else len(NAMES) - 1)

    def _is_calm(self) -> bool:
        """All correct members are in one view, with the liar or without it, and so is nobody else."""
        views = {process.view for process in self.correct}
        view = next(iter(views))
        wanted = {process.id for process in self.correct}
        liar = self.processes[self.liar].id
        is_one = len(views) == 1 and view is not None and wanted <= set(view.members) <= wanted | {liar}
        return is_one and not any(process.member.is_blocked or process.member._is_planning for process in self.correct)
