"""The desk and the client by the piece: limits, memory, and what strangers send."""

from __future__ import annotations

from random import Random

import pytest

from unisono.core.config import SECOND
from unisono.core.errors import ConfigError, Misuse, NotPrimary
from unisono.core.types import Key, MemberId, View, ViewId
from unisono.core.wire.frame import CLIENT, Frames
from unisono.services.client import Answered, Client, ClientSettings, Failed
from unisono.services.client_desk import ClientDesk, DeskSettings
from unisono.services.client_messages import (
    LIFE,
    TAG,
    WIRE,
    Errand,
    Hindrance,
    Reply,
    Request,
    Sorry,
    Wanted,
    make_client_codec,
)

A, B, X = MemberId("a"), MemberId("b"), MemberId("x", 7)
VIEW = View(ViewId(1, A), (A, B))
CODEC = make_client_codec()


class Echo:
    """A member whose casts come back when they are taken."""

    def __init__(self, id: MemberId = A) -> None:
        self.id = id
        self.view: View | None = VIEW
        self.cast_payloads: list[bytes] = []
        self.is_full = False
        self.is_read_only = False

    def cast(self, payload: bytes, /) -> Key | None:
        if self.is_read_only:
            raise NotPrimary("the view is read-only.")
        if self.is_full or self.view is None:
            return None
        self.cast_payloads.append(payload)
        return Key(self.id, len(self.cast_payloads))


def make_desk(**settings: int) -> tuple[ClientDesk, Echo]:
    member = Echo()
    return ClientDesk(member, "g", DeskSettings(**settings)), member


def arrive(desk: ClientDesk, request: Request, client: MemberId = X) -> None:
    assert desk.receive([Frames("g", client).client(CODEC.encode(request))]) == []


def token_of(desk: ClientDesk) -> int | None:
    """What was given to a stranger just now; it counts as heard."""
    frame = Frames("g", X).open_client(desk._out[-1][1]) if desk._out else None
    last = None if frame is None else CODEC.decode(frame.message[LIFE.size :], 0, 1)
    if not isinstance(last, Sorry) or last.why != Hindrance.STRANGER:
        return None
    desk._out.pop()
    return last.token


def ask(desk: ClientDesk, request: Request, client: MemberId = X) -> None:
    """As a client does: a stranger asks again with what it was given."""
    arrive(desk, request, client)
    token = token_of(desk)
    if token is not None:
        arrive(desk, request._replace(token=token), client)


def said(desk: ClientDesk) -> list[tuple[str, object]]:
    return [
        (address, CODEC.decode(frame.message[LIFE.size :], 0, 1))
        for address, datagram in desk.drain()
        if (frame := Frames("g", X).open_client(datagram)) is not None
    ]


def serve(desk: ClientDesk, member: Echo, answer: bytes | None = b"yes") -> list[Errand]:
    """Deliver what was cast."""
    errands = []
    for payload in member.cast_payloads:
        errand = desk.open(payload)
        assert errand is not None
        if errand.is_new:
            desk.answer(errand, answer)
        errands.append(errand)
    member.cast_payloads = []
    return errands


def test_every_message_comes_back_and_damage_is_refused() -> None:
    samples = (
        Request(3, 2, 1, b"p", 2**64 - 1),
        Reply(3, 2, None),
        Reply(3, 2, b"x"),
        Sorry(3, 5, 2**64 - 1),
        Errand(X, 3, 2, 0, A, b"p"),
    )
    assert {type(sample) for sample in samples} == {layout.type for layout in WIRE}
    for sample in samples:
        data = CODEC.encode(sample)
        assert CODEC.decode(memoryview(data), 0, 1) == sample
        assert all(CODEC.decode(memoryview(data[:end]), 0, 1) is None for end in range(len(data)))


def test_a_frame_of_a_client_is_nothing_for_a_member_and_the_other_way_round() -> None:
    frames = Frames("g", A)
    datagram = frames.client(b"m")
    assert datagram[1] == CLIENT
    assert frames.open(datagram) is None
    assert frames.refused["kind"] == 1
    assert not frames.is_client(frames.control(b"m"))
    assert not Frames("other", A).is_client(datagram)
    desk, _ = make_desk()
    rest = [frames.control(b"m"), frames.stream_head + b"s", b"", b"\1"]
    assert desk.receive(rest) == rest


