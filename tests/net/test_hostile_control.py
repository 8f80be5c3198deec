"""Forged acknowledgements, floods of requests, and rogue control messages against live members (F9, F10, F12, F15, F16)."""

from __future__ import annotations

import ast
import asyncio
import gc
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

import unisono
from tests.net.hostile import Besieged, besieged, is_stream, live
from tests.net.stage import VIEWS
from tests.runtime.ports import free_addresses
from unisono.core.departure import Cause, Departure
from unisono.core.membership.tickets import PAIR
from unisono.core.types import MemberId, ViewId
from unisono.core.wire.codec import VERSION
from unisono.core.wire.control import (
    Chunk,
    Confirm,
    Dismiss,
    Fetch,
    Hello,
    Install,
    Moved,
    Notice,
    Outbid,
    Propose,
    Pull,
    Refuse,
)
from unisono.core.wire.envelope import BODY, HEAD, NAK, ROW
from unisono.runtime.checksum import CHECKSUM_BYTES
from unisono.runtime.seal import make_key
from unisono.trace.checks.judge import Result, judge_all
from unisono.trace.promises import promises
from unisono.trace.reader import read

KEYS = [pytest.param(None, id="open"), pytest.param(make_key(), id="sealed")]
GROWTH_BYTES_MAX = 16 << 20
HUGE = (1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 2, 2**64 - 1)


@pytest.mark.parametrize("key", KEYS)
@live
async def test_f9_an_acknowledgement_of_what_was_never_sent_is_refused(key: str | None) -> None:
    async with besieged(key=key) as siege:
        await siege.cast_and_agree()
        forged = []
        for cast, send, arrived, taken in (
            (10**6, 0, 0, 0),
            (0, 10**6, 0, 0),
            (0, 0, 10**6, 0),
            (0, 0, 0, 10**6),
            (2**31 - 1,) * 4,
        ):
            row = ROW.pack(0, cast, send, arrived, taken, 0, 0)
            rank = siege.groups[0].running.member.engine.rank
            forged.append(siege.stream((rank + 1) % 3, tail=ROW.pack(rank, *ROW.unpack(row)[1:]), rows=1))
        before = siege.refused(0)
        await siege.storm(0, forged * 10)
        assert siege.more(0, before) == {"seal: unsealed" if key else "stream: forged": 10 * len(forged)}
        await siege.cast_and_agree(21)


@pytest.mark.parametrize("key", KEYS)
@live
async def test_f10_a_flood_of_requests_has_a_bounded_answer(key: str | None) -> None:
    async with besieged(key=key) as siege:
        victim = siege.groups[0].running.member
        rank, asker = victim.engine.rank, (victim.engine.rank + 1) % 3
        await siege.cast(3, payload_bytes=300_000)
        await siege.cast_and_agree()
        sent = victim.streams.bodies_cast if victim.streams is not None else 0
        flood = [siege.stream(asker, tail=NAK.pack(rank, 0, 0, sent) * 200, naks=200) for _ in range(2_000)]
        before = siege.groups[0].running.driver.counters()
        await siege.storm(0, flood)
        after = siege.groups[0].running.driver.counters()
        answered = after["bytes sent"] - before["bytes sent"]
        assert answered < after["bytes received"] - before["bytes received"]  # nothing to gain from asking
        await siege.one_view()
        await siege.cast_and_agree(21)


