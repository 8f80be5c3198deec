"""Circles among sequences that wait for one another, looked for in windows between consistent cuts.

A **stream** is a sequence of steps, numbered by `at`; a step may need a step `other_at` of the stream
`other` to come first. A circle of "comes before" and "needs" is what P1 and P9b look for, and one
process for all steps of a run would need memory in proportion to the run.

A **cut** takes a prefix of every stream. It is consistent if no step inside needs a step outside. No
edge leads from behind such a cut to before it, so every circle lies between two neighbouring ones:
the windows of nested consistent cuts can be searched apart, in parallel.

A window that holds too many steps of a stream is divided by **anchors**, every `WINDOW`-th of those
steps. The cut of an anchor holds the cut before the window, the anchor, and the past of both. It is
found in rounds: a cut that holds a step is extended to what the step needs, until nothing changes.
Since messages come soon after they are sent, and in nearly the same order everywhere, a few rounds
are enough. At first all steps are in one window, and its longest stream divides it.

If the cut of an anchor holds more of the anchor's stream than the anchor, a later step of that stream
is in the past of the anchor: that **is** a circle, found without a search. Otherwise the anchors end
windows on their stream, so that each pass leaves one stream less that has too many steps in a window.
So either a circle is proved, or in the end every window is small, however long the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.window import Window

from unisono.pipeline.properties.scanning import computed_once

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

WINDOW = 10_000
"""Steps between two anchors. A window holds at most twice as many of each stream of a run."""
BEYOND = 2**62
"""The number of the window behind the last cut."""


@dataclass(frozen=True)
class Divided:
    """Steps in their windows, and the steps that prove a circle without a search."""

    windows: DataFrame
    """The steps with their `window`; none of a key of which a circle is proved."""
    proofs: DataFrame | None
    """Steps that need what comes after the anchor (`anchor`, on the stream `other`) in whose past they are."""


def divide(steps: DataFrame, key: Sequence[str]) -> Divided:
    """Put the steps (`stream`, `at`, `other`, `other_at`, and more) of each key into windows."""
    numbered = steps.withColumn("window", F.lit(0))
    anchors = computed_once(_anchors(numbered, key))
    if anchors.isEmpty():
        return Divided(numbered, None)
    steps = computed_once(steps)
    cuts, proofs = steps.sparkSession.createDataFrame([], _cuts_of(anchors, key).schema), None
    while not anchors.isEmpty():
        cuts, anchors = _inserted(cuts, anchors, key)
        cuts = _closed(steps, cuts, key)
        numbered = _numbered(steps, cuts, key)
        proved = cuts.join(anchors, [*key, "number", "stream"], "inner").where(F.col("cut") > F.col("at"))
        circles = computed_once(
            proved.groupBy(*key).agg(F.min(F.struct("number", "stream", "at", "cut")).alias("circle"))
        )
        if not circles.isEmpty():
            found = computed_once(_proofs(numbered, circles, key))
            proofs = found if proofs is None else proofs.unionByName(found)
            steps, cuts = (computed_once(table.join(circles, list(key), "left_anti")) for table in (steps, cuts))
            numbered = _numbered(steps, cuts, key)
        anchors = computed_once(_anchors(numbered, key))
    return Divided(numbered, proofs)


def _anchors(numbered: DataFrame, key: Sequence[str]) -> DataFrame:
    """Of each window with too many steps of a stream, every `WINDOW`-th step of the stream that has most."""
    most = Window.partitionBy(*key, "window").orderBy(F.col("steps").desc(), "stream")
    step = F.lit(WINDOW).cast("bigint")
    return (
        numbered.groupBy(*key, "window", "stream")
        .agg(F.countDistinct("at").alias("steps"), F.min("at").alias("low"), F.max("at").alias("high"))
        .withColumn("place", F.row_number().over(most))
        .where((F.col("place") == 1) & (F.col("steps") > 2 * WINDOW))
        .withColumn("at", F.explode(F.sequence(F.col("low") + step, F.col("high"), step)))
        .select(*key, F.col("window").alias("number"), "stream", "at")
    )


def _cuts_of(anchors: DataFrame, key: Sequence[str]) -> DataFrame:
    return anchors.select(*key, F.col("number").cast("bigint").alias("number"), "stream", F.col("at").alias("cut"))


def _inserted(cuts: DataFrame, anchors: DataFrame, key: Sequence[str]) -> tuple[DataFrame, DataFrame]:
    """The cuts with those of the anchors before the one that ends their window, all numbered anew; and the anchors likewise."""
    new = _cuts_of(anchors, key).withColumns({"sub": F.col("cut"), "is_new": F.lit(True)})
    old = cuts.withColumns({"sub": F.lit(2**62).cast("bigint"), "is_new": F.lit(False)})
    order = Window.partitionBy(*key).orderBy("number", "sub")
    both = computed_once(old.unionByName(new).withColumn("number", F.dense_rank().over(order).cast("bigint")))
    fresh = both.where(F.col("is_new")).select(*key, "number", "stream", F.col("cut").alias("at"))
    return both.select(*key, "number", "stream", "cut"), fresh


def _closed(steps: DataFrame, cuts: DataFrame, key: Sequence[str]) -> DataFrame:
    """The cuts, extended until none holds a step that needs one outside."""
    needs = steps.where(F.col("other").isNotNull()).select(*key, "stream", "at", "other", "other_at")
    cuts, before = computed_once(_rising(cuts, key)), None
    while (now := _digest(cuts)) != before:
        before = now
        raised = (
            _numbered(needs, cuts, key)
            .where(F.col("window") < BEYOND)
            .groupBy(*key, F.col("window").alias("number"), F.col("other").alias("stream"))
            .agg((F.max("other_at") + 1).alias("cut"))
        )
        cuts = computed_once(_rising(cuts.unionByName(raised), key))
    return cuts


def _proofs(numbered: DataFrame, circles: DataFrame, key: Sequence[str]) -> DataFrame:
    return (
        numbered.join(circles, list(key), "inner")
        .where((F.col("window") == F.col("circle.number")) & (F.col("other") == F.col("circle.stream")))
        .where(F.col("other_at") + 1 == F.col("circle.cut"))
        .withColumn("anchor", F.col("circle.at"))
        .drop("circle", "window")
    )


def _numbered(steps: DataFrame, cuts: DataFrame, key: Sequence[str]) -> DataFrame:
    """Every step with the number of the first cut that holds it as `window`; `BEYOND` if none does."""
    marks = cuts.select(*key, "stream", F.col("cut").alias("at"), "number")
    both = steps.withColumn("is_step", F.lit(1)).unionByName(
        marks.withColumn("is_step", F.lit(0)), allowMissingColumns=True
    )
    behind = (
        Window.partitionBy(*key, "stream")
        .orderBy(F.col("at").desc(), F.col("is_step").desc())  # a cut holds what comes before it
        .rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    window = F.coalesce(F.min("number").over(behind), F.lit(BEYOND)).cast("bigint")
    return both.withColumn("window", window).where(F.col("is_step") == 1).drop("is_step", "number")


def _rising(cuts: DataFrame, key: Sequence[str]) -> DataFrame:
    """Of each stream, only the cuts that hold more of it than those before them."""
    earlier = Window.partitionBy(*key, "stream").orderBy("number").rowsBetween(Window.unboundedPreceding, -1)
    highest: Column = F.coalesce(F.max("cut").over(earlier), F.lit(-1))
    return (
        cuts.groupBy(*key, "number", "stream")
        .agg(F.max("cut").alias("cut"))
        .withColumn("before", highest)
        .where(F.col("cut") > F.col("before"))
        .drop("before")
    )


def _digest(cuts: DataFrame) -> tuple[object, ...]:
    """Cuts only ever grow, so equal digests mean that nothing has changed."""
    row = cuts.agg(F.count("*"), F.bit_xor(F.xxhash64(*cuts.columns)), F.sum("cut").cast("string")).first()
    assert row is not None
    return tuple(row)
