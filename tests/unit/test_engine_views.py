"""One member through view changes: block, close, install, and what is cast, shown, retained and noted meanwhile."""

from __future__ import annotations

from typing import Any

import pytest

from tests.harness import A, B, C, make_view
from tests.unit.test_engine import ID_A, ID_B, ID_C, NOW, batch, kinds, make_member, payloads, shape
from unisono.core.errors import ConfigError, Misuse
from unisono.core.options import CastOptions
from unisono.core.outbox import NoteKind
from unisono.core.transition import Transition
from unisono.core.types import Key, Service, View, ViewId
from unisono.orders import agreed, fifo, sequencer
from unisono.orders.abcast import Abcast
from unisono.orders.all_ack import AllAck
from unisono.orders.sequencer import Sequencer
from unisono.orders.toto import Toto


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
