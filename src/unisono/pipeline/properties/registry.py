"""The properties that have a Spark formulation."""

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
    p11_view_agreement,
    p12_view_monotony,
    p13_sending_view,
    p14_virtual_synchrony,
    p15_transitional_set,
    p16_merge,
    p17_safe,
    p18_two_phase_commit,
    p19_state_transfer,
    p20_primary_component,
    p21_security,
    p22_bounded_liveness,
    p23_resources,
    p24_determinism,
    p25_together,
    p26_stable,
    p27_safe_primary,
    p28_receipts,
    p29_state_lineage,
)
from unisono.pipeline.properties.base import COLUMNS
from unisono.pipeline.session import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from unisono.pipeline.tables import TraceTables

PROPERTIES: dict[str, Callable[[TraceTables], DataFrame]] = {
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
        p11_view_agreement,
        p12_view_monotony,
        p13_sending_view,
        p14_virtual_synchrony,
        p15_transitional_set,
        p16_merge,
        p17_safe,
        p18_two_phase_commit,
        p19_state_transfer,
        p20_primary_component,
        p21_security,
        p22_bounded_liveness,
        p23_resources,
        p24_determinism,
        p25_together,
        p26_stable,
        p27_safe_primary,
        p28_receipts,
        p29_state_lineage,
    )
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
