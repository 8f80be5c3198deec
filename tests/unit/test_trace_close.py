"""Traces of members that were killed: closed from outside, without taking anything for whole that is not."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.net.programs import Done
from tests.unit.test_trace_files import kill, names, of, wait_for_the_thread
from unisono.trace import reader, sinks
from unisono.trace.checks import Result, Verdict, judge
from unisono.trace.promises import promises
from unisono.trace.reader import LifeKey, close_killed, read
from unisono.trace.schema import TraceError
from unisono.trace.sinks import FolderSink
from unisono.trace.story import tell

STORY = """
a,b VIEW 1@a a b
a CAST x
a,b DELIVER x
a CAST y
a,b DELIVER y
b END
"""
A = LifeKey("story", "a", 0)
REAL_INCARNATION = 1_795_070_435_416_330_147
"""As a process begins it: a time in nanoseconds."""


def sink_of(folder: Path, member: str) -> FolderSink:
    return FolderSink(folder, "story", member, 0, parquet=False)


def verdict_on(folder: Path) -> Verdict:
    return judge(read(folder).events(), promises("causal-total"))


def refuse(*arguments: object) -> int:
    raise OSError(errno.ENOSPC, "No space left on device")


def record_b(folder: Path) -> None:
    sink = sink_of(folder, "b")
    sink.write(of(tell(STORY), "b"))
    sink.close()


def record_a_on_a_full_disk(folder: Path, monkeypatch: pytest.MonkeyPatch) -> FolderSink:
    """There is room for everything up to its second cast."""
    rows = of(tell(STORY), "a")
    sink = sink_of(folder, "a")
    sink.write(rows[:3])
    with monkeypatch.context() as full:
        full.setattr(os, "write", refuse)
        for row in rows[3:]:
            with pytest.raises(OSError, match="No space left"):
                sink.write([row])
    return sink


@pytest.mark.parametrize("killed", [True, False])
def test_rows_that_a_full_disk_did_not_take_stay_a_gap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed: bool
) -> None:
    """Found by reading: CRASH came right behind the last row that was written, and the rest had never been cast."""
    record_b(tmp_path)
    sink = record_a_on_a_full_disk(tmp_path, monkeypatch)
    if killed:
        kill(sink)
    else:
        sink.close()  # its ending did not fit on the disk either
    assert close_killed(tmp_path) == [A]
    verdict = verdict_on(tmp_path)
    assert verdict.result is Result.UNKNOWN
    assert list(verdict.unknown) == ["a"]
    assert "story.a.0.life" not in names(tmp_path)


def test_a_gap_that_the_rows_show_needs_no_mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = record_a_on_a_full_disk(tmp_path, monkeypatch)
    assert sink.life.read_text() == "gap  \n"
    (later,) = of(tell(STORY + "a CAST z"), "a")[-1:]
    sink.write([later])
    assert sink.life.read_text() == "whole\n"
    sink.close()
    assert names(tmp_path) == ["story.a.0.000000.jsonl"]


def test_after_a_power_cut_nobody_knows_the_last_rows(tmp_path: Path) -> None:
    record_b(tmp_path)
    sink = sink_of(tmp_path, "a")
    sink.write(of(tell(STORY), "a")[:3])  # all that the disk had when the power went
    kill(sink)
    assert Done("trace", "close", str(tmp_path), "--power-cut").out == "story: a closed with CRASH\n"
    assert verdict_on(tmp_path).result is Result.UNKNOWN


def test_a_member_that_is_alive_is_not_closed(tmp_path: Path) -> None:
    """Found by reading: it was, and what it wrote from then on went into a file without a name."""
    record_b(tmp_path)
    rows = of(tell(STORY + "a END"), "a")
    sink = sink_of(tmp_path, "a")
    sink.write(rows[:3])
    said = Done("trace", "close", str(tmp_path)).out
    assert said == "story: a is left as it is, because its process is alive: end it first.\n"
    sink.write(rows[3:])
    sink.close()
    assert close_killed(tmp_path) == []
    assert list(read(tmp_path).lives[A]) == rows
    assert verdict_on(tmp_path).result is Result.PASS


@pytest.mark.parametrize("incarnation", [0, REAL_INCARNATION])
def test_closing_keeps_every_row_of_a_killed_life(tmp_path: Path, incarnation: int) -> None:
    """Found by the demo: an incarnation of 19 digits was no number, and CRASH took the place of all other rows."""
    rows = [
        replace(row, incarnation=incarnation, origin_incarnation=incarnation if row.origin else None)
        for row in of(tell(STORY), "a")
    ]
    sink = FolderSink(tmp_path, "story", "a", incarnation, parquet=False)
    sink.write(rows)
    kill(sink)
    assert close_killed(tmp_path) == [LifeKey("story", "a", incarnation)]
    assert names(tmp_path) == [f"story.a.{incarnation}.000000.parquet"]
    *kept, crash = read(tmp_path).lives[LifeKey("story", "a", incarnation)]
    assert kept == rows
    assert (crash.kind, crash.local_index) == ("CRASH", rows[-1].local_index + 1)


def test_closing_replaces_no_file_whose_name_is_no_segments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = sink_of(tmp_path, "a")
    sink.write(of(tell(STORY), "a"))
    kill(sink)
    (opened,) = tmp_path.glob("*.open.jsonl")
    before = opened.read_bytes()
    monkeypatch.setattr(reader, "segment_name", lambda name: None)
    with pytest.raises(TraceError, match="rename that file"):
        close_killed(tmp_path)
    assert opened.read_bytes() == before


def test_a_member_that_is_between_two_segments_is_alive_too(tmp_path: Path) -> None:
    sink = FolderSink(tmp_path, "story", "a", 0, parquet=False, segment_rows_max=1)
    sink.write(of(tell(STORY), "a")[:1])
    wait_for_the_thread(sink)
    assert names(tmp_path) == ["story.a.0.000000.jsonl", "story.a.0.life"]
    assert close_killed(tmp_path) == []
    kill(sink)
    assert close_killed(tmp_path) == [A]


def test_segments_that_were_still_to_be_finished_are_read_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record_b(tmp_path)
    rows = of(tell(STORY), "a")
    sink = FolderSink(tmp_path, "story", "a", 0, parquet=False, segment_rows_max=2)
    with monkeypatch.context() as slow:
        slow.setattr(sinks, "_sync", refuse)
        for row in rows:
            sink.write([row])
        kill(sink)
    assert close_killed(tmp_path) == [A]
    closed = read(tmp_path).lives[A]
    assert closed[:-1] == rows
    assert (closed[-1].kind, closed[-1].local_index) == ("CRASH", len(rows))
    assert verdict_on(tmp_path).result is Result.PASS


def test_who_may_not_look_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbid(path: Path) -> bool:
        raise PermissionError(errno.EACCES, "Permission denied")

    sink = sink_of(tmp_path, "a")
    sink.write(of(tell(STORY), "a"))
    monkeypatch.setattr(reader, "is_held", forbid)
    with pytest.raises(TraceError, match="cannot be read: Permission denied"):
        close_killed(tmp_path)
    kill(sink)


def test_a_life_that_cannot_begin_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as full:
        full.setattr(os, "pwrite", refuse)
        with pytest.raises(TraceError, match="No space left"):
            sink_of(tmp_path, "a")
    assert names(tmp_path) == []


FORKING = """
import os, signal, sys
from pathlib import Path
from unisono.trace.lockfile import Lockfile, is_held
path = Path(sys.argv[1])
held = Lockfile(path)
ours, theirs = os.pipe()
child = os.fork()
if child == 0:
    held.release()  # which is not the child's to do
    os.write(theirs, b".")
    signal.pause()
os.read(ours, 1)
print(is_held(path))
held.forget()  # as it is when this process ends
print(is_held(path))
os.kill(child, signal.SIGKILL)
"""


def test_a_forked_child_holds_nothing(tmp_path: Path) -> None:
    """Found by reading: a file stayed locked as long as a child lived, whatever had become of the process that held it."""
    command = [sys.executable, "-c", FORKING, str(tmp_path / "lock")]
    assert subprocess.run(command, capture_output=True, check=True, text=True).stdout.split() == ["True", "False"]
