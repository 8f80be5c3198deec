"""One Spark session for all tests of the pipeline."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


SMALL = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -Dlog4j2.level=error",
}
"""Tests ask many small questions of little data: planning and compiling would cost more than answering."""


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    pytest.importorskip("pyspark")
    from unisono.pipeline.session import open_session

    session = open_session("local[2]", settings=SMALL)
    yield session
    session.stop()
