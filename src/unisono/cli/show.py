"""How results look on a terminal: tables, bars, verdicts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from unisono.cli.streams import takes_all_letters
from unisono.core.text import shorten
from unisono.sim.measure import Measures, Spread
from unisono.sim.run import Outcome
from unisono.sim.world import World
from unisono.trace.sanitize import json_text, sanitize, sanitize_lines

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)
VIOLATIONS_SHOWN = 10
MEASURES = ("order", ">mean", ">p50", ">p99", ">t1", ">t2", ">pkts", ">formula", ">bytes", ">index")


def tell(text: str, style: str | None = None) -> None:
    """Write text in which words of others may be: nothing in it is markup, and nothing moves the cursor."""
    out.print(sanitize_lines(text), style=style, markup=False, soft_wrap=True)


def tell_found(
    violations: Iterable[str], counts: Mapping[str, int], unknown: Mapping[str, str], notes: Iterable[str], long: bool
) -> None:
    """What was found in one run, below the line with its verdict."""
    lines = [f"  {violation}" for violation in islice(violations, VIOLATIONS_SHOWN)]
    if (hidden := sum(counts.values()) - VIOLATIONS_SHOWN) > 0:
        lines.append(f"  … and {hidden} more")
    for line in (*lines, *(f"  unknown {member}: {why}" for member, why in unknown.items())):
        tell(line if long else shorten(line))
    for note in notes:
        tell(f"  note: {note}", "yellow")


def cell(text: str) -> Text:
    """The same for a cell of a table."""
    return Text(sanitize(text))


def make_table(
    columns: Iterable[str], rows: Iterable[Sequence[Any]], no_wrap: Collection[str] = (), **looks: Any
) -> Table:
    """A table of what others may have written. A column is at the right if its name begins with `>`."""
    usual: dict[str, Any] = {"header_style": "bold", "box": SIMPLE_HEAD, "title_justify": "left"}
    table = Table(**usual | looks)
    for column in columns:
        name = column.removeprefix(">")
        justify: Literal["left", "right"] = "left" if name == column else "right"
        table.add_column(name, justify=justify, overflow="fold", no_wrap=name in no_wrap)
    for row in rows:
        table.add_row(*(one if isinstance(one, Text) else cell(str(one)) for one in row))
    return table


def print_json(value: Any) -> None:
    """One JSON object, for programs: nothing else goes to standard output."""
    print(json_line(value), flush=True)


def json_line(value: Any) -> str:
    return json_text(value, ascii_only=not takes_all_letters())


@contextmanager
def bar(text: str, total: int | None) -> Iterator[Callable[..., None]]:
    """A progress bar on standard error, only where a person watches; the function given updates it."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as progress:
        task = progress.add_task(text, total=total)

        def update(completed: int, text: str | None = None) -> None:
            if text is not None:
                progress.update(task, description=text)
            progress.update(task, completed=completed)

        yield update


@contextmanager
def on_spark(
    doing: str, master: str | None, conf: list[str] | None
) -> Iterator[tuple[SparkSession, Callable[..., None]]]:
    """A session, and what updates the bar above. What fails inside is told in one sentence, as a failure of `doing`."""
    from unisono.pipeline.session import open_session, parse_settings, plain_errors

    settings = parse_settings(conf or ())
    with bar("starting Spark", None) as update, plain_errors(doing):
        yield open_session(master, settings=settings), update


def run_progress(update: Callable[..., None]) -> Callable[[World], None]:
    """Progress of one run, in messages cast."""
    return lambda world: update(world.casts)


def verdict_lines(outcome: Outcome) -> Iterator[str]:
    verdict = outcome.verdict
    colour = {"PASS": "green", "FAIL": "red"}.get(verdict.result, "yellow")
    yield f"[bold {colour}]{verdict.result}[/]  {len(verdict.owed)} properties owed by {outcome.measures.order}"
    for violation in verdict.violations[:VIOLATIONS_SHOWN]:
        yield f"  [red]{violation.property}[/] {escape(violation.sentence)}"
    hidden = sum(verdict.counts.values()) - VIOLATIONS_SHOWN
    if hidden > 0:
        yield f"  ... and {hidden} more violations"
    for member, why in verdict.unknown.items():
        yield f"  [yellow]unknown[/] {escape(f'{member}: {why}')}"
    if outcome.gaps:
        yield f"  [yellow]{outcome.gaps} rows of the trace could not be written[/]"


def measures_table(rows: list[Measures], title: str = "") -> Table:
    """The comparison that people come for: latency, its parts, and the cost beside the formula. Times are in ms."""
    cells = (
        (
            row.order,
            *(_ms(row.latency, value) for value in (row.latency.mean, row.latency.p50, row.latency.p99)),
            _ms(row.t1, row.t1.mean),
            _ms(row.t2, row.t2.mean),
            f"{row.packets_per_message:.2f}",
            f"{row.packets_formula}={row.packets_theory:g}" + ("+" if "+" in row.packets_formula else ""),
            f"{row.bytes_per_message:.0f}",
            "–" if row.index_of_latency is None else f"{row.index_of_latency:.2f}",
        )
        for row in rows
    )
    named = Text(title, "table.title") if title else None
    return make_table(MEASURES, cells, padding=(0, 1, 0, 0), title=named)  # fits 80 columns


def _ms(spread: Spread, ns: float) -> str:
    return f"{ns / 1e6:.2f}" if spread.count else "–"
