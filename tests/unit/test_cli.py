"""The command line as a person meets it: results, exit codes, and one sentence for every mistake."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tests.net.programs import Done
from unisono.cli import sim
from unisono.sim.faults import Fault
from unisono.sim.group_scenario import GroupScenario, PlannedCast
from unisono.sim.replays import load_replay, save_replay
from unisono.sim.scenario import Scenario, Source


@pytest.mark.seconds
def test_run_prints_a_verdict_and_is_the_same_in_every_process() -> None:
    arguments = ("sim", "run", "--order", "toto", "--members", "8", "--rate", "100", "--messages", "200", "--seed", "7")
    first = Done(*arguments)
    assert first.code == 0
    assert "PASS" in first.out
    environment = os.environ | {"COLUMNS": "100", "NO_COLOR": "1"}
    command = (sys.executable, "-m", "unisono", *arguments)
    assert subprocess.run(command, capture_output=True, text=True, env=environment).stdout == first.out


def test_run_in_json_is_one_object_and_nothing_else() -> None:
    answer = Done("sim", "run", "--order", "abcast", "--messages", "50", "--loss", ".02", "--json")
    data = json.loads(answer.out)
    assert data["verdict"] == "PASS"
    assert data["measures"]["casts"] == 50
    assert data["scenario"]["loss"] == 0.02
    assert not answer.err


def test_run_with_faults_changes_the_view() -> None:
    answer = Done(
        "sim", "run", "--fault", "crash:a@300ms", "--fault", "pause:b@100ms+50ms", "--messages", "100", "--json"
    )
    assert json.loads(answer.out)["measures"]["view_changes"] == 1
    assert answer.code == 0


@pytest.mark.seconds
def test_a_recorded_run_can_be_judged_and_drawn(tmp_path: Path) -> None:
    folder = tmp_path / "trace"
    assert Done("sim", "run", "--messages", "30", "--trace", str(folder)).code == 0
    checked = Done("trace", "check", str(folder), "--json")
    assert checked.code == 0
    assert [run["verdict"] for run in json.loads(checked.out).values()] == ["PASS"]
    picture = tmp_path / "picture.svg"
    assert Done("trace", "diagram", str(folder), "--out", str(picture)).code == 0
    ET.parse(picture)


def test_a_verdict_says_what_was_judged_and_what_was_not(tmp_path: Path) -> None:
    """Found by trying: it said PASS and the run's name, and nothing about what lay before it."""
    folder = tmp_path / "trace"
    assert Done("sim", "run", "--order", "toto", "--messages", "30", "--trace", str(folder)).code == 0
    (run,) = json.loads(Done("trace", "check", str(folder), "--json").out).values()
    assert (run["orders"], run["members"], run["casts"], run["files"]) == (["toto"], 3, 30, 3)
    assert run["rows"] > run["deliveries"] == 90
    assert {"P0", "P8", "P9c"} <= set(run["judged"])
    assert run["not_judged"]["P10"] == "not owed by toto"
    assert run["not_judged"]["P25"] == "what applications were shown is not recorded"
    assert not set(run["judged"]) & set(run["not_judged"])
    said = Done("trace", "check", str(folder)).out
    assert f"toto: 3 members, {run['rows']:,} rows in 3 files; 30 casts, 90 deliveries, 1 view\n" in said
    assert f"judged: {len(run['judged'])} properties, P0 P1 " in said
    assert "(what applications were shown is not recorded)" in said


@pytest.mark.seconds
def test_a_recorded_run_is_drawn_in_a_window_of_time(tmp_path: Path) -> None:
    folder, picture = tmp_path / "trace", tmp_path / "picture.svg"
    assert Done("sim", "run", "--messages", "30", "--rate", "100", "--trace", str(folder)).code == 0
    draw = ("trace", "diagram", str(folder), "--out", str(picture))
    assert Done(*draw).code == 0
    whole = picture.read_text("utf-8")
    assert Done(*draw, "--from", "100ms", "--to", "150ms").code == 0
    assert len(picture.read_text("utf-8")) < len(whole)
    for window, said in (
        (("--from", "1min"), "nothing happens from 60 s: the run lasts "),
        (("--from", "2s", "--to", "1s"), "the window from 2 s to 1 s is empty: --to must be later."),
        (("--to", "soon"), "'soon' is not a duration"),
    ):
        refused = Done(*draw, *window)
        assert refused.code == 2
        assert said in refused.err
    assert "nothing happens" in Done("sim", "diagram", "--from", "1min", "--out", str(picture)).err


