"""State transfer to joiners, and the merge of states after a partition, on top of a whole member.

    member ─ events ─▶ Transfer.take ─▶ application.show · snapshot · restore · merge, in the order of the stream
       ▲                     │
       └──── send (asides) ──┘

A `Transfer` is made of parts that know nothing of each other: the application's **position** in the member's stream of events
(`Position`), the **backlog** of events beyond it (`Backlog`), the state that is being **fetched** (`StateFetch`), the snapshots
that are **given** (`Donor`), and a **merge** under way (`Merge`). A member

- **waits**: it has no state. It holds everything back from its first view on, and asks for a state;
- **merges**: its state is that of the beginning of a view that joins several parts. It holds that view back, and asks for the
  **bases**: the states of the other parts at that point;
- **is live**: it has a state and holds nothing back.

**Joining.** A waiting member asks the members of the view one after the other, beginning with the largest part. A live member
takes a snapshot; its **point** is (view, frontier), where the frontier is the next message of each origin. The asker restores the
snapshot, drops what it holds of earlier views and below the frontier, shows the view, then the rest, and is live. Nothing is lost
or duplicated: both members installed that view, and within a service an origin's messages arrive in the order of their index. If
the view changes meanwhile and the two come along together, they deliver the same messages until its end (virtual synchrony), so
the transfer continues at the offset reached. Otherwise another donor offers a snapshot at its own point. One more rule is needed:

T5  A state is restored only when everything in it was delivered to the asker's member too. Otherwise: 1. A casts m, and in fifo
    or causal order delivers it at once. 2. A gives J a snapshot that includes m, and crashes; m reached no other member. 3. The
    cut does not include m: J has it in its state, and B does not. So J waits for m; if the view ends without it, J asks B.

**Merging.** When a charter names several parts, each live member of a part takes its own snapshot, the base of its part, and
fetches the others. With all of them, `merge` is called with the bases in the order of (previous view, cut), and the view follows.
A member that has merged keeps the bases for a while; later it offers its state as it is, and the asker adopts that instead.

**All members must agree** on which parts to leave out: a part without a state, or whose members are all gone. A member's
**companions** are the members of the merging view that have come along with it ever since. It leaves a part out when *all* its
companions have answered, in one view, that they do not hold the base (`Why.NONE`). Then no member that it will ever be compared
with holds it:

T1  Only companions are asked, so a member gets a base from its companions alone.
T2  A member says NONE if it does not hold the base and, should it belong to that part, will never make it because it is waiting.
    A member of that part that is behind (it still merges an earlier view) says PENDING, and so does one that is ahead.
T3  A waiting member that comes into a merging view drops what it has pulled so far. So it cannot have a base after it said NONE.
T4  So if all have said NONE in view W, no member held the base when W began, and none ever will. A member that had merged
    with that base would be live or ahead and have said so: the asker adopts its state.
T6  A companion may have merged, given its state to a joiner and crashed, while this member was behind. So when all companions have
    said NONE, the members that came later, without a part or with this member's own, are asked for their state: if one has it,
    this member adopts it. If they all wait too, or there are none, the part is left out. A member that merges a later view and
    lacks the base of the asker's part says NONE: it cannot have what it waits for, and otherwise each would wait for the other.
So companions that merge, merge the same bases; and live members that came along together have the same state (in an order that
is not total: at the beginning of each view).

No member waits in a circle: a member that is behind in a merge needs only its companions, which belong to its own part in every
later merge; a member that is ahead of them never waits for them, because they answer NONE about other parts' bases.

**Reading.** While the application is busy with what it was shown (`stop`), its state is given to no one. An application that has
not even taken its first view is not busy, and may have no reader before others have joined: its member gives the state that it
joined with.

**Beginning.** If all members of a view wait, the lowest of those with `initial` begins with the state that its application
has, and what it holds back follows. No other member may, so exactly one does; it knows because all others said, in one view, that
they wait. Founders of groups that meet later merge.

**Primary policy.** Nothing is merged. A charter that is primary names its **holders** (`membership.primary`): they carry the state
into the view. A live member of the holders' part with the same state goes on too, though its transfer may have ended after it
answered the ballot. Every other member, live or not, waits and takes the state over; an application that loses more than what it
began with is told so (`Replaced`). A primary without holders is the first: all wait, as soon as their applications
are not busy, and one begins. Until they are parted, each of them is a **founder**: it has everything, its application's own
state and all messages since, and begins if no member that it meets has more. In a view that is
not primary nothing can be cast, so states may differ: a live member stays as it is, and a waiting member takes the state of one
that holds a primary's state, or, if none does, goes on with what its application has. That is **provisional**: it is neither given
away nor carried into a primary. The member below is told which state is here (`hold`), because the next ballot asks for it.

Overlaps:
1. *A second view change during a merge.* The merge goes on with the companions that are left. A merge of the new view is
   an event of the stream like others: it begins when its turn comes. Until then this member is behind.
2. *The donor of a base crashes half-way.* Another member of its part offers the same bytes, and the fetch continues at its offset.
   If no member has them: T4.
3. *All members of a part give their base to A alone and crash, then A merges and crashes.* The rest leave the part out. If A was
   only cut off, it comes back as a part of its own, and is merged.
4. *A member joins during a merge*: it waits until a member is live.
5. *A group without a state meets one with a state*: all of the former say NONE, so the latter does not even call `merge`.

As the backlog approaches its limit (`buffer_bytes_max`) the others are told that there is less and then no free room: casters
wait, nothing is lost. Messages with addressees (`to=`) that lie before a point are the past for a joiner: make a state of messages
to all. Sans-IO: `take` and `tick` go in, hooks and `member.send` are called, `deadline` says when to tick. After either, the
driver owes the member a turn if `sent` has grown.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from itertools import islice

from unisono.core.member import Aside, Entered, Happening
from unisono.core.membership import Left, carry, is_carried
from unisono.core.transition import Transition
from unisono.core.types import Batch, MemberId, View, ViewId
from unisono.core.wire import Charter, HeldState, part_of
from unisono.services.transfer import messages as wire
from unisono.services.transfer.backlog import Backlog, Reach
from unisono.services.transfer.donor import Donor
from unisono.services.transfer.fetch import FetchProgress, StateFetch, digest_of_state
from unisono.services.transfer.merge import Merge, has_primary_policy, is_merge, key_of
from unisono.services.transfer.position import Position
from unisono.services.transfer.settings import Application, Ledger, MemberPort, TransferSettings, Values


class Status(Enum):
    WAITING = "waits for a state"
    MERGING = "merges"
    LIVE = "is live"


class Transfer:
    """The state transfer of one member; the module's docstring specifies it."""

    fetch_type = StateFetch
    donor_type = Donor

    def __init__(
        self,
        member: MemberPort,
        application: Application,
        settings: TransferSettings | None = None,
        *,
        initial: bool = False,
        ledger: Ledger | None = None,
        now: int = 0,
    ) -> None:
        self.id = member.id
        self.settings = settings or TransferSettings()
        self.status = Status.WAITING
        self.initial = initial
        """Whether this member may begin with its application's own state if no member has one."""
        self.refused = 0
        """Asides that are not valid messages of state transfer, and answers that could not be used."""
        self.sent = 0
        """Asides sent; when it has grown, the member needs a turn."""
        self.merges = self.restores = 0
        self._member = member
        self._application = application
        self._ledger = ledger
        self._codec = wire.make_transfer_codec()
        self._now = now
        self._since_ns = now  # of the status
        self._view: View | None = None  # the latest, which may be ahead of the position
        self._charter: Charter | None = None
        self._latest: Entered | None = None
        self._position = Position(self.id, application)
        self._backlog = Backlog(self.settings)  # what lies beyond the position; in a merge its view is the first
        self._room: int | None = None
        # A complete state that waits for the messages in it (T5), and who gave it.
        self._ready: tuple[MemberId, wire.Offer, bytes] | None = None
        self._donor = self.donor_type(self.settings)
        self._fetch: StateFetch | None = None
        self._serial = 0
        self._merge: Merge | None = None
        self._merged: Merge | None = None  # the last one, for members that are behind
        self._merged_until = 0
        self._is_stopped = False
        self._is_over = False
        self._told: HeldState | None = None  # what the member below was told of it …
        self._is_told = False  # … since its latest view, with which it changes that by itself
        self._founded: ViewId | None = None  # the first primary, while this member has all that it needs to begin
        self._unserved: dict[MemberId, None] = {}  # members that asked for the state while the application was busy

    # Questions.

    @property
    def has_state(self) -> bool:
        return self.status is not Status.WAITING

    @property
    def is_live(self) -> bool:
        """Whether the application has everything that happened."""
        return self.status is Status.LIVE and not self._backlog

    @property
    def queue_bytes(self) -> int:
        """Approximate size of what is held back."""
        return self._backlog.bytes

    @property
    def bytes_held(self) -> int:
        """Snapshots for others, what is pulled, bases, and messages held back."""
        merges = [merge for merge in (self._merge, self._merged) if merge is not None]
        bases = sum(len(data) for merge in merges for data, _ in merge.bases.values())
        return self._donor.bytes_held + (len(self._fetch.data) if self._fetch else 0) + bases + self._backlog.bytes

    @property
    def bytes_given(self) -> int:
        """How much of its snapshots was sent to others so far."""
        return self._donor.bytes_given

    @property
    def progress(self) -> FetchProgress | None:
        """How far the state is that is fetched now; None: nothing is."""
        return None if self._fetch is None else self._fetch.progress

    @property
    def deadline(self) -> int | None:
        """When `tick` is due next."""
        dues = [] if self._fetch is None or self._is_stopped else [self._fetch.deadline]
        dues += [] if self._merged is None else [self._merged_until]
        dues += [] if self._donor.deadline is None else [self._donor.deadline]
        return min(dues, default=None)

    def explain(self) -> list[str]:
        """Say in a sentence what is missing here, from whom, and since when."""
        if self.status is not Status.WAITING and self._is_stopped:
            waiting = [
                str(member) for member in self._unserved if self._view is not None and member in self._view.members
            ]
            if not self._backlog and not waiting:
                return []
            joiners = f"; {', '.join(waiting)} cannot have the state before that" if waiting else ""
            return [
                f"the application of {self.id} has not asked for its next event: {self._backlog.messages} messages and "
                f"{sum(1 for _ in self._backlog.views())} views are held back{joiners}."
            ]
        if self.status is Status.LIVE or self._view is None:
            return []
        how = self._fetch.explain() if self._fetch is not None else "no member has been asked yet"
        what = "the state of the group"
        if self._merge is not None and (key := self._merge.missing()) is not None:
            what = f"the state of the part that comes from view {key.view}, to merge it in view {self._merge.view}"
        milliseconds = (self._now - self._since_ns) // 1_000_000
        return [
            f"{self.id} lacks {what}, for {milliseconds} ms: {how}; {self._backlog.messages} messages are held back meanwhile."
        ]

    # Inputs.

    def take(self, events: Iterable[Happening], now: int) -> None:
        """Take the member's events in order: those of one turn, or of several turns one after the other."""
        self._now = max(now, self._now)
        for event in events:
            if isinstance(event, Batch) and self.is_live and not self._is_stopped:
                self._position.show(event)
            elif isinstance(event, Batch | Transition):  # whether a Transition is shown depends on the view behind it
                self._backlog.append(event)
            elif isinstance(event, Entered):
                self._take_view(event)
            elif isinstance(event, Aside):
                if event.data[:1] == wire.TAG:
                    self._take_aside(event)
                else:
                    self._backlog.append(event)
            else:
                if isinstance(event, Left):
                    self._is_over = True
                    self._show_rest()
                self._application.show(event)
        self._work()

    def tick(self, now: int) -> None:
        """Time has passed."""
        self._now = max(now, self._now)
        self._donor.expire(now)
        if self._merged is not None and now >= self._merged_until:
            self._merged = None
        self._work()

    def stop(self) -> None:
        """Hold everything back, within the limits: the application takes nothing for a while."""
        self._is_stopped = True

    def go_on(self, now: int) -> None:
        """Show events again."""
        self._is_stopped = False
        self._unserved.clear()
        self.tick(now)

    # The stream.

    def _take_view(self, entered: Entered) -> None:
        if self._ready is not None and not self._is_stopped:
            self._try_to_adopt(*self._ready)
        self._ready = None  # its view is over
        self._view, self._charter, self._latest = entered.view, entered.charter, entered
        self._is_told = False
        self._donor.keep_only(entered.view.members)
        part = part_of(entered.charter, self.id)
        along = set() if part is None else set(part.members)
        if self._merge is not None:
            self._merge.companions &= along
        fetch = self._fetch
        if fetch is not None:
            keep = fetch.donor in along
            if self._merge is None and len(entered.charter.parts) > 1:  # T3
                fetch.abandon()
                self._drop_fetch()
            else:
                fetch.enter(entered.view.id, self._candidates(fetch.want), keep, self._now)
        self._backlog.append(entered)
        self._advance()
        if entered.charter.primary and not entered.charter.holders:
            self._founded = entered.view.id
        elif self._founded is not None and self._complete_state() is None:
            self._founded = None  # parted from those that have the state

    def _advance(self) -> None:
        """Show what is held back, up to a merge or to a primary with another state."""
        while self.status is Status.LIVE and self._backlog and not self._is_stopped:
            event = self._backlog.first
            if isinstance(event, Entered) and is_merge(event):
                self._begin_merge(event)
                return
            if isinstance(event, Transition | Entered) and not self._goes_on(event):
                return
            self._backlog.pop()
            self._position.show(event)

    def _goes_on(self, event: Transition | Entered) -> bool:
        """Whether the application takes its state into the view that begins with this event, or behind it.

        If not, the member waits, and holds back the remainder of its last view: that is shown only if no other state is
        taken over.
        """
        entered = event if isinstance(event, Entered) else next(self._backlog.views(), None)
        if entered is None:
            return False  # the view comes in this turn
        if is_merge(entered) or self._position.leads_into(entered):
            return True
        if isinstance(event, Transition):
            self._position.keep_apart(event)
        self._turn(Status.WAITING)
        return False

    def _show_rest(self) -> None:
        """Show what is held back, busy or not: no member will ask this one for its state any more."""
        while self.status is Status.LIVE and self._backlog:
            event = self._backlog.first
            entered = next(self._backlog.views(), None) if isinstance(event, Transition) else event
            if isinstance(entered, Entered) and (is_merge(event) or not self._position.leads_into(entered)):
                return
            self._backlog.pop()
            self._position.show(event)

    def _work(self) -> None:
        """Do whatever can be done now."""
        self._advance()
        while not self._is_over and not self._is_stopped and self._pursue():
            self._advance()
        self._tell_room()
        self._tell_holds()
        if self._ledger is not None and self.is_live:
            self._ledger.include()

    def _tell_room(self) -> None:
        """Tell the others how much room is left: the more is held back, the less."""
        room = self._backlog.room(1 if self._view is None else len(self._view))
        if room != self._room:
            self._room = room
            self._member.set_free_room(room)
            self.sent += 1

    def _tell_holds(self) -> None:
        """Tell the member below which primary's state is complete here."""
        holds = self._complete_state()
        if holds != self._told or not self._is_told:
            self._told, self._is_told = holds, True
            self._member.hold(holds)

    def _complete_state(self) -> HeldState | None:
        """The primary's state that is complete here, counting what is held back."""
        holds = self._position.holds if self.status is Status.LIVE else None
        for entered in self._backlog.views():
            if entered.view.id == self._founded:
                holds = HeldState(entered.view.id)
            elif not is_carried(entered.charter, self.id, holds):
                holds = None
            elif holds is not None:
                holds = carry(entered.charter, self.id, holds)
        return holds

    # Getting a state.

    def _pursue(self) -> bool:
        """Continue to fetch what is missing. True: the position may move."""
        if self.status is Status.LIVE or self._view is None:
            return False
        if self._ready is not None:
            return self._try_to_adopt(*self._ready)
        fetch = self._fetch
        if fetch is None:
            want = None
            if self._merge is not None:
                key = self._merge.missing()
                if key is None:
                    self._finish_merge()
                    return True
                want = wire.Want(self._merge.view, key)
            fetch = self._fetch = self.fetch_type(self.settings, want, self._serial, self._now)
            fetch.enter(self._view.id, self._candidates(want), False, self._now)
        if self._merge is not None and fetch.want is not None and fetch.is_lost:
            self._merge.in_doubt = fetch.want.part
            self._drop_fetch()  # T6: ask for a state instead
            fetch = self._fetch = self.fetch_type(self.settings, None, self._serial, self._now)
            fetch.is_behind = True
            fetch.enter(self._view.id, self._candidates(None), False, self._now)
        if self._merge is not None and fetch.want is None:
            if fetch.is_nowhere:
                assert self._merge.in_doubt is not None
                self._merge.lost.add(self._merge.in_doubt)
                self._drop_fetch()
                return True
        elif fetch.want is None and self._may_begin(fetch):
            self._begin()
            return True
        fetch.step(self._now)
        self._send_out(fetch)
        return False

    def _candidates(self, want: wire.Want | None) -> list[MemberId]:
        """Whom to ask: in a merge the companions, then members that came later (T6); else all, the largest part first."""
        assert self._view is not None
        assert self._charter is not None
        if self._merge is not None:
            if want is not None:
                return self._merge.candidates(want.part, self.id)
            known = {self.id, *self._merge.companions}
            mine = part_of(self._charter, self.id)
            return [
                one for one in self._view.members if one not in known and part_of(self._charter, one) in (None, mine)
            ]
        parts = sorted(self._charter.parts, key=lambda part: (-len(part.members), min(part.members)))
        ordered = [*self._charter.holders, *(member for part in parts for member in sorted(part.members))]
        ordered += sorted(self._view.members)
        return [member for member in dict.fromkeys(ordered) if member != self.id]

    def _may_begin(self, fetch: StateFetch) -> bool:
        """Whether no member has a state, so that this one goes on with its application's own."""
        assert self._charter is not None
        if self._can_begin:
            return fetch.is_first(self.id)
        return self._is_read_only and fetch.is_nowhere

    @property
    def _can_begin(self) -> bool:
        """Whether this member may be the one to begin with its application's own state."""
        if self._latest is None or not has_primary_policy(self._latest):
            return self.initial
        is_without = self.status is Status.WAITING or self._is_provisional
        return self.initial and is_without and self._complete_state() is not None

    @property
    def _is_read_only(self) -> bool:
        """Whether nothing can be cast in the latest view."""
        return self._latest is not None and not self._latest.is_primary

    def _begin(self) -> None:
        """Begin with the application's own state: no member has one, nor had one before, so no view held back is a merge."""
        is_provisional = self._is_read_only and not self._can_begin
        self._drop_fetch()
        self._turn(Status.LIVE)
        if is_provisional:
            self._skip_to_latest_view()
        self._founded = None
        while self._backlog:
            self._position.show(self._backlog.pop())

    def _skip_to_latest_view(self) -> None:
        """Skip what belongs to a state that is not here, and will come with it."""
        assert self._view is not None
        remainder: list[Batch] = []
        # What lies before the next view is the remainder of the application's last one.
        is_own = self._position.view is not None
        for _ in range(self._backlog.place_of(self._view.id) or 0):
            event = self._backlog.pop()
            is_own = is_own and not isinstance(event, Entered)
            if isinstance(event, Batch) and is_own:
                remainder.append(event)
            elif isinstance(event, Batch):
                self._application.skip(event, False)
        assert self._latest is not None
        self._position.show_transition(self._latest)
        for batch in remainder:
            self._position.show(batch)
        self._position.holds = None

    def _complete(self, fetch: StateFetch, offer: wire.Offer) -> None:
        """All chunks are here."""
        data, donor = bytes(fetch.data), fetch.donor
        assert donor is not None
        self._drop_fetch()
        if not offer.base:
            self._ready = (donor, offer, data)
        elif self._merge is not None and fetch.want is not None:
            values = () if self._ledger is None else self._ledger.told(donor, offer.number)
            self._merge.bases[fetch.want.part] = (data, values)

    def _try_to_adopt(self, donor: MemberId, offer: wire.Offer, data: bytes) -> bool:
        """Adopt a state once all of it was delivered here too (T5); drop it when that can no longer happen."""
        assert self._view is not None
        backlog = self._backlog
        place, is_latest = backlog.place_of(offer.at), offer.at == self._view.id
        if place is not None and backlog.covers(None if is_latest else place, offer.frontier):
            self._ready = None
            self._adopt(donor, offer, data, place)
            return True
        if place is None or not is_latest:
            self._ready = None
            self.refused += 1
            return True
        return False

    def _adopt(self, donor: MemberId, offer: wire.Offer, data: bytes, place: int) -> None:
        """Take a state over: drop the messages that are in it, and show the rest."""
        earlier = [self._backlog.pop() for _ in range(place)]
        entered = self._backlog.pop()
        assert isinstance(entered, Entered)
        self._skip_earlier(donor, earlier, entered)
        is_merged = self._merge is not None and self._application.can_merge  # its own part is in what it gets
        self._merge = None
        self._turn(Status.LIVE)
        self._position.replace(entered, data, offer.frontier, offer.holds, is_merged)
        self.restores += 1
        if self._ledger is not None:
            self._ledger.take(offer.at, self._ledger.told(donor, offer.number))
        for batch in self._backlog.drop_below(self._position.frontier):
            self._application.skip(batch, True)

    def _skip_earlier(self, donor: MemberId, events: list[Happening], entered: Entered) -> None:
        """Drop what was delivered before the view of a donor's state.

        A message is in that state if the donor, and the member that carried the state into a primary, have come along with
        this member ever since.
        """
        skipped: list[tuple[Batch, bool]] = []
        is_in_state = self._came_along(donor, entered)
        for event in reversed(events):
            if isinstance(event, Batch):
                skipped.append((event, is_in_state))
            elif isinstance(event, Entered):
                is_in_state = is_in_state and self._came_along(donor, event)
        for batch, is_in in reversed(skipped):
            self._application.skip(batch, is_in)

    def _came_along(self, donor: MemberId, entered: Entered) -> bool:
        part = part_of(entered.charter, self.id)
        return part is not None and {donor, *entered.charter.holders[:1]} <= set(part.members)

    def _drop_fetch(self) -> None:
        fetch, self._fetch = self._fetch, None
        if fetch is not None:
            self._send_out(fetch)
            self._serial = fetch.serial
            self.refused += fetch.refused

    def _turn(self, status: Status) -> None:
        self.status, self._since_ns = status, self._now

    # Merging.

    def _begin_merge(self, entered: Entered) -> None:
        part = part_of(entered.charter, self.id)
        assert part is not None, "a member with a state comes from a view"
        companions = set(entered.view.members)
        for later in islice(self._backlog.views(), 1, None):
            along = part_of(later.charter, self.id)
            companions &= set() if along is None else set(along.members)
        values = () if self._ledger is None else self._ledger.enter_merge(entered.view.id)
        base = self._application.snapshot()
        self._merge = Merge(entered, key_of(part), base, values, companions)
        self._turn(Status.MERGING)

    def _finish_merge(self) -> None:
        merge = self._merge
        assert merge is not None
        keys = [key for key in merge.order if key in merge.bases]
        if len(keys) > 1:
            first = keys[0]
            if not self._application.can_merge and merge.own != first:
                self._position.tell_replaced(first.view, merge.parts[first])
            self._application.merge([merge.bases[key][0] for key in keys])
            self.merges += 1
            if self._ledger is not None:
                self._note_merge(merge, keys[0], self._ledger)
        self._merge, self._merged = None, merge
        self._merged_until = self._now + self.settings.hold_ns
        self._turn(Status.LIVE)
        self._position.show(self._backlog.pop())

    def _note_merge(self, merge: Merge, first: wire.PartKey, ledger: Ledger) -> None:
        """In the trace, the part that goes first gives its state, and the others take it over."""
        if merge.own != first and merge.bases[first][1]:
            ledger.take(merge.view, merge.bases[first][1])
        if merge.own == first or first != merge.order[0]:
            ledger.vouch(merge.view)

    # Asides.

    def _take_aside(self, aside: Aside) -> None:
        message = self._codec.decode(memoryview(aside.data)[1:], 0, 1)
        if message is None:
            self.refused += 1
            return
        sender, view = aside.sender, self._view
        if isinstance(message, wire.Done):
            self._donor.done(sender, message.number)
        elif view is None or self._is_over or message.view != view.id:  # type: ignore[attr-defined]
            self.refused += 1
        elif isinstance(message, wire.Ask):
            self._send(sender, self._answer(sender, message))
        elif isinstance(message, wire.StatePull):
            answer = self._donor.pulled(sender, message, self._now)
            if answer is not None:
                self._send(sender, answer)
        elif isinstance(message, wire.Offer | wire.Decline | wire.StateChunk | wire.Gone):
            fetch = self._fetch
            if fetch is not None:
                if fetch.take(sender, message, self._now) and fetch.offer is not None:
                    self._complete(fetch, fetch.offer)
                self._work()
            elif isinstance(message, wire.Offer):
                self._send(sender, wire.Done(message.number))

    def _answer(self, asker: MemberId, ask: wire.Ask) -> wire.Offer | wire.Decline:
        if ask.want is not None:
            for merge in (self._merge, self._merged):
                if merge is not None and merge.view == ask.want.merge and ask.want.part in merge.bases:
                    return self._offer_base(asker, ask, merge, ask.want.part)
        if self._given() is not None:
            return self._offer_state(asker, ask)
        if self.status is Status.LIVE and self._is_stopped:
            self._unserved[asker] = None
            if ask.want is None:
                return wire.Decline(ask.view, ask.serial, wire.Why.UNREAD, self._can_begin)
        return wire.Decline(ask.view, ask.serial, self._why_not(asker, ask), self._can_begin)

    def _given(self) -> Reach | None:
        """How much of the latest view is in the state that this member can give now; None: it cannot give any."""
        if self._is_provisional:
            return None
        return self._position.frontier if self._has_read_all else self._untouched_frontier()

    @property
    def _has_read_all(self) -> bool:
        """Whether the application is done with everything that happened."""
        return self.is_live and not self._is_stopped

    def _untouched_frontier(self) -> Reach | None:
        """How much of the latest view is in the state of an application that has not read yet; None: it cannot be given.

        Its state is the one that it began with or restored. What was shown since is not in it, so no message may have been
        shown. Views may, because the asker is shown them too; but a restored state may remember a member that such a view
        removes, and only this application would be told. A merge requires that everything before it is done.
        """
        if self.status is not Status.LIVE or self._position.has_shown_batch or not self._application.is_untouched:
            return None
        later = list(self._backlog.views())
        if not later:
            return self._position.frontier
        is_own = not self.restores and not self.merges
        if any(is_merge(entered) or (entered.left and not is_own) for entered in later):
            return None
        if self._position.holds is not None and self._complete_state() is None:
            return None  # a later view takes another state over
        return {} if self._backlog.is_still_until(later[-1]) else None

    def _why_not(self, asker: MemberId, ask: wire.Ask) -> wire.Why:
        """Why no state is given. T2: NONE must stay true as long as the view lasts."""
        want = ask.want
        if self.status is Status.WAITING or self._is_provisional:
            return wire.Why.WAITING if want is None else wire.Why.NONE
        merge = self._merge
        if want is None:
            is_waiting_for_it = ask.is_behind and merge is not None and merge.lacks_part_of(asker)
            return wire.Why.NONE if is_waiting_for_it else wire.Why.PENDING
        if merge is not None and merge.view == want.merge:
            return wire.Why.NONE  # it is another part's: this member has its own
        for entered in self._backlog.views():
            if entered.view.id == want.merge:  # behind
                part = part_of(entered.charter, self.id)
                mine = part is not None and key_of(part) == want.part
                return wire.Why.PENDING if mine else wire.Why.NONE
        return wire.Why.PENDING  # ahead

    @property
    def _is_provisional(self) -> bool:
        """Whether the application's state is not that of a primary, hence not the group's."""
        return self._position.holds is None and self._latest is not None and has_primary_policy(self._latest)

    def _offer_base(self, asker: MemberId, ask: wire.Ask, merge: Merge, key: wire.PartKey) -> wire.Offer:
        if merge is self._merge and key == merge.own and not merge.gave and self._ledger is not None:
            merge.gave = True
            self._ledger.give_base(merge.view, key == merge.order[0])
        return self._offer(asker, ask, True, merge.view, (), *merge.bases[key])

    def _offer_state(self, asker: MemberId, ask: wire.Ask) -> wire.Offer | wire.Decline:
        assert self._view is not None
        if self._donor.is_full(asker):
            return wire.Decline(ask.view, ask.serial, wire.Why.BUSY, self._can_begin)
        given, values = self._given(), self._note_snapshot(self._view.id)
        frontier = tuple(
            (*key, *reach) for key, reach in sorted((self._position.frontier if given is None else given).items())
        )
        return self._offer(asker, ask, False, self._view.id, frontier, self._application.snapshot(), values)

    def _note_snapshot(self, view: ViewId) -> Values:
        """In the trace, the state as it is now is given away. That of an application that has not read yet has no message since."""
        if self._ledger is None:
            return ()
        self._ledger.include(None if self._has_read_all else view)
        return self._ledger.give()

    def _offer(
        self, asker: MemberId, ask: wire.Ask, base: bool, at: ViewId, frontier: wire.Frontier, data: bytes, values: Values
    ) -> wire.Offer:  # fmt: skip
        number, chunk = self._donor.hold(asker, data, base, self._now), self.settings.chunk_bytes
        digest = digest_of_state(data)
        holds = self._complete_state()
        if self._ledger is not None:
            self._ledger.tell(number, values)
        return wire.Offer(ask.view, ask.serial, number, base, at, frontier, len(data), chunk, digest, holds)

    def _send_out(self, fetch: StateFetch) -> None:
        out, fetch.out = fetch.out, []
        for to, message in out:
            self._send(to, message)

    def _send(self, to: MemberId, message: wire.Message) -> None:
        if self._member.send(to, wire.TAG + self._codec.encode(message)):
            self.sent += 1
