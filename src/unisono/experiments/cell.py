"""One cell, run where a worker runs it: simulate, judge, measure, and give one row back."""

from __future__ import annotations

import tempfile
import traceback
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unisono.pipeline.storage import place, upload
from unisono.sim.run import simulate
from unisono.sim.scenario import Scenario

if TYPE_CHECKING:
    import pyarrow

FAULT = "FAULT"
"""The verdict of a cell whose run broke an invariant or raised otherwise."""
SPREADS = ("latency_sender", "latency", "t1", "t2")
FIGURES = (("count", "int64"), ("mean", "float64"), ("p50", "float64"), ("p99", "float64"))


def schema() -> pyarrow.Schema:
    """The columns of a row. Durations are in ns; there is nothing in it that depends on where or when it was made."""
    import pyarrow as pa

    count, number, text = pa.int64(), pa.float64(), pa.string()
    joint = pa.list_(pa.struct([("tau", pa.int32()), ("omega", pa.int32()), ("messages", count)]))
    spreads = [(f"{name}_{figure}", pa.type_for_alias(kind)) for name in SPREADS for figure, kind in FIGURES]
    return pa.schema(
        [
            *(
                ("id", text),
                ("order", text),
                ("members", count),
                ("source", text),
                ("rate", number),
                ("messages", count),
            ),
            *(("delay", text), ("loss", number), ("phi", number), ("seed", count)),
            *(("verdict", text), ("problem", text), ("digest", text)),
            *(("casts", count), ("delivered", count), ("deliveries", count), ("view_changes", count)),
            *(("virtual_ns", count), ("throughput", number)),
            *spreads,
            *(("index_of_latency", number), ("concurrency", number), ("joint", joint)),
            *(("packets_per_message", number), ("bytes_per_message", number), ("packets", count)),
            *(("packets_formula", text), ("packets_theory", number)),
        ]
    )


def run_cell(id: str, scenario: Scenario, traces: str | None = None) -> dict[str, Any]:
    """The row of one cell. With `traces`, its trace is written to a folder of its own below that."""
    row: dict[str, Any] = {"id": id, **_axes(scenario)}
    if traces is None:
        return row | _outcome(id, scenario, None)
    with tempfile.TemporaryDirectory(prefix="unisono-") as folder:
        row |= _outcome(id, scenario, Path(folder))
        if row["verdict"] != FAULT:
            upload(Path(folder), place(traces) / id)
    return row


def _outcome(id: str, scenario: Scenario, folder: Path | None) -> dict[str, Any]:
    try:
        return _measure(id, scenario, folder)
    except OSError:  # a full disk says nothing of the run: the task fails, and is tried again
        raise
    except Exception as error:  # a broken invariant is a result like any other: the grid goes on, the page says so
        place = traceback.extract_tb(error.__traceback__)[-1]
        text = f"{type(error).__name__} in {Path(place.filename).name}:{place.lineno}: {error}"
        return {"verdict": FAULT, "problem": text}


def _axes(scenario: Scenario) -> dict[str, Any]:
    source = scenario.source
    return {
        "order": scenario.order,
        "members": scenario.members,
        "source": source.kind,
        "rate": source.rate,
        "messages": source.messages,
        "delay": scenario.delay,
        "loss": scenario.loss,
        "phi": scenario.settings.threshold(scenario.members) if scenario.order == "toto" else None,
        "seed": scenario.seed,
    }


def _measure(id: str, scenario: Scenario, folder: Path | None) -> dict[str, Any]:
    outcome = simulate(scenario, folder=folder, run=id)
    verdict, measures, world = outcome.verdict, outcome.measures, outcome.world
    first = verdict.violations[0] if verdict.violations else None
    row: dict[str, Any] = {
        "verdict": verdict.result,
        "problem": f"{first.property}: {first.sentence}" if first else None,
        "digest": outcome.digest,
        "throughput": measures.delivered * 1e9 / world.now if world.now else None,
        "packets": world.packets,
        "joint": [{"tau": t, "omega": w, "messages": count} for (t, w), count in sorted(outcome.meter.joint.items())],
    }
    for name, value in asdict(measures).items():
        if name in SPREADS:
            row |= {f"{name}_{figure}": value[figure] if value["count"] else None for figure, _ in FIGURES}
            row[f"{name}_count"] = value["count"]
        elif name not in ("order", "members", "seed"):
            row[name] = value
    return row
