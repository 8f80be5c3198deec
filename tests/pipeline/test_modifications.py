"""No judge passes a trace that was modified, and all judges say the same of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

from tests.pipeline import view_tools
from tests.pipeline.modifications import (
    AMBIGUOUS,
    CASES,
    OF_THE_RUN,
    PASS,
    Case,
    Modified,
    Said,
    as_segments,
    judge_on_spark,
    judge_plainly,
    play,
    segment,
    sources,
    write_all,
)
from tests.pipeline.view_tools import facts_of, parts_of, results_of, said_of
from unisono.orders.registry import ORDERS
from unisono.pipeline.looks import verdicts_of
from unisono.pipeline.segments import segments_below
from unisono.pipeline.session import PipelineError
from unisono.pipeline.verify import RunVerdict, verify
from unisono.pipeline.view_judge import BY_THE_RUN
from unisono.pipeline.view_judge import Said as ViewSaid
from unisono.pipeline.view_rows import Excerpt
from unisono.trace.checks.judge import judge_all
from unisono.trace.parquet import write_parquet
from unisono.trace.reader import read
from unisono.trace.schema import Event, TraceError, from_row, to_row

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SAMPLE = ("causal-total", "rmp")
AMBIGUOUS_IN_EXCERPTS = AMBIGUOUS | {"casts in another order", "circle of casts", "delivery moved into the next view"}
"""Rows that contradict one another inside one view: both judges object, and name further properties in different ways."""


def differences(made: list[Modified], one: dict[str, Said], other: dict[str, Said]) -> list[str]:
    """Runs of which two judges do not say the same: result, broken properties and unknown members."""

    def told(said: Said, modified: Modified) -> object:
        return (said.result, () if modified.case.name in AMBIGUOUS else (said.broken, said.unknown))

    return [
        f"{modified.run}: {one[modified.run]} and {other[modified.run]}"
        for modified in made
        if told(one[modified.run], modified) != told(other[modified.run], modified)
    ]


def unacceptable(made: list[Modified], said: dict[str, Said]) -> list[str]:
    return [
        f"{one.run} is {said[one.run].result}, and may be {one.case.expected}"
        for one in made
        if said[one.run].result not in one.case.expected
    ]


def test_there_are_enough_kinds_of_modification() -> None:
    families = Counter(case.family for case in CASES.values())
    assert families.keys() == {"labels", "rows", "views", "orders", "schema", "files"}
    assert sum(families.values()) >= 80
    assert sum(case.expected == PASS for case in CASES.values()) >= 10, "and some are neutral"
    assert all(case.meaning for case in CASES.values())


@pytest.mark.parametrize("orders", [SAMPLE, pytest.param(tuple(ORDERS), marks=pytest.mark.slow)], ids=["some", "all"])
def test_the_plain_judge_is_not_fooled(tmp_path: Path, orders: tuple[str, ...]) -> None:
    made = write_all(tmp_path, sources(orders), CASES.values())
    assert {one.case.name for one in made} == CASES.keys(), "every kind is applied"
    assert not unacceptable(made, {one.run: judge_plainly(one) for one in made})


@pytest.mark.parametrize(
    ("orders", "whole_rows_max"),
    [
        (SAMPLE[:1], 10**6),
        pytest.param(SAMPLE, 0, marks=pytest.mark.slow),
        pytest.param(tuple(ORDERS), 10**6, marks=pytest.mark.slow),
        pytest.param(tuple(ORDERS), 0, marks=pytest.mark.slow),
    ],
    ids=["whole", "joins", "all, whole", "all, joins"],
)
def test_spark_is_not_fooled_and_says_what_the_plain_judge_says(
    spark: SparkSession, tmp_path: Path, orders: tuple[str, ...], whole_rows_max: int
) -> None:
    made = write_all(tmp_path, sources(orders), CASES.values())
    said = judge_on_spark(spark, tmp_path, made, whole_rows_max)
    assert not unacceptable(made, said)
    assert not differences(made, {one.run: judge_plainly(one) for one in made}, said)
    ways = {one.by for one in said.values()}
    assert {"digests", "whole" if whole_rows_max else "rows"} <= ways


BY_JOINS = (
    "member that stays behind", "no transactions", "no transactions on decisions and deliveries", "recovery without a failure",
    "payload that is void beside its caster", "placeholders of a stranger", "wrong vector of a safe message",
    "safe messages without vectors", "list of what nobody recorded", "list beside a known order", "receipt before its cast",
    "state from nobody", "companions left out", "joined again", "safe index cast twice",
)  # fmt: skip
"""Kinds that rest on what the formulations of the properties say of claims, and of rows that are missing."""


@pytest.mark.slow
def test_joins_say_what_the_plain_judge_says(spark: SparkSession, tmp_path: Path) -> None:
    chosen = [CASES[name] for name in BY_JOINS]
    made = write_all(tmp_path, sources(("causal", "rmp")), chosen)
    assert {one.case.name for one in made} == set(BY_JOINS), "every kind is applied"
    said = judge_on_spark(spark, tmp_path, made, 0)
    assert not unacceptable(made, said)
    assert not differences(made, {one.run: judge_plainly(one) for one in made}, said)
    assert {one.by for one in said.values()} == {"rows"}


def test_modifications_would_be_noticed_if_they_did_nothing(tmp_path: Path) -> None:
    """The planted fault: a judge that is shown the clean run for every modification."""
    clean = [("clean", play("causal-total", "clean"))]
    harmless = [case for case in CASES.values() if case.expected == PASS and case.family == "labels"]
    made = write_all(tmp_path, clean, harmless)
    said = judge_plainly(made[0])
    assert said.result == PASS
    others = [Modified(case, "clean", made[0].run, made[0].folder) for case in CASES.values() if case.expected != PASS]
    assert len(unacceptable(others, {made[0].run: said})) == len(others)


def modified_groups(orders: Iterable[str]) -> Iterator[tuple[str, Case, list[Event]]]:
    """The rows of each group of each modified run, in the order of its lives."""
    for source, events in sources(orders):
        for case in (case for case in CASES.values() if case.write is as_segments):
            rows = list(events)
            if case.change(rows) is False or not all(map(is_usable, rows)):
                continue
            rows.sort(key=lambda event: (event.member, event.incarnation, event.local_index))
            for group in {event.group for event in rows}:
                yield f"{case.name} of {source}", case, [event for event in rows if event.group == group]


def said_of_views(run: str, rows: list[Event]) -> list[ViewSaid]:
    return said_of(facts_of(name, some) for name, some in parts_of(rows, Random(run)))


def test_views_of_running_groups_are_not_passed_either() -> None:
    """The judge of views never passes what the plain judge objects to, but for what only whole runs decide."""
    for run, case, rows in modified_groups(("fifo", *SAMPLE[:1])):
        check_views(run, rows, case, results_of(said_of_views(run, rows), rows))


@pytest.mark.parametrize(
    "orders", [("causal",), pytest.param(tuple(ORDERS), marks=pytest.mark.slow)], ids=["some", "all"]
)
def test_large_views_of_running_groups_are_judged_as_small_ones(spark: SparkSession, orders: tuple[str, ...]) -> None:
    """Spark says of an excerpt what the plain checkers say of it: result, broken properties, and lives without rows."""
    groups = {f"{run} {number}": (case, rows) for number, (run, case, rows) in enumerate(modified_groups(orders))}
    said = {run: said_of_views(run, rows) for run, (_, rows) in groups.items()}
    looks = {run: [one for one in some if one.status in ("look", "rows") and one.view] for run, some in said.items()}
    on_spark = view_tools.judge_on_spark(spark, {run: (groups[run][1], some) for run, some in looks.items()})
    apart = []
    for run, (case, rows) in groups.items():
        found = dict(zip(map(id, looks[run]), on_spark[run], strict=True))

        def look(one: ViewSaid, found: dict[int, Excerpt] = found, rows: list[Event] = rows) -> Excerpt:
            return found[id(one)] if id(one) in found else view_tools.judge_plainly(one, rows)

        check_views(run, rows, case, results_of(said[run], rows, look))
        for one in looks[run]:
            plain, large = view_tools.judge_plainly(one, rows), found[id(one)]
            if told_of(one, plain, case) != told_of(one, large, case):
                apart.append(f"{run}, view {one.view}, {one.status}: {plain} and {large}")
    assert not apart, "\n".join(apart)
    results = {
        one.result
        for run in looks
        for look in zip(looks[run], on_spark[run], strict=True)
        for one in verdicts_of("", "", *look)
    }
    assert results == {"PASS", "FAIL", "UNKNOWN"}


def told_of(one: ViewSaid, excerpt: Excerpt, case: Case) -> object:
    results = {verdict.result for verdict in verdicts_of("", "", one, excerpt)}
    broken = () if case.name in AMBIGUOUS_IN_EXCERPTS else {violation.property for violation in excerpt.violations}
    doubts = excerpt.doubts.keys() if results == {"UNKNOWN"} and one.best == PASS else ()
    return results, excerpt.missing, broken, set(doubts)


def is_usable(event: Event) -> bool:
    try:
        from_row(to_row(event), "here")
    except TraceError:
        return False
    return True


def check_views(run: str, rows: list[Event], case: Case, views: dict[str, tuple[str, frozenset[str]]]) -> None:
    passed = {view for view, (result, _) in views.items() if result == PASS}
    (verdict,) = judge_all(rows).values()
    broken = {(one.view, one.property) for one in verdict.violations if one.property not in BY_THE_RUN}
    if "FAIL" not in {result for result, _ in views.values()}:  # a row that names another view is told where it lies
        assert not [one for one in broken if one[0] in passed], run
    if any("," in event.member for event in rows):
        assert not passed, "facts cannot tell such names apart"
    elif case.expected == PASS:
        assert passed == views.keys(), f"{run}: {views}"
    elif case.name not in OF_THE_RUN and (broken or not verdict.counts):
        assert passed != views.keys(), f"{run}: {views}, and the run breaks {broken}"


@pytest.mark.parametrize("whole_rows_max", [10**6, pytest.param(0, marks=pytest.mark.slow)], ids=["whole", "joins"])
def test_runs_in_one_file_are_judged_as_in_files_of_their_own(
    spark: SparkSession, tmp_path: Path, whole_rows_max: int
) -> None:
    """Orders, what applications were shown, backward clocks and cuts of one run were taken for those of another."""
    runs = {name: [replace(event, run=name) for event in events] for name, events in sources(("fifo", "rmp"))}
    for name, kind in {
        "fifo": "lost delivery",
        "rmp": "clock that runs backwards",
        "switch": "cut at one member",
    }.items():
        CASES[kind].change(runs[name])
    together, apart = tmp_path / "together", tmp_path / "apart"
    together.mkdir()
    rows = [event for events in runs.values() for event in events]
    write_parquet(together / "all.parquet", sorted(rows, key=lambda event: event.local_index))
    for name, events in runs.items():
        (apart / name).mkdir(parents=True)
        as_segments(apart / name, events)

    def told(folder: Path) -> dict[str, RunVerdict]:
        found = verify(spark, [folder], whole_rows_max=whole_rows_max).runs
        return {one.run: replace(one, violations=(), by="") for one in found}

    expected = told(apart)
    assert expected["switch"].protocol == "causal, fifo-total"
    assert told(together) == expected


@pytest.mark.parametrize("name", ["another name", "another folder"])
def test_copies_are_refused_alike(spark: SparkSession, tmp_path: Path, name: str) -> None:
    events = play("fifo", "copied")
    (made,) = write_all(tmp_path, [("fifo", events)], [CASES["clock that runs backwards"]])
    row = next(iter(read(made.folder).events()))
    path = segment(made.folder, row)
    copy = made.folder / "copy.parquet" if name == "another name" else made.folder / "below" / path.name
    copy.parent.mkdir(exist_ok=True)
    copy.write_bytes(path.read_bytes())
    with pytest.raises(TraceError) as plain:
        read(made.folder, tolerant=True)
    with pytest.raises(PipelineError) as found:
        segments_below(spark, [made.folder], lambda table: table)
    assert str(plain.value) == str(found.value)
