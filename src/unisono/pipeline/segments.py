"""The segments below trace folders, put together to lives, and the pieces of lives that tasks scan.

Names and sizes of files stay in Spark: the driver lists the first level of a folder, workers the
rest, and one task sees the names of a life at a time. Nothing here grows on the driver with the
number of files but that first level.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby, islice
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import functions as F
from pyspark.sql.window import Window

from unisono.pipeline.arrow_rows import as_table
from unisono.pipeline.bronze import Where, holds_all, life_of
from unisono.pipeline.lake import LakeTable, is_table
from unisono.pipeline.parallelism import TASK_BYTES, tasks_for
from unisono.pipeline.pieces import LifePiece, scan_batches
from unisono.pipeline.scan import SCAN_DDL
from unisono.pipeline.session import PipelineError
from unisono.pipeline.storage import LISTING_DDL, listing, place
from unisono.trace.reader import DELTA_LOG, left_out
from unisono.trace.sinks import OPEN, base_of, segment_name

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame, SparkSession

    from unisono.pipeline.tables import Keep

    Batches = Iterator[pyarrow.RecordBatch]

ENDINGS = (".parquet", ".jsonl")
NOTES_MAX = 20
DEALT_BY_SIZE_MAX = 10_000
"""The pieces of at most this many segments are dealt by size: that brings their names into one task. More are even enough."""
PIECES_A_BATCH = 1_000


class PieceRow(NamedTuple):
    """A piece of a life to scan, and what is to say of the life's files."""

    paths: list[str]
    sizes: list[int]
    is_whole: bool
    size_bytes: int
    life: str | None
    """None: a file with a name of its own."""
    may_be_copied: bool
    """Whether one of the life's files may be a copy of another, or a file with a name of its own of any."""
    trouble: str | None = None
    notes: Sequence[str] = ()


PIECE_DDL = (
    "paths array<string>, sizes array<bigint>, is_whole boolean, size_bytes bigint, life string, may_be_copied boolean, "
    "trouble string, notes array<string>"
)


class _File(NamedTuple):
    name: str
    path: str
    size_bytes: int


@dataclass(frozen=True)
class Segments:
    """Segment files, as pieces of lives (`PIECE_DDL`)."""

    pieces: DataFrame
    count: int
    size_bytes: int
    notes: tuple[str, ...] = ()
    """About the first files that were left out."""

    @property
    def tasks(self) -> int:
        return tasks_for(self.size_bytes, self.count)

    @property
    def files(self) -> DataFrame:
        """The `path` and `size_bytes` of each file, and whose `life` its name tells."""
        each = self.pieces.select("life", F.explode(F.arrays_zip("paths", "sizes")).alias("file"))
        return each.select(F.col("file.paths").alias("path"), F.col("file.sizes").alias("size_bytes"), "life")


def segments_below(spark: SparkSession, paths: Sequence[Where], keep: Keep, piece_bytes: int = TASK_BYTES) -> Segments:
    """The segments below these paths; an empty folder, or a segment that is there twice, is the caller's mistake.

    A life of more than `piece_bytes` is cut at its segments into pieces for several tasks.
    """
    named = _listed(spark, paths).withColumn("name", F.element_at(F.split("path", "/"), -1))
    stem = F.regexp_replace("name", r"\.(parquet|jsonl)$", "")
    lives = named.select(F.substring_index(stem, ".", 3).alias("stem"), "name", "path", "size_bytes")
    sorted_lives = lives.repartition("stem").sortWithinPartitions("stem", "name", "path")
    pieces = keep(sorted_lives.mapInArrow(_put_together(piece_bytes), PIECE_DDL))
    notes = F.slice(F.array_sort(F.flatten(F.collect_list("notes"))), 1, NOTES_MAX)
    row = pieces.agg(
        F.coalesce(F.sum(F.size("paths")), F.lit(0)).alias("count"),
        F.coalesce(F.sum("size_bytes"), F.lit(0)).alias("size"),
        F.min("trouble").alias("trouble"),
        F.count_if("may_be_copied").alias("copies"),
        notes.alias("notes"),
    ).collect()[0]
    if not row["count"]:
        folders = [one for one in map(place, paths) if one.is_folder()]
        raise PipelineError(
            f"{folders[0]} holds no trace: neither Parquet nor JSON lines."
            if folders
            else "there is nothing to read: name a trace folder, such as one that `--trace` has written."
        )
    if row["trouble"] is not None:
        raise PipelineError(row["trouble"])
    segments = Segments(pieces, row["count"], row["size"], tuple(row["notes"]))
    if row["copies"]:
        _refuse_copies(segments.files)
    return segments


