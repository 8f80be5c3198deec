"""How many tasks a job gets: from the bytes that it reads, not from the executors that happen to be there.

A cluster gives its executors one after the other, so their number at the start says little. Bytes
say how much work there is; what the user sets wins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from unisono.pipeline.session import is_given

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TASK_BYTES = 128 << 20
"""What a task reads, about. Segments are packed well: that is some million rows."""
OPEN_BYTES = 256 << 10
"""What opening a file costs, in bytes that could be read in the same time."""
SHUFFLE_BYTES = 32 << 20
TASKS_MIN, TASKS_MAX = 4, 20_000
SHUFFLES_MIN, SHUFFLES_MAX = 8, 2_000
SHUFFLES = "spark.sql.shuffle.partitions"


def tasks_for(size_bytes: int, files: int = 0) -> int:
    """Return the number of tasks for reading this many bytes in this many files."""
    work = size_bytes + files * OPEN_BYTES
    return max(min(TASKS_MIN, files or TASKS_MIN), min(TASKS_MAX, -(-work // TASK_BYTES)), 1)


def fit_shuffles(spark: SparkSession, size_bytes: int) -> None:
    """Set the number of partitions for joins and sorts over this many bytes; adaptive execution merges small ones."""
    if not is_given(spark, SHUFFLES):
        spark.conf.set(SHUFFLES, str(max(SHUFFLES_MIN, min(SHUFFLES_MAX, size_bytes // SHUFFLE_BYTES))))
