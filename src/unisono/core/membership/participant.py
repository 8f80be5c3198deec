"""A participant of view changes: promises ballots, reports, closes, confirms, installs.

Its states and steps are those of `states.PARTICIPANT`. See `membership` for the argument.
"""

from __future__ import annotations

from collections.abc import Sequence

from unisono.core.errors import PeerFault
from unisono.core.membership import primary
from unisono.core.membership.chunks import IncomingChunks
from unisono.core.membership.context import Context, Installed, Left
from unisono.core.membership.departures import Departures
from unisono.core.membership.ring import Ring, after, before, ring_of
from unisono.core.membership.states import PARTICIPANT, ParticipantState, ParticipantStep, advance
from unisono.core.ordering import Cut
from unisono.core.types import MemberId, Packet, Slot, View, ViewId
from unisono.core.wire import Charter, ClosingCut, HeldState, Standing, part_of
from unisono.core.wire.control import (
    ANSWER,
    CUT,
    DECREE,
    FETCHED,
    ROLL,
    Answer,
    Chunk,
    Confirm,
    Decree,
    Fetch,
    Flush,
    Moved,
    Outbid,
    Packets,
    Propose,
    Pull,
    Quorum,
    RollCall,
)

LIES_MAX = 2
"""A proposer whose cuts cannot be is not followed any more after this number of ballots in a view."""

UNENGAGED = (ParticipantState.IDLE, ParticipantState.GONE)


