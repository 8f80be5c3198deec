"""Where data lives: local folders, S3 and HDFS behind one small interface, on driver and workers alike.

A `Location` is a text and nothing else, so it travels to workers as it is. There it opens its own file
system, which is pyarrow's: no Hadoop jars are needed. Credentials, endpoint and region of S3 are the
usual `AWS_…` variables (`SETTINGS`); `open_session` hands them on to the workers.

What a place offers is what object stores offer: whole files, no renames and no locks. There is no
"create if absent" either, because pyarrow has none for S3. Where two writers must exclude each
other, the commit of a Delta table decides.

Everything that goes wrong on the way to the data is an `OSError` with a number and a sentence.
"""

from __future__ import annotations

import errno
import io
import os
import re
import shutil
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote, urlsplit

from unisono.pipeline.session import PipelineError
from unisono.trace.files import open_regular, write_whole
from unisono.trace.reader import DELTA_LOG, is_utf8

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame, SparkSession

SETTINGS = (
    "AWS_ENDPOINT_URL_S3",
    "AWS_ENDPOINT_URL",
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
)
"""The variables that say how S3 is reached. Driver and workers need the same ones."""
LISTING_DDL = "path string, size_bytes bigint, modified_ns bigint"

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(?=/)")  # one letter is a drive of Windows
_S3_TROUBLE = (
    ("NO_SUCH_BUCKET", errno.ENOENT, "there is no such bucket"),
    ("ACCESS_DENIED", errno.EACCES, "access is denied"),
    ("INVALID_ACCESS_KEY_ID", errno.EACCES, "the access key is not known there"),
    ("InvalidAccessKeyId", errno.EACCES, "the access key is not known there"),
    ("SIGNATURE_DOES_NOT_MATCH", errno.EACCES, "the secret key does not fit the access key"),
    ("SignatureDoesNotMatch", errno.EACCES, "the secret key does not fit the access key"),
    ("NETWORK_CONNECTION", errno.EHOSTUNREACH, "the storage does not answer"),
)
_CURES = {
    errno.EACCES: "; check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN",
    errno.EHOSTUNREACH: "; check AWS_ENDPOINT_URL and AWS_REGION",
}


class FileEntry(NamedTuple):
    """A file as a listing tells of it."""

    place: Location
    size_bytes: int
    modified_ns: int


def place(where: str | os.PathLike[str] | Location) -> Location:
    """Make a place of a local path, `file://…`, `s3://bucket/key` or `hdfs://host:port/path`."""
    if isinstance(where, Location):
        return where
    text = os.fspath(where)
    found = _SCHEME.match(text)
    if found is None:
        return Location(os.path.abspath(text))
    scheme, rest = found[1].lower(), text[found.end() :]
    if isinstance(where, os.PathLike):
        raise PipelineError(f"{text!r} was made a local path, which it is not: pass the URI as text.")
    if scheme == "file":
        host, path = _parted(rest) if rest.startswith("//") else ("", rest)
        if host not in ("", "localhost"):
            raise PipelineError(f"{text!r} names the machine {host!r}: a file:// path has three slashes, file:///….")
        return Location(os.path.abspath(unquote(path)))
    if scheme in ("s3", "s3a", "s3n"):
        bucket, key = _parted(rest)
        if not bucket or "//" in key.rstrip("/"):
            raise PipelineError(f"{text!r} names no bucket and key: write s3://bucket/key.")
        return Location(f"s3://{bucket}{key.rstrip('/')}")
    if scheme == "hdfs":
        host, path = _parted(rest)
        return Location(f"hdfs://{host}{path.rstrip('/') or '/'}")
    raise PipelineError(
        f"{text!r}: storage of the kind {scheme}:// is not supported; use a local path, file://, s3:// or hdfs://."
    )


