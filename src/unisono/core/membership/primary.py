"""Which view is primary: a majority of the last primary *and* of every later one that a respondent confirmed.

Why confirmed ones count: a member that confirmed a primary may be the only one left that knows of it, while another member has
installed it and goes on. Two primaries that follow the same one would each need a majority of it, so they share a member;
that member confirmed the lower one first, says so in its answer, and the higher one then needs a majority of the lower one
too. So primaries form a chain (P20).

Members are counted by address: a process that restarts with its record is as good a witness as before. That is why the
record is persisted before the confirmation leaves. A life that confirms no primary writes nothing, so the record is the
last that *any* life at the address wrote, not the last life's. A process that lost its record must come back under a new
address.

**Holders.** A witness remembers that a view existed, not what was in it. Where applications carry a state, a primary also needs
a **holder**: a member whose application has the complete state of the latest primary that the respondents know of. It came with
that state and has not restarted, or its transfer is complete. Story: 0, 1 and 2 are primary; 2 is cut off; 0 and 1 restart
empty. They are a majority, and would found a new history over the only copy of the old one; so they wait, read-only, for 2.

A member that confirmed a primary as its holder holds it, installed or not: it has closed its view with that primary's cut.
And a primary that one of its members confirmed and did not install needs no holder, only the state that it was to begin with.
A safe message is delivered in it before its Transition only if every member has taken it in, and that one has taken in nothing.
Story: 1. A and C are primary, and B joins: A proposes P for all three. 2. B confirms, A crashes, and C has not heard of P.
3. B and C know of P by B's record. A may have installed it and delivered something, but nothing safe; so C carries on.

Exactly one state is carried on: holders of the latest primary may come through different views, or have closed it with
different cuts (`HeldState`). Each of them has every safe message that anyone delivered in it before the Transition, so any will do;
one that comes from that primary itself goes first, then the one with more holders. All others take it over, those too that
come along with a holder and have another one: views that are not primary reconcile nothing.

In the first primary every member has all there is: what its application began with, and every message. So each of its members
is a holder until it is parted from the others, whether its application has been given the state of the one that begins or not.

An operator can give the state of a primary up by its name (`Standing.given_up`). Then the holders of the latest earlier
primary carry theirs on; if there is none, the application begins anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import NamedTuple

from unisono.core.errors import Misuse
from unisono.core.types import MemberId, ViewId
from unisono.core.wire import Charter, ControlCodec, HeldState, Part, Standing, part_of
from unisono.core.wire.codec import VERSION
from unisono.core.wire.control import Answer, EarlierStanding, Quorum

NOTHING = Standing(None, ())
EARLIER_VERSION = 2
"""A record with this version of the wire format is an `EarlierStanding`, which looks the same in the present one."""


class Judgement(NamedTuple):
    """Whether a view is primary."""

    is_primary: bool
    supersedes: tuple[ViewId, ...] = ()
    """The primaries that it comes after, the latest first."""
    has_state: bool = False
    """Whether some member's application has a state, here or in a primary before."""
    state: HeldState | None = None
    """The state that it begins with; None: it is the first, or the application has no state."""
    holders: tuple[MemberId, ...] = ()
    """Who carries that state into it."""
    lost: Quorum | None = None
    """The primary whose state is missing; with it the view would be primary. Of a primary: the one whose state was given up."""


def judge(
    members: Sequence[MemberId], answers: Mapping[MemberId, Answer], parts: Sequence[Part], peers: Sequence[str]
) -> Judgement:
    """Judge a view of these members, from the answers of all that took part in the ballot."""
    standings = [answer.standing for answer in answers.values()]
    lasts = [standing.last for standing in standings if standing.last is not None]
    last = max(lasts, key=_view_of, default=None)
    attempts = {one.view: one for standing in standings for one in standing.attempts}
    known = sorted(
        (one for one in attempts.values() if last is None or one.view > last.view), key=_view_of, reverse=True
    )
    owed = [_addresses(quorum.members) for quorum in known]
    if last is not None:
        known.append(last)
        owed.append(_addresses(last.members))
    elif not any(answer.bootstrap for answer in answers.values()):
        owed.append(list(peers))
    supersedes = tuple(quorum.view for quorum in known)
    present = set(_addresses(members))
    if not all(2 * len(present.intersection(quorum)) > len(quorum) for quorum in owed):
        return Judgement(False, supersedes)
    has_state = any(answer.has_state for answer in answers.values()) or any(quorum.has_state for quorum in known)
    is_first = all(quorum.has_state is False for quorum in known)  # there was no state before
    if not has_state or is_first:
        return Judgement(True, supersedes, has_state)
    return _find_state(answers, parts, known)


