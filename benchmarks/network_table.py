"""How the network benchmark shows its figures: the columns that are compared, unisono's own cases, and the verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.network_cases import BASE, LATENCIES, MEMBERS, OWN, RATES, SIZES
from benchmarks.network_judge import Results, Verdict, compare
from benchmarks.network_peers import BATCHED

ITERATES = "unisono, async for"
OURS = ("unisono", ITERATES)
COLUMNS = [f"N={members} {size}" for members in MEMBERS for size in SIZES.values()]
NOTHING = "–"
WIDTH = 120
"""Of what is written to a file."""


def verdicts(results: Results, systems: Sequence[str]) -> dict[str, dict[str, Verdict]]:
    """How unisono compares, by row and column: the last rows of the table."""
    unbatched = [name for name in systems if name not in (*OURS, BATCHED)]
    rows: dict[str, dict[str, Verdict]] = {}
    for row, peers, senders in (
        ("to the best unbatched", unbatched, "all"),
        ("to the best unbatched, one sender", unbatched, "one"),
        (f"to {BATCHED}", [BATCHED], "all"),
        (f"to {BATCHED}, one sender", [BATCHED], "one"),
    ):
        found = {column: compare(results, f"{column} {senders}", "per_s", peers) for column in COLUMNS}
        if senders == "all" and peers == unbatched:
            found |= {f"p50 N={case.members}": compare(results, case.name, "p50_us", peers) for case in LATENCIES}
        kept = {column: verdict for column, verdict in found.items() if verdict is not None}
        if kept:
            rows[row] = kept
    return rows


def show(console: Console, results: Results, missing: Mapping[str, str], systems: Sequence[str]) -> None:
    if not console.is_terminal:
        console.width = max(console.width, WIDTH)
    console.print(compared(results, systems))
    if any(case.name in results.get("unisono", {}) for case in OWN):
        console.print(own(results["unisono"]))
    for line in bests(results, systems):
        console.print(line)
    for name, reason in missing.items():
        console.print(f"{name}: {reason}.")
    for line in remarks(results):
        console.print(line)


def compared(results: Results, systems: Sequence[str]) -> Table:
    table = Table(title="Messages per second at the slowest member, and p50 from cast to delivery at the others")
    table.add_column("system", no_wrap=True)
    for column in (*COLUMNS, *(f"p50 N={case.members}" for case in LATENCIES)):
        table.add_column(column, justify="right", no_wrap=True)
    for name in systems:
        figures = results.get(name, {})
        for senders, label in (("all", name), ("one", "  one sender")):
            rates = [rate(figures.get(f"{column} {senders}")) for column in COLUMNS]
            waits = [wait(figures.get(case.name), "p50_us") if senders == "all" else "" for case in LATENCIES]
            table.add_row(label, *rates, *waits, style=None if senders == "all" else "dim")
    table.add_section()
    for row, found in verdicts(results, systems).items():
        cells = [ratio(found.get(column.header)) for column in table.columns[1:]]  # type: ignore[arg-type]
        table.add_row(row, *cells, style="bold")
    table.caption = "Above: all senders, then one. Ratios above 1.00 are in unisono's favour, for latencies too."
    return table


def own(figures: Mapping[str, Mapping[str, Any]]) -> Table:
    base = figures.get(BASE.name, {}).get("per_s")
    table = Table(title=f"unisono alone (ratios to {BASE.name} senders)")
    table.add_column("case", no_wrap=True)
    for column in ("per s", "MB/s", "ratio", "CPU µs/message", "peak MB", "p50", "p99", "gap ms"):
        table.add_column(column, justify="right", no_wrap=True)
    for case in (*RATES, *LATENCIES, *OWN):
        found = figures.get(case.name)
        if not found or "per_s" not in found:
            continue
        per_s = found["per_s"]
        is_fast = case.rate_per_s is None and case.load_share is None
        table.add_row(
            case.name,
            f"{per_s:,.0f}",
            f"{per_s * case.size_bytes / 1e6:,.1f}",
            f"{per_s / base:.2f}" if base and is_fast and case in OWN else "",
            f"{found['cpu_us']:,.1f}",
            f"{found['memory_mb']:,.0f}",
            wait(found, "p50_us"),
            wait(found, "p99_us"),
            f"{found['gap_ms']:,.0f}" if "gap_ms" in found else "",
        )
    return table


def bests(results: Results, systems: Sequence[str]) -> list[str]:
    """Which peer each ratio to the best is about."""
    return [
        f"The best, {row.removeprefix('to the best ')}: "
        + ", ".join(f"{one.peer} ({at})" for at, one in found.items())
        + "."
        for row, found in verdicts(results, systems).items()
        if BATCHED not in row
    ]


def rate(found: Mapping[str, Any] | None) -> str:
    if not found or "per_s" not in found:
        return "failed" if found and found["faults"] else NOTHING
    return f"{found['per_s']:,.0f}{'!' if found['faults'] else ''}"


def wait(found: Mapping[str, Any] | None, figure: str) -> str:
    if not found or figure not in found:
        return "failed" if found and found["faults"] else NOTHING
    return f"{found[figure]:,.0f} µs{'!' if found['faults'] else ''}"


def ratio(verdict: Verdict | None) -> str:
    return "" if verdict is None else f"{verdict.ratio:.2f}"


def remarks(results: Results) -> list[str]:
    """What a reader must know about the figures: faults, and rounds that others disturbed."""
    lines = [
        f"{name}, {case}: {fault}."
        for name, cases in results.items()
        for case, found in cases.items()
        for fault in found["faults"]
    ]
    kept = sum(found["disturbed"] for cases in results.values() for found in cases.values())
    rounds = sum(found["rounds"] for cases in results.values() for found in cases.values())
    if kept:
        lines.append(f"{kept} of {rounds} rounds were disturbed by other work on this machine, however often repeated.")
    return lines
