"""The datagram's format: round trips, and refusal of everything that no correct member makes."""

from __future__ import annotations

from random import Random

import pytest

from tests.stream_harness import view_of
from unisono.core.types import MemberId, View, ViewId
from unisono.core.wire.envelope import (
    BODY,
    CAST,
    CLEAR_BYTES,
    FRAGMENT,
    HEAD,
    PIECE,
    ROUTE,
    SEND,
    SHARED_BYTES,
    VERSION,
    Piece,
    Plain,
    ReplayWindow,
    extend,
    make_pieces,
    make_plain,
    mark_full,
    mark_header,
    take_piece,
    take_plain,
    unmark_full,
    unmark_header,
    view_tag,
)

COUNT_MAX = 4_096
TOTAL_MAX = 2**24


def plain(packets: list[bytes], marks: list[int] | None = None) -> bytes:
    return make_plain(CAST, 3, 7, packets, list(map(len, packets)), marks or [])


def parse(body: bytes) -> Plain | Piece | None:
    kind, _, _, count, marks = BODY.unpack_from(body)
    if kind & FRAGMENT:
        return take_piece(body, count, marks, TOTAL_MAX)
    return take_plain(body, count, marks, COUNT_MAX)


# Numbers.


def test_a_number_is_extended_to_the_nearest() -> None:
    random = Random(1)
    for _ in range(2_000):
        near = random.randrange(2**40)
        number = near + random.randrange(-(2**31), 2**31)
        assert extend(number % 2**32, near) == number


def test_a_view_is_told_from_any_other() -> None:
    a, b = MemberId("a"), MemberId("b")
    views = [
        View(ViewId(1, a), (a, b)),
        View(ViewId(2, a), (a, b)),
        View(ViewId(1, b), (a, b)),
        View(ViewId(1, a), (b, a)),
        View(ViewId(1, a), (a, MemberId("b", 1))),
        View(ViewId(1, a), (a,)),
        View(ViewId(1, a), (MemberId("ab"),)),
    ]
    assert len({view_tag(view) for view in views}) == len(views)
    assert view_tag(views[0]) == view_tag(View(ViewId(1, a), (a, b)))


# The replay window.


