"""`unisono properties`: what the judge checks, one property a line or one in full."""

from __future__ import annotations

import difflib
import re
import textwrap
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from unisono.cli import options as o
from unisono.cli.show import out, print_json
from unisono.core.errors import Misuse
from unisono.trace.checks.properties import IMPLIES, PROPERTIES
from unisono.trace.checks.property import PropertyRecord
from unisono.trace.promises import PROMISES, promises
from unisono.trace.schema import VIEW

NEAREST = 3


def properties(
    ids: Annotated[
        list[str] | None,
        typer.Argument(metavar="[ID]...", help="Properties to tell in full, as in P8c; P9 is P9a to P9c."),
    ] = None,
    json: o.Json = False,
) -> None:
    """List what the judge checks; with an id, say what exactly it means, who owes it, and how a violation looks."""
    chosen = [one for id in ids or () for one in _find(id)]
    if json:
        print_json([row_of(one) for one in chosen or PROPERTIES.values()])
        return
    if not chosen:
        for one in PROPERTIES.values():
            out.print(f"[bold]{one.id:4}[/] {one.name}: {one.says}", soft_wrap=True)
    for number, one in enumerate(chosen):
        out.print(f"{chr(10) if number else ''}[bold]{one.id}[/] {one.name}: {one.says}", soft_wrap=True)
        for line in _lines(one):
            out.print(line, markup=False, soft_wrap=True)


def _find(id: str) -> list[PropertyRecord]:
    by_name = {name.lower(): one for name, one in PROPERTIES.items()}
    wanted = id.lower()
    found = [by_name[wanted]] if wanted in by_name else []
    found = found or [one for name, one in by_name.items() if re.fullmatch(rf"{re.escape(wanted)}[a-z]", name)]
    if not found:
        nearest = difflib.get_close_matches(wanted, by_name, NEAREST, cutoff=0)
        raise Misuse(f"there is no property {id!r}; the nearest are {', '.join(by_name[name].id for name in nearest)}.")
    return found


def owed_by(one: PropertyRecord) -> tuple[str, ...]:
    """The orders that owe a property."""
    return tuple(order for order in PROMISES if one.id in promises(order))


def tell_owed(one: PropertyRecord) -> str:
    orders = owed_by(one)
    if len(orders) == len(PROMISES):
        return "every order"
    return ", ".join(orders) or "no order: it is checked where it is asked for"


def tell_needs(one: PropertyRecord) -> str:
    if not one.rows:
        return "all rows"
    others = [kind for kind in one.rows if kind != VIEW]
    return f"{', '.join(others)} rows, besides VIEW and endings" if others else "VIEW rows and endings"


def implied_by(one: PropertyRecord) -> list[str]:
    return [other for other, weaker in IMPLIES.items() if one.id in weaker]


def blocks_of(statement: str) -> Iterator[str]:
    """The paragraphs and list items of a statement, each in one line."""
    for paragraph in re.split(r"\n\s*\n|\n(?=- )", statement):
        yield " ".join(paragraph.split())


def wrapped(statement: str, width: int) -> str:
    told = ""
    for block in blocks_of(statement):
        is_item = block.startswith("- ")
        told += "\n" if told and not is_item else ""
        told += textwrap.fill(block, width, subsequent_indent="  " if is_item else "", break_on_hyphens=False) + "\n"
    return told


def _lines(one: PropertyRecord) -> Iterator[str]:
    yield ""
    yield wrapped(one.statement, min(100, out.width))
    yield f"owed by:     {tell_owed(one)}"
    yield f"needs:       {tell_needs(one)}"
    if one.id in IMPLIES:
        yield f"implies:     {', '.join(sorted(IMPLIES[one.id]))}"
    if stronger := implied_by(one):
        yield f"implied by:  {', '.join(stronger)}"
    yield f"witness:     {', '.join(f'{key} ({field})' for key, field in one.witness.items())}"
    yield f"a violation: {one.tell(*one.example)}"


def row_of(one: PropertyRecord) -> dict[str, Any]:
    members, view, witness = one.example
    return {
        "id": one.id,
        "name": one.name,
        "says": one.says,
        "statement": list(blocks_of(one.statement)),
        "rows": list(one.rows),
        "owed_by": list(owed_by(one)),
        "implies": sorted(IMPLIES.get(one.id, ())),
        "implied_by": implied_by(one),
        "witness": {key: str(field) for key, field in one.witness.items()},
        "example": {
            "members": list(members),
            "view": view,
            "witness": dict(witness),
            "sentence": one.tell(*one.example),
        },
    }
