"""Which order owes what."""

from __future__ import annotations

import pytest

from unisono.trace.checks import CHECKERS
from unisono.trace.promises import ALWAYS, PROMISES, PROPERTIES, is_known, order_that_owes, owed_by, promises
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


def test_a_list_owes_what_it_names_if_there_is_such_a_thing() -> None:
    assert owed_by(order_that_owes(["P9a", "P1"])) == {"P0", "P1", "P9a"}
    assert all(is_known(order_that_owes([one])) for one in CHECKERS)
    assert CHECKERS.keys() == PROPERTIES
    for order in ("owes P1,P99", "owes P1,", "owes P1,P24", "owes P1, P6", "owes P1,P6\n"):
        assert not is_known(order)
        assert owed_by(order) == {"P0", "P1"}
    assert owed_by("owes P99") == {"P0"}
    assert not is_known("owes ")
    assert owed_by("owes ") == ALWAYS


def test_what_is_not_promised() -> None:
    with pytest.raises(TraceError, match=r"nothing is promised for the order 'raft': choose among abcast, all-ack"):
        promises("raft")
    with pytest.raises(TraceError, match=r"the order fifo carries no service 'total': choose fifo"):
        promises("fifo", "total")
