"""Characters that hide, move the cursor or turn text around: shown as their numbers wherever a person may look."""

from __future__ import annotations

import io
import json
import logging
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.net.programs import Done
from unisono.cli import show
from unisono.runtime import logs
from unisono.trace import sanitize
from unisono.trace.diagram import svg as diagram_svg
from unisono.trace.diagram.drawing import render
from unisono.trace.sanitize import json_text
from unisono.trace.story import tell

C1 = [chr(code) for code in range(0x80, 0xA0)]
BIDI = [*map(chr, range(0x202A, 0x202F)), *map(chr, range(0x2066, 0x206A)), "\u200e", "\u200f", "\u061c"]
OTHERS = ["\x1b", "\x00", "\r", "\u2028", "\ufeff", "\U000e0001", "\udc9b", "\ud800"]
HIDDEN = ["\x7f", *C1, *BIDI, *OTHERS]
SHOWN = 'aé漢🙂 "\\/'


def hides(text: str) -> list[str]:
    return [one for one in text if one in HIDDEN]


@pytest.mark.parametrize("ascii_only", [False, True])
def test_json_shows_nothing_that_hides_and_means_the_same(ascii_only: bool) -> None:
    value = {one + SHOWN: [one, {"\n\t" + one: one * 2}] for one in HIDDEN}
    for indent in (None, 1):
        text = json_text(value, ascii_only=ascii_only, indent=indent)
        assert hides(text) == []
        assert json.loads(text) == value
    assert text.isascii() == ascii_only


def test_text_that_hides_nothing_is_left_as_it_is() -> None:
    assert json_text({"é": "漢🙂\n"}) == '{"é": "漢🙂\\n"}'


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_what_commands_print_as_json_hides_nothing(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stdout = io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="backslashreplace")
    monkeypatch.setattr(sys, "stdout", stdout)
    show.print_json(HIDDEN)
    printed = stdout.buffer.getvalue().decode(encoding)
    assert hides(printed) == []
    assert json.loads(printed) == HIDDEN


def test_a_log_in_json_hides_nothing() -> None:
    record = logging.LogRecord("unisono", logging.ERROR, "", 0, "%s", ("".join(HIDDEN),), None)
    record.fields = {"by": HIDDEN}
    line = logs.JsonFormatter().format(record)
    assert hides(line) == []
    assert json.loads(line)["by"] == HIDDEN


def test_a_diagram_hides_nothing_and_stays_xml() -> None:
    for one in HIDDEN:
        drawn = diagram_svg.text(0, 0, f"a{one}b", "name", title=f"c{one}\nd")
        assert hides(drawn) == []
        assert ElementTree.fromstring(drawn).itertext()
    rows = tell("a JOIN\na VIEW 1@a a\na CAST x vector 0\na DELIVER x\na END")
    for row in rows:
        row.group = "lab\u202e\x9b"
    svg = render(rows, title="".join(HIDDEN) + "<script>")
    assert hides(svg) == []
    assert r"\u202e" in svg
    ElementTree.fromstring(svg)


@pytest.mark.seconds  # it loads what draws reports
def test_a_report_hides_nothing(tmp_path: Path) -> None:
    for package in ("jinja2", "matplotlib"):
        pytest.importorskip(package)
    import jinja2

    from tests.web import reports
    from unisono.pipeline.report import page

    html = page.build(reports.hostile(), tmp_path).read_text("utf-8")
    assert hides(html) == []
    assert r"\u202egnp.exe" in html
    environment = jinja2.Environment(autoescape=True, finalize=page._shown)
    shown = environment.from_string("{{ text }}{{ markup }}").render(
        text="".join(HIDDEN) + "<", markup=page._markup("<b>")
    )
    assert hides(shown) == []
    assert shown.endswith("&lt;<b>")


def test_trace_check_prints_hostile_names_as_escapes(tmp_path: Path) -> None:
    """From one end to the other: a file with hostile names in, JSON out."""
    path = tmp_path / "a.jsonl"
    row = {"run": "r\u202e\x9b", "group": "g", "protocol": "fifo", "member": "a", "incarnation": 0, "local_index": 0}
    path.write_text(json.dumps(row | {"time_ns": 0, "clock": "real", "kind": "JOIN"}) + "\n", "utf-8")
    done = Done("trace", "check", "--json", str(path))
    assert hides(done.out + done.err) == []
    assert "r\u202e\x9b" in json.loads(done.out)


# Planted faults.


def test_json_that_is_only_dumped_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sanitize, "_shown_in_json", lambda one: one)
    with pytest.raises(AssertionError):
        test_json_shows_nothing_that_hides_and_means_the_same(False)


def test_a_diagram_that_escapes_only_markup_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagram_svg, "sanitize_lines", str)
    with pytest.raises(AssertionError):
        test_a_diagram_hides_nothing_and_stays_xml()


def test_the_narrow_space_between_a_figure_and_its_unit_stays() -> None:
    """Found by a browser: reports showed it as its number, behind every figure."""
    assert sanitize.sanitize("16\u202fns, 1\u00a0000") == "16\u202fns, 1\u00a0000"