def test_what_strangers_send_takes_nothing_down() -> None:
    random = Random("strangers")
    desk, member = make_desk()
    client = Client(X, "g", ["a"])
    client.request(b"?", 0)
    frames = Frames("g", X)
    for _ in range(2_000):
        noise = frames.client(random.randbytes(random.randrange(40)))
        cut = noise[: random.randrange(len(noise) + 1)]
        desk.receive([noise, cut])
        client.receive([noise, cut], 0)
        desk.open(TAG + random.randbytes(random.randrange(30)))
    assert member.cast_payloads == []
    assert desk.dropped["request"] > 1_000
    assert desk.dropped["errand"] > 1_000
    assert client.drain(0).events == []


@pytest.mark.parametrize(
    "request_",
    [Request(1, 0, 9, b""), Request(1, 2, 0, b""), Request(1, 0, 0, bytes(101))],
    ids=["wanted", "oldest", "size"],
)
def test_requests_that_cannot_be_are_dropped(request_: Request) -> None:
    desk, member = make_desk(request_bytes_max=100)
    ask(desk, request_)
    assert (desk.dropped, member.cast_payloads, desk.drain()) == ({"request": 1}, [], [])


def test_a_request_is_cast_once_served_once_and_answered_as_often_as_it_is_asked() -> None:
    desk, member = make_desk()
    for _ in range(3):
        ask(desk, Request(1, 1, Wanted.CONTACT, b"p"))
    assert len(member.cast_payloads) == 1
    assert [errand.is_new for errand in serve(desk, member)] == [True]
    ask(desk, Request(1, 1, Wanted.CONTACT, b"p"))
    assert member.cast_payloads == []
    assert said(desk) == [("x", Reply(1, 2, b"yes"))] * 2


def test_an_errand_that_another_member_cast_again_is_recognised() -> None:
    desk, _ = make_desk()
    first, again = Errand(X, 1, 1, Wanted.CONTACT, B, b"p"), Errand(X, 1, 1, Wanted.CONTACT, A, b"p")
    seen = desk.open(TAG + CODEC.encode(first))
    assert seen == first
    unanswered = desk.open(TAG + CODEC.encode(again))
    assert unanswered is not None
    assert not unanswered.is_new, "the application has it, and has not answered yet"
    desk.answer(first, b"yes")
    assert said(desk) == [], "b is the contact"
    second = desk.open(TAG + CODEC.encode(again))
    assert second is not None
    assert not second.is_new
    assert said(desk) == [("x", Reply(1, 2, b"yes"))]


def test_why_a_member_cannot_help() -> None:
    desk, member = make_desk(pending_of_one_max=1, pending_max=2)
    member.is_full = True
    ask(desk, Request(1, 1, 0, b""))
    member.is_read_only = True
    ask(desk, Request(1, 1, 0, b""))
    member.is_read_only, member.view = False, None
    ask(desk, Request(1, 1, 0, b""))
    member.view, member.is_full = VIEW, False
    ask(desk, Request(1, 1, 0, b""))
    ask(desk, Request(2, 1, 0, b""))  # one of a client at a time
    ask(desk, Request(1, 1, 0, b""), MemberId("y"))
    ask(desk, Request(1, 1, 0, b""), MemberId("z"))  # two at all
    assert [message for _, message in said(desk)] == [
        Sorry(1, Hindrance.BUSY),
        Sorry(1, Hindrance.READ_ONLY),
        Sorry(1, Hindrance.NO_VIEW),
        Sorry(2, Hindrance.BUSY),
        Sorry(1, Hindrance.BUSY),
    ]


def test_memory_is_bounded_and_what_is_forgotten_is_not_served_again() -> None:
    desk, member = make_desk(answers_max=3, clients_max=2)
    for number in range(1, 11):
        ask(desk, Request(number, 1, 0, b"p"))
        serve(desk, member)
    said(desk)
    (tab,) = desk.remembered()
    assert (tab.floor, [number for number, _ in tab.answers]) == (8, [8, 9, 10])
    ask(desk, Request(2, 1, 0, b"p"))
    assert said(desk) == [("x", Sorry(2, Hindrance.FORGOTTEN))]
    for number in range(5):
        ask(desk, Request(1, 1, 0, b"p"), MemberId(f"c{number}"))
        serve(desk, member)
    assert [tab.client for tab in desk.remembered()] == [MemberId("c3"), MemberId("c4")], (
        "the clients that were served last"
    )


