"""The properties that Spark judges: in a form of their own where rows are many, by their plain checkers where they are few."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce
from typing import TYPE_CHECKING

from unisono.pipeline.properties import (
    p00_well_formed,
    p01_no_creation,
    p02_no_duplication,
    p03_in_view,
    p04_validity,
    p05_agreement,
    p06_fifo,
    p07_gap_free_fifo,
    p08_causal,
    p08c_own_clocks,
    p09a_pairwise,
    p09b_acyclic,
    p09c_same_sequence,
    p10_uniform_total,
    p13_sending_view,
    p14_virtual_synchrony,
    p17_safe,
    p19_state_transfer,
    p24_determinism,
    p25_together,
)
from unisono.pipeline.properties.base import COLUMNS
from unisono.pipeline.properties.few_rows import few_rows
from unisono.pipeline.properties.row_picks import (
    late_messages,
    receipted_messages,
    rows_of_old_views,
    rows_of_transactions,
    safe_messages,
    stable_messages,
    suspicious_packets,
)
from unisono.pipeline.session import PipelineError
from unisono.trace.checks.model import KEPT
from unisono.trace.checks.properties import place_of
from unisono.trace.schema import BLOCK, COUNTERS, HEAL, JOIN, PAUSE, UNBLOCK

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from unisono.pipeline.tables import TraceTables


_FORMULATED = {
    module.PROPERTY: module.violations
    for module in (
        p00_well_formed,
        p01_no_creation,
        p02_no_duplication,
        p03_in_view,
        p04_validity,
        p05_agreement,
        p06_fifo,
        p07_gap_free_fifo,
        p08_causal,
        p08c_own_clocks,
        p09a_pairwise,
        p09b_acyclic,
        p09c_same_sequence,
        p10_uniform_total,
        p13_sending_view,
        p14_virtual_synchrony,
        p17_safe,
        p19_state_transfer,
        p24_determinism,
        p25_together,
    )
}
_FILTERED = {
    "P11": few_rows("P11"),
    "P12": few_rows("P12"),
    "P15": few_rows("P15"),
    "P16": few_rows("P16", more=rows_of_old_views),
    "P18": few_rows("P18", BLOCK, more=rows_of_transactions),
    "P20": few_rows("P20"),
    "P21": few_rows("P21", COUNTERS, more=suspicious_packets),
    "P22": few_rows("P22", HEAL, PAUSE, JOIN, BLOCK, UNBLOCK, more=late_messages),
    "P23": few_rows("P23", COUNTERS),
    "P26": few_rows("P26", *KEPT, more=stable_messages),
    "P27": few_rows("P27", *KEPT, more=safe_messages),
    "P28": few_rows("P28", *KEPT, more=receipted_messages),
    "P29": few_rows("P29", *KEPT),
}
PROPERTIES: dict[str, Callable[[TraceTables], DataFrame]] = dict(
    sorted((_FORMULATED | _FILTERED).items(), key=lambda item: place_of(item[0]))
)
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
