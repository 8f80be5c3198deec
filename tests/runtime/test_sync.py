"""The facade without asyncio, on real sockets."""

from __future__ import annotations

import threading

import pytest

import unisono
import unisono.sync
from tests.runtime.ports import free_addresses


def test_two_threads_agree() -> None:
    addresses = free_addresses(2)
    seen: dict[str, list[bytes]] = {}

    def talk(address: str) -> None:
        with unisono.sync.join("sync", listen=address, peers=addresses, min_members=2, timeout=20, pace=0.5) as group:
            for i in range(50):
                receipt = group.cast(f"{address} {i}".encode())
            receipt.stable(timeout=20)
            payloads: list[bytes] = []
            while len(payloads) < 100:
                event = group.next(timeout=20)
                if isinstance(event, unisono.Delivery):
                    payloads.append(event.payload)
            seen[address] = payloads

    threads = [threading.Thread(target=talk, args=(address,)) for address in addresses]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    first, second = (seen[address] for address in addresses)
    assert first == second
    assert len(first) == 100


def test_nothing_in_time_and_nothing_any_more() -> None:
    (address,) = free_addresses(1)
    group = unisono.sync.join("sync", listen=address)
    assert isinstance(group.next(timeout=5), unisono.View)
    with pytest.raises(unisono.TimedOut, match="nothing happened"):
        group.next(timeout=0.01)
    assert group.status()["members"] == [str(group.id)]
    assert group.explain() == []
    group.leave()
    with pytest.raises(unisono.Closed, match="join again"):
        group.cast(b"late")


def test_a_join_that_fails_leaves_no_thread() -> None:
    before = threading.active_count()
    with pytest.raises(unisono.Misuse, match="does not belong to this machine"):
        unisono.sync.join("sync", listen="192.0.2.1:7400", insecure=True)
    assert threading.active_count() == before