class Participant:
    """The state of one member in its view and, while that is flushed, in the ballots that want to end it."""

    def __init__(self, context: Context, ring: Ring, departures: Departures, standing: Standing) -> None:
        self._context = context
        self._ring = ring
        self._departures = departures
        self._state = ParticipantState.IDLE
        self.view: View | None = None
        self.order = context.order
        self.charter: Charter | None = None  # of the view
        known = (standing.last, *standing.attempts)  # of an earlier life too: later primaries have higher numbers
        self._floor = max((quorum.view.number for quorum in known if quorum is not None), default=0)
        self.promised = ViewId(self._floor, context.id)  # the highest ballot answered; lower ones are refused
        self.progress_at = 0  # when the promised ballot moved last
        self.repeat_at = 0  # when to ask again
        self._repeats = 0
        self.closed: ClosingCut | None = None  # the cut that closed the view: one, and for good (I2)
        self.confirmed: dict[ViewId, Charter] = {}  # since the view was installed
        self.standing = standing
        self.holds: HeldState | None = None
        """The state of the latest primary that the application has, as the service that carries it says. What it becomes with a
        view is known here first, and a ballot may ask for it in the same turn."""
        self.is_torn = False
        """What came here in this view cannot all be true; with the next view everything begins anew."""
        self.is_leaving = False
        self._report: bytes | None = None  # made once a view (I1)
        self._held: tuple[int, ...] = ()
        self._handed: dict[Slot, Packet] = {}  # what the cut brought, for others who still miss it
        self._forsaken: ViewId | None = None  # a ballot of which I know that its proposer has given it up
        self._answer = b""
        self._flush: IncomingChunks | None = None
        self._refused: ViewId | None = None  # a ballot whose cut does not fit here
        self.nonsense: dict[MemberId, int] = {}  # by proposer: how many of its cuts could not be, in this view
        self._decree: Decree | None = None  # waits here until I have closed
        self._served: dict[MemberId, tuple[ViewId, int, bytes]] = {}  # the last fetch of each proposer

    @property
    def state(self) -> ParticipantState:
        return self._state

    @property
    def is_engaged(self) -> bool:
        """Whether a ballot was answered, and no view was installed since."""
        return self._state not in UNENGAGED

    @property
    def is_gone(self) -> bool:
        return self._state is ParticipantState.GONE

    def _step(self, step: ParticipantStep) -> None:
        self._state = advance(PARTICIPANT, self._state, step)

    @property
    def base(self) -> ViewId | None:
        return None if self.view is None else self.view.id

    @property
    def latest(self) -> ViewId | None:
        """The last ballot that was confirmed here and not installed."""
        return max(self.confirmed, default=None)

    @property
    def is_forsaken(self) -> bool:
        """Whether the ballot that I promised came to nothing: its proposer is in a higher view."""
        return self._forsaken == self.promised

    def notice(self, member: MemberId, view: ViewId | None) -> None:
        """A member is in that view."""
        if view is not None and member == self.promised.proposer and view > self.promised:
            self._forsaken = self.promised

    # What it is told.

    def hold(self, state: HeldState | None) -> None:
        """The application has this state of a primary; None: it has none."""
        self.holds = state

    def give_up(self, state: ViewId) -> None:
        """An operator gives up the state of a primary that no member here has."""
        self.standing = self.standing._replace(given_up=state)
        self._context.persist(self.standing)

    def doubt_view(self) -> None:
        """What came here in this view contradicts itself."""
        self.is_torn = True

    def leave(self) -> None:
        """This member wants to leave with the next view; before it has a view, it goes at once."""
        self.is_leaving = True
        if self.view is None and not self.is_gone:
            self._withdraw()

    @property
    def can_be_primary(self) -> bool:
        """Whether the view lacks a state to be primary that was given up here since, or that is here after all."""
        charter = self.charter
        lost = None if charter is None or charter.primary else charter.lost
        is_here = lost is not None and self.holds is not None and self.holds.view == lost.view
        return lost is not None and (is_here or lost.view == self.standing.given_up)

    # Promise and report.

    def propose(self, sender: MemberId, message: Propose, roll: RollCall | None = None) -> bool:
        """Answer a proposal, to its proposer or on the roll call that brought it; True if a new ballot was promised."""
        context, ballot = self._context, message.ballot
        if (
            ballot.proposer != sender
            or context.id not in message.participants
            or not one_life_each(message.participants)
        ):
            context.refuse("proposal")
            return False
        if message.base != self.base and message.base in self.confirmed:
            self.install(message.base)  # the proposer knows a member that is in it, so it was installed
            if self.is_gone:
                return False
        if message.base != self.base:
            context.send(sender, Moved(ballot, self.base))
            return False
        is_new = ballot > self.promised or not self.is_engaged
        if ballot < self.promised or (is_new and ballot.number <= self._floor):
            context.send(sender, Outbid(ballot, self.promised))
            return False
        if is_new:
            self._step(ParticipantStep.ANSWER)
            self.promised = ballot
            self._advance()
            self._flush = None
            self._decree = None
            self._ring.stop(ballot)
            self._answer = context.codec.encode(self._make_answer())
        else:
            self._advance()  # the proposer is at work, for instance with fetching much from others
        if roll is None:
            context.send_chunk(sender, ballot, ANSWER, self._answer)
        else:
            self._pass_roll(ballot, roll)
        return is_new

    def called(self, sender: MemberId, chunk: Chunk, roll: RollCall) -> Propose | None:
        """What a roll call proposes; None if it is not my turn on it."""
        bases = dict(roll.bases)
        proposer = chunk.ballot.proposer
        if proposer in bases and self._context.id in bases:
            ring = ring_of(bases, proposer)
            mine = ring.index(self._context.id)
            if (
                len(bases) == len(roll.bases)
                and 0 < mine == len(roll.answers)
                and sender == before(ring, self._context.id)
            ):
                return Propose(chunk.ballot, bases[self._context.id], tuple(bases))
        self._context.refuse("roll call")
        return None

    def _pass_roll(self, ballot: ViewId, roll: RollCall) -> None:
        answer = self._make_answer()
        views = dict(roll.views)
        if answer.view is not None:
            views.setdefault(answer.view, answer.members)
        mine = self._context.codec.encode(answer._replace(members=()))
        to = after(ring_of(dict(roll.bases), ballot.proposer), self._context.id)
        self._ring.pass_on(ballot, ROLL, to, RollCall(roll.bases, tuple(views.items()), (*roll.answers, mine)))

    def _make_answer(self) -> Answer:
        members: tuple[MemberId, ...] = ()
        if self.view is not None:
            members = self.view.members
            if self._report is None:
                report = self._context.engine.block()
                self._held = report.held
                self._report = self._context.order_codec(self.order).encode(report)  # type: ignore[arg-type]
        return Answer(
            self.base,
            members,
            self.order,
            self._report or b"",
            self.closed,
            self.is_leaving,
            self._context.settings.bootstrap,
            self.standing,
            self._context.settings.has_state,
            self._held_states(),
        )

    def _held_states(self) -> tuple[HeldState, ...]:
        """The states of primaries that the application has here: of installed ones, and of those confirmed as a holder."""
        states = [
            HeldState(one.id) for one in self.confirmed.values() if one.primary and self._context.id in one.holders
        ]
        return tuple(states) if self.holds is None else (self.holds, *states)

    def pull(self, sender: MemberId, message: Pull) -> None:
        """Go on with the answer, with a token, or with packets that were fetched."""
        if message.topic in (ROLL, DECREE):
            self._ring.pull(sender, message)
            return
        if message.topic == ANSWER and message.ballot == self.promised and sender == message.ballot.proposer:
            data = self._answer
        else:
            ballot, topic, data = self._served.get(sender, (None, -1, b""))
            if (ballot, topic) != (message.ballot, message.topic):
                return
        self._advance()
        self._context.send_chunks(sender, message.ballot, message.topic, data, message.offset)

    def fetch(self, sender: MemberId, message: Fetch) -> None:
        """Send the proposer packets of the view that is being flushed."""
        view, context = self.view, self._context
        if view is None or message.view != view.id or message.ballot != self.promised or message.topic < FETCHED:
            return
        if sender != message.ballot.proposer:  # a payload is for its addressees and the proposer alone
            return
        self._advance()
        codec = context.order_codec(self.order)
        found: list[tuple[int, int, bytes]] = []
        room = context.settings.chunked_bytes_max - 64
        for origin, first, last in message.ranges:
            if origin >= len(view):
                continue
            for number in range(first, last + 1):
                packet = self._packet((origin, number))
                if packet is None:
                    break  # what is held of an origin is a prefix
                data = codec.encode(packet)
                room -= len(data) + 10
                if room < 0 and found:
                    break
                found.append((origin, number, data))
        data = context.codec.encode(Packets(tuple(found)))
        self._served[sender] = (message.ballot, message.topic, data)
        context.send_chunks(sender, message.ballot, message.topic, data, 0)

    def _packet(self, slot: Slot) -> Packet | None:
        handed = self._handed.get(slot)
        return handed if handed is not None else self._context.engine.retained(slot)

    # Close and confirm.

    def flush(self, sender: MemberId, chunk: Chunk) -> None:
        """Take in what closes the view, and confirm when it is whole."""
        context = self._context
        if chunk.ballot < self.promised:
            context.send(sender, Outbid(chunk.ballot, self.promised))
        if chunk.ballot != self.promised or sender != chunk.ballot.proposer:
            return
        if chunk.ballot in self.confirmed:
            context.send(sender, Confirm(chunk.ballot))
            return
        if chunk.ballot == self._refused:
            return
        if not self.is_engaged:
            context.send(sender, Moved(chunk.ballot, self.base))  # a view was installed since the answer
            return
        if context.is_too_large(chunk):
            return
        if self._flush is None or self._flush.total != chunk.total:
            self._flush = IncomingChunks(chunk.ballot, CUT, chunk.total)
        incoming = self._flush
        if incoming.add(chunk):
            self._advance()
        if not incoming.is_whole:
            context.pull(sender, incoming)
            return
        self._flush = None
        flush = context.codec.read(incoming.bytes())
        if isinstance(flush, Flush) and self._close(flush):
            self._confirm(flush.charter)
        else:
            self._refused = chunk.ballot  # once is enough: it would not fit the next time either
            context.refuse("flush")
            if not isinstance(flush, Flush) or (flush.view, self.closed) == (self.base, None):
                self.nonsense[sender] = self.nonsense.get(sender, 0) + 1

    def has_seen(self, chunk: Chunk) -> bool:
        """Whether a token is nothing for me: it is of a ballot that I have left behind, or I have passed it on."""
        ballot = chunk.ballot
        if ballot < self.promised:
            self._context.send(ballot.proposer, Outbid(ballot, self.promised))
            return True
        if chunk.topic == DECREE and (ballot != self.promised or not self.is_engaged):
            return True
        return ballot == self.promised and self._ring.has_passed(ballot, chunk.topic)

    def decree(self, sender: MemberId, ballot: ViewId, decree: Decree) -> None:
        """Close as the decree says; what I lack for it is on its way to me from the proposer."""
        charter, context = decree.charter, self._context
        everyone = charter.members + charter.leavers
        fits = charter.id == ballot and {context.id, ballot.proposer} <= set(everyone)
        if not fits or sender != before(ring_of(everyone, ballot.proposer), context.id):
            context.refuse("decree")
            return
        self._advance()
        self._decree = decree
        if ballot in self.confirmed:
            self._pass_decree()
            return
        view, cut = next(((view, cut) for view, cut, members in decree.cuts if context.id in members), (None, None))
        if self._close(Flush(charter, view, cut, ())):
            self._confirm(charter)

    def _pass_decree(self) -> None:
        """I have closed: the next one."""
        decree, self._decree = self._decree, None
        assert decree is not None
        charter = decree.charter
        ring = ring_of(charter.members + charter.leavers, charter.id.proposer)
        self._ring.pass_on(charter.id, DECREE, after(ring, self._context.id), decree)

    def _close(self, flush: Flush) -> bool:
        """Close the view as the cut says; if it is closed, only check that this is the same cut. False: it does not fit."""
        charter = flush.charter
        mine = charter.members + charter.leavers
        if flush.view != self.base or charter.id != self.promised or self._context.id not in mine:
            return False
        if charter.order not in self._context.orders or not self._is_sound(flush):
            return False
        if self.view is None or flush.cut is None:
            return self.view is None and flush.cut is None
        if self.closed is not None:
            return self.closed.id == flush.cut.id
        rank, size = self.view.rank_of(self._context.id), len(self.view)
        codec = self._context.order_codec(self.order)
        cut = codec.decode(flush.cut.cut, rank, size)
        if type(cut) is not self._context.orders[self.order].cut_wire.type or rank not in flush.cut.covered:
            return False
        missing: dict[Slot, Packet] = {}
        for origin, number, data in flush.missing:
            packet = codec.decode(data, origin, size) if origin < size else None
            if packet is None:
                return False
            missing[origin, number] = packet
        if len(missing) != lacking_count(self._held, cut) or missing.keys() != set(lacking(self._held, cut)):  # type: ignore[arg-type]
            return False
        try:
            self._context.engine.close(cut, missing)  # type: ignore[arg-type]
        except PeerFault:  # nothing has changed; the proposer lied, or it believes one that lied
            return False
        self.closed = flush.cut
        self._handed = missing
        return True

    def _is_sound(self, flush: Flush) -> bool:
        """Whether the charter says of me what the cut does, and names holders only if they bring one state into a primary."""
        charter = flush.charter
        if not one_life_each(charter.members + charter.leavers):
            return False
        if self._context.id in charter.members:
            part = part_of(charter, self._context.id)
            mine = None if part is None else (part.view, part.cut)
            if mine != (None if flush.view is None or flush.cut is None else (flush.view, flush.cut.id)):
                return False
        if charter.primary and self._context.settings.policy != "primary":
            return False
        if not charter.holders:
            return True
        brought = part_of(charter, charter.holders[0])
        return charter.primary and brought is not None and set(charter.holders) <= set(brought.members)

    def _confirm(self, charter: Charter) -> None:
        context = self._context
        self._step(ParticipantStep.CONFIRM)
        if charter.primary:
            self.standing = primary.confirmed(self.standing, quorum_of(charter))
            context.persist(self.standing)
        self.confirmed[charter.id] = charter
        self._floor = charter.id.number  # the next view has a higher number than any that may exist by now
        self._advance()
        if self._decree is not None:
            self._pass_decree()  # that it goes on says that I have confirmed
        else:
            context.send(charter.id.proposer, Confirm(charter.id))

    def _advance(self) -> None:
        """The ballot moves."""
        self.progress_at = self._context.now
        self._repeats = 0
        self.repeat_at = self._context.now + self._context.settings.retry_ns

    def tick(self) -> None:
        """Ask again: for the rest of the cut, or for the install; after some tries everyone, not the proposer alone."""
        context = self._context
        if not self.is_engaged or context.now < self.repeat_at:
            return
        self._repeats += 1
        wait = min(context.settings.retry_ns << min(self._repeats, 10), context.settings.retry_ns_max)
        self.repeat_at = context.now + wait
        self._ring.repeat()
        if self._flush is not None:
            context.pull(self.promised.proposer, self._flush, again=True)
        elif self._decree is not None:
            context.send(self.promised.proposer, Pull(self.promised, CUT, 0))
        latest = self.latest
        if latest is not None:
            charter = self.confirmed[latest]
            everyone = dict.fromkeys((latest.proposer, *charter.members)) if self._repeats > 2 else (latest.proposer,)
            for member in everyone:
                if member != context.id:
                    context.send(member, Confirm(latest))

    # Install.

    def knows_installed(self, view: ViewId | None) -> bool:
        """A member has this view: if it was confirmed here, install it, however late. True if so."""
        if view is None or view not in self.confirmed:
            return False
        self.install(view)
        return True

    def _withdraw(self) -> None:
        """Go before there was a view: whatever was promised or confirmed, nothing is installed here any more (I4)."""
        self._step(ParticipantStep.LEAVE)
        self.confirmed = {}
        self._context.show(Left())

    def install(self, ballot: ViewId) -> None:
        context, charter = self._context, self.confirmed[ballot]
        previous, part = self.view, part_of(charter, context.id)
        assert previous is None or ballot.number > previous.id.number, "view numbers rise (I5)"
        is_leaver = context.id in charter.leavers
        self._step(ParticipantStep.LEAVE if is_leaver else ParticipantStep.INSTALL)
        self.confirmed = {}
        self._flush = None
        self._decree = None
        self._ring.stop(ballot)
        self._answer = b""
        self.promised = max(self.promised, ballot)
        self._advance()
        self.charter = charter
        if is_leaver:
            along = next((part.members for part in charter.parts if context.id in part.leavers), ())
            if previous is not None:
                context.installer.depart((context.id, *along), charter.primary or context.settings.policy != "primary")
            context.show(Left())
            return
        is_kept = True
        if context.settings.has_state:
            is_first = charter.primary and not charter.holders  # each member has all there is
            is_kept = is_first or primary.is_carried(charter, context.id, self.holds)
            self.holds = primary.carry(charter, context.id, self.holds) if is_kept else None
        if charter.primary:
            self.standing = primary.installed(self.standing, quorum_of(charter))
            context.persist(self.standing)
        self.view = View(charter.id, charter.members)
        self._departures.installed(charter, None if previous is None else previous.id)
        self._floor = ballot.number
        self.order = charter.order
        self.is_torn = False
        self.nonsense = {}
        self.closed = None
        self._report = None
        self._handed = {}
        self._served = {}
        attributes: dict[str, object] = {}
        transitional: Sequence[MemberId] = (context.id,)
        if part is not None:
            attributes["cut"] = str(part.cut)
            transitional = part.members
        if charter.order != context.order:
            attributes["order"] = charter.order
        if context.settings.policy == "primary":
            attributes["primary"] = charter.primary
            if charter.primary and charter.supersedes:
                attributes["previous_primary"] = ",".join(map(str, charter.supersedes))
            if charter.primary and context.settings.has_state:
                attributes |= _state_attributes(charter, context.id) | {"carries": is_kept}
        parts = tuple(dict.fromkeys(part.view for part in charter.parts))
        context.installer.install(self.view, previous, transitional, parts, self.order, attributes)
        context.show(Installed(charter))


