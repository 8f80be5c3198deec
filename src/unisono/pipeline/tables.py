"""Silver: typed tables made from events, each with an enforced schema. Everything later reads these and nothing else.

| table       | one row is                                                                                          |
|-------------|-----------------------------------------------------------------------------------------------------|
| events      | an event that can be used (columns of `trace.schema`)                                               |
| casts       | a batch that was cast                                                                               |
| deliveries  | a DELIVER or PLACE of a batch                                                                       |
| receipts    | a RECEIVE                                                                                           |
| orderings   | an ORDERED                                                                                          |
| votes       | a VOTE or DECIDE                                                                                    |
| views       | a VIEW: one member installs one view                                                                |
| stays       | one life in one view: from where to where, blocked when, left how (see `_stays`)                    |
| attributed  | a CAST, DELIVER or PLACE with the stay that it belongs to (see `attributed_rows`)                    |
| parts       | a delivery beside its cast, taken apart where the two are cut differently                           |
| outline     | an event of a kind of which there are few, or a mark (see `_outline`)                                |
| lives       | one life of one member: how many rows, whether whole, how it ended                                  |
| quarantine  | a row or file that could not be used, and why: counted, never dropped silently                      |

A **life** is (run, group, member, incarnation); `who` is its name as lists of members write it. `way` tells the (V→V') a stay
belongs to: stays of one view with the same way went on together; it is null for a stay that ended otherwise.

Events may also be **excerpts**, the rows of one view alone (`view_tables`). They carry a column `excerpt` with the view and the
local index at which the life begins there. A life that has installed another view is whole as far as the excerpt goes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, TypeAlias

from pyspark.sql import functions as F
from pyspark.sql.window import Window

from unisono.pipeline.bronze import Where, read_paths
from unisono.trace.promises import LISTED, PROMISES, order_named
from unisono.trace.schema import CAST, DECIDE, DELIVER, DROP, KINDS, NAMES, ORDERED, PLACE, RECEIVE, STABLE, VOTE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

NO_MORE = LISTED + "P0"
"""A list with nothing in it but what every order owes."""
WHOSE = ("run", "group")
"""What a verdict is about: one run of one group."""
LIFE = (*WHOSE, "member", "incarnation")
_PLACE = ("protocol", "who", "local_index", "time_ns", "clock", "view")
_BATCH = ("origin", "origin_incarnation", "origin_who", "first", "count", "service")
COLUMNS: dict[str, tuple[str, ...]] = {
    "casts": (*LIFE, *_PLACE, *_BATCH, "destinations", "digest", "frontier", "attributes"),
    "deliveries": (
        *LIFE,
        *_PLACE,
        *_BATCH,
        "kind",
        "destinations",
        "ordinal",
        "position",
        "digest",
        "attributes",
        "void",
    ),
    "receipts": (*LIFE, *_PLACE, *_BATCH),
    "orderings": (*LIFE, *_PLACE, *_BATCH, "position", "attributes"),
    "votes": (*LIFE, *_PLACE, "kind", "transaction", "decision", "reason", "attributes"),
    "views": (*LIFE, *_PLACE, "order", "members", "previous_view", "transitional", "parts", "attributes"),
}
KINDS_IN = {
    "casts": ("CAST",),
    "deliveries": ("DELIVER", "PLACE"),
    "receipts": ("RECEIVE",),
    "orderings": ("ORDERED",),
    "votes": ("VOTE", "DECIDE"),
    "views": ("VIEW",),
}
FEW = KINDS - {CAST, RECEIVE, ORDERED, DELIVER, PLACE, STABLE, VOTE, DECIDE, DROP}
"""Kinds of rows of which there are few, however long a run is."""
MARK = ""
"""The kind of a row that stands for one of another kind."""

Keep: TypeAlias = "Callable[[DataFrame], DataFrame]"
"""Keeps a table in memory or on disk from when it is made until its maker needs it no more."""


def keep_for_good(table: DataFrame) -> DataFrame:
    """For callers that ask a single question."""
    return table.persist()


@dataclass(frozen=True)
class TraceTables:
    """The silver tables of one or many runs."""

    events: DataFrame
    casts: DataFrame
    deliveries: DataFrame
    receipts: DataFrame
    orderings: DataFrame
    votes: DataFrame
    views: DataFrame
    outline: DataFrame
    stays: DataFrame
    lives: DataFrame
    attributed: DataFrame
    parts: DataFrame
    quarantine: DataFrame

    def of_runs(self, runs: Iterable[str]) -> TraceTables:
        """Only some runs of every table."""
        wanted = list(runs)
        return replace(self, **{f.name: getattr(self, f.name).where(F.col("run").isin(wanted)) for f in fields(self)})

    def cached(self, keep: Keep = keep_for_good) -> TraceTables:
        """Keep the events, and what takes joins to make, for several questions."""
        return tables_of(keep(self.events), self.quarantine, keep)


@contextmanager
def keeping() -> Iterator[Keep]:
    """What is kept in here is released behind it. Spark would find it again for the same files, however they have grown since."""
    kept: list[DataFrame] = []

    def keep(table: DataFrame) -> DataFrame:
        kept.append(table.persist())
        return table

    try:
        yield keep
    finally:
        for table in kept:
            table.unpersist()


def load(spark: SparkSession, paths: Iterable[Where], keep: Keep = keep_for_good) -> TraceTables:
    """The tables of trace folders or files."""
    from unisono.pipeline.segments import segments_below

    segments = segments_below(spark, list(paths), keep)
    return load_paths(segments.files, segments.tasks, keep)


def load_paths(paths: DataFrame, tasks: int, keep: Keep = keep_for_good) -> TraceTables:
    """The tables of the segments at these paths (`path`), read by this many tasks."""
    bronze = keep(read_paths(paths, tasks))
    usable = bronze.where(F.col("problem").isNull()).select(*NAMES)
    bad = bronze.where(F.col("problem").isNotNull()).select(
        "run", "group", "member", "incarnation", "local_index", "file", "problem"
    )
    return tables_of(usable, bad)


def tables_of(events: DataFrame, quarantine: DataFrame | None = None, keep: Keep = lambda table: table) -> TraceTables:
    """The silver tables of events with the columns of `trace.schema`; `keep` is applied to those that take joins to make."""
    from unisono.pipeline.attributed_rows import attributed_rows, parts

    named = (
        events.withColumn("who", name_of(F.col("member"), F.col("incarnation")))
        .withColumn("origin_who", name_of(F.col("origin"), F.col("origin_incarnation")))
        .withColumn("void", F.coalesce(F.col("attributes")["void"] == "true", F.lit(False)))
        .withColumn("order", order_said())  # of a VIEW row
    )
    made = {
        name: named.where(F.col("kind").isin(*KINDS_IN[name])).select(*columns) for name, columns in COLUMNS.items()
    }
    if quarantine is None:
        ddl = "run string, `group` string, member string, incarnation bigint, local_index bigint, file string, problem string"
        quarantine = events.sparkSession.createDataFrame([], ddl)
    outline = keep(_outline(events))
    stays = keep(_stays(named, outline))
    rows = keep(attributed_rows(events, stays))
    return TraceTables(
        events=events,
        outline=outline,
        stays=stays,
        lives=keep(_lives(named, quarantine)),
        attributed=rows,
        parts=keep(parts(rows, made["casts"])),
        quarantine=quarantine,
        **made,
    )


def order_said() -> Column:
    """The order of the view that a VIEW row installs, as `promises.order_of` takes it from the row."""
    from unisono.pipeline.owed import is_list

    named = F.when(F.col("reason") != "", F.col("reason"))
    pairs = (part for name in PROMISES for part in (F.lit(name), F.lit(order_named(NO_MORE, name))))
    beside = F.create_map(*pairs)[F.col("protocol")]  # NO_MORE and what the protocol owes
    both = F.when(is_list(named), F.concat(named, F.substring(beside, len(NO_MORE) + 1, 1_000)))
    return F.coalesce(both, named, F.col("protocol"))


def first_index(events: DataFrame) -> Column:
    """The local index of a life's first row: 0, or in an excerpt that of its VIEW row."""
    return F.col("excerpt.begins") if "excerpt" in events.columns else F.lit(0)


