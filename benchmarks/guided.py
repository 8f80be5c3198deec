"""The swarm of groups, guided and unguided, on the same CPU time: how many situations it comes to, and how soon it catches mutants.

    ./dev bench guided [--only states|mutants] [--searches 5] [--seconds 60] [--cap 60] [--mutant NAME …]
                       [--records FILE] [--page FILE]

Everything is `fifo`, whose runs cost least; membership is the same below all orders. A search is one process's, and CPU time alone
counts. It is guided or draws one fresh seed after another, and both begin with the same seeds; both judge every run, and both are
looked at. A mutant counts as caught when a run fails with it that passes without it.

`--records` keeps each measurement on a line, and what is there is not measured again. `--page` writes the page and its picture.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

from tests.mutants.catalogue import ROWS, Row
from tests.mutants.ways import Groups, find
from unisono.experiments.figures import curves
from unisono.sim.group_run import GroupOutcome, OnTurn, try_group
from unisono.sim.group_scenario import GroupScenario
from unisono.sim.group_situations import Sightings
from unisono.sim.group_swarm import scenario_of
from unisono.sim.guided import FRESH_FIRST, Guided, GuidedSearch

ORDER = "fifo"
POINTS = 12
MUTANT_SEARCHES = 3
WAYS = ("unguided", "guided")
Run = Callable[[GroupScenario, OnTurn], GroupOutcome]


def search(seed: int, way: str, run: Run) -> Iterator[tuple[GuidedSearch, Guided]]:
    """One run after another, without an end."""
    first, number = 100_000 * seed, 0
    search = GuidedSearch([ORDER], first)
    while True:
        scenario = search.next(number) if way == "guided" else scenario_of(ORDER, first + number)
        sightings = Sightings()
        one = Guided(number, scenario, run(scenario, sightings), sightings.first, sightings.turns)
        search.note(one)
        yield search, one
        number += 1


def count_states(seed: int, way: str, seconds: float) -> dict[str, Any]:
    """How many situations one search has come to, over CPU time."""
    begun, curve, failures = process_time(), [0], []
    for found, one in search(seed, way, lambda scenario, sightings: try_group(scenario, on_turn=sightings)):
        used = process_time() - begun
        failures += [] if one.outcome.sentence is None else [one.outcome.sentence]
        curve += [len(found.hits)] * (min(int(used / seconds * POINTS), POINTS) + 1 - len(curve))
        if used >= seconds:
            return {"runs": one.number + 1, "pool": len(found.pool), "curve": curve, "failures": failures}
    raise AssertionError


def catch(row: Row, seed: int, way: str, cap: float) -> dict[str, Any]:
    """What one search spends until it catches a mutant; at most the cap."""
    groups, mutant, begun = groups_of(row), find(row.mutant), process_time()
    for _, one in search(seed, way, lambda scenario, sightings: groups.run(scenario, mutant, on_turn=sightings)):
        used = process_time() - begun
        is_caught = one.outcome.sentence is not None and try_group(one.scenario).sentence is None
        if is_caught or used >= cap:
            return {"runs": one.number + 1, "seconds": round(used, 1), "caught": is_caught}
    raise AssertionError


def groups_of(row: Row) -> Groups:
    return row.way if isinstance(row.way, Groups) else Groups(ORDER, "Membership")


def mutants() -> list[Row]:
    """Of membership and views."""
    rooms = ("membership_mutants.", "ring_mutants.")
    parts = ("Membership", "ViewEngine", "Stability")
    return [row for row in ROWS if row.mutant.startswith(rooms) or getattr(row.way, "part", "") in parts]


def page_of(records: list[dict[str, Any]], seconds: float, cap: float) -> tuple[str, str]:
    """The page, and its picture."""
    states = [one for one in records if one["what"] == "states" and one["limit"] == seconds]
    by_way = {way: [one for one in states if one["way"] == way] for way in WAYS}
    places = [seconds * point / POINTS for point in range(POINTS + 1)]
    heights = {
        way: list(map(median, zip(*(one["curve"] for one in some), strict=True))) for way, some in by_way.items()
    }
    drawing = curves(
        "guided-swarm-states",
        "Situations over CPU time, guided and unguided: medians",
        "CPU seconds",
        "situations seen",
        {way: (places, some) for way, some in heights.items()},
    )
    lines, ratios = [], []
    for pair in zip(*(sorted(some, key=lambda one: one["seed"]) for some in by_way.values()), strict=True):
        plain, guided = (one["curve"][-1] for one in pair)
        ratios.append(guided / plain)
        told = (f"{one['curve'][-1]:,} | {one['runs']} | {one['pool']}" for one in pair)
        lines.append(f"| {pair[0]['seed']} | {' | '.join(told)} | {ratios[-1]:.2f} |")
    plain, guided = (heights[way][-1] for way in WAYS)
    lines.append(f"| median | {plain:,.0f} | | | {guided:,.0f} | | | {median(ratios):.2f} |")
    caught, never, missing = [], [], []
    for row in mutants():
        tries = [one for one in records if one["what"] == row.name and one["limit"] == cap]
        by_way = {way: [one for one in tries if one["way"] == way] for way in WAYS}
        if not all(by_way.values()):
            missing.append(row.name)
        elif not any(one["caught"] for one in tries):
            never.append(row.name)
        else:
            caught.append(f"| {row.name} |" + "|".join(map(_cost, by_way.values())) + "|")
    text = TEXT.format(
        searches=len(ratios),
        seconds=f"{seconds:g}",
        cap=f"{cap:g}",
        states="\n".join(lines),
        mutants="\n".join(caught),
        never=", ".join(never) or "none",
        missing=", ".join(missing) or "none",
        alt=drawing.alt,
        name=drawing.name,
        fresh=FRESH_FIRST,
    )
    return text, drawing.svg


def _cost(tries: list[dict[str, Any]]) -> str:
    """How often it was caught, and the medians; a search that reached its cap counts as longer than any other."""
    middle = sorted(tries, key=lambda one: (not one["caught"], one["seconds"]))[len(tries) // 2]
    told = (f"{middle['runs']}", f"{middle['seconds']:.1f}") if middle["caught"] else ("–", f"> {middle['limit']:g}")
    return f" {sum(one['caught'] for one in tries)} of {len(tries)} | {told[0]} | {told[1]} "


TEXT = """\
# The guided swarm

