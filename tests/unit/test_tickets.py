"""Tickets and nonces: what a stranger, or a capture of an earlier time, can and cannot get out of a member."""

from __future__ import annotations

import pytest

from unisono.core.config import SECOND
from unisono.core.membership.tickets import (
    NONE,
    PAIR,
    WAITING_ADDRESSES_MAX,
    WAITING_MESSAGES_MAX,
    WAITING_NS,
    Nonces,
    Tickets,
)
from unisono.core.types import MemberId
from unisono.core.wire.frame import Frames
from unisono.runtime.seal import overhead

A, B = MemberId("10.0.0.1:7400", 5), MemberId("10.0.0.2:7400", 6)


def tickets(member: MemberId, secret: bytes = b"") -> Tickets:
    return Tickets(member.address, secret or member.address.encode(), 100)


def read(receiver: Tickets, sender: MemberId, data: bytes, now: int = 0) -> bytes | str:
    found = receiver.read(sender, memoryview(data), now)
    return found if isinstance(found, str) else bytes(found)


def acquaint(a: Tickets, b: Tickets) -> bytes:
    """A message of a to b, with the round trip that it needs first; what b reads in the end."""
    assert a.write(B.address, b"message", 0) is None
    ((to, question),) = a.drain()
    assert to == B.address
    assert read(b, A, question) == ""
    ((to, answer),) = b.drain()
    assert to == A.address
    assert len(answer) <= len(question)
    assert read(a, B, answer) == b""
    ((to, proven),) = a.drain()
    assert to == B.address
    found = read(b, A, proven)
    assert isinstance(found, bytes)
    return found


def test_a_message_is_read_after_one_round_trip_and_then_at_once_in_both_directions() -> None:
    a, b = tickets(A), tickets(B)
    assert acquaint(a, b) == b"message"
    second = a.write(B.address, b"second", 0)
    assert second is not None
    assert read(b, A, second) == b"second"
    answer = b.write(A.address, b"answer", 0)
    assert answer is not None
    assert read(a, B, answer) == b"answer"


def test_what_shows_no_ticket_is_dropped_and_its_sender_gets_no_more_than_it_sent() -> None:
    b = tickets(B)
    for shown in (1, 2**64 - 1):
        forged = PAIR.pack(77, shown) + b"message"
        assert read(b, A, forged) == "unproven"
        ((to, answer),) = b.drain()
        assert to == A.address
        assert len(answer) <= len(forged)
        assert PAIR.unpack(answer) == (b.ticket(A.address), 77)


def test_an_answer_that_would_be_larger_than_the_question_is_not_sent() -> None:
    b = Tickets("h" * 200, b"secret", 100)
    assert read(b, A, PAIR.pack(77, NONE) + bytes(10)) == ""
    assert b.drain() == []


def test_what_was_captured_is_unproven_to_every_other_receiver_and_to_every_other_life() -> None:
    a, b = tickets(A), tickets(B)
    acquaint(a, b)
    captured = a.write(B.address, b"message", 0)
    assert captured is not None
    assert read(tickets(MemberId("10.0.0.3:7400")), A, captured) == "unproven"
    assert read(tickets(B, b"a later life of b"), A, captured) == "unproven"


def test_an_empty_frame_that_was_not_asked_for_is_dropped() -> None:
    a, b = tickets(A), tickets(B)
    assert read(a, B, PAIR.pack(b.ticket(A.address), 3)) == "unasked"
    assert a.write(B.address, b"message", 0) is None, "what it gave was not taken"


def test_a_member_that_began_anew_gives_a_new_ticket() -> None:
    a, b = tickets(A), tickets(B)
    acquaint(a, b)
    later = tickets(B, b"a later life of b")
    stale = a.write(B.address, b"lost", 0)
    assert stale is not None
    assert read(later, A, stale) == "unproven"
    ((_, answer),) = later.drain()
    assert read(a, B, answer) == b""
    fresh = a.write(B.address, b"again", 0)
    assert fresh is not None
    assert read(later, A, fresh) == b"again"


