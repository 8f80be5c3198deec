"""Why messages wait at a member, in sentences: held back by the order, not yet safe, in a queue, or behind a gap."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from unisono.core.errors import Misuse
from unisono.core.member.state import MemberState
from unisono.core.types import Batch, Key, MemberId, Rank
from unisono.core.waiting import Waiting

SAID_MAX = 1_000
"""Maximum number of messages explained, the first ones; most others wait for these."""

REACHES_KEPT = 64
"""Number of looks of which the member remembers what had been delivered."""


class Reach(NamedTuple):
    """Something was delivered between two looks: at the later one, each origin's messages below this index."""

    earlier: int
    later: int
    below: dict[MemberId, int]


def waiting_messages(member: MemberState) -> Iterator[Waiting]:
    """What the ordering holds back, what is not yet safe, and what was cast and has not left; made one at a time."""
    engine, streams = member.engine, member.streams
    if streams is None:
        return
    names = engine.view.members
    for wait in engine.waits()[:SAID_MAX]:
        whom = _names(names, wait.waits_for) or "no member in particular"
        sentence = f"{_name(names, wait.batch)} is held back at {member.id}: {wait.reason}; it waits for {whom}"
        yield Waiting(_key(names, wait.batch), sentence)
    for batch, needed in islice(engine.showing.gate.waiting, SAID_MAX):
        lacking = dict.fromkeys(
            rank for origin, count in enumerate(needed or ()) for rank in streams.behind(origin, count)
        )
        whom = f"{_names(names, lacking)} to take it in" if lacking else "others before it"
        yield Waiting(_key(names, batch), f"{_name(names, batch)} is not yet safe at {member.id}: it waits for {whom}")
    if member.engine.is_blocked and engine.casting.index > engine.casting.submitted:
        count = engine.casting.index - engine.casting.submitted
        key = ("queue", engine.casting.submitted)
        yield Waiting(
            key, f"{count} messages of {member.id} wait for the next view, from {engine.casting.submitted} on"
        )


def waiting_gaps(member: MemberState) -> list[Waiting]:
    """Gaps in what others cast: a datagram was lost, and has not come again."""
    streams = member.streams
    if streams is None or member.engine.is_blocked:
        return []
    return [
        Waiting(("gap", origin, kind, number), f"{member.id} lacks a datagram of {member.engine.view.members[origin]}")
        for origin, kind, number in streams.gaps()
    ]


def explain_key(member: MemberState, key: Key, reaches: Sequence[Reach], now: int) -> Waiting | str:
    """Why one message is not delivered here: something that waits, or a whole sentence."""
    if not isinstance(key, Key):
        raise Misuse(f"{key!r} is not the key of a message: pass the key of its receipt, as in `explain(receipt.key)`.")
    engine = member.engine
    name, here = f"{key.origin}:{key.index}", member.id
    if not engine.has_view:
        return f"{name} is not known at {here}, which has no view yet."
    for batch, one in _waiting_batches(member):
        if engine.view.members[batch.origin] == key.origin and batch.first <= key.index < batch.first + batch.count:
            return one
    if key.origin == here and key.index >= engine.casting.index:
        return f"{name} is not known at {here}: the next message cast here gets the number {engine.casting.index}."
    if key.origin == here and key.index >= engine.casting.submitted:
        what = (
            "the view changes, and it belongs to the next one"
            if member.engine.is_blocked
            else "it leaves with this turn"
        )
        return Waiting(("queue", engine.casting.submitted), f"{name} waits in the queue of {here}: {what}")
    if key.index < engine.showing.reaches().get(key.origin, 0):
        return f"{name} is delivered at {here}{_when(key, reaches, now)}.{_elsewhere(member, key)}"
    if key.origin not in engine.view.members:
        return f"{name} is not known at {here}, and {key.origin} is not in view {engine.view.id}."
    for one in waiting_gaps(member):
        if member.engine.view.members[one.key[1]] == key.origin:  # type: ignore[call-overload]
            return one._replace(sentence=f"{name} is not known at {here}: {one.sentence}")
    if key.origin == here:
        return f"{name} is cast, and not yet delivered at {here}: nothing is known to hold it back."
    return f"{name} is not known at {here}: {key.origin} has not cast it, or it is on its way."


def _waiting_batches(member: MemberState) -> Iterable[tuple[Batch, Waiting]]:
    batches = [wait.batch for wait in member.engine.waits()[:SAID_MAX]]
    batches += [batch for batch, _ in member.engine.showing.gate.waiting[:SAID_MAX]]
    return zip(batches, waiting_messages(member), strict=False)


def _when(key: Key, reaches: Sequence[Reach], now: int) -> str:
    """Between which looks a message was delivered, as far back as they are kept."""
    number = next((i for i, reach in enumerate(reaches) if reach.below.get(key.origin, 0) > key.index), None)
    if number is None:
        return " since the last look"
    reach = reaches[number]
    if not number and len(reaches) == REACHES_KEPT:
        return f", {(now - reach.later) / 1e9:.3f} s ago or earlier"
    return f", between {(now - reach.earlier) / 1e9:.3f} s and {(now - reach.later) / 1e9:.3f} s ago"


def _elsewhere(member: MemberState, key: Key) -> str:
    """The members that may not have an own message that is delivered here."""
    streams = member.streams
    if key.origin != member.id or streams is None or key.index < member.settled_index:
        return ""
    behind = _names(member.engine.view.members, streams.behind(member.engine.rank, streams.packets_cast))
    return f" Not known to have taken in all that {member.id} cast: {behind}." if behind else ""


def _names(members: Sequence[MemberId], ranks: Iterable[Rank]) -> str:
    return ", ".join(str(members[rank]) for rank in ranks)


def _name(members: Sequence[MemberId], batch: Batch) -> str:
    return f"{members[batch.origin]}:{batch.first}"


def _key(members: Sequence[MemberId], batch: Batch) -> tuple[object, ...]:
    return ("message", members[batch.origin], batch.first)