def test_what_a_client_does_not_wait_for_any_more_is_forgotten() -> None:
    desk, member = make_desk()
    for number, oldest in ((1, 1), (2, 1), (3, 3)):
        ask(desk, Request(number, oldest, 0, b"p"))
        serve(desk, member)
    (tab,) = desk.remembered()
    assert (tab.floor, [number for number, _ in tab.answers]) == (3, [3])


def test_a_memory_that_is_handed_over_is_the_same() -> None:
    desk, member = make_desk()
    for number in (1, 2):
        ask(desk, Request(number, 1, 0, b"p"))
        serve(desk, member, b"yes" if number == 1 else None)
    other, _ = make_desk()
    other.restore(desk.snapshot())
    assert other.snapshot() == desk.snapshot()
    ask(other, Request(1, 1, 0, b"p"))
    assert said(other) == [("x", Reply(1, 2, b"yes"))]
    with pytest.raises(Misuse):
        other.restore(b"nonsense")


# What somebody captured and sends again: authentic bytes, which a seal that did not see them lets pass.


def test_a_stranger_is_cast_for_when_it_asks_with_what_it_was_given() -> None:
    desk, member = make_desk()
    arrive(desk, Request(1, 1, 0, b"p"))
    token = token_of(desk)
    assert (member.cast_payloads, said(desk)) == ([], [])
    arrive(desk, Request(1, 1, 0, b"p", (token or 0) + 1))
    assert token_of(desk) == token, "the same, as long as nobody is forgotten"
    assert member.cast_payloads == []
    arrive(desk, Request(1, 1, 0, b"p", token or 0))
    assert len(member.cast_payloads) == 1
    serve(desk, member)
    arrive(desk, Request(2, 2, 0, b"q"))
    assert len(member.cast_payloads) == 1, "whoever is remembered needs none"


def capture(desk: ClientDesk, member: Echo) -> list[Request]:
    """A client is served, and all that it sent is written down."""
    arrive(desk, Request(1, 1, 0, b"pay"))
    captured = [Request(1, 1, 0, b"pay"), Request(1, 1, 0, b"pay", token_of(desk) or 0)]
    arrive(desk, captured[1])
    assert [errand.is_new for errand in serve(desk, member)] == [True]
    return captured


@pytest.mark.parametrize("others", [3, 4, 5, 7, 20])
def test_a_capture_of_a_client_that_was_forgotten_is_not_cast_again_here(others: int) -> None:
    """Found by reading: its effect happened again."""
    desk, member = make_desk(clients_max=3)
    captured = capture(desk, member)
    for number in range(others):
        ask(desk, Request(1, 1, 0, b"p"), MemberId(f"c{number}"))
        serve(desk, member)
    assert X not in [tab.client for tab in desk.remembered()]
    for request in captured:
        arrive(desk, request)
        assert token_of(desk) is not None
    assert member.cast_payloads == []
    ask(desk, Request(2, 2, 0, b"p"))
    assert [errand.is_new for errand in serve(desk, member)] == [True], "the client itself is served on"


@pytest.mark.parametrize("id", [B, MemberId("a", 1)], ids=["another member", "the member's next life"])
def test_a_capture_is_not_cast_again_elsewhere_or_after_a_restart(id: MemberId) -> None:
    """Found by reading: whoever had captured a request could have its effect again, when everyone had been restarted."""
    captured = capture(*make_desk())
    member = Echo(id)
    desk = ClientDesk(member, "g")
    for request in captured:
        arrive(desk, request)
        assert token_of(desk) is not None
    assert member.cast_payloads == []


def test_a_capture_is_not_cast_by_one_that_took_a_memory_over_in_which_the_client_is_forgotten() -> None:
    desk, member = make_desk()
    arrive(desk, Request(1, 1, 0, b"pay"))
    captured = Request(1, 1, 0, b"pay", token_of(desk) or 0)  # never arrived, and another contact helped
    desk.restore(make_desk()[0].snapshot())
    arrive(desk, captured)
    assert token_of(desk) is not None
    assert member.cast_payloads == []


