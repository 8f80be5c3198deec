"""Scenarios E with whole members: windows, back-pressure, full disks, and state that stays flat.

The streams alone are tried in `tests/sim/test_streams_load.py`.
"""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace
from enum import Enum
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from tests.group_tools import load, passes, retained_packets, settles, texts, watch_control, with_streams
from tests.transfer_world import TransferWorld
from unisono.core.config import MILLISECOND, SECOND, Config
from unisono.core.errors import Misuse
from unisono.core.member.explain import REACHES_KEPT
from unisono.core.member.member import Member
from unisono.core.options import DEFAULT, CastOptions
from unisono.core.ordering import AnyOrdering
from unisono.core.types import Batch, MemberId
from unisono.core.views import casting as casting_module
from unisono.core.weight import weigh
from unisono.orders.registry import ORDERS
from unisono.orders.rmp import Rmp
from unisono.sim.group_world import ALSO_OWED, QUICK, GroupWorld, SimulatedProcess
from unisono.trace.checks import judge
from unisono.trace.promises import promises
from unisono.trace.schema import Event
from unisono.trace.sinks import MemorySink

pytestmark = pytest.mark.seconds

orders = pytest.mark.parametrize("order", ["fifo", "causal-total", "tomp", "toto", "rmp"])
SMALL_WINDOW: dict[str, Any] = {"window_bytes": 64 * 1024, "window_bytes_start": 64 * 1024, "window_packets": 200}


def fill(process: SimulatedProcess, tries: int = 5_000, size: int = 100) -> int:
    """Cast until it is refused; how many were taken."""
    taken = 0
    while taken < tries and process.cast(bytes(size) + b"%d" % taken):
        taken += 1
    return taken


def fill_turn(process: SimulatedProcess) -> int:
    """Cast within one turn until it is refused; how many were taken."""
    taken = 0
    while taken < 1_000 and process.member.cast(b"%d" % taken) is not None:
        taken += 1
    process.turn()
    return taken


# E2, E4, E5, E6: windows.


@orders
def test_e2_the_sender_waits_for_a_window_and_the_slow_member_crashes(order: str) -> None:
    """c stands still and a's window is full. When c crashes, the view without it takes casts at once; then b crashes too."""
    world = GroupWorld(order, seed=2, settings=with_streams(Config(window_messages=300), **SMALL_WINDOW))
    a, b, c = world.gather("abc")
    world.pause("c", 60 * SECOND)
    taken = fill(a)
    assert 0 < taken < 2_000
    assert not a.cast(b"one more")
    world.crash("c")
    assert world.run(3, lambda: a.cast(b"at last")), world.story()
    settles(world, "ab")
    assert world.run(1, lambda: len(texts(b)) == taken + 1), "nothing of what waited is lost"
    assert c.ended
    world.crash("b")
    settles(world, "a")
    passes(world)


def window_is_full_while_the_flush_must_send(control_waits: bool) -> bool:
    """c takes nothing in, a's and b's windows are full of data, and d crashes: does the flush come through?"""
    world = GroupWorld("fifo", seed=4, settings=with_streams(**SMALL_WINDOW))
    a, b, c, _ = world.gather("abcd")
    c.member.set_free_room(0)
    c.turn()
    world.run(0.1)
    fill(a)
    fill(b)
    assert not a.cast(b"no")
    assert not b.cast(b"no")

    def stuck(src: str, dst: str, message: object) -> bool:
        streams = world.processes[src].member.streams
        return control_waits and streams is not None and not streams.writable()

    watch_control(world, stuck)
    world.crash("d")
    done = world.run(3, lambda: world.is_one("abc"))
    world.network.drops = None
    c.member.set_free_room(None)
    c.turn()
    world.run(1)
    passes(world)
    return done


def test_e4_the_flush_is_never_blocked_by_data() -> None:
    assert window_is_full_while_the_flush_must_send(control_waits=False)
    assert not window_is_full_while_the_flush_must_send(control_waits=True), "control behind data would wait for room"