@pytest.mark.seconds
def test_a_run_whose_trace_cannot_be_written_fails(tmp_path: Path) -> None:
    """Found by trying: on a full disk it said so in yellow, and ended with 0."""
    sim_run = (sys.executable, "-m", "unisono", "sim", "run", "--messages", "100", "--trace", str(tmp_path), "--json")
    limited = ("sh", "-c", 'ulimit -f 8; exec "$@"', "sh", *sim_run)
    done = subprocess.run(limited, capture_output=True, text=True)
    assert done.returncode == 1
    assert json.loads(done.stdout)["gaps"] > 0


WITHOUT_SPARK = """
import sys


class Without:
    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, path=None, target=None):
        hidden = name.split(".")[0] in ("jinja2", "matplotlib", "numpy", "pandas", "pyarrow", "pyspark")
        return None if hidden else self.finder.find_spec(name, path, target)


sys.meta_path = [Without(finder) for finder in sys.meta_path]
from unisono.cli import main

for command in sys.argv[1:]:
    sys.argv = ["unisono", *command.split()]
    try:
        main()
    except SystemExit as end:
        assert end.code == 2
"""


@pytest.mark.seconds
def test_without_the_extra_a_command_of_the_pipeline_names_it(tmp_path: Path) -> None:
    """Found by trying: it spoke of a fault of its own, and of numpy."""
    commands = (
        "trace verify .",
        "trace measure .",
        "pipeline run --watch . --out tables",
        "experiment run tomp --out tables",
    )
    command = [sys.executable, "-c", WITHOUT_SPARK, *commands]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0
    said = "unisono: the pipeline needs pyspark: install the extra with `pip install 'unisono[spark]'`.\n"
    assert done.stderr == said * len(commands)


def test_a_damaged_trace_does_not_pass(tmp_path: Path) -> None:
    folder = tmp_path / "trace"
    Done("sim", "run", "--messages", "30", "--trace", str(folder))
    victim = sorted(folder.rglob("*.b.*"))[0]
    victim.unlink()
    answer = Done("trace", "check", str(folder))
    assert answer.code == 2
    assert "UNKNOWN" in answer.out


@pytest.mark.seconds
def test_compare_puts_orders_side_by_side() -> None:
    answer = Done("compare", "sequencer,abcast,tomp,toto,all-ack", "--seed", "7", "--messages", "200")
    assert answer.code == 0
    rows = [
        line
        for line in answer.out.splitlines()
        if line.strip().startswith(("sequencer", "abcast", "tomp", "toto", "all-ack"))
    ]
    assert len(rows) == 5
    assert "2(n-1)=8" in rows[0]
    data = json.loads(Done("compare", "fifo,causal", "--messages", "50", "--json").out)
    assert set(data["orders"]) == {"fifo", "causal"}


def test_explore_counts_states_and_finds_nothing() -> None:
    answer = Done("sim", "explore", "--order", "sequencer", "--members", "2", "--messages", "2", "--crash", "--json")
    data = json.loads(answer.out)
    assert answer.code == 0
    assert data["complete"]
    assert data["violation"] is None
    assert data["states"] > 10


def test_diagram_is_well_formed(tmp_path: Path) -> None:
    path = tmp_path / "d.svg"
    assert Done("sim", "diagram", "--order", "toto", "--messages", "8", "--out", str(path)).code == 0
    assert ET.parse(path).getroot().tag.endswith("svg")


def test_replay_runs_a_file_again(tmp_path: Path) -> None:
    path = tmp_path / "x.replay.json"
    save_replay(path, Scenario(order="causal", source=Source(messages=20)), "an example")
    answer = Done("sim", "replay", str(path), "--json")
    assert answer.code == 0
    assert json.loads(answer.out)["measures"]["casts"] == 20


