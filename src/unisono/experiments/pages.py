"""Tables of results, and the page in Markdown that shows them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from unisono.experiments.figures import Curves, Drawing
from unisono.experiments.grid import Grid

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class PaperTable:
    """A table as data: raw values, and for each column how people see them (a format, or '' for the value as it is)."""

    title: str
    columns: tuple[tuple[str, str], ...]
    rows: tuple[tuple[Any, ...], ...]
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        names = [name for name, _ in self.columns]
        rows = [[None if _missing(value) else value for value in row] for row in self.rows]
        return {"title": self.title, "columns": names, "rows": rows, "note": self.note}

    def cells(self) -> list[list[str]]:
        """The values as people see them."""
        return [[_shown(value, form) for value, (_, form) in zip(row, self.columns, strict=True)] for row in self.rows]

    def markdown(self) -> str:
        right = ["---:" if form else "---" for _, form in self.columns]
        lines = [f"## {self.title}", ""]
        lines += [_line([name for name, _ in self.columns]), _line(right), *map(_line, self.cells())]
        return "\n".join([*lines, "", self.note, ""] if self.note else [*lines, ""])


@dataclass(frozen=True, slots=True)
class Experiment:
    """A built-in experiment: what it asks, its grid (a quick one for tests), and how its rows become tables."""

    name: str
    title: str
    about: str
    grid: Callable[[bool], Grid]
    summarise: Callable[[Sequence[Row]], list[PaperTable]]
    draw: Callable[[Sequence[Row]], list[Drawing]] = lambda rows: []


def page(experiment: Experiment, rows: Sequence[Row], quick: bool, drawings: Sequence[Drawing] = ()) -> str:
    """The page of one experiment. Nothing in it depends on when or where the cells were run. Its figures lie in `img` beside it."""
    command = f"unisono experiment run {experiment.name}" + (" --quick" if quick else "")
    seeds = sorted({row["seed"] for row in rows})
    verdicts = Counter(row["verdict"] for row in rows)
    head = [
        f"# {experiment.title}",
        "",
        experiment.about,
        "",
        f"Made by `{command}`: {len(rows):,} simulated runs, {sum(row['casts'] or 0 for row in rows):,} messages cast, "
        f"{sum(row['deliveries'] or 0 for row in rows):,} deliveries, seeds {seeds[0]} to {seeds[-1]}. Every run was judged: "
        + ", ".join(f"{count:,} {verdict}" for verdict, count in sorted(verdicts.items()))
        + ".",
        "",
    ]
    head += [f"![{one.alt}](img/{experiment.name}-{one.name}.svg)\n" for one in drawings]
    return "\n".join([*head, *(table.markdown() for table in experiment.summarise(rows))]).rstrip() + "\n"


# What several experiments need to make tables.


def sound(rows: Sequence[Row]) -> list[Row]:
    """The rows that can be measured; a run that broke a promise has nothing to say about speed."""
    return [row for row in rows if row["verdict"] == "PASS"]


def grouped(rows: Sequence[Row], *keys: str) -> dict[tuple[Any, ...], list[Row]]:
    """Rows by the values of these columns, in their order."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in sorted(rows, key=lambda row: (tuple(row[key] for key in keys), row["seed"])):
        groups.setdefault(tuple(row[key] for key in keys), []).append(row)
    return groups


def table_of_orders(
    rows: Sequence[Row], axis: str, shown: tuple[str, str], orders: Sequence[str], title: str, form: str, figure: Any
) -> PaperTable:
    """A figure of several orders along an axis, whose column is `shown` so."""
    groups = grouped(rows, axis, "order")
    found = [order for order in orders if any(order == other for _, other in groups)]
    lines = [
        (at, *(figure(groups[at, order]) if (at, order) in groups else None for order in found))
        for at in dict.fromkeys(at for at, _ in groups)
    ]
    return PaperTable(title, (shown, *((order, form) for order in found)), tuple(lines))


def curves_of_orders(rows: Sequence[Row], axis: str, orders: Sequence[str], column: str) -> Curves:
    """The same of the mean of a duration, to be drawn: in ms."""
    groups = {order: grouped([row for row in rows if row["order"] == order], axis) for order in orders}
    return {
        order: ([at for (at,) in found], [mean_ms(runs, column) for runs in found.values()])
        for order, found in groups.items()
        if found
    }


def mean(values: Sequence[float]) -> float:
    """NaN if there are none: shown as a dash."""
    return math.fsum(values) / len(values) if values else math.nan


def values(rows: Sequence[Row], column: str) -> list[float]:
    """What was measured; a run in which nothing could be is left out."""
    return [row[column] for row in rows if row[column] is not None]


def mean_of(rows: Sequence[Row], column: str) -> float:
    return mean(values(rows, column))


def mean_ms(rows: Sequence[Row], column: str) -> float:
    return mean_of(rows, column) / 1e6


def margin(measured: Sequence[float]) -> float:
    """Half of the 95 % interval of the mean, over runs with different seeds; NaN for less than two."""
    if len(measured) < 2:
        return math.nan
    middle = mean(measured)
    variance = math.fsum((value - middle) ** 2 for value in measured) / (len(measured) - 1)
    return 1.96 * math.sqrt(variance / len(measured))


def margin_ms(rows: Sequence[Row], column: str) -> float:
    return margin(values(rows, column)) / 1e6


def _missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def _shown(value: Any, form: str) -> str:
    if _missing(value):
        return "–"
    return f"{value:{form}}" if form else str(value)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
