"""P25 together means the same: members that go from one view to the next together were shown the same messages.

Judged on what applications were shown (SHOW and TRANSITION rows, see docs/trace-conventions.md). Messages with destinations and
datagrams do not count, nor do views in which a member's state was replaced, because messages may have come inside that state.

- Let p show V' after V and name q in `together`. If q shows V' too, it also comes from V, names p, and was shown the same
  messages in V: the same `shown` and `digest`, and those of the service `total` in the same order (`chain`).
- `joined` = members - together, `left` = members of V - together; p is in `together`. In a first view `together` is p alone.
- A life shows a view that it installed, with the same members. All that show it say alike whether it is `primary`.
- A life that installed V' from V, with no state replaced in between, shows as `together` the transitional set of its VIEW row for
  V'. A SHOW row says that the state was `restored` only behind a STATE or SNAPSHOT_IN row since the SHOW row before.
- Exactly one TRANSITION lies between two SHOW rows of a life, none before the first. It names the view that ends and the same
  `together`; the SHOW row may name fewer if the state was replaced in between.
- When V ends, p was shown the messages that it delivered in V before it blocked: the remainder comes behind the TRANSITION.
- What p was shown in V is what it delivered in V.
- Let p leave the group behind a TRANSITION of V that names q. If q shows a view after V, or leaves V likewise and names p, both
  delivered the same messages in V.

A life without SHOW rows has no application, and one with missing rows is not asked.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from unisono.trace.checks.attributes import is_true, value_of, whole
from unisono.trace.checks.history import History
from unisono.trace.checks.model import DATAGRAM as OF_DATAGRAM
from unisono.trace.checks.model import PLACED, Life, named
from unisono.trace.checks.property import Example, Kind, PropertyRecord, RowOf
from unisono.trace.checks.shown_rows import Breach, LifeRows, Lives, ShownChecker, SpansOf, names_in
from unisono.trace.schema import (
    BLOCK,
    DATAGRAM,
    DELIVER,
    LEAVE,
    SHOW,
    SNAPSHOT_IN,
    STATE,
    TOTAL,
    TRANSITION,
    Event,
    member_name,
)
from unisono.trace.shown import NOTHING, Shown, ShownTotals

Batches: TypeAlias = Sequence[tuple[str, int, int]]
"""Origin, first, end."""
NAMED_MAX = 3
"""How many differing messages of a member a witness names."""


class DeliveredInView(NamedTuple):
    """What the rows of one life say that it delivered in one view, as far as it counts."""

    all: Shown
    ordinary: int | None
    """How many messages of that before it blocked; None: it did not block."""


NONE_DELIVERED = DeliveredInView(NOTHING, None)


@dataclass
class _Step:
    """A SHOW row that follows another one."""

    life: LifeRows
    row: Event
    view: str
    previous: str
    together: frozenset[str]
    told: Shown
    is_complete: bool
    """The state was not replaced since this life entered the previous view."""

    @property
    def name(self) -> str:
        return self.life.name


class _Parting(NamedTuple):
    """A TRANSITION behind which a life left the group."""

    life: LifeRows
    row: Event
    together: frozenset[str]
    delivered: Shown


def decide(
    lives: Lives, delivered: Mapping[tuple[str, str], DeliveredInView], batches: Callable[[str, str], Batches]
) -> Iterator[Breach]:
    """`delivered` and `batches` tell what a life delivered in a view; `batches` is asked only where two differ."""
    steps: defaultdict[str, dict[str, _Step]] = defaultdict(dict)  # by view and name
    partings: dict[str, _Parting] = {}  # by name
    for name in sorted(lives):
        life = lives[name]
        if not life.is_holed:
            for found in _judge_life(life, delivered):
                if isinstance(found, _Step):
                    steps[found.view].setdefault(name, found)
                elif isinstance(found, _Parting):
                    partings[name] = found
                else:
                    yield found
    for view in sorted(steps):
        yield from _compare(steps[view], batches)
    yield from _compare_partings(partings, steps)
    yield from _judge_primary(lives)


def _judge_life(
    life: LifeRows, delivered: Mapping[tuple[str, str], DeliveredInView]
) -> Iterator[Breach | _Step | _Parting]:
    last: Event | None = None
    ends: list[Event] = []  # TRANSITION rows since the last SHOW
    for row in life.rows:
        if row.kind == TRANSITION:
            ends.append(row)
            yield from _judge_transition(life, row, last, delivered)
        elif row.kind == SHOW:
            yield from _judge_sets(life, row, last)
            yield from _judge_ends(life, row, last, ends)
            if last is not None:
                yield from _judge_companions(life, row, last)
                assert row.view is not None
                assert last.view is not None
                step = _Step(
                    life,
                    row,
                    row.view,
                    last.view,
                    frozenset(names_in(row, "together")),
                    _told(row),
                    _is_complete(life, last.view, row),
                )
                if step.is_complete:
                    actual = delivered.get((life.name, last.view), NONE_DELIVERED).all
                    if step.told != actual:
                        yield _finding(
                            "altered",
                            life,
                            row,
                            previous=last.view,
                            shown=step.told.shown,
                            delivered=actual.shown,
                        )
                yield step
            last, ends = row, []
    has_left = life.ending == LEAVE and last is not None and [row.view for row in ends] == [last.view]
    if has_left and _is_complete(life, ends[0].view or "", ends[0]):
        told = delivered.get((life.name, ends[0].view or ""), NONE_DELIVERED).all
        yield _Parting(life, ends[0], frozenset(names_in(ends[0], "together")), told)


def _judge_transition(
    life: LifeRows, row: Event, last: Event | None, delivered: Mapping[tuple[str, str], DeliveredInView]
) -> Iterator[Breach]:
    if last is None or row.view != last.view:
        yield _finding("transition", life, row, last=None if last is None else last.view)
        return
    assert row.view is not None
    ordinary = delivered.get((life.name, row.view), NONE_DELIVERED).ordinary
    if ordinary is not None and _is_complete(life, row.view, row) and _told(row).shown != ordinary:
        yield _finding(
            "remainder",
            life,
            row,
            shown=_told(row).shown,
            delivered=ordinary,
        )


def _judge_sets(life: LifeRows, row: Event, last: Event | None) -> Iterator[Breach]:
    members, together = frozenset(row.members or ()), frozenset(names_in(row, "together"))
    installed = life.views.get(row.view or "")
    if installed is None or installed.local_index > row.local_index or installed.members != row.members:
        own = None if installed is None else installed.members
        yield _finding("view", life, row, list=row.members, installed=own)
    if last is None and together != {life.name}:
        yield _finding("first", life, row, together=sorted(together))
    elif life.name not in together or together - members:
        yield _finding("set", life, row, together=sorted(together), list=sorted(members))
    if (previous := value_of(row, "previous")) != (None if last is None else last.view):
        yield _finding("previous", life, row, previous=previous, last=None if last is None else last.view)
    before = frozenset() if last is None else frozenset(last.members or ())
    for name, expected in (("joined", members - together), ("left", before - together)):
        told = frozenset(names_in(row, name))
        if told != expected:
            yield _finding(name, life, row, told=sorted(told), expected=sorted(expected))


def _judge_ends(life: LifeRows, row: Event, last: Event | None, ends: list[Event]) -> Iterator[Breach]:
    if len(ends) != (last is not None):
        yield _finding("transition", life, row, transitions=len(ends), expected=int(last is not None))
    elif last is not None:
        earlier, together = frozenset(names_in(ends[0], "together")), frozenset(names_in(row, "together"))
        may_shrink = life.replaced(last.local_index, row.local_index) or is_true(row, "restored")
        if earlier != together and not (may_shrink and together <= earlier):
            yield _finding("transition set", life, row, together=sorted(together), earlier=sorted(earlier))


def _judge_companions(life: LifeRows, row: Event, last: Event) -> Iterator[Breach]:
    """Who came together is who came along, and a state that was restored was taken over."""
    is_replaced = life.replaced(last.local_index, row.local_index)
    if is_true(row, "restored"):
        if not is_replaced:
            yield _finding("restored", life, row)
        return
    entered, together = life.views.get(row.view or ""), frozenset(names_in(row, "together"))
    if entered is None or is_replaced or entered.previous_view != last.view or entered.transitional is None:
        return
    along = frozenset(entered.transitional)
    if together != along:
        yield _finding("companions", life, row, together=sorted(together), previous=last.view, along=sorted(along))


def _judge_primary(lives: Lives) -> Iterator[Breach]:
    """Whether a view is primary, all are told alike."""
    first: dict[str, tuple[LifeRows, Event]] = {}
    told: set[str] = set()
    for name in sorted(lives):
        for row in lives[name].rows:
            if row.kind != SHOW or row.view is None:
                continue
            other, before = first.setdefault(row.view, (lives[name], row))
            here, there = value_of(row, "primary"), value_of(before, "primary")
            if here != there and row.view not in told:
                told.add(row.view)
                yield _finding(
                    "primary",
                    lives[name],
                    row,
                    primary=here,
                    other=other.name,
                    other_local=before.local_index,
                    other_primary=there,
                )


def _compare(steps: dict[str, _Step], batches: Callable[[str, str], Batches]) -> Iterator[Breach]:
    """Who names whom in one view. The odd one is compared with a member whose totals most others share."""
    told: set[frozenset[str]] = set()
    for name in sorted(steps):
        one = steps[name]
        alike = []
        for other in (steps[who] for who in sorted(one.together & steps.keys())):
            if not one.is_complete or not other.is_complete:
                continue
            if other.previous == one.previous and name in other.together:
                alike.append(other)
            else:
                shown = other.previous if other.previous != one.previous else None
                yield _finding(
                    "not together", one.life, one.row, other.life, previous=one.previous, other_previous=shown
                )
        if not alike:
            continue
        common = Counter(step.told for step in alike).most_common(1)[0][0]
        model = next(step for step in alike if step.told == common)
        pair = frozenset({name, model.name})
        if one.told != common and pair not in told:
            told.add(pair)
            yield _differ(model, one, batches)


def _compare_partings(partings: Mapping[str, _Parting], steps: Mapping[str, dict[str, _Step]]) -> Iterator[Breach]:
    """A member that left in order is compared with those that it names, whether they went on or left too."""
    shown = {
        (step.name, step.previous): step for entered in steps.values() for step in entered.values() if step.is_complete
    }
    for name, one in partings.items():
        for whom in sorted(one.together - {name}):
            step, other = shown.get((whom, one.row.view or "")), partings.get(whom)
            if step is not None:
                life, theirs = step.life, step.told
            elif other is not None and other.row.view == one.row.view and name in other.together and name < whom:
                life, theirs = other.life, other.delivered
            else:
                continue
            if theirs != one.delivered:
                yield _finding(
                    "left differing", one.life, one.row, life, delivered=one.delivered.shown, shown=theirs.shown
                )
                break


def _differ(one: _Step, other: _Step, batches: Callable[[str, str], Batches]) -> Breach:
    view = one.previous
    mine, theirs = batches(one.name, view), batches(other.name, view)
    only_mine, only_theirs = _beyond(mine, theirs), _beyond(theirs, mine)
    return _finding(
        "differ",
        one.life,
        one.row,
        other.life,
        previous=view,
        messages=(only_mine + only_theirs)[:NAMED_MAX],
        only_mine=_first_ones(only_mine),
        only_theirs=_first_ones(only_theirs),
    )


def _first_ones(messages: list[str]) -> list[str]:
    return [*messages[:NAMED_MAX], "…"] if len(messages) > NAMED_MAX else messages


def _beyond(some: Batches, others: Batches) -> list[str]:
    """The messages of one sequence that are not in the other."""
    known = SpansOf()
    for origin, first, end in others:
        known.add((origin,), first, end)
    return [named(origin, *part) for origin, first, end in some for part in known.outside((origin,), first, end)]


def _is_complete(life: LifeRows, view: str, until: Event) -> bool:
    entered = life.views.get(view)
    if entered is None or is_true(until, "restored"):
        return False
    return not life.replaced(entered.local_index, until.local_index)


def _told(row: Event) -> Shown:
    shown = whole(value_of(row, "shown"))
    return Shown(-1 if shown is None else shown, value_of(row, "digest") or "", value_of(row, "chain") or "")


def _finding(what: str, life: LifeRows, row: Event, whom: LifeRows | None = None, **more: object) -> Breach:
    members = (life.name,) if whom is None else (life.name, whom.name)
    return Breach(what, members, row.view, row.local_index, {"kind": row.kind, **more})


class Together(ShownChecker):
    about = PropertyRecord(
        id="P25",
        name="together",
        says="Applications that are told they came along together were shown the same messages.",
        exact=__doc__,
        rows=(SHOW, TRANSITION, STATE, SNAPSHOT_IN, DELIVER, BLOCK),
        roles=("who", "whom"),
        witness={
            "what": Kind.TEXT, "local": RowOf("who"), "kind": Kind.TEXT, "previous": Kind.VIEW, "last": Kind.VIEW,
            "shown": Kind.NUMBER, "delivered": Kind.NUMBER, "list": Kind.MEMBERS, "installed": Kind.MEMBERS,
            "together": Kind.MEMBERS, "told": Kind.MEMBERS, "expected": Kind.TEXT, "transitions": Kind.NUMBER,
            "earlier": Kind.MEMBERS, "along": Kind.MEMBERS, "primary": Kind.TEXT, "other": Kind.MEMBERS,
            "other_local": RowOf("other"), "other_primary": Kind.TEXT, "other_previous": Kind.VIEW,
            "messages": Kind.MESSAGES, "only_mine": Kind.MESSAGES, "only_theirs": Kind.MESSAGES,
        },
        sentence={
            what: f"{{who}} {how} ({{kind}} of view {{view}}, local {{local}})."
            for what, how in (
                ("altered", "was shown {shown} messages in view {previous}, which are not the {delivered} that it delivered there"),
                (
                    "transition",
                    "was [shown view {view} behind {transitions} transitions instead of {expected}|told that view {view} ends, but "
                    "{last} was shown last|told that view {view} ends, but none was shown last]",
                ),
                (
                    "remainder",
                    "was shown {shown} messages in view {view} before its end, but it had delivered {delivered} when it blocked",
                ),
                ("view", "was shown view {view} of {list}, which it [installed with {installed}|has not installed]"),
                ("first", "was told that [{together}|no member] came together into its first view"),
                ("set", "was told that [{together}|no member] came together into a view of {list}"),
                ("previous", "came from view [{previous}|none], but [{last}|none] was shown last"),
                (
                    "joined",
                    "was told that [{told}|no member] joined, but apart from those together it is [{expected}|no member]",
                ),
                ("left", "was told that [{told}|no member] left, but apart from those together it is [{expected}|no member]"),
                (
                    "transition set",
                    "was told that [{together}|no member] came together, but [{earlier}|no member] when the last view ended",
                ),
                ("restored", "was told that its state was restored, and took over none since the last view"),
                (
                    "companions",
                    "was told that [{together}|no member] came together from view {previous}, but [{along}|no member] came along",
                ),
                (
                    "left differing",
                    "left together with {whom}, but the {delivered} messages that it delivered there are not the {shown} of {whom}",
                ),
                (
                    "primary",
                    "was told [{primary}|nothing] of whether the view is primary, and {other} [{other_primary}|nothing]",
                ),
                (
                    "not together",
                    "was told that {whom} came along from view {previous}, but that [was shown {other_previous} before|was not "
                    "told so of {who}]",
                ),
                (
                    "differ",
                    "came from view {previous} together with {whom}, but they were shown other messages there: [{only_mine} only "
                    "to {who} and {only_theirs} only to {whom}|{only_mine} only to {who}|{only_theirs} only to {whom}|the same "
                    "ones in another order, or with another content]",
                ),
            )
        },
        example=Example(
            ("a", "b"), "2@a", {
                "what": "differ", "local": 6, "kind": "SHOW", "previous": "1@a", "messages": ["a:0"], "only_mine":
                ["a:0"],
            }
        ),
    )  # fmt: skip

    def __init__(
        self, history: History | None = None, delivered: Mapping[tuple[str, str], DeliveredInView] | None = None
    ) -> None:
        """`delivered`: what was computed elsewhere of rows that are not given, by life and view."""
        super().__init__(history)
        self._delivered = delivered
        self._totals: defaultdict[tuple[str, str], ShownTotals] = defaultdict(ShownTotals)
        self._ordinary: dict[tuple[str, str], int] = {}

    def row(self, life: Life, event: Event) -> None:
        if event.kind == DELIVER:
            if event.destinations is None and event.service != DATAGRAM:
                assert event.view is not None
                assert event.first is not None
                assert event.count is not None
                origin = member_name(event.origin or "", event.origin_incarnation or 0)
                totals = self._totals[life.name, event.view]
                totals.add(origin, event.first, event.count, event.digest, event.service == TOTAL)
        elif event.kind == BLOCK and life.stay is not None:
            key = (life.name, life.stay.id)
            self._ordinary.setdefault(key, self._totals[key].shown)

    def decide(self, lives: dict[str, LifeRows]) -> Iterator[Breach]:
        added = {key: DeliveredInView(totals.told(), self._ordinary.get(key)) for key, totals in self._totals.items()}
        return decide(lives, added if self._delivered is None else self._delivered, self._batches_of)

    def _batches_of(self, name: str, view: str) -> Batches:
        """What a life delivered in a view, to everyone."""
        stay, numbered = self.history.by_name[name].stays.get(view), self.history.numbered
        if stay is None:
            return []
        batches = []
        for (number, first, end), mark in zip(stay.spans, stay.marks, strict=True):
            cast = numbered[number].casts.get(first)
            if not mark & (PLACED | OF_DATAGRAM) and (cast is None or cast.destinations is None):
                batches.append((numbered[number].name, first, end))
        return batches