def test_a_member_that_is_asked_at_a_second_address_answers_as_itself() -> None:
    a, b = tickets(A), tickets(B)
    assert a.write("192.168.7.7:7400", b"hello", 0, is_for_anyone=True) is None
    ((_, question),) = a.drain()
    assert read(b, A, question) == ""
    ((_, answer),) = b.drain()
    assert read(a, B, answer) == b""
    ((to, proven),) = a.drain()
    assert to == B.address
    assert read(b, A, proven) == b"hello"


def test_a_question_that_is_handed_to_another_member_brings_no_message_there() -> None:
    """Its answer shows the ticket of the member that was asked, and would turn that member's messages aside."""
    a, c = tickets(A), tickets(MemberId("10.0.0.3:7400", 7))
    a.write(B.address, b"for b alone", 0)
    ((_, question),) = a.drain()
    assert read(c, A, question) == ""
    ((_, answer),) = c.drain()
    read(a, MemberId("10.0.0.3:7400", 7), answer)
    assert a.drain() == []


def test_what_waits_is_bounded_and_does_not_wait_for_ever() -> None:
    a, b = tickets(A), tickets(B)
    for number in range(3 * WAITING_MESSAGES_MAX):
        a.write(B.address, b"%d" % number, number)
    for number in range(3 * WAITING_ADDRESSES_MAX):
        a.write(f"10.1.{number // 250}.{number % 250}:9", b"m", 0)
    assert sum(map(len, a._waiting.values())) <= WAITING_ADDRESSES_MAX
    assert len(a._asked) == len(a._waiting)
    a = tickets(A)
    a.write(B.address, b"old", 0)
    a.write(B.address, b"new", WAITING_NS)
    ((_, question),) = a.drain()
    read(b, A, question)
    ((_, answer),) = b.drain()
    assert read(a, B, answer, WAITING_NS + 1) == b""
    assert [data[PAIR.size :] for _, data in a.drain()] == [b"new"]


def test_a_burst_of_messages_asks_once() -> None:
    a = tickets(A)
    for number in range(5):
        assert a.write(B.address, b"%d" % number, 0) is None
    assert len(a.drain()) == 1
    assert a.drain() == []
    a.write(B.address, b"again", 0)
    assert len(a.drain()) == 1


@pytest.mark.parametrize("size", range(PAIR.size))
def test_a_frame_that_is_too_short_for_tickets_is_dropped(size: int) -> None:
    assert read(tickets(A), B, bytes(size)) == "short control message"


def test_a_nonce_is_recent_for_one_period_at_least_and_for_two_at_most() -> None:
    nonces = Nonces(b"secret", SECOND)
    nonce = nonces.current(5 * SECOND)
    assert nonces.current(6 * SECOND) != nonce
    assert nonces.is_recent(nonce, 5 * SECOND)
    assert nonces.is_recent(nonce, 7 * SECOND - 1)
    assert not nonces.is_recent(nonce, 7 * SECOND)
    assert not nonces.is_recent(nonce + 1, 5 * SECOND)
    assert not Nonces(b"another", SECOND).is_recent(nonce, 5 * SECOND)


@pytest.mark.parametrize("sealed", [False, True], ids=["no key", "with a key"])
def test_whatever_the_lengths_of_two_addresses_an_answer_is_no_longer_than_what_came(sealed: bool) -> None:
    """A seal names the sender's address once more: 152 bytes under a short address brought 182 from a long one."""
    ends = MemberId("[::1]:1", 5), MemberId("[2001:db8:1111:2222:3333:4444:5555:6666]:65535", 6)
    for asker, asked in (ends, ends[::-1]):
        sizes = []
        for member in (asker, asked):
            around = (overhead(member.address) if sealed else 0) + len(Frames("g", member).control(b""))
            sizes.append(around)
        a, b = tickets(asker), tickets(asked)
        assert a.write(asked.address, b"message", 0) is None
        ((_, question),) = a.drain()
        unproven = [PAIR.pack(1, 2) + bytes(length) for length in range(1, 200)]
        for data in (question, *unproven):
            read(b, asker, data)
            for _, answer in b.drain():
                assert sizes[1] + len(answer) <= sizes[0] + len(data)
        read(b, asker, question)
        assert len(b.drain()) == 1, "a question is always answered"
