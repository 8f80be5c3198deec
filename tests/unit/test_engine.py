"""One member: turns, batching, the window, misuse, the acknowledgement timer, and what is shown and noted."""

from __future__ import annotations

from typing import Any

import pytest

from tests.harness import A, B, C, make_view
from unisono.core.config import Config
from unisono.core.errors import Misuse
from unisono.core.options import CastOptions
from unisono.core.ordering import AnyOrdering
from unisono.core.outbox import EngineEffects, NoteKind
from unisono.core.types import Batch, Key, MemberId, Packet, Service
from unisono.core.views import ViewEngine, packet_for
from unisono.orders import abcast, agreed, causal, fifo, sequencer
from unisono.orders.abcast import Abcast
from unisono.orders.all_ack import AllAck
from unisono.orders.causal import Causal
from unisono.orders.fifo import Fifo
from unisono.orders.sequencer import Sequencer

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


def test_what_is_cast_leaves_with_the_turn() -> None:
    member = make_member()
    assert not member.has_input
    assert member.cast(b"x") == Key(ID_A, 0)
    assert member.has_input
    effects = member.drain(NOW)
    assert effects.casts == [fifo.Data(1, Batch(A, 0, [b"x"], Service.FIFO))]
    assert payloads(effects) == [b"x"]
    assert not member.has_input
    effects = member.drain(NOW)
    assert (effects.casts, effects.sends, effects.events, effects.notes) == ([], [], [], [])


def test_everything_cast_in_one_turn_is_one_batch() -> None:
    member = make_member()
    assert [member.cast(b"%d" % i) for i in range(4)] == [Key(ID_A, i) for i in range(4)]
    assert shape(member.drain(NOW)) == [(0, 4)]
    member.cast(b"4")
    assert shape(member.drain(NOW)) == [(4, 1)]


def test_the_lists_of_a_turn_are_the_drivers_to_keep() -> None:
    member = make_member()
    member.cast(b"x")
    effects = member.drain(NOW)
    casts, events = effects.casts, effects.events
    member.cast(b"y")
    member.drain(NOW)
    assert len(casts) == len(events) == 1
    assert payloads(effects) == [b"y"]  # the object is used again, the lists are not


def test_a_batch_closes_where_options_change() -> None:
    member = make_member(AllAck)
    causal_option = CastOptions(service=Service.CAUSAL)
    for options in (CastOptions(), CastOptions(), causal_option, causal_option, CastOptions()):
        member.cast(b"x", options)
    effects = member.drain(NOW)
    assert shape(effects) == [(0, 2), (2, 2), (4, 1)]
    services = [packet.batch.service for packet in effects.casts if isinstance(packet, agreed.Data)]
    assert services == [Service.TOTAL, Service.CAUSAL, Service.TOTAL]


def test_a_batch_closes_where_the_addressees_change() -> None:
    member = make_member()
    for to in ((ID_A, ID_B), (ID_A, ID_C), (ID_A, ID_C), None):
        member.cast(b"x", CastOptions(to=to))
    effects = member.drain(NOW)
    assert shape(effects) == [(0, 1), (1, 2), (3, 1)]
    assert [packet.batch.to for packet in effects.casts if isinstance(packet, fifo.Data)] == [(A, B), (A, C), None]
    assert effects.partial


def test_only_partial_casts_are_marked_as_such() -> None:
    member = make_member()
    member.cast(b"x", CastOptions(to=(ID_A, ID_B)))
    assert member.drain(NOW).partial
    member.cast(b"y")
    assert not member.drain(NOW).partial


def test_a_batch_closes_at_the_limit_of_messages() -> None:
    member = make_member(batch_messages_max=2)
    for _ in range(5):
        member.cast(b"x")
    assert shape(member.drain(NOW)) == [(0, 2), (2, 2), (4, 1)]


def test_a_batch_closes_before_it_would_exceed_the_limit_of_bytes() -> None:
    member = make_member(batch_bytes_max=10)
    for size in (4, 6, 1, 10, 1):
        member.cast(bytes(size))
    assert shape(member.drain(NOW)) == [(0, 2), (2, 1), (3, 1), (4, 1)]


def test_a_message_larger_than_a_batch_travels_alone() -> None:
    member = make_member(batch_bytes_max=10)
    for size in (1, 25, 1):
        member.cast(bytes(size))
    assert shape(member.drain(NOW)) == [(0, 1), (1, 1), (2, 1)]


