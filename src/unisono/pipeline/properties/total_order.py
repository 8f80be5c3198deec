"""P9 and P10 on Spark: sequences of ordered deliveries, compared at all members.

What exactly must hold is said by the plain checkers. Of members with the same sequence one is compared with the others.
"""

from __future__ import annotations

import json
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

from pyspark.sql import functions as F
from pyspark.sql.window import Window

from unisono.pipeline.attributed_rows import each_index
from unisono.pipeline.properties.base import VIOLATION_DDL, violation
from unisono.pipeline.properties.consistent_cuts import divide
from unisono.pipeline.properties.relations import STAY, WAY, deliveries, judged_stays, transitions
from unisono.pipeline.properties.scanning import found_table
from unisono.pipeline.tables import WHOSE
from unisono.trace.checks.p09b_acyclic import circle_in
from unisono.trace.schema import TOTAL

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import Column, DataFrame

    from unisono.pipeline.tables import TraceTables

Message: TypeAlias = tuple[str, int]


def sequences(tables: TraceTables) -> DataFrame:
    """The messages of the service `total` that each stay delivered or placed, numbered by `place` from 0."""
    order = Window.partitionBy(*STAY).orderBy("local_index", "index")
    return (
        deliveries(tables)
        .where((F.col("service") == TOTAL) & F.col("stay").isNotNull())
        .select(*STAY, "local_index", "origin_who", each_index().alias("index"))
        .select(
            *STAY,
            "local_index",
            F.struct("origin_who", "index").alias("message"),
            (F.row_number().over(order) - 1).alias("place"),
        )
    )


def first_places(tables: TraceTables) -> DataFrame:
    """For each (V→V') the sequences that differ, one member standing for all with the same; where each message comes first."""
    firsts = (
        sequences(tables)
        .groupBy(*STAY, "message")
        .agg(F.min(F.struct("place", "local_index")).alias("at"))
        .select(*STAY, "message", F.col("at.place").alias("place"), F.col("at.local_index").alias("local_index"))
    )
    prints = firsts.groupBy(*STAY).agg(
        F.count("*").alias("messages"),
        F.bit_xor(F.xxhash64("place", "message")).alias("xor"),
        F.sum(F.xxhash64("message", F.lit("sum"), "place").cast("decimal(38,0)")).alias("sum"),
    )
    alike = Window.partitionBy(*WAY, "messages", "xor", "sum").orderBy("who")
    every = Window.partitionBy(*WAY).rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    speakers = (
        transitions(tables)
        .join(prints, list(STAY), "inner")
        .withColumn("alike", F.row_number().over(alike))
        .where(F.col("alike") == 1)
        .withColumn("speakers", F.count("*").over(every))
        .where(F.col("speakers") > 1)
    )
    return firsts.join(speakers.select(*STAY, "who", "way"), list(STAY), "inner").select(
        *WAY, "who", "message", "place", "local_index"
    )


def message_name(message: str = "message") -> Column:
    """``a:5`` of a struct (origin_who, index)."""
    return F.concat(F.col(f"{message}.origin_who"), F.lit(":"), F.col(f"{message}.index"))


def pairwise_violations(tables: TraceTables) -> DataFrame:
    """P9a: the messages that two members have are sorted by one's order; their places at the other must rise."""
    places = first_places(tables)
    other = places.select(
        *WAY,
        "message",
        F.col("who").alias("other"),
        F.col("place").alias("other_place"),
        F.col("local_index").alias("other_local"),
    )
    pairs = places.join(other, [*WAY, "message"], "inner").where(F.col("who") < F.col("other"))
    pair = (*WAY, "who", "other")
    before = Window.partitionBy(*pair).orderBy("place").rowsBetween(Window.unboundedPreceding, -1)
    found = (
        pairs.withColumn("x", F.max(F.struct("other_place", "message", "local_index", "other_local")).over(before))
        .where(F.col("x.other_place") > F.col("other_place"))
        .groupBy(*pair)
        .agg(F.min(F.struct("place", "message", "local_index", "other_local", "x")).alias("y"))
    )
    return violation(
        found,
        "P9a",
        F.array("who", "other"),
        {
            "x": message_name("y.x.message"),
            "y": message_name("y.message"),
            "x_local": "y.x.local_index",
            "y_local": "y.local_index",
            "other_x_local": "y.x.other_local",
            "other_y_local": "y.other_local",
        },
    )


def acyclic_violations(tables: TraceTables) -> DataFrame:
    """P9b: circles are looked for between consistent cuts.

    A message at one member needs the same message at the next, in a ring, so a cut holds the same messages of every member.
    """
    ring = Window.partitionBy(*WAY, "message").orderBy("who")
    first = Window.partitionBy(*WAY, "message").orderBy("who").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    here = F.struct(F.col("who").alias("who"), F.col("place").alias("place"))
    steps = (
        first_places(tables)
        .withColumn("next", F.coalesce(F.lead(here).over(ring), F.first(here).over(first)))
        .select(
            *WAY,
            "local_index",
            F.col("message.origin_who").alias("origin"),
            F.col("message.index").alias("index"),
            F.col("who").alias("stream"),
            F.col("place").alias("at"),
            F.when(F.col("next.who") != F.col("who"), F.col("next.who")).alias("other"),
            F.col("next.place").alias("other_at"),
        )
    )
    divided = divide(steps, WAY)
    rows = divided.windows.select(
        *WAY, "window", F.col("stream").alias("who"), F.col("at").alias("place"), "local_index", "origin", "index"
    )
    found = rows.groupBy(*WAY, "window").applyInArrow(_scan, VIOLATION_DDL)
    return found if divided.proofs is None else found.unionByName(_proved(divided.proofs, steps))