def test_a_scenario_of_a_group_is_replayed_and_drawn(tmp_path: Path) -> None:
    path, picture = tmp_path / "x.replay.json", tmp_path / "x.svg"
    crash = Fault("crash", 400_000_000, ("c",))
    scenario = GroupScenario(
        "fifo", 1, {"a": 0, "b": 0, "c": 0}, casts=(PlannedCast(300_000_000, "a"),), faults=(crash,)
    )
    save_replay(path, scenario, "an example")
    answer = Done("sim", "replay", str(path), "--json")
    assert answer.code == 0, answer.err
    data = json.loads(answer.out)
    assert data["outcome"]["result"] == "PASS"
    assert data["outcome"]["faults"]["crash"] == 1
    assert GroupScenario.from_json(data["scenario"]) == scenario
    assert "3 members, 1 casts, 1 faults" in Done("sim", "replay", str(path)).out
    assert Done("sim", "diagram", str(path), "--out", str(picture)).code == 0
    assert picture.read_text("utf-8").startswith("<svg")


@pytest.mark.seconds
def test_swarm_and_fuzz_and_orders_run(tmp_path: Path) -> None:
    answer = Done("sim", "swarm", "--seeds", "3", "--order", "tomp", "--workers", "1", "--json", folder=tmp_path)
    assert answer.code == 0
    assert json.loads(answer.out)["runs"] == {"tomp": 3}
    fuzzed = Done("sim", "fuzz", "--inputs", "2000", "--json")
    assert fuzzed.code == 0
    assert json.loads(fuzzed.out)["failed"] == 0
    assert "P9c" in Done("sim", "orders").out


@pytest.mark.seconds
def test_demo_kills_pauses_and_joins_real_processes_and_draws_a_picture(tmp_path: Path) -> None:
    answer = Done("demo", "--no-spark", "--out", str(tmp_path / "demo"))
    assert answer.code == 0, answer.out
    assert "the same" in answer.out
    assert "PASS" in answer.out
    assert (tmp_path / "demo" / "crash.svg").read_text().startswith("<svg")


