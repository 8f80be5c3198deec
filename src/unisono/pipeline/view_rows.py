"""The rows of one view, judged by the plain checkers (of a large view: `view_tables`).

An **excerpt** holds of each life the rows from its VIEW row to the row that closes its stay: the
next VIEW, or its ending. It says everything about what happened in the view, and nothing about the
views before. So a message that is delivered in a view and not cast in it is a violation of P13 or
P1: which of the two, only older rows could tell.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain

from unisono.trace.checks.history import History
from unisono.trace.checks.properties import CHECKERS, PROPERTIES
from unisono.trace.checks.property import Violation
from unisono.trace.schema import Event, member_name


@dataclass(frozen=True)
class Excerpt:
    """What the rows of one view show."""

    violations: tuple[Violation, ...]
    missing: tuple[str, ...]
    """Lives of which rows of the view are missing."""
    doubts: Mapping[str, str] = field(default_factory=dict)
    """Lives whose rows do not tell enough to pass, each with the reason."""


def judge_view(
    view: str,
    rows: Iterable[Event],
    asked: Iterable[str],
    endings: Mapping[str, str],
    spans: Mapping[str, tuple[int, int]],
) -> Excerpt:
    """Ask for some properties of one view; without a view, of what whole lives say.

    `endings`: how lives ended after they had left the view. `spans`: by life, which local indices there must be.
    """
    lives: dict[str, list[Event]] = {who: [] for who in spans}
    for row in rows:
        lives.setdefault(member_name(row.member, row.incarnation), []).append(row)
    missing = [who for who, (start, end) in spans.items() if not _is_whole(lives[who], start, end)]
    history = History(view or None, {who: start for who, (start, _) in spans.items()})
    checkers = [CHECKERS[one](history) for one in CHECKERS if one in set(asked)]
    for who in sorted(lives):
        some = sorted(lives[who], key=lambda row: row.local_index)
        if some and who in endings:
            last = some[-1]
            ending = Event(
                last.run, last.group, last.protocol, last.member, last.incarnation, last.local_index + 1, last.time_ns,
                last.clock, endings[who],
            )  # fmt: skip
            some.append(ending)
        lives[who] = some
    for row in chain.from_iterable(lives[who] for who in sorted(lives)):
        history.observe(row)
    for checker in checkers:
        checker.finish()
    found = [violation for checker in checkers for violation in checker.violations]
    doubts = history.doubts(of_orders=True) if view else {}
    return excerpt_of(view, found, missing, doubts)


def excerpt_of(view: str, found: Iterable[Violation], missing: Iterable[str], doubts: Mapping[str, str]) -> Excerpt:
    """What counts of that which was found in the rows of a view, whichever way they were judged."""
    lacking = tuple(missing)
    if lacking:  # a missing CAST may be of a service that does not owe P7
        found = [violation for violation in found if violation.property != "P7"]
    here = [violation for violation in found if not view or violation.view in (None, view)]
    return Excerpt(tuple(map(_plainly, here) if view else here), lacking, doubts)


def _is_whole(rows: list[Event], start: int, end: int) -> bool:
    indices = sorted({row.local_index for row in rows})
    if end < 0:
        return bool(indices) and indices == list(range(start, start + len(indices)))
    return set(range(start, end)) <= set(indices)


def _plainly(violation: Violation) -> Violation:
    """An excerpt does not know whether a message was cast in another view, so it does not say `never`."""
    if violation.property == "P1" and violation.witness["what"] == "never cast":
        witness = {**violation.witness, "what": "not cast here"}
        return PROPERTIES["P1"].violation(violation.members, violation.view, witness)
    return violation