def _listed(spark: SparkSession, paths: Sequence[Where]) -> DataFrame:
    """The files below these paths; of a Delta table, those that its log names: others are out of use."""
    places = list(map(place, paths))
    tables = {one: LakeTable.open(one) for one in places if (one / DELTA_LOG).is_folder() and is_table(one)}
    found = listing(spark, [one for one in places if one not in tables], ENDINGS)
    files = [
        ((table.folder / file.path).uri, file.size_bytes, 0) for table in tables.values() for file in table.files()
    ]
    return found.unionByName(spark.createDataFrame(files, LISTING_DDL)) if files else found


def scan_segments(segments: Segments) -> DataFrame:
    """The facts of every life."""
    if segments.count > DEALT_BY_SIZE_MAX:
        task = F.pmod(F.hash(F.col("paths")[0]), F.lit(segments.tasks))
    else:
        largest = Window.orderBy(F.col("size_bytes").desc(), F.col("paths")[0])
        task = ((F.row_number().over(largest) - 1) % segments.tasks).cast("int")
    dealt = segments.pieces.withColumn("task", task).repartitionById(segments.tasks, F.col("task"))
    return dealt.select(*LifePiece._fields).mapInArrow(scan_batches, SCAN_DDL)


def _put_together(piece_bytes: int) -> Callable[[Batches], Batches]:
    """For `mapInArrow`: files in the order of their stems in, pieces of lives out."""

    def put_together(batches: Batches) -> Batches:
        rows = (row for batch in batches for row in batch.to_pylist())
        stems = (
            [_File(row["name"], row["path"], row["size_bytes"]) for row in some]
            for _, some in groupby(rows, itemgetter("stem"))
        )
        pieces = (piece for some in stems for piece in _pieces(some, piece_bytes))
        while some := list(islice(pieces, PIECES_A_BATCH)):
            yield from as_table(some, PIECE_DDL).to_batches()

    return put_together


def _pieces(files: Sequence[_File], piece_bytes: int) -> Iterator[PieceRow]:
    """The files whose names begin alike, in the order of their names."""
    twins = {file: _twin(file, files) for file in files}
    # An open form that tells another story than the finished one is read, and says so itself.
    spare = {file: twin for file, twin in twins.items() if twin and holds_all(place(twin.path), place(file.path))}
    trouble = _twice([file for file, twin in twins.items() if twin is None])
    notes = [left_out(file.path, twin.name) for file, twin in spare.items()]
    lives: dict[str, list[_File]] = {}
    for file in files:
        if file not in spare:
            lives.setdefault(life_of(place(file.path)) or file.name, []).append(file)
    for some in lives.values():
        for row in _cut(some, piece_bytes):
            yield row._replace(trouble=trouble, notes=notes)
            notes = []


def _cut(files: Sequence[_File], piece_bytes: int) -> Iterator[PieceRow]:
    """The segments of one life as pieces of about this size."""
    life = life_of(place(files[0].path))
    sizes = [file.size_bytes for file in files if file.size_bytes]
    may_be_copied = bool(sizes) and (life is None or len(set(sizes)) < len(sizes))
    ends = accumulate(file.size_bytes for file in files)
    numbers = [(end - file.size_bytes) // piece_bytes for end, file in zip(ends, files, strict=True)]
    for number in dict.fromkeys(numbers):
        piece = [file for file, its in zip(files, numbers, strict=True) if its == number]
        yield PieceRow(
            [file.path for file in piece],
            [file.size_bytes for file in piece],
            not numbers[-1],
            sum(file.size_bytes for file in piece),
            life,
            may_be_copied,
        )


def _twin(file: _File, files: Iterable[_File]) -> _File | None:
    """The finished form of an open segment, Parquet if there are two."""
    if not file.name.endswith(OPEN) or segment_name(file.name) is None:
        return None
    folder, base = file.path.removesuffix(file.name), base_of(file.name)
    forms = {one.name: one for one in files if one.path == folder + one.name}
    return next((forms[base + ending] for ending in ENDINGS if base + ending in forms), None)


def _twice(files: Iterable[_File]) -> str | None:
    """What is wrong if two files have one name."""
    known: dict[str, str] = {}
    for file in files:
        one = known.setdefault(base_of(file.name), file.path)
        if one != file.path:
            one, other = sorted((one, file.path))
            return f"{other} has the name of {one}: remove the copy, or judge the two folders apart."
    return None


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