NOT_LOCAL = "s3://bucket/x is not a local path"
KEY_TEXT = "unisono-key-1:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
BAD = [
    (["sim", "run", "--order", "paxos"], "there is no order 'paxos': choose among fifo, causal"),
    (["sim", "run", "--members", "0"], "choose at least 1"),
    (["sim", "run", "--order", "toto", "--members", "8", "--phi", "8"], "choose 4 <= phi < 8"),
    (["sim", "run", "--order", "toto", "--members", "8", "--phi", "3.9"], "choose 4 <= phi < 8"),
    (["sim", "run", "--order", "fifo", "--phi", "2"], "phi is a setting of toto"),
    (["sim", "run", "--source", "chaos"], "choose among periodic, poisson"),
    (["sim", "run", "--rate", "0"], "rate = 0 is out of range"),
    (["sim", "run", "--messages", "-1"], "messages = -1 is out of range"),
    (["sim", "run", "--delay", "uniform:2ms:1ms"], "the smaller duration first"),
    (["sim", "run", "--delay", "quantum"], "there is no delay model 'quantum'"),
    (["sim", "run", "--delay", "file:/does/not/exist"], "cannot be read"),
    (["sim", "run", "--loss", "1.5"], "loss = 1.5 is out of range"),
    (["sim", "run", "--size", "big"], "is not a size"),
    (["sim", "run", "--ack-delay", "soon"], "is not a duration"),
    (["sim", "run", "--fault", "crash"], "is not a fault"),
    (["sim", "run", "--fault", "crash:z@1ms"], "the members are a to c"),
    (["sim", "run", "--fault", "crash:b@1ms=5"], "has an amount: only drift, slow, lossy have one"),
    (["sim", "run", "--fault", "flood:a@1ms"], "there is no fault 'flood'"),
    (["sim", "run", "--causal-share", "0.5", "--order", "abcast"], "does not carry causal messages"),
    (["sim", "run", "--trace", "/proc/nothing/here"], "/proc/nothing/here"),
    (["sim", "explore", "--members", "9"], "1 to 5 members"),
    (["sim", "explore", "--order", "nope"], "there is no order 'nope'"),
    (["sim", "swarm", "--seeds", "0"], "--seeds must be at least 1"),
    (["sim", "fuzz", "--inputs", "0"], "--inputs must be at least 1"),
    (["sim", "replay", "/does/not/exist.json"], "cannot be read"),
    (["properties", "P99"], "there is no property 'P99'; the nearest are P9c, P9b, P9a."),
    (["compare", ","], "there is nothing to compare"),
    (["compare", "sequencer,nope"], "there is no order 'nope'"),
    (["trace", "check", "/does/not/exist"], "/does/not/exist"),
    (["trace", "check", "s3://bucket/traces"], "unisono trace verify"),
    (["sim", "run", "--messages", "5", "--trace", "s3://bucket/x"], NOT_LOCAL),
    (["sim", "diagram", "--messages", "5", "--out", "s3://bucket/x"], NOT_LOCAL),
    (["sim", "explore", "--messages", "1", "--out", "s3://bucket/x"], NOT_LOCAL),
    (["sim", "swarm", "--seeds", "1", "--order", "fifo", "--out", "s3://bucket/x"], NOT_LOCAL),
    (["sim", "swarm-orders", "--seeds", "1", "--out", "s3://bucket/x"], NOT_LOCAL),
    (["trace", "diagram", "none", "--out", "s3://bucket/x"], NOT_LOCAL),
    (["demo", "--out", "s3://bucket/x"], NOT_LOCAL),
    (["node", "g", "--listen", "127.0.0.1:0", "--journal", "s3://bucket/x"], NOT_LOCAL),
    (["node", "g", "--listen", "127.0.0.1:0", "--trace", "s3://bucket/x"], NOT_LOCAL),
    (["node", "lab", "--listen", "nowhere"], "write host:port"),
    (["node", "a\udcff", "--listen", "127.0.0.1:0"], "is not text"),
    (["node", "lab", "--listen", "127.0.0.1:99999"], "the port must be 0 to 65535"),
    (["node", "lab", "--listen", "198.51.100.7:7400", "--insecure"], "does not belong to this machine"),
    (["node", "lab", "--listen", "no-such-host.invalid:7400"], "is not known here"),
    (["node", "lab", "--listen", "127.0.0.1:0", "--peers", "a..b:7400"], "is not known here"),
    (["node", "lab", "--peers", "127.0.0.1:7541,[::1]:7542"], "write all of them as IPv4"),
    (["check-net", "--peers", "127.0.0.1:7541,[::1]:7542", "--local"], "write all of them as IPv4"),
    (["directory", "run", "--managers", "[::1]:7541,127.0.0.1:7542"], "write all of them as IPv6"),
    (["node", "lab", "--listen", "0.0.0.0:0", "--advertise", "198.51.100.7:0"], "no key"),
    (["node", "lab", "--listen", "127.0.0.1:0", "--order", "nope"], "nope"),
    (["node", "lab", "--listen", "127.0.0.1:0", "--log", "xml"], "text or json"),
    (["node", "lab", "--listen", "127.0.0.1:0", "--timeout", "soon"], "not a duration"),
    (["node", "lab", "--listen", "127.0.0.1:0", "--key", "missing.key"], "keygen"),
    (["node", "lab", "--listen", "127.0.0.1:0", "--key", KEY_TEXT], "every user of this machine can read"),
    (["chat", "lab", "-k", KEY_TEXT], "--key takes a file"),
    (["check-net", "--peers", "127.0.0.1:7541,127.0.0.1:7542", "--key", KEY_TEXT], "unisono keygen FILE"),
    (["directory", "run", "--key", KEY_TEXT], "treat this key as compromised"),
    (["causal", "-S", "alpha", "--key", KEY_TEXT], "--key takes a file"),
    (["ptp", "-H", "127.0.0.1", "-P", "7400", "-p", "0", "--key", KEY_TEXT], "--key takes a file"),
    (["node", "lab", "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1"], "write host:port"),
    (["node", "lab", "--listen", "127.0.0.1:0", "--metrics", "a..b:1"], "cannot be listened on"),
    (["explain", "nonsense", "--group", "lab"], "no member runs here"),
    (["status", "--watch", "1ms"], "too often"),
    (["check-net", "--peers", "127.0.0.1:7400"], "at least two addresses"),
    (["directory", "claim", "x"], "directory run"),
    (["bench", "--size", "3"], "too small"),
    (["bench", "--size", "many"], "not a size"),
    (["causal", "-S", "alpha"], "members.dat cannot be read"),
    (["ptp", "-H", "198.51.100.7", "-P", "7400", "-p", "0"], "--key"),
]


