"""Views judged by a stream: exactly once through restarts, and hooks once."""

from __future__ import annotations

import http.server
import json
import shutil
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow
import pytest
from typer.testing import CliRunner, Result

pytest.importorskip("pyspark")

from tests.pipeline.traces import damaged, simulated
from tests.pipeline.view_tools import Lakeside, facts_of, lives_of, parts_of, results_of, said_of
from unisono.cli.app import app
from unisono.pipeline import watch_hooks
from unisono.pipeline.data_files import write_data_file
from unisono.pipeline.lake import SCHEMAS, LakeTable, TableChange, open_table
from unisono.pipeline.looks import ROWS_ON_SPARK_MAX, look_at_rows
from unisono.pipeline.storage import place
from unisono.pipeline.view_judge import Said
from unisono.pipeline.views_table import GroupState, group_states
from unisono.pipeline.watch import VIEWS, Tell, start_watch
from unisono.pipeline.watch_hooks import Hook, ViewMetrics
from unisono.pipeline.watch_service import Teller
from unisono.trace.story import tell

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEADLINE_S = 120.0
STORY = """
a,b VIEW 1@a a b
a CAST x
b CAST y
a,b DELIVER x
a,b DELIVER y
a,b BLOCK
a,b VIEW 2@a a b from a b
all END
"""

CRASH = """
a,b VIEW 1@a a b
a CAST x
b CAST y
a,b DELIVER x
a DELIVER y
b CRASH
a BLOCK
a VIEW 2@a a from a
a END
"""


