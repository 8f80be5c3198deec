"""Trace folders: written, rotated, damaged, read back."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Event as Signal

import pytest

from unisono.trace import reader, sinks
from unisono.trace.checks import Result, judge
from unisono.trace.parquet import arrow_schema
from unisono.trace.promises import promises
from unisono.trace.reader import LifeKey, close_killed, read
from unisono.trace.schema import Event, TraceError, to_line
from unisono.trace.sinks import OPEN, FolderSink, finish_segment, segment_name, stem_of
from unisono.trace.story import tell

STORY = """
a,b JOIN
a,b VIEW 1@a a b
a CAST x to b vector 0,0
a PLACE x
b DELIVER x
b CAST y count 3 vector 1,0
a,b DELIVER y
all END
"""


def of(events: list[Event], member: str) -> list[Event]:
    return [event for event in events if event.member == member]


def record(folder: Path, events: list[Event], *, parquet: bool, rows: int = 4, close: bool = True) -> None:
    """Write a story as its members would, a row a turn."""
    for member in sorted({event.member for event in events}):
        sink = FolderSink(folder, "story", member, 0, segment_rows_max=rows, parquet=parquet)
        for event in of(events, member):
            sink.write([event])
        if close:
            sink.close()
        else:
            kill(sink)


def kill(sink: FolderSink) -> None:
    """What the system does with the files of a process that ends without a word, here when its thread has nothing to do."""
    wait_for_the_thread(sink)
    if sink._file >= 0:
        os.close(sink._file)
    sink._life.release()


def wait_for_the_thread(sink: FolderSink) -> None:
    for job in sink._finishing:
        job.result()


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("parquet", [False, True])
def test_what_is_written_is_read(tmp_path: Path, parquet: bool) -> None:
    events = tell(STORY, protocol="causal", service="causal")
    record(tmp_path, events, parquet=parquet)
    ending = "parquet" if parquet else "jsonl"
    assert names(tmp_path) == [f"story.{who}.0.{n:06d}.{ending}" for who in "ab" for n in range(2)]
    trace = read(tmp_path)
    assert list(trace.lives) == [LifeKey("story", "a", 0), LifeKey("story", "b", 0)]
    assert list(trace.events()) == of(events, "a") + of(events, "b")
    assert trace.runs == ["story"]
    assert trace.notes == []
    assert judge(trace.events("story"), promises("causal")).result is Result.PASS
    assert list(read(sorted(tmp_path.iterdir())).events()) == list(trace.events())
    assert len(read(tmp_path / f"story.a.0.000000.{ending}").lives) == 1


def test_open_segments_are_read_too(tmp_path: Path) -> None:
    events = tell(STORY)
    record(tmp_path, events, parquet=True, close=False)
    assert any(name.endswith(OPEN) for name in names(tmp_path))
    assert list(read(tmp_path).events()) == of(events, "a") + of(events, "b")


def test_a_torn_last_line_is_a_gap(tmp_path: Path) -> None:
    events = tell(STORY)
    record(tmp_path, events, parquet=False, rows=100, close=False)
    path = tmp_path / f"story.a.0.000000{OPEN}"
    path.write_bytes(path.read_bytes()[:-9])
    trace = read(tmp_path)
    assert list(trace.events()) == of(events, "a")[:-1] + of(events, "b")
    assert trace.notes == [f"{path}: the last line is torn; its row is missing."]
    assert judge(trace.events(), promises("causal-total")).result is Result.UNKNOWN


@pytest.mark.parametrize("parquet", [False, True])
def test_a_killed_process_is_closed(tmp_path: Path, parquet: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "can_write_parquet", lambda: parquet)
    events = [event for event in tell(STORY) if event.kind != "END" or event.member == "b"]
    record(tmp_path, events, parquet=parquet, close=False)
    assert close_killed(tmp_path, member="b") == []
    assert close_killed(tmp_path) == [LifeKey("story", "a", 0)]
    assert close_killed(tmp_path) == []
    rows = read(tmp_path).lives[LifeKey("story", "a", 0)]
    assert (rows[-1].kind, rows[-1].reason, rows[-1].local_index) == ("CRASH", "killed", len(rows) - 1)
    assert rows[-1].view == "1@a"
    assert not [name for name in names(tmp_path) if name.startswith("story.a.") and name.endswith(OPEN)]
    assert judge(read(tmp_path).events(), promises("causal-total")).result is Result.PASS


def test_a_killed_process_with_only_finished_segments_is_closed(tmp_path: Path) -> None:
    record(tmp_path, [event for event in tell(STORY) if event.kind != "END"], parquet=False, rows=1)
    assert len(close_killed(tmp_path, run="story", incarnation=0, reason="kill -9")) == 2
    assert {rows[-1].reason for rows in read(tmp_path).lives.values()} == {"kill -9"}


def test_a_killed_process_with_a_torn_line_keeps_its_gap(tmp_path: Path) -> None:
    events = [event for event in tell(STORY) if event.kind != "END"]
    record(tmp_path, events, parquet=False, rows=100, close=False)
    path = tmp_path / f"story.a.0.000000{OPEN}"
    path.write_bytes(path.read_bytes()[:-1])
    close_killed(tmp_path)
    verdict = judge(read(tmp_path).events(), promises("causal-total"))
    assert verdict.result is Result.UNKNOWN
    assert list(verdict.unknown) == ["a"]


def test_an_open_segment_whose_finished_twin_exists_is_left_out(tmp_path: Path) -> None:
    events = tell(STORY)
    record(tmp_path, events, parquet=True, rows=100)
    twin = tmp_path / f"story.a.0.000000{OPEN}"
    twin.write_text("".join(map(to_line, of(events, "a"))))
    trace = read(tmp_path)
    assert list(trace.events()) == of(events, "a") + of(events, "b")
    assert trace.notes == [f"{twin} is left out: story.a.0.000000.parquet is the same segment, finished."]


def test_a_torn_line_is_a_problem_for_a_judge(tmp_path: Path) -> None:
    """Behind an END, or in the segment of a stranger, the row that it was counted for nothing."""
    events = tell(STORY)
    record(tmp_path, events, parquet=False, rows=100, close=False)
    ended, strange = tmp_path / f"story.b.0.000000{OPEN}", tmp_path / f"story.z.0.000000{OPEN}"
    ended.write_text("".join(map(to_line, of(events, "b"))) + '{"run":')
    strange.write_text('{"run":')
    trace = read(tmp_path, tolerant=True)
    verdict = judge(trace.events(), promises("causal-total"), troubled=trace.troubled["story"])
    assert verdict.result is Result.UNKNOWN
    assert list(verdict.unknown) == ["b", "z"]
    assert all(why.endswith("the last line is torn; its row is missing.") for why in verdict.unknown.values())


def test_an_open_segment_that_tells_another_story_than_its_finished_twin_is_a_problem(tmp_path: Path) -> None:
    events = tell(STORY)
    record(tmp_path, events, parquet=True, rows=100)
    twin = tmp_path / f"story.a.0.000000{OPEN}"
    rows = of(events, "a")
    twin.write_text("".join(map(to_line, rows[:2])) + '{"run":')
    trace = read(tmp_path, tolerant=True)
    assert not trace.problems, "a killed process may leave fewer rows, and a torn line"
    twin.write_text("".join(map(to_line, [*rows[:-1], replace(rows[-1], reason="another")])))
    trace = read(tmp_path, tolerant=True)
    assert list(trace.troubled["story"]) == ["a"]
    assert not trace.notes
    with pytest.raises(TraceError, match="which of the two is right"):
        read(tmp_path)


def test_only_segments_have_an_open_form(tmp_path: Path) -> None:
    """`log.open.jsonl` was left out as the open form of `log.jsonl`, which told of another run."""
    events = tell(STORY)
    (tmp_path / "log.jsonl").write_text("".join(map(to_line, events)))
    (tmp_path / f"log{OPEN}").write_text("".join(to_line(replace(event, run="other")) for event in events))
    assert read(tmp_path).runs == ["other", "story"]


@pytest.mark.parametrize(
    "name",
    [
        "run.b.².000001",
        "run.b.٣.000001",
        "run.b.99999999999999999999.000000",
        "run.b.9223372036854775808.0",
        "run.b.0.²",
        "run.b.0",
        "run.b.0.0.0",
    ],
)
def test_a_name_that_only_looks_like_a_segments_is_a_name_of_its_own(name: str, tmp_path: Path) -> None:
    assert segment_name(f"{name}.jsonl") is None
    record(tmp_path, tell(STORY), parquet=False)
    for ending in (".jsonl", OPEN):
        (tmp_path / f"{name}{ending}").write_text(f"{ending}\n")
    trace = read(tmp_path, tolerant=True)
    assert [(problem.run, problem.who) for problem in trace.problems] == [(None, None)] * 2


@pytest.mark.parametrize(
    ("run", "member", "incarnation"), [("a run.1", "b/c", 3), ("", "", 0), ("r", "é@x:1", 1_795_070_435_416_330_147)]
)
def test_the_name_of_a_segment_tells_what_it_was_made_of(run: str, member: str, incarnation: int) -> None:
    for ending in (".parquet", ".jsonl", OPEN):
        name = f"{stem_of(run, member, incarnation)}.000007{ending}"
        assert segment_name(name) == (run, member, incarnation, 7)


def test_folders_links_and_checkpoints_with_the_ending_of_a_segment_are_passed_over(tmp_path: Path) -> None:
    below = tmp_path / "trace.parquet"
    record(below, tell(STORY), parquet=False)
    (below / "_delta_log").mkdir()
    (below / "sub").mkdir()
    (below / "sub" / "_delta_log").mkdir()
    (below / "sub" / "_delta_log" / "0.checkpoint.parquet").write_bytes(b"")
    (tmp_path / "gone.jsonl").symlink_to(tmp_path / "nothing")
    (tmp_path / "circle.jsonl").symlink_to(tmp_path / "circle.jsonl")
    (tmp_path / "folder.jsonl").symlink_to(below)
    with open(bytes(tmp_path) + b"/\xff.jsonl", "wb") as file:
        file.write(b"{\n")
    trace = read(tmp_path, tolerant=True)
    assert trace.runs == ["story"]
    assert not trace.problems
    assert sorted(note.partition("passed over: ")[2] for note in trace.notes) == [
        "it is neither a file nor a link to one.",
        "it is neither a file nor a link to one.",
        "its name is not UTF-8. Rename it, so that it is read.",
    ]


def test_the_folder_of_a_delta_table_is_refused(tmp_path: Path) -> None:
    """Merged files and those that they replace lie side by side, and every delivery would be there twice."""
    record(tmp_path, tell(STORY), parquet=False)
    (tmp_path / "_delta_log").mkdir()
    with pytest.raises(TraceError, match=r"is a Delta table.*unisono trace verify"):
        read(tmp_path, tolerant=True)


def test_a_copied_segment_is_detected(tmp_path: Path) -> None:
    record(tmp_path, tell(STORY), parquet=False)
    copy = tmp_path / "copy.jsonl"
    copy.write_bytes((tmp_path / "story.a.0.000001.jsonl").read_bytes())
    with pytest.raises(TraceError, match=r"is a copy of .*: remove one of the two"):
        read(tmp_path)


def test_a_segment_of_the_same_name_in_another_folder_is_refused(tmp_path: Path) -> None:
    record(tmp_path, tell(STORY), parquet=False)
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "story.a.0.000001.jsonl").write_text("")
    with pytest.raises(TraceError, match=r"has the name of .*: remove the copy, or judge the two folders apart"):
        read(tmp_path)


def test_subfolders_are_read_and_rows_come_in_the_order_of_their_indices(tmp_path: Path) -> None:
    record(tmp_path / "one" / "two", tell(STORY), parquet=False)
    for path in tmp_path.rglob("*.jsonl"):
        path.write_text("".join(reversed(path.read_text().splitlines(keepends=True))))
    for rows in read(tmp_path).lives.values():
        assert [row.local_index for row in rows] == list(range(len(rows)))


def test_a_tolerant_reader_goes_on_behind_a_bad_row(tmp_path: Path) -> None:
    good, other, *_ = map(to_line, tell(STORY))
    (tmp_path / "story.a.0.000000.jsonl").write_text(good + "{}\n" + other + "{")
    trace = read(tmp_path, tolerant=True)
    assert len(list(trace.events())) == 2
    assert [(run, who) for run, who, _ in trace.problems] == [("story", "a"), ("story", "a")]
    assert "line 2, column run: is missing" in trace.troubled["story"]["a"]


def test_errors_name_file_and_line(tmp_path: Path) -> None:
    good = to_line(tell(STORY)[0])
    path = tmp_path / "t.jsonl"
    path.write_text(good + "{}\n")
    with pytest.raises(TraceError, match=r"t\.jsonl, line 2, column run: is missing"):
        read(path)
    path.write_text(good + good.rstrip())
    with pytest.raises(TraceError, match=r"t\.jsonl, line 2: the file ends in the middle of a line"):
        read(path)
    path.write_bytes(good.encode() + b"\xff\n")
    with pytest.raises(TraceError, match=r"t\.jsonl, line 2: this is not UTF-8"):
        read(path)
    bad = tmp_path / "bad.parquet"
    bad.write_bytes(b"nothing of the kind")
    with pytest.raises(TraceError, match=r"bad\.parquet is not a Parquet file"):
        read(bad)


def test_what_is_not_there_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="there is no trace at"):
        read(tmp_path / "nowhere")
    with pytest.raises(TraceError, match="holds no trace"):
        read(tmp_path)


def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    later = arrow_schema().with_metadata({b"unisono.schema": b"99"})
    parquet.write_table(later.empty_table(), tmp_path / "t.parquet")
    with pytest.raises(TraceError, match="has version 99 of the trace schema; this program knows 1"):
        read(tmp_path)


def test_a_useless_folder_is_refused_before_anything_runs(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(TraceError, match="it is a file, not a folder"):
        FolderSink(file, "r", "a", 0)
    with pytest.raises(TraceError, match=r"a trace cannot be written to .*: Not a directory"):
        FolderSink(file / "below", "r", "a", 0)
    FolderSink(tmp_path, "r", "a", 0).close()
    sink = FolderSink(tmp_path, "r", "a", 0)
    with pytest.raises(TraceError, match="already holds a trace of a"):
        FolderSink(tmp_path, "r", "a", 0)
    FolderSink(tmp_path, "r", "a", 1).close()
    sink.close()


def test_a_folder_without_permission_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not by taking permissions away, because root has them all the same."""

    def refuse(*arguments: object) -> int:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(TraceError, match="Permission denied"):
        FolderSink(tmp_path, "r", "a", 0)


