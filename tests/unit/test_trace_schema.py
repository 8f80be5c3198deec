"""The one definition of a trace: rows there and back, and what is refused."""

from __future__ import annotations

import json
import sys
from dataclasses import fields
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from unisono.core.types import MemberId, ViewId
from unisono.trace import schema
from unisono.trace.schema import (
    COLUMNS,
    KINDS,
    NAMES,
    Event,
    TraceError,
    attribute,
    from_line,
    from_row,
    to_line,
    to_row,
)
from unisono.trace.story import tell

FULL = Event(
    run="r",
    group="g",
    protocol="toto",
    member="10.0.0.1:5000",
    incarnation=2,
    local_index=17,
    time_ns=123,
    clock="real",
    kind="DELIVER",
    view="3@10.0.0.1:5000",
    members=("a", "b#1"),
    previous_view="2@a",
    transitional=("a",),
    parts=("2@a", "2@b"),
    origin="ä",
    origin_incarnation=0,
    first=5,
    count=3,
    service="total",
    destinations=(),
    ordinal=0,
    position=9,
    digest=-(2**63),
    frontier=(0, 4),
    transaction="t",
    decision="commit",
    reason="why\nnot",
    attributes={"vector": "[0,1]", "void": "true"},
)


def test_columns_and_event_are_the_same_list() -> None:
    assert tuple(field.name for field in fields(Event)) == NAMES
    assert {column.type for column in COLUMNS} == schema.TYPES.keys()


def test_a_full_row_survives_json() -> None:
    line = to_line(FULL)
    assert line.count("\n") == 1
    assert from_line(line, "here") == FULL


def test_nulls_are_left_out() -> None:
    event = Event("r", "g", "fifo", "a", 0, 0, 0, "simulated", "JOIN")
    assert list(to_row(event)) == list(NAMES[:9])
    assert from_row(to_row(event), "here") == event


def test_stories_hold_valid_rows() -> None:
    story = "a,b JOIN\na,b VIEW 1@a a b\na CAST x to b vector 0,0\na PLACE x\nb DELIVER x\nb SUSPECT\nall END cut"
    for event in tell(story):
        assert from_line(to_line(event), "here") == event


def row(**changes: object) -> dict[str, Any]:
    return {name: value for name, value in {**to_row(FULL), **changes}.items() if value is not None}


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"member": None}, "column member: is missing"),
        ({"local_index": "3"}, "column local_index: must be a whole number of 64 bits, not '3'"),
        ({"local_index": True}, "column local_index: must be a whole number of 64 bits, not True"),
        ({"digest": 2**63}, "column digest: must be a whole number of 64 bits"),
        ({"time_ns": 1.5}, "column time_ns: must be a whole number"),
        ({"kind": "DANCE"}, "column kind: there is no kind 'DANCE'"),
        ({"clock": "sundial"}, "column clock: must be real or simulated"),
        ({"view": "three"}, "column view: must be number@proposer, not 'three'"),
        ({"view": 3}, "column view: must be a string, not 3"),
        ({"members": "a"}, "column members: must be a list of strings, not 'a'"),
        ({"members": ["a", 1]}, "column members: must be a list of strings"),
        ({"frontier": [0, "1"]}, "column frontier: must be a list of whole numbers"),
        ({"attributes": {"n": 1}}, "column attributes: must be an object whose values are strings"),
        ({"ordinal": None}, "column ordinal: is missing, and a DELIVER row needs it"),
        ({"first": -1}, "column first: must not be negative"),
        ({"count": 0}, "column count: a batch holds at least one message"),
        ({"member": "a#1"}, "column member: an address has no '#'"),
        ({"origin": "a#1"}, "column origin: an address has no '#'"),
        ({"kind": "CAST"}, "column origin: 10.0.0.1:5000 cannot cast a message of 'ä'"),
        ({"colour": "red"}, "column colour: there is no such column in version 1"),
    ],
)
def test_a_bad_row_is_refused_by_file_line_and_column(changes: dict[str, object], complaint: str) -> None:
    with pytest.raises(TraceError) as caught:
        from_row(row(**changes), "t.jsonl, line 7")
    assert str(caught.value).startswith("t.jsonl, line 7, ")
    assert complaint in str(caught.value)


@pytest.mark.parametrize("line", ["", "{", "[]", "3", '"x"', "null"])
def test_a_line_that_is_no_row(line: str) -> None:
    with pytest.raises(TraceError, match=r"^t\.jsonl, line 1: "):
        from_line(line, "t.jsonl, line 1")


def test_required_columns_are_columns_of_known_kinds() -> None:
    assert schema.REQUIRED.keys() <= KINDS
    assert {name for names in schema.REQUIRED.values() for name in names} <= set(NAMES)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("plain", "plain"),
        (True, "true"),
        (17, "17"),
        ([1, 0, 2], "[1,0,2]"),
        ((1, 2), "[1,2]"),
        ([], "[]"),
        (["a", "b"], '["a","b"]'),
        ({"a": [1]}, '{"a":[1]}'),
        (None, "null"),
        (MemberId("a", 1), "a#1"),
        (ViewId(3, MemberId("a")), "3@a"),
        (frozenset({"b", "a"}), '["a","b"]'),
    ],
)
def test_attributes_hold_strings(value: object, text: str) -> None:
    assert attribute(value) == text


def test_names_and_numbers() -> None:
    assert schema.member_name("a", 0) == "a"
    assert schema.member_name("a", 2) == str(MemberId("a", 2))
    assert schema.view_number("12@a") == 12
    assert schema.view_number("12") == -1
    assert schema.view_number("x@a") == -1


def test_the_file_stands_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster loads this one file, without unisono around it."""
    alone = ModuleType("alone")
    monkeypatch.setitem(sys.modules, "alone", alone)  # where a dataclass looks for its module
    source = Path(schema.__file__).read_text("utf-8")
    exec(compile(source, "schema.py", "exec"), vars(alone))
    assert vars(alone)["NAMES"] == NAMES
    assert json.loads(vars(alone)["to_line"](FULL))["first"] == 5
    assert "import unisono" not in source
    assert "from unisono" not in source