@dataclass(frozen=True, order=True)
class Location:
    """A file or folder, on whatever storage. Make one by `place`."""

    uri: str
    """The text that makes it again; of a local one, the absolute path."""

    def __str__(self) -> str:
        return self.uri

    def __truediv__(self, name: str) -> Location:
        return Location(f"{self.uri.rstrip('/')}/{name}")

    @property
    def name(self) -> str:
        return self.uri.rpartition("/")[2]

    @property
    def parent(self) -> Location:
        """The folder it is in; a bucket or root is its own parent."""
        head = self.uri.rpartition("/")[0]
        if self.is_local:
            return Location(head or "/")
        return self if head.endswith("/") else Location(head)

    @property
    def is_local(self) -> bool:
        return self.uri.startswith("/")

    @property
    def is_on_s3(self) -> bool:
        return self.uri.startswith("s3://")

    @property
    def local_path(self) -> Path:
        """The path, for what must be a file or folder of this machine."""
        if not self.is_local:
            raise PipelineError(f"{self} is not on this machine: name a local path here.")
        return Path(self.uri)

    @property
    def hadoop_uri(self) -> str:
        """How Spark itself must be told of it, so that `fs.defaultFS` has no say: for checkpoints alone."""
        return Path(self.uri).as_uri() if self.is_local else self.uri.replace("s3://", "s3a://", 1)

    # Asking.

    def exists(self) -> bool:
        return self._kind() != "NotFound"

    def is_folder(self) -> bool:
        return self._kind() == "Directory"

    def entry(self) -> FileEntry:
        """Size and age of a file. Raises `FileNotFoundError`."""
        if self.is_local:
            about = os.stat(self.uri)
            return FileEntry(self, about.st_size, about.st_mtime_ns)
        info = self._info()
        if info.size is None:
            raise FileNotFoundError(errno.ENOENT, "there is no such file", self.uri)
        return FileEntry(self, info.size, info.mtime_ns or 0)

    def size(self) -> int:
        """The bytes of a file. Raises `FileNotFoundError`."""
        return self.entry().size_bytes

    def files(self, recursive: bool = True) -> Iterator[FileEntry]:
        """The files of a folder, without an order. Commits of Delta tables are passed over."""
        return (entry for entry, is_folder in self._entries(recursive) if not is_folder)

    def children(self) -> tuple[list[FileEntry], list[Location]]:
        """The files of a folder, and the folders in it, by one listing."""
        found = list(self._entries(recursive=False))
        files = [entry for entry, is_folder in found if not is_folder]
        return files, [entry.place for entry, is_folder in found if is_folder]

    # Reading and writing.

    def open(self) -> pyarrow.NativeFile:
        """Open a file to read, at any position. A device or a FIFO is refused."""
        if self.is_local:
            import pyarrow

            open_regular(Path(self.uri)).close()
            return pyarrow.OSFile(self.uri)
        with self._plain_trouble():
            return self._system().open_input_file(self._path())

    def stream(self) -> io.BufferedReader:
        """Open a file to read from its beginning, line by line."""
        if self.is_local:
            return open_regular(Path(self.uri))
        with self._plain_trouble():
            return io.BufferedReader(self._system().open_input_file(self._path()), 1 << 20)

    def read_bytes(self) -> bytes:
        with self._plain_trouble(), self.stream() as file:
            return file.read()

    def write_bytes(self, data: bytes) -> None:
        """Write a file whole or not at all, in place of one that is there. Folders are made."""
        if self.is_local:
            write_whole(Path(self.uri), data)
            return
        system, path = self._system(), self._path()
        with self._plain_trouble():
            if self.is_on_s3:
                # Nothing is visible before the upload is complete. The data is all here: a stream
                # that is closed half-way, by an error of its writer, would publish the half.
                with system.open_output_stream(path) as stream:
                    stream.write(data)
                return
            head, _, name = path.rpartition("/")
            system.create_dir(head or "/", recursive=True)
            temporary = f"{head}/.{name}.{uuid.uuid4().hex}.tmp"
            with system.open_output_stream(temporary) as stream:
                stream.write(data)
            system.move(temporary, path)

    def delete(self) -> None:
        """Remove a file, if it is there."""
        if self.is_local:
            Path(self.uri).unlink(missing_ok=True)
            return
        with self._plain_trouble(), suppress(FileNotFoundError):
            self._system().delete_file(self._path())

    def delete_folder(self) -> None:
        """Remove a folder with all that is in it, if it is there."""
        with self._plain_trouble(), suppress(FileNotFoundError):
            if self.is_local:
                shutil.rmtree(self.uri)
            else:
                self._system().delete_dir(self._path())

    def delta_options(self) -> dict[str, str]:
        """The `storage_options` with which deltalake opens a table here."""
        if not self.is_on_s3:
            return {}
        endpoint, region = _endpoint(), _region()
        options = {"aws_conditional_put": "etag"}  # two commits of one version: one of them fails
        if endpoint is not None:
            options["aws_endpoint"] = endpoint
            if endpoint.startswith("http://"):
                options["aws_allow_http"] = "true"
        if region is not None:
            options["aws_region"] = region
        return options

    # The file system behind it.

    def _kind(self) -> str:
        if self.is_local:
            return "Directory" if os.path.isdir(self.uri) else "File" if os.path.exists(self.uri) else "NotFound"
        return str(self._info().type.name)

    def _info(self) -> Any:
        with self._plain_trouble():
            return self._system().get_file_info(self._path())

    def _entries(self, recursive: bool) -> Iterator[tuple[FileEntry, bool]]:
        if self.is_local:
            yield from _walk_local(self.uri, recursive)
            return
        import pyarrow.fs

        with self._plain_trouble():
            found = self._system().get_file_info(pyarrow.fs.FileSelector(self._path(), recursive=recursive))
        path = self._path().rstrip("/")
        for info in found:
            below = info.path[len(path) + 1 :]
            if DELTA_LOG not in below.split("/"):
                is_folder = info.type == pyarrow.fs.FileType.Directory
                yield FileEntry(self / below, info.size or 0, info.mtime_ns or 0), is_folder

    def _path(self) -> str:
        """How pyarrow names it: `bucket/key`, or the path on HDFS."""
        rest = self.uri.partition("://")[2]
        return rest if self.is_on_s3 else "/" + rest.partition("/")[2]

    def _system(self) -> Any:
        if self.is_on_s3:
            return _s3(tuple(os.environ.get(name) for name in SETTINGS))
        return _hdfs(self.uri.removeprefix("hdfs://").partition("/")[0])

    @contextmanager
    def _plain_trouble(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            known = trouble(error)
            if known is None:
                raise
            raise type(known)(known.errno, known.strerror, self.uri) from None


def trouble(error: BaseException) -> OSError | None:
    """What an error says of the way to the data; None if it tells of the data itself, or of no storage.

    Pyarrow raises `OSError` for both, and leaves out the number when S3 is the cause.
    """
    if not isinstance(error, OSError):
        return None
    if error.errno is not None:
        return error
    said = str(error)
    if "AWS Error" not in said:
        return None
    for word, number, sentence in _S3_TROUBLE:
        if word in said:
            cure = _CURES.get(number, "")
            return OSError(number, f"{sentence}{cure}")
    return OSError(errno.EIO, f"the storage says {said.partition('AWS Error ')[2].partition(' (Request')[0]}")


def listing(
    spark: SparkSession, places: Iterable[str | os.PathLike[str] | Location], endings: tuple[str, ...] = ("",)
) -> DataFrame:
    """All files below these places, as `LISTING_DDL`: the driver lists the first level, workers the rest.

    A place that is not there is a `PipelineError`, before any job is started.
    """
    import pyarrow

    files: list[FileEntry] = []
    folders: list[str] = []
    for one in map(place, places):
        require(one)
        if not one.is_folder():
            files.append(one.entry())
            continue
        here, below = one.children()
        files += [entry for entry in here if entry.place.name.endswith(endings)]
        folders += [folder.uri for folder in below]
    first = spark.createDataFrame(_as_batch(files), LISTING_DDL)
    if not folders:
        return first
    slices = min(len(folders), 1_000)
    dealt = spark.createDataFrame(pyarrow.table({"path": folders}), "path string").repartition(slices)

    def list_folders(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        for batch in batches:
            for path in batch.column(0).to_pylist():
                found = [entry for entry in place(path).files() if entry.place.name.endswith(endings)]
                yield from _as_batch(found).to_batches()

    return first.unionByName(dealt.mapInArrow(list_folders, LISTING_DDL))


def upload(folder: Path, target: Location) -> None:
    """Copy the files of a local folder to a place, each of them whole."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            below = target / path.relative_to(folder).as_posix()
            below.write_bytes(path.read_bytes())


def write_frame(frame: DataFrame, folder: Location) -> None:
    """Write a DataFrame as Parquet, in place of what the folder holds: one file a partition, by the workers."""
    import pyarrow
    from pyspark.sql.pandas.types import to_arrow_schema

    folder.delete_folder()

    def write(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        number = context.partitionId() if context is not None else 0
        if kept := list(batches):
            # A task that runs again writes the same file again.
            (folder / f"part-{number:05d}.parquet").write_bytes(as_parquet(pyarrow.Table.from_batches(kept)))
        yield pyarrow.RecordBatch.from_arrays([pyarrow.array([len(kept)])], names=["batches"])

    if not any(row["batches"] for row in frame.mapInArrow(write, "batches bigint").collect()):
        # An empty table has columns, too.
        (folder / "part-00000.parquet").write_bytes(as_parquet(to_arrow_schema(frame.schema).empty_table()))


def as_parquet(table: pyarrow.Table) -> bytes:
    """A table as the content of a Parquet file."""
    import pyarrow.parquet

    data = io.BytesIO()
    pyarrow.parquet.write_table(table, data, compression="zstd")
    return data.getvalue()


def require(here: Location) -> None:
    """Say in a sentence that there is nothing here, or that it cannot be reached."""
    try:
        if here.exists():
            return
        if here.is_on_s3:
            bucket = Location("/".join(here.uri.split("/")[:3]))
            if not bucket.exists():
                raise PipelineError(
                    f"there is no bucket {bucket.name!r} at {_endpoint() or 'AWS'}: create it, or name another."
                )
    except OSError as error:
        raise PipelineError(
            f"{here} cannot be read: {error.strerror or error}; check its path and permissions."
        ) from None
    raise PipelineError(f"there is nothing at {here}: name the files or the folder to read.")


def _as_batch(files: Iterable[FileEntry]) -> Any:
    from unisono.pipeline.arrow_rows import as_table

    return as_table(((entry.place.uri, entry.size_bytes, entry.modified_ns) for entry in files), LISTING_DDL)


def _parted(rest: str) -> tuple[str, str]:
    """The host or bucket after two slashes, and what follows it with its slash."""
    if not rest.startswith("//"):
        return "", rest
    host, slash, path = rest[2:].partition("/")
    return host, slash + path


def _walk_local(folder: str, recursive: bool) -> Iterator[tuple[FileEntry, bool]]:
    """Symbolic links to files are followed, links to folders are not: they may lead in a circle.

    What is removed meanwhile is passed over: a recorder removes a segment when its finished form is there. So are links that
    lead nowhere, and names that are not UTF-8, which no column of Spark can hold.
    """
    with os.scandir(folder) as children:
        for child in children:
            is_folder = child.is_dir(follow_symlinks=False)
            if (is_folder and child.name == DELTA_LOG) or not (is_folder or _is_file(child)):
                continue
            if not is_utf8(child.name):
                continue
            with suppress(FileNotFoundError):
                about = child.stat()
                yield FileEntry(Location(child.path), about.st_size, about.st_mtime_ns), is_folder
                if is_folder and recursive:
                    yield from _walk_local(child.path, True)


def _is_file(child: os.DirEntry[str]) -> bool:
    try:
        return child.is_file()
    except OSError:  # links in a circle
        return False


def _endpoint() -> str | None:
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")


def _region() -> str | None:
    return os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")


@cache
def _s3(settings: tuple[str | None, ...]) -> Any:
    """One client for each setting of the variables, which pyarrow does not all read itself."""
    import pyarrow.fs

    # A small file is one PUT. Whether there is a bucket is told when the file is closed.
    options: dict[str, Any] = {"region": _region(), "allow_delayed_open": True}
    if (endpoint := _endpoint()) is not None:
        parts = urlsplit(endpoint)
        if not parts.netloc:
            raise PipelineError(f"AWS_ENDPOINT_URL is {endpoint!r}: write http://host:port or https://host.")
        options |= {"scheme": parts.scheme, "endpoint_override": parts.netloc}
    return pyarrow.fs.S3FileSystem(**options)


@cache
def _hdfs(address: str) -> Any:
    import pyarrow.fs

    host, _, port = address.partition(":")
    try:
        return pyarrow.fs.HadoopFileSystem(host or "default", int(port or 0))
    except (OSError, ValueError) as error:
        if "libjvm" in str(error) or "libhdfs" in str(error):
            raise PipelineError(
                "hdfs:// needs Hadoop's client on this machine: set JAVA_HOME, HADOOP_HOME, and CLASSPATH to the output "
                "of `hadoop classpath --glob`."
            ) from None
        raise PipelineError(f"hdfs://{address} cannot be reached: {str(error).splitlines()[0]}.") from None
