"""The states of a view change, and the steps that lead from one to another: of a participant, and of a proposer's ballot.

A step that its table does not name is a mistake of ours and fails an assertion, whatever message led to it: what others send is
checked before. `docs/membership.md` shows both tables, drawn by `draw`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple, TypeAlias, TypeVar

from unisono.core.types import MemberId, ViewId


class ParticipantState(Enum):
    """How far one member is with the change of its view."""

    IDLE = "takes part in no view change"
    ANSWERED = "promised a ballot, blocked its view and reported; waits for the cut"
    CONFIRMED = "closed its view as the ballot's cut says, and confirmed; waits for the install"
    CLOSED = "confirmed a lower ballot before it answered this one; waits for the cut, or for proof of the lower view"
    GONE = "has left; it only answers late questions"


class ParticipantStep(Enum):
    """What a participant does."""

    ANSWER = "answer a higher ballot"
    CONFIRM = "close and confirm"
    INSTALL = "install"
    LEAVE = "leave"


class BallotState(Enum):
    """How far a proposer is with its ballot."""

    COLLECTING = "waits for an answer of every participant"
    FETCHING = "waits for packets that some member of a part lacks"
    CLOSING = "has sent each its cut; waits for a confirmation of every participant"
    DONE = "everyone has confirmed: the view is installed"
    FAILED = "a participant is silent or sent what cannot be: another ballot goes on without it"


class BallotStep(Enum):
    """What a proposer does."""

    MERGE = "all have answered: merge"
    ANNOUNCE = "all packets are here: send the cuts"
    FINISH = "all have confirmed"
    FAIL = "give a participant up"
    ASK_DIRECTLY = "ask everyone directly"


class ViewChange(NamedTuple):
    """How far one member is with the change of its view, for observers: as a participant, and with a ballot of its own."""

    participant: ParticipantState
    view: ViewId | None
    promised: ViewId
    closed: ViewId | None
    """The cut that closed the view."""
    uninstalled: ViewId | None
    """The last ballot that was confirmed here and not installed."""
    suspects: tuple[MemberId, ...]
    is_leaving: bool
    is_gathering: bool
    """It has met newcomers, and waits for more of them."""
    is_approaching: bool
    """It wants to propose, and waits for a boundary between messages."""
    is_primary: bool
    ballot: BallotState | None
    """None: it proposes nothing."""
    awaited: tuple[MemberId, ...] = ()
    bases: tuple[ViewId | None, ...] = ()
    """The views from which the participants come, the own one first."""
    is_switching: bool = False


State = TypeVar("State", bound=Enum)
Step = TypeVar("Step", bound=Enum)
Table: TypeAlias = Mapping[State, Mapping[Step, State]]

PARTICIPANT: Table[ParticipantState, ParticipantStep] = {
    ParticipantState.IDLE: {
        ParticipantStep.ANSWER: ParticipantState.ANSWERED,
        ParticipantStep.LEAVE: ParticipantState.GONE,
    },
    ParticipantState.ANSWERED: {
        ParticipantStep.ANSWER: ParticipantState.ANSWERED,
        ParticipantStep.CONFIRM: ParticipantState.CONFIRMED,
        ParticipantStep.LEAVE: ParticipantState.GONE,
    },
    ParticipantState.CONFIRMED: {
        ParticipantStep.ANSWER: ParticipantState.CLOSED,
        ParticipantStep.INSTALL: ParticipantState.IDLE,
        ParticipantStep.LEAVE: ParticipantState.GONE,
    },
    ParticipantState.CLOSED: {
        ParticipantStep.ANSWER: ParticipantState.CLOSED,
        ParticipantStep.CONFIRM: ParticipantState.CONFIRMED,
        ParticipantStep.INSTALL: ParticipantState.IDLE,
        ParticipantStep.LEAVE: ParticipantState.GONE,
    },
    ParticipantState.GONE: {},
}
"""A view is installed only by a member that confirmed it (I4), so only from CONFIRMED, or late from CLOSED."""

BALLOT: Table[BallotState, BallotStep] = {
    BallotState.COLLECTING: {
        BallotStep.MERGE: BallotState.FETCHING,
        BallotStep.FAIL: BallotState.FAILED,
    },
    BallotState.FETCHING: {
        BallotStep.ANNOUNCE: BallotState.CLOSING,
        BallotStep.FAIL: BallotState.FAILED,
    },
    BallotState.CLOSING: {
        BallotStep.FINISH: BallotState.DONE,
        BallotStep.FAIL: BallotState.FAILED,
    },
    BallotState.DONE: {},
    BallotState.FAILED: {
        BallotStep.FAIL: BallotState.FAILED,
        BallotStep.ASK_DIRECTLY: BallotState.COLLECTING,
    },
}
"""The charter is written once, with ANNOUNCE: whatever changes after that, another ballot is needed."""


def advance(table: Table[State, Step], state: State, step: Step) -> State:
    """The state that a step leads to."""
    following = table[state].get(step)
    assert following is not None, f"{state.name} has no step {step.name}"
    return following


def draw(table: Table[State, Step], start: State) -> str:
    """The table as a Mermaid state diagram, with a legend."""
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {start.name}"]
    for state, steps in table.items():
        lines += [f"    {state.name} --> {following.name}: {step.value}" for step, following in steps.items()]
    lines += [f"    {state.name} --> [*]" for state, steps in table.items() if not steps]
    lines += ["```", "", "| state | meaning |", "|---|---|"]
    lines += [f"| {state.name} | {state.value} |" for state in table]
    return "\n".join(lines) + "\n"
