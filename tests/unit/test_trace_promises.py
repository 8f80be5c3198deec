"""Which order owes what."""

from __future__ import annotations

import pytest

from unisono.trace.checks import CHECKERS
from unisono.trace.promises import ALWAYS, PROMISES, promises
from unisono.trace.schema import TraceError


def test_everything_promised_can_be_judged() -> None:
    for order in PROMISES:
        assert promises(order) <= CHECKERS.keys()
        assert promises(order) >= ALWAYS
        assert ("P10" in promises(order)) == (order == "rmp")


def test_what_sets_the_orders_apart() -> None:
    total = {"P9a", "P9b", "P9c"}
    assert promises("fifo") - ALWAYS == {"P6", "P7"}
    assert promises("causal") - ALWAYS == {"P6", "P7", "P8", "P8c"}
    assert promises("sequencer") - ALWAYS == total
    assert promises("fifo-total") - ALWAYS == {"P6", "P7", *total}
    assert promises("causal-total") - ALWAYS == {"P6", "P7", "P8", *total}
    assert promises("abcast") == promises("tomp") == promises("fifo-total")
    assert promises("toto") == promises("all-ack") == promises("causal-total")
    assert promises("rmp") == promises("fifo-total") | {"P10", "P18"}


def test_a_service_owes_its_own() -> None:
    assert promises("toto", "causal") == promises("causal") - {"P8c"}
    assert promises("toto", "total") == promises("toto")
    assert promises("rmp", "fifo") == promises("fifo")
    assert promises("rmp", "datagram") == ALWAYS - {"P5", "P14"}


def test_what_is_not_promised() -> None:
    with pytest.raises(TraceError, match=r"nothing is promised for the order 'raft': choose among abcast, all-ack"):
        promises("raft")
    with pytest.raises(TraceError, match=r"the order fifo carries no service 'total': choose fifo"):
        promises("fifo", "total")
