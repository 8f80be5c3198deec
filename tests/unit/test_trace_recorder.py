"""What a recorder makes of the notes of a member's turns, and of a disk that is full."""

from __future__ import annotations

import errno
from collections.abc import Sequence

import pytest

from unisono.core.outbox import Note, NoteKind
from unisono.core.types import Batch, MemberId, Service, View, ViewId
from unisono.trace.checks import Observer, Result, judge
from unisono.trace.promises import promises
from unisono.trace.recorder import Recorder
from unisono.trace.schema import Event, TraceError, from_line, to_line
from unisono.trace.shown import Shown, ShownTotals
from unisono.trace.sinks import MemorySink, TeeSink

A, B, C = MemberId("a"), MemberId("b", 1), MemberId("c")
VIEW = View(ViewId(1, A), (A, B, C))
NEXT = View(ViewId(2, A), (A, C))


def recorder(member: MemberId = A, sink: MemorySink | None = None) -> tuple[Recorder, list[Event]]:
    sink = sink or MemorySink()
    return Recorder("r", "g", "causal", member, "simulated", sink), sink.events


def batch(origin: int, first: int, *payloads: bytes, to: tuple[int, ...] | None = None) -> Batch:
    return Batch(origin, first, payloads or (b"x",), Service.CAUSAL, to)


def note(kind: str, batch: Batch | None = None, **rest: object) -> Note:
    return Note(NoteKind(kind), batch, **rest)  # type: ignore[arg-type]


def test_rows_of_a_turn() -> None:
    record, events = recorder()
    x = batch(1, 0, b"one", b"two")
    record.join(5)
    record.turn(7, [note("VIEW", view=VIEW), note("RECEIVE", x)])
    record.turn(8, [note("ORDERED", x, position=4, attributes={"stamp": [3, 1]}), note("DELIVER", x)])
    record.turn(9, [])
    record.turn(9, [note("CAST", batch(0, 0), attributes={"vector": [0, 2, 0]}), note("BLOCK"), note("UNBLOCK")])
    record.end(10)
    assert [event.kind for event in events] == [
        "JOIN",
        "VIEW",
        "RECEIVE",
        "ORDERED",
        "DELIVER",
        "CAST",
        "BLOCK",
        "UNBLOCK",
        "END",
    ]
    assert [event.local_index for event in events] == list(range(9))
    assert [event.time_ns for event in events] == [5, 7, 7, 8, 8, 9, 9, 9, 10]
    join, view, receive, _, deliver, cast, block, _, end = events
    assert join.view is None
    assert (view.view, view.members, view.previous_view) == ("1@a", ("a", "b#1", "c"), None)
    assert (receive.origin, receive.origin_incarnation, receive.first, receive.count) == ("b", 1, 0, 2)
    assert (receive.ordinal, receive.frontier) == (None, None)
    assert (deliver.ordinal, deliver.position, deliver.attributes) == (0, 4, {"stamp": "[3,1]"})
    assert deliver.digest == receive.digest
    assert deliver.digest is not None
    assert -(2**63) <= deliver.digest < 2**63
    assert (cast.frontier, cast.attributes, cast.service) == ((0, 2, 0), {"vector": "[0,2,0]"}, "causal")
    assert block.view == end.view == "1@a"
    for event in events:
        assert from_line(to_line(event), "here") == event


def test_a_view_change_starts_the_counting_anew() -> None:
    record, events = recorder()
    change = {"previous_view": "1@a", "transitional": ["a", "c"], "parts": ["1@a"], "ballot": 3}
    record.turn(0, [note("VIEW", view=VIEW), note("DELIVER", batch(1, 0)), note("DELIVER", batch(1, 1))])
    record.turn(1, [note("VIEW", view=NEXT, attributes=change)])
    record.turn(2, [note("CAST", batch(0, 0)), note("DELIVER", batch(0, 0)), note("DELIVER", batch(1, 0))])
    view = events[3]
    assert (view.view, view.previous_view, view.transitional, view.parts) == ("2@a", "1@a", ("a", "c"), ("1@a",))
    assert view.attributes == {"ballot": "3"}
    assert events[4].frontier == (0, 0)
    assert [event.ordinal for event in events if event.kind == "DELIVER"] == [0, 1, 0, 1]
    assert events[6].origin == "c"


def test_the_previous_view_is_known_without_being_told() -> None:
    record, events = recorder()
    record.turn(0, [note("VIEW", view=VIEW), note("VIEW", view=NEXT)])
    assert events[1].previous_view == "1@a"


