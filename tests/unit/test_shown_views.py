"""Views and transitions as people and programs see them: lines, JSON rows, the chat, the log."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from unisono.cli.chat import Conversation, write
from unisono.cli.session import line_of, row_of
from unisono.core.events import Entered
from unisono.core.transition import Transition
from unisono.core.types import MemberId, View, ViewId
from unisono.core.wire.control import Charter, Part
from unisono.runtime.events import Delivery, view_of
from unisono.runtime.logs import LOGGER, Reporter

A, B, C, D = (MemberId(name) for name in "abcd")
FIRST = View(ViewId(1, A), (A, B, C))
LATER = View(ViewId(3, A), (A, B, D))


def entered() -> Entered:
    """a, b and c were together; b diverged, c is gone and d is new."""
    parts = (Part(FIRST.id, ViewId(2, A), (A,)), Part(FIRST.id, ViewId(2, B), (B,)))
    charter = Charter(LATER.id, LATER.members, (), "fifo", parts, True, ())
    return Entered.of(LATER, charter, FIRST, (A,), True)


def test_a_line_tells_who_diverged_once() -> None:
    line = line_of(view_of(entered()))
    assert line == ("view 3@a of 3: a, b, d; joined: b (delivered other messages in view 1), d (new); gone: c (lost)")
    assert line_of(Transition((A, B), True, FIRST.id)) == "view 1@a ends; together: a, b"
    assert line_of(Transition((A,), False, FIRST.id)).endswith("; the next view is not primary")


def test_a_row_has_every_reason() -> None:
    row = row_of(view_of(entered()))
    assert row["joined"] == {"b": "delivered other messages in view 1", "d": "new"}
    assert row["left"] == {"b": "delivered other messages in view 1", "c": "lost"}
    assert row["together"] == ["a"]
    assert row_of(Transition((A,), False, FIRST.id)) == {
        "event": "transition",
        "view": "1@a",
        "together": ["a"],
        "primary": False,
    }


def test_who_chats_hears_of_those_that_read_other_lines() -> None:
    said: list[str] = []
    cast: list[bytes] = []
    keyboard: Any = SimpleNamespace(say=said.append)
    group: Any = SimpleNamespace(id=A, name="lounge", try_cast=cast.append)

    async def main() -> None:
        talk = Conversation(keyboard, "ann")
        talk.begin(group)
        said.clear()
        talk.show(Transition((A,), True, FIRST.id))
        assert not said
        talk.show(view_of(entered()))
        assert said == [
            "* c is gone: lost",
            "* b delivered other messages in view 1: you may not have read the same lines",
        ]
        assert cast == [write("ann", "")]
        talk.show(Delivery(D, write("dora", ""), 0))
        talk.show(Delivery(D, write("dora", "hello"), 1))
        talk.show(Delivery(A, write("ann", "mine"), 0))
        assert said[2:] == ["* dora is here", "dora: hello", "ann: mine"]

    asyncio.run(main())


def test_the_log_warns_of_those_that_delivered_other_messages(caplog: pytest.LogCaptureFixture) -> None:
    peers = SimpleNamespace(reports=list, remarks=list)
    member: Any = SimpleNamespace(name="g", id=A, now=0, peers=peers, count_drops=dict)
    with caplog.at_level(logging.INFO, LOGGER.name):
        Reporter(member).tell([Transition((A,), True, FIRST.id), entered()], 0)
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("INFO", "a of g: view 3@a with 3 members, joined: d, gone: c (lost)"),
        ("WARNING", "a of g: b delivered other messages in view 1"),
    ]
