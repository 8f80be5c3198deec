"""How a running member answers other programs on its machine: `unisono status`, `members`, `explain`, `give-up`.

Each member has a unix socket in a folder that only its user can enter: `unisono` in $XDG_RUNTIME_DIR, else under the folder for
temporary files. A question is one line of JSON (`{"ask": "status"}`), and so is the answer. Who can enter the folder may ask,
and may give up a state that is lost; nothing else can be changed this way. A socket that nobody answers at was left behind by a
process that was killed, and is removed by whoever finds it.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import re
import socket
import stat
import tempfile
from collections.abc import Callable, Iterable, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from unisono.core.errors import Misuse, UnisonoError
from unisono.core.text import short_life, shorten
from unisono.core.types import Key, MemberId
from unisono.runtime.observe import call_at_end, count_drops, explain_strangers

if TYPE_CHECKING:
    from unisono.runtime.group import Group

QUESTION_BYTES_MAX = 64 << 10
ANSWER_BYTES_MAX = 64 << 20
ANSWER_WAIT_S = 5.0
_KEY = re.compile(r"(?P<address>.+?)(?:#(?P<life>[0-9a-f]+))?:(?P<index>[0-9]+)")
"""A message as people name it. The life is whole, or in the short form that they were shown, or left out."""

Answerer = Callable[[Mapping[str, Any]], Any]


def find_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """The folder of this user's sockets; made if it is not there, refused if others can enter it."""
    runtime = environment.get("XDG_RUNTIME_DIR")
    if runtime and os.path.isdir(runtime):
        folder = Path(runtime) / "unisono"
    else:
        folder = Path(tempfile.gettempdir()) / f"unisono-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError as error:
        raise Misuse(f"the folder {folder} for control sockets cannot be made: {error.strerror}.") from error
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise Misuse(f"the folder {folder} is not yours alone: remove it, or set XDG_RUNTIME_DIR to one that is.")
    return folder


# The member's side.


class ControlSocket:
    """One socket that answers questions, from `open` to `close`."""

    def __init__(self, path: Path, answer: Answerer) -> None:
        self.path = path
        self._answer = answer
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        remove(self.path)
        unix = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            unix.bind(str(self.path))  # in a folder that nobody else can enter
            os.chmod(self.path, 0o600)
            self._server = await asyncio.start_unix_server(self._serve, sock=unix, limit=QUESTION_BYTES_MAX)
        except BaseException as error:
            unix.close()
            remove(self.path)
            if isinstance(error, OSError):
                raise Misuse(f"the control socket {self.path} cannot be opened: {error.strerror or error}.") from error
            raise

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                writer.write(json.dumps(self._reply(line), ensure_ascii=False).encode() + b"\n")
                await writer.drain()
        except (ValueError, OSError, asyncio.CancelledError):
            pass  # a line without an end, or whoever asked is gone
        finally:
            writer.close()

    def _reply(self, line: bytes) -> dict[str, Any]:
        try:
            question = json.loads(line)
            if not isinstance(question, dict):
                raise Misuse('a question is a JSON object, as in {"ask": "status"}.')
            return {"answer": self._answer(question)}
        except UnisonoError as error:
            return {"error": str(error)}
        except (ValueError, RecursionError) as error:
            return {"error": f"this is not JSON: {error}."}

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
            remove(self.path)


async def serve(group: Group) -> ControlSocket:
    """Let a member answer until it leaves."""
    name = blake2b(f"{group.name} {group.id}".encode(), digest_size=8).hexdigest()
    control = ControlSocket(find_folder() / f"{os.getpid()}-{name}.sock", lambda question: answer(group, question))
    await control.open()
    call_at_end(group, control.close)
    return control


def answer(group: Group, question: Mapping[str, Any]) -> Any:
    """What a member says about itself."""
    asked = question.get("ask")
    if asked == "status":
        return group.status() | {"pid": os.getpid(), "drops": count_drops(group)}
    if asked == "members":
        return members_of(group)
    if asked == "explain":
        key = question.get("key")
        if key is not None:
            return group.explain(parse_key(str(key), _members(group)))
        return group.explain() + explain_strangers(group)
    if asked == "give_up":
        group.begin_to_give_up(str(question.get("state")))
        return group.status()
    raise Misuse(f"a member does not know the question {asked!r}: ask for status, members, explain or give_up.")


