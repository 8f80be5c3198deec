"""TOMP against ABCAST: where the time goes (000, sections 2.3 and 4)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from unisono.experiments.figures import Drawing, stacks
from unisono.experiments.grid import Grid, make_grid
from unisono.experiments.pages import Experiment, PaperTable, Row, grouped, margin, mean, mean_ms, sound

DELAYS = {"exponential:1ms": "exponential", "uniform:0.2ms:1.8ms": "uniform", "lognormal:0.6065ms:1": "log-normal"}
"""All with a mean of 1 ms, so that a rate of 1000 r a second is r casts a mean delay."""
MEAN_DELAYS_PER_S = 1_000
CLAIM = (0.30, 0.40)


def grid(quick: bool = False) -> Grid:
    block: dict[str, Any] = {
        "order": ["abcast", "tomp"],
        "members": [3, 4, 5, 8, 16],
        "source": "poisson",
        "rate": [300, 600, 1000],
        "delay": list(DELAYS),
        "messages": 150,
        "seeds": 20,
    }
    if quick:
        block |= {"members": [3, 5, 16], "rate": [300, 1000], "delay": "exponential:1ms", "messages": 120, "seeds": 10}
    return make_grid("tomp", block)


def summarise(rows: Sequence[Row]) -> list[PaperTable]:
    pairs = [
        (key, *_pair(group)) for key, group in grouped(sound(rows), "delay", "members", "rate").items() if _whole(group)
    ]
    found = [_figures(delay, n, rate, abcast, tomp) for (delay, n, rate), abcast, tomp in pairs]
    columns = (
        *(("delay", ""), ("n", "d"), ("load", ".1f"), ("t1 ABCAST", ".3f"), ("t1 TOMP", ".3f")),
        *(("t2 ABCAST", ".3f"), ("t2 TOMP", ".3f"), ("t2 less", ".1%"), ("±", ".1%"), ("t1 + t2 less", ".1%")),
        *(("latency ABCAST", ".3f"), ("latency TOMP", ".3f"), ("latency less", ".1%")),
    )
    note = (
        "Times in ms. Load: casts of the whole group in a mean delay. t1: first received until the final stamp is known; t2: from "
        "then until delivered. Latency: cast to delivery at all members. ±: 95 % interval over seeds of the saving in t2."
    )
    return [_summary(found), PaperTable("All cells", columns, tuple(found), note)]


def draw(rows: Sequence[Row]) -> list[Drawing]:
    """Where the time goes, at the middle load under the first model of delay."""
    loads = sorted({row["rate"] for row in rows})
    shown = [row for row in sound(rows) if row["delay"] == next(iter(DELAYS)) and row["rate"] == loads[len(loads) // 2]]
    groups = {}
    for (n,), group in grouped(shown, "members").items():
        pair = dict(zip(("ABCAST", "TOMP"), _pair(group), strict=True))
        groups[f"n = {n}"] = {name: (mean_ms(runs, "t1_mean"), mean_ms(runs, "t2_mean")) for name, runs in pair.items()}
    load = loads[len(loads) // 2] / MEAN_DELAYS_PER_S
    alt = f"Mean t1 and t2 of ABCAST and TOMP by the number of members, {load:g} casts a mean delay, exponential delays"
    return [stacks("parts", alt, "mean time (ms)", groups)] if groups else []


def _summary(found: list[tuple[Any, ...]]) -> PaperTable:
    """Saving by size of group: over all loads and delay models."""
    lines = []
    for n in sorted({row[1] for row in found}):
        here = [row for row in found if row[1] == n]
        cuts, whole, latency = ([row[place] for row in here] for place in (7, 9, 12))
        lines.append(
            (n, mean(cuts), min(cuts), max(cuts), mean(whole), min(whole), max(whole), mean(latency))
        )  # fmt: skip
    columns = (
        *(("n", "d"), ("t2 less, mean", ".1%"), ("least", ".1%"), ("most", ".1%")),
        *(("t1 + t2 less, mean", ".1%"), ("least", ".1%"), ("most", ".1%"), ("latency less, mean", ".1%")),
    )
    note = (
        f"The paper claims that TOMP cuts latency by {CLAIM[0]:.0%} to {CLAIM[1]:.0%}. That is about t2, the wait between the "
        "final stamp and delivery, which is the part that the algorithm works on. Of the whole, t1 + t2, it is far less, since t1 "
        "is the same in both."
    )
    return PaperTable("What TOMP saves", columns, tuple(lines), note)


def _whole(group: list[Row]) -> bool:
    """Both orders, with the same seeds: only then can they be compared pair by pair."""
    abcast, tomp = _pair(group)
    return bool(abcast) and [row["seed"] for row in abcast] == [row["seed"] for row in tomp]


def _pair(group: list[Row]) -> tuple[list[Row], list[Row]]:
    return [row for row in group if row["order"] == "abcast"], [row for row in group if row["order"] == "tomp"]


def _figures(delay: str, n: int, rate: float, abcast: list[Row], tomp: list[Row]) -> tuple[Any, ...]:
    before, after = ([mean_ms(rows, f"{part}_mean") for part in ("t1", "t2", "latency")] for rows in (abcast, tomp))
    cuts = [1 - b["t2_mean"] / a["t2_mean"] for a, b in zip(abcast, tomp, strict=True) if a["t2_mean"]]
    return (
        DELAYS.get(delay, delay),
        n,
        rate / MEAN_DELAYS_PER_S,
        before[0],
        after[0],
        before[1],
        after[1],
        1 - after[1] / before[1],
        margin(cuts),
        1 - (after[0] + after[1]) / (before[0] + before[1]),
        before[2],
        after[2],
        1 - after[2] / before[2],
    )


EXPERIMENT = Experiment(
    "tomp",
    "TOMP against ABCAST",
    "How much sooner TOMP delivers than ABCAST (paper 000), with latency split as in its Figure 2. Poisson casts; three models of "
    "one-way delay, each with a mean of 1 ms; both orders get the same casts and the same draws of delays from each seed.",
    grid,
    summarise,
    draw,
)
