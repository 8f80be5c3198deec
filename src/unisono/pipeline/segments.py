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

from unisono.pipeline.bronze import Where
from unisono.pipeline.parallelism import TASK_BYTES, tasks_for
from unisono.pipeline.pieces import scan_batches
from unisono.pipeline.scan import SCAN_DDL
from unisono.pipeline.session import PipelineError
from unisono.pipeline.storage import listing, place
from unisono.trace.reader import left_out
from unisono.trace.sinks import OPEN

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import Column, DataFrame, SparkSession

    from unisono.pipeline.tables import Keep

ENDINGS = (".parquet", ".jsonl")
NOTES_MAX = 20


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
    every = keep(_named(listing(spark, paths, ENDINGS)))
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
    spare = every.where(~is_read).orderBy("path").limit(NOTES_MAX).collect() if row["spare"] else []
    notes = tuple(left_out(one["path"], one["twin"]) for one in spare)
    return Segments(every.where(is_read), row["files"], row["size"] or 0, notes)


def scan_segments(segments: Segments, piece_bytes: int = TASK_BYTES) -> DataFrame:
    """The facts of every life. A life of more than `piece_bytes` is cut at its segments into pieces for several tasks."""
    largest = Window.orderBy(F.col("size_bytes").desc(), F.col("paths")[0])
    dealt = _pieces(segments.files, piece_bytes).withColumn(
        "task", ((F.row_number().over(largest) - 1) % segments.tasks).cast("int")
    )
    columns = ("paths", "sizes", "before", "number", "is_last")
    return dealt.repartitionById(segments.tasks, F.col("task")).select(*columns).mapInArrow(scan_batches, SCAN_DDL)


def _named(files: DataFrame) -> DataFrame:
    """With what the names say, and the finished `twin` of an open segment, if it is there."""
    name = F.element_at(F.split("path", "/"), -1)
    base: Column = F.col("name")
    for ending in (OPEN, *ENDINGS):
        base = F.regexp_replace(base, re.escape(ending) + "$", "")
    parts = F.split("base", r"\.")
    is_named = (F.size(parts) == 4) & F.get(parts, F.lit(2)).rlike(r"^\d+$")
    twins = Window.partitionBy("stem")
    return (
        files.select("path", "size_bytes", name.alias("name"))
        .withColumn("base", base)
        .withColumn("life", F.when(is_named, F.concat_ws(".", F.slice(parts, 1, 3))))
        .withColumn("is_open", F.col("name").endswith(OPEN))
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
