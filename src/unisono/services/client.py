"""A client outside of a group: sends it requests through any member, and gets an answer or a named failure.

It knows the addresses of some members, its **contacts**. A request goes to one of them, and to the next if that one is silent for
`retry_ns` or cannot help. The group serves a request once, however many contacts it came through (`client_desk`). After `wait_ns`
the client gives up and says why; whether the group served the request is then not known. A contact that does not know the client
first gives it a token, with which the client repeats the request at once.

A turn is any number of inputs, then one `drain(now)`, whose effects the driver performs. No I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from unisono.core.config import MILLISECOND, NUMBER_MAX, SECOND, check_ranges, ranged
from unisono.core.errors import Misuse
from unisono.core.types import MemberId
from unisono.core.wire import Frames
from unisono.services.client_messages import LIFE, Hindrance, Reply, Request, Sorry, Wanted, make_client_codec


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """The limits and timeouts of a client."""

    retry_ns: int = ranged(200 * MILLISECOND, 1, NUMBER_MAX)
    """The next contact is tried after this long without an answer."""
    wait_ns: int = ranged(10 * SECOND, 1, NUMBER_MAX)
    """A request fails after this long."""
    requests_max: int = ranged(16, 1, NUMBER_MAX)
    """Maximum number of requests under way; not more than the members' `answers_max`."""
    request_bytes_max: int = ranged(16 * 1024, 1, NUMBER_MAX)
    answers_max: int = ranged(1_024, 1, NUMBER_MAX)
    """Maximum number of answers kept when all members answer one request."""

    def __post_init__(self) -> None:
        check_ranges(self)


class Answered(NamedTuple):
    """The members' answers, at most one of each. `is_whole` is False if some members did not answer in time."""

    number: int
    answers: tuple[tuple[MemberId, bytes | None], ...]
    is_whole: bool


class Failed(NamedTuple):
    """No member answered in time; the reason is the last that a contact gave."""

    number: int
    reason: str


Outcome: TypeAlias = Answered | Failed


class ClientEffects(NamedTuple):
    datagrams: list[tuple[str, bytes]]  # 1 send
    events: list[Outcome]  # 2 show
    deadline: int | None  # 3 take a turn by then


_REASONS = {
    Hindrance.NO_VIEW: "the contact is not in the group",
    Hindrance.READ_ONLY: "the contact's view is not the primary one",
    Hindrance.BUSY: "the contact is busy",
    Hindrance.FORGOTTEN: "the request was served, and its answer is forgotten",
    Hindrance.FAILED: "the contact's application failed to answer; its program knows why",
}


@dataclass(slots=True)
class _Asked:
    """A request under way."""

    payload: bytes
    wanted: Wanted
    contact: int  # the contact that it goes to, by number
    at: int  # when it is sent again
    until: int
    is_sent: bool = False  # to this contact
    token: int = 0  # with which it was sent
    refusals: int = 0  # contacts in a row that could not help
    answers: dict[MemberId, bytes | None] = field(default_factory=dict)
    of: int = 0  # how many members should answer
    reason: str = "no contact answered"


