"""What the explorer of views asks of every state and of every end.

In every state, each two histories that were not compared before. Two members that installed one view list the same members
and merged parts; if they came into it from one view with one cut, they name the same transitional set and have delivered the
same set there (P11, P14, P15). Of each member alone: it is in its views, their numbers rise, nothing is delivered twice, and
what is delivered is of that view (P2, P3, P11, P12). When a member installs a view, each member that the view's parts name
has closed with that part's cut, or is further (I3 of `core.membership`); a primary that follows another begins with a state,
if there are states (P29).

The same is asked of what applications are shown: a Transition before every view but the first, after everything that was delivered
before the member blocked; sets that follow from `together`; and two members that name each other there were shown the same (P25).

An end is a state from which everything healed. There the histories are written down as a trace and judged by the checkers of
`trace.checks`, as any run is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from unisono.core.membership import Left
from unisono.core.outbox import NoteKind
from unisono.core.transition import Transition
from unisono.core.types import Batch, MemberId, View, ViewId
from unisono.core.wire import Charter
from unisono.sim.explore.search import first_violation
from unisono.sim.explore.views.application import ShownView, TookState
from unisono.sim.explore.views.member import Facts, HistoryAct, MemberAct
from unisono.sim.explore.views.scope import Scope
from unisono.sim.explore.views.side import Tables
from unisono.trace.promises import promises
from unisono.trace.recorder import Recorder
from unisono.trace.sinks import MemorySink


class Installation(NamedTuple):
    """One member installs one view: which view, and what it brings along from the last one."""

    view: ViewId
    members: tuple[MemberId, ...]
    parts: tuple[str, ...]
    came: tuple[str | None, str | None]  # from which view, with which cut
    along: tuple[str, ...]
    before: frozenset[tuple[MemberId, int]]  # what it had delivered in the view that it came from


class Passage(NamedTuple):
    """How an application was led from one view to the next."""

    together: tuple[MemberId, ...]
    messages: frozenset[tuple[MemberId, int]]  # what it was shown in the first
    is_complete: bool  # none of that came inside a state


class HistoryJudge:
    """Judges the histories of one scope; each, each pair and each end once."""

    def __init__(self, scope: Scope, tables: Tables) -> None:
        self._scope = scope
        self._names = scope.names
        self._tables = tables
        self._installations: dict[tuple[int, int], list[Installation]] = {}
        self._passages: dict[tuple[int, int], dict[tuple[ViewId, ViewId], Passage]] = {}
        self._agreeing: set[tuple[int, int, int, int]] = set()
        self._ends: dict[tuple[tuple[int, bool], ...], str | None] = {}
        self._owed = {"P15", "P16"}.union(*map(promises, scope.all_orders))
        if scope.safe:
            self._owed |= {"P17"}
        if scope.primary:
            self._owed |= {"P20"}

    # In every state.

    def compare(self, mover: int, histories: Sequence[int]) -> str | None:
        """What is wrong between one member, whose history has grown, and the others."""
        key = (mover, histories[mover])
        if key not in self._installations:
            acts = self._tables.acts(histories[mover])
            sentence = self._look(mover, histories[mover], acts) or self._look_shown(mover, histories[mover], acts)
            if sentence is not None:
                return sentence
        for other, history in enumerate(histories):
            pair = (*key, other, history)
            if other != mover and pair not in self._agreeing:
                sentence = self._clash(
                    mover, self._installations[key], other, self._installations.get((other, history), [])
                )
                theirs = self._passages.get((other, history), {})
                sentence = sentence or self._clash_shown(mover, self._passages[key], other, theirs)
                if sentence is not None:
                    return sentence
                self._agreeing.add(pair)
        return None

    def _look(self, number: int, history: int, acts: Sequence[HistoryAct]) -> str | None:
        """Check one history alone, and remember its installations."""
        me, who = self._scope.ids[number], self._names[number]
        installations: list[Installation] = []
        ever: set[tuple[MemberId, int]] = set()
        here: set[tuple[MemberId, int]] = set()
        members: tuple[MemberId, ...] = ()
        for act in acts:
            if not isinstance(act, MemberAct):
                continue
            if act.view is not None:
                rest = dict(act.attributes)
                members, view = act.view.members, act.view.id
                if me not in members:
                    return f"P11: {who} installed view {view}, which it is not in."
                if installations and installations[-1].view.number >= view.number:
                    return f"P12: {who} installed view {view} after {installations[-1].view}."
                came = (rest.get("previous_view"), rest.get("cut"))
                parts, along = rest.get("parts", ()), rest.get("transitional", ())
                installations.append(Installation(view, members, parts, came, along, frozenset(here)))
                here = set()
            elif act.batch is not None and act.kind is NoteKind.DELIVER:
                for index in range(act.batch.first, act.batch.first + act.batch.count):
                    name = (members[act.batch.origin], index)
                    if name in ever:
                        return f"P2: {who} delivered {name[0]}:{index} twice."
                    ever.add(name)
                    here.add(name)
        self._installations[number, history] = installations
        return None

    def _look_shown(self, number: int, history: int, acts: Sequence[HistoryAct]) -> str | None:
        """Check what one application was shown, and remember its passages."""
        shown = _Shown(self._scope.ids[number])
        for act in acts:
            sentence = shown.take(act)
            if sentence is not None:
                return f"P25: {self._names[number]} {sentence}."
        self._passages[number, history] = shown.passages
        return None

    def installed(self, who: int, charter: Charter, facts: Sequence[Facts | None]) -> str | None:
        """I3: each member that a part names has closed with the part's cut, or is further."""
        for part in charter.parts:
            for number, fact in enumerate(facts):
                if fact is None or fact.view is None or fact.view.id != part.view or number == who:
                    continue
                if self._scope.ids[number] in part.members + part.leavers and fact.closed != part.cut:
                    how = f"with {fact.closed}" if fact.closed is not None else "with no cut yet"
                    mover, other = self._names[who], self._names[number]
                    return (
                        f"I3: {mover} installed view {charter.id}, into which {other} comes from {part.view} with the "
                        f"cut {part.cut}; but {other} has closed {part.view} {how}."
                    )
        return None

    def begins(self, who: int, charter: Charter) -> str | None:
        """P29: a primary that follows another begins with a state that some member carries into it."""
        if not self._scope.has_state or not charter.primary or not charter.supersedes or charter.holders:
            return None
        return f"P29: {self._names[who]} installed primary {charter.id}, into which no member carries a state."

    # At an end.

    def end(self, histories: Sequence[int], crashed: Sequence[bool]) -> str | None:
        """The sentence on a run that came to rest, or None if every promise was kept."""
        key = tuple(zip(histories, crashed, strict=True))
        if key not in self._ends:
            self._ends[key] = self._verdict(key)
        return self._ends[key]

    @property
    def ends(self) -> int:
        return len(self._ends)

    def _verdict(self, key: tuple[tuple[int, bool], ...]) -> str | None:
        sink = MemorySink()
        for number, (history, crashed) in enumerate(key):
            acts = self._tables.acts(history)
            if not acts or isinstance(acts[0], Left):
                continue  # it was in no view
            recorder = Recorder("explore", "explore", self._scope.order, self._scope.ids[number], "simulated", sink)
            for act in acts:
                _record(recorder, act)
            if isinstance(acts[-1], Left):
                continue
            if crashed:
                recorder.crash(0)
            else:
                recorder.end(0)
        return first_violation(sink, self._owed)

    def _clash(self, one: int, ones: Sequence[Installation], other: int, others: Sequence[Installation]) -> str | None:
        theirs = {yours.view: yours for yours in others}
        for mine in ones:
            yours = theirs.get(mine.view)
            if yours is None:
                continue
            who = f"{self._names[one]} and {self._names[other]}"
            if (mine.members, mine.parts) != (yours.members, yours.parts):
                return f"P11: {who} installed view {mine.view} with different members or parts."
            if mine.came[0] is None or mine.came != yours.came:
                continue
            if mine.along != yours.along:
                return (
                    f"P15: {who} came from {mine.came[0]} into view {mine.view}, and name different transitional sets."
                )
            if mine.before != yours.before:
                odd = min(mine.before ^ yours.before)
                has = self._names[one] if odd in mine.before else self._names[other]
                return (
                    f"P14: {who} came from {mine.came[0]} into view {mine.view} together, "
                    f"but only {has} delivered {odd[0]}:{odd[1]} there."
                )
        return None

    def _clash_shown(
        self,
        one: int,
        ones: Mapping[tuple[ViewId, ViewId], Passage],
        other: int,
        others: Mapping[tuple[ViewId, ViewId], Passage],
    ) -> str | None:
        ids, names = self._scope.ids, self._names
        for (before, after), mine in ones.items():
            theirs = others.get((before, after))
            if theirs is None or ids[other] not in mine.together or not (mine.is_complete and theirs.is_complete):
                continue
            if ids[one] not in theirs.together or mine.messages != theirs.messages:
                return (
                    f"P25: {names[one]} was told that {names[other]} came along from view {before} into {after}, but that one "
                    "was shown other messages there, or was told otherwise."
                )
        return None