def members_of(group: Group) -> list[dict[str, Any]]:
    """The members of the installed view, each with what this one knows of it."""
    member = group._driver.member
    tally = member.tally
    return [
        {
            "rank": rank,
            "member": str(one),
            "self": one == group.id,
            "suspected": one in member.suspects,
            "unacknowledged": tally.window_use.get(one, 0),
        }
        for rank, one in enumerate(_members(group))
    ]


def parse_key(text: str, members: Iterable[MemberId] = ()) -> Key:
    """A message's name as people write it, MEMBER:INDEX; without a whole life, a member of the view is meant."""
    match = _KEY.fullmatch(text)
    if match is None:
        raise Misuse(f"{text!r} names no message: write its member and its number, as in 127.0.0.1:7400#a3f:3.")
    address, life, index = match["address"], match["life"], int(match["index"])
    for one in members:
        if one.address == address and life in (None, short_life(one.incarnation)):
            return Key(one, index)
    if life is not None and not life.isdecimal():
        raise Misuse(f"no member of this view is {address}#{life}: name an earlier life as `--long` prints it.")
    return Key(MemberId(address, int(life or 0)), index)


def _members(group: Group) -> tuple[MemberId, ...]:
    view = group._driver.member.view
    return () if view is None else view.members


# The other side.


class Found(NamedTuple):
    """A member that answers."""

    path: Path
    status: dict[str, Any]

    @property
    def name(self) -> str:
        return f"{self.status['group']} {self.status['member']}"


def ask(path: Path, question: Mapping[str, Any], wait_s: float = ANSWER_WAIT_S) -> Any:
    """Ask at a socket. Raises `ConnectionError` if nobody is there."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.settimeout(wait_s)
        asking.connect(str(path))
        asking.sendall(json.dumps(question).encode() + b"\n")
        line = bytearray()
        while not line.endswith(b"\n"):
            piece = asking.recv(1 << 16)
            if not piece or len(line) > ANSWER_BYTES_MAX:
                raise ConnectionResetError(errno.ECONNRESET, "it closed the connection")
            line += piece
    reply = json.loads(line)
    if "error" in reply:
        raise Misuse(str(reply["error"]))
    return reply["answer"]


def find_members(folder: Path | None = None, wait_s: float = ANSWER_WAIT_S) -> list[Found]:
    """All members of this user on this machine that answer. What was left behind by the dead is removed."""
    found = []
    for path in sorted((folder or find_folder()).glob("*.sock")):
        if path.name.startswith("directory"):
            continue
        try:
            found.append(Found(path, ask(path, {"ask": "status"}, wait_s)))
        except (ConnectionRefusedError, FileNotFoundError):
            remove(path)
        except (OSError, ValueError):
            continue  # it lives, and is busy or going
    return found


def choose(members: list[Found], group: str | None, member: str | None) -> Found:
    """The one that is meant; if that is not clear, the sentence lists who there is."""
    if not members:
        raise Misuse("no member runs here: start one with `unisono node GROUP`, or join(..., control=True).")
    fitting = [
        one
        for one in members
        if (group is None or one.status["group"] == group)
        and (member is None or member in _names(one.status["member"]))
    ]
    if len(fitting) == 1:
        return fitting[0]
    names = "; ".join(one.name for one in fitting or members)
    if fitting:
        raise Misuse(f"several members run here, choose one with --group and --member: {names}.")
    raise Misuse(f"no such member runs here. These do: {names}.")


def _names(member: str) -> tuple[str, str, str]:
    """How people may call a member: by its whole name, as they were shown it, or by its address."""
    return member, shorten(member), member.partition("#")[0]


def remove(path: Path) -> None:
    path.unlink(missing_ok=True)