@pytest.mark.parametrize(("arguments", "sentence"), BAD, ids=[ascii(" ".join(arguments[-3:])) for arguments, _ in BAD])
def test_a_mistake_gets_one_sentence_and_exit_code_2(arguments: list[str], sentence: str, tmp_path: Path) -> None:
    answer = Done(*arguments, folder=tmp_path)
    assert answer.code == 2
    assert sentence in answer.err
    assert "Traceback" not in answer.err + answer.out
    assert KEY_TEXT not in answer.err
    assert answer.err.count("\n") == 1, "one sentence, not a page"
    assert not list(tmp_path.iterdir()), "nothing half-written"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "not json",
        "[]",
        "{}",
        '{"kind": "scenario"}',
        '{"kind": "scenario", "scenario": {"order": "paxos"}}',
        '{"kind": "scenario", "scenario": {"members": "three"}}',
        '{"kind": "scenario", "scenario": {"surprise": 1}}',
        '{"kind": "scenario", "scenario": {"source": {"kind": 7}}}',
        '{"kind": "scenario", "scenario": {"source": 5}}',
        '{"kind": "scenario", "scenario": {"faults": [{"kind": "crash", "at_ns": 0, "who": [99]}]}}',
        '{"kind": "scenario", "scenario": {"faults": [{"kind": "crash"}]}}',
        '{"kind": "scenario", "scenario": {"faults": [{"kind": "partition", "at_ns": 0, "who": ["a"]}]}}',
        '{"kind": "scenario", "scenario": {"config": {"phi": "x"}}}',
        '{"kind": "scenario", "scenario": {"delay": 3}}',
        '{"kind": "scenario", "scenario": {"order": null}}',
        '{"kind": "group"}',
        '{"kind": "group", "scenario": {"order": "fifo", "seed": 1, "members": {"a": 0}, "casts": [{"who": "b"}]}}',
        '{"kind": ["group"]}',
        '{"kind": "explore"}',
        '{"kind": "explore", "order": "abcast", "members": 2, "messages": [1, 1], "config": {}, "schedule": ["x"]}',
        '{"kind": "explore", "order": "abcast", "members": 2, "messages": [1, 1], "config": {}, "schedule": [5]}',
        "[" * 100_000,
    ],
)
def test_a_broken_replay_file_gets_one_sentence(text: str, tmp_path: Path) -> None:
    path = tmp_path / "broken.json"
    path.write_text(text, encoding="utf-8")
    answer = Done("sim", "replay", str(path))
    assert answer.code == 2, answer.err
    assert "Traceback" not in answer.err
    assert answer.err.startswith("unisono: ")


def test_a_fault_of_our_own_is_a_sentence_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def boom(*_: object, **__: object) -> None:
        raise RuntimeError("boom")

    monkeypatch.setattr(sim, "simulate", boom)
    answer = Done("sim", "run")
    assert answer.code == 70
    assert "internal error, RuntimeError: boom" in answer.err
    assert "Traceback" not in answer.err


def test_a_scenario_survives_its_file(tmp_path: Path) -> None:
    scenario = Scenario(order="toto", members=5, source=Source(kind="bursts", causal_share=0.5), config={"phi": 3.5})
    save_replay(tmp_path / "s.json", scenario, "why")
    assert load_replay(tmp_path / "s.json") == scenario
