"""What a member keeps for itself: for its owner alone, and never reached through a link that another user planted."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.journal_tools import QuickDisk
from unisono.runtime.errors import JournalError
from unisono.runtime.journal import Journal, Reader
from unisono.trace import files
from unisono.trace.files import open_private
from unisono.trace.reader import close_killed
from unisono.trace.schema import TraceError
from unisono.trace.sinks import FolderSink, finish_segment
from unisono.trace.story import tell

PRECIOUS = b"somebody else's"


@pytest.fixture
def open_umask() -> Iterator[None]:
    """Under which everything is for everybody, unless a program says otherwise."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    path = tmp_path / "precious"
    path.write_bytes(PRECIOUS)
    return path


def rights(folder: Path) -> dict[str, int]:
    found = {}
    for path in [folder, *sorted(folder.rglob("*"))]:
        with suppress(FileNotFoundError):  # a segment is renamed in a thread of its own
            found[str(path.relative_to(folder.parent))] = stat.S_IMODE(path.stat().st_mode)
    return found


def live(folder: Path) -> Journal:
    journal = Journal(folder, deliveries=True, disk=QuickDisk())
    journal.begin_life(1, "lab")
    return journal


def test_a_journal_is_for_its_owner_alone(tmp_path: Path, open_umask: None) -> None:
    folder = tmp_path / "journal"
    journal = live(folder)
    Reader(folder).register("report")
    journal.close()
    found = rights(folder)
    assert {name: mode for name, mode in found.items() if mode != 0o600} == {
        "journal": 0o700,
        "journal/readers": 0o700,
    }
    assert {"journal/lock", "journal/records", "journal/gap", "journal/readers/report"} < set(found)


@pytest.mark.parametrize("parquet", [False, True])
def test_a_trace_is_for_its_owner_alone(parquet: bool, tmp_path: Path, open_umask: None) -> None:
    rows = tell("a JOIN\na VIEW 1@a a\na END")
    sink = FolderSink(tmp_path / "trace", "story", "a", 0, segment_rows_max=2, parquet=parquet)
    for row in rows:
        sink.write([row])
    during = rights(tmp_path / "trace")
    sink.close()
    for found in (during, rights(tmp_path / "trace")):
        assert found.pop("trace") == 0o700
        assert set(found.values()) == {0o600}


def test_a_folder_that_is_there_keeps_its_rights(tmp_path: Path) -> None:
    (tmp_path / "journal").mkdir(mode=0o750)
    live(tmp_path / "journal").close()
    assert stat.S_IMODE((tmp_path / "journal").stat().st_mode) == 0o750


def refusal(error: type[Exception], do: Callable[[], object]) -> str:
    with pytest.raises(error) as refused:
        do()
    return str(refused.value)


@pytest.mark.parametrize("name", ["lock", "records", ".records.tmp", "gap", "deliveries.0000000001.journal"])
def test_a_link_in_a_journal_is_refused_and_not_followed(name: str, tmp_path: Path, precious: Path) -> None:
    folder = tmp_path / "journal"
    live(folder).close()
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(precious)
    sentence = refusal(JournalError, lambda: live(folder))
    assert "symbolic link" in sentence
    assert "\n" not in sentence
    assert precious.read_bytes() == PRECIOUS


def test_a_link_to_nothing_is_not_made_something(tmp_path: Path) -> None:
    (tmp_path / "journal").mkdir()
    (tmp_path / "journal" / "lock").symlink_to(tmp_path / "made")
    assert "symbolic link" in refusal(JournalError, lambda: live(tmp_path / "journal"))
    assert not (tmp_path / "made").exists()


def test_a_fifo_in_a_journal_does_not_hold_the_member_up(tmp_path: Path) -> None:
    (tmp_path / "journal").mkdir()
    os.mkfifo(tmp_path / "journal" / "lock")
    assert "not a regular file" in refusal(JournalError, lambda: live(tmp_path / "journal"))


def test_a_reader_follows_no_link_either(tmp_path: Path, precious: Path) -> None:
    folder = tmp_path / "journal"
    live(folder).close()
    (segment,) = folder.glob("deliveries.*")
    segment.unlink()
    segment.symlink_to(precious)
    assert "symbolic link" in refusal(JournalError, lambda: list(Reader(folder).rows()))


def test_a_trace_is_not_written_through_links(tmp_path: Path, precious: Path) -> None:
    rows = tell("a JOIN\na VIEW 1@a a\na END")
    stem = "story.a.0"
    (tmp_path / f"{stem}.life").symlink_to(precious)
    refusal(TraceError, lambda: FolderSink(tmp_path, "story", "a", 0))
    (tmp_path / f"{stem}.life").unlink()
    path = tmp_path / f"{stem}.000000.open.jsonl"
    for parquet in (False, True):
        (tmp_path / f"{stem}.000000.tmp").symlink_to(precious)
        finished = finish_segment(path, rows, parquet)
        assert not finished.is_symlink()
    assert precious.read_bytes() == PRECIOUS


def test_closing_a_trace_follows_no_link(tmp_path: Path, precious: Path) -> None:
    (tmp_path / "story.a.0.life").symlink_to(precious)
    assert "symbolic link" in refusal(TraceError, lambda: close_killed(tmp_path))


@pytest.mark.parametrize("uri", ["s3a://bucket/x", "HDFS://host/x", "file:///x"])
def test_a_trace_for_other_storage_is_refused_and_no_folder_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uri: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "local folders only" in refusal(TraceError, lambda: FolderSink(Path(uri), "story", "a", 0))
    assert os.listdir(tmp_path) == []


# Planted faults.


def test_an_opener_that_follows_links_is_found(tmp_path: Path, precious: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "O_NOFOLLOW", 0)
    with pytest.raises((pytest.fail.Exception, AssertionError)):
        test_a_link_in_a_journal_is_refused_and_not_followed("lock", tmp_path, precious)


def test_an_opener_that_leaves_rights_to_the_umask_is_found(
    tmp_path: Path, open_umask: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.open
    monkeypatch.setattr(os, "open", lambda path, flags, mode=0o666, **rest: real(path, flags, 0o666, **rest))
    with pytest.raises(AssertionError):
        test_a_journal_is_for_its_owner_alone(tmp_path, None)


def test_an_opener_that_takes_anything_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_regular", lambda file, path: file)
    with pytest.raises((pytest.fail.Exception, AssertionError)):
        test_a_fifo_in_a_journal_does_not_hold_the_member_up(tmp_path)
    os.mkfifo(tmp_path / "fifo")
    os.close(open_private(tmp_path / "fifo"))
