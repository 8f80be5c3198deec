"""Every built-in experiment by its name, and what is made of a grid in a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from unisono.core.errors import Misuse
from unisono.experiments import loss, phi, scale, shootout, speedup, tomp, toto_tables
from unisono.experiments.grid import read_grid
from unisono.experiments.pages import Experiment, PaperTable, Row, grouped, margin_ms, mean_ms, mean_of, sound

EXPERIMENTS: Mapping[str, Experiment] = {
    module.EXPERIMENT.name: module.EXPERIMENT for module in (tomp, toto_tables, shootout, phi, speedup, scale, loss)
}


def find_experiment(name: str) -> Experiment:
    """Find a built-in experiment, or read one from a TOML file."""
    if name in EXPERIMENTS:
        return EXPERIMENTS[name]
    if not name.endswith(".toml"):
        raise Misuse(
            f"there is no experiment {name!r}: choose among {', '.join(EXPERIMENTS)}, or name a grid in a .toml file."
        )
    grid = read_grid(Path(name))
    return Experiment(grid.name, grid.name, f"The grid of {Path(name).name}.", lambda quick: grid, summarise_any)


def summarise_any(rows: Sequence[Row]) -> list[PaperTable]:
    """One line for each combination of axes, over its seeds."""
    axes = ("order", "members", "source", "rate", "delay", "loss")
    measured = [row | {"phi_shown": -1.0 if row["phi"] is None else row["phi"]} for row in sound(rows)]
    lines: list[tuple[Any, ...]] = []
    for key, runs in grouped(measured, *axes, "phi_shown").items():
        lines.append(
            (
                *key[:-1],
                None if key[-1] < 0 else key[-1],
                len(runs),
                mean_ms(runs, "latency_mean"),
                margin_ms(runs, "latency_mean"),
                *(mean_ms(runs, column) for column in ("latency_p99", "latency_sender_mean", "t1_mean", "t2_mean")),
                mean_of(runs, "index_of_latency"),
                mean_of(runs, "concurrency"),
                mean_of(runs, "packets_per_message"),
                mean_of(runs, "bytes_per_message"),
            )
        )
    columns = (
        *(
            ("order", ""),
            ("n", "d"),
            ("source", ""),
            ("rate", "g"),
            ("delay", ""),
            ("loss", "g"),
            ("Φ", "g"),
            ("runs", "d"),
        ),
        *(("latency", ".3f"), ("±", ".3f"), ("p99", ".3f"), ("at sender", ".3f"), ("t1", ".3f"), ("t2", ".3f")),
        *(("τ", ".2f"), ("ω", ".2f"), ("packets", ".2f"), ("bytes", ".0f")),
    )
    note = "Times in ms, over seeds. Packets and bytes: on the wire for each message that was delivered."
    return [PaperTable("Measures", columns, tuple(lines), note)]
