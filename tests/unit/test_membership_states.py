"""The states of a view change: their tables are complete, and the page that shows them is drawn from them.

`python -m tests.unit.test_membership_states` writes the page again.
"""

from __future__ import annotations

import re
from enum import Enum
from pathlib import Path

import pytest

from unisono.core.membership.membership import Membership
from unisono.core.membership.states import (
    BALLOT,
    PARTICIPANT,
    BallotState,
    BallotStep,
    ParticipantState,
    ParticipantStep,
    Table,
    advance,
    draw,
)
from unisono.core.wire.control import CONTROL_WIRE

PAGE = Path(__file__).resolve().parents[2] / "docs" / "membership.md"
DIAGRAMS = {"participant": draw(PARTICIPANT, ParticipantState.IDLE), "ballot": draw(BALLOT, BallotState.COLLECTING)}


def drawn(page: str) -> str:
    """The page with its diagrams drawn from the tables."""
    for name, diagram in DIAGRAMS.items():
        page = re.sub(rf"(<!-- {name} -->\n).*?(<!-- end -->)", rf"\g<1>\n{diagram}\n\g<2>", page, flags=re.DOTALL)
    return page


def test_the_page_shows_the_tables() -> None:
    page = PAGE.read_text("utf-8")
    assert all(diagram in page for diagram in DIAGRAMS.values()), f"run `python -m {__name__}`"
    assert drawn(page) == page


@pytest.mark.parametrize(
    ("table", "states", "steps", "start"),
    [
        (PARTICIPANT, ParticipantState, ParticipantStep, ParticipantState.IDLE),
        (BALLOT, BallotState, BallotStep, BallotState.COLLECTING),
    ],
)
def test_every_state_has_a_row_and_is_reached(
    table: Table[Enum, Enum], states: type[Enum], steps: type[Enum], start: Enum
) -> None:
    assert set(table) == set(states)
    assert {step for row in table.values() for step in row} == set(steps)
    reached = {start}
    while more := {following for state in reached for following in table[state].values()} - reached:
        reached |= more
    assert reached == set(states)


def test_a_step_that_the_table_does_not_name_fails() -> None:
    assert advance(PARTICIPANT, ParticipantState.CONFIRMED, ParticipantStep.INSTALL) is ParticipantState.IDLE
    with pytest.raises(AssertionError, match="ANSWERED has no step INSTALL"):
        advance(PARTICIPANT, ParticipantState.ANSWERED, ParticipantStep.INSTALL)


def test_every_control_message_has_a_handler() -> None:
    assert set(Membership.handlers) == {layout.type for layout in CONTROL_WIRE}


if __name__ == "__main__":
    PAGE.write_text(drawn(PAGE.read_text("utf-8")), "utf-8")
