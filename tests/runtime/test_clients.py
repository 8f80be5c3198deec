"""Clients outside of a group, through the public interface: in virtual time with faults, and on real sockets with a key."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import unisono
from tests.runtime.groups import ADDRESSES
from tests.runtime.ports import free_addresses
from tests.runtime.test_group import real
from unisono.core.types import Batch
from unisono.runtime.addresses import split
from unisono.runtime.clients import Desk
from unisono.runtime.seal import Seal, make_key
from unisono.services.client_messages import TAG
from unisono.sim import Network, in_virtual_time, test


class Till:
    """A replicated counter: each request adds to it, and is told the sum."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.sums: list[int] = []
        self.seen: list[bytes] = []

    def answer(self, client: unisono.MemberId, payload: bytes) -> bytes | None:
        if payload == b"who?":
            return self.name.encode()
        if payload == b"c alone":
            return b"here" if self.name == ADDRESSES[2] else None
        self.sums.append((self.sums[-1] if self.sums else 0) + int(payload))
        return str(self.sums[-1]).encode()

    async def follow(self, group: unisono.Group) -> None:
        if self.name == ADDRESSES[1]:
            await group.each(lambda sender, payload: self.seen.append(payload))
            return
        async for event in group:
            if isinstance(event, unisono.Delivery):
                self.seen.append(event.payload)


async def shop(addresses: list[str], **wishes: Any) -> tuple[list[Till], list[unisono.Group], list[asyncio.Task[None]]]:
    tills = [Till(address) for address in addresses]
    groups = await asyncio.gather(
        *(
            unisono.join(
                "shop", listen=till.name, peers=addresses, min_members=len(addresses), answer=till.answer, **wishes
            )
            for till in tills
        )
    )
    return tills, list(groups), [asyncio.create_task(t.follow(g)) for t, g in zip(tills, groups, strict=True)]


@test(seeds=10, loss=0.2)
async def test_each_request_has_one_effect_whatever_is_lost() -> None:
    tills, groups, tasks = await shop(ADDRESSES)
    async with unisono.client("shop", contacts=ADDRESSES, listen="10.0.0.9:1", timeout=60) as client:
        answers = [await client.request(b"1") for _ in range(10)]
    assert answers == [b"%d" % i for i in range(1, 11)]
    await groups[0].cast(b"beside")
    for group in groups:
        await group.leave()
    await asyncio.gather(*tasks)
    assert all(till.sums == list(range(1, 11)) for till in tills)
    assert all(till.seen == [b"beside"] for till in tills), "requests are no events of the application"


@test(seeds=10)
async def test_a_contact_that_crashes_is_passed_over_and_the_effect_happens_once(network: Network) -> None:
    tills, groups, tasks = await shop(ADDRESSES)
    async with unisono.client("shop", contacts=ADDRESSES, listen="10.0.0.9:1", timeout=60) as client:
        assert await client.request(b"5") == b"5"
        asking = asyncio.create_task(client.request(b"7"))
        await asyncio.sleep(0.003)
        network.crash(groups[0])
        assert await asking == b"12"
    for group in groups[1:]:
        await group.leave()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert [till.sums for till in tills[1:]] == [[5, 12], [5, 12]]


@test()
async def test_all_answer_or_only_who_has_something_to_say() -> None:
    _, groups, tasks = await shop(ADDRESSES)
    async with unisono.client("shop", contacts=ADDRESSES[:1], listen="10.0.0.9:1") as client:
        answers = await client.request_all(b"who?")
        assert {member.address: said for member, said in answers.items()} == {a: a.encode() for a in ADDRESSES}
        assert await client.request(b"c alone", wanted="any") == b"here"
        with pytest.raises(unisono.Misuse, match="choose contact or any"):
            await client.request(b"1", wanted="all")
    with pytest.raises(unisono.Misuse, match="closed"):
        await client.request(b"1")
    for group in groups:
        await group.leave()
    await asyncio.gather(*tasks)


@test()
async def test_no_answer_is_a_named_failure(network: Network) -> None:
    async with unisono.client("shop", contacts=["10.0.0.1:7400"], listen="10.0.0.9:1", timeout=2) as client:
        with pytest.raises(unisono.Unanswered, match=r"within 2 s: no contact answered"):
            await client.request(b"1")


