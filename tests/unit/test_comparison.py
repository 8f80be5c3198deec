"""The rolling hash of deliveries, where two of them differ, and the messages by which members compare them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from random import Random

import pytest

from unisono.core.config import Config
from unisono.core.markers import Marker
from unisono.core.member.comparison import (
    CLOSED_VIEWS_MAX,
    MARKERS_A_LANE_MAX,
    WAITING_BYTES_MAX,
    WAITING_MAX,
    WIRE,
    Closing,
    Comparer,
    Differs,
    LanePlace,
    Marks,
    Passed,
    Show,
)
from unisono.core.types import Batch, MemberId, Service, View, ViewId
from unisono.core.views.delivered import DeliveredLanes, LaneMark, differing_lanes, first_difference
from unisono.core.wire.codec import Codec
from unisono.sim.fuzz import fuzz

TOTAL, FIFO = Service.TOTAL, Service.FIFO
LANE = (int(TOTAL), 0)


def delivered(batches: Sequence[Batch]) -> DeliveredLanes:
    total = DeliveredLanes()
    for batch in batches:
        total.add(batch)
    return total


def some(count: int, service: Service = TOTAL, seed: int = 0) -> list[Batch]:
    """Batches of three origins, of one or more messages."""
    rng = Random(seed)
    ends = [0, 0, 0]
    made = []
    for _ in range(count):
        origin, messages = rng.randrange(3), rng.choice((1, 1, 2, 5))
        made.append(Batch(origin, ends[origin], [rng.randbytes(8) for _ in range(messages)], service))
        ends[origin] += messages
    return made


def test_the_same_deliveries_are_the_same_places() -> None:
    assert delivered(some(50)).places() == delivered(some(50)).places()
    assert delivered([]).places() == {}


def test_any_swap_of_a_total_order_is_seen() -> None:
    batches = some(12)
    truth = delivered(batches).places()
    for i in range(len(batches)):
        for j in range(i):
            swapped = batches.copy()
            swapped[i], swapped[j] = swapped[j], swapped[i]
            assert differing_lanes(truth, delivered(swapped).places()) == [LANE]


def test_between_origins_other_services_have_no_order_and_inside_one_they_have() -> None:
    batches = some(40, FIFO)
    truth = delivered(batches).places()
    assert delivered(sorted(batches, key=lambda batch: batch.origin)).places() == truth
    first, second = [i for i, batch in enumerate(batches) if batch.origin == 1][:2]
    batches[first], batches[second] = batches[second], batches[first]
    assert differing_lanes(truth, delivered(batches).places()) == [(int(FIFO), 1)]


@pytest.mark.parametrize(
    "other",
    [
        Batch(1, 5, [b"ab", b"d"], TOTAL),
        Batch(1, 5, [b"a", b"bc"], TOTAL),
        Batch(1, 5, [b"ab\0c"], TOTAL),
        Batch(2, 5, [b"ab", b"c"], TOTAL),
        Batch(1, 6, [b"ab", b"c"], TOTAL),
        Batch(1, 5, [b"ab", b"c"], FIFO),
    ],
    ids=["payload", "boundary", "count", "origin", "index", "service"],
)
def test_whatever_is_different_about_a_batch_is_seen(other: Batch) -> None:
    assert delivered([Batch(1, 5, [b"ab", b"c"], TOTAL)]).places() != delivered([other]).places()


def test_what_is_not_for_everyone_is_not_compared() -> None:
    batches = [
        Batch(0, 0, [b"x"], TOTAL, to=(0, 1)),
        Batch(0, 1, [b"x"], Service.DATAGRAM),
        Batch(0, 2, None, TOTAL, to=(1,), count=1, digest=7),
    ]
    assert delivered(batches).places() == {}


@pytest.mark.parametrize(("messages", "size"), [(10, 100), (1, 1_024), (2, 500)])
def test_all_payloads_of_an_ordinary_batch_count(messages: int, size: int) -> None:
    truth = delivered([Batch(0, 9, [bytes(size)] * messages, TOTAL)]).places()
    for at in range(messages):
        for byte in (0, size // 2, size - 1):
            payloads = [bytearray(size) for _ in range(messages)]
            payloads[at][byte] = 1
            assert delivered([Batch(0, 9, [bytes(one) for one in payloads], TOTAL)]).places() != truth


@pytest.mark.parametrize(("messages", "size"), [(600, 100), (1, 60_000), (50, 1_000)])
def test_of_large_batches_another_part_counts_each_time(messages: int, size: int) -> None:
    """A member that alters one byte of each is found after some batches, wherever the byte is."""
    for at, byte in ((0, 0), (messages // 2, size // 2), (messages - 1, size - 1)):
        altered = [bytes(size)] * messages
        altered[at] = altered[at][:byte] + b"!" + altered[at][byte + 1 :]
        found = [
            delivered([Batch(0, first, [bytes(size)] * messages, TOTAL)]).places()
            != delivered([Batch(0, first, altered, TOTAL)]).places()
            for first in range(0, 200 * messages, messages)
        ]
        assert 200 * 1_024 / (messages * size) / 2 < sum(found) < 100, (at, byte, sum(found))


def test_marks_stay_few_however_long_a_view_lasts() -> None:
    total, batch = DeliveredLanes(), Batch(0, 0, [b"x"], TOTAL)
    for _ in range(100_000):
        total.add(batch)
    marks = total.marks(LANE)
    assert len(marks) <= 8 * 14 + 1
    assert marks == tuple(sorted(marks))
    gaps = [after.batches - before.batches for before, after in pairwise(marks)]
    assert gaps == sorted(gaps, reverse=True)  # finer and finer


def test_the_first_difference_lies_where_it_was_planted() -> None:
    rng = Random(5)
    for seed in range(60):
        batches = some(rng.randint(1, 900), seed=seed)
        at = rng.randrange(len(batches))
        other = batches.copy()
        other[at] = Batch(batches[at].origin, batches[at].first, [b"?"] * batches[at].count, TOTAL)
        if rng.random() < 0.5:
            del other[at]
        mine, theirs = delivered(batches), delivered(other)
        alike, differs_by = first_difference(mine.marks(LANE), theirs.marks(LANE))
        before = sum(batch.count for batch in batches[:at])
        assert alike <= before < differs_by, (seed, at)
        later = sum(batch.count for batch in batches[at:])
        assert differs_by - alike <= 40 + later // 2, (seed, at)


def test_a_member_that_is_behind_has_marks_where_the_others_have() -> None:
    batches = some(1_000)
    for ahead in (1, 7, 100, 400):
        mine, theirs = delivered(batches), delivered(batches[: 1_000 - ahead])
        alike, _ = first_difference(mine.marks(LANE), theirs.marks(LANE))
        assert alike >= sum(batch.count for batch in batches[: 1_000 - 2 * ahead - 16])


# Members that compare, without a group below.

A, B, C = (MemberId(name) for name in "abc")
CODEC = Codec(WIRE, Config())


class Table:
    """Comparers that hear each other at once."""

    def __init__(self, *members: MemberId) -> None:
        self.comparers = {member: Comparer(member, Config()) for member in members}
        self.number = 0

    def enter(self, *members: MemberId, lost: Sequence[MemberId] = ()) -> View:
        """All of these come into a view together; what is said to one in `lost` does not arrive."""
        self.number += 1
        view = View(ViewId(self.number, members[0]), members)
        for member in members:
            self.comparers[member].enter(view, members)
        self.talk(members, lost)
        return view

    def talk(self, members: Sequence[MemberId], lost: Sequence[MemberId] = ()) -> None:
        while any(self.comparers[member].has_work or self.comparers[member].sends for member in members):
            for member in members:
                comparer = self.comparers[member]
                comparer.work()
                sends, comparer.sends = comparer.sends, []
                for to, data in sends:
                    if to in members and to not in lost:
                        self.comparers[to].receive(member, data[1:])

    def deliver(self, text: bytes, *members: MemberId) -> None:
        for member in members:
            self.comparers[member].delivered.add(Batch(0, 0, [text], TOTAL))


def alone() -> tuple[Comparer, View]:
    """The comparer of B, in a view with A, which the test speaks for."""
    comparer, view = Comparer(B, Config()), View(ViewId(1, A), (A, B))
    comparer.enter(view, (B,))
    return comparer, view


def test_another_member_compares_if_the_examiner_is_gone_before_it_could() -> None:
    table = Table(A, B, C)
    table.enter(A, B, C)
    table.deliver(b"x", A, B)
    table.deliver(b"y", C)
    table.enter(A, B, C, lost=[A])
    assert not any(comparer.found for comparer in table.comparers.values())
    table.enter(B, C)
    assert [len(comparer.found) for comparer in table.comparers.values()] == [0, 1, 1]
    assert table.comparers[B].found[0].parts == ((B,), (C,))


def test_the_asked_one_is_gone_before_it_shows_its_marks() -> None:
    table = Table(A, B, C)
    table.enter(A, B, C)
    table.deliver(b"x", A)
    table.deliver(b"y", B, C)
    table.enter(A, B, C, lost=[B])  # it is asked first, and does not hear it
    assert not table.comparers[A].found
    table.enter(A, C)
    assert table.comparers[A].found[0].parts == ((A,), (C,))


def test_little_waits_to_be_counted_and_nothing_large() -> None:
    comparer, _ = alone()
    for _ in range(100):
        comparer.waiting.append(Batch(0, 0, [b"x"], TOTAL))
        comparer.limit_waiting()
        assert len(comparer.waiting) < WAITING_MAX
    comparer.waiting.append(Batch(0, 0, [bytes(WAITING_BYTES_MAX + 1)], TOTAL))
    comparer.limit_waiting()
    assert comparer.waiting == []
    assert comparer.delivered.place(LANE)[0] == 101


def test_few_views_are_kept_and_each_is_told_twice() -> None:
    comparer = Comparer(B, Config())
    for number in range(3 * CLOSED_VIEWS_MAX):
        comparer.sends.clear()
        comparer.enter(View(ViewId(number, A), (A, B)), (A, B))
        assert len(comparer.sends) == min(number, 2)
    assert len(comparer._closed) == CLOSED_VIEWS_MAX


def test_a_view_that_ends_at_once_costs_no_comparison() -> None:
    table = Table(A, B)
    table.enter(A, B)
    table.deliver(b"x", A)
    table.deliver(b"y", B)
    table.enter(A, B, lost=[A])
    assert not table.comparers[A].found
    table.enter(A, B)
    assert len(table.comparers[A].found) == len(table.comparers[B].found) == 1


def test_a_peer_that_invents_markers_takes_no_memory() -> None:
    comparer, view = alone()
    check = comparer.begin(view, [TOTAL])
    for number in range(1_000):
        comparer.receive(A, CODEC.encode(Passed(view.id, number, 0, LanePlace(*LANE, 1, 1))))
    comparer.work()
    assert len(check._passed) == MARKERS_A_LANE_MAX


SAMPLES = (
    Closing(ViewId(3, A), (LanePlace(3, 0, 7, 2**63), LanePlace(1, 2, 9, 4))),
    Passed(ViewId(3, A), 17, 1, LanePlace(3, 0, 7, 5)),
    Show(ViewId(3, A), 3, 0),
    Marks(ViewId(3, A), 3, 0, (LaneMark(8, 9, 10), LaneMark(16, 20, 30))),
    Differs(ViewId(3, A), ((A, B), (C,)), 3, 0, 8, 16),
)


def test_messages_travel_and_damaged_ones_are_refused() -> None:
    for sample in SAMPLES:
        assert CODEC.decode(CODEC.encode(sample), 0, 5) == sample
    report = fuzz(CODEC, SAMPLES, 4_000, seed=1)
    assert report.passed, report.failures
    assert sum(report.refused.values()) > 1_000


def test_lies_of_a_peer_are_no_event_and_no_error() -> None:
    """Of unknown views, of ranks that are none, of members that were not there; bytes that are no message are counted."""
    comparer, view = alone()
    stranger = MemberId("stranger")
    lies = (
        *SAMPLES,
        Differs(view.id, ((A,), (stranger,)), 3, 0, 0, 1),
        Differs(view.id, ((A,), (C,)), 3, 0, 0, 1),
        Differs(view.id, ((A,), (B,)), 1, 9, 0, 1),
        Show(view.id, 3, 9),
        Marks(view.id, 3, 0, ()),
        Passed(view.id, 1, 9, LanePlace(9, 9, 9, 9)),
    )
    for lie in lies:
        comparer.receive(A, CODEC.encode(lie))
    comparer.receive(A, b"\xff")
    comparer.work()
    assert comparer.found == []
    assert comparer.sends == []
    assert sum(comparer.refused.values()) == 1


def test_a_lane_of_a_rank_that_is_none_is_not_compared() -> None:
    table = Table(A, B)
    view = table.enter(A, B)
    examiner = table.comparers[A]
    examiner.enter(View(ViewId(2, A), (A, B)), (A, B))
    for lie in (Closing(view.id, (LanePlace(int(FIFO), 65_535, 4, 4),)), Marks(view.id, int(FIFO), 65_535, ())):
        examiner.receive(B, CODEC.encode(lie))
        examiner.work()
    assert examiner.sends == []
    assert examiner.found == []


@pytest.mark.parametrize("parts", [((A, B),), ((A, B), ()), ((A, B), (B,))], ids=["one", "empty", "overlapping"])
def test_a_difference_between_parts_that_are_none_is_no_event(parts: tuple[tuple[MemberId, ...], ...]) -> None:
    comparer, view = alone()
    comparer.receive(A, CODEC.encode(Differs(view.id, parts, *LANE, 0, 1)))
    comparer.work()
    assert comparer.found == []


def test_a_peer_that_invents_services_takes_no_place_in_the_stream() -> None:
    comparer, view = alone()
    for service in range(256):
        comparer.receive(A, CODEC.encode(Differs(view.id, ((A,), (B,)), service, 0, 0, 1)))
    comparer.work()
    assert len(comparer.found) == 3, "total, fifo and causal"


def test_answers_about_markers_of_earlier_checks_do_not_crowd_out_a_later_check() -> None:
    comparer, view = alone()
    for number in range(2 * MARKERS_A_LANE_MAX):
        comparer.pass_marker(Marker(0, number, TOTAL, asks=True))
    check = comparer.begin(view, [TOTAL])
    for number in range(2 * MARKERS_A_LANE_MAX):
        comparer.receive(A, CODEC.encode(Passed(view.id, number, 0, LanePlace(*LANE, 0, 0))))
    comparer.work()
    comparer.pass_marker(Marker(1, 0, TOTAL, asks=True))
    comparer.receive(A, CODEC.encode(Passed(view.id, 0, 1, LanePlace(*LANE, 0, 0))))
    comparer.work()
    assert check.is_answered


def test_what_a_cut_adds_is_not_compared_by_a_check() -> None:
    """A passed B's marker before the view ended; B leaves, closes the view alone, and passes it among what its own cut adds."""
    comparer, view = alone()
    check = comparer.begin(view, [TOTAL])
    comparer.receive(A, CODEC.encode(Passed(view.id, 0, 1, LanePlace(*LANE, 7, 7))))
    comparer.end_view()
    comparer.pass_marker(Marker(1, 0, TOTAL, asks=True))
    comparer.work()
    assert check.is_over
    assert not check.is_answered
    assert not comparer.sends, "A's marks are not asked for"


