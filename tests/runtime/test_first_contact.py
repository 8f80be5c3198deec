"""First contact on real sockets: what keeps named peers apart is said by the log, `explain`, `status` and a metric."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

import unisono
from tests.runtime.ports import free_addresses
from tests.runtime.test_group import real
from unisono.cli.status import _lines
from unisono.runtime import logs
from unisono.runtime.control_socket import answer
from unisono.runtime.group_hint import HINT
from unisono.runtime.metrics import Metrics
from unisono.runtime.running import RunningMember
from unisono.runtime.seal import make_key
from unisono.runtime.udp import UdpSocket

KEY, OTHER_KEY = make_key(), make_key()
PACE = 0.3


@pytest.fixture
def log() -> Iterator[Callable[[], list[dict[str, Any]]]]:
    text, level = io.StringIO(), logs.LOGGER.level
    handler = logs.configure(logging.INFO, as_json=True, stream=text)
    yield lambda: [json.loads(line) for line in text.getvalue().splitlines()]
    logs.LOGGER.removeHandler(handler)
    logs.LOGGER.setLevel(level)


@asynccontextmanager
async def two(
    first: dict[str, Any], second: dict[str, Any], **both: Any
) -> AsyncIterator[tuple[unisono.Group, unisono.Group]]:
    """Two members that name each other, each with wishes of its own."""
    addresses = free_addresses(2)
    async with AsyncExitStack() as stack:
        groups = []
        for address, wishes in zip(addresses, (first, second), strict=True):
            options: dict[str, Any] = {"listen": address, "peers": addresses, "pace": PACE} | both | wishes
            groups.append(unisono.join(options.pop("group", "chat"), **options))
        entered = await asyncio.gather(*(stack.enter_async_context(group) for group in groups))
        yield entered[0], entered[1]


async def until(condition: Callable[[], object], what: str) -> None:
    try:
        async with asyncio.timeout(20):
            while not condition():
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(what) from None


async def until_said(group: unisono.Group, pattern: str) -> str:
    """Wait until `explain` has such a sentence."""
    found: list[str] = []

    def look() -> bool:
        found[:] = [one for one in group.explain() if re.fullmatch(pattern, one)]
        return bool(found)

    try:
        await until(look, "")
    except AssertionError:
        raise AssertionError(f"{pattern!r} is not in {group.explain()}") from None
    return found[0]


@real
async def test_a_wrong_key_is_said_by_explain_status_and_a_metric() -> None:
    """Found by trying: `join` succeeded alone after a second, and explain was empty."""
    async with two({"key": KEY}, {"key": OTHER_KEY}) as (a, b):
        for here, there in ((a, b), (b, a)):
            name = re.escape(there.id.address)
            sentence = await until_said(
                here,
                rf"\d+ datagrams? that claims? to be from {name} failed authentication; does it use a different key\?",
            )
            status = answer(here.running, {"ask": "status"})
            assert re.sub(r"\d+ datagrams?", "", sentence).split("that")[1] in str(status["peers"])
            assert ("peers", status["peers"][0]) in _lines(status)
            assert status["waits"] == []
            page = Metrics(here.running).page().decode()
            assert re.search(rf'unisono_peer_silent_seconds{{.*peer="{name}",reason="other key"}} \d', page), page


@pytest.mark.parametrize("key", [None, KEY], ids=["no key", "with a key"])
def test_a_misspelt_group_is_named_to_both(key: str | None) -> None:
    """Found by trying: two members with two spellings each had a group of its own, and neither was told."""

    @real
    async def story() -> None:
        async with two({"group": "chat"}, {"group": "chta"}, key=key) as (a, b):
            await until_said(
                a, rf"{b.id.address} is in group 'chta', this member in 'chat': is one of the names misspelt\?"
            )
            await until_said(
                b, rf"{a.id.address} is in group 'chat', this member in 'chta': is one of the names misspelt\?"
            )

    story()


@real
async def test_a_process_with_several_groups_on_one_socket_is_told_of_a_misspelt_one_too() -> None:
    addresses = free_addresses(2)
    options: dict[str, Any] = {"peers": addresses, "pace": PACE}
    async with (
        unisono.join("chat", listen=addresses[0], **options) as a,
        unisono.join("news", listen=addresses[0], **options),
        unisono.join("chta", listen=addresses[1], **options) as b,
    ):
        await until_said(a, rf"{addresses[1]} is in group 'chta', this member in 'chat': .*")
        await until_said(b, rf"{addresses[0]} is in group '(chat|news)', this member in 'chta': .*")


@real
async def test_with_another_key_the_other_group_has_no_name() -> None:
    async with two({"group": "chat", "key": KEY}, {"group": "chta", "key": OTHER_KEY}) as (a, b):
        await until_said(
            a, rf"{b.id.address} is in another group, this member in 'chat': is one of the names misspelt\?"
        )
        await until(lambda: a.running.driver.seal.refused["group"] >= 3, "more datagrams of the other group")
        assert "chta" not in str(a.explain())


@real
async def test_a_key_at_one_of_two_is_said_at_both() -> None:
    async with two({"key": KEY}, {}) as (a, b):
        await until_said(a, rf"{b.id.address} uses no key, and this member does: give it the group's key\.")
        await until_said(
            b, rf"{a.id.address} sends sealed datagrams, and this member has no key: give it the group's key\."
        )


@real
async def test_hints_go_to_named_peers_only_are_rare_and_never_larger_than_what_they_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent: list[tuple[str, int]] = []
    largest: dict[str, int] = {}
    transmit = UdpSocket.send

    def send(self: UdpSocket, datagrams: Any) -> None:
        for to, datagram in datagrams:
            data = datagram if isinstance(datagram, bytes) else b"".join(datagram)
            if data[0] == HINT:
                sent.extend((one, len(data)) for one in to)
            else:
                largest.update((one, max(len(data), largest.get(one, 0))) for one in to)
        transmit(self, datagrams)

    monkeypatch.setattr(UdpSocket, "send", send)
    addresses = free_addresses(3)
    options: dict[str, Any] = {"key": KEY, "pace": PACE}
    async with (
        unisono.join("chat", listen=addresses[0], peers=addresses[:2], **options) as a,
        unisono.join("chta", listen=addresses[1], peers=addresses[:2], **options) as b,
        unisono.join("chto", listen=addresses[2], peers=addresses[:1], **options) as c,
    ):
        await until_said(a, r".* is in group 'chta', .*")
        await until_said(b, r".* is in group 'chat', .*")
        await until(lambda: a.running.driver.seal.refused["group"] >= 10, "many datagrams of other groups")
        assert "chto" not in str(a.explain())
        assert "another group" not in str(c.explain())
    assert sorted(to for to, _ in sent) == sorted(addresses[:2])
    assert all(size <= largest[to] for to, size in sent), (sent, largest)


@real
async def test_the_log_warns_at_once_and_then_rarely_and_says_when_the_peer_answers(
    log: Callable[[], list[dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "DROPS_EVERY_S", 0.3)
    a_at, b_at = free_addresses(2)
    async with unisono.join("chat", listen=a_at, peers=[a_at, b_at]) as a:
        await until(lambda: [row for row in log() if "missing" in row], "a warning")
        rows = log()
        view = next(number for number, row in enumerate(rows) if "view" in row)
        warning = next(number for number, row in enumerate(rows) if "missing" in row)
        assert warning - view <= 1, "with the first view"
        assert rows[warning]["level"] == "warning"
        assert rows[warning]["missing"] == {b_at: "silent"}
        assert re.search(rf"no answer from {b_at} for \d\.\d s\.", rows[warning]["message"])
        await until(
            lambda: a.running.driver.peers is not None and a.running.driver.peers.missed()[0].silent_ns > 2e9,
            "three looks",
        )
        assert len([row for row in log() if "missing" in row]) == 1, "not with every look"
        assert re.search(rf"no answer from {b_at} for", " ".join(a.explain()))
        async with unisono.join("chat", listen=b_at, peers=[a_at]):
            await until(lambda: len(a.status()["members"]) == 2, "two members")
            assert a.explain() == []
            await until(lambda: f"{b_at} has answered" in str(log()), "the log says that the peer answered")
        (row,) = (row for row in log() if "has answered" in row["message"])
        assert row["level"] == "info"


@real
async def test_a_peer_that_was_a_member_and_left_is_no_warning(log: Callable[[], list[dict[str, Any]]]) -> None:
    async with two({}, {}, min_members=2) as (a, b):
        await b.leave()
        await until(lambda: len(a.status()["members"]) == 1, "one member")
        peers = a.running.driver.peers
        assert peers is not None
        before = peers._clock
        peers._clock = lambda: before() + 20_000_000_000
        assert [report.trouble.value for report in peers.missed()] == ["silent"]
        assert re.search(
            rf"no answer from {b.id.address} for \d+ s; it was in the group before \(left\)", a.explain()[0]
        )
        looks = a.running.driver.turns
        await until(lambda: a.running.driver.turns > looks + 4, "it greets on")
    assert not [row for row in log() if "missing" in row and row["member"] == str(a.id)]


@real
async def test_a_join_that_times_out_says_what_keeps_its_peers_away() -> None:
    async with two({"key": KEY}, {"key": KEY}, min_members=2) as (a, b):
        own = free_addresses(1)[0]
        with pytest.raises(unisono.TimedOut, match=rf"no answer from {a.id.address} for .* same key"):
            await unisono.join(
                "chat", listen=own, peers=[a.id.address, b.id.address], key=OTHER_KEY, min_members=2, timeout=1.5
            )


@real
async def test_drops_of_a_stranger_are_told_with_its_name_and_the_cure(log: Callable[[], list[dict[str, Any]]]) -> None:
    own, stranger = free_addresses(2)
    async with (
        unisono.join("chat", listen=own, key=KEY),
        unisono.join("chat", listen=stranger, peers=[own], key=OTHER_KEY, pace=PACE),
    ):
        await until(lambda: "datagrams that claim to be from" in str(log()), "a line about it")
    (row, *_) = (row for row in log() if row["message"].partition(": ")[2].startswith("dropped"))
    assert re.search(
        rf"dropped \d+ datagrams that claim to be from {stranger}: authentication failed; does it use a different key\?",
        row["message"],
    )
    assert not any("seal: seal" in row.get("drops", {}) for row in log()), "once is enough"


@real
async def test_a_row_of_addresses_on_one_machine_is_not_missed(log: Callable[[], list[dict[str, Any]]]) -> None:
    """Members that share a list and take the first free address of it leave the others free."""
    addresses = free_addresses(3)
    async with (
        unisono.join("chat", peers=addresses, pace=PACE) as a,
        unisono.join("chat", peers=addresses, pace=PACE) as b,
    ):
        await until(lambda: len(a.status()["members"]) == 2, "two members")
        await until(lambda: a.running.driver.turns > 20, "time passes")
        assert a.explain() == b.explain() == []
    assert not [row for row in log() if "missing" in row]


@real
async def test_refused_is_shown_once_and_only_at_the_member_that_is_not_taken(
    log: Callable[[], list[dict[str, Any]]],
) -> None:
    """Found by trying: the members of the group saw it too, and the log told of it again and again."""
    addresses = free_addresses(3)
    options: dict[str, Any] = {"peers": addresses, "pace": 0.1}
    async with AsyncExitStack() as stack:
        joining = [unisono.join("chat", listen=one, min_members=2, **options) for one in addresses[:2]]
        a, b = await asyncio.gather(*(stack.enter_async_context(one) for one in joining))
        wish = unisono.join("chat", listen=addresses[2], safe=True, **options)
        joined = asyncio.create_task(wish.enter())

        def seen(running: RunningMember) -> int:
            return running.member.counters.dropped.get("membership: settings", 0)

        def greetings() -> int:
            return 0 if wish.running is None else sum(map(seen, (a.running, b.running, wish.running)))

        await until(lambda: greetings() >= 12, "many greetings")
        assert wish.running is not None
        refused = [event for event in wish.running.inbox.ready(1_024) if isinstance(event, unisono.Refused)]
        joined.cancel()
        await asyncio.gather(joined, return_exceptions=True)
        assert 1 <= len(refused) <= 2
        assert len({(event.by.address, event.reason) for event in refused}) == len(refused)
        for group in (a, b):
            assert not [event for event in group.ready() if isinstance(event, unisono.Refused)]
    told = [row for row in log() if "is not taken in" in row["message"]]
    assert told, "the members say whom they do not take, and why"
    assert all(addresses[2] in row["message"] and "safe=" in row["message"] for row in told)
    assert len(told) == len({row["member"] for row in told}), "once each"
    assert not any("membership: settings" in row.get("drops", {}) for row in log())


PROGRAM = """
import asyncio, sys, unisono

async def main() -> None:
    async with unisono.join(sys.argv[1], listen=sys.argv[2], peers=sys.argv[2:]) as group:
        print(len(group.members), flush=True)
        await asyncio.to_thread(sys.stdin.read)

asyncio.run(main())
"""


def test_a_program_that_sets_up_no_logging_is_told_on_standard_error() -> None:
    """Found by trying: the warnings went to a handler that does nothing."""
    first, second = free_addresses(2)
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "chat", first, second], stdin=pipe, stdout=pipe, stderr=pipe, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "1\n"
        _, told = process.communicate()
    assert f"no answer from {second}" in told
    assert "Traceback" not in told