@real
async def test_real_sockets_with_a_key() -> None:
    key = make_key()
    addresses = free_addresses(2)
    tills, groups, tasks = await shop(addresses, key=key, pace=0.5)
    async with unisono.client("shop", contacts=addresses, key=key) as client:
        assert await asyncio.gather(*(client.request(b"1") for _ in range(40)))
    async with unisono.client("shop", contacts=addresses, timeout=0.5) as stranger:
        with pytest.raises(unisono.Unanswered):
            await stranger.request(b"1")
    for group in groups:
        await group.leave()
    await asyncio.gather(*tasks)
    assert tills[0].sums == tills[1].sums == list(range(1, 41))


@test()
async def test_a_client_takes_a_new_salt_after_a_pause_and_is_served_under_each() -> None:
    """While it stood still its process may have been copied, and two copies must not seal under one key and counter."""
    key = make_key()
    tills, groups, tasks = await shop(ADDRESSES[:2], key=key)
    async with unisono.client("shop", contacts=ADDRESSES[:2], listen="10.0.0.9:1", key=key) as client:
        for salts in range(1, 8):
            assert await client.request(b"1") == str(salts).encode()
            assert isinstance(client._seal, Seal)
            assert client._seal.salts == salts
            await asyncio.sleep(5)
    for group in groups:
        await group.leave()
    await asyncio.gather(*tasks)
    assert tills[0].sums == tills[1].sums == list(range(1, 8))


@test()
async def test_a_message_that_only_begins_like_a_request_is_delivered() -> None:
    """Found by trying: it vanished at members with `answer`, though it was no request."""
    tills, groups, tasks = await shop(ADDRESSES[:2])
    said = [TAG, TAG + b"mine", b"plain"]
    receipts = [await groups[0].cast(payload) for payload in said]
    await receipts[-1].stable(10)
    for group in groups:
        await group.leave()
    await asyncio.gather(*tasks)
    assert [till.seen for till in tills] == [said, said]


def test_bad_wishes() -> None:
    with pytest.raises(unisono.Misuse, match="needs contacts"):
        unisono.client("shop", contacts=[])
    with pytest.raises(unisono.Misuse, match="needs contacts"):
        unisono.client("shop", contacts="127.0.0.1:1")
    with pytest.raises(unisono.Misuse, match="write host:port"):
        unisono.client("shop", contacts=["nowhere"])


@test(seeds=3)
async def test_a_request_at_a_full_window_that_sheds_finds_the_contact_busy_and_harms_nobody(network: Network) -> None:
    """Found by reading: the `Shed` of the errand's cast stopped the member."""
    groups = await asyncio.gather(
        *(
            unisono.join("s", listen=one, peers=ADDRESSES[:2], min_members=2, slow="shed", answer=lambda *_: b"yes")
            for one in ADDRESSES[:2]
        )
    )

    async def fill() -> None:  # nobody reads
        while True:
            await groups[0].cast(bytes(60_000))

    with pytest.raises(unisono.Shed):
        await fill()
    async with unisono.client("s", contacts=ADDRESSES[:1], listen="10.0.0.9:1", timeout=1) as client:
        with pytest.raises(unisono.Unanswered, match="busy"):
            await client.request(b"?")
    assert groups[0].running.inbox.failure is None
    for group in groups:
        network.crash(group)


@pytest.mark.parametrize(
    ("answer", "error"),
    [(bytes(5_000), unisono.Misuse), ("text", unisono.Misuse), (ZeroDivisionError(), ZeroDivisionError)],
)
def test_an_answer_that_cannot_be_given_is_told_at_both_ends_and_loses_no_message(
    answer: Any, error: type[Exception]
) -> None:
    """Found by reading: whatever shared a batch with such a request was gone, and its client waited in vain."""

    def hook(client: unisono.MemberId, payload: bytes) -> Any:
        if payload == b"fine?":
            return b"fine"
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def main(network: Network) -> None:
        group = await unisono.join("s", listen=ADDRESSES[0], answer=hook)
        assert isinstance(await group.next(), unisono.View)
        seen: list[bytes] = []
        errors = 0

        async def read() -> None:
            nonlocal errors
            while len(seen) < 2:
                try:
                    async for event in group:
                        if isinstance(event, unisono.Delivery):
                            seen.append(event.payload)
                            if len(seen) == 2:
                                break
                except error:
                    errors += 1

        async with unisono.client("s", contacts=ADDRESSES[:1], listen="10.0.0.9:1", timeout=5) as client:
            asking = asyncio.create_task(client.request(b"?"))
            while not group.status()["queued_batches"]:
                await asyncio.sleep(0.0001)
            await group.cast(b"before")
            await group.cast(b"behind")
            reading = asyncio.create_task(read())
            with pytest.raises(unisono.Unanswered, match="failed to answer"):
                await asking
            await reading
            fine = asyncio.create_task(client.request(b"fine?"))
            following = asyncio.create_task(group.next())
            assert await fine == b"fine"
            following.cancel()
        assert seen == [b"before", b"behind"]
        assert errors == 1
        await group.leave()

    in_virtual_time(main, 1)


