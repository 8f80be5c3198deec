"""Places: the same small interface on local folders and on a real S3 server."""

from __future__ import annotations

import errno
import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet
import pytest

from tests.pipeline.s3 import LOG, count_requests, make_bucket, s3_server, send, settings_of
from tests.pipeline.test_faults import record
from unisono.pipeline.bronze import read_file, read_now
from unisono.pipeline.session import PipelineError, open_session
from unisono.pipeline.storage import Location, listing, place, require, trouble, upload, write_frame
from unisono.trace.parquet import open_parquet, write_parquet

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# What a text means.


@pytest.mark.parametrize(
    ("text", "uri"),
    [
        ("/data/traces/", "/data/traces"),
        ("file:///data/a%20b", "/data/a b"),
        ("file:/data", "/data"),
        ("file://localhost/data", "/data"),
        ("s3://bucket", "s3://bucket"),
        ("s3://bucket/", "s3://bucket"),
        ("s3a://bucket/traces/a%2Eb", "s3://bucket/traces/a%2Eb"),
        ("S3://bucket/x y/", "s3://bucket/x y"),
        ("hdfs://name:8020/traces/", "hdfs://name:8020/traces"),
        ("hdfs:///traces", "hdfs:///traces"),
        ("hdfs://name:8020", "hdfs://name:8020/"),
    ],
)
def test_a_text_names_a_place_and_its_uri_names_it_again(text: str, uri: str) -> None:
    assert place(text).uri == uri == str(place(uri))
    assert place(place(text)) == pickle.loads(pickle.dumps(place(text)))


@pytest.mark.parametrize("text", ["traces", "C:/traces", "10.0.0.1:9000/x", "./s3:/x", "run:a.jsonl"])
def test_everything_without_a_scheme_is_local(text: str) -> None:
    assert place(text).local_path == Path.cwd() / text


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("gs://bucket/x", "kind gs:// is not supported"),
        ("abfs://c@a/x", "kind abfs:// is not supported"),
        ("ftp://host/x", "kind ftp:// is not supported"),
        ("dbfs:/x", "kind dbfs:// is not supported"),
        ("s3://", "names no bucket"),
        ("s3:/bucket/x", "names no bucket"),
        ("s3:///x", "names no bucket"),
        ("s3://bucket//x", "names no bucket and key"),
        ("file://server/x", "names the machine 'server'"),
    ],
)
def test_what_is_not_supported_is_refused_in_a_sentence(text: str, sentence: str) -> None:
    with pytest.raises(PipelineError, match=sentence) as caught:
        place(text)
    assert str(caught.value).count("\n") == 0
    assert str(caught.value).endswith(".")


def test_a_path_that_swallowed_a_slash_of_a_uri_is_refused() -> None:
    """`Path("s3a://bucket/x")` is a local folder named `s3a:`, which nobody means."""
    with pytest.raises(PipelineError, match="pass the URI as text"):
        place(Path("s3a://bucket/x"))


def test_what_must_be_local_says_so() -> None:
    with pytest.raises(PipelineError, match="s3://bucket/x is not on this machine"):
        _ = place("s3://bucket/x").local_path


@pytest.mark.parametrize("text", ["/a/b", "s3://bucket/a/b", "hdfs://name:8020/a/b"])
def test_names_and_parents(text: str) -> None:
    here = place(text)
    assert (here.name, here.parent / "b", (here / "c").name) == ("b", here, "c")
    top = here.parent.parent
    assert top.parent == top
    assert top / "a" / "b" == here


@pytest.mark.parametrize(
    ("text", "uri"), [("/a b/c", "file:///a%20b/c"), ("s3://b/c", "s3a://b/c"), ("hdfs://n:1/c", "hdfs://n:1/c")]
)
def test_spark_is_told_the_whole_uri(text: str, uri: str) -> None:
    assert place(text).hadoop_uri == uri


# What every place can do.


