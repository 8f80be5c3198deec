"""P20 primary component: primaries form one chain by previous primary.

A VIEW row of a primary has `attributes.primary` = ``true`` and, but for the first primary of all, `attributes.previous_primary`:
the views that this one supersedes, the latest first, separated by commas. Those are the views that some member had confirmed since
the last primary that any of them installed, and that one at the end: a view that was confirmed may have been installed
by a member without a trace, or by none. The **predecessor** is the first of them that any life in the trace
installed as primary. A primary whose superseded views were all confirmed and never installed is a beginning of the chain, like one
that supersedes nothing: the first primary of all may be confirmed by some and then come to nothing.

- All members that install a view say the same: primary or not, and after which.
- At most one primary has no predecessor. (Where a life of the run is not whole, its views may be missing, so one that
  supersedes something is not asked for its predecessor.)
- Every other one's predecessor has a lower number.
- No two have the same predecessor.
"""

from __future__ import annotations

from collections import defaultdict

from unisono.trace.checks.attributes import is_true, value_of
from unisono.trace.checks.checker import Checker
from unisono.trace.checks.history import History
from unisono.trace.checks.model import Stay
from unisono.trace.checks.property import Example, Kind, PropertyRecord
from unisono.trace.schema import VIEW, Event, view_number


class PrimaryComponent(Checker):
    about = PropertyRecord(
        id="P20",
        name="primary component",
        says="Of several partitions at most one is primary, and primaries form one chain.",
        exact=__doc__,
        rows=(VIEW,),
        roles=(),
        witness={"what": Kind.TEXT, "views": Kind.TEXT, "predecessor": Kind.VIEW},
        sentence={
            "disagree": "Primary {view}: its members do not agree whether it is primary, and after which.",
            "number": "Primary {view}: it comes after {predecessor}, whose number is not lower.",
            "two firsts": "Primaries {views}: each begins a chain of primaries of its own.",
            "fork": "Primaries {views}: each follows primary {view}.",
        },
        example=Example(("a", "b", "d", "e"), "2@a", {"what": "fork", "views": ["3@d", "4@a"]}),
    )

    def __init__(self, history: History | None = None) -> None:
        super().__init__(history)
        self._said: defaultdict[str, dict[str, set[str]]] = defaultdict(dict)  # by view: what was said, and by whom

    def view(self, stay: Stay, event: Event) -> None:
        says = (value_of(event, "previous_primary") or "") if is_true(event, "primary") else "no"
        self._said[stay.id].setdefault(says, set()).add(stay.life.name)

    def conclude(self) -> None:
        previous: dict[str, str] = {}  # of every primary; of one about which members disagree, the least
        for view, said in self._said.items():
            if len(said) > 1:
                self._report("disagree", view, [view])
            claims = sorted(said.keys() - {"no"})
            if claims:
                previous[view] = claims[0]
        followers: defaultdict[str, list[str]] = defaultdict(list)
        is_whole = not self.history.unknown()
        firsts = []
        for view, claim in previous.items():
            predecessor = next((one for one in claim.split(",") if one in previous), None)
            if predecessor is not None:
                followers[predecessor].append(view)
                if view_number(view) <= view_number(predecessor):
                    self._report("number", view, [view], predecessor=predecessor)
            elif is_whole or not claim:
                firsts.append(view)
        if len(firsts) > 1:
            firsts.sort()
            self._report("two firsts", firsts[0], firsts, views=firsts)
        for predecessor, views in followers.items():
            if len(views) > 1:
                self._report("fork", predecessor, views, views=sorted(views))

    def _report(self, what: str, view: str, of: list[str], **more: object) -> None:
        members = {name for one in of for who in self._said[one].values() for name in who}
        self.report(sorted(members), view, what=what, **more)
