"""How the total orders bear loss: a lost packet is sent again 10 ms later, and its successors wait for it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from unisono.experiments.figures import Drawing, curves
from unisono.experiments.grid import Grid, make_grid
from unisono.experiments.pages import Experiment, PaperTable, Row, curves_of_orders, mean_ms, sound, table_of_orders

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
    return [
        table_of_orders(sound(rows), "loss", ("loss", ".0%"), ORDERS, title, ".2f", partial(mean_ms, column=column))
        for title, column in (
            ("Mean latency (ms)", "latency_mean"),
            ("99th percentile of latency (ms)", "latency_p99"),
        )
    ]


def draw(rows: Sequence[Row]) -> list[Drawing]:
    points = curves_of_orders(sound(rows), "loss", ORDERS, "latency_mean")
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
