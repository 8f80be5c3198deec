"""How much a micro-batch may have, as the options and Spark say."""

from __future__ import annotations

from typing import Any

from unisono.pipeline.live_options import Options
from unisono.runtime.journal import Limits

try:
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
except ImportError:  # before Spark 4.2 there are no limits, and such a trigger makes one batch

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Stands in for what an older Spark does not know."""


__all__ = ["SupportsTriggerAvailableNow", "default_limit", "limits_of"]


def default_limit(options: Options) -> Any:
    """What Spark is told; it knows one limit at a time."""
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

    rows, size = options.count("maxRowsPerBatch"), options.count("maxBytesPerBatch")
    if rows is not None:
        return ReadMaxRows(rows)
    return ReadAllAvailable() if size is None else ReadMaxBytes(size)


def limits_of(options: Options, limit: Any, end: tuple[int, int] | None = None) -> Limits:
    """What a micro-batch may have. If Spark lifts the limit, as some triggers do, there is none."""
    if limit is None or type(limit).__name__ == "ReadAllAvailable":
        return Limits(end=end)
    return Limits(
        getattr(limit, "max_rows", None) or options.count("maxRowsPerBatch"),
        getattr(limit, "max_bytes", None) or options.count("maxBytesPerBatch"),
        end,
    )
