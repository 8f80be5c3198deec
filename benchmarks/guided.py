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
from unisono.sim.guided import FRESH_FIRST, Guided, Search

ORDER = "fifo"
POINTS = 12
MUTANT_SEARCHES = 3
WAYS = ("unguided", "guided")
Run = Callable[[GroupScenario, OnTurn], GroupOutcome]


def search(seed: int, way: str, run: Run) -> Iterator[tuple[Search, Guided]]:
    """One run after another, without an end."""
    first, number = 100_000 * seed, 0
    search = Search([ORDER], first)
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
    lines = [
        "| search | unguided | runs | pool | guided | runs | pool | guided / unguided |",
        "|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    ratios = []
    for plain, guided in zip(*(sorted(some, key=lambda one: one["seed"]) for some in by_way.values()), strict=True):
        ratios.append(guided["curve"][-1] / plain["curve"][-1])
        told = (f"{one['curve'][-1]:,} | {one['runs']} | {one['pool']}" for one in (plain, guided))
        lines.append(f"| {plain['seed']} | {' | '.join(told)} | {ratios[-1]:.2f} |")
    ends_of = [heights[way][-1] for way in WAYS]
    lines.append(f"| median | {ends_of[0]:,.0f} | | | {ends_of[1]:,.0f} | | | {median(ratios):.2f} |")
    caught = [
        "| mutant | unguided: caught | runs | CPU s | guided: caught | runs | CPU s |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    never, missing, tried = [], [], [one for one in records if one["limit"] == cap]
    for row in mutants():
        tries = [one for one in tried if one["what"] == row.name]
        if {one["way"] for one in tries} != set(WAYS):
            missing.append(row.name)
        elif not any(one["caught"] for one in tries):
            never.append(row.name)
        else:
            caught.append(
                f"| {row.name} |" + "|".join(_cost([t for t in tries if t["way"] == way]) for way in WAYS) + "|"
            )
    text = TEXT.format(
        searches=len(by_way["guided"]),
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
one process, on `fifo`. How the search weighs its scenarios was chosen after a look at an earlier
form's searches 0 and 1, so those two are no fresh evidence.

## Situations over CPU time

{searches} searches each, {seconds} CPU seconds a search. A
[situation](../simulation.md#how-the-guided-swarm-finds-its-way) is how a group stands in the change
of its views, without times, names and numbers. Both ways begin with the same {fresh} fresh runs, so
a short search tells little. Where nearly as many scenarios are in the pool as there were runs,
nearly every run came to something new, and there was little to be guided by.

![{alt}](img/{name}.svg)

{states}

## What it costs to catch a mutant

Mutants of membership and views, at most {cap} CPU seconds a search; of how many searches each, the
table says. Runs and CPU seconds are medians; a search that reached its limit counts as the longest.

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

    def measure(what: str, seed: int, way: str, limit: float, how: Callable[[], dict[str, Any]]) -> None:
        key = {"what": what, "seed": seed, "way": way, "limit": limit}
        if not any(key.items() <= one.items() for one in records):
            records.append(key | how())
            with open(options.records, "a", encoding="utf-8") as file:
                file.write(json.dumps(records[-1]) + "\n")
        print(next(one for one in records if key.items() <= one.items()), flush=True)

    for seed in range(options.searches if options.only != "mutants" else 0):
        for way in WAYS:
            measure("states", seed, way, options.seconds, lambda: count_states(seed, way, options.seconds))  # noqa: B023
    chosen = [row for row in mutants() if not options.mutant or row.name in options.mutant]
    for seed in range(MUTANT_SEARCHES if options.only != "states" else 0):
        for row in chosen:
            for way in WAYS:
                measure(row.name, seed, way, options.cap, lambda: catch(row, seed, way, options.cap))  # noqa: B023
    if options.page is not None:
        text, picture = page_of(records, options.seconds, options.cap)
        options.page.write_text(text, "utf-8")
        (options.page.parent / "img").mkdir(exist_ok=True)
        (options.page.parent / "img" / "guided-swarm-states.svg").write_text(picture, "utf-8")


if __name__ == "__main__":
    main()
