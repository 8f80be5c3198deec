"""The headline of paper 004: ToTo's speedup over all-ack grows as the logarithm of the size of the group."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from unisono.experiments.figures import Drawing, curves
from unisono.experiments.grid import Grid, make_grid
from unisono.experiments.model import pooled, predict
from unisono.experiments.pages import Experiment, PaperTable, Row, grouped, mean_ms, mean_of, sound

SIZES = (2, 3, 4, 6, 8, 12, 16, 24, 32)
RATE = 100
MESSAGES_A_MEMBER = 60


def grid(quick: bool = False) -> Grid:
    sizes, messages, seeds = ((2, 4, 8, 16), 25, 3) if quick else (SIZES, MESSAGES_A_MEMBER, 8)
    blocks: list[dict[str, Any]] = [
        {
            "order": ["all-ack", "toto"],
            "members": n,
            "source": ["periodic", "poisson"],
            "rate": RATE,
            "delay": "constant:1.7ms",
            "messages": max(200, messages * n),  # the end of a run, where messages stay undecided, must weigh little
            "ack_delay": "none",
            "seeds": seeds,
        }
        for n in sizes
    ]
    return make_grid("speedup", *blocks)


def summarise(rows: Sequence[Row]) -> list[PaperTable]:
    measured = sound(rows)
    tables, fits = [], []
    for source in ("poisson", "periodic"):
        lines = _lines([row for row in measured if row["source"] == source], source)
        columns = (
            *(("n", "d"), ("all-ack (ms)", ".2f"), ("ToTo (ms)", ".2f"), ("τ of ToTo", ".2f")),
            *(("speedup", ".3f"), ("by the model", ".3f")),
        )
        called = "Poisson" if source == "poisson" else "periodic"
        note = "Latency at the sender. The model: formulas of section 6 on the joint distributions measured in the same runs."
        tables.append(PaperTable(f"Speedup over all-ack, {called} source", columns, tuple(lines), note))
        if len(lines) >= 3:
            fits.append((called, *fit_logarithm([line[0] for line in lines], [line[4] for line in lines])))
    curve = (("source", ""), ("a", ".3f"), ("b", ".3f"), ("R²", ".4f"))
    note = "Least squares over the sizes below. By the model it grows as log₂ n with Poisson sources; with periodic ones towards 2."
    return [PaperTable("Fitted curve: speedup = a + b ln n", curve, tuple(fits), note), *tables]


def draw(rows: Sequence[Row]) -> list[Drawing]:
    """The measured speedups and the fitted logarithms."""
    points, fits = {}, {}
    for source in ("poisson", "periodic"):
        lines = _lines([row for row in sound(rows) if row["source"] == source], source)
        if len(lines) >= 3:
            sizes, speedups = [line[0] for line in lines], [line[4] for line in lines]
            a, b, _ = fit_logarithm(sizes, speedups)
            between = [sizes[0] * (sizes[-1] / sizes[0]) ** (i / 60) for i in range(61)]
            points[source] = (sizes, speedups)
            fits[source] = (between, [a + b * math.log(n) for n in between])
    alt = "ToTo's speedup over all-ack by the number of members, with a fitted logarithm for each source"
    return [curves("curve", alt, "members", "speedup over all-ack", points, fits)] if points else []


def fit_logarithm(sizes: Sequence[int], speedups: Sequence[float]) -> tuple[float, float, float]:
    """Intercept and slope of speedup over ln n by least squares, and R²."""
    import numpy

    x, y = numpy.log(numpy.asarray(sizes, dtype=float)), numpy.asarray(speedups, dtype=float)
    (a, b), *_ = numpy.linalg.lstsq(numpy.column_stack([numpy.ones_like(x), x]), y, rcond=None)
    rest, whole = float(((y - a - b * x) ** 2).sum()), float(((y - y.mean()) ** 2).sum())
    return float(a), float(b), 1.0 - rest / whole if whole else 1.0


def _lines(rows: Sequence[Row], source: str) -> list[tuple[Any, ...]]:
    groups = grouped(rows, "members", "order")
    lines = []
    for n in sorted({n for n, _ in groups}):
        if (n, "all-ack") in groups and (n, "toto") in groups:
            rival, ours = groups[n, "all-ack"], groups[n, "toto"]
            slow, fast = (mean_ms(runs, "latency_sender_mean") for runs in (rival, ours))
            model = [predict(source, pooled(runs), n, n / RATE) for runs in (rival, ours)]
            by_model = model[0] / model[1] if model[1] else None
            lines.append((n, slow, fast, mean_of(ours, "index_of_latency"), slow / fast, by_model))
    return lines


EXPERIMENT = Experiment(
    "speedup",
    "ToTo's speedup over all-ack",
    "Paper 004 promises a speedup of O(log n) over waiting for everybody. The whole group casts 100 messages a second however "
    "large it is, so that the graph stays narrow; one-way delay 1.7 ms; acknowledgements ride on casts only.",
    grid,
    summarise,
    draw,
)