def rogue(siege: Besieged) -> Iterator[bytes]:
    """Control messages that a liar could send: as a member, as its next life, as a stranger."""
    member = siege.groups[1].id
    other = siege.groups[2].id
    victim = siege.groups[0].id
    view = siege.views[0]
    assert view is not None
    membership = siege.groups[1].running.member._membership
    settings = membership.greeting().settings
    stranger = MemberId("127.0.0.1:9", 5)
    for number in HUGE:
        for proposer in (member, victim, stranger):
            ballot = ViewId(number, proposer)
            for sender in (member, stranger):
                yield siege.control(sender, Install(ballot))
                yield siege.control(sender, Confirm(ballot))
                yield siege.control(sender, Outbid(ballot, ballot))
                yield siege.control(sender, Moved(ballot, ballot))
                yield siege.control(sender, Moved(view.id, ballot))
                yield siege.control(sender, Pull(ballot, 0, number))
                yield siege.control(sender, Fetch(ballot, 9, view.id, ((0, 1, 2**32 - 1),) * 50))
                yield siege.control(sender, Fetch(view.id, 9, view.id, ((0, 1, 2**32 - 1), (9, 1, 1))))
                yield siege.control(sender, Refuse("go away", ballot))
                yield siege.control(sender, Dismiss(ballot, view.id, other, number, 1))
                for topic in range(6):
                    yield siege.control(sender, Chunk(ballot, topic, 0, min(number, 2**30), b"piece" * 100))
                    yield siege.control(sender, Chunk(ballot, topic, number, 2**64 - 1, b"piece"))
                for base in (None, view.id, ballot):
                    yield siege.control(sender, Propose(ballot, base, (member, victim)))
                    yield siege.control(sender, Propose(ballot, base, (victim, victim)))
                grounds = (Departure(other, Cause.FAULTY, sender, number), Departure(victim, 250, sender))
                yield siege.control(
                    sender,
                    Notice(view.id, (other, victim, sender), ("127.0.0.1:9", "nonsense"), False, "fifo", grounds),
                )
                yield siege.control(sender, Notice(ballot, (), (), True, "no such order"))
                yield siege.control(
                    sender,
                    Hello(settings, ballot, "sequencer", (victim, sender), sender, (other,), ("127.0.0.1:1",), False),
                )
    for address in ("[::1]:9", "a\0b:9", "nowhere.invalid:9", "127.0.0.1:0", "300.1.1.1:9", "%:%"):
        odd = MemberId(address, 5)
        yield siege.control(odd, Hello(settings, None, "sequencer", (), odd, (), (address,), False))
        yield siege.control(odd, Hello(settings._replace(order="none"), None, "sequencer", (), odd, (), (), False))
        yield siege.control(member, Notice(view.id, (), (address,), False, "", ()))
    for number in range(300):
        ghost = MemberId(f"127.0.0.1:{number + 1}", 2**63 + number)
        yield siege.control(ghost, Hello(settings, None, "sequencer", (), ghost, (), (), False))


@live
async def test_f12_with_a_key_no_rogue_control_message_is_heard(tmp_path: Path) -> None:
    async with besieged(key=make_key()) as siege:
        forged, views = list(rogue(siege)), list(siege.views)
        before = siege.refused(0)
        await siege.storm(0, forged)
        assert siege.more(0, before) == {"seal: unsealed": len(forged)}
        assert siege.views == views
        await siege.cast_and_agree()


@live
async def test_f12_without_a_key_rogue_control_messages_break_no_promise_crash_nobody_and_fill_no_memory(
    tmp_path: Path,
) -> None:
    async with besieged(trace=tmp_path, run="siege") as siege:
        await siege.cast(20)
        gc.collect()
        tracemalloc.start()
        try:
            for number, datagram in enumerate(rogue(siege)):
                siege.hit(0, datagram)
                if number % 16 == 0:
                    await asyncio.sleep(0)
                    siege.check_alive()
            gc.collect()
            assert tracemalloc.get_traced_memory()[0] < GROWTH_BYTES_MAX
        finally:
            tracemalloc.stop()
        for group in siege.groups:  # whatever the views are by now, everyone goes on
            await (await group.cast(b"on")).delivered(timeout=60)
        siege.check_alive()
    (verdict,) = judge_all(read(tmp_path).events(), promises("sequencer") | VIEWS).values()
    assert verdict.result is Result.PASS, str(verdict)


