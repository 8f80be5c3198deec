"""P29 state lineage: the state of a primary descends from one part, that of the last primary.

The statement is in `trace.checks.p29_state_lineage`, whose function decides, on rows of views and states alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from unisono.pipeline.properties.shown_rows import ShownFacts, decided
from unisono.trace.checks.p29_state_lineage import decide
from unisono.trace.checks.shown_rows import Breach

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from unisono.pipeline.tables import TraceTables

PROPERTY = "P29"


def violations(tables: TraceTables) -> DataFrame:
    return decided(tables, PROPERTY, _decide)


def _decide(facts: ShownFacts) -> Iterator[Breach]:
    return decide(facts.lives)
