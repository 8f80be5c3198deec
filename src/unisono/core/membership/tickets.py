"""Tickets: a control message is read only if its sender has shown that it receives at the address that it names.

A ticket is a keyed hash of an address, under a secret that a member draws when it begins. So it stands for one giver, one life of
that giver, and one address. Every control frame carries two::

    given u64 · shown u64 · message

`given` is the sender's ticket for the receiver, `shown` the receiver's ticket for the sender, or 0 if the sender has none.

| a frame that                  | is                                                                                   |
|-------------------------------|--------------------------------------------------------------------------------------|
| shows the ticket              | proven: its message is read, and the ticket that it gives is kept                    |
| shows 0                       | a question, padded; the answer is an empty frame that gives and shows a ticket       |
| shows another, with a message | unproven: dropped and counted; its sender is given a ticket, in an empty frame       |
| shows another, empty          | unasked: dropped and counted                                                         |

A message to an address whose ticket is not known waits here, and a question goes out in its place. So first contact costs one
round trip more, and a stranger gets back at most as many bytes as it sent, is not remembered, and is sent nothing later. What was
captured is of no use elsewhere: a message shows the ticket of one receiver and one life of it, and is unproven to all others.

A member may be asked at an address that it does not go by. It answers with the ticket that the question gave, which is for the
address that was asked. An empty frame may show that one, and the greetings that wait for the address that was asked then go to the
address that the member goes by. Greetings alone: a question that a stranger hands to another member brings the same answer, and a
message that is meant for one member must not go to another.

`Nonces` tell how fresh an answer is: a greeting carries one, and answers and refusals repeat it.
"""

from __future__ import annotations

from hashlib import blake2b
from struct import Struct
from typing import NamedTuple

from unisono.core.config import SECOND
from unisono.core.types import MemberId

SECRET_BYTES = 16
WAITING_NS = 2 * SECOND
"""A message does not wait longer for a ticket: every control message is repeated while it is needed."""
WAITING_MESSAGES_MAX = 8
"""Maximum number of messages that wait for the ticket of one address; later ones replace earlier ones."""
WAITING_ADDRESSES_MAX = 256
"""Maximum number of addresses that messages wait for."""
QUESTION_PADDING = bytes(128)
"""Makes a question at least as long as its answer, whatever the two addresses are: numbers of 7 to 47 letters, named
twice where there is a seal."""
PAIR = Struct("<QQ")
NONE = 0


class Tickets:
    """The tickets of one member: what it gave, what it was given, and what waits for one."""

    def __init__(self, address: str, secret: bytes, addresses_max: int) -> None:
        self._own_bytes = len(address.encode())
        self._secret = secret
        self._addresses_max = addresses_max
        self._given: dict[str, int] = {}  # by address: its ticket for me; the latest last
        self._waiting: dict[str, dict[bytes, _Wait]] = {}  # by address: messages
        self._asked: dict[int, str] = {}  # by my ticket for it: each address in `_waiting`
        self._questions: dict[str, None] = {}  # addresses to ask in this turn
        self._out: list[tuple[str, bytes]] = []
        self.owes = False
        """Whether `drain` has anything."""
        self.questions = 0
        """How many questions came."""

    def ticket(self, address: str) -> int:
        """What a sender that receives at this address can show."""
        return _hash(address.encode(), self._secret)

    def secret_for(self, purpose: str) -> bytes:
        """A secret of this life for something else that gives tickets: nothing that is given here says anything of it."""
        return blake2b(purpose.encode(), key=self._secret, digest_size=SECRET_BYTES).digest()

    def write(self, address: str, message: bytes, now: int, is_for_anyone: bool = False) -> bytes | None:
        """A message behind its tickets. None: the ticket of that address is not known yet, so the message waits for it.

        `is_for_anyone`: it is a greeting to an address, for the member that is there, whatever it calls itself.
        """
        known = self._given.get(address)
        if known is not None:
            return PAIR.pack(self.ticket(address), known) + message
        waiting = self._waiting.pop(address, {})
        waiting.pop(message, None)
        waiting[message] = _Wait(now, is_for_anyone)
        while len(waiting) > WAITING_MESSAGES_MAX:
            del waiting[next(iter(waiting))]
        self._waiting[address] = waiting
        self._asked[self.ticket(address)] = address
        if len(self._waiting) > WAITING_ADDRESSES_MAX:
            self._take_waiting(next(iter(self._waiting)))
        self._questions[address] = None
        self.owes = True
        return None

    def read(self, sender: MemberId, data: memoryview, now: int) -> memoryview | str:
        """The message of a proven frame, empty if it has none; or why the frame is dropped: "" for a question."""
        if len(data) < PAIR.size:
            return "short control message"
        given, shown = PAIR.unpack_from(data)
        own, rest = self.ticket(sender.address), data[PAIR.size :]
        if shown == own:
            self._keep(sender.address, given)
            self._send_waiting(sender.address, sender.address, now)
            return rest
        if shown == NONE or rest:
            if 2 * self._own_bytes <= 2 * len(sender.address.encode()) + len(rest):  # never more than came, sealed too
                self._out.append((sender.address, PAIR.pack(own, given)))
                self.owes = True
            self.questions += shown == NONE
            return "" if shown == NONE else "unproven"
        asked = self._asked.get(shown)
        if asked is None:
            return "unasked"
        self._keep(sender.address, given)
        self._send_waiting(asked, sender.address, now)
        return rest

    def drain(self) -> list[tuple[str, bytes]]:
        """What is to be sent in control frames of their own: questions, answers, and messages that have waited."""
        out, self._out, self.owes = self._out, [], False
        for address in self._questions:
            out.append((address, PAIR.pack(self.ticket(address), NONE) + QUESTION_PADDING))
        self._questions.clear()
        return out

    def _keep(self, address: str, given: int) -> None:
        """The latest counts: it was given by the life that receives there now."""
        self._given.pop(address, None)
        if len(self._given) >= self._addresses_max:
            del self._given[next(iter(self._given))]
        self._given[address] = given

    def _take_waiting(self, address: str) -> dict[bytes, _Wait]:
        self._asked.pop(self.ticket(address), None)
        self._questions.pop(address, None)
        return self._waiting.pop(address, {})

    def _send_waiting(self, asked: str, address: str, now: int) -> None:
        if asked in self._waiting:
            head = PAIR.pack(self.ticket(address), self._given[address])
            self.owes = True
            for message, wait in self._take_waiting(asked).items():
                if now - wait.since <= WAITING_NS and (asked == address or wait.is_for_anyone):
                    self._out.append((address, head + message))


class _Wait(NamedTuple):
    """How a message waits for a ticket."""

    since: int
    is_for_anyone: bool


class Nonces:
    """One member's nonces: a new one each period, and an answer may repeat it or the one before.

    Without a secret there is one nonce, 0: for tests and models, whose messages cannot be recorded and sent again.
    """

    def __init__(self, secret: bytes, period_ns: int) -> None:
        self._secret = secret
        self._period_ns = period_ns

    def current(self, now: int) -> int:
        return self._of(now // self._period_ns)

    def is_recent(self, nonce: int, now: int) -> bool:
        period = now // self._period_ns
        return nonce in (self._of(period), self._of(period - 1))

    def _of(self, period: int) -> int:
        return _hash(period.to_bytes(8, "little", signed=True), self._secret) if self._secret else NONE


def _hash(data: bytes, secret: bytes) -> int:
    """64 bits, and never 0."""
    return int.from_bytes(blake2b(data, key=secret, digest_size=8).digest(), "little") or 1