def quorum_of(charter: Charter) -> Quorum:
    """What a member remembers of a primary."""
    state = None if charter.state is None else charter.state.view
    return Quorum(charter.id, charter.members, state, charter.has_state)


def _state_attributes(charter: Charter, member: MemberId) -> dict[str, object]:
    """Which state a primary begins with, for the trace."""
    told: dict[str, object] = {"holds": member in charter.holders}
    if charter.lost is not None:
        told["abandons"] = str(charter.lost.view)
    if charter.holders:
        part = part_of(charter, charter.holders[0])
        assert part is not None, "a holder comes from a view"
        told["state"] = f"{part.view}/{part.cut}"
    return told


def one_life_each(members: Sequence[MemberId]) -> bool:
    """Whether no two of these are lives of one process."""
    return len({member.address for member in members}) == len(members)


def lacking_count(held: Sequence[int], cut: Cut) -> int:
    """How many slots that is; a cut that cannot be may want more than there are numbers for."""
    return sum(max(last - held[origin], 0) for origin, last in enumerate(cut.wanted))


def lacking(held: Sequence[int], cut: Cut) -> list[Slot]:
    """The slots of the cut that a member lacks that holds this much."""
    return [(origin, number) for origin, last in enumerate(cut.wanted) for number in range(held[origin] + 1, last + 1)]
