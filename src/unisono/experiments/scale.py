"""How the total orders grow with the size of the group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from unisono.experiments.figures import Drawing, curves
from unisono.experiments.grid import Grid, make_grid
from unisono.experiments.pages import (
    Experiment,
    PaperTable,
    Row,
    curves_of_orders,
    mean_ms,
    mean_of,
    sound,
    table_of_orders,
)

SIZES = (2, 4, 8, 16, 32, 64, 128)
GRAPH_SIZES = tuple(n for n in SIZES if n <= 32)
"""The orders that keep a graph of acknowledgements: each message carries a vector, and every member acknowledges."""
ORDERS = ("sequencer", "abcast", "tomp", "all-ack", "toto")


def grid(quick: bool = False) -> Grid:
    common: dict[str, Any] = {
        "source": "poisson",
        "rate": 500,
        "delay": "uniform:0.5ms:2ms",
        "messages": 40 if quick else 200,
        "seeds": 2 if quick else 5,
    }
    sizes, graph_sizes = ((2, 8, 32), (2, 8)) if quick else (SIZES, GRAPH_SIZES)
    return make_grid(
        "scale",
        common | {"order": ["sequencer", "abcast", "tomp"], "members": list(sizes)},
        common | {"order": ["all-ack", "toto"], "members": list(graph_sizes)},
    )


def summarise(rows: Sequence[Row]) -> list[PaperTable]:
    figures: tuple[tuple[str, str, Any], ...] = (
        ("Latency at all members (ms)", ".3f", lambda runs: mean_ms(runs, "latency_mean")),
        ("99th percentile of latency (ms)", ".3f", lambda runs: mean_ms(runs, "latency_p99")),
        ("Packets a message", ".1f", lambda runs: mean_of(runs, "packets_per_message")),
        ("Packets a message by the formula", ".0f", lambda runs: runs[0]["packets_theory"]),
        ("Bytes a message", ".0f", lambda runs: mean_of(runs, "bytes_per_message")),
    )
    return [table_of_orders(sound(rows), "members", ("n", "d"), ORDERS, *figure) for figure in figures]


def draw(rows: Sequence[Row]) -> list[Drawing]:
    points = curves_of_orders(sound(rows), "members", ORDERS, "latency_mean")
    alt = "Mean latency of each order by the number of members, on logarithmic scales"
    return [curves("latency", alt, "members", "mean latency (ms)", points, log=True)] if points else []


EXPERIMENT = Experiment(
    "scale",
    "Growing groups",
    "Latency and cost of the total orders in groups of 2 to 128 members (all-ack and ToTo to 32). The whole group casts 500 "
    "messages a second; idle members of all-ack and ToTo acknowledge after 5 ms, which is what the packets above the formula are.",
    grid,
    summarise,
    draw,
)
