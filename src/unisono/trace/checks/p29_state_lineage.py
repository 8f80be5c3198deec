"""P29 state lineage: the state of a primary descends from one part, that of the last primary.

The VIEW row of a primary names in `attributes.state` the part that carries the state into it, as ``view/cut`` (the members
that came from that view with that cut); there is none if the state is the first. `attributes.holds` says whether this member
has that state.

- All members that install a primary name the same `state`.
- Let P be the predecessor: the first of `previous_primary` that any life in the trace installed as primary. The named part comes
  from P, or a member in it has the state of P; and a member of it holds the state. If a member of P never installed it, nothing
  safe was delivered in P before its Transition: then the predecessor of P will do, and if P was the first, none is needed.
- A member has the state of P if it installed P, or took over a state in a later view with a member that has it: in a view
  that is not primary, a joiner is given the state of a holder and holds it from then on. That view is the first one that its
  application is shown after the STATE row.
- A primary with a predecessor, whose members say whether they hold the state, names a part.
- None of this is asked of a primary before which an operator gave the state up: its members name the same view whose state it
  was (`attributes.abandons`), one of its `previous_primary`, or an earlier primary.
- A member that does not hold the state is shown the view only after a STATE row; one that came with the named part may have had
  it before the view began. The state of one that holds it is not replaced in that view.
- Under the primary policy a state is taken over (SNAPSHOT_IN) only with a STATE row in the same view of the member.

Nothing is asked of a run whose applications were not recorded, and nothing is concluded from a life with missing rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from unisono.trace.checks.attributes import is_true, value_of
from unisono.trace.checks.p27_safe_primary import came_with, part_of, primaries, state_named
from unisono.trace.checks.property import Each, Example, Kind, PropertyRecord, RowOf
from unisono.trace.checks.shown_rows import Breach, LifeRows, Lives, ShownChecker
from unisono.trace.schema import END, LEAVE, SHOW, SNAPSHOT_IN, STATE, VIEW, Event, view_number


def decide(lives: Lives) -> Iterator[Breach]:
    if not any(life.is_shown for life in lives.values()):
        return
    chain = primaries(lives)
    for view, rows in chain.items():
        named = {value_of(row, "state") for row in rows.values()}
        if len(named) > 1:
            yield _finding("disagree", sorted(rows), view, states=_said(rows, "state"))
        given_up = {value_of(row, "abandons") for row in rows.values()}
        if len(given_up) > 1:
            yield _finding("abandons", sorted(rows), view, states=_said(rows, "abandons"))
        yield from _judge_origin(lives, chain, view, rows)
    for name in sorted(lives):
        if not lives[name].is_holed and lives[name].is_shown:
            yield from _judge_life(lives[name])


def _judge_origin(
    lives: Lives, chain: dict[str, dict[str, Event]], view: str, rows: dict[str, Event]
) -> Iterator[Breach]:
    predecessor = _predecessor(chain, rows)
    if predecessor is None:
        return
    if _gives_up(chain, view, rows):
        return
    state = state_named(rows)
    if state is None:
        told = {value_of(row, "holds") for row in rows.values()} - {None}
        if told and not _may_begin(chain, predecessor):
            yield _finding("no state", sorted(rows), view, predecessor=predecessor)
        return
    part = part_of(rows, state)
    absent = {name for row in rows.values() for name in row.members or ()} - rows.keys()
    if absent or any(lives[name].is_holed for name in part):
        return
    members = sorted(part) or sorted(rows)
    if not _descends(lives, chain, part, state, predecessor):
        yield _finding("other part", members, view, state=state, part=sorted(part), predecessor=predecessor)
    elif part and all(value_of(row, "holds") == "false" for row in part.values()):
        yield _finding("not held", members, view, state=state, part=sorted(part))


def _gives_up(chain: dict[str, dict[str, Event]], view: str, rows: dict[str, Event]) -> bool:
    """Whether all members of a primary gave up the state of an earlier one."""
    given_up = {value_of(row, "abandons") for row in rows.values()}
    one = given_up.pop()
    if given_up or one is None:
        return False
    superseded = {name for row in rows.values() for name in (value_of(row, "previous_primary") or "").split(",")}
    return one in superseded or (one in chain and view_number(one) < view_number(view))


def _predecessor(chain: dict[str, dict[str, Event]], rows: dict[str, Event]) -> str | None:
    claim = next((text for name in sorted(rows) if (text := value_of(rows[name], "previous_primary"))), "")
    return next((one for one in claim.split(",") if one in chain), None)


def _earlier(chain: dict[str, dict[str, Event]], view: str) -> Iterator[str]:
    """A primary and, as long as a member of the last one never installed it, those before."""
    seen: set[str] = set()
    current: str | None = view
    while current is not None and current not in seen:
        seen.add(current)
        yield current
        rows = chain[current]
        members = {name for row in rows.values() for name in row.members or ()}
        current = _predecessor(chain, rows) if members - rows.keys() else None


def _descends(
    lives: Lives, chain: dict[str, dict[str, Event]], part: dict[str, Event], state: str, predecessor: str
) -> bool:
    """Whether a part comes from that primary, or from an equivalent one."""
    source = state.partition("/")[0]
    return any(source == view or _has_state_of(lives, view, part) for view in _earlier(chain, predecessor))


def _has_state_of(lives: Lives, primary: str, part: dict[str, Event]) -> bool:
    """Whether one of these had the state of a primary before its VIEW row, as far as the trace can tell."""
    asked = list(part.items())
    seen: set[str] = set()
    while asked:
        name, before = asked.pop()
        if _was_in(lives[name], primary, before):
            return True
        for entered in _taken_over(lives[name]):
            if entered.local_index >= before.local_index or entered.view is None or entered.view in seen:
                continue
            seen.add(entered.view)
            for other in entered.members or ():
                donor = lives.get(other)
                row = None if donor is None else donor.views.get(entered.view)
                if donor is None or donor.is_holed or (row is None and not donor.is_whole):
                    return True  # it may have had the state: its trace does not say
                if row is not None:
                    asked.append((other, row))
    return False


def _taken_over(life: LifeRows) -> Iterator[Event]:
    """The VIEW rows of views in which a life took over a state."""
    is_taken = False
    for row in life.rows:
        if row.kind == STATE:
            is_taken = True
        elif row.kind == SHOW and is_taken:
            is_taken = False
            entered = life.views.get(row.view or "")
            if entered is not None:
                yield entered


def _may_begin(chain: dict[str, dict[str, Event]], predecessor: str) -> bool:
    """Whether no primary before was installed by all of its members."""
    *_, first = _earlier(chain, predecessor)
    rows = chain[first]
    return bool({name for row in rows.values() for name in row.members or ()} - rows.keys())


def _was_in(life: LifeRows, view: str, before: Event) -> bool:
    row = life.views.get(view)
    return row is not None and row.local_index < before.local_index


def _judge_life(life: LifeRows) -> Iterator[Breach]:
    current: Event | None = None  # the VIEW row of the view installed last
    states: list[int] = []  # local indices of STATE rows
    taken: Event | None = None  # the first SNAPSHOT_IN in that view
    for row in life.rows:
        if row.kind == VIEW:
            yield from _judge_taken(life, current, taken, states)
            current, taken = row, None
        elif row.kind == STATE:
            states.append(row.local_index)
            if current is not None and value_of(current, "holds") == "true" and is_true(row, "replaced"):
                yield _own(life, row, "holder", held=current.view)
        elif row.kind == SNAPSHOT_IN:
            taken = taken or row
        elif row.kind == SHOW:
            entered = life.views.get(row.view or "")
            if entered is None or value_of(entered, "holds") != "false":
                continue
            state = value_of(entered, "state")
            if state is None or (states and came_with(entered, state)):
                continue  # the first state, or its own came while the view was agreed on
            if not any(at > entered.local_index for at in states):
                yield _own(life, row, "without state")
    if life.ending in (END, LEAVE):
        yield from _judge_taken(life, current, taken, states)


def _judge_taken(life: LifeRows, current: Event | None, taken: Event | None, states: list[int]) -> Iterator[Breach]:
    """A view is over in which a state may have been taken over."""
    if current is None or taken is None or value_of(current, "primary") is None:
        return
    if not any(at > current.local_index for at in states):
        yield _own(life, taken, "in silence")


def _said(rows: dict[str, Event], attribute: str) -> list[tuple[str, str | None]]:
    return [(name, value_of(rows[name], attribute)) for name in sorted(rows)]


def _own(life: LifeRows, row: Event, what: str, **more: object) -> Breach:
    return Breach(what, (life.name,), row.view, row.local_index, more)


def _finding(what: str, members: Iterable[str], view: str, **more: object) -> Breach:
    return Breach(what, tuple(members), view, None, more)


class StateLineage(ShownChecker):
    about = PropertyRecord(
        id="P29",
        name="state lineage",
        says="A primary's state is that of the last primary, and is never replaced in silence.",
        exact=__doc__,
        rows=(SHOW, STATE, SNAPSHOT_IN),
        roles=("who",),
        witness={
            "what": Kind.TEXT, "local": RowOf("who"), "state": Kind.TEXT, "part": Kind.MEMBERS, "predecessor": Kind.VIEW,
            "states": Each({"who": Kind.MEMBERS, "state": Kind.TEXT}, "{who} [{state}|none]"), "held": Kind.VIEW,
        },
        sentence={
            "disagree": "Primary {view}: its members name several states: {states}.",
            "abandons": "Primary {view}: its members gave up several states: {states}.",
            "no state": "Primary {view}: it begins without a state, although it follows primary {predecessor}.",
            "other part": "Primary {view}: its state comes from {state} with [{part}|no member], who did not come from primary "
            "{predecessor}.",
            "not held": "Primary {view}: its state comes from {state}, but [{part}|no member] did not hold it.",
            "holder": "{who} had its state replaced in view {held}, although it holds it (local {local}).",
            "without state": "{who} was shown view {view} without having its state, or a STATE row that brings it (local {local}).",
            "in silence": "{who} took over a state, and its application was not told (local {local}).",
        },
        example=Example(
            ("c",), "3@a", {"what": "other part", "state": "2@c/3@c", "part": ["c"], "predecessor": "2@a"}
        ),
    )  # fmt: skip

    def decide(self, lives: dict[str, LifeRows]) -> Iterator[Breach]:
        return decide(lives)