def test_placeholders_are_placed() -> None:
    record, events = recorder(C)
    not_mine, void = batch(0, 0, to=(0, 1)).placeholder(), batch(0, 1, to=(2,)).placeholder()
    record.turn(0, [note("VIEW", view=VIEW), note("DELIVER", not_mine), note("DELIVER", void)])
    record.turn(1, [note("DELIVER", Batch(0, 2, None, Service.CAUSAL, None, 1, 7)), note("CAST", batch(2, 0))])
    _, placed, voided, everyone, cast = events
    assert (placed.kind, placed.destinations, placed.attributes) == ("PLACE", ("a", "b#1"), None)
    assert (voided.kind, voided.destinations, voided.attributes) == ("PLACE", ("c",), {"void": "true"})
    assert (everyone.kind, everyone.attributes, everyone.digest) == ("PLACE", {"void": "true"}, 7)
    assert [event.ordinal for event in events[1:4]] == [0, 1, 2]
    assert cast.frontier == (3, 0, 0)


def test_ordinals_are_counted_by_service() -> None:
    record, events = recorder()
    total = Batch(0, 0, (b"x",), Service.TOTAL)
    record.turn(0, [note("VIEW", view=VIEW), note("DELIVER", total), note("DELIVER", batch(1, 0))])
    assert [(event.service, event.ordinal) for event in events[1:]] == [("total", 0), ("causal", 0)]


def test_what_the_harness_knows() -> None:
    record, events = recorder()
    record.join(0)
    record.suspect(1, B, "silent")
    record.pause(2)
    record.heal(3)
    record.drop(4, "replayed", {"bytes": 12})
    record.counters(5, {"packets": 3, "queue": [1, 2]})
    record.leave(6, "asked to")
    assert [event.kind for event in events] == ["JOIN", "SUSPECT", "PAUSE", "HEAL", "DROP", "COUNTERS", "LEAVE"]
    assert (events[1].attributes, events[1].reason) == ({"suspected": "b#1"}, "silent")
    assert (events[4].reason, events[4].attributes) == ("replayed", {"bytes": "12"})
    assert events[5].attributes == {"packets": "3", "queue": "[1,2]"}
    assert events[6].reason == "asked to"
    other, rows = recorder(B)
    other.crash(1)
    assert (rows[0].kind, rows[0].incarnation) == ("CRASH", 1)


def test_what_cannot_be_recorded_is_refused_at_once() -> None:
    with pytest.raises(TraceError, match="contains '#'"):
        Recorder("r", "g", "fifo", MemberId("a#1"), "simulated", MemorySink())
    with pytest.raises(TraceError, match="clock must be real or simulated"):
        Recorder("r", "g", "fifo", A, "lunar", MemorySink())


class FullDisk(MemorySink):
    """Keeps nothing between two of its writes."""

    def __init__(self, full_from: int, full_to: int) -> None:
        super().__init__()
        self.full = range(full_from, full_to)
        self.writes = 0

    def write(self, events: Sequence[Event]) -> None:
        self.writes += 1
        if self.writes - 1 in self.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        super().write(events)


def a_short_run(sink: MemorySink) -> Recorder:
    record = Recorder("r", "g", "causal", A, "simulated", sink)
    alone = View(ViewId(1, A), (A,))
    record.turn(0, [note("VIEW", view=alone)])
    for index in range(6):
        x = batch(0, index)
        record.turn(index, [note("CAST", x), note("DELIVER", x)])
    record.end(7)
    return record


def test_e7_a_full_disk_is_a_gap_and_the_verdict_unknown() -> None:
    sink = FullDisk(2, 4)
    record = a_short_run(sink)
    assert record.gaps == 4
    assert isinstance(record.first_error, OSError)
    assert record.first_error.errno == errno.ENOSPC
    assert [event.local_index for event in sink.events] == [0, 1, 2, 7, 8, 9, 10, 11, 12, 13]
    verdict = judge(sink.events, promises("causal"))
    assert verdict.result is Result.UNKNOWN
    assert verdict.unknown == {"a": "rows 3 to 6 are missing"}


def test_a_disk_that_stays_full_leaves_no_ending() -> None:
    sink = FullDisk(2, 99)
    assert a_short_run(sink).gaps == 11
    assert judge(sink.events, promises("causal")).result is Result.UNKNOWN


