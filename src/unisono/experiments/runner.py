"""Running a grid: cells fan out as Spark tasks, chunk by chunk, and a killed run loses the chunk in flight and nothing else.

    FOLDER/measures/*.parquet   one file a finished chunk, one row a cell; written whole or not at all
    FOLDER/results.parquet      at the end: every cell of the grid, sorted by id; the same bytes however the cells were dealt out
    FOLDER/traces/ID/           with `traces`: the trace of each cell (workers write it, so on a cluster the folder is shared)

A cell that is in `measures` is never run again. One driver at a time may use a folder; the lock is the kernel's, so a killed
driver leaves none behind.
"""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unisono.core.errors import Misuse
from unisono.experiments.cell import run_cell, schema
from unisono.experiments.grid import Cell, Grid
from unisono.sim.scenario import Scenario
from unisono.trace.files import open_private
from unisono.trace.parquet import Bomb, batches_of, open_parquet

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import SparkSession

CHUNK_S = 6.0
"""About so much work for each core in a chunk: little enough to lose, enough to make starting a job worth it."""
CHUNK_CELLS_MAX = 1_000
SLICES_PER_CORE = 4

Row = dict[str, Any]


def run_grid(
    spark: SparkSession,
    grid: Grid,
    folder: Path,
    resume: bool = True,
    progress: Callable[[int], None] | None = None,
    traces: bool = False,
    chunk_s: float = CHUNK_S,
) -> list[Row]:
    """Run what is not done yet, and return the rows of all cells of the grid, sorted by id.

    `progress` is called with how many cells are done, first with those that an earlier run has left.
    """
    measures = folder / "measures"
    measures.mkdir(parents=True, exist_ok=True)
    with _alone(folder):
        for leftover in measures.glob("*.tmp"):
            leftover.unlink()
        if not resume:
            for file in measures.glob("*.parquet"):
                file.unlink()
        finished = {row["id"] for row in read_rows(folder)}
        todo = [cell for cell in grid.cells if cell.id not in finished]
        done = len(grid.cells) - len(todo)
        bare = [cell.id for cell in grid.cells if cell.id in finished and not (folder / "traces" / cell.id).is_dir()]
        if traces and bare:
            raise Misuse(
                f"{len(bare)} cells in {folder} were run without traces, {bare[0]} for one: "
                "choose another folder, or start afresh."
            )
        cores = spark.sparkContext.defaultParallelism
        for chunk in chunks(todo, chunk_s * cores):
            if progress is not None:
                progress(done)
            _write(measures, _run_chunk(spark, chunk, cores, str(folder.resolve() / "traces") if traces else None))
            done += len(chunk)
        if progress is not None:
            progress(done)
        return _finish(grid, folder)


def chunks(cells: Sequence[Cell], cost_s: float) -> Iterator[list[Cell]]:
    """Cut the cells into runs of about this cost; a cell that costs more is a chunk of its own."""
    chunk: list[Cell] = []
    spent = 0.0
    for cell in cells:
        if chunk and (spent + cell.cost_s > cost_s or len(chunk) >= CHUNK_CELLS_MAX):
            yield chunk
            chunk, spent = [], 0.0
        chunk.append(cell)
        spent += cell.cost_s
    if chunk:
        yield chunk


def read_rows(folder: Path) -> list[Row]:
    """The rows of all chunks that are finished, sorted by id."""
    import pyarrow

    rows: list[Row] = []
    for file in sorted((folder / "measures").glob("*.parquet")):
        try:
            with open_parquet(file) as table:
                if table.schema_arrow.names != schema().names:
                    raise Misuse(
                        f"{file} has other columns than this version writes: choose another folder, or start afresh."
                    )
                for batch in batches_of(table):
                    rows += batch.to_pylist()
        except (OSError, pyarrow.ArrowException, Bomb) as error:
            raise Misuse(f"{file} cannot be read ({error}): remove it, and its cells run again.") from None
    return sorted(rows, key=lambda row: str(row["id"]))


def _run_chunk(spark: SparkSession, chunk: Sequence[Cell], cores: int, traces: str | None) -> list[Row]:
    """Deal the cells out, the costly ones first and evenly, so that no core waits long for another."""
    ranked = sorted(chunk, key=lambda cell: (-cell.cost_s, cell.id))
    slices = min(len(ranked), cores * SLICES_PER_CORE)
    hands = [[(cell.id, cell.scenario.to_json()) for cell in ranked[hand::slices]] for hand in range(slices)]

    def play(hand: Iterable[tuple[str, Row]]) -> list[Row]:
        return [run_cell(id, Scenario.from_json(scenario), traces) for id, scenario in hand]

    return spark.sparkContext.parallelize(hands, slices).flatMap(play).collect()


def _write(measures: Path, rows: list[Row]) -> None:
    name = blake2b("\n".join(sorted(row["id"] for row in rows)).encode(), digest_size=8).hexdigest()
    _write_parquet(measures / f"{name}.parquet", _table(rows))


def _finish(grid: Grid, folder: Path) -> list[Row]:
    wanted = {cell.id for cell in grid.cells}
    rows = [row for row in read_rows(folder) if row["id"] in wanted]
    assert [row["id"] for row in rows] == sorted(wanted), "every cell is there, once"
    _write_parquet(folder / "results.parquet", _table(rows))
    return rows


def _table(rows: list[Row]) -> pyarrow.Table:
    import pyarrow

    return pyarrow.Table.from_pylist(sorted(rows, key=lambda row: str(row["id"])), schema())


def _write_parquet(path: Path, table: pyarrow.Table) -> None:
    """So that nobody ever sees half of a file."""
    import pyarrow.parquet

    temporary = path.with_name(path.name + ".tmp")
    pyarrow.parquet.write_table(table, temporary)
    temporary.replace(path)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    try:
        descriptor = open_private(folder / ".lock")
    except OSError as error:
        raise Misuse(f"{folder} cannot be written: {error.strerror or error}.") from None
    with open(descriptor, "wb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Misuse(f"another run is at work in {folder}: wait for it, or choose another folder.") from None
        yield
