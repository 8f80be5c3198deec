"""One member as the explorer drives it, and its state as a value.

`CaseMember` drives the ordering that ships through the turns of `core.member`, and keeps beside it what a member keeps for
a view change. `freeze` turns whatever an ordering holds into a value that can be compared and hashed. Two members with equal
values behave alike for ever, so the explorer needs to follow only one of them. Hence the rule here: to tell apart too much is
merely slow, to take two different states for one would overlook bugs. So nothing is known about any protocol, and nothing is
sorted: a dict is its items in their order, a heap is the list that it lies in, and a mutable object that is reached
in two ways is seen to be one. (Sorting dicts and heaps would more than halve the states of three concurrent ABCAST messages.)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from itertools import groupby
from traceback import extract_tb
from typing import Any, NamedTuple, TypeAlias

from unisono.core.config import Config
from unisono.core.errors import Misuse
from unisono.core.ordering import AnyOrdering, Cut, Report
from unisono.core.outbox import Outbox
from unisono.core.types import Batch, Packet, Rank, Slot, View
from unisono.core.views import packet_for
from unisono.sim.explore.case import NAMES, Case

Frozen: TypeAlias = Any
Received: TypeAlias = tuple[tuple[Rank, Packet], ...]


class ContractViolation(Exception):
    """An ordering broke its contract. The text says how, in one sentence."""


class Act(NamedTuple):
    """What a member's history consists of: it cast a batch, or delivered one."""

    delivered: bool
    batch: Batch

    def __str__(self) -> str:
        batch = self.batch
        last = batch.first + batch.count - 1
        return f"{NAMES[batch.origin]}:{batch.first}" + (f"-{last}" if batch.count > 1 else "")


class Setup:
    """A case with an order: what all members of it share."""

    def __init__(self, case: Case, order: type[AnyOrdering]) -> None:
        for message in (message for own in case.messages for message in own):
            if message.service is not None and message.service not in order.services:
                offered = ", ".join(sorted(service.name.lower() for service in order.services))
                raise Misuse(f"this order does not carry {message.service.name.lower()} messages: choose {offered}.")
        self.case = case
        self.order = order
        self.view: View = case.view
        self.config: Config = case.config
        self.ranks = range(case.members)
        self.numbered = frozenset(order.numbered)
        self.acknowledges = order.acknowledges and case.config.ack_delay_ns is not None
        self._batches: dict[tuple[Rank, int, int], tuple[Batch, ...]] = {}

    def batches(self, rank: Rank, first: int, count: int) -> tuple[Batch, ...]:
        """The batches for `count` messages of one turn: a batch closes where options change. Each is made once, and shared."""
        key = (rank, first, count)
        if key not in self._batches:
            made = []
            messages = self.case.messages[rank][first : first + count]
            for options, group in groupby(messages):
                payloads = [f"{NAMES[rank]}{first + i}".encode() for i in range(len(list(group)))]
                service = self.order.service if options.service is None else options.service
                made.append(Batch(rank, first, payloads, service, options.to))
                first += len(payloads)
            self._batches[key] = tuple(made)
        return self._batches[key]


class CaseMember:
    """One member of a case: its ordering, what it retains for a view change, and what the application saw of it."""

    __slots__ = ("armed", "cast", "history", "ordering", "rank", "retained", "setup")

    def __init__(self, setup: Setup, rank: Rank) -> None:
        self.setup = setup
        self.rank = rank
        self.ordering = setup.order(setup.view, rank, setup.config)
        self.retained: list[list[Packet]] = [[] for _ in setup.ranks]  # by origin: its numbered packets, in order
        self.history: list[Act] = []
        self.cast = 0  # messages cast so far
        self.armed = False  # something was received since the last own cast: patience can end

    def take_turn(self, casts: int, received: Received, quiet: bool) -> Outbox:
        """One turn as `ViewEngine.drain` takes it: casts, packets, patience, and the end of the turn. Returns what leaves."""
        out, ordering, numbered = Outbox(), self.ordering, self.setup.numbered
        if casts:
            for batch in self.setup.batches(self.rank, self.cast, casts):
                self.history.append(Act(False, batch))
                ordering.submit(batch, out)
                self._see(out)
            self.cast += casts
            self.armed = False
        for sender, packet in received:
            if type(packet) in numbered:
                self.retained[sender].append(packet)
            ordering.receive(sender, packet, out)
            self._see(out)
            self.armed = True
        if quiet:
            self.armed = False
            ordering.quiet(out)
            self._see(out)
        ordering.end_turn(out)
        self._see(out)
        self.retained[self.rank].extend(packet for packet in out.to_all if type(packet) in numbered)
        return out

    def holdings(self) -> list[list[Packet]]:
        """By origin: what this member can hand to others in a view change, its own packets that were never cast included."""
        held = [list(packets) for packets in self.retained]
        held[self.rank].extend(self.ordering.unsent())
        return held

    def close(self, cut: Cut, missing: Mapping[Slot, Packet]) -> None:
        """Deliver the agreed remainder of the view."""
        out = Outbox()
        self.ordering.close(cut, missing, out)
        self._see(out)
        assert not out.to_all, "a view that is closed casts nothing"
        assert not out.to_one

    def _see(self, out: Outbox) -> None:
        for batch in out.deliver:
            mine = batch.to is None or self.rank in batch.to
            self.history.append(Act(True, batch if mine else batch.placeholder()))
        out.deliver.clear()

    def freeze(self) -> tuple[Frozen, ...]:
        """The whole state as a value, in parts of which most recur in many states."""
        retained = [freeze(tuple(packets)) for packets in self.retained]
        return (*freeze(self.ordering), *retained, tuple(self.history), self.cast, self.armed)


