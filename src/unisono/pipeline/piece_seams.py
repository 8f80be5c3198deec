"""Pieces of one life put together: what each assumed of the rows before it must be what the pieces before it reached."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame

LIFE = ("run", "group", "who")


def misfits(edges: DataFrame) -> DataFrame:
    """The (run, group)s with a life whose pieces do not fit, from its `edge` facts (`scan.LifeScan`)."""
    said = edges.select(*LIFE, "view", "edge", "piece", "value", "relation")
    return said.groupBy(*LIFE).applyInArrow(_unfit, "run string, `group` string")


def _unfit(table: pyarrow.Table) -> pyarrow.Table:
    """The life's run and group, if its pieces do not fit."""
    pieces: dict[int, list[Any]] = {}
    for edge in table.to_pylist():
        pieces.setdefault(edge["piece"], []).append(edge)
    return table.select(["run", "group"]).slice(0, 0 if _fits(pieces) else 1)


def _fits(pieces: dict[int, list[Any]]) -> bool:
    if min(pieces) != 0:
        return False  # the first one could not be read; of another, the one after it misses the rows
    reached: dict[str, int] = {}
    seen: dict[str, str] = {}  # by name: the view in which it was reached
    view: str | None = None
    for number in sorted(pieces):
        if "end" in reached:
            return False  # there are rows after the end
        for edge in pieces[number]:
            if edge["relation"] != "reached" and not _holds(edge, reached, seen, view):
                return False
        entered = next(edge["view"] for edge in pieces[number] if edge["edge"] == "view")
        if entered is not None:
            view = entered
            reached = {name: value for name, value in reached.items() if not name.startswith("ordinal ")}
        for edge in pieces[number]:
            if edge["relation"] == "reached" and edge["edge"] != "view":
                reached[edge["edge"]] = edge["value"]
                if edge["view"] is not None:
                    seen[edge["edge"]] = edge["view"]
    return True


def _holds(edge: Any, reached: dict[str, int], seen: dict[str, str], view: str | None) -> bool:
    name, value, relation = edge["edge"], edge["value"], edge["relation"]
    known = reached.get(name)
    match relation:
        case "=":
            return bool(value == (known or 0))
        case ">=":
            return known is not None and bool(known >= value)
        case "<=":
            return known is None or bool(known <= value)
        case "follows":  # without a gap inside a view; from view to view some may be left out
            if known is None:
                return True
            in_one_view = edge["view"] == view and seen.get(name) == view
            return bool(value == known) if in_one_view else bool(value >= known)
    raise AssertionError(relation)
