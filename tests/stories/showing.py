"""What the members of a story show, as lines: events in their order, members that show the same in one paragraph."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from tests.stories.applications import title_of
from unisono.core.member import Diverged, Entered, Replaced
from unisono.core.membership import Evicted, Left, Outlived, Refused
from unisono.core.transition import Transition
from unisono.core.types import Batch, MemberId
from unisono.sim.group_state import StatefulProcess
from unisono.sim.group_world import SimulatedProcess, Told
from unisono.trace.schema import OK

NOTHING = "nothing is shown"
NUMBERED = re.compile(r"(.*?)(\d+)")
LAST_WORDS = "last words of "  # which every member casts before it is judged
PIECES_MAX = 12
END = object()


def listed(members: Iterable[MemberId]) -> str:
    return " ".join(map(str, members))


def in_short(texts: Sequence[str]) -> str:
    """Payloads in their order, runs of numbers as ranges: `a1..a9 x`. Of many, the ranges alone, and that they mixed."""
    pieces = _pieces(texts)
    if len(pieces) > PIECES_MAX:
        return f"{len(texts)} mixed: {' '.join(_pieces(sorted(texts, key=_by_number)))}"
    return " ".join(pieces)


def _pieces(texts: Sequence[str]) -> list[str]:
    runs: list[list[str]] = []
    for text in texts:
        name, number = _by_number(text)
        if runs and number > 0 and _by_number(runs[-1][-1]) == (name, number - 1):
            runs[-1].append(text)
        else:
            runs.append([text])
    return [run[0] if len(run) == 1 else f"{run[0]}..{run[-1]}" for run in runs]


def _by_number(text: str) -> tuple[str, int]:
    match = NUMBERED.fullmatch(text)
    return (match[1], int(match[2])) if match else (text, -1)


class Onlooker:
    """What one process shows from one block to the next."""

    def __init__(self, process: SimulatedProcess) -> None:
        self.process = process
        self._order = process.world.order
        self._seen = self._merges = 0
        self.titles: dict[int, str] = {}
        """Its own messages, by number; receipts name them."""

    def lines(self) -> list[str]:
        """What it has shown since it was asked last."""
        events, self._seen = self.process.shown[self._seen :], len(self.process.shown)
        lines: list[str] = []
        texts: list[str] = []
        for event in [*events, END]:
            if isinstance(event, Batch):
                told = (title_of(bytes(payload)) for payload in event.payloads or ())
                texts += [text for text in told if not text.startswith(LAST_WORDS)]
                continue
            if texts:
                lines.append(f"delivers {in_short(texts)}")
                texts = []
            lines += self._line(event)
        if isinstance(self.process, StatefulProcess) and len(self.process.app.merged) > self._merges:
            lines += [f"merges {len(parts)} states" for parts in self.process.app.merged[self._merges :]]
            self._merges = len(self.process.app.merged)
        return lines

    def _line(self, event: Any) -> list[str]:
        match event:
            case Transition():
                return [f"transition: {listed(event.together)}" + ("" if event.is_primary else ", not primary")]
            case Entered():
                order, self._order = self._order, event.charter.order
                return [_view(event) + (f"; order {self._order}" if self._order != order else "")]
            case Told(message, outcome):
                title = self.titles.get(message, f"message {message}")
                return [f"{'knows that' if outcome == OK else 'will never know whether'} {title} is stable"]
            case Refused():
                return [f"is refused by {event.by}: {event.reason}"]
            case Evicted():
                return [f"is evicted by {event.by}, and rests {event.rest_ns / 1e9:g} s"]
            case Outlived():
                return [f"is outlived, says {event.by}: begin above {event.newest}"]
            case Diverged() | Replaced():
                return [str(event)]
            case Left():
                return ["has left"]
            case None:
                return ["takes a state over"]
            case _:
                return []


def _view(event: Entered) -> str:
    view, came = event.view, event.previous is not None
    words = f"view {view.id}: {listed(view.members)}" + ("" if event.is_primary else ", read-only")
    if came and set(event.together) != set(view.members):
        words += f"; together {listed(event.together)}"
    if came and event.joined:
        words += f"; joined {', '.join(_because(one, str(event.joined[one])) for one in event.joined)}"
    if event.left:
        words += f"; left {', '.join(_because(one, event.left[one].cause.name.lower()) for one in event.left)}"
    return words


def _because(member: MemberId, why: str) -> str:
    return str(member) if why in ("new", "left") else f"{member} ({why})"


def merged(shown: Sequence[tuple[str, Sequence[str]]]) -> list[str]:
    """Lines of a name each; names with the same lines stand together."""
    names: dict[tuple[str, ...], list[str]] = {}
    for name, lines in shown:
        if lines:
            names.setdefault(tuple(lines), []).append(name)
    text: list[str] = []
    for group, who in names.items():
        head = " ".join(who)
        text += [f"{head}: {group[0]}"] if len(group) == 1 else [head, *(f"  {line}" for line in group)]
    return text


Variant = tuple[str, str]
"""An order, and how reports travel."""


def by_variant(outcomes: Sequence[tuple[Variant, Sequence[str]]]) -> list[str]:
    """The outcome of one block under each variant; those that are alike stand together, under their names if they differ."""
    every = [variant for variant, _ in outcomes]
    alike: dict[tuple[str, ...], list[Variant]] = {}
    for variant, lines in outcomes:
        alike.setdefault(tuple(lines) or (NOTHING,), []).append(variant)
    if len(alike) == 1:
        return list(next(iter(alike)))
    return [line for lines, some in alike.items() for line in (f"[{_called(some, every)}]", *lines)]


def _called(some: Sequence[Variant], every: Sequence[Variant]) -> str:
    """An order for itself if it is there by every way, a way if every order is; otherwise each variant."""
    for place in (0, 1):
        groups = {variant[place]: [one for one in every if one[place] == variant[place]] for variant in some}
        if sum(map(len, groups.values())) == len(some):
            return ", ".join(name or "default" for name in groups)
    return ", ".join(" by ".join(variant) for variant in some)