# The flush, in the steps that the explorer remembers one by one.


def merge(setup: Setup, reports: Mapping[Rank, Report]) -> Cut:
    """The cut of these reports, which must not depend on the order in which they came in.

    They are merged as they are and backwards, so that each two of them stand in both orders.
    """
    items = list(reports.items())
    cut: Cut = setup.order.merge(setup.view, setup.config, dict(items))
    backwards: Cut = setup.order.merge(setup.view, setup.config, dict(items[::-1]))
    if cut != backwards:
        raise ContractViolation(
            f"the merge depends on the order of the reports: it gives {cut}, or backwards {backwards}."
        )
    return cut


def missing(rank: Rank, report: Report, cut: Cut, holders: Sequence[Sequence[Sequence[Packet]]]) -> dict[Slot, Packet]:
    """What one survivor lacks of the cut, as any survivor retained it; a payload only for an addressee."""
    result: dict[Slot, Packet] = {}
    for origin, last in enumerate(cut.wanted):
        for number in range(report.held[origin] + 1, last + 1):
            copies = [held[origin][number - 1] for held in holders if number <= len(held[origin])]
            if not copies:
                raise ContractViolation(f"the cut wants packet {number} of {NAMES[origin]}, which no survivor holds.")
            whole = [packet for packet in copies if _has_payload(packet)]
            result[origin, number] = packet_for((whole or copies)[0], rank)
    return result


def _has_payload(packet: Packet) -> bool:
    batch: Batch | None = getattr(packet, "batch", None)
    return batch is None or batch.payloads is not None


def blame(error: Exception) -> str:
    """An exception inside an ordering as a sentence: what, and where it was raised."""
    if isinstance(error, ContractViolation):
        return str(error)
    frame = extract_tb(error.__traceback__)[-1]
    text = f": {error}" if str(error) else ""
    return f"{type(error).__name__} in {frame.name} ({frame.line}){text}."


# Values.


def freeze(thing: object) -> Frozen:
    """Turn an object into a hashable value.

    Two objects get equal values only if no code can tell them apart, except by `is` on immutable ones.
    """
    return _freeze(thing, {})


def _freeze(thing: Any, seen: dict[int, int]) -> Frozen:
    kind = type(thing)
    if kind in _PLAIN or isinstance(thing, type):
        return thing
    if isinstance(thing, tuple):
        return (kind, *[_freeze(item, seen) for item in thing])
    if kind in _TAGGED or isinstance(thing, Enum):
        return (kind, repr(thing))  # True, 1 and 1.0 are equal, and yet not the same
    number = seen.get(id(thing))
    if number is not None:
        return ("again", number)  # the very object that was met before: changing one will change the other
    seen[id(thing)] = len(seen)
    if kind in _SEQUENCES:
        return (kind, *[_freeze(item, seen) for item in thing])
    if kind is dict:
        return (kind, *[(_freeze(key, seen), _freeze(value, seen)) for key, value in thing.items()])
    return (kind, *[(name, _freeze(value, seen)) for name, value in attributes_of(thing)])


def attributes_of(thing: object) -> Iterator[tuple[str, object]]:
    """What a slotted or plain object holds. What keeps its state elsewhere cannot be looked into, and is refused."""
    kind = type(thing)
    slots = _SLOTS.get(kind)
    if slots is None:
        slots = _SLOTS[kind] = _slots(kind)
    attributes = getattr(thing, "__dict__", None)
    if isinstance(thing, _CONTAINERS) or (not slots and attributes is None):
        raise Misuse(f"the explorer cannot compare two objects of type {kind.__name__}: hold plain data instead.")
    for name in slots:
        if hasattr(thing, name):
            yield name, getattr(thing, name)
    yield from (attributes or {}).items()


def _slots(kind: type) -> tuple[str, ...]:
    """The names of all slots, as they are reached from outside of the class."""
    names = []
    for base in kind.__mro__:
        slots = vars(base).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            hidden = name.startswith("__") and not name.endswith("__")
            names.append(f"_{base.__name__.lstrip('_')}{name}" if hidden else name)
    return tuple(name for name in names if name not in ("__dict__", "__weakref__"))


_SLOTS: dict[type, tuple[str, ...]] = {}
_PLAIN = frozenset({int, str, bytes, type(None), Batch, View, Config})
_TAGGED = frozenset({bool, float, complex})
_SEQUENCES = frozenset({list, deque, set, frozenset})
_CONTAINERS = (list, dict, set, frozenset, deque, bytearray)