def _leaves(events: DataFrame) -> Column:
    """Whether a row shows that its life has left the view of the excerpt."""
    if "excerpt" not in events.columns:
        return F.lit(False)
    return (F.col("kind") == "VIEW") & (F.col("view") != F.col("excerpt.view"))


def name_of(address: Column, incarnation: Column) -> Column:
    """A member as lists write it: the address, and for a later life address#incarnation."""
    return F.when(incarnation > 0, F.concat_ws("#", address, incarnation.cast("string"))).otherwise(address)


def _lives(named: DataFrame, quarantine: DataFrame) -> DataFrame:
    """One row a life. `unknown` is the reason why nothing can be concluded from what is missing; null: the trace is whole."""
    ends = F.col("kind").isin("END", "LEAVE", "CRASH")
    bad = quarantine.groupBy("run", "member", "incarnation").agg(
        F.count("*").alias("bad_rows"), F.min("problem").alias("problem")
    )
    lives = (
        named.groupBy(*LIFE, "who")
        .agg(
            F.min("protocol").alias("protocol"),
            F.count("*").alias("rows"),
            F.countDistinct("local_index").alias("indices"),
            F.min("local_index").alias("first_index"),
            F.min(first_index(named)).alias("begins"),
            F.max(_leaves(named)).alias("has_left"),
            F.max("local_index").alias("last_index"),
            F.min(F.when(ends, F.struct("local_index", "kind", "reason"))).alias("end"),
        )
        .join(bad, ["run", "member", "incarnation"], "left")
    )
    hole = (F.col("first_index") > F.col("begins")) | (F.col("indices") < F.col("last_index") - F.col("begins") + 1)
    return lives.select(
        *LIFE,
        "who",
        "protocol",
        "rows",
        "last_index",
        F.col("end.kind").alias("ending"),
        F.col("end.reason").alias("ending_reason"),
        hole.alias("holed"),
        F.when(F.col("problem").isNotNull(), F.col("problem"))
        .when(hole, F.lit("rows are missing"))
        .when(F.col("end").isNull() & ~F.col("has_left"), F.lit("its trace stops without END, LEAVE or CRASH"))
        .alias("unknown"),
    )