def half_of(write: Callable[[int, bytes], int]) -> Callable[[int, bytes], int]:
    """A disk that takes half of what it is given, and then nothing more."""
    calls = []

    def limited(file: int, data: bytes) -> int:
        calls.append(file)
        if len(calls) % 2:
            return write(file, bytes(data)[: len(data) // 2])
        raise OSError(errno.ENOSPC, "No space left on device")

    return limited


def test_half_a_write_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events = of(tell(STORY), "a")
    sink = FolderSink(tmp_path, "story", "a", 0, parquet=False)
    sink.write(events[:2])
    with monkeypatch.context() as full:
        full.setattr(os, "write", half_of(os.write))
        with pytest.raises(OSError, match="No space left"):
            sink.write(events[2:4])
    sink.write(events[4:])
    assert list(read(tmp_path).events()) == events[:2] + events[4:]
    sink.close()


def test_where_half_a_write_cannot_be_cut_off_another_segment_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    events = of(tell(STORY), "a")
    sink = FolderSink(tmp_path, "story", "a", 0, parquet=False)
    sink.write(events[:2])
    with monkeypatch.context() as broken:
        broken.setattr(os, "write", half_of(os.write))
        broken.setattr(os, "ftruncate", refuse)
        with pytest.raises(OSError, match="No space left"):
            sink.write(events[2:3])
    sink.write(events[3:])
    sink.close()
    assert names(tmp_path) == [f"story.a.0.000000{OPEN}", "story.a.0.000001.jsonl"]
    assert list(read(tmp_path).events()) == events[:2] + events[3:]


def test_a_segment_that_cannot_be_finished_stays_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    events = of(tell(STORY), "a")
    sink = FolderSink(tmp_path, "story", "a", 0, parquet=False, segment_rows_max=2)
    with monkeypatch.context() as full:
        full.setattr(sinks, "_sync", refuse)
        for event in events[:4]:
            sink.write([event])
        wait_for_the_thread(sink)
        assert names(tmp_path) == [f"story.a.0.000000{OPEN}", f"story.a.0.000001{OPEN}", "story.a.0.life"]
    for event in events[4:6]:
        sink.write([event])
    wait_for_the_thread(sink)
    assert names(tmp_path) == [*(f"story.a.0.{n:06d}.jsonl" for n in range(3)), "story.a.0.life"], "it was tried again"
    for event in events[6:]:
        sink.write([event])
    with monkeypatch.context() as full:
        full.setattr(sinks, "_sync", refuse)
        sink.close()
    assert list(read(tmp_path).events()) == events
    assert not [name for name in names(tmp_path) if name.endswith(".tmp")]


def test_no_turn_waits_until_a_segment_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Found by reading: the whole segment was written once more, and synced, in the middle of a turn."""
    events = of(tell(STORY), "a")
    is_free = Signal()

    def finish(path: Path, rows: Sequence[Event], parquet: bool) -> Path:
        assert is_free.wait(60)
        finished.append(path.name)
        return finish_segment(path, rows, parquet)

    finished: list[str] = []
    monkeypatch.setattr(sinks, "finish_segment", finish)
    sink = FolderSink(tmp_path, "story", "a", 0, parquet=False, segment_rows_max=2)
    for event in events:
        sink.write([event])
    assert finished == []
    assert list(read(tmp_path).events()) == events
    is_free.set()
    sink.close()
    assert finished == [f"story.a.0.{n:06d}{OPEN}" for n in range(len(finished))]
    assert names(tmp_path) == [f"story.a.0.{n:06d}.jsonl" for n in range(len(finished))]
    assert list(read(tmp_path).events()) == events


def test_strange_names_make_good_file_names(tmp_path: Path) -> None:
    event = tell("a JOIN")[0]
    event.run, event.member = "../r 1*", "[::1]:5000"
    sink = FolderSink(tmp_path, event.run, event.member, 0, parquet=False)
    sink.write([event])
    sink.close()
    assert len(names(tmp_path)) == 1
    assert list(read(tmp_path).events()) == [event]


def test_without_pyarrow_parquet_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    record(tmp_path, tell(STORY), parquet=True)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(TraceError, match="please install pyarrow"):
        read(tmp_path)
