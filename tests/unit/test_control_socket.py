"""Asking a running member over its control socket: who may ask, what is answered, and what the dead leave behind."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import stat
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from unisono import join
from unisono.core.errors import Misuse
from unisono.core.types import Key, MemberId
from unisono.runtime import control_socket
from unisono.runtime.control_socket import ControlSocket, Found, ask, choose, find_members, find_place, parse_key


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="uni-"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(path))
    yield path
    shutil.rmtree(path)


def test_a_member_answers_until_it_leaves(folder: Path) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with join("lab", listen="127.0.0.1:0", control=True) as group:
            await (await group.cast(b"x")).delivered(10)
            (found,) = await loop.run_in_executor(None, find_members)
            assert stat.S_IMODE(found.path.stat().st_mode) == 0o600
            assert found.status["group"] == "lab"
            assert found.status["pid"] == os.getpid()
            members = await loop.run_in_executor(None, ask, found.path, {"ask": "members"})
            assert [one["member"] for one in members] == [str(group.id)]
            explained = await loop.run_in_executor(None, ask, found.path, {"ask": "explain", "key": f"{group.id}:0"})
            assert "is delivered" in explained[0]
            short = {"ask": "explain", "key": f"{group.id.address}:0"}  # whoever has the address now
            assert await loop.run_in_executor(None, ask, found.path, short) == explained
            with pytest.raises(Misuse, match="does not know the question 'stop'"):
                await loop.run_in_executor(None, ask, found.path, {"ask": "stop"})
        assert find_members() == []
        assert list((folder / "unisono").iterdir()) == []

    asyncio.run(main())


def test_bad_questions_get_a_sentence_and_harm_nothing(folder: Path) -> None:
    async def main() -> None:
        control = ControlSocket(find_place().folder / "x.sock", lambda question: question["ask"])
        await control.open()

        def say(data: bytes) -> Any:
            with socket.socket(socket.AF_UNIX) as asking:
                asking.settimeout(10)
                asking.connect(str(control.path))
                asking.sendall(data)
                return asking.makefile().readline()

        loop = asyncio.get_running_loop()
        for bad in (b"\n", b"no json\n", b"[1]\n", b"[" * 10_000 + b"\n", b'"text"\n'):
            assert "error" in json.loads(await loop.run_in_executor(None, say, bad))
        assert await loop.run_in_executor(None, say, b"x" * 200_000 + b"\n") == ""  # no line is so long
        assert json.loads(await loop.run_in_executor(None, say, b'{"ask": 7}\n')) == {"answer": 7}
        control.close()

    asyncio.run(main())


def test_what_the_dead_left_behind_is_removed(folder: Path) -> None:
    path = find_place().folder / "1-dead.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    assert path.exists()
    assert find_members() == []
    assert not path.exists()


ANOTHER_USER = 65_534


def spoil(folder: Path, how: str) -> None:
    """Make a folder one that is not its user's alone."""
    if how == "link":
        folder.symlink_to(folder.parent)
        return
    folder.mkdir(mode=0o700)
    if how == "another user's":
        os.chown(folder, ANOTHER_USER, ANOTHER_USER)
    else:
        folder.chmod(0o755)