`./dev bench guided --searches {searches} --seconds {seconds} --cap {cap} --page
docs/results/guided-swarm.md` measures what is missing and makes this page. Figures are CPU time of
one process, on `fifo`. What counts as a situation was chosen on search 100. An earlier form, whose
situations were finer, had been measured on searches 0 to 4 before.

## Situations over CPU time

{searches} searches each, {seconds} CPU seconds a search. A
[situation](../simulation.md#how-the-guided-swarm-finds-its-way) is how far a member is with the
change of its view, without times, names and numbers. Both ways begin with the same {fresh} fresh
runs. The scenario of a run that came to something new is kept in the pool, which only the guided
search uses.

![{alt}](img/{name}.svg)

| search | unguided | runs | pool | guided | runs | pool | guided / unguided |
|---:|---:|---:|---:|---:|---:|---:|---:|
{states}

## What it costs to catch a mutant

Mutants of membership and views, at most {cap} CPU seconds a search; of how many searches each, the
table says. Runs and CPU seconds are medians; a search that reached its limit counts as the longest.

| mutant | unguided: caught | runs | CPU s | guided: caught | runs | CPU s |
|---|---:|---:|---:|---:|---:|---:|
{mutants}

Not caught within that limit, either way: {never}. Not measured yet: {missing}.
"""


def main() -> None:
    parser = argparse.ArgumentParser(prog="./dev bench guided", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--only", choices=("states", "mutants"))
    parser.add_argument("--searches", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--cap", type=float, default=60)
    parser.add_argument("--mutant", action="append")
    parser.add_argument("--records", type=Path, default=Path(".cache/guided.jsonl"))
    parser.add_argument("--page", type=Path)
    options = parser.parse_args()
    options.records.parent.mkdir(parents=True, exist_ok=True)
    options.records.touch()
    records = [json.loads(line) for line in options.records.read_text("utf-8").splitlines()]

    def measure(what: str, limit: float, seed: int, how: Callable[[int, str, float], dict[str, Any]]) -> None:
        for way in WAYS:
            key = {"what": what, "seed": seed, "way": way, "limit": limit}
            if not any(key.items() <= one.items() for one in records):
                records.append(key | how(seed, way, limit))
                with open(options.records, "a", encoding="utf-8") as file:
                    file.write(json.dumps(records[-1]) + "\n")
                print(records[-1], flush=True)

    for seed in range(options.searches if options.only != "mutants" else 0):
        measure("states", options.seconds, seed, count_states)
    for seed in range(MUTANT_SEARCHES if options.only != "states" else 0):
        for row in mutants():
            if not options.mutant or row.name in options.mutant:
                measure(row.name, options.cap, seed, partial(catch, row))
    if options.page is not None:
        text, picture = page_of(records, options.seconds, options.cap)
        options.page.write_text(text, "utf-8")
        (options.page.parent / "img" / "guided-swarm-states.svg").write_text(picture, "utf-8")


if __name__ == "__main__":
    main()
