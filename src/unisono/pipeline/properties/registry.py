"""The properties that Spark judges: in a form of their own where rows are many, by their plain checkers where they are few."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce
from typing import TYPE_CHECKING

from unisono.pipeline.properties import (
    p00_well_formed,
    p01_no_creation,
    p07_gap_free_fifo,
    p08_causal,
    p08c_own_clocks,
    p24_determinism,
    row_picks,
    total_order,
)
from unisono.pipeline.properties.base import COLUMNS
from unisono.pipeline.properties.few_rows import few_rows
from unisono.pipeline.properties.p19_state_transfer import STATES
from unisono.pipeline.properties.p25_together import TOTALS, differing_deliveries
from unisono.pipeline.session import PipelineError
from unisono.trace.checks.model import KEPT
from unisono.trace.schema import BLOCK, COUNTERS, HEAL, JOIN, PAUSE, SHOW, SNAPSHOT_IN, SNAPSHOT_OUT, UNBLOCK

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from unisono.pipeline.tables import TraceTables


PROPERTIES: dict[str, Callable[[TraceTables], DataFrame]] = {
    "P0": p00_well_formed.violations,
    "P1": p01_no_creation.violations,
    "P2": few_rows("P2", more=row_picks.overlapping_deliveries),
    "P3": few_rows("P3", more=row_picks.deliveries_of_strangers),
    "P4": few_rows("P4", more=row_picks.undelivered_casts),
    "P5": few_rows("P5", BLOCK, more=row_picks.unshared_messages),
    "P6": few_rows("P6", more=row_picks.disordered_deliveries),
    "P7": p07_gap_free_fifo.violations,
    "P8": p08_causal.violations,
    "P8c": p08c_own_clocks.violations,
    "P9a": total_order.pairwise_violations,
    "P9b": total_order.acyclic_violations,
    "P9c": total_order.sequence_violations,
    "P10": total_order.uniform_violations,
    "P11": few_rows("P11"),
    "P12": few_rows("P12"),
    "P13": few_rows("P13", more=row_picks.deliveries_of_other_views),
    "P14": few_rows("P14", more=row_picks.unshared_messages),
    "P15": few_rows("P15"),
    "P16": few_rows("P16", more=row_picks.rows_of_old_views),
    "P17": few_rows("P17", BLOCK, UNBLOCK, more=row_picks.unheld_safe_messages),
    "P18": few_rows("P18", BLOCK, more=row_picks.rows_of_transactions),
    "P19": few_rows("P19", SNAPSHOT_IN, SNAPSHOT_OUT, SHOW, facts=STATES),
    "P20": few_rows("P20"),
    "P21": few_rows("P21", COUNTERS, more=row_picks.suspicious_packets),
    "P22": few_rows("P22", HEAL, PAUSE, JOIN, BLOCK, UNBLOCK, more=row_picks.late_messages),
    "P23": few_rows("P23", COUNTERS),
    "P24": p24_determinism.violations,
    "P25": few_rows("P25", *KEPT, more=differing_deliveries, facts=TOTALS),
    "P26": few_rows("P26", *KEPT, more=row_picks.stable_messages),
    "P27": few_rows("P27", *KEPT, more=row_picks.safe_messages),
    "P28": few_rows("P28", *KEPT, more=row_picks.receipted_messages),
    "P29": few_rows("P29", *KEPT),
}
"""By property id, in the order in which a report lists them."""


def check(tables: TraceTables, owed: Iterable[str]) -> DataFrame:
    """The violations of the owed properties, in the common form."""
    wanted = frozenset(owed)
    unjudged = wanted - PROPERTIES.keys()
    if unjudged:
        raise PipelineError(f"no property of this pipeline is called {', '.join(sorted(unjudged))}.")
    found = [violations(tables).select(*COLUMNS) for one, violations in PROPERTIES.items() if one in wanted]
    if not found:
        raise PipelineError("there is nothing to check: name at least one property that is owed.")
    return reduce(lambda one, other: one.unionByName(other), found)
