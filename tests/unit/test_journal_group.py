"""A member with a journal: what it confirmed and what it delivered outlive it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import unisono
from tests.journal_tools import FullDisk, QuickDisk
from tests.runtime.ports import free_addresses
from unisono.runtime.journal import read
from unisono.runtime.journal.format import Delivered, Viewed


async def live_once(path: Path, listen: str, bootstrap: bool, payloads: list[bytes]) -> unisono.View:
    """One life of a member that is alone. What was delivered is not synced, to save time; records are as they always are."""
    journal = unisono.Journal(path, deliveries=True, disk=QuickDisk())
    joining = unisono.join(
        "chat", listen=listen, policy="primary", bootstrap=bootstrap, journal=journal, pace=0.1, timeout=30
    )
    async with joining as group:
        for payload in payloads:
            receipt = await group.cast(payload)
            await receipt.delivered(30)
        return group.view


def test_a_primary_is_one_again_after_a_restart_with_its_journal(tmp_path: Path) -> None:
    """Only the first start needs `bootstrap`."""
    (listen,) = free_addresses(1)
    first = asyncio.run(live_once(tmp_path / "j", listen, True, [b"one"]))
    again = asyncio.run(live_once(tmp_path / "j", listen, False, [b"two"]))
    assert first.is_primary
    assert again.is_primary
    without = asyncio.run(live_once(tmp_path / "lost", listen, False, []))
    assert not without.is_primary, "nothing but the journal makes it one"


def test_deliveries_and_views_of_all_lives_are_in_the_journal(tmp_path: Path) -> None:
    (listen,) = free_addresses(1)
    for payloads in ([b"one", b"two"], [b"three"]):
        asyncio.run(live_once(tmp_path, listen, True, payloads))
    rows = list(read(tmp_path, gaps="show"))
    assert [row.payload for row in rows if isinstance(row, Delivered)] == [b"one", b"two", b"three"]
    lives = [row.incarnation for row in rows if isinstance(row, Viewed)]
    assert lives == sorted(lives)
    assert len(set(lives)) == 2
    assert all(row.sender.incarnation in lives for row in rows if isinstance(row, Delivered))


def test_a_group_whose_records_cannot_be_written_fails_with_that_sentence(tmp_path: Path) -> None:
    disk = FullDisk(100_000)
    journal = unisono.Journal(tmp_path, disk=disk)

    async def join() -> None:
        disk.room = 120  # enough for the life, not for the first primary
        async with unisono.join(
            "chat", listen="127.0.0.1:0", policy="primary", bootstrap=True, journal=journal, pace=0.1, timeout=30
        ):
            raise AssertionError("it went on without its record")

    with pytest.raises(unisono.JournalError, match="must not go on without it: make room"):
        asyncio.run(join())


def test_a_path_is_enough_for_a_journal(tmp_path: Path) -> None:
    async def join() -> int:
        async with unisono.join("chat", listen="127.0.0.1:0", journal=tmp_path / "j", pace=0.1, timeout=30) as group:
            return group.id.incarnation

    first, second = asyncio.run(join()), asyncio.run(join())
    assert first < second
    with pytest.raises(unisono.JournalError, match="there are no deliveries in"):
        list(read(tmp_path / "j"))