@test(seeds=3)
async def test_who_asks_for_any_answer_hears_of_a_failure_unless_another_member_answers() -> None:
    """Found by trying: with `wanted="any"` nobody told the client, who read that no contact had answered."""
    silent = False

    def broken(client: unisono.MemberId, payload: bytes) -> Any:
        return "text"

    def sound(client: unisono.MemberId, payload: bytes) -> bytes | None:
        return None if silent else b"here"

    async def follow(group: unisono.Group) -> None:
        while True:
            with contextlib.suppress(unisono.Misuse):
                async for _ in group:
                    pass
                return

    groups = await asyncio.gather(
        *(
            unisono.join("s", listen=address, peers=ADDRESSES[:2], min_members=2, answer=hook)
            for address, hook in zip(ADDRESSES, (broken, sound), strict=False)
        )
    )
    tasks = [asyncio.create_task(follow(group)) for group in groups]
    async with unisono.client("s", contacts=ADDRESSES[:1], listen="10.0.0.9:1", timeout=5) as client:
        assert await client.request(b"?", wanted="any") == b"here"
        silent = True
        with pytest.raises(unisono.Unanswered, match="failed to answer"):
            await client.request(b"?", wanted="any")
    for group in groups:
        await group.leave()
    await asyncio.gather(*tasks)


def test_what_lies_behind_a_request_in_its_batch_is_shown_after_its_hook_has_failed() -> None:
    desk = Desk.__new__(Desk)
    calls: Iterator[bool | Exception] = iter([True, ZeroDivisionError(), True])

    def judge(delivery: unisono.Delivery) -> bool:
        found = next(calls)
        if isinstance(found, Exception):
            raise found
        return found

    desk._is_for_application = judge  # type: ignore[method-assign]
    member = unisono.MemberId("a", 1)
    rest = desk.deliveries(Batch(0, 0, (b"0", b"1", b"2"), unisono.Service.TOTAL), (member,))
    assert next(rest).payload == b"0"
    with pytest.raises(ZeroDivisionError):
        next(rest)
    assert next(rest).payload == b"2"


@test()
async def test_a_client_with_too_many_requests_hears_that_it_is_closed() -> None:
    client = await unisono.client("s", contacts=ADDRESSES[:1], listen="10.0.0.9:1")
    asking = [asyncio.create_task(client.request(b"?")) for _ in range(20)]
    await asyncio.sleep(0.1)
    client.close()
    outcomes = await asyncio.wait_for(asyncio.gather(*asking, return_exceptions=True), 1)
    assert {type(one) for one in outcomes} == {unisono.Unanswered, unisono.Misuse}


@test()
async def test_a_request_that_is_no_bytes_is_refused_and_spoils_no_other() -> None:
    _, groups, tasks = await shop(ADDRESSES)
    async with unisono.client("shop", contacts=ADDRESSES, listen="10.0.0.9:1") as client:
        with pytest.raises(unisono.Misuse, match="a request is bytes, not str"):
            await client.request("5")  # type: ignore[arg-type]
        assert await client.request(b"5") == b"5"
    for group in groups:
        await group.leave()
    await asyncio.gather(*tasks)


@real
async def test_a_capture_of_a_sealed_request_has_no_effect_after_a_restart_of_all() -> None:
    """Found by reading: a stranger without the key could have a request served again, by sending its bytes again."""
    addresses, key, captured = free_addresses(2), make_key(), list[bytes]()
    for life in range(2):
        tills, groups, tasks = await shop(addresses, key=key)
        if life:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
                for address in addresses:
                    for datagram in captured:
                        stranger.sendto(datagram, split(address, "the contact"))
        async with unisono.client("shop", contacts=addresses, key=key) as client:
            close = client._seal.close

            def note(frame: bytes, close: Callable[[bytes], bytes] = close) -> bytes:
                captured.append(close(frame))
                return captured[-1]

            client._seal.close = note  # type: ignore[method-assign]
            assert await client.request(b"5") == b"5", "what came before it has had no effect"
        for group in groups:
            await group.leave()
        await asyncio.gather(*tasks)
        assert [till.sums for till in tills] == [[5], [5]]


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), float("inf"), "soon"])
def test_a_clients_timeout_must_be_a_time(timeout: Any) -> None:
    with pytest.raises(unisono.Misuse, match=r"timeout = .* is impossible: choose"):
        unisono.client("s", contacts=ADDRESSES, timeout=timeout)