def _outline(events: DataFrame) -> DataFrame:
    """The rows of the kinds `FEW`, and marks: one for the first row of each life, and one for each row behind a gap.

    `expected` is the index behind the row before. `excerpt_view`: the view of which the events are an excerpt, or null.
    """
    before = F.lag("local_index").over(Window.partitionBy(*LIFE).orderBy("local_index", "time_ns"))
    view = F.col("excerpt.view") if "excerpt" in events.columns else F.lit(None).cast("string")
    marks = (
        events.withColumns({"kind": F.lit(MARK), "before": before, "begins": first_index(events).cast("bigint")})
        .select(
            *LIFE, "protocol", "local_index", "time_ns", "clock", "kind", view.alias("excerpt_view"), "before", "begins"
        )
        .withColumn("expected", F.coalesce(F.col("before") + 1, "begins"))
        .where(F.col("before").isNull() | (F.col("local_index") > F.col("expected")))
        .drop("before", "begins")
    )
    few = events.where(F.col("kind").isin(*sorted(FEW)))
    few = few.select(*NAMES, view.alias("excerpt_view"), F.col("local_index").alias("expected"))
    return few.unionByName(marks, allowMissingColumns=True)


def _stays(named: DataFrame, outline: DataFrame) -> DataFrame:
    """One row a life and view that it installed, with what came after it.

    `way` is the next view and who came along, as text; `END` for a stay that was the last of a life that ended with END; null
    for one that ended otherwise (crash, leave, or no ending). What comes after a life's first ending does not change how it ended.
    `holed`: rows of this stay are missing. `first_word`: nothing of this life named the view before it was installed here; so a
    view that is installed again, or one whose rows came before it, is not the life's first word about it.
    """
    installs = named.where(F.col("kind") == "VIEW")
    order = Window.partitionBy(*LIFE).orderBy("local_index")
    named_view = named.where(F.col("kind").isin("VIEW", "CAST", "DELIVER", "PLACE"))
    words = named_view.groupBy(*LIFE, "view").agg(F.min("local_index").alias("first_named"))
    stays = installs.select(
        *LIFE,
        "who",
        "protocol",
        "view",
        "members",
        F.col("local_index").alias("from_index"),
        F.lead("local_index").over(order).alias("to_index"),
        F.lead("view").over(order).alias("next_view"),
        F.lead("transitional").over(order).alias("next_transitional"),
    ).join(words, [*LIFE, "view"], "left")
    missing = (F.col("kind") == MARK) & (F.col("local_index") > F.col("expected"))
    ends = (
        outline.where(F.col("kind").isin("END", "LEAVE", "CRASH", "BLOCK") | missing)
        .groupBy(*LIFE)
        .agg(
            F.min(F.when(F.col("kind").isin("END", "LEAVE", "CRASH"), F.struct("local_index", "kind", "reason"))).alias(
                "end"
            ),
            F.sort_array(F.collect_list(F.when(F.col("kind") == "BLOCK", F.col("local_index")))).alias("blocks"),
            F.collect_list(F.when(missing, F.col("local_index"))).alias("holes"),
        )
    )
    ended = F.when(F.col("next_view").isNull(), F.col("end.kind"))
    holed = F.exists(
        "holes", lambda at: (at > F.col("from_index")) & (F.col("to_index").isNull() | (at <= F.col("to_index")))
    )
    inside = F.filter(
        "blocks", lambda at: (at > F.col("from_index")) & (F.col("to_index").isNull() | (at < F.col("to_index")))
    )
    along = F.concat_ws(
        ",", F.array_sort(F.array_distinct(F.coalesce("next_transitional", F.array().cast("array<string>"))))
    )
    return stays.join(ends, list(LIFE), "left").select(
        *LIFE,
        "who",
        "protocol",
        "view",
        "members",
        "from_index",
        "to_index",
        "next_view",
        "next_transitional",
        ended.alias("ended"),
        F.when(F.col("next_view").isNull(), F.col("end.reason")).alias("ended_reason"),
        F.get(inside, F.lit(0)).alias("block_index"),
        F.when(F.col("next_view").isNotNull(), F.concat_ws("|", "next_view", along))
        .when(ended == "END", F.lit("END"))
        .alias("way"),
        F.coalesce(holed, F.lit(False)).alias("holed"),
        (F.col("first_named") == F.col("from_index")).alias("first_word"),
    )