def test_checks_that_were_given_up_are_forgotten() -> None:
    comparer, view = alone()
    for _ in range(100):
        comparer.begin(view, [TOTAL]).abandon()
    assert len(comparer._checks) == 1


def test_a_marker_of_another_member_is_answered_and_answered_by_one() -> None:
    comparer, _ = alone()
    comparer.delivered.add(Batch(0, 0, [b"x"], FIFO))
    comparer.pass_marker(Marker(0, 1, FIFO, asks=True))
    assert comparer.owes_markers
    ((to, data),) = comparer.sends
    assert to == A
    answer = CODEC.decode(data[1:], 0, 2)
    assert isinstance(answer, Passed)
    assert answer.place.messages == 1
    comparer.owes_markers = False
    comparer.pass_marker(Marker(0, 2, TOTAL, asks=True))
    assert not comparer.owes_markers, "one marker is enough in a total order"


def group_of(count: int) -> dict[MemberId, Comparer]:
    return {MemberId(f"m{rank:02}", 0): Comparer(MemberId(f"m{rank:02}", 0), Config()) for rank in range(count)}


def exchange(members: dict[MemberId, Comparer], lost: int | None = None) -> None:
    """Let all look at what has come and send what they have to say; messages of the kind `lost` do not arrive."""
    for _ in range(6):
        for me, comparer in members.items():
            comparer.work()
            sends, comparer.sends = comparer.sends, []
            for to, data in sends:
                if data[2] != lost:
                    members[to].receive(me, data[1:])


