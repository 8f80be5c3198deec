"""Streams over a bad network, in virtual time. The same seed gives the same run to the byte."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from random import Random
from typing import Any, NamedTuple, TypeAlias
from unittest.mock import patch

import pytest

from unisono.core.streams import Streams, StreamSettings
from unisono.core.streams import inbound as inbound_module
from unisono.core.streams import streams as streams_module
from unisono.core.streams.inflow import Inflow
from unisono.core.streams.join import Join
from unisono.core.streams.outflow import Outflow
from unisono.core.types import MemberId, Rank, View, ViewId
from unisono.core.wire.envelope import (
    BODY,
    CAST,
    FRAGMENT,
    HEAD,
    NAK,
    POLL,
    ROW,
    SEND,
    TO_ALL,
    VERSION,
    Refusal,
    make_plain,
    view_tag,
)

MS = 1_000_000
S = 1_000 * MS


class Seen(NamedTuple):
    """One datagram on one path, taken apart by somebody who does not use the code under test for it."""

    at: int
    sender: Rank
    to: Rank
    to_all: bool
    counter: int
    tries: int
    poll: bool
    rows: list[tuple[int, ...]]
    naks: list[tuple[int, ...]]  # origin, kind, first, count
    kind: int | None  # None: no body
    origin: int
    seq: int
    size: int

    @property
    def is_cast(self) -> bool:
        return self.kind is not None and not self.kind & SEND

    @property
    def is_send(self) -> bool:
        return self.kind is not None and bool(self.kind & SEND)

    @property
    def is_fragment(self) -> bool:
        return self.kind is not None and bool(self.kind & FRAGMENT)


def look(at: int, sender: Rank, to: Rank, datagram: bytes) -> Seen:
    head = HEAD.unpack_from(datagram)
    naks, rows = head[7], head[8]
    rows_end = HEAD.size + ROW.size * rows
    naks_end = rows_end + NAK.size * naks
    kind, origin, seq = None, -1, -1
    if head[9]:
        kind, origin, seq, _, _ = BODY.unpack_from(datagram, naks_end)
    return Seen(
        at,
        sender,
        to,
        head[3] == TO_ALL,
        head[5],
        head[6],
        bool(head[1] & POLL),
        list(ROW.iter_unpack(datagram[HEAD.size : rows_end])),
        list(NAK.iter_unpack(datagram[rows_end:naks_end])),
        kind,
        origin,
        seq,
        len(datagram),
    )


Make: TypeAlias = Callable[..., Streams]


def planted(mutant: type) -> Make:
    """Makes streams with a mutant in the place of the part that it alters, and with those that it is planted with."""

    def make(*args: Any, **kwargs: Any) -> Streams:
        parts = (mutant, *getattr(mutant, "also", ()))
        altered = {
            next(base.__name__ for base in part.__mro__ if hasattr(streams_module, base.__name__)): part
            for part in parts
        }
        with patch.multiple(streams_module, **altered):
            return streams_module.Streams(*args, **kwargs)

    return make


class Parts(NamedTuple):
    """What streams are made of, in the order in which it was made."""

    outflows: list[Outflow]  # the cast stream, then the unicast stream to each member
    inflows: list[Inflow]
    joins: list[Join]


def opened(*args: Any, **kwargs: Any) -> tuple[Streams, Parts]:
    """Streams, and the parts whose accounts a test checks."""
    parts = Parts([], [], [])

    def noted(kind: Callable[..., Any], into: list[Any]) -> Callable[..., Any]:
        def make(*given: Any) -> Any:
            into.append(kind(*given))
            return into[-1]

        return make

    with (
        patch.multiple(streams_module, Outflow=noted(Outflow, parts.outflows), Inflow=noted(Inflow, parts.inflows)),
        patch.object(inbound_module, "Join", noted(Join, parts.joins)),
    ):
        return Streams(*args, **kwargs), parts


Drop = Callable[[Seen], bool]


def no_drop(seen: Seen) -> bool:
    return False


@dataclass
class Net:
    """So many members' streams, and what the network does to their datagrams."""

    members: int = 2
    settings: StreamSettings = field(default_factory=StreamSettings)
    seed: int = 0
    loss: float = 0.0
    duplicate: float = 0.0
    delay_ns: tuple[int, int] = (1 * MS, 1 * MS)
    drop: Drop = no_drop
    make: Make = Streams
    now: int = 0

    def __post_init__(self) -> None:
        self.chance = Random(f"{self.seed}/network")
        self.view = view_of(self.members)
        self.nodes = [
            self.make(self.view, rank, self.settings, Random(f"{self.seed}/{rank}"), self.now)
            for rank in range(self.members)
        ]
        self.got: list[list[tuple[Rank, bytes]]] = [[] for _ in range(self.members)]
        self.log: list[Seen] = []
        self.stopped: set[Rank] = set()  # members that neither receive nor drain
        self.takes: set[Rank] = set(range(self.members))  # members whose ordering takes in what arrives
        self._events: list[tuple[int, int, Rank, Rank | None, bytes]] = []
        self._ties = 0
        self._turns_at = (0, 0)  # when, and how many turns there were at that time

    def turn(self, rank: Rank) -> None:
        """End a member's turn: show, drain, send."""
        if rank in self.stopped:
            return
        node = self.nodes[rank]
        at, turns = self._turns_at
        self._turns_at = (self.now, turns + 1 if at == self.now else 0)
        assert turns < 10_000, f"member {rank} spins"
        self.got[rank] += [(origin, bytes(packet)) for origin, packet in node.arrived()]
        if rank in self.takes:
            node.take_all()
        for to, datagram in node.drain(self.now):
            for peer in range(self.members):
                if peer != rank and to in (None, peer):
                    self._carry(rank, peer, datagram)
        if node.deadline is not None:
            self._push(max(node.deadline, self.now), rank, None, b"")

    def _carry(self, sender: Rank, to: Rank, datagram: bytes) -> None:
        seen = look(self.now, sender, to, datagram)
        self.log.append(seen)
        if self.drop(seen) or self.chance.random() < self.loss:
            return
        copies = 2 if self.chance.random() < self.duplicate else 1
        for _ in range(copies):
            self._push(self.now + self.chance.randint(*self.delay_ns), to, sender, datagram)

    def _push(self, at: int, rank: Rank, sender: Rank | None, datagram: bytes) -> None:
        self._ties += 1
        heappush(self._events, (at, self._ties, rank, sender, datagram))

    def run(self, until: int) -> None:
        """Let time pass up to `until`."""
        while self._events and self._events[0][0] <= until:
            self._step()
        self.now = until

    def run_quiet(self, limit: int = 600 * S) -> int:
        """Let time pass until nothing is on its way and nobody waits for anything. Returns when the last datagram left."""
        end = self.now + limit
        while self._events:
            assert self._events[0][0] <= end, f"not quiet after {limit / S} s: {self.log[-6:]}"
            self._step()
        assert all(node.deadline is None for rank, node in enumerate(self.nodes) if rank not in self.stopped)
        return self.log[-1].at if self.log else 0

    def _step(self) -> None:
        at, _, rank, sender, datagram = heappop(self._events)
        self.now = at
        node = self.nodes[rank]
        if rank in self.stopped:
            return
        if sender is not None:
            node.receive(sender, datagram, at)
        elif node.deadline is None or node.deadline > at:
            return  # an alarm that was put off
        self.turn(rank)

    # What must hold.

    def expect(
        self,
        casts: list[list[bytes]],
        sends: dict[tuple[Rank, Rank], list[bytes]] | None = None,
        seen: Callable[[Rank, Rank], list[bytes]] | None = None,
    ) -> None:
        """Every member has every other's casts, and what was sent to it, in order per stream and exactly once. `seen`: the casts
        of one member as another one is to see them."""
        sends = sends or {}
        for rank in range(self.members):
            if rank in self.stopped:
                continue
            for origin in range(self.members):
                if origin == rank:
                    continue
                mine = [packet for sender, packet in self.got[rank] if sender == origin]
                own = sends.get((origin, rank), [])
                wanted_sends = set(own)
                wanted = casts[origin] if seen is None else seen(origin, rank)
                assert [p for p in mine if p not in wanted_sends] == wanted, f"casts of {origin} at {rank}"
                assert [p for p in mine if p in wanted_sends] == own, f"sends of {origin} at {rank}"
        if not self.stopped:
            for node in self.nodes:
                assert node.received_by_all == [self.settings.numbering_first + len(packets) for packets in casts]
                if len(self.takes) == self.members:
                    assert node.taken_by_all == node.received_by_all

    def total(self, name: str) -> int:
        return sum(getattr(node.counters, name) for node in self.nodes)


