"""P15 transitional set: the transitional set of a VIEW row names exactly the members that came along.

Let p install V' with `previous_view` V. Its transitional set is the set of all members q of V' whose own VIEW row for V' has
the same `previous_view` and the same `attributes.cut`. The cut is the id of the cut that closed V: a partition in mid-flush
can close one view twice, and then each part is its own transitional set; where it is absent, all that came from V came
together, and so did members that name the same set. Who came from nowhere (no previous view) has no transitional set, or
itself alone. Besides, `previous_view` is the view that p installed last.

Nothing is asked of a run that records neither previous views nor transitional sets, as another system's may: there, all
members that go from one view to the next are held against each other.

A member of V' without a VIEW row for it (it crashed or left before, went elsewhere, was cut, or its rows are lost) may be in the
set if V held it. A member that reached its END before V', with nothing under way, may not. Where rows
since p's last VIEW are missing, the view installed last is not known, and `previous_view` is believed.
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from unisono.trace.checks.attributes import value_of
from unisono.trace.checks.checker import Checker
from unisono.trace.checks.history import History
from unisono.trace.checks.model import Stay
from unisono.trace.checks.property import Example, Kind, PropertyRecord, RowOf
from unisono.trace.schema import CUT, END, VIEW, Event, view_number


class ViewEntry(NamedTuple):
    """One VIEW row: who came, from where, and with whom it says that it came."""

    who: str
    members: tuple[str, ...]
    previous: str | None
    cut: str | None
    along: frozenset[str] | None
    local: int


class TransitionalSet(Checker):
    about = PropertyRecord(
        id="P15",
        name="transitional set",
        says="A new view says rightly who came along from the old one.",
        exact=__doc__,
        rows=(VIEW,),
        roles=("who",),
        witness={
            "what": Kind.TEXT, "local": RowOf("who"), "previous_view": Kind.VIEW, "installed": Kind.VIEW,
            "extra": Kind.MEMBERS, "lacking": Kind.MEMBERS,
        },
        sentence={
            "came from": "{who} installed view {view} (local {local}) and says that it came from [{previous_view}|nowhere], but it "
            "[installed {installed} last|has installed none].",
            "set": "{who} installed view {view}[ (local {local})] from [{previous_view}|nowhere] [with {extra}, who did not come "
            "along, and without {lacking}, who did|with {extra}, who did not come along|without {lacking}, who came along].",
        },
        example=Example(("b", "a"), "2@a", {"what": "set", "local": 1, "previous_view": "1@a", "lacking": ["a"]}),
    )  # fmt: skip

    def __init__(self, history: History | None = None) -> None:
        super().__init__(history)
        self._arrivals: defaultdict[str, list[ViewEntry]] = defaultdict(list)  # by view
        self._elsewhere: list[tuple[str, ViewEntry, str | None]] = []  # it had installed another view last
        self._listed: defaultdict[str, set[str]] = defaultdict(set)  # by view: whom anyone's list of it holds

    def view(self, stay: Stay, event: Event) -> None:
        life, last = stay.life, stay.life.stay
        along = None if event.transitional is None else frozenset(event.transitional)
        cut = value_of(event, "cut")
        row = ViewEntry(life.name, stay.view.members, event.previous_view, cut, along, event.local_index)
        self._arrivals[stay.id].append(row)
        self._listed[stay.id].update(row.members)
        is_known = life.hole is None if last is None else not last.holed
        installed = None if last is None else last.id
        if is_known and installed != row.previous:
            self._elsewhere.append((stay.id, row, installed))

    def conclude(self) -> None:
        every = [row for arrivals in self._arrivals.values() for row in arrivals]
        if all(row.previous is None and row.along is None for row in every):
            return
        for view, row, installed in self._elsewhere:
            self.report(
                [row.who], view, what="came from", local=row.local, previous_view=row.previous, installed=installed
            )
        for view, arrivals in self._arrivals.items():
            first: dict[str, ViewEntry] = {}
            for row in arrivals:
                first.setdefault(row.who, row)
            for row in arrivals:
                self._judge(view, row, first)

    def _judge(self, view: str, row: ViewEntry, first: dict[str, ViewEntry]) -> None:
        if row.previous is None:
            came = may = frozenset({row.who})
            if row.along is None:
                return
            lacking: set[str] = set()
        else:
            installed = {one for one in row.members if one in first}
            came = frozenset(
                one
                for one in installed
                if first[one].previous == row.previous and (first[one].cut == row.cut or first[one].along == row.along)
            )
            of_old = self._listed.get(row.previous)
            unseen = {one for one in row.members if one not in first and (of_old is None or one in of_old)}
            may = came | {one for one in unseen if not self._stayed_behind(one, view)}
            lacking = set(came - (row.along or frozenset()))
        extra = (row.along or frozenset()) - may
        if extra or lacking:
            self.report(
                [row.who, *sorted(extra | lacking)],
                view,
                what="set",
                local=row.local,
                previous_view=row.previous,
                extra=sorted(extra),
                lacking=sorted(lacking),
            )

    def _stayed_behind(self, name: str, view: str) -> bool:
        """Whether a member whose trace is whole waited in an earlier view for its END, with nothing under way."""
        life = self.history.by_name.get(name)
        if life is None or life.unknown is not None or life.ending != END or life.ending_reason == CUT:
            return False
        return life.stay is None or view_number(life.stay.id) < view_number(view)