@orders
def test_e5_own_messages_return_their_window(order: str) -> None:
    """A window of ten messages lets hundreds through, with a view change in the middle; nothing of the window is lost."""
    world = GroupWorld(order, seed=5, settings=with_streams(Config(window_messages=10)))
    a, b, _ = world.gather("abc")
    taken = 0
    for number in range(80):
        taken += fill_turn(a)
        world.run(0.02)
        if number == 40:
            world.crash("c")
    settles(world, "ab")
    world.run(1)
    assert a.member.state.unfinished == 0
    assert fill_turn(a) == 10, "the whole window is free again"
    assert taken > 400
    world.run(1)
    assert len(texts(b)) == taken + 10
    passes(world)


@orders
def test_e6_all_members_send_at_once_with_tiny_windows(order: str) -> None:
    tiny = with_streams(Config(window_messages=3), window_bytes=1_024, window_bytes_start=1_024, window_packets=3)
    world = GroupWorld(order, seed=6, settings=tiny)
    world.network.loss = 0.1
    names = "abcd"
    world.gather(names)
    said = dict.fromkeys(names, 0)
    for _ in range(70):
        for process in world.up:
            name = process.id.address
            said[name] += process.cast(f"{name}{said[name]}".encode().ljust(200, b"."))
        world.run(0.01)
    world.pause("d", 100 * MILLISECOND)
    world.run(2)
    assert min(said.values()) > 10, "nobody starves"
    assert {len(texts(process)) for process in world.up} == {sum(said.values())}
    passes(world)


# E7: the disk that the trace is written to is full.


class FullDisk(MemorySink):
    """Takes nothing more after some rows, for a while or for good."""

    def __init__(self, full_from: int, full_to: int | None = None) -> None:
        super().__init__()
        self.full_from, self.full_to = full_from, full_to
        self.offered = 0

    def write(self, events: Sequence[Event]) -> None:
        self.offered += len(events)
        if self.offered > self.full_from and (self.full_to is None or self.offered <= self.full_to):
            raise OSError(errno.ENOSPC, "No space left on device")
        super().write(events)


@pytest.mark.parametrize("until", [None, 300], ids=["for good", "for a while"])
@orders
def test_e7_the_traces_disk_is_full_and_the_group_goes_on(order: str, until: int | None) -> None:
    """The onlooker in memory sees every promise kept; of the trace on the disk nobody may say so."""
    disk = FullDisk(100, until)
    good: dict[MemberId, MemorySink] = {}

    def sinks(member: MemberId) -> Sequence[MemorySink]:
        return (disk,) if member.address == "b" else (good.setdefault(member, MemorySink()),)

    world = GroupWorld(order, seed=7, sinks=sinks)
    world.gather("abc")
    load(world, 60)
    world.crash("c")
    load(world, 60)
    passes(world)
    b = world.processes["b"]
    assert b.recorder.gaps > 0
    assert isinstance(b.recorder.first_error, OSError)
    assert len(texts(b)) == len(texts(world.processes["a"]))
    rows = [row for sink in (disk, *good.values()) for row in sink.events]
    verdict = judge(rows, promises(order) | ALSO_OWED)
    assert verdict.result == "UNKNOWN", str(verdict)
    assert set(verdict.unknown) == {"b"}


def test_e7_state_lines_are_kept_while_the_disk_is_full() -> None:
    """Snapshots are judged by hashes that the recorder counts itself, so a gap in the trace does not spoil later ones."""
    disk = FullDisk(50, 200)
    world = TransferWorld("sequencer", seed=7, sinks=lambda member: (disk,) if member.address == "a" else ())
    world.gather(list("abc"))
    stop = world.load("abc")
    world.run(0.5)
    assert world.processes["a"].recorder.gaps
    world.start("d", seeds="abc")
    assert world.run(5, lambda: world.all_live("abcd")), world.story()
    stop()
    assert world.conclude().result == "PASS"


# E8: a soak with a view change a second.

