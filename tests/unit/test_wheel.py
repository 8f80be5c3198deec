"""The wheel alone, in an environment that has nothing else: no pyarrow, no Spark, no Java."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tools.wheel import build, install, run

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.seconds
def test_the_wheel_works_without_the_extras(tmp_path: Path) -> None:
    build(ROOT, tmp_path, "--wheel")
    (wheel,) = tmp_path.glob("unisono-*.whl")
    commands = install(wheel, ROOT / "requirements" / "runtime.txt", tmp_path / "environment")
    python, unisono = str(commands / "python"), str(commands / "unisono")
    assert "No module" not in run(
        python, "-c", "import unisono, sys; assert 'pyarrow' not in sys.modules; print(unisono.Config())"
    )
    missing = "import importlib.util as u; print([m for m in ('pyarrow', 'pyspark') if u.find_spec(m)])"
    assert run(python, "-c", missing).strip() == "[]"
    command = (unisono, "sim", "run", "--messages", "50", "--trace", str(tmp_path / "trace"))
    assert "PASS" in run(*command, cwd=tmp_path)
    assert list((tmp_path / "trace").rglob("*.jsonl")), "without pyarrow a trace is JSON lines"
    assert "PASS" in run(unisono, "trace", "check", str(tmp_path / "trace"))
    (tmp_path / "docs" / "img").mkdir(parents=True)  # as in a checkout
    pages = [(ROOT / page).read_text("utf-8") for page in ("README.md", "docs/tour.md")]
    shown = [words for page in pages for words in re.findall(r"^\$ unisono (.*)$", page, re.MULTILINE)]
    assert len(shown) >= 6, "the README and the tour"
    for words in shown:
        run(unisono, *shlex.split(words), cwd=tmp_path)