def test_a_flood_of_strangers_is_not_remembered_and_takes_nobodys_token_away() -> None:
    desk, member = make_desk(clients_max=3)
    arrive(desk, Request(1, 1, 0, b"p"))
    token = token_of(desk) or 0
    for number in range(100):
        arrive(desk, Request(1, 1, 0, b"p"), MemberId(f"c{number}"))
    said(desk)
    arrive(desk, Request(1, 1, 0, b"p", token))
    assert len(member.cast_payloads) == 1
    assert not desk.forgotten


def test_an_own_errand_that_came_with_a_state_is_not_under_way_any_more() -> None:
    """Found by reading: it was counted for ever, and after enough of them the member said for ever that it was busy."""
    desk, member = make_desk(pending_max=1)
    ask(desk, Request(1, 1, 0, b"p"))
    other, _ = make_desk()
    errand = other.open(member.cast_payloads.pop())
    assert errand is not None
    other.answer(errand, b"yes")
    desk.restore(other.snapshot())
    ask(desk, Request(1, 1, 0, b"p"))
    assert said(desk) == [("x", Reply(1, 2, b"yes"))]
    ask(desk, Request(1, 1, 0, b"p"), MemberId("y"))
    assert len(member.cast_payloads) == 1
    assert said(desk) == []


def test_an_answer_that_is_too_large_is_misuse() -> None:
    desk, member = make_desk(answer_bytes_max=3)
    ask(desk, Request(1, 1, 0, b"p"))
    with pytest.raises(Misuse, match="over the limit of 3: shorten it"):
        serve(desk, member, b"four")


@pytest.mark.parametrize(
    ("wanted", "first", "again"),
    [
        (Wanted.CONTACT, [Sorry(1, Hindrance.FAILED)], [Sorry(1, Hindrance.FAILED)]),
        (Wanted.ALL, [Reply(1, 2, None)], [Reply(1, 2, None)]),
        (Wanted.ANY, [Sorry(1, Hindrance.FAILED)], [Sorry(1, Hindrance.FAILED)]),
    ],
)
def test_a_failure_that_got_lost_is_told_again(wanted: Wanted, first: list[object], again: list[object]) -> None:
    """Found by reading: who asked again was told that the member had nothing to say."""
    desk, member = make_desk()
    ask(desk, Request(1, 1, wanted, b"p"))
    errand = desk.open(member.cast_payloads.pop())
    assert errand is not None
    desk.fail(errand)
    assert [message for _, message in said(desk)] == first
    ask(desk, Request(1, 1, wanted, b"p"))
    assert [message for _, message in said(desk)] == again


def test_a_failure_is_forgotten_with_its_answer() -> None:
    desk, member = make_desk(answers_max=1)
    for number in (1, 2):
        ask(desk, Request(number, 1, Wanted.CONTACT, b"p"))
        errand = desk.open(member.cast_payloads.pop())
        assert errand is not None
        desk.fail(errand)
    said(desk)
    for number, why in ((1, Hindrance.FORGOTTEN), (2, Hindrance.FAILED)):
        ask(desk, Request(number, 1, Wanted.CONTACT, b"p"))
        assert said(desk) == [("x", Sorry(number, why))]


@pytest.mark.parametrize("kind", [DeskSettings, ClientSettings])
def test_settings_that_cannot_be_are_refused(kind: type) -> None:
    for name in kind.__slots__:  # type: ignore[attr-defined]
        with pytest.raises(ConfigError):
            kind(**{name: 0})


# The client.


def reply(message: Reply | Sorry, sender: MemberId = A, life: int = X.incarnation) -> bytes:
    return Frames("g", sender).client(LIFE.pack(life) + CODEC.encode(message))


def test_an_answer_to_an_earlier_life_of_the_client_is_nothing_to_the_next() -> None:
    client = Client(X, "g", ["a"])
    client.request(b"?", 0)
    client.drain(0)
    client.receive([reply(Reply(1, 1, b"old"), life=6), reply(Sorry(1, Hindrance.FAILED), life=6)], 1)
    assert client.drain(1).events == []
    assert client.dropped == {"datagram": 2}
    client.receive([reply(Reply(1, 1, b"new"))], 2)
    assert client.drain(2).events == [Answered(1, ((A, b"new"),), True)]