def test_casts_are_submitted_before_packets_are_handed_over() -> None:
    """So a batch's vector does not include what the same turn delivers."""
    member = make_member(Causal)
    member.receive(B, causal.Data(1, (0, 0, 0), batch(B, 0, Service.CAUSAL)))
    member.cast(b"x")
    effects = member.drain(NOW)
    (packet,) = effects.casts
    assert isinstance(packet, causal.Data)
    assert packet.vector == (0, 0, 0)
    assert payloads(effects) == [b"x", b"0"]
    member.cast(b"y")
    (packet,) = member.drain(NOW).casts
    assert isinstance(packet, causal.Data)
    assert packet.vector == (1, 1, 0)


def test_one_answer_a_turn() -> None:
    member = make_member(Abcast)
    for number in (1, 2, 3):
        member.receive(B, abcast_data(number))
    assert [rank for rank, _ in member.drain(NOW).sends] == [B]


# The window and misuse.


def test_beyond_the_window_a_cast_is_refused_until_something_is_delivered() -> None:
    first, other = (make_member(Sequencer, rank, 2, window_messages=2) for rank in (A, B))
    assert other.cast(b"x") is not None
    assert other.cast(b"y") is not None
    assert other.cast(b"z") is None
    assert other.casting.unfinished == 2
    data = other.drain(NOW).casts
    assert other.cast(b"z") is None  # submitted is not delivered
    for packet in data:
        first.receive(B, packet)
    for packet in first.drain(NOW).casts:
        other.receive(A, packet)
    assert payloads(other.drain(NOW)) == [b"x", b"y"]
    assert other.casting.unfinished == 0
    assert other.cast(b"z") == Key(ID_B, 2)  # a refused cast took no index


def test_what_is_delivered_at_cast_returns_its_window_with_the_turn() -> None:
    member = make_member(window_messages=1)
    assert member.cast(b"x") is not None
    assert member.cast(b"y") is None
    member.drain(NOW)
    assert member.cast(b"y") is not None


def test_messages_to_others_alone_return_their_window_too() -> None:
    member = make_member(window_messages=1)
    assert member.cast(b"x", CastOptions(to=(ID_B,))) is not None
    assert payloads(member.drain(NOW)) == []
    assert member.casting.unfinished == 0


def test_a_payload_over_the_limit_is_misuse() -> None:
    member = make_member(payload_bytes_max=4)
    assert member.cast(b"1234") is not None
    with pytest.raises(Misuse) as refused:
        member.cast(b"12345")
    assert str(refused.value) == "a payload of 5 bytes is over the limit of 4: cut it, or raise payload_bytes_max."
    assert member.cast(b"x") == Key(ID_A, 1)  # and took no index


def test_an_addressee_outside_the_view_is_misuse() -> None:
    member = make_member()
    with pytest.raises(Misuse) as refused:
        member.cast(b"x", CastOptions(to=(ID_B, MemberId("z", 2))))
    assert str(refused.value) == "z#2 is not a member of view 1@a: name members of it, or leave `to` out for all."
    assert member.casting.unfinished == 0


def test_a_service_that_the_order_does_not_carry_is_misuse() -> None:
    with pytest.raises(Misuse) as refused:
        make_member(Fifo).cast(b"x", CastOptions(service=Service.TOTAL))
    assert str(refused.value) == "this order does not carry total messages: choose fifo."
    with pytest.raises(Misuse) as refused:
        make_member(AllAck).cast(b"x", CastOptions(service=Service.FIFO))
    assert str(refused.value) == "this order does not carry fifo messages: choose causal, total."


# The acknowledgement timer.

DELAY = 50


def agreed_data(sender: int, number: int = 1) -> agreed.Data:
    """A message that follows nothing but its sender's own."""
    acks = tuple(number - 1 if rank == sender else 0 for rank in range(3))
    return agreed.Data(number, acks, batch(sender, number - 1, Service.TOTAL))


def test_a_received_packet_arms_the_timer_and_when_it_is_due_the_member_acknowledges() -> None:
    member = make_member(AllAck, ack_delay_ns=DELAY)
    assert member.drain(NOW).deadline is None
    member.receive(B, agreed_data(B))
    effects = member.drain(NOW)
    assert (effects.deadline, effects.casts) == (NOW + DELAY, [])
    effects = member.drain(NOW + DELAY - 1)
    assert (effects.deadline, effects.casts) == (NOW + DELAY, [])
    effects = member.drain(NOW + DELAY)
    assert (effects.deadline, effects.casts) == (None, [agreed.Ack(1, (0, 1, 0))])


