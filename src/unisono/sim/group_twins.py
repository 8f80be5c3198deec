"""Twins: the same run of a whole group once more, without a recorder. Watching must not change what runs.

A trace is taken from inside (`Outbox.noting`, the ledger of state transfer), so code can behave otherwise when it is watched.
No checker sees that, because checkers judge what was recorded. So a share of the swarm's runs has a twin, and both must show
their applications the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import zip_longest
from random import Random
from typing import Any

from unisono.core.member import Entered
from unisono.core.types import Batch, MemberId, View
from unisono.sim.group_world import GroupWorld, SimulatedProcess, Told

SHARE = 1 / 8
"""Of the runs of the swarm."""
PAYLOAD_SHOWN = 40
MISSING = object()


def has_twin(order: str, seed: int) -> bool:
    """Whether this run is run again, drawn from a stream of its own."""
    return Random(f"group swarm/twins/{order}/{seed}").random() < SHARE


def first_difference(recorded: GroupWorld, unrecorded: GroupWorld) -> str | None:
    """Where a run and its twin part, life by life, as a sentence."""
    for one, other in zip_longest(recorded.lives, unrecorded.lives):
        found = _difference_of_lives(one, other)
        if found is not None:
            return f"recording changes what runs: in {recorded.run_name}, {found}"
    return None


def _difference_of_lives(one: SimulatedProcess | None, other: SimulatedProcess | None) -> str | None:
    if one is None or other is None or one.id != other.id:
        here, there = (None if life is None else str(life.id) for life in (one, other))
        return f"the life {here} is there if it is recorded, and {there} if not"
    lists: Iterable[tuple[str, Sequence[Any], Sequence[Any]]] = (
        ("view", one.views, other.views),
        ("delivery", one.delivered, other.delivered),
        ("event of its application", one.shown, other.shown),
    )
    for what, shown, unwatched in lists:
        for number, (event, twin) in enumerate(zip_longest(shown, unwatched, fillvalue=MISSING)):
            if event != twin:
                return f"{what} {number + 1} of {one.id} is {_say(event)} if it is recorded, and {_say(twin)} if not"
    return None


def _say(event: Any) -> str:
    match event:
        case _ if event is MISSING:
            return "missing"
        case None:
            return "a state that is taken over"
        case View():
            return str(event.id)
        case Entered():
            return f"view {event.view.id}"
        case Batch():
            return f"messages {event.first} to {event.first + event.count - 1} of rank {event.origin}"
        case MemberId() as origin, bytes() as payload:
            return f"{payload[:PAYLOAD_SHOWN]!r} of {origin}"
        case Told():
            return f"the receipt of message {event.message}, {event.outcome}"
        case _:
            return type(event).__name__
