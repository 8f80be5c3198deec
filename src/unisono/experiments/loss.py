"""How the total orders bear loss: a lost packet is sent again 10 ms later, and its successors wait for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from unisono.experiments.figures import Drawing, curves
from unisono.experiments.grid import Grid, make_grid
from unisono.experiments.pages import Experiment, PaperTable, Row, grouped, mean_ms, sound

ORDERS = ("sequencer", "abcast", "tomp", "all-ack", "toto", "rmp")
LOSSES = (0.0, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3)


def grid(quick: bool = False) -> Grid:
    block: dict[str, Any] = {
        "order": list(ORDERS),
        "members": 5,
        "source": "poisson",
        "rate": 500,
        "delay": "uniform:0.5ms:2ms",
        "loss": [0.0, 0.05, 0.3] if quick else list(LOSSES),
        "retransmit": "10ms",
        "messages": 100 if quick else 500,
        "seeds": 3 if quick else 12,
    }
    return make_grid("loss", block)


def summarise(rows: Sequence[Row]) -> list[PaperTable]:
    groups = grouped(sound(rows), "loss", "order")
    orders = [order for order in ORDERS if any(name == order for _, name in groups)]
    tables = []
    for title, column in (("Mean latency (ms)", "latency_mean"), ("99th percentile of latency (ms)", "latency_p99")):
        lines = []
        for loss in sorted({loss for loss, _ in groups}):
            lines.append(
                (loss, *(mean_ms(groups[loss, o], column) if (loss, o) in groups else None for o in orders))
            )  # fmt: skip
        tables.append(PaperTable(title, (("loss", ".0%"), *((order, ".2f") for order in orders)), tuple(lines)))
    return tables


def draw(rows: Sequence[Row]) -> list[Drawing]:
    groups = grouped(sound(rows), "order", "loss")
    points = {}
    for order in ORDERS:
        places = [place for name, place in groups if name == order]
        if places:
            points[order] = (places, [mean_ms(groups[order, place], "latency_mean") for place in places])
    alt = "Mean latency of each order by the share of packets lost"
    return [curves("latency", alt, "share of packets lost", "mean latency (ms)", points)] if points else []


EXPERIMENT = Experiment(
    "loss",
    "Loss",
    "Latency at all members when up to 30 % of the packets are lost: 5 members, 500 messages a second, delay 0.5 to 2 ms, a lost "
    "packet is sent again after 10 ms, then 20 ms and so on. The streams below are reliable, so packets behind a lost one wait.",
    grid,
    summarise,
    draw,
)
