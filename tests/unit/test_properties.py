"""What is said of each property: it is complete, and whatever a checker reports can be told, pointed at and kept in a table."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from tests import counter_examples
from tests.shown_stories import SHOWN_FOCUS, shown, shown_histories
from tests.unit import test_checks_planted, test_checks_shown, test_checks_views
from tests.view_damage import FOCUS, histories
from tests.view_stories import Trace, told
from unisono.cli.app import app
from unisono.pipeline.view_rows import judge_view
from unisono.trace.checks import CHECKERS, IMPLIES, PROPERTIES, Violation, judge
from unisono.trace.checks.property import Each, Field, Kind, Pointed, PropertyRecord, RowOf, texts_of
from unisono.trace.promises import PROPERTIES as JUDGED
from unisono.trace.schema import CAST, ENDINGS, KINDS, VIEW, member_name
from unisono.trace.story import renumber, tell

MORE = """
a,b,c VIEW 1@a a b c
a CAST x
b PLACE x void
c DELIVER x service=causal
c PAUSE protocol=fifo
a CRASH
b,c VIEW 2@b b c from b c
b CAST y
b DELIVER y
b CAST z
c DELIVER y destinations=c
d VIEW 2@b b c reason=fifo
all END
"""
"""Faults that the tables of planted ones do not have."""


def with_more_faults() -> Trace:
    events = told(MORE)
    y, z = (at for at, event in enumerate(events) if event.kind == CAST and event.member == "b")
    events[z] = replace(events[z], first=events[y].first)
    events[y], events[y + 1] = events[y + 1], events[y]  # delivered before it is cast
    events = renumber(events)
    events[z] = replace(events[z], local_index=events[z].local_index - 1)
    return events


def planted() -> dict[str, Trace]:
    """Every trace with a planted fault, and damaged histories."""
    traces = {f"counter-example/{one}": counter_examples.events_of(one) for one in CHECKERS}
    traces["more"] = with_more_faults()
    for name, (fault, *_) in test_checks_planted.TABLE.items():
        traces[name] = fault(tell(test_checks_planted.STORY))
    for name, (story, old, new, _) in test_checks_views.PLANTED.items():
        traces[name] = told(test_checks_views.STORIES[story].replace(old, new))
    for name, (story, old, new, _) in test_checks_shown.PLANTED.items():
        traces[name] = shown(test_checks_shown.STORIES[story].replace(old, new))
    for focus in FOCUS:
        traces |= histories(focus, 24)
    for focus in SHOWN_FOCUS:
        traces |= {f"shown/{name}": events for name, events in shown_histories(focus, 24)}
    return traces


@pytest.fixture(scope="module")
def found() -> list[tuple[Trace, Violation]]:
    return [(events, one) for events in planted().values() for one in judge(events, CHECKERS).violations]


def homeless(fields: dict[str, Field], roles: tuple[str, ...]) -> set[str]:
    """Members of rows that neither a role nor a key names."""
    return {one.member for one in fields.values() if isinstance(one, RowOf)} - fields.keys() - set(roles)


def whats(property: PropertyRecord) -> set[str | None]:
    return {None} if isinstance(property.sentence, str) else set(property.sentence)


@pytest.mark.parametrize("one", PROPERTIES.values(), ids=PROPERTIES)
def test_a_property_is_complete(one: PropertyRecord) -> None:
    assert (one.exact or "").startswith(f"{one.id} ")
    assert one.statement, "the docstring of its file says what must hold"
    assert one.says.endswith(".")
    assert set(one.rows) <= KINDS
    assert one.implies == tuple(sorted(set(one.implies) & PROPERTIES.keys()))
    assert not homeless(dict(one.witness), one.roles), "a row belongs to a member that can be found"


def test_all_properties_are_there_in_their_order() -> None:
    assert PROPERTIES.keys() == JUDGED | {"P24"}
    assert CHECKERS.keys() == JUDGED
    assert list(PROPERTIES)[:3] + list(PROPERTIES)[-2:] == ["P0", "P1", "P2", "P28", "P29"]
    assert {"P9b": {"P9a"}, "P9c": {"P9a", "P9b"}} == IMPLIES


@pytest.mark.parametrize("property", PROPERTIES)
def test_the_example_of_a_property_is_what_its_checker_finds(property: str) -> None:
    one = counter_examples.violation_of(property, counter_examples.events_of(property))
    assert PROPERTIES[property].example == (one.members, one.view, one.witness)
    assert PROPERTIES[property].tell(*PROPERTIES[property].example) == one.sentence


@pytest.mark.parametrize("property", CHECKERS)
def test_the_rows_that_a_property_names_decide_it(property: str) -> None:
    needed = {*PROPERTIES[property].rows, VIEW, *ENDINGS}
    rows = [event for event in counter_examples.events_of(property) if event.kind in needed]
    assert counter_examples.violation_of(property, renumber(rows)).property == property


def test_every_violation_is_told_whole(found: list[tuple[Trace, Violation]]) -> None:
    for _, one in found:
        property = PROPERTIES[one.property]
        assert one.witness.keys() <= property.witness.keys(), one
        assert one.witness.get("what") in whats(property) | {"lost", "over"}, one
        assert one.sentence.endswith(".")
        assert "?" not in one.sentence, one
        assert not set("{}|") & set(one.sentence), one


def test_a_witness_out_of_a_table_says_the_same(found: list[tuple[Trace, Violation]]) -> None:
    for _, one in found:
        property, kept = PROPERTIES[one.property], texts_of(one.witness)
        assert property.tell(one.members, one.view, kept) == one.sentence
        assert property.point(one.members, kept) == property.point(one.members, one.witness)


def test_a_violation_points_at_what_is_in_the_trace(found: list[tuple[Trace, Violation]]) -> None:
    for events, one in found:
        pointed = PROPERTIES[one.property].point(one.members, one.witness)
        assert pointed.rows <= {
            (member_name(event.member, event.incarnation), event.local_index) for event in events
        }, one
        seen = {
            (member_name(event.origin, event.origin_incarnation or 0), index)
            for event in events
            if event.origin is not None and event.first is not None
            for index in range(event.first, event.first + (event.count or 1))
        }
        assert pointed.messages <= seen, one


def test_every_way_to_break_a_property_is_planted(found: list[tuple[Trace, Violation]]) -> None:
    """What a sentence is there for, some planted fault raises: else it might be wrong."""
    raised = {(one.property, one.witness.get("what")) for _, one in found}
    told_of = {(one.id, what) for one in PROPERTIES.values() for what in whats(one) if what}
    assert told_of - raised == {("P1", "not cast here")}, "which the judge of single views says (test_view_judge)"


# The language of sentences.


def property_that_says(sentence: str, **witness: Field) -> PropertyRecord:
    example = PROPERTIES["P2"].example
    return PropertyRecord("P", "", "", "", (), ("who",), witness, sentence, example)


@pytest.mark.parametrize(
    ("sentence", "witness", "said"),
    [
        ("{who} has {x}.", {"x": 3}, "a has 3."),
        ("{who} has {x}.", {}, "a has ?."),
        ("{who} has [{x}|nothing].", {}, "a has nothing."),
        ("{who} has [{x} and {y}|{y}].", {"y": ["b", "c"]}, "a has b, c."),
        ("{who}[ has {x}].", {"x": []}, "a."),
        ("{who} has {x} in {view}.", {"x": "{who} [y|z]"}, "a has {who} [y|z] in 1@a."),
        ("{who} {did} it.", {"kind": "PLACE"}, "a placed it."),
        ("{who} {way}.", {"next_view": "2@a"}, "a went on to 2@a."),
    ],
)
def test_a_sentence(sentence: str, witness: dict[str, object], said: str) -> None:
    assert property_that_says(sentence).tell(("a",), "1@a", witness) == said


def test_a_list_in_a_witness_is_told_and_pointed_at() -> None:
    each = Each({"who": Kind.MEMBERS, "x": Kind.MESSAGES, "local": RowOf("who")}, "{who} did {x}[ at {local}]")
    one = property_that_says("{steps}.", steps=each)
    witness = {"steps": [("b:1", "c:1:7-8", 3), ("d", "e:0", None)]}
    assert one.tell(("a",), None, witness) == "b:1 did c:1:7-8 at 3, d did e:0."
    assert one.point(("a",), witness) == Pointed(frozenset({("c:1", 7), ("e", 0)}), frozenset({("b:1", 3)}))


def test_where_only_one_view_is_seen_nothing_is_said_of_others() -> None:
    rows = [event for event in told("a,b VIEW 1@a a b\na CAST x\na,b DELIVER x\nall END") if event.kind != CAST]
    (one, _) = judge_view("1@a", renumber(rows), ["P1"], {}, {"a": (0, 3), "b": (0, 3)}).violations
    assert one.sentence == "a delivered a:0 (local 1), but a did not cast it in view 1@a."


# The command.


def answer(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["properties", *arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_command_lists_all_in_a_line_each() -> None:
    lines = answer().splitlines()
    assert [line.split()[0] for line in lines] == list(PROPERTIES)
    assert all(one.says in line for one, line in zip(PROPERTIES.values(), lines, strict=True))


def test_the_command_tells_one_in_full_or_all_its_forms() -> None:
    told = answer("p9B")
    assert "implies:     P9a\nimplied by:  P9c\n" in told
    assert PROPERTIES["P9b"].tell(*PROPERTIES["P9b"].example) in told
    assert "owed by:     rmp\n" in answer("P10")
    assert "owed by:     every order\n" in answer("P0")
    assert "owed by:     no order: it is checked where it is asked for\n" in answer("P23")
    assert [line.split()[0] for line in answer("P9").splitlines() if line.startswith("P")] == ["P9a", "P9b", "P9c"]
    assert [line.split()[0] for line in answer("P8").splitlines() if line.startswith("P")] == ["P8"]


def test_the_command_speaks_json() -> None:
    rows = json.loads(answer("--json"))
    assert [row["id"] for row in rows] == list(PROPERTIES)
    [row] = json.loads(answer("P9c", "--json"))
    assert (row["implies"], row["implied_by"]) == (["P9a", "P9b"], [])
    assert row["witness"]["local"] == "row of one"
    assert row["example"]["sentence"].startswith("In view 1@a ordered message number 0 is a:0 at a")
    assert "causal" not in row["owed_by"]
    assert "causal-total" in row["owed_by"]