def test_a_silent_contact_is_given_up_for_the_next_and_all_for_a_failure() -> None:
    client = Client(X, "g", ["a", "b"], ClientSettings(retry_ns=10, wait_ns=35))
    client.request(b"?", 0)
    sent = []
    now: int | None = 0
    while now is not None:
        effects = client.drain(now)
        sent += [address for address, _ in effects.datagrams]
        events, now = effects.events, effects.deadline
    assert sent == ["a", "b", "a", "b"]
    assert events == [Failed(1, "no contact answered")]


def test_a_contact_that_cannot_help_is_given_up_at_once_but_not_all_of_them() -> None:
    client = Client(X, "g", ["a", "b"], ClientSettings(retry_ns=10, wait_ns=100))
    client.request(b"?", 0)
    client.drain(0)
    client.receive([reply(Sorry(1, Hindrance.BUSY))], 1)
    assert [address for address, _ in client.drain(1).datagrams] == ["b"]
    client.receive([reply(Sorry(1, Hindrance.BUSY), B)], 2)
    effects = client.drain(2)
    assert (effects.datagrams, effects.deadline) == ([], 11)
    client.receive([reply(Sorry(1, Hindrance.FORGOTTEN))], 3)
    assert client.drain(3).events == [], "a was not asked again yet"


def sent_by(client: Client, now: int) -> list[tuple[str, int]]:
    """To whom, and with which token."""
    return [
        (address, message.token)
        for address, datagram in client.drain(now).datagrams
        if (frame := Frames("g", A).open_client(datagram)) is not None
        and isinstance(message := CODEC.decode(frame.message, 0, 1), Request)
    ]


def test_a_stranger_asks_the_same_contact_again_at_once_with_what_it_was_given() -> None:
    client = Client(X, "g", ["a", "b"], ClientSettings(retry_ns=10, wait_ns=100))
    client.request(b"?", 0)
    assert sent_by(client, 0) == [("a", 0)]
    client.receive([reply(Sorry(1, Hindrance.STRANGER, 5)), reply(Sorry(1, Hindrance.STRANGER, 5))], 1)
    assert sent_by(client, 1) == [("a", 5)]
    client.receive([reply(Sorry(1, Hindrance.STRANGER, 5))], 2)
    assert sent_by(client, 2) == [], "it came twice"
    client.receive([reply(Sorry(1, Hindrance.STRANGER, 7), B)], 3)
    assert sent_by(client, 3) == [], "of one that is not asked just now, but may be later"
    assert sent_by(client, 11) == [("b", 7)]
    client.request(b"?", 12)
    assert sent_by(client, 12) == [("a", 5)]


def test_a_contact_with_another_address_than_its_clients_know_can_introduce_itself() -> None:
    client = Client(X, "g", ["gate"])
    client.request(b"?", 0)
    assert sent_by(client, 0) == [("gate", 0)]
    client.receive([reply(Sorry(1, Hindrance.STRANGER, 5))], 1)
    assert sent_by(client, 1) == [("gate", 5)]


def test_the_first_outcome_is_the_only_one_and_strange_numbers_mean_nothing() -> None:
    client = Client(X, "g", ["a"])
    client.request(b"?", 0)
    client.drain(0)
    client.receive([reply(Reply(9, 1, b"no")), reply(Reply(1, 1, b"yes")), reply(Reply(1, 1, b"again"))], 1)
    assert client.drain(1).events == [Answered(1, ((A, b"yes"),), True)]


def test_not_all_answer_in_time() -> None:
    client = Client(X, "g", ["a"], ClientSettings(wait_ns=1 * SECOND))
    client.request(b"?", 0, Wanted.ALL)
    client.receive([reply(Reply(1, 3, b"1")), reply(Reply(1, 3, None), B)], 1)
    assert client.drain(SECOND).events == [Answered(1, ((A, b"1"), (B, None)), False)]


def test_no_more_requests_are_under_way_than_members_remember() -> None:
    client = Client(X, "g", ["a"], ClientSettings(requests_max=2))
    assert [client.request(b"?", 0) for _ in range(3)] == [1, 2, None]
    client.receive([reply(Reply(2, 1, b""))], 0)
    assert client.request(b"?", 0) is None, "the oldest counts"
    client.receive([reply(Reply(1, 1, b""))], 0)
    assert client.request(b"?", 0) == 3
    with pytest.raises(Misuse):
        client.request(bytes(1 << 20), 0)
    with pytest.raises(Misuse):
        Client(X, "g", [])