def test_the_same_run_on_a_good_disk_passes() -> None:
    sink, observer = MemorySink(), Observer(promises("causal"))
    assert a_short_run(TeeSink(sink, observer)).gaps == 0  # type: ignore[arg-type]
    assert judge(sink.events, promises("causal")).result is Result.PASS
    assert observer.finish().result is Result.PASS


def test_what_an_application_is_shown() -> None:
    record, events = recorder()
    record.turn(1, [note("VIEW", view=VIEW)])
    record.show_view(1, VIEW.id, VIEW.members, [A], [B, C], [], True)
    x, y = batch(1, 0, b"one", b"two"), batch(2, 4)
    record.show_batch(x)
    record.show_batch(batch(1, 2, to=(0,)))
    record.show_batch(x.placeholder())
    record.show_batch(Batch(1, 3, (b"x",), Service.DATAGRAM))
    record.turn(2, [note("VIEW", view=NEXT)])
    record.show_transition(2, [A, C], False)
    record.show_batch(y)  # the remainder: C's rank is that in the view which the application was shown
    record.show_view(2, NEXT.id, NEXT.members, (A, C), {}, {B: "lost"}, False)
    first, end, second = (event for event in events if event.kind in ("SHOW", "TRANSITION"))
    assert (first.view, first.members) == ("1@a", ("a", "b#1", "c"))
    assert first.attributes == {"together": '["a"]', "joined": '["b#1","c"]', "left": "[]", "primary": "true"}
    before, both = ShownTotals(), ShownTotals()
    for totals, batches in ((before, (x,)), (both, (x, y))):
        for one in batches:
            digest = one.digest if one.digest < 2**63 else one.digest - 2**64
            totals.add("b#1" if one is x else "c", one.first, one.count, digest, is_total=False)
    assert end.view == "1@a"
    assert end.attributes == {"together": '["a","c"]', "primary": "false", **_texts(before.told())}
    assert second.attributes == {
        "previous": "1@a",
        "together": '["a","c"]',
        "joined": "[]",
        "left": '["b#1"]',
        "primary": "false",
        **_texts(both.told()),
    }
    assert (before.told().shown, both.told().shown) == (2, 3)


def _texts(told: Shown) -> dict[str, str]:
    return {"shown": str(told.shown), "digest": told.digest, "chain": told.chain}


def test_totals_tell_what_was_shown_and_in_which_order() -> None:
    def totals(*batches: tuple[str, int], is_total: bool = True) -> Shown:
        added = ShownTotals()
        for origin, first in batches:
            added.add(origin, first, 1, 7, is_total)
        return added.told()

    one, other = totals(("a", 0), ("b", 0)), totals(("b", 0), ("a", 0))
    assert one[:2] == other[:2]
    assert one.chain != other.chain
    assert totals(("a", 0), ("b", 0), is_total=False) == totals(("b", 0), ("a", 0), is_total=False)
    assert totals(("a", 0)).digest != totals(("a", 1)).digest


def test_receipts_and_states_that_an_application_is_told_of() -> None:
    record, events = recorder(B)
    record.turn(1, [note("VIEW", view=VIEW)])
    record.show_view(1, VIEW.id, VIEW.members, [B], [A, C], [], True)
    record.show_receipt(2, "stable", 3, 2, "ok")
    record.show_receipt(3, "applied", 5, 1, "uncertain", [B, C])
    record.show_state(4, None, False)
    record.show_state(5, VIEW.id, True, [VIEW.id, NEXT.id])
    record.show_view(6, NEXT.id, NEXT.members, [B], [], [A, C], True)
    record.show_view(7, NEXT.id, NEXT.members, [B], [], [], True)
    ok, doubt, first, again, restored, not_restored = events[2:]
    assert (ok.kind, ok.origin, ok.origin_incarnation, ok.first, ok.count) == ("RECEIPT", "b", 1, 3, 2)
    assert ok.attributes == {"stage": "stable", "outcome": "ok"}
    assert doubt.attributes == {"stage": "applied", "outcome": "uncertain", "known": '["b#1","c"]'}
    assert (first.kind, first.attributes) == ("STATE", {"replaced": "false", "parts": "[]"})
    assert again.attributes == {"source": "1@a", "replaced": "true", "parts": '["1@a","2@a"]'}
    assert (restored.attributes or {})["restored"] == "true"
    assert "restored" not in (not_restored.attributes or {})
    for event in events:
        assert from_line(to_line(event), "here") == event