def _view_of(quorum: Quorum) -> ViewId:
    return quorum.view


def _addresses(members: Iterable[MemberId]) -> list[str]:
    return [member.address for member in members]


def _find_state(answers: Mapping[MemberId, Answer], parts: Sequence[Part], known: Sequence[Quorum]) -> Judgement:
    """Find who carries the state into a view that has the quorum to be primary."""
    supersedes = tuple(quorum.view for quorum in known)
    quorums = {quorum.view: quorum for quorum in known}
    uninstalled = {
        one.view
        for member, answer in answers.items()
        for one in answer.standing.attempts
        if member.address in _addresses(one.members)  # a member that left with it has not installed it either
    }
    held = {state.view for part in parts for member in part.members for state in answers[member].holds}
    state: ViewId | None = known[0].view
    named = known[0]
    while state is not None and state not in held and state in uninstalled and state in quorums:
        named = quorums[state]
        state = named.state
    lost = None
    if state is not None and state not in held:
        lost = quorums.get(state, Quorum(state, named.members))
        if all(answer.standing.given_up != state for answer in answers.values()):
            return Judgement(False, supersedes, True, lost=lost)
        state = max(held, default=None)
    if state is None:
        return Judgement(True, supersedes, True, lost=lost)
    return Judgement(True, supersedes, True, *_choose(state, answers, parts), lost)


def _choose(
    view: ViewId, answers: Mapping[MemberId, Answer], parts: Sequence[Part]
) -> tuple[HeldState, tuple[MemberId, ...]]:
    """One state of a primary, and its holders that come from one view with one cut."""
    candidates = []
    for part in parts:
        holders: dict[HeldState, list[MemberId]] = {}
        for member in part.members:
            for state in answers[member].holds:
                if state.view == view:
                    holders.setdefault(state, []).append(member)
        for state, some in holders.items():
            place = (part.view != view, -len(some), part.view, part.cut, state.cut is not None, state.cut or view)
            candidates.append((place, state, some))
    _, state, some = min(candidates, key=itemgetter(0))
    return state, tuple(some)


def is_carried(charter: Charter, member: MemberId, held: HeldState | None) -> bool:
    """Whether a member whose application has this state takes it along into a view."""
    if not charter.primary:
        return True
    if held is None or not charter.holders:
        return False
    is_along = part_of(charter, member) == part_of(charter, charter.holders[0])
    return member in charter.holders or (is_along and held == charter.state)


def carry(charter: Charter, member: MemberId, held: HeldState | None) -> HeldState | None:
    """What a state becomes with a view that its member takes it along into."""
    if charter.primary:
        return HeldState(charter.id)
    part = part_of(charter, member)
    if held is None or held.cut is not None or part is None:
        return held
    return HeldState(held.view, part.cut)


def confirmed(standing: Standing, quorum: Quorum) -> Standing:
    """The record of a member that is about to confirm a primary view."""
    if quorum in standing.attempts:
        return standing
    return standing._replace(attempts=(*standing.attempts, quorum))


def installed(standing: Standing, quorum: Quorum) -> Standing:
    """The record of a member that installs a primary view: what came before it is settled."""
    return Standing(quorum, tuple(one for one in standing.attempts if one.view > quorum.view))


def restore(codec: ControlCodec, record: bytes | None) -> Standing:
    """What an earlier life persisted."""
    if not record:
        return NOTHING
    if record[0] == EARLIER_VERSION:
        record = bytes((VERSION,)) + record[1:]
    standing = codec.read(record)
    if isinstance(standing, EarlierStanding):
        last = None if standing.last is None else Quorum(*standing.last, has_state=None)
        standing = Standing(last, tuple(Quorum(*one, has_state=None) for one in standing.attempts))
    if not isinstance(standing, Standing):
        raise Misuse("the record of this member cannot be read: restore it, or start under a new address.")
    return standing
