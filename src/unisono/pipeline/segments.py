"""The segments below trace folders as a table, and the pieces of lives that tasks scan.

Names and sizes of files stay in Spark: the driver lists the first level of a folder, workers the
rest, and what is asked of the names is asked by queries. Nothing here grows on the driver with the
number of files but that first level.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.window import Window

from unisono.pipeline.bronze import Where, holds_all, twin_of
from unisono.pipeline.lake import LakeTable, is_table
from unisono.pipeline.parallelism import TASK_BYTES, tasks_for
from unisono.pipeline.pieces import scan_batches
from unisono.pipeline.scan import SCAN_DDL
from unisono.pipeline.session import PipelineError
from unisono.pipeline.storage import LISTING_DDL, listing, place
from unisono.trace.reader import DELTA_LOG, left_out
from unisono.trace.sinks import OPEN, SEGMENT_NAME

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import Column, DataFrame, SparkSession

    from unisono.pipeline.tables import Keep

ENDINGS = (".parquet", ".jsonl")
NOTES_MAX = 20
DEALT_BY_SIZE_MAX = 10_000
"""The pieces of at most this many segments are dealt by size: that brings their names into one task. More are even enough."""


@dataclass(frozen=True)
class Segments:
    """Segment files: `path`, `size_bytes`, `name`, and `life` (null for a file with a name of its own)."""

    files: DataFrame
    count: int
    size_bytes: int
    notes: tuple[str, ...] = ()
    """About the first files that were left out."""

    @property
    def tasks(self) -> int:
        return tasks_for(self.size_bytes, self.count)


def segments_below(spark: SparkSession, paths: Sequence[Where], keep: Keep) -> Segments:
    """The segments below these paths; an empty folder, or a segment that is there twice, is the caller's mistake."""
    every = keep(_named(_listed(spark, paths)))
    is_read = F.col("twin").isNull()
    names = every.groupBy("base").agg(
        F.count_if(is_read).alias("files"),
        F.count_if(~is_read).alias("spare"),
        F.sum(F.when(is_read, F.col("size_bytes")).otherwise(0)).alias("size"),
        F.min(F.when(is_read, F.col("path"))).alias("one"),
        F.max(F.when(is_read, F.col("path"))).alias("other"),
    )
    twice = F.when(F.col("files") > 1, F.struct("one", "other"))
    totals = [F.sum(name).alias(name) for name in ("files", "spare", "size")]
    row = names.agg(*totals, F.min(twice).alias("twice")).first()
    assert row is not None
    if not row["files"]:
        folders = [one for one in map(place, paths) if one.is_folder()]
        raise PipelineError(
            f"{folders[0]} holds no trace: neither Parquet nor JSON lines."
            if folders
            else "there is nothing to read: name a trace folder, such as one that `--trace` has written."
        )
    if row["twice"] is not None:
        one, other = row["twice"]
        raise PipelineError(f"{other} has the name of {one}: remove the copy, or judge the two folders apart.")
    _refuse_copies(every.where(is_read))
    if not row["spare"]:
        return Segments(every, row["files"], row["size"] or 0)
    apart = every.where(~is_read).select("path").mapInArrow(_apart, "path string")
    is_apart = F.col("is_apart").isNotNull()
    every = keep(every.join(apart.withColumn("is_apart", F.lit(True)), "path", "left"))
    spare = every.where(~is_read & ~is_apart).orderBy("path").limit(NOTES_MAX).collect()
    notes = tuple(left_out(one["path"], one["twin"]) for one in spare)
    # An open form that tells another story than the finished one is read, and says so itself.
    return Segments(every.where(is_read | is_apart).drop("is_apart"), row["files"], row["size"] or 0, notes)


def _listed(spark: SparkSession, paths: Sequence[Where]) -> DataFrame:
    """The files below these paths; of a Delta table, those that its log names: others are out of use."""
    places = list(map(place, paths))
    tables = {one: LakeTable.open(one) for one in places if (one / DELTA_LOG).is_folder() and is_table(one)}
    found = listing(spark, [one for one in places if one not in tables], ENDINGS)
    files = [
        ((table.folder / file.path).uri, file.size_bytes, 0) for table in tables.values() for file in table.files()
    ]
    return found.unionByName(spark.createDataFrame(files, LISTING_DDL)) if files else found


