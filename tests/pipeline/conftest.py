"""One Spark session for all tests of the pipeline, and one S3 server."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import TYPE_CHECKING

import pytest

from tests.pipeline.s3 import make_bucket, s3_server, settings_of
from unisono.pipeline.storage import SETTINGS, Location, place

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


@pytest.fixture(scope="session")
def s3_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An S3 server, and the variables of this process that lead to it."""
    with s3_server(tmp_path_factory.mktemp("s3")) as address, pytest.MonkeyPatch.context() as environment:
        for name in SETTINGS:
            environment.delenv(name, raising=False)
        for name, value in settings_of(address).items():
            environment.setenv(name, value)
        yield address


_numbers = count(1)


@pytest.fixture
def bucket(s3_address: str) -> Location:
    """An empty bucket."""
    name = f"bucket-{next(_numbers)}"
    make_bucket(s3_address, name)
    return place(f"s3://{name}")
