"""The page of properties is written from what the checkers say of themselves, with a counter-example of each.

`python -m tests.unit.test_properties_page` writes it again, and draws its pictures.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

from tests import counter_examples
from unisono.cli.properties import implied_by, tell_needs, tell_owed, wrapped
from unisono.pipeline.report.neighbourhood import Neighbourhoods
from unisono.trace.checks.properties import IMPLIES, PROPERTIES
from unisono.trace.checks.property import PropertyRecord
from unisono.trace.diagram.events import STEPS
from unisono.trace.schema import member_name

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE, PICTURES = DOCS / "properties.md", DOCS / "img" / "properties"
WIDTH, BYTES_MAX = 100, 16_000


def table() -> str:
    rows = [f"| [{one.id}](#{anchor(one)}) | {one.name} | {one.says} |" for one in PROPERTIES.values()]
    return "\n".join(("| property | name | what it says |", "|---|---|---|", *rows)) + "\n"


def anchor(one: PropertyRecord) -> str:
    return re.sub(r"[^\w -]", "", f"{one.id} {one.name}".lower()).replace(" ", "-")


def sections(drawn: set[str]) -> str:
    return "\n".join(section(one, one.id in drawn) for one in PROPERTIES.values())


def section(one: PropertyRecord, is_drawn: bool) -> str:
    facts = f"Owed by {tell_owed(one)}. Judged by {tell_needs(one)}."
    if one.id in IMPLIES:
        facts += f" Implies {' and '.join(sorted(IMPLIES[one.id]))}."
    if stronger := implied_by(one):
        facts += f" Implied by {' and '.join(stronger)}."
    quote = textwrap.fill(one.tell(*one.example), WIDTH, initial_indent="> ", subsequent_indent="> ")
    parts = [f"### {one.id} {one.name}\n", wrapped(one.statement, WIDTH), textwrap.fill(facts, WIDTH) + "\n"]
    parts.append(f"A violation:\n\n{quote}\n")
    parts += [f"![{one.id} is broken](img/properties/{one.id}.svg)\n"] if is_drawn else []
    return "\n".join(parts)


def pictures() -> Iterator[tuple[str, str]]:
    """Counter-examples in which something that the violation points at can be drawn."""
    for one in PROPERTIES.values():
        events = counter_examples.events_of(one.id)
        found = Neighbourhoods(events).found(one.point(one.example.members, one.example.witness))
        kinds = {e.kind for e in events if (member_name(e.member, e.incarnation), e.local_index) in found.rows}
        if len({event.run for event in events}) == 1 and (found.messages or kinds & STEPS):
            picture = Neighbourhoods(events).draw(found)
            assert picture is not None
            yield one.id, picture


def written(page: str, drawn: set[str]) -> str:
    """The page with its parts about the properties written again."""
    return replaced(replaced(page, "table", table()), "properties", sections(drawn))


def replaced(page: str, name: str, text: str) -> str:
    head, mark, rest = page.partition(f"<!-- {name} -->\n")
    return f"{head}{mark}\n{text}\n<!-- end -->{rest.partition('<!-- end -->')[2]}"


def test_the_page_is_what_the_checkers_say() -> None:
    page, drawn = PAGE.read_text("utf-8"), dict(pictures())
    assert table() in page
    assert written(page, set(drawn)) == page, f"run `python -m {__name__}`"
    assert {path.stem: path.read_text("utf-8") for path in PICTURES.glob("*.svg")} == drawn, "likewise"


def test_most_properties_have_a_picture_and_it_is_small() -> None:
    drawn = dict(pictures())
    assert len(drawn) > 20
    assert drawn.keys() >= {"P2", "P5", "P6", "P8", "P9a", "P9b", "P9c", "P14"}
    assert all(len(picture.encode()) < BYTES_MAX for picture in drawn.values())


if __name__ == "__main__":
    drawn = dict(pictures())
    PICTURES.mkdir(exist_ok=True)
    for path in PICTURES.glob("*.svg"):
        path.unlink()
    for name, picture in drawn.items():
        (PICTURES / f"{name}.svg").write_text(picture, "utf-8")
    PAGE.write_text(written(PAGE.read_text("utf-8"), set(drawn)), "utf-8")
