"""The Spark formulations agree with the plain-Python oracle: on clean runs, on damaged ones, and on stories written by hand.

All traces are judged at once, each under its own run id: one Spark job a property. Every property is asked of every trace,
whether its order owes it or not.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.pipeline import traces
from tests.pipeline.damage import Trace
from tests.pipeline.traces import sentence
from unisono.trace.checks import judge
from unisono.trace.checks.properties import IMPLIES
from unisono.trace.checks.properties import PROPERTIES as RECORDS
from unisono.trace.promises import promises
from unisono.trace.schema import CAST, DELIVER
from unisono.trace.story import tell

pytest.importorskip("pyspark")
from tests.unit.test_checks_safe import STORIES as SAFE_STORIES
from tests.unit.test_checks_safe import told as told_safely
from unisono.pipeline.properties.base import COLUMNS
from unisono.pipeline.properties.registry import PROPERTIES, check
from unisono.pipeline.session import PipelineError
from unisono.pipeline.tables import TraceTables, tables_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    Found = dict[str, dict[str, list[Any]]]

ASKED = [one for one in PROPERTIES if int("".join(filter(str.isdigit, one))) <= 14]
"""P0 to P14: what every order in views may owe. The others have tests of their own."""
SIMULATED_AN_ORDER, TOLD, DAMAGED = 14, 60, 330
TRACES_MIN = 300

SIMULATED = list(traces.simulated(SIMULATED_AN_ORDER))
RANDOM = list(traces.told(TOLD))
PLANTED = list(traces.planted())

# By hand, with exactly what the contract says is broken. A judge that is too lenient misses it easily.
SUBTLE: dict[str, tuple[Trace, set[str]]] = {
    # Most members have the empty sequence, of which every other is an extension; but the two others differ in their first message.
    "two sequences that are not the most common one": (
        tell(
            "a,b,c,d VIEW 1@a a b c d\na CAST x\nb CAST y\na DELIVER x\nb DELIVER y\nall END cut",
            run="subtle: two sequences that are not the most common one",
        ),
        {"P9c", "P10"},
    ),
    # Nothing is known of what c cast, because its trace is not there; but a has both messages, and b only the second.
    "the first message of an origin without a trace": (
        [
            event
            for event in tell(
                "a,b,c VIEW 1@a a b c\nc CAST x causal\nc CAST y causal\na DELIVER x\na,b DELIVER y\nall END",
                run="subtle: the first message of an origin without a trace",
                protocol="causal",
            )
            if event.member != "c"
        ],
        {"P5", "P14"},
    ),
}


def corpus() -> dict[str, Trace]:
    every = dict(SIMULATED + RANDOM)
    every |= dict(traces.written()) | dict(traces.circle())
    every |= {run: events for run, events, _, _ in PLANTED}
    every |= {events[0].run: events for events, _ in SUBTLE.values()}
    every |= dict(traces.damaged(SIMULATED + RANDOM, DAMAGED))
    return every


@pytest.fixture(scope="module")
def judged() -> dict[str, Trace]:
    return corpus()


@pytest.fixture(scope="module")
def tables(spark: SparkSession, judged: dict[str, Trace]) -> TraceTables:
    return tables_of(spark.createDataFrame(traces.as_arrow(judged))).cached()


@pytest.fixture(scope="module")
def oracle(judged: dict[str, Trace]) -> dict[str, frozenset[str]]:
    return {run: judge(events, ASKED).broken for run, events in judged.items()}


@pytest.fixture(scope="module")
def found(tables: TraceTables) -> Found:
    """By property and run: the violations. Filled in by `ask`, so that each property is one job."""
    return {}


def ask(found: Found, tables: TraceTables, property_id: str) -> dict[str, list[Any]]:
    if property_id not in found:
        rows: dict[str, list[Any]] = {}
        for row in PROPERTIES[property_id](tables).select(*COLUMNS).collect():
            rows.setdefault(row["run"], []).append(row)
        found[property_id] = rows
    return found[property_id]


def leaves_open(events: Trace) -> set[str]:
    """What no order of events decides: with a delivery before its cast, much depends on where one begins to read.

    Its past does (P8), and of what services the messages are that it might have had to wait for (P7).
    """
    past = {"P8"} if _is_in_a_circle(events) or _casts_backwards(events) else set()
    return past | ({"P7"} if _delivers_before_it_casts(events) else set())


def _delivers_before_it_casts(events: Trace) -> bool:
    cast: Counter[tuple[str, int]] = Counter()
    for event in events:
        whose = (event.member, event.incarnation)
        if event.kind == CAST:
            assert event.first is not None
            assert event.count is not None
            cast[whose] = max(cast[whose], event.first + event.count)
        elif event.kind == DELIVER and (event.origin, event.origin_incarnation) == whose:
            assert event.first is not None
            if event.first >= cast[whose]:
                return True
    return False


def _is_in_a_circle(events: Trace) -> bool:
    told = judge(events, ["P1"]).violations
    return any("can have cast" in one.sentence and one.members[0] != one.members[1] for one in told)


def _casts_backwards(events: Trace) -> bool:
    highest: Counter[tuple[str, int]] = Counter()
    for event in events:
        if event.kind == CAST:
            assert event.first is not None
            if event.first < highest[event.member, event.incarnation]:
                return True
            highest[event.member, event.incarnation] = event.first
    return False


def test_there_are_enough_traces_of_every_kind(judged: dict[str, Trace], oracle: dict[str, frozenset[str]]) -> None:
    assert len(judged) >= TRACES_MIN
    assert all(len({event.member for event in events}) <= traces.MEMBERS_MAX for events in judged.values())
    broken = Counter(property_id for ids in oracle.values() for property_id in ids)
    assert all(broken[property_id] >= 5 for property_id in ASKED), broken
    assert any(not ids for ids in oracle.values())


@pytest.mark.parametrize("property_id", ASKED)
def test_spark_and_oracle_find_the_same(
    property_id: str, found: Found, tables: TraceTables, judged: dict[str, Trace], oracle: dict[str, frozenset[str]]
) -> None:
    by_spark = set(ask(found, tables, property_id))
    by_oracle = {run for run, broken in oracle.items() if property_id in broken}
    differ = {run for run in by_spark ^ by_oracle if property_id not in leaves_open(judged[run])}
    assert not differ, {run: "Spark alone" if run in by_spark else "the oracle alone" for run in differ}


@pytest.mark.parametrize("property_id", ASKED)
def test_every_violation_is_told_in_a_sentence_of_its_run(
    property_id: str, found: Found, tables: TraceTables, judged: dict[str, Trace]
) -> None:
    """The members that it names are in the run, and the local indices that it names are those of rows."""
    told = 0
    for run, rows in ask(found, tables, property_id).items():
        events = judged[run]
        names = {name for event in events for name in (event.member, event.origin, *(event.members or ()))}
        for row in rows:
            text = sentence(row)
            assert row["property"] == property_id
            assert text.endswith(".")
            assert "None" not in text
            assert {name.partition("#")[0] for name in row["members"]} <= {(n or "").partition("#")[0] for n in names}
            indices = {event.local_index for event in events}
            assert {int(local) for local in re.findall(r"local (\d+)", text)} <= indices, text
            told += 1
    assert told


@pytest.mark.parametrize(("run", "order", "expected"), [(run, order, expected) for run, _, order, expected in PLANTED])
def test_a_planted_fault_raises_exactly_what_the_table_says(
    run: str, order: str, expected: set[str], found: Found, tables: TraceTables
) -> None:
    owed = promises(order)
    assert {one for one in ASKED if one in owed and run in ask(found, tables, one)} == expected.intersection(ASKED)


@pytest.mark.parametrize("name", SUBTLE)
def test_both_judges_find_what_is_broken_in_a_subtle_case(
    name: str, found: Found, tables: TraceTables, oracle: dict[str, frozenset[str]]
) -> None:
    events, expected = SUBTLE[name]
    assert {one for one in ASKED if events[0].run in ask(found, tables, one)} == expected
    assert oracle[events[0].run] == expected


def test_clean_runs_keep_what_their_order_promises(found: Found, tables: TraceTables) -> None:
    for run, events in SIMULATED:
        broken = {one for one in promises(events[0].protocol).intersection(ASKED) if run in ask(found, tables, one)}
        assert not broken, run


def test_agreement_on_safe_messages_is_uniform(spark: SparkSession) -> None:
    """Found by reading: what a crashed member had delivered bound nobody, safe or not."""
    stories = {name: told_safely(story, name) for name, (story, _) in SAFE_STORIES.items()}
    tables = tables_of(spark.createDataFrame(traces.as_arrow(stories)))
    rows = PROPERTIES["P5"](tables).select(*COLUMNS).collect()
    assert {row["run"] for row in rows} == {name for name, (_, is_broken) in SAFE_STORIES.items() if is_broken}
    said = {sentence(row) for row in rows}
    assert (
        "a delivered the safe a:0 (local 2) in view 1@a; b, to whom it is addressed and who went on to 2@b, did not."
        in said
    )


def test_of_a_delivery_of_several_casts_only_the_wrong_one_is_held_against_anyone(spark: SparkSession) -> None:
    """The checker was not given the other one, and said that nobody had cast it."""
    story = "a,b VIEW 1@a a b\na CAST x total\na CAST y causal\na DELIVER x\na DELIVER y\nb DELIVER x\nall END"
    trace = [
        replace(event, count=2, digest=None) if (event.member, event.kind) == ("b", DELIVER) else event
        for event in tell(story, protocol="toto")
    ]
    rows = PROPERTIES["P1"](tables_of(spark.createDataFrame(traces.as_arrow({"": trace})))).collect()
    assert [sentence(row) for row in rows] == [one.sentence for one in judge(trace, ["P1"]).violations]
    assert len(rows) == 1


def test_check_gathers_what_is_owed(tables: TraceTables, found: Found) -> None:
    some = ["P2", "P12"]
    rows = check(tables, some).collect()
    assert {(row["property"], row["run"]) for row in rows} == {
        (one, run) for one in some for run in ask(found, tables, one)
    }


def test_check_knows_what_it_can_judge(tables: TraceTables) -> None:
    with pytest.raises(PipelineError, match="P99"):
        check(tables, ["P0", "P99"])
    with pytest.raises(PipelineError, match="nothing to check"):
        check(tables, [])


def test_a_weaker_property_is_broken_only_with_the_stronger(found: Found, tables: TraceTables) -> None:
    for stronger in IMPLIES.keys() & set(ASKED):
        for one in IMPLIES[stronger]:
            assert ask(found, tables, one).keys() <= ask(found, tables, stronger).keys()


def test_sentences_read_as_prose() -> None:
    """As a person would say it, for one property of each kind."""
    swap = {"x": "a:0", "y": "b:0", "x_local": "2", "y_local": "3", "other_x_local": "3", "other_y_local": "2"}
    assert RECORDS["P9a"].tell(["a", "b"], "1@a", swap) == (
        "a delivered a:0 (local 2) before b:0 (local 3), b delivered b:0 (local 2) before a:0 (local 3), in view 1@a."
    )
    circle = {"circle": '[["a","a:0","b:0",2,3],["b","b:0","a:0",2,3]]'}
    assert RECORDS["P9b"].tell(["a", "b"], "1@a", circle) == (
        "In view 1@a the orders go in a circle: a delivered a:0 (local 2) before b:0 (local 3), "
        "b delivered b:0 (local 2) before a:0 (local 3)."
    )
    lack = {"message": "a:0", "holder": "a", "what": "lacking", "local": "2", "lacking": "b, c"}
    assert RECORDS["P5"].tell(["a", "b", "c"], "1@a", lack) == (
        "a delivered a:0 (local 2) in view 1@a; b, c, to whom it is addressed and who also stayed to the end, did not."
    )
