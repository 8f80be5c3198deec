"""Build unisono, and install it where there is nothing else."""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path


def run(*command: str, cwd: Path | None = None) -> str:
    """What a command prints; if it fails, an error with all that it said."""
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def build(source: Path, target: Path, *kinds: str) -> None:
    """Build what `kinds` name (`--wheel`); without any, an archive of the sources, and the wheel from that archive."""
    run(sys.executable, "-m", "build", *kinds, "--no-isolation", "--outdir", str(target), str(source))


def install(wheel: Path, requirements: Path, home: Path) -> Path:
    """Make an environment with a wheel and what it requires, pinned; the folder of its commands."""
    venv.create(home, with_pip=True)
    commands = home / "bin"
    pip = (str(commands / "python"), "-m", "pip", "install", "-q", "--disable-pip-version-check")
    run(*pip, "--require-hashes", "-r", str(requirements))
    run(*pip, "--no-deps", str(wheel))
    return commands