@pytest.fixture(params=["local", "s3"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Location:
    if request.param == "local":
        return place(tmp_path / "folder")
    bucket: Location = request.getfixturevalue("bucket")
    return bucket / "some folder"


def test_a_file_is_written_read_listed_and_removed(folder: Location) -> None:
    file = folder / "deep" / "r%2E1.a:1@x.0.jsonl"
    assert not file.exists()
    assert not folder.exists()
    file.write_bytes(b"one\ntwo\n")
    assert file.exists()
    assert folder.is_folder()
    assert not file.is_folder()
    assert (file.size(), file.read_bytes()) == (8, b"one\ntwo\n")
    with file.open() as opened:
        opened.seek(4)
        assert opened.read() == b"two\n"
    with file.stream() as lines:
        assert [lines.readline(), lines.readline(), lines.readline()] == [b"one\n", b"two\n", b""]
    file.write_bytes(b"three")
    assert file.read_bytes() == b"three"
    (folder / "_delta_log" / "0.checkpoint.parquet").write_bytes(b"")
    (folder / "top").write_bytes(b"")
    assert {(entry.place, entry.size_bytes) for entry in folder.files()} == {(file, 5), (folder / "top", 0)}
    assert all(entry.modified_ns > 0 for entry in folder.files())
    assert [entry.place for entry in folder.files(recursive=False)] == [folder / "top"]
    assert folder.children()[1] == [folder / "deep"]
    file.delete()
    file.delete()
    assert not file.exists()
    folder.delete_folder()
    folder.delete_folder()
    assert list(folder.parent.files()) == []


def test_a_file_that_is_not_there_is_not_found(folder: Location) -> None:
    for ask in (Location.size, Location.read_bytes, Location.open):
        with pytest.raises(FileNotFoundError):
            ask(folder / "nothing")
    with pytest.raises(PipelineError, match=f"there is nothing at {folder}"):
        require(folder)


def test_a_large_file_is_whole(folder: Location) -> None:
    data = os.urandom(1 << 20) * 12  # more than one part of an upload
    (folder / "large").write_bytes(data)
    assert (folder / "large").read_bytes() == data


def test_parquet_is_read_from_an_open_file(folder: Location, tmp_path: Path) -> None:
    write_parquet(tmp_path / "x.parquet", [])
    (folder / "x.parquet").write_bytes((tmp_path / "x.parquet").read_bytes())
    with (folder / "x.parquet").open() as opened, open_parquet(opened) as file:
        assert file.metadata.num_rows == 0


def test_a_fifo_is_refused_and_links_to_folders_are_not_followed(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "circle").symlink_to(tmp_path)
    with pytest.raises(OSError, match="not a regular file"):
        place(tmp_path / "fifo").open()
    assert list(place(tmp_path).files()) == []


def test_what_is_removed_during_a_listing_is_passed_over(tmp_path: Path) -> None:
    for name in ("one", "two", "folder"):
        (tmp_path / name / "deep").mkdir(parents=True)
        (tmp_path / name / "deep" / "x").touch()
        (tmp_path / f"{name}.jsonl").touch()
    found = []
    for entry in place(tmp_path).files():
        found.append(entry.place.name)
        for path in tmp_path.glob("*.jsonl"):
            path.unlink()
        for folder in ("one", "two", "folder"):
            shutil.rmtree(tmp_path / folder, ignore_errors=True)
    assert len(found) == 1
    with pytest.raises(FileNotFoundError):
        list(place(tmp_path / "one").files())


# What goes wrong on the way.


def test_trouble_with_s3_is_told_with_its_cure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, s3_address: str
) -> None:
    with s3_server(tmp_path) as address:
        for name, value in settings_of(address).items():
            monkeypatch.setenv(name, value)
        with pytest.raises(PipelineError, match=f"there is no bucket 'none' at {address}"):
            require(place("s3://none/x"))
        with pytest.raises(OSError, match="there is no such bucket") as caught:
            place("s3://none/x").write_bytes(b"x")
        assert (caught.value.errno, caught.value.filename) == (errno.ENOENT, "s3://none/x")
        send("PUT", f"{address}/mine")
        place("s3://mine/x").write_bytes(b"x")
        opened = place("s3://mine/x").open()
        send("POST", f"{address}/moto-api/reset-auth", b"0")  # from now on it asks who we are
        with pytest.raises(PipelineError, match="check AWS_ACCESS_KEY_ID"):
            require(place("s3://mine/x"))
    with pytest.raises(PipelineError, match=r"does not answer; check AWS_ENDPOINT_URL"):
        require(place("s3://mine/x"))
    with pytest.raises(OSError, match="AWS Error") as raw:
        opened.read()
    assert raw.value.errno is None, "pyarrow says it now: `trouble` can be simpler"
    known = trouble(raw.value)
    assert known is not None
    assert known.errno == errno.EHOSTUNREACH
    (row,) = pyarrow.Table.from_batches(list(read_file(place("s3://mine/r.a.0.000000.parquet")))).to_pylist()
    assert (row["run"], row["member"]) == ("r", "a")
    assert "does not answer" in row["problem"]
    with pytest.raises(OSError, match="does not answer"):  # a later look may find it
        list(read_now(place("s3://mine/r.a.0.000000.parquet")))


def test_damage_is_no_trouble_of_the_storage() -> None:
    assert trouble(OSError("Couldn't deserialize thrift")) is None
    assert trouble(ValueError("AWS Error")) is None


def test_hdfs_without_its_client_is_refused_with_the_cure() -> None:
    if os.environ.get("HADOOP_HOME"):
        pytest.skip("Hadoop is installed here")
    with pytest.raises(PipelineError, match="hdfs:// needs Hadoop's client"):
        place("hdfs://name:8020/x").exists()


WRITER = """
import sys
from unisono.pipeline.storage import place
place(sys.argv[1]).write_bytes(bytes(200 << 20))
"""


def test_an_upload_that_is_killed_half_way_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, s3_address: str
) -> None:
    with s3_server(tmp_path) as address:
        for name, value in settings_of(address).items():
            monkeypatch.setenv(name, value)
        make_bucket(address, "halves")
        file = place("s3://halves/file")
        file.write_bytes(b"old")
        with subprocess.Popen([sys.executable, "-c", WRITER, file.uri]) as writer:
            until = time.monotonic() + 120
            while "partNumber=" not in (tmp_path / LOG).read_text(errors="replace"):
                assert writer.poll() is None, "the writer ended before it could be killed"
                assert time.monotonic() < until, "nothing is uploaded"
                time.sleep(0.005)
            writer.kill()
        assert writer.returncode == -signal.SIGKILL, "it was too quick"
        assert file.read_bytes() == b"old"
        assert [entry.place for entry in file.parent.files()] == [file]