SPOILT = [
    pytest.param("another user's", marks=pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")),
    "open to all",
    "link",
]


@pytest.mark.parametrize("how", SPOILT)
@pytest.mark.parametrize("place", ["runtime", "temporary"])
def test_a_folder_that_is_not_ours_is_not_used_and_the_warning_names_the_cure(
    place: str, how: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    environment = {"XDG_RUNTIME_DIR": str(folder)} if place == "runtime" else {}
    usual = folder / ("unisono" if environment else f"unisono-{os.getuid()}")
    spoil(usual, how)
    found = find_place(environment)
    assert found.folder != usual
    assert stat.S_IMODE(found.folder.stat().st_mode) == 0o700
    assert found.folder.stat().st_uid == os.getuid()
    assert found.warning is not None
    assert f"{usual} for control sockets is not yours alone" in found.warning
    assert "set XDG_RUNTIME_DIR" in found.warning
    assert find_place(environment) == found  # one for all members, not one each


@pytest.mark.parametrize("how", SPOILT)
def test_a_member_starts_although_the_folder_is_not_ours_and_commands_find_it(
    how: str, folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    spoil(folder / "unisono", how)

    async def main() -> None:
        async with join("lab", listen="127.0.0.1:0", control=True) as group:
            (found,) = await asyncio.get_running_loop().run_in_executor(None, find_members)
            assert found.status["member"] == str(group.id)
            assert (folder / "unisono") not in found.path.parents

    asyncio.run(main())
    assert "is not yours alone" in caplog.text


def test_a_member_that_can_have_no_socket_starts_without_one(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(folder / "nowhere"))
    spoil(folder / "unisono", "open to all")

    async def main() -> None:
        async with join("lab", listen="127.0.0.1:0", control=True) as group:
            await (await group.cast(b"x")).delivered(10)
            assert await asyncio.get_running_loop().run_in_executor(None, find_members) == []

    asyncio.run(main())
    assert "runs without a control socket" in caplog.text


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")
def test_a_socket_in_a_folder_that_another_user_made_is_not_asked(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    planted = folder / f"unisono-{os.getuid()}-planted"
    planted.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.bind(str(planted / "1-x.sock"))
        os.chown(planted, ANOTHER_USER, ANOTHER_USER)
        assert find_members() == []
    assert (planted / "1-x.sock").exists()


def test_a_member_is_found_whichever_environment_it_was_started_in(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(folder))

    async def main() -> None:
        with monkeypatch.context() as started:
            started.delenv("XDG_RUNTIME_DIR")  # as by cron
            group = await join("lab", listen="127.0.0.1:0", control=True)
        (found,) = await asyncio.get_running_loop().run_in_executor(None, find_members)
        assert found.path.parent == folder / f"unisono-{os.getuid()}"
        await group.leave(10)

    asyncio.run(main())


@pytest.mark.parametrize("reply", [b"[" * 100_000 + b"\n", b'"answer"\n', b"{}\n", b"7\n", b"nonsense\n"], ids=range(5))
def test_an_answer_that_is_none_is_a_value_error(reply: bytes, folder: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(folder / "x.sock"))
        listening.listen()

        def reply_once() -> None:
            connection = listening.accept()[0]
            with connection:
                connection.recv(1000)
                connection.sendall(reply)

        answering = threading.Thread(target=reply_once)
        answering.start()
        with pytest.raises(ValueError, match=r"\w"):
            ask(folder / "x.sock", {"ask": "status"})
        answering.join()


def test_without_a_runtime_folder_there_is_one_for_each_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    made = find_place({}).folder
    assert made == tmp_path / f"unisono-{os.getuid()}"
    assert stat.S_IMODE(made.stat().st_mode) == 0o700


def found(group: str, member: str) -> Found:
    return Found(Path(member), {"group": group, "member": member})


def test_one_of_several_is_chosen_by_group_and_member() -> None:
    a, b, c = found("lab", "127.0.0.1:1#5"), found("lab", "127.0.0.1:2#6"), found("den", "127.0.0.1:1#7")
    assert choose([a, b, c], "den", None) is c
    assert choose([a, b, c], None, "127.0.0.1:2") is b
    assert choose([a, b, c], "lab", "127.0.0.1:1#5") is a
    with pytest.raises(Misuse, match=r"several.*lab 127.0.0.1:1#5; lab 127.0.0.1:2#6\."):
        choose([a, b, c], "lab", None)
    with pytest.raises(Misuse, match="no such member"):
        choose([a, b, c], "lab", "127.0.0.1:9")
    with pytest.raises(Misuse, match="no member runs here"):
        choose([], None, None)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("127.0.0.1:7400#17:3", Key(MemberId("127.0.0.1:7400", 17), 3)),
        ("127.0.0.1:7400:3", Key(MemberId("127.0.0.1:7400", 0), 3)),
        ("[::1]:7400#17:0", Key(MemberId("[::1]:7400", 17), 0)),
    ],
)
def test_a_message_is_named_by_member_and_number(text: str, key: Key) -> None:
    assert parse_key(text) == key


@pytest.mark.parametrize("text", ["", "7", "a", "a:b", "a:"])
def test_what_names_no_message_is_refused(text: str) -> None:
    with pytest.raises(Misuse, match="names no message"):
        parse_key(text)


# Planted faults.


def test_a_finder_that_removes_nothing_is_found(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_socket, "remove", lambda path: None)
    with pytest.raises(AssertionError):
        test_what_the_dead_left_behind_is_removed(folder)


@pytest.mark.parametrize("how", SPOILT)
def test_a_folder_that_is_not_looked_at_is_found(how: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_socket, "_is_ours_alone", lambda folder: folder.is_dir())
    with pytest.raises(AssertionError):
        test_a_folder_that_is_not_ours_is_not_used_and_the_warning_names_the_cure("runtime", how, folder, monkeypatch)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")
def test_a_finder_that_looks_everywhere_is_found(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_socket, "_is_ours_alone", lambda folder: folder.is_dir())
    with pytest.raises(AssertionError):
        test_a_socket_in_a_folder_that_another_user_made_is_not_asked(folder, monkeypatch)


def test_opening_several_leaves_the_process_its_umask(folder: Path) -> None:
    """Found by reading: it was changed while others ran, and two that opened at once left it changed for good."""

    async def main() -> None:
        before = os.umask(0o022)
        try:
            several = [ControlSocket(find_place().folder / f"{name}.sock", lambda question: 1) for name in "ab"]
            opening = [asyncio.create_task(one.open()) for one in several]
            await asyncio.sleep(0)
            during = os.umask(0o022)
            await asyncio.gather(*opening)
            assert (during, os.umask(0o022)) == (0o022, 0o022)
            for one in several:
                assert stat.S_IMODE(one.path.stat().st_mode) == 0o600
                one.close()
        finally:
            os.umask(before)

    asyncio.run(main())


def test_one_that_is_cancelled_while_it_opens_leaves_nothing(folder: Path) -> None:
    async def main() -> None:
        control = ControlSocket(find_place().folder / "x.sock", lambda question: 1)
        opening = asyncio.create_task(control.open())
        await asyncio.sleep(0)
        assert control.path.exists()
        opening.cancel()
        await asyncio.gather(opening, return_exceptions=True)
        assert opening.cancelled()
        assert not control.path.exists()

    asyncio.run(main())
