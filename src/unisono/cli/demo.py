"""`unisono demo`: the whole story in a minute, for someone who sees it for the first time."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from shutil import rmtree
from typing import Annotated

import typer

from unisono.cli.show import bar, measures_table, out, run_progress, verdict_lines
from unisono.core.errors import Misuse
from unisono.pipeline.session import plain_errors
from unisono.sim.files import write_whole
from unisono.sim.run import simulate
from unisono.sim.scenario import Scenario, Source
from unisono.trace.diagram import render

ORDERS = ("sequencer", "abcast", "tomp", "all-ack", "toto")
MARK = ".unisono-demo"


def demo(
    folder: Annotated[Path, typer.Option("--out", help="Where traces, pictures and the report go.")] = Path("demo"),
    spark: Annotated[bool, typer.Option(help="Let Spark judge and measure the traces, and write a report.")] = True,
) -> None:
    """Five members cast at once: how each total order agrees, what it costs, and a picture of it."""
    traces = _fresh(folder)
    out.print("[bold]Five members cast 400 messages at random moments; packets take 0.2 to 3 ms.[/]")
    out.print("Everyone must deliver them in one and the same order. Five protocols agree on it in five ways:\n")
    outcomes = []
    with bar("simulating", 400 * len(ORDERS)) as update:
        for done, order in enumerate(ORDERS):
            scenario = Scenario(
                order=order,
                members=5,
                seed=7,
                source=Source(kind="poisson", rate=400, messages=400),
                delay="uniform:0.2ms:3ms",
            )
            progress = run_progress(lambda n, d=done: update(d * 400 + n))
            outcomes.append(simulate(scenario, folder=traces, progress=progress))
    out.print(measures_table([outcome.measures for outcome in outcomes]))
    for outcome in outcomes:
        for line in verdict_lines(outcome):
            out.print(line)
    out.print()
    for order in ("sequencer", "toto"):
        source = Source(kind="poisson", rate=500, messages=12)
        scenario = Scenario(order=order, members=4, seed=3, source=source, delay="uniform:0.2ms:3ms")
        path = folder / f"{order}.svg"
        write_whole(path, render(simulate(scenario, keep=True).events, title=f"{order}: 12 messages, 4 members"))
        out.print(f"a picture of 12 messages under {order}: [bold]{path}[/]")
    result = "PASS"
    if spark and find_spec("pyspark") is None:
        out.print(
            "with the extra `unisono\\[spark]` the same traces are judged and measured by Spark, and a report is written."
        )
    elif spark:
        with plain_errors("judging on Spark"):
            result = _judge_on_spark(folder, traces)
    out.print(
        "\nNext: `unisono compare sequencer,toto --members 8`, `unisono sim explore --crash`, `unisono sim run --help`."
    )
    if result != "PASS" or any(outcome.verdict.result != "PASS" for outcome in outcomes):
        raise typer.Exit(1)


def _fresh(folder: Path) -> Path:
    """An empty place for the traces. What an earlier demo left there goes; anything else is left alone."""
    traces = folder / "traces"
    if traces.exists() and not (traces / MARK).exists():
        raise Misuse(f"{traces} is there already and not from a demo: choose another place with --out.")
    rmtree(traces, ignore_errors=True)
    write_whole(traces / MARK, "made by unisono demo\n")
    return traces


def _judge_on_spark(folder: Path, traces: Path) -> str:
    from unisono.cli.trace_spark import write_report
    from unisono.pipeline.session import open_session
    from unisono.pipeline.verify import verify

    out.print("\nNow Spark reads the five traces, judges them again by itself, and measures them.")
    with bar("starting Spark", None) as update:
        session = open_session()
        judgement = verify(session, [traces], lambda text: update(0, text))
        update(0, "measuring and drawing")
        page = write_report(session, [traces], judgement, folder / "report", "unisono demo: five total orders")
    passed = sum(run.result == "PASS" for run in judgement.runs)
    out.print(f"[bold]Spark's verdict: {judgement.result}[/], {passed} of {len(judgement.runs)} runs pass")
    out.print(f"the report: [bold]{page}[/]")
    return judgement.result