# What it costs.


def test_a_small_segment_costs_three_requests_and_a_listing_few(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, s3_address: str
) -> None:
    record(tmp_path / "trace", 1)
    with s3_server(tmp_path) as address:
        for name, value in settings_of(address).items():
            monkeypatch.setenv(name, value)
        make_bucket(address, "costs")
        folder = place("s3://costs/trace")
        upload(tmp_path / "trace", folder)
        with count_requests(tmp_path) as listing_costs:
            segments = sorted(folder.files())
        with count_requests(tmp_path) as reading_costs:
            rows = sum(map(len, read_file(segments[0].place)))
    assert rows > 0
    assert listing_costs == {"GET": 1}
    assert reading_costs == {"HEAD": 1, "GET": 2}


# Listing with Spark.


def test_a_listing_tells_every_file_once(spark: SparkSession, folder: Location) -> None:
    """Workers of a session that was there before the variables see them, too."""
    open_session("local[2]")
    names = ["a.parquet", "one/b.jsonl", "one/two/c.parquet", "three/d.parquet"]
    for number, name in enumerate([*names, "one/x.tmp"]):
        (folder / name).write_bytes(b"x" * number)
    found = listing(spark, [folder.uri], (".parquet", ".jsonl")).collect()
    assert sorted((row["path"], row["size_bytes"]) for row in found) == sorted(
        ((folder / name).uri, number) for number, name in enumerate(names)
    )
    assert all(row["modified_ns"] > 0 for row in found)
    only = listing(spark, [folder / "one" / "b.jsonl"]).collect()
    assert [row["path"] for row in only] == [(folder / "one" / "b.jsonl").uri]
    with pytest.raises(PipelineError, match="there is nothing at"):
        listing(spark, [folder / "none"])


def test_a_frame_is_written_in_place_of_the_last_one_also_if_it_is_empty(spark: SparkSession, folder: Location) -> None:
    open_session("local[2]")
    write_frame(spark.range(10).repartition(3), folder)
    assert len(list(folder.files())) == 3
    assert sorted(number for entry in folder.files() for number in numbers_in(entry.place)) == list(range(10))
    write_frame(spark.range(1), folder)
    assert [numbers_in(entry.place) for entry in folder.files()] == [[0]]
    write_frame(spark.range(0), folder)
    assert [numbers_in(entry.place) for entry in folder.files()] == [[]]


def numbers_in(file: Location) -> list[int]:
    with file.open() as opened:
        numbers: list[int] = pyarrow.parquet.read_table(opened).column("id").to_pylist()
    return numbers