def test_watching_waits_for_the_first_verdict_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`pipeline run` needs Spark and takes longer to start than `pipeline watch`."""
    said = ask_watch(tmp_path, "--once")
    assert "has no verdicts on views yet" in str(said.exception)
    assert "add --once" in str(ask_watch(tmp_path, "--json").exception)
    looks = 0

    def looked(seconds: float) -> None:
        nonlocal looks
        looks += 1
        if looks == 2:
            LakeTable.made(place(tmp_path / "views"), VIEWS)
        if looks == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", looked)
    said = ask_watch(tmp_path)
    assert (said.exit_code, looks) == (0, 4), said.output
    assert said.stdout.startswith("waiting:")


def ask_watch(out: Path, *options: str) -> Result:
    return CliRunner().invoke(app, ["pipeline", "watch", "--out", str(out), *options])


def rows_of(out: Path) -> list[dict[str, Any]]:
    return list(open_table(str(out), "views").read().to_pylist())


def wait_for(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.1)


def seen_by(query: Any) -> int:
    """The last batch of facts that the stream has judged. With timers it never idles."""
    assert query.isActive, query.exception()
    progress = query.lastProgress
    if progress is None:
        return 0
    return max((json.loads(str(source["endOffset"]))["batch"] for source in progress["sources"]), default=0)


@contextmanager
def watching(spark: SparkSession, out: Path, **options: Any) -> Iterator[Any]:
    query = start_watch(spark, str(out), str(out / "_watch"), every_s=0.1, **options)
    try:
        yield query
        if query.exception() is not None:
            raise AssertionError(str(query.exception()))
    finally:
        query.stop()


def test_a_stream_says_what_the_judge_says_each_once_through_restarts(spark: SparkSession, tmp_path: Path) -> None:
    sources = list(simulated(1))
    traces = dict([*sources[:5], *damaged(sources, 8)])
    parts = {run: parts_of(trace, Random(run)) for run, trace in traces.items()}
    steps = [part for some in parts.values() for part in some]
    Random(1).shuffle(steps)  # late files, and runs at the same time
    side = Lakeside(tmp_path)
    third = len(steps) // 3
    told: list[dict[str, Any]] = []
    for some in (steps[:third], steps[third : 2 * third], steps[2 * third :]):
        with watching(spark, tmp_path, tell=lambda rows, is_new: told.extend(rows if is_new else ())) as query:
            batch = side.take(some)
            wait_for(lambda query=query, batch=batch: seen_by(query) >= batch, "the stream")  # type: ignore[misc]
    states = group_states(rows_of(tmp_path))
    for run, trace in traces.items():
        expected = results_of(said_of([facts_of(name, rows) for name, rows in parts[run]]), trace)
        found = {view: row["result"] for view, row in states[run, trace[0].group].views.items()}
        assert found == {view: result for view, (result, _) in expected.items()}, run
    assert any(state.failures for state in states.values())
    repeats = Counter((row["run"], row["view"], row["result"], row["id"]) for row in rows_of(tmp_path))
    assert set(repeats.values()) == {1}
    told_ids = {row["id"] for row in told if row["id"] is not None}
    shutil.rmtree(tmp_path / "_watch")  # a lost checkpoint: all is judged again, and no violation is told again
    more = tell(STORY, run="after the loss")
    with watching(spark, tmp_path, tell=lambda rows, is_new: told.extend(rows if is_new else ())) as query:
        batch = side.take(parts_of(more, Random(1)))
        wait_for(lambda: seen_by(query) >= batch, "the stream")
    again = group_states(rows_of(tmp_path))
    assert str(again.pop(("after the loss", "g"))) == "PASS so far, to view 2@a"
    assert {whose: str(state) for whose, state in again.items()} == {
        whose: str(state) for whose, state in states.items()
    }
    assert sum(row["id"] is not None for row in told) == len(told_ids)
    assert told_ids == {row["id"] for row in rows_of(tmp_path) if row["id"] is not None}


def test_a_member_that_stays_silent_makes_its_view_unknown_until_it_speaks(spark: SparkSession, tmp_path: Path) -> None:
    lives = lives_of(tell(STORY, run="silent"))
    side = Lakeside(tmp_path)
    side.take([("a", lives["a"])])
    with watching(spark, tmp_path, limit_s=1.0):
        wait_for(lambda: "UNKNOWN" in {row["result"] for row in rows_of(tmp_path)}, "the time limit")
        side.take([("b", lives["b"])])
        wait_for(lambda: Counter(row["result"] for row in rows_of(tmp_path))["PASS"] == 2, "the correction")
    (state,) = group_states(rows_of(tmp_path)).values()
    assert str(state) == "PASS so far, to view 2@a"


def test_a_view_that_is_too_large_for_a_task_is_judged_on_spark_while_its_group_goes_on(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Three groups go on: in one a member crashed, in one it did and another delivered twice, one fails while its view is open."""
    goes_on = CRASH.replace("a END\n", "")
    again = goes_on.replace("a BLOCK", "a DELIVER y\na BLOCK")
    bad = lives_of(tell(STORY, run="late"))
    twice = replace(bad["b"][-4], local_index=bad["b"][-4].local_index + 1)
    side = Lakeside(tmp_path)
    with watching(spark, tmp_path, rows_max=2):
        side.take(
            [
                ("a", bad["a"][:4]),
                ("b", [*bad["b"][:-3], twice]),
                *lives_of(tell(goes_on, run="crashed")).items(),
                *lives_of(tell(again, run="again")).items(),
            ]
        )
        wait_for(lambda: len({row["run"] for row in rows_of(tmp_path) if row["result"] != "open"}) == 3, "the verdicts")
    views = {(run, view): row for (run, _), state in states_of(tmp_path) for view, row in state.views.items()}
    assert {key: row["result"] for key, row in views.items()} == {
        ("crashed", "1@a"): "PASS",
        ("crashed", "2@a"): "open",
        ("again", "1@a"): "FAIL",
        ("again", "2@a"): "open",
        ("late", "1@a"): "FAIL",
    }
    assert {views[key]["by"] for key in views if views[key]["result"] != "open"} == {"rows"}
    found = {row["run"]: row for row in rows_of(tmp_path) if row["property"] == "P2"}
    assert {run: (row["members"], row["sentence"]) for run, row in found.items()} == {
        "again": (["a"], "a delivered b:0 twice (local 3 and local 4)."),
        "late": (["b"], "b delivered b:0 twice (local 3 and local 4)."),
    }
    assert dict(found["again"]["witness"]) == {"message": "b:0", "local": "3", "again_local": "4"}


def states_of(out: Path) -> Iterable[tuple[tuple[str, str], GroupState]]:
    return group_states(rows_of(out)).items()


# Without Spark.


def test_a_view_with_more_rows_than_are_looked_at_is_unknown_and_says_why(tmp_path: Path) -> None:
    said = Said("7@a", "rows", "causal", "b crashed", rows=ROWS_ON_SPARK_MAX + 1)
    (verdict,) = look_at_rows(None, place(tmp_path), [("r", "g", said)])  # type: ignore[arg-type]
    assert verdict.result == "UNKNOWN"
    assert verdict.why == (
        "b crashed; the view has 10000001 rows, and views of more than 10000000 are not looked at; "
        "the verdict on the run decides when it ends"
    )