RING = "._counting._watchdog._reaches"  # keeps the last so many looks, and is seldom full at the end of a test
OPAQUE = (str, bytes, bytearray, memoryview, int, float, complex, bool, type(None), type, Enum, Random)


def weight(root: object, skip: Iterable[object] = ()) -> dict[str, int]:
    """How many items each container below an object holds, by the path of attribute names that leads there."""
    found: dict[str, int] = {}
    seen = {id(one) for one in skip}
    work: list[tuple[str, Any]] = [("", root)]
    while work:
        path, one = work.pop()
        if isinstance(one, OPAQUE) or callable(one) or id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, dict):
            found[path] = found.get(path, 0) + len(one)
            work += [(path + "[]", item) for pair in one.items() for item in pair]
        elif isinstance(one, list | tuple | set | frozenset | deque):
            found[path] = found.get(path, 0) + len(one)
            work += [(path + "[]", item) for item in one]
        else:
            names = [name for kind in type(one).__mro__ for name in getattr(kind, "__slots__", ())]
            names += getattr(one, "__dict__", {})
            work += [(f"{path}.{name}", getattr(one, name)) for name in names if hasattr(one, name)]
    return found


def soak(seconds: int, kind: type[Member] = Member) -> tuple[list[dict[str, int]], GroupWorld]:
    """A view change a second: crashes, restarts, leaves, joins, a partition. What the steady members weigh at rest,
    after every eight seconds, and the world."""
    world = GroupWorld("sequencer", seed=8, kind=kind)
    world.gather("abcd")
    weights = []
    for second in range(seconds):
        match second % 8:
            case 0 | 4:
                world.restart("d", "ab")
            case 1:
                world.leave("c")
            case 2:
                world.start("c", seeds="ab")
            case 3:
                world.pause("d", 500 * MILLISECOND)
            case 5:
                world.crash("c")
            case 6:
                world.restart("c", "ab")
            case _:
                world.partition("ab", "cd")
                world.after(400 * MILLISECOND, lambda: world.network.partition(()))
        load(world, 8, 0.125)
        if second % 8 == 7:
            settles(world, "abcd")
            world.run(1)
            skip = (world.orders, world.settings)
            total: dict[str, int] = {}
            for name in "ab":
                for path, count in weight(world.processes[name].member, skip).items():
                    total[path] = total.get(path, 0) + count
            weights.append(total)
    return weights, world


def growing(weights: list[dict[str, int]]) -> dict[str, list[int]]:
    """The containers that hold more at every look than at the one before, from the second look on."""
    paths = {path for one in weights for path in one}
    rows = {path: [one.get(path, 0) for one in weights[1:]] for path in paths}
    return {
        path: row
        for path, row in rows.items()
        if not path.startswith(RING) and all(more > less for less, more in pairwise(row))
    }


class Hoards(Member):
    """Never forgets who was in its views."""

    def act(self, now: int) -> Any:
        self.__dict__.setdefault("hoard", {})[self.view and self.view.id] = None
        return super().act(now)


def check_soak(seconds: int) -> None:
    weights, world = soak(seconds)
    assert not growing(weights)
    assert weights[-1].get(RING, 0) <= 2 * REACHES_KEPT
    changes = len(world.processes["a"].views)
    assert changes > seconds // 2, "a view change a second, or nearly"
    passes(world)


def test_e8_state_stays_flat_through_a_view_change_a_second() -> None:
    check_soak(48)


@pytest.mark.slow
def test_e8_state_stays_flat_through_a_thousand_view_changes() -> None:
    check_soak(1_600)


def test_e8_a_member_that_forgets_nothing_is_caught() -> None:
    weights, _ = soak(24, Hoards)
    assert ".hoard" in growing(weights)


# E9: casts without end.


