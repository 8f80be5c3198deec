"""The desk at which a member serves clients outside of the group. Without I/O: a runtime puts it beside a member.

    datagrams ─▶ desk.receive ─▶ the rest ─▶ member.receive
    payloads that the member delivers ─▶ desk.open ─▶ an errand ─▶ the application ─▶ desk.answer
    desk.drain ─▶ datagrams for clients

A client sends its request to any member. That member, its contact, casts it into the group as an **errand**, so every member's
application sees it at its place in the order, with the client's identity. The contact answers, or all members do, as the client
asks.

**Once.** A request has a number; (client, number) is its name for ever. A member that delivers an errand whose name it has served
does not show it as new, and answers from memory. So it does not matter through how many contacts a request was retried:

1. A casts the errand and crashes before it answers. 2. The client hears nothing and asks B. 3. B does not know how far A got,
and casts the errand too. 4. Both arrive, at every member in the same order. The first is served; the second is recognised,
and B, its contact, repeats the answer to the first.

The memory depends on nothing but the delivered errands, so in a total order it is the same everywhere; a joiner takes it over
with the application's state (`snapshot`, `restore`). In a partition that is not primary, each part serves for itself.

**Not again for strangers.** A captured datagram can be opened once at every member that has not seen it, and at every later
life of one (`runtime/seal.py`). The numbers of a client that is remembered protect it. The desk cannot know whether a client that
is not remembered is new, or was served and then forgotten, here or before a restart of all members. So it casts nothing yet: it
answers with a **token**, and casts the request when it comes again with that token.

    token   a keyed hash of the client, under a secret of this life of this member, plus how many clients it has forgotten so far

A token is valid until `clients_max` more clients are forgotten, or the client itself is; until then the desk knows which
clients it has forgotten. So what is cast for a client that is not remembered was sent to this life of this member after it
last forgot the client, and therefore after every request of it that it has served: an earlier capture holds an older token,
another member's, or none, and only a holder of the key can put the right one in. This needs no clock, and nothing is kept of
strangers. It costs a client that is not remembered a round trip. The secret and the client in the hash are for groups without
a key: only a client that receives at the address that it names can know its token, so nothing longer than what came is sent
to a forged address.

**Bounds.** The last `answers_max` answers are kept of each of the `clients_max` clients that were served last.
A client that is forgotten and then itself retries a request is served again: that needs `clients_max` other clients between the
two, while it waits, or while the request is under way through two contacts at once. The requests under way through this member are
limited too, those of a client and all together; beyond the limit it says that it is busy.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import NamedTuple, Protocol

from unisono.core.config import NUMBER_MAX, Config, check_ranges, ranged
from unisono.core.errors import Misuse, NotPrimary, Shed
from unisono.core.types import Key, MemberId, View
from unisono.core.wire import ALL, BLOB, MAYBE, ROW, TEXT, U64, Codec, Frames, Layout
from unisono.services.client_messages import (
    LIFE,
    TAG,
    Errand,
    Hindrance,
    Reply,
    Request,
    Sorry,
    Tab,
    Wanted,
    make_client_codec,
)


class Caster(Protocol):
    """What a desk needs of its member."""

    id: MemberId

    @property
    def view(self) -> View | None: ...

    def cast(self, payload: bytes, /) -> Key | None: ...


@dataclass(frozen=True, slots=True)
class DeskSettings:
    """The limits of a desk.

    `answers_max`, `clients_max` and `answer_bytes_max` must be the same at all members: they decide what is remembered.
    """

    clients_max: int = ranged(1_024, 1, NUMBER_MAX)
    answers_max: int = ranged(16, 1, NUMBER_MAX)
    answer_bytes_max: int = ranged(4 * 1024, 1, NUMBER_MAX)
    request_bytes_max: int = ranged(16 * 1024, 1, NUMBER_MAX)
    pending_max: int = ranged(1_024, 1, NUMBER_MAX)
    pending_of_one_max: int = ranged(16, 1, NUMBER_MAX)

    def __post_init__(self) -> None:
        check_ranges(self)


@dataclass(slots=True)
class _Memory:
    """What is remembered of one client."""

    floor: int = 0  # what is below was served, and its answer is not needed any more
    answers: dict[int, bytes | None] = field(default_factory=dict)
    failed: set[int] = field(default_factory=set)  # among these: the application here could not answer, as the contact

    def forget_answers(self, oldest: int, answers_max: int) -> None:
        """Forget the answers below `oldest`, for which the client does not wait, and the oldest beyond `answers_max`."""
        self.floor = max(self.floor, oldest)
        while len(self.answers) > answers_max:
            self.floor = max(self.floor, min(self.answers) + 1)
            del self.answers[min(self.answers)]
        for number in [number for number in self.answers if number < self.floor]:
            del self.answers[number]
        self.failed &= self.answers.keys()


class _Remembered(NamedTuple):
    """Everything that a desk remembers."""

    tabs: tuple[Tab, ...]


_TAB = ROW(ROW(TEXT, U64, type=MemberId), U64, ALL(ROW(U64, MAYBE(BLOB))), type=Tab)


def _snapshot_codec() -> Codec:
    return Codec((Layout(0x84, _Remembered, (ALL(_TAB),)),), Config())


class ClientDesk:
    """See the module's docstring."""

    def __init__(self, member: Caster, group: str, settings: DeskSettings | None = None, secret: bytes = b"") -> None:
        """`secret` makes the tokens of this life of the member. Without one, for models and tests, anyone can make them."""
        self.settings = settings or DeskSettings()
        self._member = member
        self._frames = Frames(group, member.id)
        self._codec = make_client_codec()
        self._memories: OrderedDict[MemberId, _Memory] = OrderedDict()  # the one that was served last is last
        self._serving: set[tuple[MemberId, int]] = set()  # shown to the application, not answered yet
        self._pending: dict[MemberId, set[int]] = {}  # cast by me, not delivered here yet
        self._pending_count = 0
        self._tokens = blake2b(str(tuple(member.id)).encode(), digest_size=8, key=secret)
        self._forgotten: OrderedDict[MemberId, int] = OrderedDict()  # the last `clients_max`, each with its number
        self._forgotten_count = 0
        self._out: list[tuple[str, bytes]] = []
        self.dropped: dict[str, int] = {}
        """Requests and errands that were discarded, by reason."""

    # Questions.

    def remembered(self) -> tuple[Tab, ...]:
        """What is remembered of each client, the one that was served last at the end."""
        return tuple(
            Tab(client, memory.floor, tuple(sorted(memory.answers.items())))
            for client, memory in self._memories.items()
        )

    @property
    def forgotten(self) -> tuple[MemberId, ...]:
        """The clients that were forgotten last."""
        return tuple(self._forgotten)

    @property
    def pending(self) -> int:
        """How many requests were cast here and not yet delivered."""
        return self._pending_count

    # From clients.

    def receive(self, datagrams: Iterable[bytes | memoryview]) -> list[bytes | memoryview]:
        """Take the datagrams of clients. Returns the others, which are for the member."""
        return [datagram for datagram in datagrams if not self.takes(datagram)]

    def takes(self, datagram: bytes | memoryview) -> bool:
        """Take a datagram if it is a client's. Returns whether it was."""
        if not self._frames.is_client(datagram):
            return False
        self._take(datagram)
        return True

    def _take(self, datagram: bytes | memoryview) -> None:
        frame = self._frames.open_client(datagram)
        request = None if frame is None else self._codec.decode(frame.message, 0, 1)
        if frame is not None and isinstance(request, Request) and self._is_sound(request):
            self._ask(frame.sender, request)
        else:
            self._drop("request")

    def _is_sound(self, request: Request) -> bool:
        is_small = len(request.payload) <= self.settings.request_bytes_max
        return is_small and request.oldest <= request.number and request.wanted in list(Wanted)

    def _ask(self, client: MemberId, request: Request) -> None:
        number = request.number
        memory = self._memories.get(client)
        if memory is not None and (number < memory.floor or number in memory.answers):
            self._say_again(client, number, memory)
            return
        mine = self._pending.get(client, set())
        if number in mine or (client, number) in self._serving:
            return  # on its way
        if self._pending_count >= self.settings.pending_max or len(mine) >= self.settings.pending_of_one_max:
            self._say(client, Sorry(number, Hindrance.BUSY))
            return
        if memory is None and not self._is_token(client, request.token):
            self._say(
                client, Sorry(number, Hindrance.STRANGER, (self._first_token(client) + self._forgotten_count) % 2**64)
            )
            return
        errand = Errand(client, number, request.oldest, request.wanted, self._member.id, request.payload)
        try:
            key = self._member.cast(TAG + self._codec.encode(errand))
        except Shed:
            self._say(client, Sorry(number, Hindrance.BUSY))
            return
        except (NotPrimary, Misuse):
            self._say(client, Sorry(number, Hindrance.READ_ONLY))
            return
        if key is None:
            self._say(client, Sorry(number, Hindrance.NO_VIEW if self._member.view is None else Hindrance.BUSY))
            return
        self._pending.setdefault(client, set()).add(number)
        self._pending_count += 1

    # From the group.

    def open(self, payload: bytes) -> Errand | None:
        """The client's errand in a delivered payload, to be answered if it is new; None: the payload is the group's own."""
        if not payload.startswith(TAG):
            return None
        errand = self._codec.decode(memoryview(payload)[len(TAG) :], 0, 1)
        if not isinstance(errand, Errand):
            self._drop("errand")
            return None
        client, number = errand.client, errand.number
        if errand.contact == self._member.id and number in self._pending.get(client, ()):
            self._pending[client].discard(number)
            self._pending_count -= 1
            if not self._pending[client]:
                del self._pending[client]
        memory = self._memories.get(client)
        if memory is None:
            memory = self._memories[client] = _Memory()
        self._memories.move_to_end(client)
        if number < memory.floor or number in memory.answers or (client, number) in self._serving:
            if errand.wanted != Wanted.CONTACT or errand.contact == self._member.id:
                self._say_again(client, number, memory)
            return errand._replace(is_new=False)
        memory.answers[number] = None
        memory.forget_answers(errand.oldest, self.settings.answers_max)
        while len(self._memories) > self.settings.clients_max:
            self._forget()
        self._serving.add((client, number))
        return errand

    def _forget(self) -> None:
        """Forget the client that was served longest ago. Its tokens are not valid any more."""
        client, _ = self._memories.popitem(last=False)
        self._forgotten_count += 1
        self._forgotten[client] = self._forgotten_count
        self._forgotten.move_to_end(client)
        if len(self._forgotten) > self.settings.clients_max:
            self._forgotten.popitem(last=False)

    def _first_token(self, client: MemberId) -> int:
        """The token of a client before any client was forgotten."""
        state = self._tokens.copy()
        state.update(str(tuple(client)).encode())
        return int.from_bytes(state.digest(), "little")

    def _is_token(self, client: MemberId, token: int) -> bool:
        """Whether this life of this member gave the token, and has not forgotten the client since."""
        since = (self._first_token(client) + self._forgotten_count - token) % 2**64  # clients forgotten since
        was_given_at = self._forgotten_count - since
        return since <= self.settings.clients_max and was_given_at >= self._forgotten.get(client, 0)

    def answer(self, errand: Errand, answer: bytes | None) -> None:
        """Answer a new errand; None: no answer. All members must call it, in the order of the errands."""
        if answer is not None and not isinstance(answer, bytes):
            self.fail(errand)
            raise Misuse(f"an answer to a client is bytes or None, not {type(answer).__name__}.")
        if answer is not None and len(answer) > self.settings.answer_bytes_max:
            self.fail(errand)
            size_max = self.settings.answer_bytes_max
            raise Misuse(
                f"an answer of {len(answer)} bytes is over the limit of {size_max}: shorten it, or raise answer_bytes_max."
            )
        self._serving.discard((errand.client, errand.number))
        memory = self._memories.get(errand.client)
        if memory is not None and errand.number in memory.answers:
            memory.answers[errand.number] = answer
        if errand.wanted == Wanted.CONTACT and errand.contact != self._member.id:
            return
        if answer is not None or errand.wanted != Wanted.ANY:
            self._say(errand.client, Reply(errand.number, self._size, answer))

    def fail(self, errand: Errand) -> None:
        """The application could not answer a new errand, which counts as served. A client that waits for this member is told.

        If any answer will do, the contact says so too: another member may still answer, and if none does the client knows why.
        """
        self._serving.discard((errand.client, errand.number))
        if errand.wanted == Wanted.ALL:
            self._say(errand.client, Reply(errand.number, self._size, None))
            return
        memory = self._memories.get(errand.client)
        if memory is not None and errand.number in memory.answers:
            memory.failed.add(errand.number)
        if errand.contact == self._member.id:
            self._say(errand.client, Sorry(errand.number, Hindrance.FAILED))

    def drain(self) -> list[tuple[str, bytes]]:
        """The datagrams to send, each with its address."""
        out, self._out = self._out, []
        return out

    # State transfer.

    def snapshot(self) -> bytes:
        """What is remembered, for a joiner. No errand may be unanswered."""
        return _snapshot_codec().encode(_Remembered(self.remembered()))

    def restore(self, data: bytes) -> None:
        """Take over what another member remembers."""
        remembered = _snapshot_codec().decode(memoryview(data), 0, 1)
        if not isinstance(remembered, _Remembered):
            raise Misuse("the memory of a client desk cannot be read: it is damaged, or of another version.")
        # Own errands that were delivered before the snapshot do not come here any more. One that does come does no harm.
        self._pending.clear()
        self._pending_count = 0
        # Other members may have served and forgotten clients meanwhile: no earlier token is valid.
        self._forgotten_count += self.settings.clients_max + 1
        self._forgotten.clear()
        self._memories.clear()
        for client, floor, answers in remembered.tabs:
            memory = self._memories[client] = _Memory()
            memory.floor, memory.answers = floor, dict(answers)

    # Inside.

    @property
    def _size(self) -> int:
        view = self._member.view
        return 1 if view is None else len(view)

    def _say_again(self, client: MemberId, number: int, memory: _Memory) -> None:
        if (client, number) in self._serving:
            return
        if number in memory.failed:
            self._say(client, Sorry(number, Hindrance.FAILED))
        elif number in memory.answers:
            self._say(client, Reply(number, self._size, memory.answers[number]))
        else:
            self._say(client, Sorry(number, Hindrance.FORGOTTEN))

    def _say(self, client: MemberId, message: Reply | Sorry) -> None:
        said = LIFE.pack(client.incarnation) + self._codec.encode(message)
        self._out.append((client.address, self._frames.client(said)))

    def _drop(self, reason: str) -> None:
        self.dropped[reason] = self.dropped.get(reason, 0) + 1
