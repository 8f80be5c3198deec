"""A process that has joined forks: the child's copy is dead and says so, and the parent notices nothing."""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import socket
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import unisono
import unisono.sync
from tests.runtime.groups import LOOPS, Loop, run_on
from tests.runtime.ports import free_addresses
from tests.runtime.test_group import gathered, payloads
from unisono.core.errors import Misuse
from unisono.core.types import MemberId
from unisono.runtime.addresses import Endpoint, bind
from unisono.runtime.control_socket import find_place
from unisono.runtime.seal import Seal, make_key
from unisono.runtime.udp import UdpSocket

CHILD_S = 15


def fork() -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # threads are about, and the child takes no lock of theirs
        child = os.fork()
    if child == 0:
        signal.alarm(CHILD_S)  # a child that hangs ends, and says nothing
    return child


def in_child(work: Callable[[], Any]) -> Any:
    """What a forked child makes of this."""
    inlet, outlet = os.pipe()
    child = fork()
    if child == 0:
        try:
            os.write(outlet, json.dumps(work()).encode())
        except BaseException as error:
            os.write(outlet, json.dumps(f"the child failed: {error!r}").encode())
        finally:
            os._exit(0)
    return result_of(child, inlet, outlet)


def result_of(child: int, inlet: int, outlet: int) -> Any:
    os.close(outlet)
    with os.fdopen(inlet, "rb") as stream:
        said = stream.read()
    os.waitpid(child, 0)
    assert said, "the child hung"
    return json.loads(said)


def refusal(call: Callable[[], Any]) -> str:
    """The sentence with which something is refused."""
    try:
        call()
    except Misuse as error:
        return str(error)
    return "it was not refused"


def drive(coroutine: Any) -> Any:
    """Run a coroutine up to where it first waits; there is no event loop in the child."""
    try:
        return coroutine.send(None)
    except StopIteration as end:
        return end.value
    finally:
        coroutine.close()


def is_sentence(text: str) -> bool:
    return "join anew in the child" in text and f"in process {os.getpid()}" in text


@pytest.mark.parametrize("loop", LOOPS)
def test_whatever_a_child_asks_of_the_group_is_refused_with_a_cure(loop: Loop, tmp_path: Path) -> None:
    async def main() -> None:
        key = make_key()
        async with gathered(2, key=key, control=True, trace=tmp_path) as (group, other):
            receipt = await group.cast(b"before")
            await payloads(other, 1)
            files = {one.name: one.stat().st_size for one in tmp_path.iterdir()}
            sockets = set(find_place().folder.iterdir())

            async def iterate() -> None:
                async for _ in group:
                    pass

            calls: dict[str, Callable[[], Any]] = {
                "try_cast": lambda: group.try_cast(b"child"),
                "cast": lambda: drive(group.cast(b"child")),
                "cast to some": lambda: drive(group.cast(b"child", to=[group.id])),
                "room": lambda: drive(group.room()),
                "switch": lambda: drive(group.switch("causal")),
                "give_up": lambda: drive(group.give_up("1")),
                "iterate": lambda: drive(iterate()),
                "each": lambda: drive(group.each(lambda sender, payload: None)),
                "batches": group.batches,
                "ready": group.ready,
                "next": lambda: drive(group.next()),
                "status": group.status,
                "explain": group.explain,
                "view": lambda: group.view,
                "members": lambda: group.members,
                "order": lambda: group.order,
                "stable": lambda: drive(receipt.stable()),
                "leave": lambda: drive(group.leave()),
                "leave again": lambda: drive(group.leave()),
                "the seal": lambda: group.running.driver.seal.close(b"child"),
                "another salt": group.running.driver.seal.resalt,
            }
            if receipt.is_stable:
                del calls["stable"]  # which the child may know
            said = in_child(lambda: {name: refusal(call) for name, call in calls.items()})
            assert [name for name, text in said.items() if not is_sentence(text)] == [], said
            assert {one.name: one.stat().st_size for one in tmp_path.iterdir()} == files
            assert sockets <= set(find_place().folder.iterdir())
            await group.cast(b"after")
            assert await payloads(other, 1) == [b"after"]

    run_on(loop, main())