def view_of(members: int, number: int = 1) -> View:
    ids = tuple(MemberId(f"m{i}") for i in range(members))
    return View(ViewId(number, ids[0]), ids)


def numbered(count: int, size: int = 20, tag: str = "") -> list[bytes]:
    return [f"{tag}{i}.".encode().ljust(size, b"x") for i in range(count)]


def cast_apart(net: Net, packets: list[bytes], rank: Rank = 0, gap_ns: int = 0) -> None:
    """One cast a turn, so that each is a datagram of its own."""
    for packet in packets:
        net.nodes[rank].cast(packet)
        net.turn(rank)
        net.run(net.now + gap_ns)


def first_time(seqs: set[int]) -> Callable[[Seen], bool]:
    return lambda seen: seen.is_cast and seen.tries == 0 and seen.seq in seqs


def fails(scenario: Callable[[Make], Any], mutant: type) -> None:
    """The scenario must notice the mutant."""
    with pytest.raises(AssertionError):
        scenario(planted(mutant))


def catching(*mutants: type) -> Callable[[Callable[[Make], None]], Callable[[], None]]:
    """A test that streams pass, and that each of these mutants fails."""

    def test_of(scenario: Callable[[Make], None]) -> Callable[[], None]:
        def test() -> None:
            scenario(Streams)
            for mutant in mutants:
                fails(scenario, mutant)

        test.__name__ = scenario.__name__
        return test

    return test_of


