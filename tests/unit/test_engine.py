"""One engine by itself, and through view changes. Stories (`hand_*`) tell of batches, windows, misuse, timers and recipients."""

from __future__ import annotations

from typing import Any

import pytest

from tests.harness import A, B, C, make_view
from unisono.core.config import Config
from unisono.core.errors import ConfigError, Misuse
from unisono.core.options import CastOptions
from unisono.core.ordering import AnyOrdering
from unisono.core.outbox import EngineEffects, NoteKind
from unisono.core.transition import Transition
from unisono.core.types import Batch, Key, MemberId, Packet, Service, View, ViewId
from unisono.core.views import ViewEngine, packet_for
from unisono.orders import abcast, agreed, causal, fifo, sequencer
from unisono.orders.abcast import Abcast
from unisono.orders.all_ack import AllAck
from unisono.orders.causal import Causal
from unisono.orders.fifo import Fifo
from unisono.orders.sequencer import Sequencer
from unisono.orders.toto import Toto

ID_A, ID_B, ID_C = (MemberId(name) for name in "abc")
NOW = 1_000


def make_member(
    order: type[AnyOrdering] = Fifo, rank: int = A, size: int = 3, *, noting: bool = False, **settings: Any
) -> ViewEngine:
    """A member that has shown its first view already."""
    view = make_view(size)
    member = ViewEngine(view.members[rank], {"order": order}, Config(**settings), noting)
    member.install(view, order="order")
    assert member.drain(NOW).events == [view]
    return member


def batch(origin: int, first: int = 0, service: Service = Service.FIFO) -> Batch:
    return Batch(origin, first, [b"%d" % first], service)


def abcast_data(number: int) -> Packet:
    return abcast.Data(number, batch(B, number - 1, Service.TOTAL))


def shape(effects: EngineEffects) -> list[tuple[int, int]]:
    """The batches that leave: where each begins and how many messages it has."""
    batches = [getattr(packet, "batch", None) for packet in effects.casts]
    return [(b.first, b.count) for b in batches if b is not None]


def payloads(effects: EngineEffects) -> list[bytes]:
    """What the application is shown."""
    shown = [event for event in effects.events if isinstance(event, Batch)]
    return [payload for event in shown for payload in event.payloads or ()]


# Turns and batching.


def test_the_lists_of_a_turn_are_the_drivers_to_keep() -> None:
    member = make_member()
    member.cast(b"x")
    effects = member.drain(NOW)
    casts, events = effects.casts, effects.events
    member.cast(b"y")
    member.drain(NOW)
    assert len(casts) == len(events) == 1
    assert payloads(effects) == [b"y"]  # the object is used again, the lists are not


def test_only_partial_casts_are_marked_as_such() -> None:
    member = make_member()
    member.cast(b"x", CastOptions(to=(ID_A, ID_B)))
    assert member.drain(NOW).partial
    member.cast(b"y")
    assert not member.drain(NOW).partial


def test_one_answer_a_turn() -> None:
    member = make_member(Abcast)
    for number in (1, 2, 3):
        member.receive(B, abcast_data(number))
    assert [rank for rank, _ in member.drain(NOW).sends] == [B]


# The acknowledgement timer.

DELAY = 50


def agreed_data(sender: int, number: int = 1) -> agreed.Data:
    """A message that follows nothing but its sender's own."""
    acks = tuple(number - 1 if rank == sender else 0 for rank in range(3))
    return agreed.Data(number, acks, batch(sender, number - 1, Service.TOTAL))


def test_packets_of_the_turn_in_which_it_is_due_are_acknowledged_with_the_rest() -> None:
    member = make_member(AllAck, ack_delay_ns=DELAY)
    member.receive(B, agreed_data(B))
    member.drain(NOW)
    member.receive(C, agreed_data(C))
    effects = member.drain(NOW + DELAY)
    assert (effects.deadline, effects.casts) == (None, [agreed.Ack(1, (0, 1, 1))])


def test_when_nothing_is_owed_the_timer_passes_in_silence() -> None:
    member = make_member(AllAck, ack_delay_ns=DELAY)
    member.receive(B, agreed.Data(1, (0, 0, 0), batch(B, 0, Service.CAUSAL)))
    assert member.drain(NOW).deadline == NOW + DELAY
    effects = member.drain(NOW + DELAY)
    assert (effects.deadline, effects.casts) == (None, [])


def test_a_view_change_disarms_the_timer() -> None:
    member = make_member(AllAck, ack_delay_ns=DELAY)
    member.receive(B, agreed_data(B))
    member.drain(NOW)
    member.block()
    assert member.drain(NOW + DELAY).deadline is None
    member.install(make_view(3, 2))
    effects = member.drain(NOW + 2 * DELAY)
    assert (effects.deadline, effects.casts) == (None, [])


