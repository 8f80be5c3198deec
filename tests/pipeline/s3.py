"""A real S3 protocol server on loopback, in a process of its own, and places in a bucket of it."""

from __future__ import annotations

import re
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

START_S = 60.0
LOG = "s3.log"


@contextmanager
def s3_server(folder: Path) -> Iterator[str]:
    """The address of a server that knows no buckets yet; it ends with the block."""
    log = folder / LOG
    with open(log, "wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            cwd=folder,
        )
    try:
        until = time.monotonic() + START_S
        while (found := re.search(r"http://127\.0\.0\.1:\d+", log.read_text(errors="replace"))) is None:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < until, log.read_text()
            time.sleep(0.05)
        yield found[0]
    finally:
        process.kill()
        process.wait()


@contextmanager
def count_requests(folder: Path) -> Iterator[Counter[str]]:
    """How often each method was asked of the server with that folder, known behind the block."""
    log, counts = folder / LOG, Counter[str]()
    before = log.stat().st_size
    yield counts
    with open(log, "rb") as file:
        file.seek(before)
        counts.update(re.findall(r"(GET|HEAD|PUT|POST|DELETE) /", file.read().decode(errors="replace")))


def settings_of(address: str) -> dict[str, str]:
    """The variables with which programs reach that server and nothing else."""
    return {
        "AWS_ENDPOINT_URL": address,
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "tester",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_EC2_METADATA_DISABLED": "true",
    }


def make_bucket(address: str, name: str) -> None:
    send("PUT", f"{address}/{name}")


def send(method: str, url: str, data: bytes | None = None) -> None:
    request = urllib.request.Request(url, data, {"Content-Type": "application/octet-stream"}, method=method)
    with urllib.request.urlopen(request, timeout=30) as answer:
        assert answer.status == 200