VIOLATION = {"id": "abc", "run": "r", "group": "g", "view": "1@a", "property": "P2", "sentence": "a did it twice."}


def test_a_command_is_called_once_for_each_violation(tmp_path: Path) -> None:
    said = tmp_path / "said"
    script = f"import sys; open({str(said)!r}, 'a').write(sys.stdin.read())"
    command = f'{sys.executable} -c "{script}"'
    for _ in range(2):  # a restart
        hook = Hook(command, place(tmp_path), log=lambda text: None)
        hook.tell([VIOLATION])
        hook.tell([VIOLATION])
        hook.close()
    assert [json.loads(line) for line in said.read_text().splitlines()] == [VIOLATION]


def test_what_only_the_verdict_on_the_run_tells_calls_the_hook_once_too(tmp_path: Path) -> None:
    """A view says nothing of P18, and what it has said of P2 in other words is not told again."""
    out = place(tmp_path)
    log: list[str] = []
    views, broken = LakeTable.made(out / "views", VIEWS), LakeTable.made(out / "violations", SCHEMAS["violations"])
    told = {"run": "r", "group": "g", "view": "1@a", "result": "FAIL", "property": "P2", "id": "abc", "batch": 0}
    write_rows(views, [told])
    again = {"run": "r", "group": "g", "view": "1@a", "property": "P2", "members": ["a"], "sentence": "in other words"}
    of_run = {"run": "r", "group": "g", "view": None, "property": "P18", "members": ["a", "b"], "sentence": "undecided"}
    write_rows(broken, [again, of_run])
    (tmp_path / "said").touch()
    hook = f"{sys.executable} -c \"import sys; open({str(tmp_path / 'said')!r}, 'a').write(sys.stdin.read())\""
    for failed in (frozenset({"r"}), frozenset[str]()):  # and a restart
        marked = Hook(hook, out, log.append)
        teller = Teller(out, lambda text: None, marked)
        teller.tell_runs(failed, is_first=True)
        teller.close()
    calls = [json.loads(line) for line in (tmp_path / "said").read_text().splitlines()]
    assert [(call["property"], call["view"], call["sentence"]) for call in calls] == [("P18", "", "undecided")]
    assert not log
    assert len(list((tmp_path / "_told").iterdir())) == 2
    said = ask_watch(tmp_path, "--once")
    assert said.exit_code == 1
    assert "r/g: P18 in the whole run: undecided" in said.stdout


def test_a_run_that_is_judged_again_is_not_told_again(tmp_path: Path) -> None:
    out = place(tmp_path)
    of_run = {"run": "r", "group": "g", "view": "1@a", "property": "P18", "members": ["a"], "sentence": "undecided"}
    write_rows(LakeTable.made(out / "violations", SCHEMAS["violations"]), [of_run])
    said: list[str] = []
    teller = Teller(out, said.append)
    for _ in range(2):
        teller.tell_runs(frozenset({"r"}), is_first=False)
    assert said == ["FAIL r/g, view 1@a: P18: undecided"]


def telling(hook: Hook) -> Tell:
    return lambda rows, is_new: hook.tell(rows)


def write_rows(table: LakeTable, rows: list[dict[str, Any]]) -> None:
    filled = pyarrow.Table.from_pylist(rows, table.schema)
    table.commit(TableChange(add=(write_data_file(table.folder, 1, [filled], table.schema),)), "test", 1)


@pytest.mark.parametrize(
    ("command", "complaint"),
    [
        (f"{sys.executable} -c 'import time; time.sleep(60)'", "did not end within 0.5 s"),
        (f"{sys.executable} -c 'raise SystemExit(3)'", "failed with exit code 3"),
        ("/no/such/program", "could not be called"),
        ("http://127.0.0.1:9/", "could not be called"),
    ],
    ids=["hangs", "fails", "is missing", "no server"],
)
def test_a_hook_that_does_not_work_is_logged_and_tried_at_the_next_start(
    tmp_path: Path, command: str, complaint: str
) -> None:
    log: list[str] = []
    hook = Hook(command, place(tmp_path), log.append, wait_s=0.5)
    hook.tell([VIOLATION])
    hook.close()
    assert complaint in log[0]
    calls: list[str] = []
    again = Hook("true", place(tmp_path), calls.append)
    again.tell([VIOLATION])
    again.close()
    assert not calls
    assert (tmp_path / "_told" / "abc").exists()


