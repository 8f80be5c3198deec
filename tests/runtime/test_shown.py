"""What an application is shown and told, as the recorder gets it and the judge sees it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import unisono
from tests.runtime.groups import A, B, C, join_all, leave_all
from tests.runtime.test_stages import read_events
from unisono.sim import Network, in_virtual_time
from unisono.trace.checks import Result, judge
from unisono.trace.promises import promises
from unisono.trace.reader import read
from unisono.trace.recorder import Recorder


class Noting(Recorder):
    """Notes what the application was shown, and told by receipts."""

    def show_batch(self, *told: Any, **more: Any) -> None:
        self.note("batch", told[0].count)

    def show_transition(self, *told: Any, **more: Any) -> None:
        self.note("transition", len(told[1]))

    def show_view(self, *told: Any, **more: Any) -> None:
        self.note("view", len(told[2]))

    def show_receipt(self, *told: Any, **more: Any) -> None:
        _, stage, first, count, outcome, known = told
        self.note("receipt", stage, first, count, outcome, len(known))

    def note(self, *words: object) -> None:
        _said.append((self.member.address, *words))


_said: list[tuple[object, ...]] = []


@pytest.mark.parametrize("has_state", [False, True])
def test_what_is_shown_is_recorded_as_it_is_put_into_the_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_state: bool
) -> None:
    monkeypatch.setattr("unisono.runtime.join.Recorder", Noting)
    _said.clear()
    hooks: dict[str, Any] = {"snapshot": lambda: b"", "restore": lambda _: None} if has_state else {}

    async def main(network: Network) -> None:
        a, b = await join_all(2, order="fifo", trace=tmp_path, **hooks)
        reading = [asyncio.ensure_future(read_events(group, [])) for group in (a, b)]
        receipt = await a.cast(b"x")
        for _ in range(2):
            await receipt.delivered()
            await receipt.applied()
            await receipt.stable()
        network.partition([[A], [B]])
        lonely = await a.cast(b"y")
        for _ in range(2):
            with pytest.raises(unisono.Uncertain):
                await lonely.stable()
        for group in (a, b):
            with suppress(unisono.UnisonoError):
                await group.leave(timeout=1)
        await asyncio.gather(*reading)

    in_virtual_time(main)
    said = [row[1:] for row in _said if row[0] == A]
    rows = [row for row in said if row[0] == "receipt"]
    assert rows == [
        ("receipt", "delivered", 0, 1, "ok", 0),
        ("receipt", "applied", 0, 1, "ok", 0),
        ("receipt", "stable", 0, 1, "ok", 0),
        ("receipt", "stable", 1, 1, "uncertain", 1),
    ]
    events = [row for row in said if row[0] != "receipt"]
    assert events[-5:] in (
        [("batch", 1), ("batch", 1), ("transition", 1), ("view", 1), ("transition", 1)],
        [("view", 2), ("batch", 1), ("batch", 1), ("transition", 1), ("view", 1)],
    )


SECONDS = ("fifo", "causal", "abcast", "toto")


@pytest.mark.parametrize("policy", [pytest.param("partitionable", marks=pytest.mark.seconds), "primary"])
@pytest.mark.parametrize("order", ["sequencer", *(pytest.param(one, marks=pytest.mark.seconds) for one in SECONDS)])
def test_what_applications_were_shown_and_told_passes_the_judge(tmp_path: Path, order: str, policy: str) -> None:
    outcomes: set[str] = set()

    async def use(group: unisono.Group, number: int) -> None:
        with suppress(unisono.Closed):
            while True:
                await asyncio.sleep(0.02)
                with suppress(unisono.NotPrimary):
                    receipt = await group.cast(b"%d" % number)
                    for wait in (receipt.delivered, receipt.applied, receipt.stable):
                        try:
                            await wait()
                            outcomes.add(f"{wait.__name__} ok")
                        except unisono.Uncertain:
                            outcomes.add(f"{wait.__name__} uncertain")

    async def main(network: Network) -> None:
        groups = await join_all(primary_in=tmp_path if policy == "primary" else None, order=order, trace=tmp_path / "t")
        reading = [asyncio.ensure_future(read_events(group, [])) for group in groups]
        using = [asyncio.ensure_future(use(group, number)) for number, group in enumerate(groups)]
        for seconds in (0.9, 1.4, 4.0):
            await asyncio.sleep(1)
            network.partition([[A], [B, C]])
            await asyncio.sleep(seconds)
            network.heal()
            await asyncio.sleep(5)
        for task in using:
            task.cancel()
        for group in groups:
            with suppress(unisono.NotFlushed):
                await group.leave(timeout=10)
        await asyncio.gather(*using, return_exceptions=True)
        await asyncio.gather(*reading)

    in_virtual_time(main)
    verdict = judge(read(tmp_path / "t").events(), promises(order))
    assert verdict.result is Result.PASS, str(verdict)
    assert {"delivered ok", "applied ok", "stable ok", "stable uncertain"} <= outcomes


def test_what_counts_as_delivered_at_once_is_not_recorded(tmp_path: Path) -> None:
    """A message for others has not even left when `delivered` is answered: to the judge the answer would come too early."""

    async def main(network: Network) -> None:
        a, b = await join_all(2, trace=tmp_path)
        reading = [asyncio.ensure_future(read_events(group, [])) for group in (a, b)]
        receipt = a.try_cast(b"x", to=[b.id])
        assert receipt is not None
        await receipt.delivered()
        await receipt.applied()
        await receipt.stable()
        await leave_all((a, b))
        await asyncio.gather(*reading)

    in_virtual_time(main)
    events = list(read(tmp_path).events())
    told = [(event.attributes or {})["stage"] for event in events if event.kind == "RECEIPT"]
    assert told == ["stable"]
    verdict = judge(events, promises("causal-total"))
    assert verdict.result is Result.PASS, str(verdict)
