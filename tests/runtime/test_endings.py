"""How a member's trace ends: with LEAVE only where it has left."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import unisono
from tests.runtime.groups import A, B, join_all
from unisono.runtime.join import ALONE
from unisono.sim import Network, in_virtual_time
from unisono.trace.checks import Result, judge
from unisono.trace.promises import promises
from unisono.trace.reader import read


def ending_of(folder: Path, address: str) -> tuple[str, str | None]:
    (last,) = [rows[-1] for life, rows in read(folder).lives.items() if life.member == address]
    return last.kind, last.reason


def assert_nobody_is_accused(folder: Path, order: str = "sequencer") -> None:
    verdict = judge(read(folder).events(), promises(order))
    assert verdict.result is Result.PASS, str(verdict)


@pytest.mark.parametrize("order", ["sequencer", "causal-total"])
def test_who_left_without_the_others_has_not_left(tmp_path: Path, order: str) -> None:
    """Found by reading: it ended with LEAVE, and validity asked why it had never delivered what it cast behind the partition."""

    async def main(network: Network) -> None:
        a, b = await join_all(2, order=order, trace=tmp_path)
        network.partition([[A], [B]])
        await b.cast(b"under way")
        await asyncio.sleep(0.01)
        with pytest.raises(unisono.NotFlushed):
            await b.leave(timeout=0.3)
        await asyncio.sleep(5)
        await a.leave()

    in_virtual_time(main)
    assert ending_of(tmp_path, B) == ("CRASH", ALONE)
    assert ending_of(tmp_path, A) == ("LEAVE", None)
    assert_nobody_is_accused(tmp_path, order)


def test_a_leave_that_was_cancelled_is_none(tmp_path: Path) -> None:
    async def main(network: Network) -> None:
        a, b = await join_all(2, order="sequencer", trace=tmp_path)
        network.partition([[A], [B]])
        await b.cast(b"under way")
        leaving = asyncio.create_task(b.leave())
        await asyncio.sleep(0.01)
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        await asyncio.sleep(5)
        await a.leave()

    in_virtual_time(main)
    assert ending_of(tmp_path, B) == ("CRASH", ALONE)
    assert_nobody_is_accused(tmp_path)


def test_who_leaves_in_an_orderly_way_has_left_though_it_is_the_last(tmp_path: Path) -> None:
    async def main(network: Network) -> None:
        a, b = await join_all(2, order="sequencer", trace=tmp_path)
        await b.cast(b"x")
        await b.leave()
        await a.leave()

    in_virtual_time(main)
    assert {ending_of(tmp_path, one) for one in (A, B)} == {("LEAVE", None)}
    assert_nobody_is_accused(tmp_path)