def test_a_hook_that_hangs_holds_nothing_up_and_what_waits_for_it_does_not_grow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log: list[str] = []
    monkeypatch.setattr(watch_hooks, "WAITING_MAX", 3)
    hook = Hook(f"{sys.executable} -c 'import time; time.sleep(60)'", place(tmp_path), log.append, wait_s=0.5)
    begun = time.monotonic()
    hook.tell([VIOLATION | {"id": str(number)} for number in range(10)])
    assert time.monotonic() - begun < 0.4
    hook.close(wait_s=0)
    assert "3 violations wait for it, and 7 more are told at the next start" in log[0]


def test_a_violation_is_posted_to_a_url(tmp_path: Path) -> None:
    posted: list[Any] = []

    class Receiver(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            posted.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *arguments: Any) -> None:
            """Stay quiet."""

    with http.server.HTTPServer(("127.0.0.1", 0), Receiver) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        hook = Hook(f"http://127.0.0.1:{server.server_port}/fail", place(tmp_path), log=lambda text: None)
        hook.tell([VIOLATION])
        hook.close()
        server.shutdown()
        thread.join()
    assert posted == [VIOLATION]


def test_a_redirected_post_is_not_taken_for_told(tmp_path: Path) -> None:
    asked: list[str] = []

    class Mover(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(302)
            self.send_header("Location", "/elsewhere")
            self.end_headers()

        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *arguments: Any) -> None:
            """Stay quiet."""

    log: list[str] = []
    with http.server.HTTPServer(("127.0.0.1", 0), Mover) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        hook = Hook(f"http://127.0.0.1:{server.server_port}/", place(tmp_path), log.append)
        hook.tell([VIOLATION])
        hook.close()
        server.shutdown()
        thread.join()
    assert asked == []
    assert "redirects to" in log[0]
    assert not (tmp_path / "_told" / "abc").exists()


def test_metrics_count_views_and_violations() -> None:
    pytest.importorskip("prometheus_client")
    import urllib.request

    metrics = ViewMetrics("127.0.0.1:0")
    try:
        row = {"run": "r", "group": "g", "view": "1@a", "property": None}
        metrics.count([row | {"result": "open"}, row | {"view": "2@a", "result": "open"}, row | {"result": "PASS"}])
        metrics.count([row | {"view": "3@a", "result": "open"}])
        metrics.count([VIOLATION | {"view": "2@a", "result": "FAIL"}] * 2)
        metrics.count([VIOLATION | {"view": "3@a", "result": "FAIL", "by": "run"}])
        with urllib.request.urlopen(f"http://127.0.0.1:{metrics.port}/metrics", timeout=10) as page:
            text = page.read().decode()
    finally:
        metrics.close()
    assert "unisono_views_open 1.0" in text
    assert 'unisono_views_judged_total{result="PASS"} 1.0' in text
    assert 'unisono_views_judged_total{result="FAIL"} 1.0' in text
    assert 'unisono_view_violations_total{property="P2"} 3.0' in text


def test_groups_stand_as_their_last_rows_say() -> None:
    row = {"run": "r", "group": "g", "order": "fifo", "said_ms": 0, "batch": 0, "id": None}
    rows = [
        row | {"view": "1@a", "number": 1, "result": "open"},
        row | {"view": "1@a", "number": 1, "result": "PASS", "said_ms": 1},
        row | {"view": "2@a", "number": 2, "result": "UNKNOWN", "said_ms": 2},
        row | {"view": "2@a", "number": 2, "result": "PASS", "said_ms": 3},
        row | {"view": "3@a", "number": 3, "result": "open", "said_ms": 3},
    ]
    (state,) = group_states(reversed(rows)).values()
    assert (str(state), state.open_views) == ("PASS so far, to view 2@a", ["3@a"])
    failure = row | {"view": "3@a", "number": 3, "result": "FAIL", "id": "x", "said_ms": 4}
    (state,) = group_states(
        [*rows, failure, row | {"view": "3@a", "number": 3, "result": "PASS", "said_ms": 5}]
    ).values()
    assert (state.result, len(state.failures)) == ("FAIL", 1)
