"""The facade without asyncio, on real sockets."""

from __future__ import annotations

import inspect
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

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


def test_a_joiner_waits_until_the_application_is_done_with_what_it_has_taken() -> None:
    """Found by reading: the facade asked for more at once, so a message that was taken and not yet applied was in no state and
    came to the joiner in no event either."""
    addresses = free_addresses(2)
    state = [b"nothing"]
    got: list[bytes] = []
    wishes: dict[str, Any] = {"peers": addresses, "pace": 0.3, "timeout": 20}

    def join_late() -> None:
        with unisono.sync.join(
            "sync", listen=addresses[1], min_members=2, snapshot=lambda: b"", restore=got.append, **wishes
        ):
            pass

    with unisono.sync.join(
        "sync", listen=addresses[0], snapshot=lambda: state[0], restore=lambda _: None, **wishes
    ) as first:
        assert isinstance(first.next(timeout=5), unisono.View)
        late = threading.Thread(target=join_late)
        late.start()
        while len(first.status()["members"]) < 2:
            late.join(0.01)
        first.cast(b"x").delivered(timeout=5)
        assert isinstance(first.next(timeout=5), unisono.Transition)
        assert isinstance(first.next(timeout=5), unisono.View)
        event = first.next(timeout=5)
        for _ in range(50):  # a joiner that need not wait has its state long before
            late.join(0.01)
        assert isinstance(event, unisono.Delivery)
        state[0] = event.payload
        while late.is_alive():
            with suppress(unisono.TimedOut):
                first.next(timeout=0.05)
    assert got == [b"x"]


def test_receipts_outlive_the_member() -> None:
    (address,) = free_addresses(1)
    with unisono.sync.join("sync", listen=address) as group:
        receipt = group.cast(b"x")
        receipt.stable(timeout=5)
        group.leave()
    receipt.stable(timeout=5)
    receipt.delivered(timeout=5)


def test_messages_that_are_made_slowly_do_not_hold_up_the_groups_thread() -> None:
    (address,) = free_addresses(1)
    with unisono.sync.join("sync", listen=address) as group:

        def made() -> Iterator[bytes]:
            for i in range(3):
                assert threading.current_thread() is threading.main_thread()
                yield str(group.status()["view"]).encode() + b"%d" % i  # which waits for the group

        receipt = group.cast_many(made())
        assert receipt is not None
        receipt.delivered(timeout=5)
        assert group.cast_many([]) is None
        assert group.cast_many(iter(())) is None


def test_a_hook_that_waits_for_the_group_is_told_so() -> None:
    (address,) = free_addresses(1)
    said: list[str] = []
    with unisono.sync.join("sync", listen=address) as group:

        def ask() -> None:
            try:
                group.status()
            except unisono.Misuse as error:
                said.append(str(error))

        group._session.thread._loop.call_soon_threadsafe(ask)
        group.status()
    assert said
    assert "cannot wait for the group" in said[0]


@pytest.mark.seconds
def test_options_are_those_of_the_other_interface_for_type_checkers_too(tmp_path: Path) -> None:
    """Found by trying: a wish that does not exist, or of another type, was nothing to a type checker."""
    ours, theirs = (inspect.signature(join).parameters for join in (unisono.sync.join, unisono.join))
    assert list(ours.values()) == list(theirs.values())
    program = tmp_path / "program.py"
    program.write_text(
        "import unisono.sync\n"
        "with unisono.sync.join('g', listen='127.0.0.1:1', min_members=2) as group:\n"
        "    group.cast(b'x').stable(timeout=2)\n"
        "unisono.sync.join('g', peerz=['a'])\n"
        "unisono.sync.join('g', min_members='two')\n"
    )
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), str(program)],
        capture_output=True, text=True, check=False, cwd=tmp_path,
    )  # fmt: skip
    wrong = [line.split(": ", 1)[0] for line in checked.stdout.splitlines() if ": error:" in line]
    assert wrong == [f"{program.name}:4", f"{program.name}:5"], checked.stdout