class Naive(ReplayWindow):
    """What the window means, said with a set."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[int] = set()

    def fresh(self, counter: int) -> bool:
        return (
            counter > 0
            and self.highest - self.WIDTH < counter <= self.highest + self.LEAP_MAX
            and (counter not in self.seen)
        )

    def add(self, counter: int) -> None:
        self.seen.add(counter)
        self.highest = max(self.highest, counter)


class Forgetful(ReplayWindow):
    """Planted fault: does not clear what the ring reuses."""

    def add(self, counter: int) -> None:
        self.highest = max(self.highest, counter)
        self._blocks[counter // 1024 % 66] |= 1 << counter % 1024


def differences(window: ReplayWindow) -> int:
    naive, random = Naive(), Random(2)
    at, wrong = 1, 0
    for _ in range(20_000):
        at = max(
            1, at + random.choice([1, 1, 1, 2, 50, 3_000, -1, -100, -2_500, 80_000 if random.random() < 0.01 else 0])
        )
        wrong += window.fresh(at) != naive.fresh(at)
        if naive.fresh(at):
            naive.add(at)
            window.add(at)
    return wrong


def test_the_replay_window_agrees_with_a_set() -> None:
    assert differences(ReplayWindow()) == 0
    assert differences(Forgetful()) > 0


def test_the_replay_window_is_wide_enough_and_refuses_a_leap() -> None:
    window = ReplayWindow()
    assert window.WIDTH >= 65_536
    assert not window.fresh(0)
    window.add(100_000)
    assert window.fresh(100_000 - 65_535)
    assert not window.fresh(100_000)
    assert not window.fresh(100_000 - window.WIDTH)
    assert not window.fresh(2**63), "one forged counter would shut out all true ones"


# Bodies.


@pytest.mark.parametrize(
    ("packets", "marks"),
    [
        ([b"x"], []),
        ([b"abc"] * 64, []),
        ([b"a", b"bb", b"ccc"], []),
        ([b"a", b"bb", b"ccc"], [0, 2]),
        ([bytes(60_000)], [0]),
        ([bytes(60_000)], []),
        ([b"z"] * COUNT_MAX, []),
    ],
)
def test_packets_come_back_as_they_were(packets: list[bytes], marks: list[int]) -> None:
    parsed = parse(plain(packets, marks))
    assert isinstance(parsed, Plain)
    assert (list(parsed.packets), list(parsed.marks)) == (packets, marks)


def test_pieces_come_back_as_they_were() -> None:
    packet = Random(1).randbytes(10_000)
    bodies = make_pieces(SEND, 1, 2**32 - 2, packet, True, 1_000)
    pieces = [parse(body) for body in bodies]
    assert all(isinstance(piece, Piece) and piece.total == 10_000 and piece.marked for piece in pieces)
    assert b"".join(piece.data for piece in pieces if isinstance(piece, Piece)) == packet
    assert [BODY.unpack_from(body)[2] for body in bodies][:4] == [2**32 - 2, 2**32 - 1, 0, 1]
    assert max(map(len, bodies)) == BODY.size + 1_000


@pytest.mark.parametrize(
    ("packets", "marks"), [([b"abc"] * 5, [1]), ([b"a", b"bb", b"ccc"], [1]), ([bytes(SHARED_BYTES)], [])]
)
def test_a_body_of_another_length_is_refused(packets: list[bytes], marks: list[int]) -> None:
    body = plain(packets, marks)
    assert parse(body) is not None
    for size in range(BODY.size + 1, len(body)):
        assert parse(body[:size]) is None
    assert parse(body + b"x") is None


@pytest.mark.parametrize(
    ("count", "marks", "rest"),
    [
        (0, 0, b"\x01\x00x"),  # no packet
        (1, 0, b"\x00\x00"),  # an empty one
        (2, 0, b"\x01\x00\x00\x00x"),
        (65_535, 0, b"\x01\x00x"),
        (COUNT_MAX + 1, 0, b"\x01\x00" * (COUNT_MAX + 1) + bytes(COUNT_MAX + 1)),
        (2, 0, b"\xff\xff\xff\xffxx"),  # lengths beyond the end
        (1, 2, b"\x01\x00\x00\x00\x00\x00x"),  # more marks than packets
        (1, 1, b"\x01\x00\x01\x00x"),  # a mark beyond the packets
        (2, 2, b"\x01\x00\x01\x00\x00\x00\x00\x00xy"),  # a mark twice
        (2, 2, b"\x01\x00\x01\x00\x01\x00\x00\x00xy"),  # marks out of order
        (1, 65_535, b"\x01\x00x"),
    ],
)
def test_counts_and_lengths_that_make_no_sense_are_refused(count: int, marks: int, rest: bytes) -> None:
    """F2."""
    assert parse(BODY.pack(CAST, 0, 0, count, marks) + rest) is None


@pytest.mark.parametrize(
    ("count", "marks", "total", "offset", "data"),
    [
        (0, 0, 10, 0, b""),
        (1, 0, 10, 0, b"x"),
        (0, 2, 10, 0, b"x"),
        (0, 0, 1, 0, b"x"),  # a whole packet is no fragment
        (0, 0, 10, 10, b"x"),
        (0, 0, 10, 2**32 - 1, b"x"),
        (0, 0, 0, 0, b"x"),
        (0, 0, TOTAL_MAX + 1, 0, b"x"),
        (0, 0, 2**31, 0, b"x"),
        (0, 0, 2**32 - 1, 2**32 - 2, b"x"),
    ],
)
def test_pieces_that_make_no_sense_are_refused(count: int, marks: int, total: int, offset: int, data: bytes) -> None:
    """F2."""
    assert parse(BODY.pack(CAST | FRAGMENT, 0, 0, count, marks) + PIECE.pack(total, offset) + data) is None


def test_a_hundred_thousand_tiny_packets_are_refused_before_they_are_made() -> None:
    """F3: a datagram cannot even hold the table of so many lengths, and a count above the cap ends it."""
    assert take_plain(BODY.pack(CAST, 0, 0, 65_535, 0) + b"\x01\x00" * 100_000, 100_000, 0, COUNT_MAX) is None


# Marked packets.


def test_headers_and_full_halves_come_back_as_they_were() -> None:
    assert unmark_header(mark_header(b"head", (0, 3)), 4) == (b"head", (0, 3))
    assert unmark_header(mark_header(b"head", ()), 4) == (b"head", ())
    assert unmark_full(mark_full(b"full", 2**32 + 5), 2**32) == (b"full", 2**32 + 5)


@pytest.mark.parametrize("packet", [b"", b"\x01", b"\x00\x00", b"\x01\x00\x00\x00", b"\xff\xff", b"\x01\x00\x04\x00x"])
def test_headers_that_make_no_sense_are_refused(packet: bytes) -> None:
    assert unmark_header(packet, 4) is None


def test_a_full_half_without_content_is_refused() -> None:
    assert unmark_full(b"\x00\x00\x00\x00", 0) is None
    assert unmark_full(b"\x00", 0) is None


# The head.


def test_a_driver_can_look_at_the_head() -> None:
    head = HEAD.pack(VERSION, 0, 2, 1, view_tag(view_of(3)), 77, 0, 0, 0, 0, 0, 0, 0)
    assert ROUTE.unpack_from(head) == (VERSION, 2, view_tag(view_of(3)))
    assert head[CLEAR_BYTES - 8 : CLEAR_BYTES] == (77).to_bytes(8, "little"), (
        "what stays readable ends with the counter"
    )
