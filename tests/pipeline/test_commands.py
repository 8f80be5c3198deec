"""The commands that work on Spark, as a person meets them: results, exit codes, files. All share the tests' session."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tests.pipeline.test_faults import DATA, killed, record, segments
from unisono.cli import app

pytestmark = pytest.mark.usefixtures("spark")


@pytest.fixture(autouse=True)
def same_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNISONO_SPARK_MASTER", "local[2]")


def ask(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def told(*arguments: str | Path) -> tuple[int, Any]:
    result = ask(*arguments, "--json")
    return result.exit_code, json.loads(result.stdout)


@pytest.fixture
def chorus(tmp_path: Path) -> Path:
    """The log of another system, which breaks a promise."""
    folder = tmp_path / "chorus"
    done = ask("pipeline", "adapt", DATA / "chorus.csv", "--mapping", DATA / "chorus.toml", "--out", folder)
    assert done.exit_code == 0
    assert "events of 3 members" in done.stdout
    return folder


def test_verify_tells_pass_violation_and_unknown_apart(tmp_path: Path, chorus: Path) -> None:
    clean, holed = tmp_path / "clean", tmp_path / "holed"
    record(clean, 1)
    killed(segments(holed, record(holed, 2))[-1])
    code, said = told("trace", "verify", clean)
    assert (code, said["result"], said["runs"][0]["by"]) == (0, "PASS", "digests")
    code, said = told("trace", "verify", holed)
    assert (code, said["result"]) == (2, "UNKNOWN")
    assert said["runs"][0]["unknown"] == {"c": "its trace stops without END, LEAVE or CRASH"}
    shown = ask("trace", "verify", chorus, clean, holed)
    assert shown.exit_code == 1
    assert "FAIL" in shown.stdout
    assert "before" in shown.stdout, "the violation is told in a sentence"
    assert "Traceback" not in shown.output


def test_measure_prints_and_writes_tables(tmp_path: Path) -> None:
    record(tmp_path / "trace", 1)
    code, said = told("trace", "measure", tmp_path / "trace", "--out", tmp_path / "measures")
    assert code == 0
    assert said
    assert any((tmp_path / "measures").rglob("*.parquet"))


def test_an_experiment_of_ones_own_writes_a_page_and_does_not_run_twice(tmp_path: Path) -> None:
    grid = tmp_path / "mine.toml"
    block = 'order = ["abcast", "tomp"]\nmembers = 3\nmessages = 20\nseeds = 2\n'
    grid.write_text(f'name = "mine"\n[[block]]\n{block}', encoding="utf-8")
    arguments = ("experiment", "run", grid, "--out", tmp_path / "out", "--page", tmp_path / "page" / "mine.md")
    code, said = told(*arguments)
    assert (code, said["cells"], said["verdicts"]) == (0, 4, {"PASS": 4})
    written = (tmp_path / "page" / "mine.md").read_text("utf-8")
    assert "| abcast | 3 | poisson |" in written
    measures = {path: path.stat().st_mtime_ns for path in (tmp_path / "out" / "measures").iterdir()}
    assert told(*arguments) == (code, said)
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out" / "measures").iterdir()} == measures


def test_a_quick_experiment_has_its_figure(tmp_path: Path) -> None:
    page = tmp_path / "tomp.md"
    code, said = told("experiment", "run", "tomp", "--quick", "--out", tmp_path / "out", "--page", page)
    assert code == 0
    assert set(said["verdicts"]) == {"PASS"}
    assert "](img/tomp-parts.svg)" in page.read_text("utf-8")
    assert (tmp_path / "img" / "tomp-parts.svg").read_text("utf-8").startswith("<?xml")


def test_the_pipeline_takes_in_what_is_there_and_judges_it(tmp_path: Path, chorus: Path) -> None:
    record(chorus.parent / "watched", 1)
    code, said = told("pipeline", "run", "--watch", tmp_path / "watched", "--out", tmp_path / "tables", "--once")
    assert (code, said["results"], said["waiting"]) == (0, {"sequencer-3-1": "PASS"}, {})
    code, said = told("pipeline", "run", "--watch", chorus, "--out", tmp_path / "other", "--once")
    assert (code, said["results"]) == (1, {"chorus-1": "FAIL"})


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("trace", "verify", "{empty}"), "{empty}"),
        (("trace", "verify", "{missing}"), "{missing}"),
        (("trace", "measure", "{empty}"), "{empty}"),
        (("pipeline", "run", "--watch", "{missing}", "--out", "{empty}"), "is no folder"),
        (("experiment", "run", "tompp"), "there is no experiment 'tompp'"),
        (("experiment", "run", "{missing}.toml"), "cannot be read"),
        (("trace", "verify", "{clean}", "--master", "sparc://x"), "is no Spark master"),
    ],
)
def test_bad_input_is_one_sentence(tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    """As the command itself answers it: the error is a `UnisonoError` with a sentence, which `main` prints."""
    places = {"empty": tmp_path / "empty", "missing": tmp_path / "missing", "clean": tmp_path / "clean"}
    places["empty"].mkdir()
    record(places["clean"], 1)
    result = ask(*(argument.format(**places) for argument in arguments))
    assert result.exit_code != 0
    assert words.format(**places) in str(result.exception)
    assert "\n" not in str(result.exception)
