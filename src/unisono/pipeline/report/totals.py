"""How all runs fared, counted by Spark: what the driver fetches does not grow with the runs."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from unisono.pipeline.report.model import UNKNOWN, ProtocolTally
from unisono.trace.checks.properties import IMPLIES

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

PROTOCOLS_MAX = 40
"""Lines of the table by protocol; a run's protocol is text from its trace, so the rarest share a line."""


def tallies(verdicts: DataFrame, protocols_max: int = PROTOCOLS_MAX) -> tuple[ProtocolTally, ...]:
    """Count verdicts (`verify.VERDICT_COLUMNS`) by protocol."""
    frequent = verdicts.groupBy("protocol").agg(F.count("*").alias("runs"))
    first = frequent.orderBy(F.desc("runs"), "protocol").limit(protocols_max + 1).collect()
    others = 0
    if len(first) > protocols_max:
        apart = [row["protocol"] for row in first[: protocols_max - 1]]
        others = frequent.count() - len(apart)
        kept = F.col("protocol").isin(apart)
        verdicts = verdicts.withColumn("protocol", F.when(kept, F.col("protocol")))
    counted: dict[str | None, dict[str, dict[str, int]]] = {}
    for row in _said(verdicts).groupBy("protocol", "what", "name").count().collect():
        counted.setdefault(row["protocol"], {}).setdefault(row["what"], {})[row["name"]] = row["count"]
    return tuple(_tally(protocol, numbers, others) for protocol, numbers in counted.items())


def _tally(protocol: str | None, numbers: dict[str, dict[str, int]], others: int) -> ProtocolTally:
    states: dict[str, Counter[str]] = {}
    for state in ("pass", "fail", "unknown"):
        for property, runs in numbers.get(state, {}).items():
            states.setdefault(property, Counter())[state] += runs
    return ProtocolTally(
        protocol or "",
        numbers["result"],
        states,
        numbers.get("weakest", {}),
        sum(numbers.get("gaps", {}).values()),
        1 if protocol is not None else others,
    )


def _said(verdicts: DataFrame) -> DataFrame:
    """What counts in a verdict, a row each: its result, the state of each property (`model.state_of`), and more."""
    nothing = F.array().cast("array<string>")
    below = {one: F.array(*map(F.lit, sorted(weaker))) for one, weaker in IMPLIES.items() if weaker}
    weaker = F.create_map(*(part for one, names in below.items() for part in (F.lit(one), names)))
    has_gaps = F.col("unknown").isNotNull() | (F.col("run") == "?")
    dark = has_gaps | (F.col("result") == UNKNOWN)
    weakest = F.filter(
        "broken", lambda one: ~F.arrays_overlap(F.coalesce(F.try_element_at(weaker, one), nothing), F.col("broken"))
    )

    def named(what: Column, names: Column) -> Column:
        return F.transform(names, lambda one: F.struct(what.alias("what"), one.alias("name")))

    said = F.concat(
        named(F.lit("result"), F.array("result")),
        named(F.lit("fail"), F.col("broken")),
        named(F.when(dark, F.lit("unknown")).otherwise(F.lit("pass")), F.array_except("owed", "broken")),
        named(F.lit("weakest"), weakest),
        named(F.lit("gaps"), F.when(has_gaps, F.array(F.lit("gaps"))).otherwise(nothing)),
    )
    return (
        verdicts.withColumn("broken", F.coalesce(F.map_keys("counts"), nothing))
        .select("protocol", F.explode(said).alias("said"))
        .select("protocol", "said.what", "said.name")
    )
