"""A schedule of the explorer, step by step, on fresh objects: to tell what happened, and to see it again."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from unisono.core.errors import Misuse
from unisono.core.ordering import AnyOrdering
from unisono.core.types import Packet, Property, Rank
from unisono.core.views import packet_for
from unisono.orders.registry import ORDERS
from unisono.sim.explore.orders.case import (
    NAMES,
    Case,
    Counterexample,
    FlushStep,
    Step,
    Stream,
    Turn,
    load_counterexample,
    name_of,
    parse_step,
    write_step,
)
from unisono.sim.explore.orders.judge import Judge, clash, sequence_of
from unisono.sim.explore.orders.member import CaseMember, Setup, merge
from unisono.sim.explore.search import blame
from unisono.sim.oracle import missing_packets


class Run:
    """The members of a case, the streams between them, and what is wrong, once something is."""

    def __init__(self, case: Case, order: type[AnyOrdering]) -> None:
        self.setup = Setup(case, order)
        self.judge = Judge(self.setup)
        self.locals = [CaseMember(self.setup, rank) for rank in self.setup.ranks]
        self.streams: dict[tuple[Rank, Rank, Stream], deque[Packet]] = {
            (sender, receiver, stream): deque()
            for sender in self.setup.ranks
            for receiver in self.setup.ranks
            for stream in Stream
        }
        self.sentence: str | None = None
        self._over = False

    def take(self, step: Step) -> str:
        """Take one step and return it as a sentence. A step that is not possible here is the caller's mistake."""
        text = write_step(step, len(self.locals), *self._shown(step))
        if self._over or self.sentence is not None:
            raise Misuse(f"the step {text!r} comes when all is over.")
        try:
            if isinstance(step, Turn):
                self._turn(step)
            else:
                self._over = True
                self.sentence = self._flush(step.crashed) if isinstance(step, FlushStep) else self._end()
        except Misuse:
            raise
        except Exception as error:
            self.sentence = blame(error)
        return text

    def _shown(self, step: Step) -> tuple[list[str], int]:
        """The packets that a turn receives, in words, and the index of the next message that its member casts."""
        if not isinstance(step, Turn):
            return [], 0
        taken: dict[tuple[Rank, Stream], int] = {}
        shown = []
        for head in step.receives:
            stream = self.streams[head[0], step.member, head[1]]
            place = taken.get(head, 0)
            taken[head] = place + 1
            if place >= len(stream):
                raise Misuse(
                    f"{NAMES[step.member]} cannot receive from {NAMES[head[0]]}: its {head[1]} stream is empty."
                )
            shown.append(_in_words(stream[place]))
        local = self.locals[step.member]
        if local.cast + step.casts > len(self.setup.case.messages[step.member]):
            raise Misuse(f"{NAMES[step.member]} has nothing more to cast.")
        return shown, local.cast

    def _turn(self, turn: Turn) -> None:
        me = turn.member
        received = tuple((sender, self.streams[sender, me, stream].popleft()) for sender, stream in turn.receives)
        out = self.locals[me].take_turn(turn.casts, received, turn.quiet)
        for receiver in self.setup.ranks:
            if receiver != me:
                self.streams[me, receiver, Stream.CAST].extend(packet_for(packet, receiver) for packet in out.casts)
        for receiver, packet in out.sends:
            self.streams[me, receiver, Stream.UNICAST].append(packet)
        if Property.TOTAL in self.setup.order.guarantees:
            mine = sequence_of(self.locals[me].history)
            clashes = (clash(me, mine, other.rank, sequence_of(other.history)) for other in self.locals)
            self.sentence = next(filter(None, clashes), None)

    def _flush(self, crashed: tuple[Rank, ...]) -> str | None:
        survivors = [local for local in self.locals if local.rank not in crashed]
        reports = {local.rank: local.report() for local in survivors}
        cut = merge(self.setup, reports)
        lacks = missing_packets(self.setup.view, cut, reports, [local.engine.kept for local in survivors])
        for local in survivors:
            local.close(cut, lacks[local.rank])
        return self.judge.flush([local.history for local in self.locals], crashed)

    def _end(self) -> str | None:
        casting = [local.rank for local in self.locals if local.cast < len(self.setup.case.messages[local.rank])]
        waiting = [local.rank for local in self.locals if local.is_armed and self._would_acknowledge(local)]
        for (_, receiver, _), packets in self.streams.items():
            waiting += [receiver] * bool(packets)
        if casting or waiting:
            raise Misuse(
                f"the schedule ends too early: add the turns that member {NAMES[min(casting + waiting)]} can still take."
            )
        return self.judge.end([local.history for local in self.locals])

    def _would_acknowledge(self, local: CaseMember) -> bool:
        out = local.take_turn(0, (), quiet=True)
        return bool(out.casts or out.sends)


def tell(case: Case, order: type[AnyOrdering], steps: Sequence[Step]) -> Counterexample:
    """Run a schedule that breaks a promise, and write it down."""
    run = Run(case, order)
    schedule = tuple(run.take(step) for step in steps)
    assert run.sentence is not None, "what the search found can be seen again on fresh objects"
    return Counterexample(name_of(order, ORDERS), case, schedule, run.sentence)


def replay(
    path: Path, orders: Mapping[str, type[AnyOrdering]] = ORDERS, write: Callable[[str], object] = print
) -> str | None:
    """Run the schedule in a file, and write every step with what it delivers. Returns what is wrong, or None if all is well."""
    example = load_counterexample(path)
    if example.order not in orders:
        raise Misuse(f"{path} is about the order {example.order!r}: there are only {', '.join(orders)}.")
    run = Run(example.case, orders[example.order])
    for number, text in enumerate(example.schedule, 1):
        seen = [len(local.history) for local in run.locals]
        try:
            write(f"{number:3}. {run.take(parse_step(text, example.case.members))}")
        except Misuse as error:
            raise Misuse(f"{path} is broken: step {number} is not possible, because {error}") from None
        for local, before in zip(run.locals, seen, strict=True):
            delivered = [str(act) for act in local.history[before:] if act.delivered]
            if delivered:
                write(f"       {NAMES[local.rank]} delivers {', '.join(delivered)}")
    write(f"   => {run.sentence or 'every promise is kept so far.'}")
    if run.sentence != example.sentence:
        write(f"      (The file says: {example.sentence or 'nothing.'})")
    return run.sentence


def _in_words(packet: Packet) -> str:
    """A packet for a reader: what occupies a slot by its number, the rest in full."""
    number = getattr(packet, "number", None)
    return repr(packet) if number is None else f"{type(packet).__name__} {number}"
