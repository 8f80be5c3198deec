"""What a data source raises, as one sentence instead of a worker's traceback."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import wraps
from typing import ParamSpec, TypeVar

from unisono import UnisonoError
from unisono.pipeline.session import PipelineError

P = ParamSpec("P")
T = TypeVar("T")


def plainly(function: Callable[P, T]) -> Callable[P, T]:
    """Have Spark show what our errors say, and not where they were raised."""

    @wraps(function)
    def wrapper(*arguments: P.args, **options: P.kwargs) -> T:
        try:
            return function(*arguments, **options)
        except (PipelineError, UnisonoError):
            hide_traceback()
            raise

    return wrapper


def plain_rows(rows: Iterator[T]) -> Iterator[T]:
    """The same for what is read row by row."""
    try:
        yield from rows
    except (PipelineError, UnisonoError):
        hide_traceback()
        raise


def hide_traceback() -> None:
    """Spark's worker looks for this variable when it reports an error, and ends after that: no other code sees it."""
    if os.environ.get("SPARK_PYTHON_RUNTIME") == "PYTHON_WORKER":
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"
