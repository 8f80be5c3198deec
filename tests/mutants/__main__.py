"""`./dev mutants`: run every mutant of the catalogue, and tell who caught it and after how many seeds."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.table import Table

from tests.mutants.catalogue import ROWS, Row
from tests.mutants.caught import draw_row, shrink_row
from tests.mutants.trial import Caught, try_row
from unisono.cli.show import bar, out, print_json
from unisono.core.errors import Misuse
from unisono.sim.pool import fan_out


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev mutants", description=__doc__)
    parser.add_argument("names", nargs="*", help="only mutants whose name contains one of these")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    parser.add_argument("--markdown", action="store_true", help="print the table as the documentation shows it")
    parser.add_argument("--workers", type=int, default=None, help="processes; without it, one a core")
    parser.add_argument("--shrink", type=Path, metavar="FOLDER", help="shrink what catches them to replay files there")
    parser.add_argument("--draw", type=Path, metavar="FILE", help="draw this replay file with the one mutant planted")
    options = parser.parse_args()
    chosen = [p for p, row in enumerate(ROWS) if not options.names or any(n in row.mutant for n in options.names)]
    if options.shrink or options.draw:
        return show([ROWS[place] for place in chosen], options.shrink, options.draw)
    found: dict[int, Caught] = {}
    with bar("mutants", len(chosen)) as update:

        def seen(caught: Caught) -> bool:
            found[caught.place] = caught
            update(len(found), f"mutants: {ROWS[caught.place].name}")
            return True

        fan_out(try_row, ((place,) for place in chosen), seen, options.workers)
    survivors = [caught for caught in found.values() if caught.seeds is None]
    if options.json:
        rows = [{"mutant": ROWS[p].mutant, "breaks": ROWS[p].breaks, "by": ROWS[p].way.name} for p in sorted(found)]
        rest = [{"seeds": found[p].seeds, "seconds": round(found[p].seconds, 1)} for p in sorted(found)]
        print_json({"mutants": [one | more for one, more in zip(rows, rest, strict=True)], "survivors": len(survivors)})
    elif options.markdown:
        print("| mutant | caught by | seeds |\n|---|---|---:|")
        for place in sorted(found):
            print(f"| {ROWS[place].name} | {ROWS[place].way.name} | {found[place].seeds or 'survived'} |")
    else:
        out.print(table(found))
    for caught in survivors:
        print(f"{ROWS[caught.place].mutant} survived: {caught.fault or ROWS[caught.place].way.name}", file=sys.stderr)
    return 1 if survivors else 0


def show(rows: list[Row], folder: Path | None, replay: Path | None) -> int:
    try:
        if replay is not None:
            if len(rows) != 1:
                raise Misuse(f"{len(rows)} mutants have such a name: name the one to plant.")
            print(draw_row(rows[0], replay, replay.with_suffix(".svg")))
        elif folder is not None:
            for row in rows:
                print(shrink_row(row, folder), flush=True)
    except Misuse as error:
        print(f"./dev mutants: {error}", file=sys.stderr)
        return 2
    return 0


def table(found: dict[int, Caught]) -> Table:
    result = Table(header_style="bold", box=SIMPLE_HEAD)
    for name in ("mutant", "caught by"):
        result.add_column(name)
    for name in ("seeds", "s"):
        result.add_column(name, justify="right")
    for place in sorted(found):
        row, caught = ROWS[place], found[place]
        seeds = "[red]survived[/]" if caught.seeds is None else str(caught.seeds)
        result.add_row(row.name, row.way.name, seeds, f"{caught.seconds:.1f}")
    return result


if __name__ == "__main__":
    sys.exit(main())
