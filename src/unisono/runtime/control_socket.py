"""How a running member answers other programs on its machine: `unisono status`, `members`, `explain`, `give-up`.

Each member has a unix socket in a folder that only its user can enter: `unisono` in $XDG_RUNTIME_DIR, else `unisono-UID` in the
folder for temporary files. Where another user made that folder first, one with a random name takes its place (`unisono-UID-…`),
which cannot be foreseen; commands look into every folder that is their user's alone. A question is one line of JSON
(`{"ask": "status"}`), and so is the answer. A program that can enter the folder may ask, and may give up a state that is lost;
nothing else can be changed this way. A socket without an answering process was left behind by one that was killed; the next
command removes it.
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
from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import blake2b
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

from unisono.core.errors import Misuse, UnisonoError
from unisono.core.text import short_life, shorten
from unisono.core.types import Key, MemberId
from unisono.runtime.errors import Unavailable
from unisono.runtime.logs import LOGGER
from unisono.trace.files import parse_json
from unisono.trace.sanitize import json_text, sanitize

if TYPE_CHECKING:
    from unisono.runtime.running import RunningMember

QUESTION_BYTES_MAX = 64 << 10
ANSWER_BYTES_MAX = 64 << 20
ANSWER_WAIT_S = 5.0
_KEY = re.compile(r"(?P<address>.+?)(?:#(?P<life>[0-9a-f]+))?:(?P<index>[0-9]+)")
"""A message as people name it. The life is whole, or in the short form that they were shown, or left out."""

Answerer = Callable[[Mapping[str, Any]], Any]


class SocketFolder(NamedTuple):
    """Where a member puts its socket; `warning` says what was wrong with the folder that is used otherwise."""

    folder: Path
    warning: str | None


def find_place(environment: Mapping[str, str] = os.environ) -> SocketFolder:
    """The folder of this user's sockets, made if it is not there; another one if it is not this user's alone."""
    folder = _usual_folders(environment)[0]
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        trouble = None if _is_ours_alone(folder) else "is not yours alone"
    except OSError as error:
        trouble = f"cannot be made ({error.strerror})"
    if trouble is None:
        return SocketFolder(folder, None)
    try:
        another = next(_random_folders(), None) or Path(tempfile.mkdtemp(prefix=f"unisono-{os.getuid()}-"))
    except OSError as error:
        raise Misuse(
            f"the folder {folder} for control sockets {trouble}, and none can be made in {tempfile.gettempdir()}: "
            f"{error.strerror}. Set XDG_RUNTIME_DIR to a folder of your own."
        ) from error
    return SocketFolder(
        another,
        f"the folder {folder} for control sockets {trouble}; {another} is used instead. Remove it, or set XDG_RUNTIME_DIR to a "
        "folder of your own.",
    )


def find_sockets(pattern: str, environment: Mapping[str, str] = os.environ) -> list[Path]:
    """The sockets in all folders of this user, whatever environment they were made in."""
    folders = [*filter(_is_ours_alone, _usual_folders(environment)), *_random_folders()]
    return [path for folder in folders for path in sorted(folder.glob(pattern))]


def _usual_folders(environment: Mapping[str, str]) -> list[Path]:
    """The first is where a socket belongs."""
    runtime = environment.get("XDG_RUNTIME_DIR")
    temporary = Path(tempfile.gettempdir()) / f"unisono-{os.getuid()}"
    return [Path(runtime) / "unisono", temporary] if runtime and os.path.isdir(runtime) else [temporary]


def _random_folders() -> Iterator[Path]:
    """Folders of this user that were made in place of an unusable usual one."""
    return filter(_is_ours_alone, sorted(Path(tempfile.gettempdir()).glob(f"unisono-{os.getuid()}-*")))


def _is_ours_alone(folder: Path) -> bool:
    try:
        found = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077


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
            unix.bind(str(self.path))  # in a folder that no other user can enter
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
                writer.write(json_text(self._reply(line)).encode() + b"\n")
                await writer.drain()
        except (ValueError, OSError, asyncio.CancelledError):
            pass  # a line without an end, or the asking program is gone
        finally:
            writer.close()

    def _reply(self, line: bytes) -> dict[str, Any]:
        try:
            question = parse_json(line)
            if not isinstance(question, dict):
                raise Misuse('a question is a JSON object, as in {"ask": "status"}.')
            return {"answer": self._answer(question)}
        except UnisonoError as error:
            return {"error": str(error), "is_misuse": isinstance(error, Misuse)}
        except ValueError as error:
            return {"error": f"this is not JSON: {error}."}

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
            remove(self.path)


async def serve(member: RunningMember) -> ControlSocket | None:
    """Let a member answer until it leaves. Where that cannot be, the member goes without, and the log says why."""
    name = blake2b(f"{member.name} {member.id}".encode(), digest_size=8).hexdigest()
    try:
        place = find_place()
        if place.warning is not None:
            LOGGER.warning("%s", place.warning)
        control = ControlSocket(place.folder / f"{os.getpid()}-{name}.sock", lambda question: answer(member, question))
        await control.open()
    except Misuse as error:
        LOGGER.warning("%s of %s runs without a control socket: %s", member.id.short, sanitize(member.name), error)
        return None
    member.call_at_end(control.close)
    return control


def answer(member: RunningMember, question: Mapping[str, Any]) -> Any:
    """What a member says about itself."""
    asked = question.get("ask")
    if asked == "status":
        return member.status() | {"pid": os.getpid(), "drops": member.count_drops()}
    if asked == "members":
        return members_of(member)
    if asked == "explain":
        key = question.get("key")
        if key is not None:
            return member.explain(parse_key(str(key), _members(member)))
        return member.explain() + member.explain_strangers()
    if asked == "give_up":
        member.begin_to_give_up(str(question.get("state")))
        return member.status()
    raise Misuse(f"a member does not know the question {asked!r}: ask for status, members, explain or give_up.")


def members_of(running: RunningMember) -> list[dict[str, Any]]:
    """The members of the installed view, each with what this one knows of it."""
    member = running.member
    counters = member.counters
    return [
        {
            "rank": rank,
            "member": str(one),
            "self": one == running.id,
            "suspected": one in member.state.suspects,
            "unacknowledged": counters.window_use.get(one, 0),
        }
        for rank, one in enumerate(_members(running))
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


def _members(running: RunningMember) -> tuple[MemberId, ...]:
    view = running.core_view
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
    """Ask at a socket. Raises `ConnectionError` if no process answers, `ValueError` if the answer is malformed."""
    ends_at = monotonic() + wait_s
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.settimeout(wait_s)
        asking.connect(str(path))
        asking.sendall(json.dumps(question).encode() + b"\n")
        line = bytearray()
        while not line.endswith(b"\n"):
            asking.settimeout(max(0.001, ends_at - monotonic()))  # for the whole answer, however slowly it comes
            piece = asking.recv(1 << 16)
            if not piece or len(line) > ANSWER_BYTES_MAX:
                raise ConnectionResetError(errno.ECONNRESET, "it closed the connection")
            line += piece
    reply = parse_json(bytes(line))
    if not isinstance(reply, dict) or not {"answer", "error"} & reply.keys():
        raise ValueError("this is no answer")
    if "error" in reply:
        raise (Misuse if reply.get("is_misuse", True) else Unavailable)(str(reply["error"]))
    return reply["answer"]


def find_members(folder: Path | None = None, wait_s: float = ANSWER_WAIT_S) -> list[Found]:
    """All members of this user on this machine that answer. What was left behind by the dead is removed."""
    found = []
    for path in find_sockets("*.sock") if folder is None else sorted(folder.glob("*.sock")):
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
    """The member that is meant. If that is not clear, the error lists the members that run here."""
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