class Forger:
    """Makes datagrams by hand, as a hostile member 0 of the same view would."""

    def __init__(self, members: int = 3) -> None:
        self.view = view_tag(view_of(members))
        self.counter = 0

    def datagram(
        self,
        body: bytes = b"",
        rows: tuple[tuple[int, ...], ...] = (),
        naks: tuple[tuple[int, ...], ...] = (),
        changes: dict[str, int] | None = None,
    ) -> bytes:
        self.counter += 1
        head = {
            "version": VERSION,
            "flags": 0,
            "sender": 0,
            "to": TO_ALL,
            "view": self.view,
            "counter": self.counter,
            "tries": 0,
            "naks": len(naks),
            "rows": len(rows),
            "body_bytes": len(body),
            "room": 2**32 - 1,
            "cast_end": 0,
            "send_end": 0,
        }
        head.update(changes or {})
        return b"".join(
            (HEAD.pack(*head.values()), *(ROW.pack(*row) for row in rows), *(NAK.pack(*nak) for nak in naks), body)
        )


def plain(seq: int, *packets: bytes, kind: int = CAST, origin: int = 0, marks: tuple[int, ...] = ()) -> bytes:
    return make_plain(kind, origin, seq, list(packets), list(map(len, packets)), list(marks))


def refusals(node: Streams) -> dict[Refusal, int]:
    return {reason: count for reason, count in node.counters.refused.items() if count}
