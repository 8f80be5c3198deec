"""The wheel alone, in an environment that has nothing else: no pyarrow, no Spark, no Java."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def run(*command: str, cwd: Path | None = None) -> str:
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_wheel_works_without_the_extras(tmp_path: Path) -> None:
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(ROOT))
    (wheel,) = tmp_path.glob("unisono-*.whl")
    home = tmp_path / "environment"
    venv.create(home, with_pip=True)
    python = str(home / "bin" / "python")
    quiet = ("-q", "--disable-pip-version-check")
    run(python, "-m", "pip", "install", *quiet, "--require-hashes", "-r", str(ROOT / "requirements" / "runtime.txt"))
    run(python, "-m", "pip", "install", *quiet, "--no-deps", str(wheel))
    assert "No module" not in run(
        python, "-c", "import unisono, sys; assert 'pyarrow' not in sys.modules; print(unisono.Config())"
    )
    missing = "import importlib.util as u; print([m for m in ('pyarrow', 'pyspark') if u.find_spec(m)])"
    assert run(python, "-c", missing).strip() == "[]"
    command = (str(home / "bin" / "unisono"), "sim", "run", "--messages", "50", "--trace", str(tmp_path / "trace"))
    assert "PASS" in run(*command, cwd=tmp_path)
    assert list((tmp_path / "trace").rglob("*.jsonl")), "without pyarrow a trace is JSON lines"
    assert "PASS" in run(str(home / "bin" / "unisono"), "trace", "check", str(tmp_path / "trace"))
    (tmp_path / "docs" / "img").mkdir(parents=True)  # as in a checkout
    pages = [(ROOT / page).read_text("utf-8") for page in ("README.md", "docs/tour.md")]
    shown = [words for page in pages for words in re.findall(r"^\$ unisono (.*)$", page, re.MULTILINE)]
    assert len(shown) >= 6, "the README and the tour"
    for words in shown:
        run(str(home / "bin" / "unisono"), *shlex.split(words), cwd=tmp_path)
