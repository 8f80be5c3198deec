"""What a driver may rely on when it keeps the effects of a turn."""

from __future__ import annotations

import pytest

from unisono.core.config import Config
from unisono.core.errors import Misuse
from unisono.core.options import CastOptions
from unisono.core.types import Batch, MemberId, Service, View, ViewId
from unisono.core.views.engine import ViewEngine
from unisono.orders import fifo
from unisono.orders.registry import ORDERS


def test_lists_of_one_turn_are_not_touched_by_the_next() -> None:
    """Empty lists used to be handed out and then filled in the next turn, under the hands of a driver that kept them."""
    view = View(ViewId(1, MemberId("a")), (MemberId("a"), MemberId("b")))
    member = ViewEngine(MemberId("a"), ORDERS, Config())
    member.install(view, order="fifo")
    member.drain(0)
    effects = member.drain(0)
    kept = (effects.casts, effects.sends, effects.events, effects.notes, effects.faults)
    member.cast(b"x")
    member.receive(1, fifo.Data(9, Batch(1, 0, [b"out of turn"], Service.FIFO)))
    assert member.drain(0).faults
    assert kept == ([], [], [], [], [])


def test_a_message_to_nobody_is_misuse() -> None:
    view = View(ViewId(1, MemberId("a")), (MemberId("a"), MemberId("b")))
    member = ViewEngine(MemberId("a"), ORDERS, Config())
    member.install(view, order="causal")
    with pytest.raises(Misuse, match="addressed to nobody"):
        member.cast(b"x", CastOptions(to=()))