def test_a_second_packet_does_not_put_the_timer_off() -> None:
    member = make_member(AllAck, ack_delay_ns=DELAY)
    member.receive(B, agreed_data(B))
    member.drain(NOW)
    member.receive(C, agreed_data(C))
    assert member.drain(NOW + 10).deadline == NOW + DELAY
    assert member.drain(NOW + DELAY).casts == [agreed.Ack(1, (0, 1, 1))]


def test_packets_of_the_turn_in_which_it_is_due_are_acknowledged_with_the_rest() -> None:
    member = make_member(AllAck, ack_delay_ns=DELAY)
    member.receive(B, agreed_data(B))
    member.drain(NOW)
    member.receive(C, agreed_data(C))
    effects = member.drain(NOW + DELAY)
    assert (effects.deadline, effects.casts) == (None, [agreed.Ack(1, (0, 1, 1))])


def test_an_own_cast_disarms_the_timer() -> None:
    member = make_member(AllAck, ack_delay_ns=DELAY)
    member.receive(B, agreed_data(B))
    member.drain(NOW)
    member.cast(b"x")
    effects = member.drain(NOW + 1)
    assert effects.deadline is None
    assert [type(packet) for packet in effects.casts] == [agreed.Data]
    assert member.drain(NOW + DELAY).casts == []


def test_an_own_cast_of_the_same_turn_does_not_disarm_it() -> None:
    """It is submitted before the packet is handed over, and does not acknowledge it."""
    member = make_member(AllAck, ack_delay_ns=DELAY)
    member.receive(B, agreed_data(B))
    member.cast(b"x")
    effects = member.drain(NOW)
    assert effects.deadline == NOW + DELAY
    (packet,) = effects.casts
    assert isinstance(packet, agreed.Data)
    assert packet.acks == (0, 0, 0)
    assert member.drain(NOW + DELAY).casts == [agreed.Ack(2, (1, 1, 0))]


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


@pytest.mark.parametrize(("order", "delay"), [(AllAck, None), (Fifo, DELAY), (Abcast, DELAY)])
def test_without_a_delay_or_without_acknowledgements_there_is_no_timer(
    order: type[AnyOrdering], delay: int | None
) -> None:
    member = make_member(order, ack_delay_ns=delay)
    data: dict[type[AnyOrdering], Packet] = {
        AllAck: agreed_data(B),
        Fifo: fifo.Data(1, batch(B)),
        Abcast: abcast_data(1),
    }
    member.receive(B, data[order])
    assert member.drain(NOW).deadline is None


# Recipients.


def test_placeholders_are_not_shown() -> None:
    member = make_member(rank=C)
    partial = Batch(B, 0, [b"secret"], Service.FIFO, (A, B))
    member.receive(B, packet_for(fifo.Data(1, partial), C))
    member.receive(B, fifo.Data(2, batch(B, 1)))
    assert payloads(member.drain(NOW)) == [b"1"]


def test_a_caster_that_is_not_addressed_is_not_shown_its_message() -> None:
    member = make_member()
    member.cast(b"x", CastOptions(to=(ID_B,)))
    effects = member.drain(NOW)
    assert payloads(effects) == []
    (packet,) = effects.casts
    assert packet_for(packet, B) is packet
    assert packet_for(packet, C) == fifo.Data(1, Batch(A, 0, None, Service.FIFO, (B,), 1))


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


def test_the_vector_of_a_cast_is_noted() -> None:
    member = make_member(Causal, noting=True)
    member.receive(B, causal.Data(1, (0, 0, 0), batch(B, 0, Service.CAUSAL)))
    member.drain(NOW)
    member.cast(b"x")
    note = member.drain(NOW).notes[0]
    assert (note.kind, note.attributes) == (NoteKind.CAST, {"vector": [0, 1, 0]})


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


def test_the_member_says_what_waits() -> None:
    member = make_member(Abcast)
    member.cast(b"x")
    member.drain(NOW)
    (wait,) = member.waits()
    assert wait.reason == "its final stamp is not known here"
