"""Reports by the ring: a token goes around the participants of a ballot, for the reports and for the cut (paper 002, section 3).

The ring is the participants in their order, from the proposer on and back to it. What a participant *does* with a ballot does not
depend on how it hears of it; only the way of the answers differs:

| star                                           | ring                                                                      |
|------------------------------------------------|---------------------------------------------------------------------------|
| Propose to each; each answers the proposer     | `RollCall` from hand to hand; each adds its answer and passes it on       |
| Flush to each                                  | `Decree` from hand to hand; missing packets come from the proposer itself |
| Confirm from each                              | each passes the decree on only when it has closed and could confirm       |

The token's generation is the ballot: one of a lower ballot is refused, and the proposer is told. Its round is its topic.

**A loss is repeated.** A member that passed a token on does so again and again, until something newer shows that it arrived: the
decree after the roll call, the install after the decree. So nothing is acknowledged hop by hop, and a change costs 3n
messages where the star costs 5n. A round that is not over after `answer_wait_ns` is finished **by star in the same
ballot**: the proposer asks those itself whose answers it lacks. Participants answer as often as they are asked, and always the
same (I1, I2), so it does not matter which of the two ways brings an answer first, or whether both do.

**A failure restarts.** A crash breaks the ring. Either the detector sees it, or the star finds out who is silent; both lead to a
higher ballot without that member, and its ring is whole.

**Why nothing else changes.** The proposer merges when it has every participant's answer to this ballot, and installs when every
one has confirmed it: the roll call that came around holds all answers, and a decree that came around was passed on by all, each
after it had closed. These are the only two facts that the invariants of `membership` ask of the star.

A payload goes to its addressees alone, and a token passes through every hand: so the decree names the cuts, and what
a member lacks of them goes to it directly, in a flush of its own, which the proposer sends as the decree sets out.
"""

from __future__ import annotations

from collections.abc import Iterable

from unisono.core.membership.chunks import IncomingChunks
from unisono.core.membership.context import Context
from unisono.core.types import MemberId, ViewId
from unisono.core.wire.control import DECREE, Chunk, Decree, Pull, RollCall


def ring_of(participants: Iterable[MemberId], proposer: MemberId) -> tuple[MemberId, ...]:
    """The participants in the order in which the token visits them, the proposer first."""
    line = sorted(participants)
    at = line.index(proposer)
    return tuple(line[at:] + line[:at])


def before(ring: tuple[MemberId, ...], member: MemberId) -> MemberId:
    return ring[ring.index(member) - 1]


def after(ring: tuple[MemberId, ...], member: MemberId) -> MemberId:
    return ring[(ring.index(member) + 1) % len(ring)]


class Ring:
    """One member's place in the ring: the token that is on its way to it, and the one that it passed on."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._coming: IncomingChunks | None = None
        self._from: MemberId | None = None
        self._taken: tuple[ViewId, int] | None = (
            None  # ballot and round of the last whole one: its chunks may come again
        )
        self._passed: tuple[ViewId, int, MemberId, bytes] | None = None  # ballot, round, to whom, token

    def take(self, sender: MemberId, chunk: Chunk) -> RollCall | Decree | None:
        """A chunk of a token; the token when it is whole."""
        context = self._context
        if context.is_too_large(chunk):
            return None
        coming, which = self._coming, (chunk.ballot, chunk.topic)
        if self._taken is not None and self._taken[0] == chunk.ballot and which <= self._taken:
            return None
        if coming is not None and which < (coming.ballot, coming.topic):
            return None
        if coming is None or (*which, chunk.total) != (coming.ballot, coming.topic, coming.total):
            coming = self._coming = IncomingChunks(chunk.ballot, chunk.topic, chunk.total)
        self._from = sender
        coming.add(chunk)
        if not coming.is_whole:
            self._pull(again=False)
            return None
        self._coming, self._taken = None, which
        token = context.codec.read(coming.bytes())
        if isinstance(token, Decree if chunk.topic == DECREE else RollCall):
            return token
        context.refuse("token")
        return None

    def pass_on(self, ballot: ViewId, topic: int, to: MemberId, token: RollCall | Decree) -> None:
        """Hand a token to the next one, and keep it until something newer comes."""
        self._passed = (ballot, topic, to, self._context.codec.encode(token))
        self._push()

    def has_passed(self, ballot: ViewId, topic: int) -> bool:
        return self._passed is not None and self._passed[:2] >= (ballot, topic)

    def pull(self, sender: MemberId, message: Pull) -> None:
        """Send the next chunks of the token to the member that it goes to next."""
        if self._passed is None or self._passed[:3] != (message.ballot, message.topic, sender):
            return
        self._context.send_chunks(sender, message.ballot, message.topic, self._passed[3], message.offset)

    def repeat(self) -> None:
        """Nothing newer has come for a while: what I passed on may be lost, or what comes to me."""
        if self._passed is not None:
            self._push()
        self._pull(again=True)

    def stop(self, ballot: ViewId) -> None:
        """That ballot begins here, or is installed: tokens of before are of no use any more."""
        self._passed = None
        if self._coming is not None and self._coming.ballot < ballot:
            self._coming = None

    def _push(self) -> None:
        assert self._passed is not None
        ballot, topic, to, data = self._passed
        self._context.send_chunk(to, ballot, topic, data)

    def _pull(self, again: bool) -> None:
        if self._coming is not None and self._from is not None:
            self._context.pull(self._from, self._coming, again)
