"""What the tests with real processes share."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short path: the name of a unix socket has room for about a hundred bytes."""
    path = Path(tempfile.mkdtemp(prefix="uni-"))
    yield path
    shutil.rmtree(path)