# Recipients.


def test_a_packet_for_everyone_is_shared() -> None:
    for packet in (fifo.Data(1, batch(A)), agreed.Ack(1, (0, 0))):
        assert packet_for(packet, B) is packet


# Notes.


def kinds(effects: EngineEffects) -> list[tuple[NoteKind, int | None]]:
    return [(note.kind, note.batch.origin if note.batch is not None else None) for note in effects.notes]


def test_nothing_is_noted_unless_someone_records() -> None:
    member = make_member(Causal)
    member.cast(b"x")
    member.receive(B, causal.Data(1, (0, 0, 0), batch(B, 0, Service.CAUSAL)))
    assert member.drain(NOW).notes == []
    member.block()
    member.install(make_view(3, 2))
    assert member.drain(NOW).notes == []


def test_the_notes_of_a_turn_are_in_the_order_in_which_things_happened() -> None:
    view = make_view(3)
    member = ViewEngine(ID_A, {"sequencer": Sequencer}, Config(), noting=True)
    member.install(view, order="sequencer")
    (first,) = member.drain(NOW).notes
    assert (first.kind, first.view) == (NoteKind.VIEW, view)
    member.cast(b"x")
    member.receive(B, sequencer.Data(1, 0, batch(B, 0, Service.TOTAL)))
    cast, ordered, deliver, receive = NoteKind.CAST, NoteKind.ORDERED, NoteKind.DELIVER, NoteKind.RECEIVE
    assert kinds(member.drain(NOW)) == [
        (cast, A),
        (ordered, A),
        (deliver, A),
        (receive, B),
        (ordered, B),
        (deliver, B),
    ]


def test_a_placeholders_turn_is_noted_without_its_payload() -> None:
    member = make_member(noting=True)
    member.cast(b"x", CastOptions(to=(ID_B,)))
    cast, deliver = member.drain(NOW).notes
    assert cast.batch is not None
    assert cast.batch.payloads == (b"x",)
    assert deliver.batch is not None
    assert deliver.kind is NoteKind.DELIVER
    assert deliver.batch.payloads is None
    assert deliver.batch.digest == cast.batch.digest


# View changes.


def test_blocked_a_member_takes_nothing_of_the_old_view() -> None:
    member = make_member()
    member.receive(B, fifo.Data(1, batch(B)))
    report = member.block()
    assert report.held == (0, 0, 0)  # the packet was not handed over, and is not claimed
    member.receive(B, fifo.Data(1, batch(B)))
    assert not member.has_input
    effects = member.drain(NOW)
    assert (effects.casts, effects.sends, effects.events) == ([], [], [])
    assert member.retained((B, 1)) is None


def test_casts_during_a_view_change_belong_to_the_next_view() -> None:
    member = make_member()
    member.cast(b"old")
    member.drain(NOW)
    member.cast(b"waits")  # accepted, and not submitted yet
    report = member.block()
    assert report.held == (1, 0, 0)
    assert member.cast(b"later") == Key(ID_A, 2)
    assert member.drain(NOW).casts == []
    member.close(fifo.FifoCut((1, 0, 0)), {})
    assert member.drain(NOW).casts == []
    view, old = make_view(2, 2), member.view
    member.install(view)
    effects = member.drain(NOW)
    assert shape(effects) == [(1, 2)]
    assert effects.casts[0][0] == 1  # slots begin anew with the view, indices run on
    assert effects.events[:2] == [Transition((ID_A,), True, old.id), view]
    assert payloads(effects) == [b"waits", b"later"]


def test_the_rest_of_a_view_is_shown_behind_a_transition_and_before_the_next_one() -> None:
    member = make_member()
    member.block()
    member.close(fifo.FifoCut((0, 2, 0)), {(B, 1): fifo.Data(1, batch(B)), (B, 2): fifo.Data(2, batch(B, 1))})
    assert member.drain(NOW).events == [], "it waits for the next view, which may be another one than planned"
    view, old = make_view(3, 2), member.view
    member.install(view, old, (ID_A, ID_B))
    transition = Transition((ID_A, ID_B), True, old.id)
    assert member.drain(NOW).events == [transition, batch(B), batch(B, 1), view]


def test_a_view_without_a_rest_ends_with_a_transition_too() -> None:
    member = make_member()
    member.block()
    member.close(fifo.FifoCut((0, 0, 0)), {})
    view, old = make_view(2, 2), member.view
    member.install(view, old, (ID_A,), attributes={"primary": False})
    assert member.drain(NOW).events == [Transition((ID_A,), False, old.id), view]