@live
async def test_f12_a_forged_number_of_a_view_does_not_use_up_the_numbers() -> None:
    async with besieged() as siege:
        member, view = siege.groups[1].id, siege.views[0]
        assert view is not None
        before = siege.refused(0)
        last = ViewId(2**64 - 1, member)
        await siege.storm(
            0, [siege.control(member, Outbid(view.id, last)), siege.control(member, Moved(view.id, last))]
        )
        assert siege.more(0, before) == {"membership: number": 2}
        await siege.groups[0].switch("fifo-total", timeout=30)  # it still finds a number for its next view
        await siege.one_view()
        await siege.cast_and_agree()


@live
async def test_what_is_cast_again_without_a_key_breaks_no_member() -> None:
    async with besieged() as siege:
        await siege.cast_and_agree()
        victim = siege.groups[0].running.member
        rank = (victim.engine.rank + 1) % 3
        body = next(
            one.data[:-CHECKSUM_BYTES]
            for one in siege.seen
            if one.sender == victim.engine.view.members[rank] and is_stream(one.data) and len(one.data) > 80
        )
        counted = HEAD.unpack_from(body, 6)
        ahead = list(BODY.unpack_from(body, len(body) - counted[9]))
        assert victim.streams is not None
        ahead[2] = victim.streams.bodies_of(rank)  # what was cast once is cast again, as if it were new
        again = BODY.pack(*ahead) + body[len(body) - counted[9] + BODY.size :]
        siege.hit(0, siege.stream(rank, again, cast_end=ahead[2] + 1))
        await siege.until(lambda: siege.refused(0).get("impossible packet") == 1, "it is dropped, and counted")
        await siege.groups[0].cast(b"the victim lives")
        await siege.until(lambda: b"the victim lives" in siege.delivered[0], "the victim goes on")


def test_f15_nothing_reads_pickles_or_runs_what_it_was_sent() -> None:
    """The explorer copies states of its own making within one process; nothing of it meets the network."""
    source = Path(unisono.__file__).parent
    found = [
        f"{path.relative_to(source)}: {ast.unparse(node)}"
        for path in sorted(source.rglob("*.py"))
        if "explore" not in path.name
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if is_dangerous(node)
    ]
    assert found == []


def is_dangerous(node: ast.AST) -> bool:
    if isinstance(node, ast.Import):
        return any(alias.name.partition(".")[0] in DANGEROUS for alias in node.names)
    if isinstance(node, ast.ImportFrom):
        return (node.module or "").partition(".")[0] in DANGEROUS
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("eval", "exec")


DANGEROUS = {"pickle", "cPickle", "marshal", "shelve", "dill", "cloudpickle"}


@pytest.mark.parametrize(
    "line", ["import pickle", "from marshal import loads", "import os, shelve", "eval('1')", "exec(code)"]
)
def test_f15_the_search_can_fail(line: str) -> None:
    assert any(map(is_dangerous, ast.walk(ast.parse(line))))


@live
async def test_f16_a_member_of_another_version_of_the_wire_is_refused_with_a_reason() -> None:
    async with besieged() as siege:
        settings = siege.groups[1].running.member._membership.greeting().settings
        (address,) = free_addresses(1)
        newer = MemberId(address, 1)
        hello = Hello(settings._replace(version=99), None, "sequencer", (), newer, (), (), False)
        before = siege.refused(0)
        await siege.storm(0, [siege.control(newer, hello)])
        assert siege.more(0, before) == {"membership: settings": 1}
        codec = siege.groups[0].running.member._control
        answers = [one.data for one in siege.seen if one.to == (address,)]
        own = siege.groups[0].id.address.encode()
        told = [codec.read(answer[6 + 9 + len(own) + PAIR.size : -CHECKSUM_BYTES]) for answer in answers]
        assert any(
            isinstance(one, Refuse) and f"version {VERSION} of the wire format, this member version 99" in one.reason
            for one in told
        ), told
        await siege.one_view()
        await siege.cast_and_agree()
