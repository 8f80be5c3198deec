"""What ToTo's threshold Φ does on narrow graphs, on wide ones, and over long distances: the open predictions of paper 004."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from unisono.experiments.figures import Drawing, curves
from unisono.experiments.grid import Grid, make_grid
from unisono.experiments.pages import Experiment, PaperTable, Row, grouped, margin_ms, mean_ms, mean_of, sound

N = 8
THRESHOLDS = (4, 5, 6, 7)
SHAPES: dict[str, tuple[str, float]] = {
    "narrow": ("constant:1.7ms", 100),
    "wide": ("uniform:0.5ms:4ms", 4_000),
    "wide, heavy tail": ("lognormal:1.5ms:1", 4_000),
    "wide area, light load": ("wan", 20),
    "wide area, heavy load": ("wan", 400),
}
"""By name: the model of delay, and the rate of the whole group."""


def grid(quick: bool = False) -> Grid:
    shapes = ("narrow", "wide") if quick else tuple(SHAPES)
    blocks: list[dict[str, Any]] = [
        {
            "order": "toto",
            "members": N,
            "source": "poisson",
            "delay": SHAPES[shape][0],
            "rate": SHAPES[shape][1],
            "phi": list(THRESHOLDS),
            "messages": 300 if quick else 1_500,
            "ack_delay": "none",
            "seeds": 4 if quick else 12,
        }
        for shape in shapes
    ]
    rivals = [block | {"order": "all-ack", "phi": "default"} for block in blocks]
    return make_grid("phi", *blocks, *rivals)


def summarise(rows: Sequence[Row]) -> list[PaperTable]:
    names = {(delay, float(rate)): name for name, (delay, rate) in SHAPES.items()}
    columns = (
        *(("order", ""), ("Φ", "g"), ("τ", ".2f"), ("ω", ".2f"), ("latency (ms)", ".3f"), ("±", ".3f")),
        *(("p99 (ms)", ".3f"), ("against Φ = 4", "+.1%")),
    )
    tables = []
    for (delay, rate), here in grouped(sound(rows), "delay", "rate").items():
        toto = grouped([row for row in here if row["order"] == "toto"], "phi")
        rival = [row for row in here if row["order"] == "all-ack"]
        base = mean_ms(next(iter(toto.values())), "latency_sender_mean") if toto else None
        lines = [_line("ToTo", threshold, runs, base) for (threshold,), runs in toto.items()]
        lines += [_line("all-ack", None, rival, base)] if rival else []
        title = f"{names.get((delay, rate), delay).capitalize()}: delay {delay}, {rate:g} messages a second"
        tables.append(
            PaperTable(title, columns, tuple(lines), "Latency at the sender; ± is the 95 % interval over seeds.")
        )
    order = [name.capitalize() for name in SHAPES]
    return sorted(tables, key=lambda table: order.index(table.title.partition(":")[0]))


def draw(rows: Sequence[Row]) -> list[Drawing]:
    """Latency by threshold, each shape against its own at the smallest."""
    groups = grouped([row for row in sound(rows) if row["order"] == "toto"], "delay", "rate", "phi")
    points = {}
    for name, (delay, rate) in SHAPES.items():
        places = [phi for d, r, phi in groups if (d, r) == (delay, rate)]
        if places:
            heights = [mean_ms(groups[delay, rate, phi], "latency_sender_mean") for phi in places]
            points[name] = (places, [height / heights[0] for height in heights])
    alt = "ToTo's mean latency by threshold, relative to the smallest threshold, on narrow and wide graphs"
    return [curves("latency", alt, "threshold Φ", "latency, relative", points)] if points else []


def _line(name: str, threshold: float | None, runs: list[Row], base: float | None) -> tuple[Any, ...]:
    latency = mean_ms(runs, "latency_sender_mean")
    return (
        *(name, threshold, mean_of(runs, "index_of_latency"), mean_of(runs, "concurrency"), latency),
        margin_ms(runs, "latency_sender_mean"),
        mean_ms(runs, "latency_sender_p99"),
        latency / base - 1 if base else None,
    )


EXPERIMENT = Experiment(
    "phi",
    "The effect of Φ",
    "Paper 004 uses Φ = n/2 = 4 and leaves open whether a larger Φ pays where many messages are concurrent, and how ToTo does over "
    "long distances. Eight members, Poisson casts, acknowledgements ride on casts only.",
    grid,
    summarise,
    draw,
)