class Client:
    """See the module's docstring. `id` is the client's own address, and a number that no earlier life there had."""

    def __init__(
        self, id: MemberId, group: str, contacts: Sequence[str], settings: ClientSettings | None = None
    ) -> None:
        if not contacts:
            raise Misuse("a client needs the address of at least one member.")
        self.id = id
        self.settings = settings or ClientSettings()
        self._contacts = tuple(dict.fromkeys(contacts))
        self._frames = Frames(group, id)
        self._codec = make_client_codec()
        self._life = LIFE.pack(id.incarnation)
        self._asked: dict[int, _Asked] = {}
        self._next = 1
        self._contact = 0  # the one that answered last
        self._tokens: dict[str, int] = {}  # by contact
        self._events: list[Outcome] = []
        self._now = 0
        self.dropped: dict[str, int] = {}
        """Datagrams that were discarded, by reason."""

    def is_known_to(self, contact: str) -> bool:
        """Whether a contact has given this client a token."""
        return contact in self._tokens

    def request(self, payload: bytes, now: int, wanted: Wanted = Wanted.CONTACT) -> int | None:
        """Ask the group something. Returns the number of the request; None: too many are under way."""
        if not isinstance(payload, bytes):
            raise Misuse(f"a request is bytes, not {type(payload).__name__}: encode it first.")
        if len(payload) > self.settings.request_bytes_max:
            most = self.settings.request_bytes_max
            raise Misuse(
                f"a request of {len(payload)} bytes is too large: cut it to {most}, or raise request_bytes_max."
            )
        oldest = min(self._asked, default=self._next)
        if self._next - oldest >= self.settings.requests_max:
            return None
        number, self._next = self._next, self._next + 1
        self._asked[number] = _Asked(payload, wanted, self._contact, now, now + self.settings.wait_ns)
        return number

    def receive(self, datagrams: Iterable[bytes | memoryview], now: int) -> None:
        """Take datagrams from the network."""
        self._now = max(now, self._now)
        for datagram in datagrams:
            frame = self._frames.open_client(datagram) if self._frames.is_client(datagram) else None
            is_mine = frame is not None and frame.message[: LIFE.size] == self._life
            message = self._codec.decode(frame.message[LIFE.size :], 0, 1) if frame is not None and is_mine else None
            if frame is None or not isinstance(message, Reply | Sorry):
                self.dropped["datagram"] = self.dropped.get("datagram", 0) + 1
            elif message.number in self._asked:
                self._hear(frame.sender, self._asked[message.number], message)

    def _hear(self, sender: MemberId, asked: _Asked, message: Reply | Sorry) -> None:
        number = message.number
        if isinstance(message, Sorry):
            if message.why == Hindrance.STRANGER:
                self._introduce(sender, asked, message.token)
                return
            if sender.address != self._contacts[asked.contact] or not asked.is_sent:
                return
            asked.reason = _REASONS.get(message.why, "the contact cannot help")  # type: ignore[call-overload]
            if message.why == Hindrance.FAILED and asked.wanted is Wanted.ANY:
                return  # another member may have an answer
            if message.why in (Hindrance.FORGOTTEN, Hindrance.FAILED):
                self._end(number, Failed(number, asked.reason))
                return
            asked.refusals += 1
            self._pass_over(asked)
            if asked.refusals % len(self._contacts):  # another contact may help at once; when all were asked, later
                asked.at = self._now
            return
        if sender.address in self._contacts:
            self._contact = self._contacts.index(sender.address)
        if asked.wanted is Wanted.ALL:
            asked.of = message.of
            if len(asked.answers) < self.settings.answers_max:
                asked.answers[sender] = message.answer
            if len(asked.answers) >= min(asked.of, self.settings.answers_max):
                self._end(number, Answered(number, tuple(sorted(asked.answers.items())), True))
        elif asked.wanted is Wanted.CONTACT or message.answer is not None:
            self._end(number, Answered(number, ((sender, message.answer),), True))

    def drain(self, now: int) -> ClientEffects:
        """End the turn: send what is due, and give up what took too long."""
        self._now = max(now, self._now)
        datagrams: list[tuple[str, bytes]] = []
        for number, asked in list(self._asked.items()):
            if self._now >= asked.until:
                some = tuple(sorted(asked.answers.items()))
                self._end(number, Answered(number, some, False) if some else Failed(number, asked.reason))
            elif self._now >= asked.at:
                if asked.is_sent:  # and it was silent
                    self._pass_over(asked)
                contact = self._contacts[asked.contact]
                asked.token = self._tokens.get(contact, 0)
                request = Request(number, min(self._asked), asked.wanted, asked.payload, asked.token)
                datagrams.append((contact, self._frames.client(self._codec.encode(request))))
                asked.is_sent = True
                asked.at = self._now + self.settings.retry_ns
        events, self._events = self._events, []
        deadline = min((min(asked.at, asked.until) for asked in self._asked.values()), default=None)
        return ClientEffects(datagrams, events, deadline)

    def _introduce(self, sender: MemberId, asked: _Asked, token: int) -> None:
        """A contact gives a token. If its address is not one of the contacts', it is the contact that was asked."""
        asked_one = self._contacts[asked.contact]
        contact = sender.address if sender.address in self._contacts else asked_one
        self._tokens[contact] = token
        if contact == asked_one and asked.is_sent and asked.token != token:
            asked.at, asked.is_sent = self._now, False

    def _pass_over(self, asked: _Asked) -> None:
        """Turn to the next contact."""
        asked.contact = (asked.contact + 1) % len(self._contacts)
        asked.is_sent = False

    def _end(self, number: int, outcome: Outcome) -> None:
        del self._asked[number]
        self._events.append(outcome)
