"""One ballot as its proposer sees it: collect answers, merge, fetch what is missing, send the cuts, count confirmations.

| state      | waits for                                  | then                                                              |
|------------|--------------------------------------------|-------------------------------------------------------------------|
| COLLECTING | an answer of every participant             | form the parts, and merge the reports of each                     |
| FETCHING   | packets that some member of a part lacks   | write the charter, send each its cut and exactly what it lacks    |
| CLOSING    | a confirmation of every participant        | the view is installed                                             |

**Parts.** A part is the members with the same previous view *and* the same cut that closed it. A member that has not closed yet
joins a part whose cut *covers* it, which means that its report was counted when that cut was merged: its report has not changed
since (I1), so the cut is as legal for it as for the members that closed. Members that no cut covers form one new part, whose cut is
merged now and named after this ballot. So a cut's name stands for one cut, and every member that closes with it was counted in it.

**Payloads.** A payload that no participant holds is void: its addressees get a placeholder. Where the cut is new, all that
it counts are here, so it is void for all of them. Where a cut is adopted, a holder of the payload may have closed with that
cut and be elsewhere. Story: 1. C casts m to A and B; A has it, B lacks it, E has a placeholder. 2. A's cut reaches A and E
alone, and A delivers m. 3. D, which hears neither A nor C, proposes to B and E: with A's cut B would take m for void, and
then meet A as a member that came along (P5). So an addressee adopts a void payload only if another addressee *closed* with
the cut: that one was asked, and has only the placeholder itself. Else the addressee stays **apart**, as if no cut covered
it, which is always legal, for it has not closed. The parts are formed again in the same ballot: no participant has been
told of them yet.

The charter never changes in a ballot: whatever changes, another ballot is needed.

**Patience.** A participant is given up after `answer_wait_ns` of silence, and asked `ASKED_MIN` times until then. With 16 % loss a
question and its answer get through in 70 % of all tries: if the time between tries doubled, there would be four, and of 300 crashes
in a group of five, five would cost a healthy member its place, too.

Answers and cuts travel by **star**, or by **ring** first and by star where that takes too long (`ring`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from unisono.core.membership import merge as merging
from unisono.core.membership import primary
from unisono.core.membership.chunks import IncomingChunks
from unisono.core.membership.collection import Star
from unisono.core.membership.context import Context
from unisono.core.membership.departures import Departures
from unisono.core.membership.merge import MergingPart
from unisono.core.membership.participant import lacking, lacking_count
from unisono.core.membership.states import BALLOT, BallotState, BallotStep, advance
from unisono.core.ordering import Report
from unisono.core.types import Batch, MemberId, Packet, Rank, Slot, View, ViewId
from unisono.core.views import packet_for
from unisono.core.wire import Charter, ClosingCut, Part
from unisono.core.wire.control import (
    ANSWER,
    CUT,
    FETCHED,
    Answer,
    Chunk,
    Decree,
    Fetch,
    Flush,
    Packets,
    Propose,
    Pull,
    RollCall,
)

ASKED_MIN = 8
"""A participant that does not answer is asked again this many times before it is given up."""


class PendingFetch(NamedTuple):
    """A fetch under way."""

    part: MergingPart
    holder: MemberId
    slots: tuple[Slot, ...]
    message: Fetch


class Ballot:
    """See the module's text. `failed` names participants without whom only another ballot can go on."""

    def __init__(
        self,
        context: Context,
        departures: Departures,
        collection: Star,
        ballot: ViewId,
        bases: Mapping[MemberId, ViewId | None],
        leavers: Iterable[MemberId],
        order: str,
    ) -> None:
        self._context = context
        self._departures = departures
        self._collection = collection
        self.id = ballot
        self.bases = dict(sorted(bases.items()))
        self.participants = tuple(self.bases)
        self.leavers = tuple(sorted(set(leavers)))
        self.switch = order  # "": stay with what there is
        self._state = BallotState.COLLECTING
        self.since = context.now
        self.failed: list[MemberId] = []
        self.charter: Charter | None = None
        self._answers: dict[MemberId, Answer] = {}
        self._hearsay: set[MemberId] = set()  # whose answers came with a token, through the hands of others
        self._has_nonsense = False  # a member has failed because of what it said
        self._incoming: dict[tuple[MemberId, int], IncomingChunks] = {}
        self._requests: dict[int, PendingFetch] = {}
        self._parts: list[MergingPart] = []
        self._apart: set[MemberId] = set()  # who adopts no cut, because payloads for it are not here
        self._topic = FETCHED
        self._flushes: dict[MemberId, bytes] = {}
        self._pulled: dict[MemberId, int] = {}  # how far each has asked for its cut
        self._confirmed: set[MemberId] = set()
        self._begin()

    @property
    def state(self) -> BallotState:
        return self._state

    def _step(self, step: BallotStep) -> None:
        self._state = advance(BALLOT, self._state, step)

    # Whom it waits for.

    def awaited(self) -> tuple[MemberId, ...]:
        if self._state is BallotState.COLLECTING:
            return tuple(member for member in self.participants if member not in self._answers)
        if self._state is BallotState.FETCHING:
            return tuple(sorted({request.holder for request in self._requests.values()}))
        return tuple(member for member in self.participants if member not in self._confirmed)

    def _begin(self) -> None:
        """A state begins: everyone has its time anew."""
        self._heard = dict.fromkeys(self.participants, self._context.now)
        self._retry_ns = self._first_retry_ns
        self.retry_at = self._context.now + self._retry_ns
        self._tell_ns = (
            self._context.settings.retry_ns
        )  # who has answered is told less and less often that this goes on
        self._tell_at = self._context.now + self._tell_ns
        if self._state is BallotState.COLLECTING:
            self._collection.begin_round()
            for member, base in self.bases.items():
                if self._collection.is_direct(member):
                    self._context.send(member, Propose(self.id, base, self.participants))
        elif self._state is BallotState.FETCHING:
            self._collection.end_round()
        else:
            self._collection.begin_round()
            lackers = {member for part in self._parts for member, slots in part.lacks.items() if slots}
            for member in self.participants:
                if self._collection.is_direct(member) or member in lackers:
                    self._push(member)
            self._collection.announce(self._decree())

    def _decree(self) -> Decree:
        assert self.charter is not None
        cuts = tuple((part.view.id, part.cut, tuple(sorted(part.lacks))) for part in self._parts)
        return Decree(self.charter, cuts)

    def come_around(self, sender: MemberId, token: RollCall | Decree) -> None:
        """The token is back: all have answered, or all have confirmed."""
        if isinstance(token, Decree):
            is_mine = self._state is BallotState.CLOSING and token.charter == self.charter
            if is_mine and self._collection.is_closed(sender):
                for member in self.participants[:]:
                    if member != self._context.id:  # I confirm to myself
                        self.confirm(member)
        elif self._state is BallotState.COLLECTING:
            for member, answer in self._collection.read_roll(sender, token):
                if member in self._answers:
                    continue
                self._hearsay.add(member)
                if answer is None:
                    self._fail(member, "answer")
                else:
                    self._take_answer(member, answer)

    @property
    def deadline(self) -> int:
        if self._collection.patient_until:
            return self._collection.patient_until
        waits = [self._heard[member] + self._context.settings.answer_wait_ns for member in self.awaited()]
        return min([self.retry_at, *waits])

    def tick(self) -> None:
        """Repeat what is not answered; give those up that were silent for too long."""
        now, settings = self._context.now, self._context.settings
        if now < self._collection.patient_until:
            return
        if (
            self._collection.patient_until
        ):  # the token is lost or slow: ask the rest, and give them the time that a star gives
            self._collection.end_round()
            self._heard = dict.fromkeys(self.participants, now)
            self.retry_at = now
        awaited = self.awaited()
        silent = [member for member in awaited if now - self._heard[member] >= settings.answer_wait_ns]
        self._give_up(silent)
        if self.failed or now < self.retry_at:
            return
        self._retry_ns = min(2 * self._retry_ns, settings.retry_ns_max, self._retry_ns_most)
        self.retry_at = now + self._retry_ns
        if now >= self._tell_at:
            self._tell_ns = min(2 * self._tell_ns, settings.retry_ns_max)
            self._tell_at = now + self._tell_ns
            for member in self.participants:  # who waits for others should know that this goes on
                if member not in awaited and member != self._context.id:
                    self._context.send(member, Propose(self.id, self.bases[member], self.participants))
        if self._state is BallotState.COLLECTING:
            for member in awaited:
                self._ask_again(member, ANSWER, Propose(self.id, self.bases[member], self.participants))
        elif self._state is BallotState.FETCHING:
            for topic, request in self._requests.items():
                self._ask_again(request.holder, topic, request.message)
        else:
            for member in awaited:
                self._push(member)

    def _ask_again(self, member: MemberId, topic: int, request: Propose | Fetch) -> None:
        incoming = self._incoming.get((member, topic))
        if incoming is None or not self._context.pull(member, incoming, again=True):
            self._context.send(member, request)

    @property
    def _first_retry_ns(self) -> int:
        return min(self._context.settings.retry_ns, self._retry_ns_most)

    @property
    def _retry_ns_most(self) -> int:
        return max(1, self._context.settings.answer_wait_ns // ASKED_MIN)

    def _push(self, member: MemberId) -> None:
        self._context.send_chunk(member, self.id, CUT, self._flushes[member])

    # What comes in.

    def take_chunk(self, sender: MemberId, chunk: Chunk) -> None:
        """A part of an answer, or of packets that were fetched."""
        expected = sender in self.awaited() and (chunk.topic == ANSWER) is (self._state is BallotState.COLLECTING)
        if not expected or (chunk.topic != ANSWER and chunk.topic not in self._requests):
            return
        if chunk.topic != ANSWER and self._requests[chunk.topic].holder != sender:
            return
        if self._context.is_too_large(chunk):
            return
        incoming = self._incoming.get((sender, chunk.topic))
        if incoming is None or incoming.total != chunk.total:
            incoming = self._incoming[sender, chunk.topic] = IncomingChunks(self.id, chunk.topic, chunk.total)
        if incoming.add(chunk):
            self._heard[sender] = self._context.now
            self._retry_ns = self._first_retry_ns  # it moves: wait for the rest as for the first chunk
            self.retry_at = min(self.retry_at, self._context.now + self._retry_ns)
        if not incoming.is_whole:
            self._context.pull(sender, incoming)
            return
        del self._incoming[sender, chunk.topic]
        body = self._context.codec.read(incoming.bytes())
        if isinstance(body, Answer):
            self._take_answer(sender, body)
        elif isinstance(body, Packets) and chunk.topic != ANSWER:
            self._take_packets(sender, chunk.topic, body)
        else:
            self._fail(sender, "chunks")

    def pull(self, sender: MemberId, message: Pull) -> None:
        if self._state is BallotState.CLOSING and message.topic == CUT and sender in self._flushes:
            if message.offset > self._pulled.get(sender, -1):  # who asks for the same again and again does not get on
                self._pulled[sender] = message.offset
                self._heard[sender] = self._context.now
            self._context.send_chunks(sender, self.id, CUT, self._flushes[sender], message.offset)

    def confirm(self, sender: MemberId) -> None:
        if self._state is BallotState.CLOSING and sender in self._flushes:
            self._confirmed.add(sender)
            self._heard[sender] = self._context.now
            if self.is_complete():
                self._step(BallotStep.FINISH)

    def is_complete(self) -> bool:
        return len(self._confirmed) == len(self.participants)

    def _fail(self, member: MemberId, reason: str) -> None:
        self._context.refuse(reason)
        self._has_nonsense = True
        if member not in self.failed:
            self._give_up([member])

    def _give_up(self, members: Sequence[MemberId]) -> None:
        if members:
            self._step(BallotStep.FAIL)
            self.failed += members

    def begins_anew(self) -> bool:
        """Ask everyone directly if the token carried something impossible: any member on its way may have changed it."""
        if not self._has_nonsense or not self._hearsay:
            return False
        for member in self._hearsay:
            self._answers.pop(member, None)
        self._hearsay.clear()
        self.failed.clear()
        self._requests.clear()
        self._has_nonsense = False
        self._collection = Star()
        self._step(BallotStep.ASK_DIRECTLY)
        self._begin()
        return True

    # Collect and merge.

    def _take_answer(self, sender: MemberId, answer: Answer) -> None:
        in_view = sender in answer.members and answer.order in self._context.orders
        if answer.view != self.bases[sender] or (answer.view is not None and not in_view):
            self._fail(sender, "answer")
            return
        self._answers[sender] = answer
        if len(self._answers) == 1 and sender == self._context.id:
            self._collection.call_roll(answer)
        if len(self._answers) == len(self.participants):
            self._form_parts()

    def _form_parts(self) -> None:
        """Form the parts of the next view from the answers, and fetch what their members lack."""
        self._parts = []
        for members in self._by_view().values():
            self._form_parts_of_view(members)
        if not self.failed:
            self._fetch()

    def _by_view(self) -> dict[ViewId, dict[MemberId, Answer]]:
        result: dict[ViewId, dict[MemberId, Answer]] = {}
        for member, answer in sorted(self._answers.items()):
            if answer.view is not None:
                result.setdefault(answer.view, {})[member] = answer
        return result

    def _form_parts_of_view(self, answers: Mapping[MemberId, Answer]) -> None:
        """Form the parts of one view: one for each cut that a member closed with, and one for members that no cut covers."""
        some = answers.get(self._context.id) or next(iter(answers.values()))
        view, order = View(some.view, some.members), some.order  # type: ignore[arg-type]
        reports = self._reports(view, order, answers)
        if not self.failed:
            for member in merging.find_impossible(self._context, view, reports):
                self._fail(member, "report")
        if self.failed:
            return
        parts: dict[ViewId, MergingPart] = {}
        rest: dict[MemberId, Answer] = {}
        for member, answer in answers.items():
            if answer.closed is None:
                rest[member] = answer
                continue
            part = parts.get(answer.closed.id)
            if part is None:
                wanted = self._context.order_codec(order).decode(answer.closed.cut, view.rank_of(member), len(view))
                if type(wanted) is not self._context.orders[order].cut_wire.type:
                    self._fail(member, "cut")
                    return
                part = parts[answer.closed.id] = MergingPart(view, order, answer.closed, wanted)  # type: ignore[arg-type]
                most = max(lacking_count(report.held, part.wanted) for report in reports.values())
                if most > self._context.settings.missing_max:
                    self._fail(member, "cut")
                    return
            part.lacks[member] = []
        uncovered = {member for member in rest if not self._adopt(view.rank_of(member), member, parts, reports)}
        self._parts += parts.values()
        if uncovered:
            merged = self._merge(view, order, {m: reports[m] for m in sorted(uncovered)})
            if merged is None:
                return
            self._parts.append(merged)
        for part in self._parts:
            if part.view.id == view.id:
                merging.find_holders(part, self._context.id)

    def _reports(self, view: View, order: str, answers: Mapping[MemberId, Answer]) -> dict[MemberId, Report]:
        reports: dict[MemberId, Report] = {}
        for member, answer in answers.items():
            if (answer.members, answer.order) != (view.members, order):  # before its rank is asked for
                self._fail(member, "report")
                continue
            report = self._context.order_codec(order).decode(answer.report, view.rank_of(member), len(view))
            if type(report) is not self._context.orders[order].report_wire.type:
                self._fail(member, "report")
            else:
                reports[member] = report  # type: ignore[assignment]
        return reports

    def _adopt(
        self, rank: Rank, member: MemberId, parts: Mapping[ViewId, MergingPart], reports: Mapping[MemberId, Report]
    ) -> bool:
        """Put a member that has not closed into the part of the latest cut that covers it."""
        if member in self._apart:
            return False
        covering = [part for _, part in sorted(parts.items()) if rank in part.cut.covered]
        if covering:
            covering[-1].lacks[member] = lacking(reports[member].held, covering[-1].wanted)
        return bool(covering)

    def _merge(self, view: View, order: str, reports: Mapping[MemberId, Report]) -> MergingPart | None:
        by_rank = {view.rank_of(member): report for member, report in reports.items()}
        cut = merging.try_merge(self._context, view, order, by_rank)
        if cut is None:
            for rank in merging.find_culprits(self._context, view, order, by_rank):
                self._fail(view.members[rank], "report")
            return None
        data = self._context.order_codec(order).encode(cut)  # type: ignore[arg-type]
        part = MergingPart(view, order, ClosingCut(self.id, tuple(sorted(by_rank)), data), cut)
        part.lacks = {member: lacking(report.held, cut) for member, report in reports.items()}
        return part

    # Fetch.

    def _fetch(self) -> None:
        """Ask for what is missing. When nothing is, write the charter, or form the parts again if a member must stay apart."""
        if self._state is not BallotState.FETCHING:
            self._step(BallotStep.MERGE)
            self._begin()
        for part in self._parts:
            busy = {request.holder for request in self._requests.values()}  # each is asked for one thing at a time
            by_holder: dict[MemberId, list[Slot]] = {}
            for slot, holders in part.asking.items():
                if holders[0] not in busy:
                    by_holder.setdefault(holders[0], []).append(slot)
            for holder, slots in sorted(by_holder.items()):
                some, asked = merging.first_ranges(slots)  # the rest follows when these are here
                message = Fetch(self.id, self._topic, part.view.id, asked)
                self._requests[self._topic] = PendingFetch(part, holder, some, message)
                self._topic += 1
                self._heard[holder] = self._context.now
                self._context.send(holder, message)
        if self._requests:
            return
        bereft = self._find_bereft()
        if bereft:
            self._apart |= bereft
            self._form_parts()
        else:
            self._write()

    def _find_bereft(self) -> set[MemberId]:
        closed = {member for member, answer in self._answers.items() if answer.closed is not None}
        return {member for part in self._parts for member in merging.find_bereft(part, closed)}

    def _take_packets(self, sender: MemberId, topic: int, body: Packets) -> None:
        part, holder, slots, _ = self._requests.pop(topic)
        codec, size = self._context.order_codec(part.order), len(part.view)
        came: dict[Slot, Packet | None] = {
            (origin, number): codec.decode(data, origin, size) for origin, number, data in body.packets if origin < size
        }
        numbered = self._context.orders[part.order].numbered
        if any(type(packet) not in numbered or packet.number != slot[1] for slot, packet in came.items()):  # type: ignore[union-attr]
            self._fail(holder, "packets")  # what a correct member retains is of its slot
            return
        for slot in slots:
            packet = came.get(slot)
            others = part.asking[slot][1:]
            if packet is not None:
                batch: Batch | None = getattr(packet, "batch", None)
                if slot not in part.packets or (batch is not None and batch.payloads is not None):
                    part.packets[slot] = packet
                if batch is not None and batch.payloads is None and batch.to is not None:
                    # A placeholder: ask those whom it is addressed to. If none of them holds it, the payload is void.
                    others = [m for m in others if part.view.rank_of(m) in batch.to or part.view.rank_of(m) == slot[0]]
                else:
                    others = []
            elif came:
                continue  # it did not fit into one answer: ask the same holder again
            if others:
                part.asking[slot] = others
            else:
                del part.asking[slot]
                if slot not in part.packets:
                    self._fail(holder, "packets")
        if not self.failed:
            self._fetch()

    # Charter and cuts.

    def _write(self) -> None:
        """Everything is here: say what the view will be, and send each participant what it needs to get there."""
        members = tuple(member for member in self.participants if member not in self.leavers)
        parts = []
        for part in self._parts:
            along = tuple(member for member in sorted(part.lacks) if member not in self.leavers)
            if along:
                leavers = tuple(member for member in sorted(part.lacks) if member in self.leavers)
                parts.append(Part(part.view.id, part.cut.id, along, leavers))
        judged = self._judge(members, parts)
        order, views = self._choose_order(), [part.view for part in self._parts]
        gone = self._departures.write(views, self.participants, self.leavers)
        self.charter = Charter(
            self.id,
            members,
            self.leavers,
            order,
            tuple(parts),
            judged.is_primary,
            judged.supersedes,
            gone,
            judged.has_state,
            judged.state,
            judged.holders,
            judged.lost,
        )
        for member in self.participants:
            self._flushes[member] = self._context.codec.encode(self._flush_for(member))
        self._step(BallotStep.ANNOUNCE)
        self._begin()

    def _judge(self, members: Sequence[MemberId], parts: Sequence[Part]) -> primary.Judgement:
        """Whether the view is primary, and who carries the state into it."""
        if self._context.settings.policy != "primary" or not members:
            return primary.Judgement(False)
        return primary.judge(members, self._answers, parts, self._context.peers)

    def _flush_for(self, member: MemberId) -> Flush:
        assert self.charter is not None
        part = next((part for part in self._parts if member in part.lacks), None)
        if part is None:
            return Flush(self.charter, None, None, ())
        rank, codec = part.view.rank_of(member), self._context.order_codec(part.order)
        missing = tuple((*slot, codec.encode(packet_for(part.packets[slot], rank))) for slot in part.lacks[member])
        return Flush(self.charter, part.view.id, part.cut, missing)

    def _choose_order(self) -> str:
        """Take the order that a switch asks for; else that of the largest part, and among equals of the lowest member."""
        if self.switch:
            return self.switch
        sizes: dict[ViewId, int] = {}
        for answer in self._answers.values():
            if answer.view is not None:
                sizes[answer.view] = sizes.get(answer.view, 0) + 1
        seated = [(-sizes[a.view], member, a.order) for member, a in self._answers.items() if a.view is not None]
        return min(seated)[2] if seated else self._context.order
