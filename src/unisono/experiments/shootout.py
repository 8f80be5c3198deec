"""All total orders under the same load and network: latency, its parts, and cost beside the formula."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from unisono.experiments.grid import Grid, make_grid
from unisono.experiments.pages import Experiment, PaperTable, Row, grouped, margin_ms, mean_ms, mean_of, sound

ORDERS = ("sequencer", "fifo-total", "causal-total", "abcast", "tomp", "all-ack", "toto", "rmp")


def grid(quick: bool = False) -> Grid:
    block: dict[str, Any] = {
        "order": list(ORDERS),
        "members": [4] if quick else [4, 8, 16],
        "source": "poisson",
        "rate": [500] if quick else [100, 1_000],
        "delay": ["uniform:0.5ms:2ms"] if quick else ["uniform:0.5ms:2ms", "lognormal:1ms:0.8", "wan"],
        "messages": 150 if quick else 500,
        "seeds": 3 if quick else 10,
    }
    return make_grid("shootout", block)


def summarise(rows: Sequence[Row]) -> list[PaperTable]:
    columns = (
        *(("order", ""), ("latency", ".3f"), ("±", ".3f"), ("p50", ".3f"), ("p99", ".3f"), ("at the sender", ".3f")),
        *(("t1", ".3f"), ("t2", ".3f"), ("packets", ".2f"), ("formula", ""), ("theory", ".0f"), ("bytes", ".0f")),
    )
    note = (
        "Times in ms; latency at all members. Packets and bytes on the wire for each message. all-ack and ToTo pay explicit "
        "acknowledgements of idle members on top of the formula."
    )
    tables = []
    for (n, delay, rate), here in grouped(sound(rows), "members", "delay", "rate").items():
        by_order = grouped(here, "order")
        lines = [_line(order, by_order[order,]) for order in ORDERS if (order,) in by_order]
        tables.append(
            PaperTable(f"{n} members, {rate:g} messages a second, delay {delay}", columns, tuple(lines), note)
        )
        note = ""
    return tables


def _line(order: str, runs: list[Row]) -> tuple[Any, ...]:
    return (
        *(order, mean_ms(runs, "latency_mean"), margin_ms(runs, "latency_mean")),
        *(mean_ms(runs, f"latency_{part}") for part in ("p50", "p99", "sender_mean")),
        *(mean_ms(runs, "t1_mean"), mean_ms(runs, "t2_mean"), mean_of(runs, "packets_per_message")),
        *(runs[0]["packets_formula"], runs[0]["packets_theory"], mean_of(runs, "bytes_per_message")),
    )


EXPERIMENT = Experiment(
    "shootout",
    "All total orders side by side",
    "Every total order under the same casts, from the same seeds. Idle members of all-ack and ToTo acknowledge after 5 ms.",
    grid,
    summarise,
)
