"""What the explorer of views asks of every state and of every end.

In every state, of every two members whose histories have not been compared before: whoever installed one view lists the same
members and merged parts, and whoever came into it from one view with one cut names the same transitional set and
has delivered the same set there (P11, P14, P15). Of each member alone: it is in its views, their numbers rise, nothing is
delivered twice, and what is delivered is of that view (P2, P3, P11, P12). And, when somebody installs a view: whoever it
says came along has closed with that cut, or is further (I3 of `core.membership`).

An end is a state from which everything healed. There the histories are written down as a trace and judged by the checkers of
`trace.checks`, as any run is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from unisono.core.control import Charter
from unisono.core.outbox import NoteKind
from unisono.core.types import MemberId, ViewId
from unisono.sim.explore_case import NAMES
from unisono.sim.explore_views_post import Act, Facts, Scope
from unisono.sim.explore_views_side import Tables
from unisono.trace.checks import judge
from unisono.trace.promises import promises
from unisono.trace.recorder import Recorder
from unisono.trace.sinks import MemorySink


class Stay(NamedTuple):
    """A member's time in one view, as far as its history goes."""

    view: ViewId
    members: tuple[MemberId, ...]
    parts: tuple[str, ...]
    came: tuple[str | None, str | None]  # from which view, with which cut
    along: tuple[str, ...]
    before: frozenset[tuple[MemberId, int]]  # what it had delivered in the view that it came from


class Judge:
    """Judges the histories of one scope; each, each pair and each end once."""

    def __init__(self, scope: Scope, tables: Tables) -> None:
        self._scope = scope
        self._tables = tables
        self._stays: dict[tuple[int, int], list[Stay]] = {}
        self._agreeing: set[tuple[int, int, int, int]] = set()
        self._ends: dict[tuple[tuple[int, bool], ...], str | None] = {}
        self._owed = promises(scope.order) | {"P15", "P16"}

    # In every state.

    def compare(self, mover: int, histories: Sequence[int]) -> str | None:
        """What is wrong between one member, whose history has grown, and the others."""
        key = (mover, histories[mover])
        if key not in self._stays:
            sentence = self._look(mover, self._tables.acts(histories[mover]))
            if sentence is not None:
                return sentence
        for other, history in enumerate(histories):
            pair = (*key, other, history)
            if other != mover and pair not in self._agreeing:
                sentence = _clash(mover, self._stays[key], other, self._stays.get((other, history), []))
                if sentence is not None:
                    return sentence
                self._agreeing.add(pair)
        return None

    def _look(self, number: int, acts: Sequence[Act]) -> str | None:
        """Check one history alone, and remember its stays."""
        me, who = self._scope.ids[number], NAMES[number]
        stays: list[Stay] = []
        ever: set[tuple[MemberId, int]] = set()
        here: set[tuple[MemberId, int]] = set()
        members: tuple[MemberId, ...] = ()
        for act in acts:
            if act.view is not None:
                rest = dict(act.attributes)
                members, view = act.view.members, act.view.id
                if me not in members:
                    return f"P11: {who} installed view {view}, which it is not in."
                if stays and stays[-1].view.number >= view.number:
                    return f"P12: {who} installed view {view} after {stays[-1].view}."
                came = (rest.get("previous_view"), rest.get("cut"))
                parts, along = rest.get("parts", ()), rest.get("transitional", ())
                stays.append(Stay(view, members, parts, came, along, frozenset(here)))
                here = set()
            elif act.batch is not None and act.kind is NoteKind.DELIVER:
                for index in range(act.batch.first, act.batch.first + act.batch.count):
                    name = (members[act.batch.origin], index)
                    if name in ever:
                        return f"P2: {who} delivered {name[0]}:{index} twice."
                    ever.add(name)
                    here.add(name)
        self._stays[number, self._tables.history(self._tables.nothing, tuple(acts))] = stays
        return None

    def installed(self, who: int, charter: Charter, facts: Sequence[Facts | None]) -> str | None:
        """I3: whoever is named as coming along has closed with that cut, or is further."""
        for part in charter.parts:
            for number, fact in enumerate(facts):
                if fact is None or fact.view is None or fact.view.id != part.view or number == who:
                    continue
                if self._scope.ids[number] in part.members and fact.closed != part.cut:
                    how = f"with {fact.closed}" if fact.closed is not None else "with no cut yet"
                    return (
                        f"I3: {NAMES[who]} installed view {charter.id}, into which {NAMES[number]} comes from {part.view} with the "
                        f"cut {part.cut}; but {NAMES[number]} has closed {part.view} {how}."
                    )
        return None

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
            if not acts:
                continue
            recorder = Recorder("explore", "explore", self._scope.order, self._scope.ids[number], "simulated", sink)
            recorder.turn(0, [act.note() for act in acts])
            if crashed:
                recorder.crash(0)
            else:
                recorder.end(0)
        verdict = judge(sink.events, self._owed)
        worst = [violation for violation in verdict.violations if violation.property in verdict.weakest]
        return str(worst[0]) if worst else None


def _clash(one: int, ones: Sequence[Stay], other: int, others: Sequence[Stay]) -> str | None:
    theirs = {stay.view: stay for stay in others}
    for mine in ones:
        stay = theirs.get(mine.view)
        if stay is None:
            continue
        who = f"{NAMES[one]} and {NAMES[other]}"
        if (mine.members, mine.parts) != (stay.members, stay.parts):
            return f"P11: {who} installed view {mine.view} with different members or parts."
        if mine.came[0] is None or mine.came != stay.came:
            continue
        if mine.along != stay.along:
            return f"P15: {who} came from {mine.came[0]} into view {mine.view}, and name different transitional sets."
        if mine.before != stay.before:
            odd = min(mine.before ^ stay.before)
            has = NAMES[one] if odd in mine.before else NAMES[other]
            return (
                f"P14: {who} came from {mine.came[0]} into view {mine.view} together, "
                f"but only {has} delivered {odd[0]}:{odd[1]} there."
            )
    return None
