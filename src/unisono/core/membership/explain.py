"""What membership waits for, in sentences: a view change, a group that is not found, a leave that does not end."""

from __future__ import annotations

from collections.abc import Sequence

from unisono.core.membership.ballot import Ballot
from unisono.core.membership.context import Context, Refused, Waiting
from unisono.core.membership.departures import Departures
from unisono.core.membership.participant import Participant
from unisono.core.membership.states import BallotState, ParticipantState

WAITS_FOR = {
    BallotState.COLLECTING: "the answer",
    BallotState.FETCHING: "missing packets",
    BallotState.CLOSING: "the confirmation",
}
ADDRESSES_SAID_MAX = 8
"""Maximum number of addresses named in one sentence."""
REASON_CHARACTERS_MAX = 1_000
"""Maximum number of characters repeated of a reason that another member gave."""


def explain_change(context: Context, participant: Participant, ballot: Ballot | None) -> str | None:
    """Why a view change has not finished: ballot, phase, for whom it waits, since when; None if none is under way."""
    p = participant
    if ballot is not None:
        names = ", ".join(map(str, ballot.awaited()))
        waited = (context.now - ballot.since) / 1e9
        what = f"{WAITS_FOR[ballot.state]} of {names}"
        return f"{context.id} has waited {waited:.3f} s with its proposal {ballot.id} for {what}."
    if not p.is_engaged:
        return None
    what = "the install" if p.state is ParticipantState.CONFIRMED else "the cut"
    waited = (context.now - p.progress_at) / 1e9
    return f"{context.id} has waited {waited:.3f} s for {what} of view {p.promised} from {p.promised.proposer}."


def explain_standing(
    context: Context,
    participant: Participant,
    departures: Departures,
    joined_at: int | None,
    leave_at: int | None,
    met: int,
    refusal: Refused | None = None,
) -> list[Waiting]:
    """What waits beside a view change. `met`: how many others have been met that have no view either."""
    me, p, settings = context.id, participant, context.settings
    said = []
    if p.view is None and joined_at is not None and leave_at is None:
        if refusal is not None:
            sentence = f"{me} has no view: {refusal.by} does not take it in, because {_quoted(refusal.reason)}"
        elif settings.members_min > 1:
            sentence = f"{me} has no view: it has met {met} others, and {settings.members_min} members must be there"
        else:
            sentence = f"{me} has no view: it has met {met} others, and looks for a group"
        said.append(Waiting(("join",), sentence, joined_at))
    if leave_at is not None and not p.is_gone:
        said.append(Waiting(("leave",), f"{me} wants to leave, and the others have not agreed yet", leave_at))
    if departures.rests:
        rest = departures.rest_ns / 1e9
        sentence = f"{me} was evicted, and looks for the others in {rest:.3f} s"
        if departures.may_end_sooner:
            sentence += " at the latest, or when its application has drained"
        said.append(Waiting(("rest",), sentence))
    elif p.charter is not None and settings.policy == "primary" and not p.charter.primary and not p.is_gone:
        said.append(Waiting(("read-only",), explain_read_only(context, p)))
    return said


def explain_read_only(context: Context, participant: Participant) -> str:
    """Why nothing can be cast in this view, and what would make it primary."""
    charter = participant.charter
    assert charter is not None
    if charter.lost is not None:
        addresses = ", ".join(member.address for member in charter.lost.members)
        return (
            f"view {charter.id} has the majority, but no member has the state of view {charter.lost.view}, so it is read-only: "
            f"it waits for a process that has run since then at {addresses}, or until that state is given up by its name"
        )
    what = f"view {charter.id} is not the primary one, so it is read-only"
    last = participant.standing.last
    owed = context.peers if last is None else tuple(member.address for member in last.members)
    present = {member.address for member in charter.members}
    missing = [address for address in owed if address not in present]
    if not owed or 2 * len(missing) < len(owed):  # what is known here is no reason
        return f"{what}: it waits for a merge with members that know of a later primary"
    of, count = f"of the {len(owed)}", len(owed) - len(missing)
    needs = f"needs {len(owed) // 2 + 1}; missing: {_some(missing)}"
    if last is None:
        return f"{what}: it has {count} {of} peers, and the first primary {needs}"
    return f"{what}: it has {count} {of} members of the last primary, view {last.view}, and {needs}"


def _some(addresses: Sequence[str]) -> str:
    more = len(addresses) - ADDRESSES_SAID_MAX
    return ", ".join(addresses[:ADDRESSES_SAID_MAX]) + (f" and {more} more" if more > 0 else "")


def _quoted(reason: str) -> str:
    """What a stranger may have written."""
    return "".join(one if one.isprintable() else "?" for one in reason[:REASON_CHARACTERS_MAX]).rstrip(".")
