"""State transfer, one member at a time: what it says, holds back, restores and refuses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from unisono.core.errors import ConfigError
from unisono.core.member import Aside, Entered, Happening
from unisono.core.membership.context import Left
from unisono.core.types import Batch, MemberId, Service, View, ViewId
from unisono.core.wire.control import Charter, HeldState, Part
from unisono.services.transfer.donor import Donor
from unisono.services.transfer.fetch import StateFetch, digest_of_state
from unisono.services.transfer.messages import (
    TAG,
    Ask,
    Decline,
    Done,
    Gone,
    Message,
    Offer,
    PartKey,
    StateChunk,
    StatePull,
    Want,
    Why,
    make_transfer_codec,
)
from unisono.services.transfer.settings import TransferSettings
from unisono.services.transfer.transfer import Status, Transfer

A, B, C, D = (MemberId(name) for name in "abcd")
CODEC = make_transfer_codec()
SMALL = TransferSettings(chunk_bytes=4, chunks_ahead=2, retry_ns=10, patience_ns=100, hold_ns=1_000)


class Port:
    """A member that only remembers what was asked of it."""

    def __init__(self, id: MemberId) -> None:
        self.id = id
        self.out: list[tuple[MemberId, Message]] = []
        self.room: int | None = None
        self.holds: HeldState | None = None

    def hold(self, state: HeldState | None) -> None:
        self.holds = state

    def send(self, to: MemberId, data: bytes) -> bool:
        assert data[:1] == TAG
        message = CODEC.decode(data[1:], 0, 1)
        assert message is not None
        self.out.append((to, message))  # type: ignore[arg-type]
        return True

    def set_free_room(self, packets: int | None) -> None:
        self.room = packets

    def take(self) -> list[tuple[MemberId, Message]]:
        out, self.out = self.out, []
        return out


class Tape:
    """An application that writes down what it is told. Its state is a string."""

    can_merge = True
    is_untouched = False

    def __init__(self, state: bytes = b"") -> None:
        self.state = state
        self.told: list[str] = []
        self.skipped: list[tuple[Batch, bool]] = []

    def skip(self, batch: Batch, is_in_state: bool) -> None:
        self.skipped.append((batch, is_in_state))

    def show(self, event: Happening) -> None:
        if isinstance(event, Batch):
            self.state += b"".join(event.payloads or ())
            self.told.append(f"{event.origin}:{event.first}")
        elif isinstance(event, Entered):
            self.told.append(f"view {event.view.id.number}")
        else:
            self.told.append(type(event).__name__)

    def snapshot(self) -> bytes:
        return self.state

    def restore(self, state: bytes) -> None:
        self.told.append("restore")
        self.state = state

    def merge(self, parts: Sequence[bytes]) -> None:
        self.told.append("merge")
        self.state = b"|".join(parts)


def view_id(number: int, by: MemberId = A) -> ViewId:
    return ViewId(number, by)


def entered(number: int, members: Sequence[MemberId], *parts: tuple[int, Sequence[MemberId]]) -> Entered:
    view = View(view_id(number), tuple(members))
    made = tuple(Part(view_id(before), view_id(number), tuple(some)) for before, some in parts)
    charter = Charter(view.id, view.members, (), "fifo", made, False, ())
    return Entered(view, charter, None, (), {}, {}, is_primary=True)


def batch(origin: int, first: int, payload: bytes = b"x", to: tuple[int, ...] | None = None) -> Batch:
    return Batch(origin, first, [payload], Service.FIFO, to)


def aside(sender: MemberId, message: Message) -> Aside:
    return Aside(sender, TAG + CODEC.encode(message))


def make(
    me: MemberId, state: bytes = b"", initial: bool = False, settings: TransferSettings = SMALL
) -> tuple[Transfer, Port, Tape]:
    port, tape = Port(me), Tape(state)
    return Transfer(port, tape, settings, initial=initial), port, tape


def offer_for(ask: Ask, data: bytes, frontier: tuple[tuple[int, int, int, int], ...] = (), at: int = 1) -> Offer:
    return Offer(ask.view, ask.serial, 7, False, view_id(at), frontier, len(data), 4, digest_of_state(data))


def asked(port: Port) -> tuple[MemberId, Ask]:
    """The one question that was asked."""
    (one,) = [(to, message) for to, message in port.take() if isinstance(message, Ask)]
    return one


def give(transfer: Transfer, donor: MemberId, data: bytes, view: int = 1, start: int = 0) -> None:
    for at in range(start, len(data), 4):
        transfer.take([aside(donor, StateChunk(view_id(view), 7, at, data[at : at + 4]))], 0)


# Beginning.


def test_a_founder_alone_begins_with_its_own_state() -> None:
    transfer, port, tape = make(A, b"mine", initial=True)
    transfer.take([entered(1, [A]), batch(0, 0)], 0)
    assert transfer.is_live
    assert tape.told == ["view 1", "0:0"]
    assert tape.state == b"minex"
    assert port.out == []


def test_of_two_that_wait_the_lowest_that_may_begins() -> None:
    high, port, _ = make(B, initial=True)
    high.take([entered(1, [A, B])], 0)
    to, ask = asked(port)
    assert to == A
    high.take([aside(A, Decline(ask.view, ask.serial, Why.WAITING, True))], 0)
    assert not high.has_state, "a goes first"
    high.tick(20)
    _, ask = asked(port)
    high.take([aside(A, Decline(ask.view, ask.serial, Why.WAITING, False))], 20)
    assert high.is_live, "a may not"


def test_one_that_says_pending_has_a_state_so_nobody_begins() -> None:
    transfer, port, _ = make(A, initial=True)
    transfer.take([entered(1, [A, B])], 0)
    _, ask = asked(port)
    transfer.take([aside(B, Decline(ask.view, ask.serial, Why.PENDING, True))], 0)
    assert not transfer.has_state


# Joining.


def test_the_largest_part_is_asked_first_and_in_it_the_lowest() -> None:
    transfer, port, _ = make(MemberId("e"))
    transfer.take([entered(5, [A, B, C, D, MemberId("e")], (1, [A]), (2, [B, C, D]))], 0)
    order = []
    for _ in range(4):
        to, ask = asked(port)
        order.append(to)
        transfer.take([aside(to, Decline(ask.view, ask.serial, Why.PENDING, False))], 0)
    assert order == [B, C, D, A]


def test_a_joiner_restores_and_applies_only_what_lies_beyond_the_frontier() -> None:
    transfer, port, tape = make(B)
    transfer.take([entered(1, [A, B]), batch(0, 3), batch(0, 4), batch(1, 0)], 0)
    _, ask = asked(port)
    data = b"state of a"
    transfer.take([aside(A, offer_for(ask, data, ((0, 1, 4, 4),)))], 0)
    assert [message for _, message in port.take()] == [StatePull(ask.view, 7, 0), StatePull(ask.view, 7, 4)], (
        "chunks_ahead"
    )
    give(transfer, A, data)
    assert tape.told == ["restore", "view 1", "0:4", "1:0"]
    assert transfer.is_live
    assert port.take()[-1] == (A, Done(7))


def test_t5_a_state_waits_for_what_it_holds_and_is_dropped_if_that_never_comes() -> None:
    transfer, port, tape = make(C)
    transfer.take([entered(1, [A, B, C])], 0)
    _, ask = asked(port)
    transfer.take([aside(A, offer_for(ask, b"with", ((0, 1, 1, 1),)))], 0)
    give(transfer, A, b"with")
    assert not transfer.has_state, "the message that a has delivered is not here"
    transfer.take([entered(2, [B, C], (1, [B, C]))], 0)
    assert asked(port)[0] == B
    assert tape.told == []
    other, port, tape = make(C)
    other.take([entered(1, [A, B, C])], 0)
    _, ask = asked(port)
    other.take([aside(A, offer_for(ask, b"with", ((0, 1, 1, 1),)))], 0)
    give(other, A, b"with")
    other.take([batch(0, 0), entered(2, [B, C], (1, [B, C]))], 0)
    assert tape.told == ["restore", "view 1", "view 2"]


def test_a_message_that_was_not_for_the_joiner_does_not_hold_the_state_up() -> None:
    donor, port, _ = make(A, initial=True)
    donor.take([entered(1, [A])], 0)
    donor.take([entered(2, [A, B], (1, [A])), batch(0, 0), batch(0, 1, to=(0,))], 0)
    donor.take([aside(B, Ask(view_id(2), 1, None))], 0)
    (offer,) = [message for _, message in port.take() if isinstance(message, Offer)]
    assert offer.frontier == ((0, 1, 2, 1),)


def test_a_later_view_with_the_donor_goes_on_from_the_offset_reached() -> None:
    transfer, port, tape = make(C)
    transfer.take([entered(1, [A, B, C]), batch(1, 0)], 0)
    _, ask = asked(port)
    data = b"0123456789"
    transfer.take([aside(A, offer_for(ask, data))], 0)
    give(transfer, A, data[:4])
    port.take()
    transfer.take([entered(2, [A, C], (1, [A, C])), batch(0, 0)], 0)
    assert port.take()[0] == (A, StatePull(view_id(2), 7, 4))
    give(transfer, A, data, 2, 4)
    assert tape.told == ["restore", "view 1", "1:0", "view 2", "0:0"]


def test_a_second_donor_begins_anew_at_its_own_point() -> None:
    transfer, port, tape = make(C)
    transfer.take([entered(1, [A, B, C]), batch(1, 0)], 0)
    _, ask = asked(port)
    transfer.take([aside(A, offer_for(ask, b"0123456789"))], 0)
    give(transfer, A, b"0123")
    port.take()
    transfer.take([entered(2, [B, C], (1, [B, C])), batch(0, 1)], 0)
    _, ask = asked(port)
    transfer.take([aside(B, offer_for(ask, b"abcdefgh", ((0, 1, 2, 2),), at=2))], 0)
    assert port.take()[0] == (B, StatePull(view_id(2), 7, 0))
    give(transfer, B, b"abcdefgh", 2)
    assert tape.told == ["restore", "view 2"]
    assert tape.state == b"abcdefgh"


def test_a_silent_donor_is_given_up() -> None:
    transfer, port, _ = make(C)
    transfer.take([entered(1, [A, B, C])], 0)
    _, ask = asked(port)
    transfer.take([aside(A, offer_for(ask, b"01234567"))], 0)
    port.take()
    assert transfer.deadline == 100
    transfer.tick(100)
    assert port.take() == [(A, Done(7)), (B, Ask(view_id(1), ask.serial + 1, None))]


def test_a_state_that_is_too_large_or_damaged_is_not_taken() -> None:
    transfer, port, tape = make(C, settings=replace(SMALL, state_bytes_max=8))
    transfer.take([entered(1, [A, B, C])], 0)
    _, ask = asked(port)
    transfer.take([aside(A, offer_for(ask, b"123456789"))], 0)
    to, ask = asked(port)
    assert to == B
    transfer.take([aside(B, offer_for(ask, b"12345678"))], 0)
    give(transfer, B, b"1234567?")
    assert tape.told == []
    assert not transfer.has_state


# Giving.


def live_donor(state: bytes) -> tuple[Transfer, Port, Tape]:
    transfer, port, tape = make(A, state, initial=True)
    transfer.take([entered(1, [A])], 0)
    transfer.take([entered(2, [A, B, C, D], (1, [A]))], 0)
    return transfer, port, tape


def test_a_donor_offers_its_point_and_sends_each_chunk_once_a_view() -> None:
    donor, port, _ = live_donor(b"0123456789")
    donor.take([batch(1, 5), aside(B, Ask(view_id(2), 1, None))], 0)
    ((_, offer),) = port.take()
    assert isinstance(offer, Offer)
    assert (offer.at, offer.frontier, offer.total) == (view_id(2), ((1, 1, 6, 6),), 11)
    pull = StatePull(view_id(2), offer.number, 8)
    donor.take([aside(B, pull), aside(B, pull), aside(C, pull), aside(B, pull._replace(offset=99))], 0)
    assert port.take() == [
        (B, StateChunk(view_id(2), offer.number, 8, b"89x")),
        (C, Gone(view_id(2), offer.number)),
        (B, Gone(view_id(2), offer.number)),
    ]
    assert donor.bytes_held == 11
    donor.take([aside(B, Done(offer.number))], 0)
    assert donor.bytes_held == 0


def test_a_donor_limits_its_snapshots_and_lets_them_expire() -> None:
    donor = Donor(replace(SMALL, snapshots_max=1))
    number = donor.hold(B, b"1234", False, 0)
    assert not donor.is_full(B)
    assert donor.is_full(C)
    donor.pulled(B, StatePull(view_id(1), number, 0), 500)
    donor.expire(1_400)
    assert donor.bytes_held == 4
    donor.expire(1_500)
    assert donor.bytes_held == 0
    assert donor.deadline is None


# Merging.


def merging(state: bytes = b"mine") -> tuple[Transfer, Port, Tape]:
    transfer, port, tape = make(C, state, initial=True)
    transfer.take([entered(1, [C])], 0)
    transfer.take([entered(5, [A, B, C], (3, [A, B]), (1, [C])), batch(0, 0)], 0)
    return transfer, port, tape


def base(ask: Ask, data: bytes) -> Offer:
    return offer_for(ask, data, at=5)._replace(base=True)


def test_the_bases_are_merged_by_previous_view_and_then_the_view_follows() -> None:
    transfer, port, tape = merging()
    to, ask = asked(port)
    assert (to, ask.want) == (A, Want(view_id(5), PartKey(view_id(3), view_id(5))))
    assert tape.told == ["view 1"]
    transfer.take([aside(A, base(ask, b"theirs"))], 0)
    give(transfer, A, b"theirs", 5)
    assert tape.told == ["view 1", "merge", "view 5", "0:0"]
    assert tape.state == b"mine|theirsx"


def test_a_part_is_left_out_only_when_all_have_said_that_they_do_not_hold_it() -> None:
    transfer, port, tape = merging()
    for step, (expected, why) in enumerate(((A, Why.NONE), (B, Why.PENDING), (B, Why.NONE))):
        to, ask = asked(port)
        assert to == expected
        transfer.take([aside(to, Decline(ask.view, ask.serial, why, False))], 10 * step)
        assert tape.told[-1] != "view 5" or why is Why.NONE
        transfer.tick(10 * step + 10)
    assert tape.told == ["view 1", "view 5", "0:0"], "without a merge: there is nothing to merge with"


def test_t6_one_that_is_behind_in_a_merge_follows_a_joiner_that_has_the_merged_state() -> None:
    """Its companions have merged, given their state to a joiner, and crashed: what they merged is not left out here alone."""
    transfer, port, tape = merging()
    transfer.take([entered(6, [A, C, D], (5, [A, C])), entered(7, [C, D], (6, [C, D]))], 0)
    to, ask = next((to, one) for to, one in reversed(port.take()) if isinstance(one, Ask))
    assert (to, ask.want) == (D, None), "the companions are gone, so the joiner is asked, for its state"
    transfer.take([aside(D, offer_for(ask, b"mine|theirsx", at=7)._replace(view=view_id(7)))], 0)
    give(transfer, D, b"mine|theirsx", 7)
    assert tape.told == ["view 1", "Transition", "restore", "view 7"]
    assert tape.state == b"mine|theirsx"


def test_t6_a_part_is_left_out_if_those_that_came_later_wait_for_a_state_too() -> None:
    transfer, port, tape = merging()
    transfer.take([entered(6, [C, D], (5, [C]))], 0)
    to, ask = next((to, one) for to, one in reversed(port.take()) if isinstance(one, Ask))
    assert (to, ask.want) == (D, None)
    transfer.take([aside(D, Decline(ask.view, ask.serial, Why.WAITING, False))], 0)
    assert tape.told == ["view 1", "view 5", "0:0", "view 6"]


def test_t6_two_that_merge_do_not_wait_for_each_other() -> None:
    """Found by a swarm: one was behind and waited for the other's state, and that one for the base of the first one's part."""
    behind, port, tape = merging()
    behind.take([entered(6, [C, D], (5, [C]))], 0)
    to, ask = next((to, one) for to, one in reversed(port.take()) if isinstance(one, Ask))
    assert (to, ask.want, ask.is_behind) == (D, None, True)
    behind.take([aside(D, Decline(ask.view, ask.serial, Why.NONE, False))], 0)
    assert tape.told == ["view 1", "view 5", "0:0", "view 6"]
    ahead, port, _ = merging()  # it lacks the base of the part of A and B
    port.take()
    ahead.take([aside(A, Ask(view_id(5), n, None, is_behind)) for n, is_behind in enumerate((True, False))], 0)
    answers = [message.why for _, message in port.take() if isinstance(message, Decline)]
    assert answers == [Why.NONE, Why.PENDING], "a joiner may ask again: it gets the state when the merge is done"


def test_an_answer_of_an_earlier_view_does_not_count() -> None:
    transfer, port, tape = merging()
    to, ask = asked(port)
    transfer.take([aside(to, Decline(ask.view, ask.serial, Why.NONE, False))], 0)
    assert asked(port)[0] == B
    transfer.take([entered(6, [A, C], (5, [A, C]))], 0)
    assert asked(port)[0] == A
    assert transfer.status is Status.MERGING
    assert tape.told == ["view 1"]


def test_one_that_has_merged_is_followed_instead() -> None:
    transfer, port, tape = merging()
    _, ask = asked(port)
    transfer.take([aside(A, offer_for(ask, b"merged", ((0, 1, 1, 1),), at=5))], 0)
    give(transfer, A, b"merged", 5)
    assert tape.told == ["view 1", "Transition", "restore", "view 5"]
    assert transfer.is_live


def test_a_merging_member_gives_its_base_and_nothing_else() -> None:
    transfer, port, _ = merging()
    port.take()
    own = Want(view_id(5), PartKey(view_id(1), view_id(5)))
    other = Want(view_id(5), PartKey(view_id(3), view_id(5)))
    transfer.take([aside(A, Ask(view_id(5), n, want)) for n, want in enumerate((own, other, None))], 0)
    offer, none, pending = (message for _, message in port.take())
    assert isinstance(offer, Offer)
    assert (offer.base, offer.total) == (True, 4)
    assert isinstance(none, Decline)
    assert none.why == Why.NONE
    assert isinstance(pending, Decline)
    assert pending.why == Why.PENDING


def test_one_that_is_behind_says_pending_of_its_own_part_and_none_of_others() -> None:
    transfer, port, _ = merging()
    transfer.take([entered(9, [A, B, C, D], (5, [A, B, C]), (8, [D]))], 0)
    port.take()
    mine, theirs = (Want(view_id(9), PartKey(view_id(n), view_id(9))) for n in (5, 8))
    transfer.take([aside(D, Ask(view_id(9), 1, mine)), aside(D, Ask(view_id(9), 2, theirs))], 0)
    answers = [message.why for to, message in port.take() if isinstance(message, Decline) and to == D]
    assert answers == [Why.PENDING, Why.NONE]


def test_explain_says_what_is_missing_from_whom_and_since_when() -> None:
    transfer, _, _ = merging()
    transfer.tick(99)
    (sentence,) = transfer.explain()
    assert sentence == (
        "c lacks the state of the part that comes from view 3@a, to merge it in view 5@a, for 0 ms: "
        "a was asked and has not answered; 1 messages are held back meanwhile."
    )


# Limits and refusals.


def test_free_room_shrinks_while_messages_are_held_back() -> None:
    transfer, port, _ = make(B, settings=replace(SMALL, buffer_bytes_max=1_000))
    transfer.take([entered(1, [A, B])], 0)
    rooms = []
    for index in range(12):
        transfer.take([batch(0, index, b"x" * 36)], 0)
        rooms.append(port.room)
    assert rooms == [None] * 5 + [2, 1, 1, 0, 0, 0, 0]


def test_what_is_none_of_ours_is_shown_and_what_is_damaged_is_counted() -> None:
    transfer, _, tape = make(A, initial=True)
    transfer.take([entered(1, [A])], 0)
    sound = TAG + CODEC.encode(StatePull(view_id(1), 1, 0))
    transfer.take([Aside(B, b"other service"), *(Aside(B, sound[:end]) for end in range(1, len(sound)))], 0)
    transfer.take([Aside(B, sound + b"!"), aside(B, Ask(view_id(4), 1, None)), Left()], 0)
    assert tape.told == ["view 1", "Aside", "Left"]
    assert transfer.refused == len(sound) + 1


def test_answers_without_a_question_are_ignored() -> None:
    fetch = StateFetch(SMALL, None, 0, 0)
    fetch.enter(view_id(1), [A, B], False, 0)
    fetch.step(0)
    ask = fetch.out[-1][1]
    assert isinstance(ask, Ask)
    assert not fetch.take(B, offer_for(ask, b""), 0)
    assert fetch.out[-1] == (B, Done(7)), "so that b does not keep it"
    assert not fetch.take(A, StateChunk(view_id(1), 7, 0, b"data"), 0)
    assert not fetch.take(A, Gone(view_id(1), 7), 0)
    assert not fetch.take(A, Decline(view_id(1), ask.serial, 99, False), 0)
    assert fetch.refused == 1
    fetch.step(0)
    assert fetch.donor == B


def test_an_empty_state_is_a_state() -> None:
    transfer, port, tape = make(B)
    transfer.take([entered(1, [A, B])], 0)
    _, ask = asked(port)
    transfer.take([aside(A, offer_for(ask, b""))], 0)
    assert tape.told == ["restore", "view 1"]


def test_settings_out_of_range_are_refused() -> None:
    with pytest.raises(ConfigError, match="chunk_bytes"):
        TransferSettings(chunk_bytes=0)
    with pytest.raises(ConfigError, match=r"hold_ns = 0 is out of range: choose at least 1\.$"):
        TransferSettings(hold_ns=0)
    with pytest.raises(ConfigError, match="chunk_bytes"):
        TransferSettings(chunk_bytes=2**30)


# Primary policy.


def entered_primary(
    number: int, members: Sequence[MemberId], primary: bool, holders: Sequence[MemberId] = ()
) -> Entered:
    view = View(view_id(number), tuple(members))
    parts = tuple(Part(view_id(number - 1, one), view_id(number), (one,)) for one in members)
    charter = Charter(view.id, view.members, (), "fifo", parts, primary, (), has_state=True, holders=tuple(holders))
    return Entered(view, charter, None, (), {}, {}, is_primary=primary)


def alone_and_busy(me: MemberId) -> tuple[Transfer, Port, Tape]:
    """A member that goes on with its own state in a view that is not primary, and whose application reads nothing now."""
    transfer, port, tape = make(me, me.address.encode(), initial=True)
    transfer.take([entered_primary(1, (me,), primary=False)], 0)
    assert transfer.is_live
    assert port.holds is None, "a state of no primary"
    transfer.stop()
    return transfer, port, tape


def test_members_whose_applications_are_all_busy_when_the_first_primary_comes_begin_all_the_same() -> None:
    first = entered_primary(2, (A, B), primary=True)
    (a, to_b, tape), (b, to_a, _) = alone_and_busy(A), alone_and_busy(B)
    for transfer, port in ((a, to_b), (b, to_a)):
        transfer.take([first], 0)
        assert port.holds == HeldState(first.view.id), "all there is"
    a.go_on(1)
    _, ask = asked(to_b)
    b.take([aside(A, ask)], 1)
    ((_, answer),) = to_a.take()
    assert isinstance(answer, Decline)
    assert answer.why == Why.UNREAD
    a.take([aside(B, answer)], 2)
    assert not a.has_state, "b may have more"
    b.go_on(3)
    to_a.take()
    a.tick(100)
    _, ask = asked(to_b)
    b.take([aside(A, ask)], 100)
    ((_, answer),) = to_a.take()
    assert isinstance(answer, Decline)
    assert (answer.why, answer.initial) == (Why.WAITING, True)
    a.take([aside(B, answer)], 101)
    assert a.is_live
    assert tape.told[-1] == "view 2"
    assert to_b.holds == HeldState(first.view.id)


@pytest.mark.parametrize("is_along", [True, False])
def test_a_message_of_an_earlier_view_is_in_a_state_only_if_its_donor_came_along(is_along: bool) -> None:
    """B waits for the state of view 2 and is parted from A; what it delivered there is in the state of view 4 or is not."""
    transfer, port, tape = make(B)
    transfer.take([entered_primary(2, (A, B), primary=True, holders=(A,)), batch(1, 0, b"m")], 0)
    view = View(view_id(4), (A, B))
    parts: tuple[Part, ...] = (Part(view_id(2), view_id(4), (A, B)),)
    if not is_along:
        parts = (Part(view_id(2), view_id(4), (A,)), Part(view_id(2), view_id(3), (B,)))
    charter = Charter(view.id, view.members, (), "fifo", parts, True, (), has_state=True, holders=(A,))
    transfer.take([Entered(view, charter, None, (), {}, {}, is_primary=True)], 1)
    to, ask = [(to, message) for to, message in port.take() if isinstance(message, Ask)][-1]
    transfer.take([aside(to, offer_for(ask, b"s", at=4))], 2)
    give(transfer, to, b"s", view=4)
    assert tape.told[-2:] == ["restore", "view 4"]
    assert [is_in_state for _, is_in_state in tape.skipped] == [is_along]