def _apart(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    """Of open segments, those with rows that their finished form does not hold."""
    import pyarrow

    for batch in batches:
        places = [place(path) for path in batch.column(0).to_pylist()]
        twins = [(one, twin_of(one)) for one in places]
        paths = [one.uri for one, twin in twins if twin is not None and not holds_all(twin, one)]
        yield pyarrow.RecordBatch.from_arrays([pyarrow.array(paths, pyarrow.string())], names=["path"])


def scan_segments(segments: Segments, piece_bytes: int = TASK_BYTES) -> DataFrame:
    """The facts of every life. A life of more than `piece_bytes` is cut at its segments into pieces for several tasks."""
    if segments.count > DEALT_BY_SIZE_MAX:
        task = F.pmod(F.hash(F.col("paths")[0]), F.lit(segments.tasks))
    else:
        largest = Window.orderBy(F.col("size_bytes").desc(), F.col("paths")[0])
        task = ((F.row_number().over(largest) - 1) % segments.tasks).cast("int")
    dealt = _pieces(segments.files, piece_bytes).withColumn("task", task)
    columns = ("paths", "sizes", "before", "number", "is_last")
    return dealt.repartitionById(segments.tasks, F.col("task")).select(*columns).mapInArrow(scan_batches, SCAN_DDL)


def _named(files: DataFrame) -> DataFrame:
    """With what the names say, and the finished `twin` of an open segment, if it is there."""
    name = F.element_at(F.split("path", "/"), -1)
    without_open = F.regexp_replace("name", re.escape(OPEN) + r"\z", "")
    plain: Column = F.col("name")
    for ending in ENDINGS:
        plain = F.regexp_replace(plain, re.escape(ending) + r"\z", "")
    of_segment = rf"\A{SEGMENT_NAME}\z"
    is_open = (F.col("name") != without_open) & without_open.rlike(of_segment)
    is_named = F.col("base").rlike(of_segment)
    twins = Window.partitionBy("stem")
    return (
        files.select("path", "size_bytes", name.alias("name"))
        .withColumn("base", F.when(is_open, without_open).otherwise(plain))
        .withColumn("life", F.when(is_named, F.substring_index("base", ".", 3)))
        .withColumn("is_open", is_open)
        .withColumn("stem", F.expr("substr(path, 1, length(path) - length(name) + length(base))"))
        .withColumn(
            "finished",
            F.min(F.when(~F.col("is_open"), F.struct(~F.col("name").endswith(".parquet"), "name"))).over(twins),
        )
        .withColumn("twin", F.when(F.col("is_open"), F.col("finished.name")))
        .select("path", "size_bytes", "name", "base", "life", "twin")
    )


def _pieces(files: DataFrame, piece_bytes: int) -> DataFrame:
    """The segments of each life in their order, as pieces of about this size, each with the paths of those before it."""
    of_life = Window.partitionBy("whose").orderBy("name")
    before = F.coalesce(F.sum("size_bytes").over(of_life.rowsBetween(Window.unboundedPreceding, -1)), F.lit(0))
    lives = (
        files.withColumn("whose", F.coalesce("life", "name"))
        .withColumn("number", F.floor(before / piece_bytes).cast("int"))
        .groupBy("whose")
        .agg(F.array_sort(F.collect_list(F.struct("name", "path", "size_bytes", "number"))).alias("files"))
    )
    numbers = F.array_sort(F.array_distinct(F.transform("files", lambda file: file["number"])))
    chosen = F.filter("files", lambda file: file["number"] == F.col("number"))
    earlier = F.filter("files", lambda file: file["number"] < F.col("number"))
    return (
        lives.withColumn("number", F.explode(numbers))
        .withColumn("is_last", F.col("number") == F.element_at("files", -1)["number"])
        .select(
            F.transform(chosen, lambda file: file["path"]).alias("paths"),
            F.transform(chosen, lambda file: file["size_bytes"]).alias("sizes"),
            F.transform(earlier, lambda file: file["path"]).alias("before"),
            "number",
            "is_last",
            F.aggregate(chosen, F.lit(0).cast("bigint"), lambda sum, file: sum + file["size_bytes"]).alias(
                "size_bytes"
            ),
        )
    )


def _refuse_copies(files: DataFrame) -> None:
    """The same segment twice would look like messages delivered twice, and a verdict on that would be worth nothing.

    Only a file with a name of its own, or another segment of the same life, can be a copy under another name.
    """
    alike = Window.partitionBy("size_bytes")
    of_life = Window.partitionBy("size_bytes", "life")
    suspects = (
        files.where(F.col("size_bytes") > 0)
        .withColumn("alike", F.count("*").over(alike))
        .withColumn("nameless", F.max(F.col("life").isNull()).over(alike))
        .withColumn("of_life", F.count("*").over(of_life))
        .where((F.col("alike") > 1) & (F.col("nameless") | (F.col("of_life") > 1)))
    )
    copies = (
        suspects.select("path")
        .mapInArrow(_hash_files, "path string, digest string")
        .groupBy("digest")
        .agg(F.count("*").alias("files"), F.min("path").alias("one"), F.max("path").alias("other"))
        .where(F.col("files") > 1)
    )
    if (found := copies.orderBy("one").first()) is not None:
        raise PipelineError(f"{found['other']} is a copy of {found['one']}: remove one of the two.")


def _hash_files(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    import pyarrow

    for batch in batches:
        paths = batch.column(0).to_pylist()
        digests = []
        for path in paths:
            with place(path).stream() as data:
                digests.append(hashlib.file_digest(data, "sha256").hexdigest())
        yield pyarrow.RecordBatch.from_arrays([pyarrow.array(paths), pyarrow.array(digests)], names=["path", "digest"])
