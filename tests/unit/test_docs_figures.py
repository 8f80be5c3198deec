"""What pages show is what their commands give: outputs, figures in tables and sentences, pictures.

Everything here comes from virtual time, so it is the same on every machine. Whatever changes it changes the pages too.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.testing import CliRunner

from unisono.cli.app import app
from unisono.cli.show import out

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text("utf-8")
TOUR = (ROOT / "docs" / "tour.md").read_text("utf-8")
PROTOCOLS = (ROOT / "docs" / "protocols.md").read_text("utf-8")
PAGES = (README, *(page.read_text("utf-8") for page in sorted((ROOT / "docs").glob("*.md"))))

CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SECONDS = re.compile(r"\d+\.\d s(?=,)")  # those of this machine; virtual ones have two decimals
CHEAP = ("fifo", "causal", "abcast", "tomp")  # those whose bytes protocols.md names


class Example(NamedTuple):
    command: str
    shown: tuple[str, ...]


def examples_of(page: str) -> Iterator[Example]:
    """Commands of unisono with the lines that a page shows below them."""
    for block in CONSOLE.findall(page):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, *lines = part.splitlines()
            if command.startswith("unisono ") and lines:
                yield Example(command, tuple(lines))


def answer(command: str) -> str:
    result = CliRunner().invoke(app, shlex.split(command)[1:])
    assert result.exit_code == 0, result.output
    return result.stdout


def not_printed(shown: tuple[str, ...], printed: str) -> list[str]:
    """Lines that a page shows and the command does not print, in this order; a page may leave lines out."""
    rest = iter(SECONDS.sub("S", line).rstrip() for line in printed.splitlines())
    return [line for line in shown if line != "..." and SECONDS.sub("S", line).rstrip() not in rest]


@pytest.mark.seconds
def test_the_tour_shows_what_its_commands_print(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(out, "width", 100)
    examples = list(examples_of(TOUR))
    assert len(examples) >= 5, "compare, run, check, explore, diagram"
    wrong = {one.command: not_printed(one.shown, answer(one.command)) for one in examples}
    assert not {command: lines for command, lines in wrong.items() if lines}


@pytest.mark.parametrize("shown", [("b", "a"), ("a", "c"), ("12 states in 0.7 s, all", "x")])
def test_a_line_that_no_command_prints_is_found(shown: tuple[str, ...]) -> None:
    assert not_printed(shown, "a \n12 states in 0.2 s, all\nb\n")
    assert not not_printed(("...", "12 states in 9.9 s, all", "b"), "a \n12 states in 0.2 s, all\nb\n")


def table_of(page: str, head: str) -> dict[str, list[str]]:
    """The rows of a table by the orders that their first cell names."""
    lines = page.partition(f"\n| {head}")[2].splitlines()[2:]
    rows: dict[str, list[str]] = {}
    for line in lines:
        if not line.startswith("|"):
            break
        first, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        rows |= dict.fromkeys(re.findall(r"`([\w-]+)`", first), cells)
    return rows


@pytest.mark.seconds
def test_packets_and_bytes_of_the_page_on_protocols_are_measured() -> None:
    (command,) = re.findall(r"^\$ (unisono compare fifo,.*)$", PROTOCOLS, re.MULTILINE)
    alone = re.sub(r"compare \S+", f"compare {','.join(CHEAP)}", command)  # rows do not depend on one another
    measured: dict[str, dict[str, Any]] = json.loads(answer(f"{alone} --json"))["orders"]
    shown = table_of(PROTOCOLS, "order | promises | decided by")
    assert len(shown) == 10
    assert {order: shown[order][-1] for order in CHEAP} == {
        order: f"{one['packets_per_message']:.2f}" for order, one in measured.items()
    }
    fifo, causal, abcast, tomp = (f"{measured[order]['bytes_per_message']:,.0f}" for order in CHEAP)
    prose = " ".join(PROTOCOLS.split())
    assert f"bytes: {causal} a message against {fifo} for `fifo`" in prose
    assert f"{tomp} bytes a message against {abcast} for ABCAST" in prose


@pytest.mark.seconds
def test_states_of_the_page_on_protocols_are_those_that_are_explored() -> None:
    shown = table_of(PROTOCOLS, "order | states")
    assert len(shown) == 10
    for order in ("fifo", "causal", "sequencer", "rmp"):  # the smallest; the others take up to half a minute
        cases = json.loads(answer(f"unisono sim explore --order {order} --crash --json"))["cases"]
        counted = [f"{sum(case[what] for case in cases):,}" for what in ("states", "flushes")]
        assert counted == [cell.removesuffix(" each") for cell in shown[order]], order


@pytest.mark.parametrize("picture", sorted((ROOT / "docs" / "img").glob("*.svg")), ids=lambda path: path.name)
def test_a_picture_is_what_its_command_draws(picture: Path, tmp_path: Path) -> None:
    told = re.compile(rf"^\$ (unisono .*) --out docs/img/{re.escape(picture.name)}$", re.MULTILINE)
    commands = {command for page in PAGES for command in told.findall(page)}
    assert len(commands) == 1, "every page that shows it names the same command"
    answer(f"{commands.pop()} --out {tmp_path / picture.name}")
    assert (tmp_path / picture.name).read_text("utf-8") == picture.read_text("utf-8")
