"""Running a grid: cells fan out as Spark tasks, chunk by chunk, and a killed run loses the chunk in flight and nothing else.

    FOLDER/measures/*.parquet   one file a finished chunk, one row a cell; written whole or not at all
    FOLDER/results.parquet      at the end: every cell of the grid, sorted by id; the same bytes however the cells were dealt out
    FOLDER/traces/ID/           with `traces`: the trace of each cell, written by the workers before the row in `measures`

FOLDER is local or on another storage, such as S3. `measures` is the manifest: a cell that is in it is never run again, and the
trace of one that is not may be incomplete. Nothing is renamed or locked. A cell gives the same row and the same trace
wherever it runs, so two drivers in one folder waste work, and write the same.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from unisono.core.errors import Misuse
from unisono.experiments.cell import FAULT, run_cell, schema
from unisono.experiments.grid import Grid, GridCell
from unisono.pipeline.storage import Location, place
from unisono.sim.scenario import Scenario
from unisono.trace.parquet import Bomb, batches_of, open_parquet

if TYPE_CHECKING:
    import os

    from pyspark.sql import SparkSession

CHUNK_S = 6.0
"""Approximate work per core in a chunk: cheap to lose, yet long enough to justify starting a job."""
CHUNK_CELLS_MAX = 1_000
SLICES_PER_CORE = 4

Row = dict[str, Any]


def run_grid(
    spark: SparkSession,
    grid: Grid,
    folder: str | os.PathLike[str] | Location,
    resume: bool = True,
    progress: Callable[[int], None] | None = None,
    traces: bool = False,
    chunk_s: float = CHUNK_S,
) -> list[Row]:
    """Run what is not done yet, and return the rows of all cells of the grid, sorted by id.

    `progress` is called with how many cells are done, first with those that an earlier run has left.
    """
    folder = place(folder)
    if not resume:
        (folder / "measures").delete_folder()
        (folder / "traces").delete_folder()
    finished = {row["id"]: row["verdict"] for row in read_rows(folder)}
    todo = [cell for cell in grid.cells if cell.id not in finished]
    already = len(grid.cells) - len(todo)
    if traces:
        _require_traces(folder, [cell.id for cell in grid.cells if finished.get(cell.id, FAULT) != FAULT])
    done = 0
    while done < len(todo):
        if progress is not None:
            progress(already + done)
        cores = spark.sparkContext.defaultParallelism  # executors may have come or gone since the last chunk
        chunk = first_chunk(todo[done:], chunk_s * cores)
        _write(folder / "measures", _run_chunk(spark, chunk, cores, (folder / "traces").uri if traces else None))
        done += len(chunk)
    if progress is not None:
        progress(len(grid.cells))
    return _finish(grid, folder)


def _require_traces(folder: Location, ids: Sequence[str]) -> None:
    """Refuse to go on with traces where cells are finished without."""
    if not ids:
        return
    there = folder / "traces"
    kept = {cell.name for cell in there.children()[1]} if there.is_folder() else set()
    if bare := [id for id in ids if id not in kept]:
        raise Misuse(
            f"{len(bare)} cells in {folder} were run without traces, {bare[0]} for one: "
            "choose another folder, or discard its results with --fresh."
        )


def first_chunk(cells: Sequence[GridCell], cost_s: float) -> list[GridCell]:
    """The first cells, of at most this cost together; a cell that costs more is a chunk of its own."""
    costs = accumulate(cell.cost_s for cell in cells[:CHUNK_CELLS_MAX])
    return list(cells[: max(1, sum(cost <= cost_s for cost in costs))])


def read_rows(folder: str | os.PathLike[str] | Location) -> list[Row]:
    """The rows of all chunks that are finished, sorted by id."""
    import pyarrow

    measures = place(folder) / "measures"
    files = sorted(entry.place for entry in measures.files()) if measures.is_folder() else []
    rows: dict[str, Row] = {}
    for file in files:
        if not file.name.endswith(".parquet"):
            continue
        try:
            with open_parquet(file.open()) as table:
                if table.schema_arrow.names != schema().names:
                    raise Misuse(
                        f"{file} has other columns than this version writes: choose another folder, or discard "
                        "its results with --fresh."
                    )
                for batch in batches_of(table):
                    for row in batch.to_pylist():
                        if rows.setdefault(row["id"], row) != row:
                            raise Misuse(
                                f"{folder} holds two different results of the cell {row['id']}, perhaps of two versions of "
                                "unisono: choose another folder, or discard its results with --fresh."
                            )
        except (OSError, pyarrow.ArrowException, Bomb) as error:
            raise Misuse(f"{file} cannot be read ({error}): remove it, and its cells run again.") from None
    return [rows[id] for id in sorted(rows)]


def _run_chunk(spark: SparkSession, chunk: Sequence[GridCell], cores: int, traces: str | None) -> list[Row]:
    """Deal the cells out, the costly ones first and evenly, so that no core waits long for another."""
    ranked = sorted(chunk, key=lambda cell: (-cell.cost_s, cell.id))
    slices = min(len(ranked), cores * SLICES_PER_CORE)
    hands = [[(cell.id, cell.scenario.to_json()) for cell in ranked[hand::slices]] for hand in range(slices)]

    def play(hand: Iterable[tuple[str, Row]]) -> list[Row]:
        return [run_cell(id, Scenario.from_json(scenario), traces) for id, scenario in hand]

    return spark.sparkContext.parallelize(hands, slices).flatMap(play).collect()


def _write(measures: Location, rows: list[Row]) -> None:
    name = blake2b("\n".join(sorted(row["id"] for row in rows)).encode(), digest_size=8).hexdigest()
    (measures / f"{name}.parquet").write_bytes(_as_parquet(rows))


def _finish(grid: Grid, folder: Location) -> list[Row]:
    wanted = {cell.id for cell in grid.cells}
    rows = [row for row in read_rows(folder) if row["id"] in wanted]
    if len(rows) < len(wanted):
        raise Misuse(
            f"{len(wanted) - len(rows)} finished cells have gone from {folder}, perhaps by another run with --fresh: "
            "run it again."
        )
    (folder / "results.parquet").write_bytes(_as_parquet(rows))
    return rows


def _as_parquet(rows: list[Row]) -> bytes:
    import pyarrow.parquet

    table = pyarrow.Table.from_pylist(sorted(rows, key=lambda row: str(row["id"])), schema())
    data = io.BytesIO()
    pyarrow.parquet.write_table(table, data)
    return data.getvalue()
