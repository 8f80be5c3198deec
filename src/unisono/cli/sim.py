"""`unisono sim`: run a simulated group, replay, diagram, explore, swarm, fuzz."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from time import monotonic
from typing import Annotated, Any

import typer
from rich.markup import escape

from unisono.cli import options as o
from unisono.cli.explore_views import explore_views
from unisono.cli.show import bar, err, measures_table, out, print_json, run_progress, tell, verdict_lines
from unisono.cli.swarm import swarm as swarm_of_groups
from unisono.core.config import Config
from unisono.core.errors import Misuse
from unisono.orders.registry import LAYOUTS, ORDERS, find_order, make_codec
from unisono.sim.explore.orders import Case, distributions
from unisono.sim.explore.orders import explore as search
from unisono.sim.explore.orders import replay as replay_schedule
from unisono.sim.explore.search import SearchProgress
from unisono.sim.files import load_json, write_whole
from unisono.sim.fuzz import fuzz as attack
from unisono.sim.fuzz import make_samples
from unisono.sim.group_run import GroupOutcome, try_group
from unisono.sim.group_scenario import GroupScenario
from unisono.sim.replays import load_replay, read_replay
from unisono.sim.run import Outcome, simulate
from unisono.sim.scenario import Scenario
from unisono.sim.swarm import SwarmFailure
from unisono.sim.swarm import swarm as run_swarm
from unisono.sim.units import format_duration, parse_duration
from unisono.sim.workload import describe
from unisono.trace.diagram import cut_window, render
from unisono.trace.promises import promises
from unisono.trace.schema import Event
from unisono.trace.sinks import MemorySink

app = typer.Typer(help="Simulate, explore and attack the protocols in virtual time.", no_args_is_help=True)


@app.command("orders")
def orders(json: o.Json = False) -> None:
    """List the orders, their services, and the properties that they guarantee."""
    if json:
        print_json({name: sorted(promises(name)) for name in ORDERS})
        return
    for name, order in ORDERS.items():
        services = ", ".join(sorted(service.name.lower() for service in order.services))
        guarantees = ", ".join(sorted(order.guarantees))
        out.print(f"[bold]{name:13}[/] carries {services}; guarantees {guarantees}; owes {' '.join(_ids(name))}")


@app.command("run")
@o.taking(o.RunOptions)
def run(
    asked: o.RunOptions,
    trace: Annotated[
        Path | None, typer.Option(help="Write the trace into this folder.", callback=o.refuse_other_storage)
    ] = None,
    json: o.Json = False,
) -> None:
    """Run one simulated group, and judge whether its order keeps its guarantees."""
    scenario = asked.scenario()
    with bar("simulating", asked.messages) as update:
        outcome = simulate(scenario, folder=trace, progress=run_progress(update))
    _report(scenario, outcome, json)
    if trace is not None and not json:
        tell(f"trace in {trace}")
    _exit(outcome)


@app.command("replay")
def replay(
    file: Annotated[Path, typer.Argument(help="A replay file of swarm, shrinker or explorer.")], json: o.Json = False
) -> None:
    """Run a replay file again and report what it shows."""
    data = load_json(file)
    kind = data.get("kind") if isinstance(data, dict) else None
    if kind == "explore":
        lines: list[str] = []
        write = lines.append if json else lambda line: out.print(line, markup=False)
        sentence = replay_schedule(file, write=write)
        if json:
            print_json({"steps": lines, "violation": sentence})
        raise typer.Exit(1 if sentence else 0)
    scenario = read_replay(file, data)
    if isinstance(scenario, Scenario):
        outcome = simulate(scenario)
        _report(scenario, outcome, json)
        _exit(outcome)
    else:
        _report_group(scenario, try_group(scenario), json)


@app.command("diagram")
@o.taking(
    o.RunOptions,
    but="size burst depth duplicate reorder turn",
    members=4, rate=400.0, messages=10, delay="uniform:0.5ms:4ms",
)  # fmt: skip
def diagram(
    asked: o.RunOptions,
    replay: Annotated[
        Path | None, typer.Argument(help="Draw this replay file; then only --from, --to and --out count.")
    ] = None,
    start: o.From = None,
    until: o.To = None,
    file: o.Out = Path("diagram.svg"),
) -> None:
    """Draw a run as a space-time diagram (SVG)."""

    def draw(events: Sequence[Event], title: str, told: str) -> None:
        begin, end = cut_window(events, *(parse_duration(text) if text else None for text in (start, until)))
        write_whole(file, render(events, title=title, start_ns=begin, end_ns=end))
        out.print(f"{file}  {told}", markup=False)

    scenario = None if replay is None else load_replay(replay)
    if isinstance(scenario, GroupScenario):
        memory = MemorySink()
        group = try_group(scenario, sinks=lambda member: (memory,))
        draw(memory.events, f"{scenario.order}, seed {scenario.seed}", group.sentence or "no violation")
        _exit_group(group)
        return
    scenario = scenario or asked.scenario()
    outcome = simulate(scenario, keep=True)
    told = f"{outcome.measures.casts} messages, {outcome.measures.deliveries} deliveries"
    draw(outcome.events, f"{scenario.order}, {scenario.members} members, seed {scenario.seed}", told)
    _exit(outcome)


@app.command("explore")
def explore(
    order: o.Order = "abcast",
    members: o.Members = 3,
    messages: Annotated[
        int,
        typer.Option("--messages", "-m", help="Total number of messages, distributed over the members in every way."),
    ] = 2,
    crash: Annotated[bool, typer.Option("--crash", help="Also crash each member at every point.")] = False,
    states: Annotated[int, typer.Option(help="Maximum number of states per case.")] = 5_000_000,
    phi: o.Phi = None,
    file: o.Out = Path("violation.replay.json"),
    json: o.Json = False,
) -> None:
    """Explore every interleaving of a small case with the real ordering objects."""
    found = find_order(order)
    if not 1 <= members <= 5:
        raise Misuse(f"the explorer takes 1 to 5 members, not {members}: there would be too many interleavings.")
    if not 1 <= messages <= 6:
        raise Misuse(f"the explorer takes 1 to 6 messages, not {messages}: there would be too many interleavings.")
    if order == "toto":
        Config(phi=phi).threshold(members)
    elif phi is not None:
        raise Misuse(f"phi is a setting of toto; {order} has none.")
    rows: list[dict[str, Any]] = []
    begun = monotonic()
    complete = True
    with bar("exploring", None) as update:
        for case in distributions(members, messages, Config(phi=phi)):

            def show(progress: SearchProgress, case: Case = case) -> None:
                update(progress.states, f"{order} {case}, {progress.depth} steps deep")

            report = search(case, found, 1 if crash and members > 1 else 0, states, show)
            complete = complete and report.complete
            rows.append({"case": str(case), "states": report.states, "flushes": report.probes})
            if report.violation is not None:
                break
    total = sum(row["states"] for row in rows)
    if json:
        sentence = report.violation.sentence if report.violation else None
        print_json({"order": order, "cases": rows, "states": total, "complete": complete, "violation": sentence})
    else:
        for row in rows:
            crashes = f", {row['flushes']:,} view changes" if crash else ""
            out.print(f"{row['case']:>8}  {row['states']:>10,} states{crashes}")
        out.print(
            f"{total:,} states in {monotonic() - begun:.1f} s, {'all' if complete else 'NOT all'} interleavings seen"
        )
    if report.violation is not None:
        report.violation.save(file)
        if not json:
            out.print(str(report.violation), markup=False)
            out.print(f"replay it: unisono sim replay {file}", markup=False)
        raise typer.Exit(1)
    if not complete:
        raise Misuse(f"{states:,} states were not enough for one case: raise --states, or choose a smaller case.")
    if not json:
        out.print("[green]no violation[/]")


app.command("explore-views")(explore_views)
app.command("swarm")(swarm_of_groups)


@app.command("swarm-orders")
def swarm_orders(
    seeds: Annotated[int | None, typer.Option(help="Seeds per order; without it, run until stopped.")] = None,
    order: Annotated[str | None, typer.Option("--order", "-o", help="Only this order.")] = None,
    first: Annotated[int, typer.Option(help="The first seed.")] = 0,
    workers: Annotated[int | None, typer.Option(help="Number of processes. Default: one per core.")] = None,
    folder: Annotated[
        Path,
        typer.Option("--out", help="Folder for the replay files of failures.", callback=o.refuse_other_storage),
    ] = Path("swarm-failures"),
    json: o.Json = False,
) -> None:
    """Run the orders without membership, under an oracle that changes views; shrink each failure to a replay file."""
    names = [order] if order else list(ORDERS)
    for name in names:
        find_order(name)
    for option, value in (("--seeds", seeds), ("--workers", workers)):
        if value is not None and value < 1:
            raise Misuse(f"{option} must be at least 1, not {value}.")
    done: Counter[str] = Counter()
    faults: Counter[str] = Counter()
    failures: list[SwarmFailure] = []
    begun = monotonic()

    with bar("swarm", seeds * len(names) if seeds else None) as update:

        def seen(finding: SwarmFailure) -> bool:
            done[finding.order] += 1
            faults.update(finding.faults)
            if finding.sentence is not None:
                failures.append(finding)
                err.print(f"{finding.order} seed {finding.seed}: {finding.sentence}", markup=False, style="red")
                err.print(f"  replay it: unisono sim replay {finding.replay}", markup=False)
            update(done.total())
            return True

        try:
            run_swarm(names, seeds, first, workers, folder, seen)
        except KeyboardInterrupt:
            err.print("stopped.")
    seconds = monotonic() - begun
    if json:
        print_json(
            {
                "runs": done,
                "faults": faults,
                "failures": [[f.order, f.seed, f.sentence, f.replay] for f in failures],
                "seconds": round(seconds, 1),
            }
        )
    else:
        out.print(f"{done.total():,} runs in {seconds:.0f} s: " + ", ".join(f"{n} {c}" for n, c in done.items()))
        out.print("faults: " + (", ".join(f"{n} {c}" for n, c in faults.most_common()) or "none"))
        out.print(
            "[green]no violation[/]" if not failures else f"[red]{len(failures)} failures[/], replay files in {folder}"
        )
    if failures:
        raise typer.Exit(1)


@app.command("fuzz")
def fuzz(
    inputs: Annotated[int, typer.Option(help="How many inputs.")] = 1_000_000,
    seed: o.Seed = 1,
    json: o.Json = False,
) -> None:
    """Throw random and damaged bytes at the wire codec."""
    if inputs < 1:
        raise Misuse(f"--inputs must be at least 1, not {inputs}.")
    codec = make_codec(Config())
    begun = monotonic()
    with bar("fuzzing", inputs) as update:
        report = attack(codec, make_samples(codec, seed), inputs, seed, update)
    seconds = monotonic() - begun
    if json:
        refused = dict(report.refused)
        print_json(
            {
                "inputs": inputs,
                "accepted": report.accepted,
                "refused": refused,
                "failed": report.failed,
                "failures": [failure._asdict() for failure in report.failures],
                "peak_bytes": report.peak_bytes,
                "seconds": round(seconds, 1),
            }
        )
    else:
        out.print(
            f"{inputs:,} inputs for {len(LAYOUTS)} packet kinds in {seconds:.0f} s, at most {report.peak_bytes:,} bytes"
        )
        out.print(f"{report.accepted:>12,}  decoded to a well-formed packet")
        for reason, number in sorted(report.refused.items()):
            out.print(f"{number:>12,}  refused: {reason}", markup=False)
        for failure in report.failures:
            out.print(f"{failure.what}: sender {failure.sender} of {failure.members}, {failure.data_hex}", markup=False)
        out.print("[green]no failure[/]" if report.passed else f"[red]{report.failed} failures[/]")
    if not report.passed:
        raise typer.Exit(1)


def _report(scenario: Scenario, outcome: Outcome, json: bool) -> None:
    measures = outcome.measures
    if json:
        print_json(
            {
                "scenario": scenario.to_json(),
                "verdict": outcome.verdict.result,
                "violations": [{"property": v.property, "sentence": v.sentence} for v in outcome.verdict.violations],
                "measures": measures.to_json(),
                "digest": outcome.digest,
                "gaps": outcome.gaps,
            }
        )
        return
    text = f"{scenario.members} members, {describe(scenario.source)}, delay {scenario.delay}, seed {scenario.seed}"
    out.print(measures_table([measures], text))
    span = format_duration(measures.virtual_ns)
    changes = measures.view_changes
    views = f", {changes} view change{'s' if changes > 1 else ''}" if changes else ""
    out.print(f"{measures.casts:,} cast, {measures.deliveries:,} deliveries in {span} of virtual time{views}")
    out.print(f"trace digest {outcome.digest}", style="dim")
    for line in verdict_lines(outcome):
        out.print(line)


def _report_group(scenario: GroupScenario, outcome: GroupOutcome, json: bool) -> None:
    if json:
        print_json({"scenario": scenario.to_json(), "outcome": asdict(outcome)})
    else:
        what = f"{len(scenario.members)} members, {len(scenario.casts)} casts, {len(scenario.faults)} faults"
        out.print(f"{scenario.order}, {what}: {outcome.views} views installed, {outcome.deliveries} deliveries")
        colour = "green" if outcome.sentence is None else "red"
        out.print(f"[bold {colour}]{outcome.result}[/]  {escape(outcome.sentence or '')}")
    _exit_group(outcome)


def _exit_group(outcome: GroupOutcome) -> None:
    if outcome.sentence is not None:
        raise typer.Exit(1)


def _exit(outcome: Outcome) -> None:
    """Fail when the written trace has gaps, even if the run passed: the trace could not be judged."""
    if outcome.gaps:
        raise typer.Exit(1)
    if outcome.verdict.result != "PASS":
        raise typer.Exit(1 if outcome.verdict.result == "FAIL" else 2)


def _ids(name: str) -> list[str]:
    return sorted(promises(name), key=lambda p: (int("".join(c for c in p if c.isdigit())), p))