def test_all_members_of_a_large_group_may_check_at_once() -> None:
    """Found by reading: the markers of sixteen others left no room for the own one, and the check was never answered."""
    members = group_of(MARKERS_A_LANE_MAX + 4)
    view = View(ViewId(1, next(iter(members))), tuple(members))
    for comparer in members.values():
        comparer.enter(view, ())
    checks = [comparer.begin(view, [TOTAL]) for comparer in members.values()]
    for rank in range(len(members)):
        for comparer in members.values():
            comparer.pass_marker(Marker(rank, 0, TOTAL, True))
    exchange(members)
    assert all(check.is_answered for check in checks)


def test_a_divergence_is_found_although_a_view_change_loses_the_answer() -> None:
    """Found by reading: the marks were asked for once, and streams end with their view."""
    members = group_of(3)
    views = [View(ViewId(number, next(iter(members))), tuple(members)) for number in (1, 2, 3)]
    for number, comparer in enumerate(members.values()):
        comparer.enter(views[0], ())
        comparer.waiting.append(Batch(0, 0, [b"x" if number else b"y"], TOTAL))
    marks = next(layout.kind for layout in WIRE if layout.type is Marks)
    for view, lost in zip(views[1:], (marks, None), strict=True):
        for comparer in members.values():
            comparer.enter(view, tuple(members))
        exchange(members, lost)
    assert all(comparer.found for comparer in members.values())