def _proved(proofs: DataFrame, steps: DataFrame) -> DataFrame:
    """A circle longer than a window: `other` has x before y, and all orders together have y before x."""
    ways = [*WAY, "stream"]
    y = proofs.select(*WAY, F.col("other").alias("stream"), F.col("other_at").alias("y_at"), "anchor").distinct()
    said = steps.join(y, ways, "inner").withColumn("message", F.concat_ws(":", "origin", "index"))
    said = said.select(*ways, "at", "anchor", "y_at", F.struct("at", "message", "local_index").alias("said"))
    both = said.groupBy(*ways).agg(
        F.max(F.when(F.col("at") < F.col("anchor"), F.col("said"))).alias("x"),
        F.min(F.when(F.col("at") == F.col("y_at"), F.col("said"))).alias("y"),
    )
    witness: dict[str, Column | str] = {
        "x": "x.message",
        "x_local": "x.local_index",
        "y": "y.message",
        "y_local": "y.local_index",
    }
    return violation(both, "P9b", F.array("stream"), witness)


def _scan(table: pyarrow.Table) -> pyarrow.Table:
    rows: list[dict[str, Any]] = table.sort_by([("who", "ascending"), ("place", "ascending")]).to_pylist()
    sequences: dict[str, dict[Message, int]] = {}  # by member: messages in their order, with local indices
    for row in rows:
        sequences.setdefault(row["who"], {})[row["origin"], row["index"]] = row["local_index"]
    edges: dict[Message, dict[Message, str]] = {}
    for who, sequence in sequences.items():
        for one, other in pairwise(sequence):
            edges.setdefault(one, {}).setdefault(other, who)
    head, steps = rows[0], circle_in(edges)
    if not steps:
        return found_table([])
    circle = [
        [who, *(f"{origin}:{index}" for origin, index in (one, other)), sequences[who][one], sequences[who][other]]
        for who, one, other in steps
    ]
    members = list(dict.fromkeys(who for who, _, _ in steps))
    return found_table([(head["run"], head["group"], "P9b", members, head["view"], {"circle": json.dumps(circle)})])


def sequence_violations(tables: TraceTables) -> DataFrame:
    """P9c: the first place where two members differ, for each (V→V')."""
    said = F.struct("message", "who", "local_index")
    found = (
        sequences(tables)
        .join(transitions(tables), list(STAY), "inner")
        .groupBy(*WAY, "place")
        .agg(F.min(said).alias("one"), F.max(said).alias("other"))
        .where(F.col("one.message") != F.col("other.message"))
        .groupBy(*WAY)
        .agg(F.min(F.struct("place", "one", "other")).alias("at"))
    )
    return violation(
        found,
        "P9c",
        F.array("at.one.who", "at.other.who"),
        {
            "number": "at.place",
            "message": message_name("at.one.message"),
            "local": "at.one.local_index",
            "other": message_name("at.other.message"),
            "other_local": "at.other.local_index",
        },
    )


def uniform_violations(tables: TraceTables) -> DataFrame:
    """P10: all have the same message at each place that some member reached before it blocked, and who got through has one.

    The first place where that fails is told for each view.
    """
    view = (*WHOSE, "view")
    through = transitions(tables).where(~F.col("cut")).select(*STAY, F.lit(True).alias("through"))
    stays = judged_stays(tables).select(*STAY, "who", "block_index", "ended").join(through, list(STAY), "left")
    through_by = (
        stays.where(F.col("through")).groupBy(*view).agg(F.array_sort(F.collect_set("who")).alias("all_through"))
    )
    said = F.struct("message", "who", "local_index", "ended")
    is_early = F.col("block_index").isNull() | (F.col("local_index") < F.col("block_index"))
    found = (
        sequences(tables)
        .join(stays, list(STAY), "inner")
        .withColumn("early", is_early)
        .where(F.col("early") | F.col("through"))
        .groupBy(*view, "place")
        .agg(
            F.min(F.when(F.col("early"), said)).alias("one"),
            F.min(said).alias("low"),
            F.max(said).alias("high"),
            F.collect_set(F.when(F.col("through"), F.col("who"))).alias("having"),
        )
        .where(F.col("one").isNotNull())
        .join(through_by, list(view), "left")
        .withColumn("lacking", F.array_except(F.coalesce("all_through", F.array().cast("array<string>")), "having"))
        .where((F.col("low.message") != F.col("high.message")) | (F.size("lacking") > 0))
        .withColumn(
            "other", F.when(F.col("low.message") != F.col("one.message"), F.col("low")).otherwise(F.col("high"))
        )
        .groupBy(*view)
        .agg(F.min(F.struct("place", "one", "other", "lacking")).alias("at"))
    )
    differs = F.col("at.one.message") != F.col("at.other.message")
    return violation(
        found,
        "P10",
        F.array("at.one.who", F.when(differs, F.col("at.other.who")).otherwise(F.get("at.lacking", F.lit(0)))),
        {
            "number": "at.place",
            "message": message_name("at.one.message"),
            "local": "at.one.local_index",
            "ended": "at.one.ended",
            "other": F.when(differs, message_name("at.other.message")),
            "other_local": F.when(differs, F.col("at.other.local_index")),
        },
    )
