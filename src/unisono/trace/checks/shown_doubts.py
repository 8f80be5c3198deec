"""What is recorded of applications and cannot be judged: it breaks nothing, and keeps its life from passing.

Asked of the lives without missing rows, where the property is owed:

- P28: a RECEIPT names a stage (delivered, applied, stable) and an outcome (ok; uncertain, with the members that are `known`).
- P25: a life with RECEIPT rows is shown views. While its application waits for a state it is shown none, so nothing is asked of
  a life that left, crashed or was cut off before it was told that a message is applied, if another member could have given it
  one. A life that came to its END, with nothing under way, was shown the view that it installed last.
- P25, P26: a STATE row excuses what was not shown or delivered, so the state must have come from somewhere: there is a SNAPSHOT_IN
  row of that life since the view that it was shown last, or since then it has installed a view with a member that had not come
  along with it, or a primary that says that this life does not hold its state.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from unisono.trace.checks.attributes import value_of
from unisono.trace.checks.shown_rows import LifeRows, Lives
from unisono.trace.files import parse_json
from unisono.trace.schema import (
    CRASH,
    CUT,
    END,
    LEAVE,
    OK,
    RECEIPT,
    SHOW,
    SNAPSHOT_IN,
    STAGES,
    STATE,
    UNCERTAIN,
    VIEW,
    Event,
)

_, APPLIED, _ = STAGES


class ShownDoubt(NamedTuple):
    """Why a life cannot pass, where a property is owed in a view."""

    property: str
    who: str
    view: str | None
    text: str


def shown_doubts(lives: Lives) -> Iterator[ShownDoubt]:
    for name in sorted(lives):
        life = lives[name]
        if not life.is_holed:
            yield from _of_receipts(life)
            yield from _of_views(life)
            yield from _of_states(life)


def _of_receipts(life: LifeRows) -> Iterator[ShownDoubt]:
    may_wait = _may_wait_for_a_state(life)
    for row in life.rows:
        if row.kind == RECEIPT:
            what = _unclear(row)
            if what is not None:
                yield ShownDoubt("P28", life.name, row.view, f"its RECEIPT (local {row.local_index}) has {what}")
            if not life.is_shown and not (may_wait and value_of(row, "stage") != APPLIED):
                text = f"its application was given a RECEIPT (local {row.local_index}), and was shown no view"
                yield ShownDoubt("P25", life.name, row.view, text)


def _may_wait_for_a_state(life: LifeRows) -> bool:
    """Whether its application may have waited for another member's state to the end of this life."""
    has_ended_early = life.ending in (CRASH, LEAVE) or life.ending_reason == CUT
    return has_ended_early and any(_brings_others(life, row) for row in life.views.values())


def _unclear(row: Event) -> str | None:
    stage, outcome = value_of(row, "stage"), value_of(row, "outcome")
    if stage not in STAGES:
        return f"the stage {stage!r}, which there is not" if stage else "no stage"
    if outcome not in (OK, UNCERTAIN):
        return f"the outcome {outcome!r}, which there is not" if outcome else "no outcome"
    if outcome == UNCERTAIN and not _is_list(value_of(row, "known")):
        return "no list of the members that are known to have the message"
    return None


def _is_list(text: str | None) -> bool:
    try:
        names = parse_json(text or "")
    except ValueError:
        return False
    return isinstance(names, list) and all(isinstance(name, str) for name in names)


def _of_views(life: LifeRows) -> Iterator[ShownDoubt]:
    if not life.is_shown or not life.is_whole or life.ending != END or life.ending_reason == CUT:
        return
    installed = next(reversed(life.views), None)
    shown = [row.view for row in life.rows if row.kind == SHOW][-1]
    if installed is not None and installed != shown:
        text = f"it installed view {installed} and came to its END, and its application was shown {shown} last"
        yield ShownDoubt("P25", life.name, installed, text)


def _of_states(life: LifeRows) -> Iterator[ShownDoubt]:
    has_donor = False  # since the view that was shown last was installed
    shown: str | None = None
    for row in life.rows:
        if row.kind == SHOW:
            shown = row.view
            has_donor = _has_donor(life, shown)
        elif row.kind == SNAPSHOT_IN or (row.kind == VIEW and _has_a_state_for(life, row)):
            has_donor = True
        elif row.kind == STATE and not has_donor:
            text = f"it took over a state (local {row.local_index}), and no member was there to give it one"
            yield from (ShownDoubt(property, life.name, row.view, text) for property in ("P25", "P26"))


def _has_donor(life: LifeRows, shown: str | None) -> bool:
    """Whether a view that this life installed behind the one that it was shown brought a state."""
    since = life.views.get(shown or "")
    return since is not None and any(
        _has_a_state_for(life, row) for row in life.views.values() if row.local_index > since.local_index
    )


def _has_a_state_for(life: LifeRows, view: Event) -> bool:
    """Whether another member may have a state in this view that this life lacks."""
    return _brings_others(life, view) or value_of(view, "holds") == "false"


def _brings_others(life: LifeRows, view: Event) -> bool:
    return bool(frozenset(view.members or ()) - {life.name, *(view.transitional or ())})