class _Shown:
    """Follows what one application is shown, and says what is wrong with it."""

    def __init__(self, member: MemberId) -> None:
        self._id = member
        self.passages: dict[tuple[ViewId, ViewId], Passage] = {}
        self._installed: View | None = None
        self._ordinary: dict[ViewId, int] = {}  # messages delivered before the member blocked
        self._is_blocked = False
        self._view: View | None = None  # the last that was shown
        self._end: Transition | None = None  # behind it
        self._messages: list[tuple[MemberId, int]] = []
        self._is_complete = True  # it was shown all of its view: none of it came inside a state
        self._is_restored = False  # it has taken a state over, and the view that this is of comes next

    def take(self, act: HistoryAct) -> str | None:
        if isinstance(act, MemberAct):
            self._note(act)
        elif isinstance(act, Batch):
            assert self._view is not None
            origin = self._view.members[act.origin]
            self._messages += [(origin, act.first + i) for i in range(act.count)]
        elif isinstance(act, TookState):
            self._is_restored = True
        elif isinstance(act, Transition):
            return self._take_end(act)
        elif not isinstance(act, Left):
            return self._take_view(act)
        return None

    def _note(self, act: MemberAct) -> None:
        if act.view is not None:
            self._installed, self._is_blocked = act.view, False
        elif act.kind is NoteKind.BLOCK:
            self._is_blocked = True
        elif act.kind is NoteKind.DELIVER and act.batch is not None and not self._is_blocked:
            assert self._installed is not None
            view = self._installed.id
            self._ordinary[view] = self._ordinary.get(view, 0) + act.batch.count

    def _take_end(self, end: Transition) -> str | None:
        if self._view is None or self._view.id != end.view or self._end is not None:
            return f"was told that view {end.view} ends, which is not the view that it was shown last"
        delivered = self._ordinary.get(end.view, 0)
        if self._is_complete and len(self._messages) != delivered:
            return (
                f"was shown {len(self._messages)} messages before view {end.view} ended, but had delivered {delivered}"
            )
        self._end = end
        return None

    def _take_view(self, shown: ShownView) -> str | None:
        before, together, members = self._view, set(shown.together), set(shown.view.members)
        if before is None:
            if together != {self._id}:
                return f"was told that others came along into its first view {shown.view.id}"
        elif self._end is None:
            return f"was shown view {shown.view.id} without a Transition"
        elif not together <= set(self._end.together) or (not self._is_restored and together != set(self._end.together)):
            return f"was told of other members together in view {shown.view.id} than when the last view ended"
        last = set() if before is None else set(before.members)
        if set(shown.joined) != members - together or set(shown.left) != last - together or self._id not in together:
            return f"was shown sets of view {shown.view.id} that do not follow from those together"
        if before is not None:
            is_complete = self._is_complete and not self._is_restored
            self.passages[before.id, shown.view.id] = Passage(shown.together, frozenset(self._messages), is_complete)
        self._view, self._end, self._messages = shown.view, None, []
        self._is_complete, self._is_restored = not self._is_restored, False
        return None


def _record(recorder: Recorder, act: HistoryAct) -> None:
    if isinstance(act, MemberAct):
        recorder.turn(0, [act.note()])
    elif isinstance(act, Batch):
        recorder.show_batch(act)
    elif isinstance(act, Transition):
        recorder.show_transition(0, act.together, act.is_primary)
    elif isinstance(act, ShownView):
        recorder.show_view(0, act.view.id, act.view.members, act.together, act.joined, act.left, act.is_primary)
    elif isinstance(act, Left):
        recorder.leave(0)
    else:
        recorder.show_state(0, act.source, act.source is not None)