@pytest.mark.parametrize("loop", LOOPS)
def test_f17_a_child_that_goes_on_running_the_loop_neither_reads_nor_sends(loop: Loop, tmp_path: Path) -> None:
    """The riskiest child: all timers, callbacks and tasks of the parent run in it too."""

    async def main() -> None:
        parent, running = os.getpid(), asyncio.get_running_loop()
        async with gathered(3, key=make_key(), trace=tmp_path) as groups:
            inlet, outlet = os.pipe()

            def counted() -> list[dict[str, int]]:
                return [{"turns": one.running.driver.turns} | one.running.driver.counters() for one in groups]

            def report() -> None:
                if os.getpid() != parent:
                    os.write(outlet, json.dumps([before, counted()]).encode())
                    os._exit(0)

            running.call_later(0.7, report)
            go_on = running.create_future()
            running.call_later(0.8, go_on.set_result, None)
            for group in groups:
                await group.cast(b"before")
            before = counted()
            child = fork()
            if child == 0:
                before = counted()
                await go_on  # until the report ends this process
            mine = counted()
            for number in range(50):
                for group in groups:
                    await group.cast(str(number).encode())
            await go_on
            first, last = result_of(child, inlet, outlet)
            assert first == last, "the child took no turn, read nothing and sent nothing"
            assert all(now["turns"] > then["turns"] for now, then in zip(counted(), mine, strict=True))
            found = [await payloads(group, 153) for group in groups]
            assert found[0] == found[1] == found[2]
            assert all(len(group.members) == 3 for group in groups)
        assert not list(tmp_path.glob("*.open.jsonl"))

    run_on(loop, main())


@pytest.mark.parametrize("loop", LOOPS)
def test_a_child_may_join_anew_and_the_parents_port_is_not_its_own(loop: Loop) -> None:
    async def main() -> None:
        addresses = free_addresses(2)
        first = await unisono.join("g", listen=addresses[0], peers=addresses, timeout=20, pace=0.3)

        def join_anew() -> Any:
            async def anew() -> int:
                wishes: Any = {"peers": addresses, "min_members": 2, "timeout": 20, "pace": 0.3}
                async with unisono.join("g", listen=addresses[1], **wishes) as group:
                    return len(group.members)

            with asyncio.Runner(loop_factory=loop) as runner:
                return runner.run(anew())

        running = asyncio.get_running_loop()
        inlet, outlet = os.pipe()
        child = fork()
        if child == 0:
            asyncio._set_running_loop(None)
            try:
                os.write(outlet, json.dumps(join_anew()).encode())
            except BaseException as error:
                os.write(outlet, json.dumps(f"the child failed: {error!r}").encode())
            finally:
                os._exit(0)
        assert await running.run_in_executor(None, result_of, child, inlet, outlet) == 2
        await first.leave()

    run_on(loop, main())


def test_a_childs_copy_of_a_socket_does_not_hold_the_port() -> None:
    udp = UdpSocket(bind(Endpoint("127.0.0.1", 0)))
    address = udp._udp.getsockname()
    child, go = os.pipe()
    pid = fork()
    if pid == 0:
        os.close(go)
        os.read(child, 1)
        os._exit(0)
    os.close(child)
    udp.close()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as again:
        for _ in range(1_000):  # the child may not have begun
            try:
                again.bind(address)
                break
            except OSError:
                select.select([], [], [], 0.01)
        else:
            raise AssertionError("the port is still taken")
    os.close(go)
    os.waitpid(pid, 0)


def test_a_child_of_a_program_without_asyncio_is_told_the_same() -> None:
    (address,) = free_addresses(1)
    with unisono.sync.join("sync", listen=address) as group:
        for number in range(10):
            group.cast(str(number).encode()).delivered(timeout=10)
        assert isinstance(group.next(timeout=5), unisono.View)  # and what came with it is there already
        calls: dict[str, Callable[[], Any]] = {
            "cast": lambda: group.cast(b"child"),
            "next": group.next,
            "iterate": lambda: next(iter(group)),
            "status": group.status,
            "view": lambda: group.view,
            "leave": group.leave,
        }
        said = in_child(lambda: {name: refusal(call) for name, call in calls.items()})
        assert [name for name, text in said.items() if not is_sentence(text)] == [], said
        group.cast(b"after").delivered(timeout=10)


def test_a_client_in_a_child_is_refused() -> None:
    async def main() -> None:
        addresses = free_addresses(1)
        async with (
            unisono.join("shop", listen=addresses[0], answer=lambda who, what: what) as group,
            unisono.client("shop", contacts=addresses, timeout=10) as client,
        ):
            reading = asyncio.create_task(payloads(group, 1))
            assert await client.request(b"1") == b"1"
            said = in_child(lambda: refusal(lambda: drive(client.request(b"child"))))
            assert is_sentence(said), said
            assert await client.request(b"2") == b"2"
            reading.cancel()

    run_on(asyncio.new_event_loop, main())


def test_f17_a_seal_closes_nothing_in_a_child_or_in_a_child_of_it() -> None:
    seal = Seal("g", MemberId("127.0.0.1:1", 1), bytes(range(32)))

    def both() -> list[str]:
        return [refusal(lambda: seal.close(b"x")), in_child(lambda: refusal(lambda: seal.close(b"x")))]

    assert all(map(is_sentence, in_child(both)))
    assert seal.close(b"x")


def test_a_seal_that_a_child_may_use_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Seal, "disown", lambda self: None)
    with pytest.raises(AssertionError):
        test_f17_a_seal_closes_nothing_in_a_child_or_in_a_child_of_it()
