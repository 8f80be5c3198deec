"""`unisono demo`: the whole project in a minute, for a first look."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from shutil import rmtree
from typing import Annotated

import typer
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from unisono.cli.options import refuse_other_storage
from unisono.cli.show import on_spark, out
from unisono.core.errors import Misuse, UnisonoError
from unisono.demo.stage import DemoStage, staged
from unisono.orders.registry import DEFAULT_ORDER
from unisono.sim.files import write_whole
from unisono.trace.checks.judge import judge
from unisono.trace.diagram import render
from unisono.trace.promises import promises
from unisono.trace.reader import close_killed, read
from unisono.trace.schema import VIEW, Event

MARK = ".unisono-demo"
RUN = "demo"
OF_VIEWS = frozenset({"P15", "P16", "P17"})
"""Properties that hold in addition when membership agrees on the views."""
PICTURE_NS = 60_000_000
"""How much of the run the picture shows before and after the view change that follows the crash."""


def demo(
    folder: Annotated[
        Path,
        typer.Option("--out", help="Folder for traces, pictures and the report.", callback=refuse_other_storage),
    ] = Path("demo"),
    spark: Annotated[bool, typer.Option(help="Judge and measure the traces with Spark, and write a report.")] = True,
) -> None:
    """Run five processes that agree on one order while one is killed, one paused and one joins; then judge the traces."""
    traces = _fresh(folder)
    out.print(
        "[bold]Five processes on this machine form a group and cast about 40 messages a second each, over UDP.[/]"
    )
    out.print("All of them must deliver the same messages in the same order, even if some crash or pause.\n")
    with staged(traces, RUN, 6) as stage:
        _play(stage)
        result = _agreement(stage)
    for life in close_killed(traces):
        out.print(f"\n{life.member} was killed and could not record it: its trace now ends with CRASH.")
    events = list(read([traces]).events(RUN))
    picture = folder / "crash.svg"
    write_whole(picture, _picture(events))
    out.print(
        f"diagram of the moment when the group continued without the killed process: [bold]{escape(str(picture))}[/]"
    )
    if spark and find_spec("pyspark") is None:
        out.print(
            "install the extra `unisono\\[spark]` to judge and measure the traces with Spark, and to get a report."
        )
        spark = False
    if spark:
        verdict = _judge_on_spark(folder, traces)
    else:
        verdict = str(judge(events, promises(DEFAULT_ORDER) | OF_VIEWS).result)
        out.print(f"[bold]Verdict of the plain checkers: {verdict}[/]")
    out.print(
        "\nNext: `unisono chat`, `unisono node --help`, `unisono compare sequencer,toto`, `unisono sim explore --crash`."
    )
    if not result or verdict != "PASS":
        raise typer.Exit(1)


def _play(stage: DemoStage) -> None:
    """Play the scenes: print a line for each, while a table shows the state of each process."""
    with Live(_table(stage), console=out, refresh_per_second=8, transient=True, auto_refresh=True) as live:

        def look() -> None:
            live.update(_table(stage))

        def tell(line: str) -> None:
            live.console.print(line)

        stage.start(together=5, count=5)
        took = stage.wait(lambda: stage.agree("abcde"), "the first view", look)
        tell(f"  a b c d e have found each other: one view of five, {took:.1f} s after their start.")
        stage.pass_time(1.5, look)
        _kill(stage, look, tell)
        _pause(stage, look, tell)
        stage.start(together=1, count=1)
        took = stage.wait(lambda: stage.agree("acdef"), "the view with f", look)
        tell(f"  f starts under full load and is a member {took:.1f} s later.")
        stage.pass_time(1.5, look)
        stage.stop_casting()
        stage.wait(stage.all_ended, "the end", look)
        tell("  All stop casting, wait for the last deliveries, and leave.\n")
    out.print(_table(stage))


def _kill(stage: DemoStage, look: Callable[[], None], tell: Callable[[str], None]) -> None:
    stage.signal("b", signal.SIGKILL, "killed")
    took = stage.wait(lambda: stage.agree("acde"), "the view without b", look)
    tell(
        f"  b is [red]killed[/] (SIGKILL). {took:.1f} s later the others have agreed on its last messages and on a view:"
    )
    tell(f"    b {_why(stage, 'a', 'b')}.")
    stage.pass_time(1.0, look)


def _pause(stage: DemoStage, look: Callable[[], None], tell: Callable[[str], None]) -> None:
    stage.signal("c", signal.SIGSTOP, "paused")
    took = stage.wait(lambda: stage.agree("ade"), "the view without c", look)
    tell(f"  c is [yellow]paused[/] (SIGSTOP). The others wait {took:.1f} s, then continue without it.")
    stage.pass_time(1.0, look)
    stage.signal("c", signal.SIGCONT, "casts")
    took = stage.wait(lambda: stage.agree("acde"), "the merge with c", look)
    tell(
        f"  c is resumed. It learns that it was excluded, and is back {took:.1f} s later: the same process, a new view."
    )
    stage.pass_time(0.5, look)


def _why(stage: DemoStage, witness: str, gone: str) -> str:
    said = stage.actors[witness].left.get(stage.actors[gone].address, "is gone")
    for actor in stage.actors.values():  # members' names are long: address and life
        said = re.sub(rf"{re.escape(actor.address)}(#\d+)?", actor.name, said)
    return said


def _table(stage: DemoStage) -> Table:
    table = Table(box=None, padding=(0, 2))
    for title in ("process", "", "view", "members", "delivered"):
        table.add_column(title, justify="right" if title in ("view", "delivered") else "left", style=None)
    colours = {"killed": "red", "paused": "yellow", "casts": "green"}
    for actor in stage.actors.values():
        members = " ".join(sorted(stage.name_of(address) for address in actor.members))
        state = f"[{colours.get(actor.state, 'dim')}]{actor.state}[/]"
        table.add_row(actor.name, state, "" if actor.view is None else str(actor.view), members, f"{actor.delivered:,}")
    return table


def _agreement(stage: DemoStage) -> bool:
    """Compare, by their own hashes, what the processes that were never absent have delivered."""
    chains = {stage.actors[name].chain for name in "ade"}
    same = len(chains) == 1 and None not in chains
    count = stage.actors["a"].delivered
    verdict = f"[green]the same {count:,} messages in the same order[/]" if same else "[red]not the same[/]"
    out.print(f"\na, d and e were never absent. By their own hashes they have delivered {verdict}.")
    return same


def _picture(events: list[Event]) -> str:
    """Draw the view change after the crash, with the messages under way."""
    small = [event.time_ns for event in events if event.kind == VIEW and len(event.members or ()) == 4]
    if not small:
        raise UnisonoError("the trace holds no view of four members, so there is nothing to draw.")
    moment = min(small)
    there = {event.member for event in events if event.kind == VIEW and event.time_ns <= moment}
    events = [event for event in events if event.member in there]
    return render(events, title="the view without b", start_ns=moment - PICTURE_NS, end_ns=moment + PICTURE_NS // 2)


def _fresh(folder: Path) -> Path:
    """Return an empty folder for the traces. An earlier demo's traces are removed; other files are refused."""
    traces = folder / "traces"
    if traces.exists() and not (traces / MARK).exists():
        raise Misuse(f"{traces} exists and was not written by a demo: choose another folder with --out.")
    rmtree(traces, ignore_errors=True)
    write_whole(traces / MARK, "made by unisono demo\n")
    return traces


def _judge_on_spark(folder: Path, traces: Path) -> str:
    from unisono.cli.trace_spark import write_report
    from unisono.pipeline.verify import verify

    out.print("\nSpark now reads, judges and measures the traces.")
    with on_spark("judging on Spark", None, None) as (session, update):
        judgement = verify(session, [traces], lambda text: update(0, text), also=OF_VIEWS)
        update(0, "measuring and drawing")
        page = write_report(session, [traces], judgement, folder / "report", "unisono demo: five processes, one order")
    owed = len(judgement.runs[0].owed) if judgement.runs else 0
    out.print(f"[bold]Spark's verdict: {judgement.result}[/], on {owed} properties that the run must keep")
    out.print(f"the report: [bold]{escape(str(page))}[/]")
    return judgement.result
