"""Which release runs can be asked, of the command and of the package."""

from __future__ import annotations

import tomllib
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest
from typer.testing import CliRunner

import unisono
from unisono import version
from unisono.cli.app import app

ROOT = Path(__file__).resolve().parents[2]


def test_the_release_is_that_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert unisono.__version__ == project["version"]


def test_the_command_says_its_release_and_nothing_else() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.stdout) == (0, f"unisono {unisono.__version__}\n")


def test_without_arguments_there_is_still_help() -> None:
    assert "--version" in CliRunner().invoke(app, ["--help"]).stdout
    assert "Usage" in CliRunner().invoke(app, []).stdout


def test_code_that_was_not_installed_says_that_its_release_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(version, "version", missing)
    assert version.find_version() == version.UNKNOWN