def test_the_rest_of_a_view_is_shown_to_a_member_that_leaves() -> None:
    member = make_member()
    member.block()
    member.close(fifo.FifoCut((0, 1, 0)), {(B, 1): fifo.Data(1, batch(B))})
    member.depart((ID_A, ID_B), True)
    assert member.drain(NOW).events == [Transition((ID_A, ID_B), True, member.view.id), batch(B)]


def test_the_rest_of_a_view_returns_the_window() -> None:
    member = make_member(Abcast, window_messages=1)
    member.cast(b"x")
    member.drain(NOW)
    assert member.cast(b"y") is None
    report: Any = member.block()
    member.close(Abcast.merge(member.view, member.config, {A: report}), {})
    member.install(make_view(2, 2))
    assert member.cast(b"y") == Key(ID_A, 1)
    assert payloads(member.drain(NOW)) == [b"x"]


def test_indices_run_on_across_views_and_ranks_change() -> None:
    member = make_member(rank=C)
    member.cast(b"x")
    member.drain(NOW)
    for number, expected in ((2, 1), (3, 2)):
        member.block()
        members = (ID_C, ID_A) if number == 2 else (ID_A, ID_C)
        member.install(View(ViewId(number, members[0]), members))
        assert member.rank == members.index(ID_C)
        assert member.cast(b"y") == Key(ID_C, expected)
        effects = member.drain(NOW)
        assert shape(effects) == [(expected, 1)]


def test_an_addressee_that_left_meanwhile_is_left_out() -> None:
    member = make_member()
    member.cast(b"x", CastOptions(to=(ID_A, ID_B, ID_C)))
    member.block()
    member.install(View(ViewId(2, ID_A), (ID_A, ID_C)))
    (packet,) = member.drain(NOW).casts
    assert isinstance(packet, fifo.Data)
    assert packet.batch.to == (0, 1)  # a and c by their new ranks


def test_a_member_retains_what_a_view_change_may_ask_for() -> None:
    member = make_member(AllAck, size=2)
    member.cast(b"own")
    (own,) = member.drain(NOW).casts
    other = agreed.Data(1, (0, 0), batch(B, 0, Service.TOTAL))
    ack = agreed.Ack(2, (1, 1))
    member.receive(B, other)
    member.receive(B, ack)
    member.drain(NOW)
    assert member.retained((A, 1)) == own
    assert [member.retained((B, number)) for number in (1, 2, 3)] == [other, ack, None]
    member.block()
    member.install(make_view(2, 2))
    assert member.retained((A, 1)) is None


def test_what_is_not_numbered_is_not_retained() -> None:
    member = make_member(Sequencer, B)
    member.receive(A, sequencer.Data(1, 0, batch(A, 0, Service.TOTAL)))
    member.receive(A, sequencer.Order(0, (A,)))
    assert payloads(member.drain(NOW)) == [b"0"]
    assert member.retained((A, 2)) is None


def test_a_threshold_gives_way_to_the_default_when_the_view_shrinks() -> None:
    member = make_member(Toto, size=3, phi=2.5)
    previous = member.view
    member.block()
    member.install(make_view(2, 2), previous)
    ordering: Any = member.ordering
    assert ordering._phi == 1
    assert member.config.phi == 2.5
    with pytest.raises(ConfigError, match="phi = 5 is out of range for 3 members"):
        make_member(Toto, size=3, phi=5)


def test_a_view_without_the_member_is_misuse() -> None:
    member = make_member()
    with pytest.raises(Misuse, match=r"^a cannot install view 2@b: it is not a member of it\.$"):
        member.install(View(ViewId(2, ID_B), (ID_B, ID_C)))


def test_a_view_over_the_limit_is_misuse() -> None:
    with pytest.raises(
        Misuse,
        match=r"^view 1@a has 3 members, over members_max = 2: raise it at every member\.$",
    ):
        make_member(members_max=2)


def test_a_view_change_is_noted() -> None:
    member = make_member(noting=True)
    previous = member.view
    member.block()
    member.close(fifo.FifoCut((0, 1, 0)), {(B, 1): fifo.Data(1, batch(B))})
    member.install(make_view(2, 2), previous, (ID_A, ID_B))
    effects = member.drain(NOW)
    assert kinds(effects) == [
        (NoteKind.BLOCK, None),
        (NoteKind.RECEIVE, B),
        (NoteKind.DELIVER, B),
        (NoteKind.VIEW, None),
    ]
    assert effects.notes[-1].attributes == {"previous_view": "1@a", "transitional": ["a", "b"]}