def flood(world: GroupWorld, casts: int, a_turn: int, size: int = 64) -> tuple[int, int]:
    """Cast from a without looking at the answer; so many a turn, and time passes between. How many were taken, and the most
    that was ever kept of them."""
    a, taken, most = world.processes["a"], 0, 0
    for _ in range(casts // a_turn):
        for _ in range(a_turn):
            taken += a.member.cast(bytes(size)) is not None
        most = max(most, kept_bytes(a.member))
        a.turn()
        world.run(0.001)
    return taken, most


def kept_bytes(member: Member) -> int:
    """What a member keeps of payloads: not yet in a batch, on its streams, retained for the others, or in its ordering, which
    lets some wait to be cast and holds others back."""
    streams, engine = member.streams, member.engine
    assert streams is not None
    packets = retained_packets(member) + list(engine.ordering.unsent())
    batches = [getattr(packet, "batch", None) for packet in packets] + [wait.batch for wait in engine.waits()]
    shared = {id(batch): batch for batch in batches if isinstance(batch, Batch)}  # many are in several of these
    held = sum(len(payload) for batch in shared.values() for payload in batch.payloads or ())
    return engine.casting.bytes + streams.kept_bytes + held


def check_flood(order: str, casts: int, stopped: bool) -> None:
    window = 256 * 1024
    settings = with_streams(window_bytes=window, window_bytes_start=window, window_packets=4_000)
    world = GroupWorld(order, seed=9, settings=settings)
    a, b, _ = world.gather("abc")
    if stopped:
        world.pause("b", 600 * SECOND)
        world.network.fails = None
    else:
        b.member.set_free_room(0)  # its application does not read
        b.turn()
        world.run(0.1)
    before = len(a.views)
    taken, most = flood(world, casts, 500)
    assert taken < casts if stopped else taken < casts // 2, "the caller sees it, until the view is one without b"
    assert most < 4 * window
    if not stopped:
        assert len(a.views) == before
        b.member.set_free_room(None)
        b.turn()
    passes(world)
    c = world.processes["c"]
    shown = sum(len(text) == 64 for text in texts(c))
    assert shown == taken, "what was taken is delivered"


@pytest.mark.parametrize("stopped", [False, True], ids=["not reading", "stopped"])
@pytest.mark.parametrize("order", ORDERS)
def test_e9_casts_without_reading_are_refused_in_time(order: str, stopped: bool) -> None:
    check_flood(order, 50_000, stopped)


@pytest.mark.slow
@pytest.mark.parametrize("stopped", [False, True], ids=["not reading", "stopped"])
@orders
def test_e9_a_million_casts_without_reading(order: str, stopped: bool) -> None:
    check_flood(order, 1_000_000, stopped)


@pytest.mark.parametrize("blocked", [False, True], ids=["one turn", "view change"])
def test_e9_casts_without_end_in_one_turn_stay_within_the_window(blocked: bool) -> None:
    """Nothing is drained between the casts, or a view change holds them up: bytes count as well as messages."""
    window = 1024 * 1024
    limits = with_streams(window_bytes=window, window_bytes_start=window, kept_bytes_max=32 * window)
    world = GroupWorld("fifo", seed=10, settings=limits)
    a, b, _ = world.gather("abc")
    if blocked:
        world.crash("c")
        assert world.run(3, lambda: a.member.state.is_blocked)
    payload = bytes(4_096)
    taken = sum(a.member.cast(payload) is not None for _ in range(300_000))
    assert 0 < taken * len(payload) <= 2 * window
    a.turn()
    settles(world, "ab" if blocked else "abc")
    assert world.run(5, lambda: len(texts(b)) == taken)
    passes(world)


TIGHT: dict[str, Any] = {"window_bytes": 65_536, "window_bytes_start": 65_536, "packet_bytes_max": 131_072}
TIGHT["kept_bytes_max"] = 4 * 65_536  # two windows and one packet, the least that is allowed
TIGHT["config"] = replace(QUICK.config, payload_bytes_max=65_536, batch_bytes_max=65_536)


def gather_tight(order: str, kind: type[AnyOrdering] | None = None) -> GroupWorld:
    known = {**ORDERS, order: kind or ORDERS[order]}
    world = GroupWorld(order, seed=11, settings=with_streams(**TIGHT), orders=known)
    world.gather("abc")
    return world


def fill_while_one_sleeps(world: GroupWorld, size: int) -> tuple[int, int]:
    """b naps, unsuspected, and a casts until it is refused, a message a turn. How many were taken, and the room left then."""
    a = world.processes["a"]
    world.pause("b", 80 * MILLISECOND)
    taken, room = fill(a, 10_000, size), a.member.state.room_messages()
    world.run(0.1)
    return taken, room


@pytest.mark.parametrize(("order", "size"), [*((order, 1_000) for order in ORDERS), ("rmp", 0)])
def test_e9_what_the_ordering_lets_wait_stays_within_the_window(order: str, size: int) -> None:
    """With rmp a needs b's acceptance to transmit. What waited for it was in no window; then it left at once, the streams
    refused to keep so much, and the turn failed."""
    world = gather_tight(order)
    a, b = world.processes["a"], world.processes["b"]
    taken, room = fill_while_one_sleeps(world, size)
    assert 0 < taken < 10_000
    assert room == 0, "for casting many at once too"
    assert taken * size <= 65_536 + size
    assert world.run(3, lambda: len(texts(b)) == taken)
    assert len(a.views) == 1, "nobody was suspected"
    assert fill_turn(a) == 1_000, "the window is free again"
    passes(world)


class CountsNothing(Rmp):
    """Lets batches wait for the lock as if they weighed nothing."""

    unsent_bytes = property(lambda self: 0, lambda self, value: None)


@pytest.mark.parametrize("size", [1_000, 0], ids=["large", "small"])
def test_e9_an_order_that_does_not_count_what_waits_is_caught(size: int) -> None:
    world = gather_tight("rmp", CountsNothing)
    with pytest.raises(Misuse, match="more is kept"):
        fill_while_one_sleeps(world, size)


def cast_small(world: GroupWorld, like: bool) -> int:
    """Cast messages of one byte in one turn, all alike or no two neighbours alike; how many were taken."""
    a = world.processes["a"]
    options = [DEFAULT, DEFAULT if like else CastOptions(safe=True)]
    taken = sum(a.member.cast(b".", options[number % 2]) is not None for number in range(60_000))
    a.turn()
    return taken


SMALL = pytest.mark.parametrize(
    ("like", "head"), [(True, "MESSAGE_HEAD_BYTES"), (False, "PACKET_HEAD_BYTES")], ids=["alike", "unlike"]
)


@SMALL
def test_e9_a_small_message_counts_with_what_is_written_around_it(like: bool, head: str) -> None:
    """Only payloads counted, so a turn took more than the streams keep, and failed."""
    world = gather_tight("fifo")
    taken = cast_small(world, like)
    assert 0 < taken < 20_000
    assert world.run(3, lambda: len(texts(world.processes["b"])) == taken)
    passes(world)


@SMALL
def test_e9_heads_that_do_not_count_are_caught(like: bool, head: str, monkeypatch: pytest.MonkeyPatch) -> None:
    world = gather_tight("fifo")
    monkeypatch.setattr(casting_module, head, 0)
    with pytest.raises(Misuse, match="more is kept"):
        cast_small(world, like)


def test_e9_messages_count_alike_one_by_one_and_many_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What they count before they form batches is what the batches weigh."""
    member = gather_tight("fifo").processes["a"].member
    engine, some = member.engine, CastOptions(to=member.engine.view.members[1:])
    for options in (DEFAULT, DEFAULT, some, some, CastOptions(safe=True)):
        member.cast(b"one", options)
    member.cast_many([b"two", b"", b"three"])
    member.cast_many([b"four"])
    counted = engine.casting.bytes
    submitted: list[Batch] = []
    monkeypatch.setattr(engine.ordering, "submit", lambda batch, out: submitted.append(batch))
    engine.drain(0)
    assert counted == sum(map(weigh, submitted))
