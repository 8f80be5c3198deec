"""`./dev release` refuses what is not ready, and a rehearsal changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tools.release import Refused, refuse_unless_ready, release, rewrite, section_of
from tools.wheel import run

ROOT = Path(__file__).resolve().parents[2]
CHANGELOG = "# Changelog\n\n## Unreleased\n\n### Added\n\n- A thing.\n\n## 0.1.0 – 2026-01-01\n\n- The first.\n"
PROJECT = '[project]\nname = "unisono"\nversion = "0.1.0"\n'


def git(root: Path, *words: str) -> str:
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    return run("git", *who, *words, cwd=root)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A committed project that is ready for 0.2.0."""
    (tmp_path / "CHANGELOG.md").write_text(CHANGELOG, "utf-8")
    (tmp_path / "pyproject.toml").write_text(PROJECT, "utf-8")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message", "first")
    return tmp_path


def change_a_file(root: Path) -> None:
    (root / "pyproject.toml").write_text(PROJECT + "\n", "utf-8")


def tag(root: Path) -> None:
    git(root, "tag", "v0.2.0")


def empty_the_section(root: Path) -> None:
    (root / "CHANGELOG.md").write_text(CHANGELOG.replace("- A thing.\n", ""), "utf-8")
    git(root, "commit", "--quiet", "--all", "--message", "empty")


def leave_it(root: Path) -> None:
    """Nothing is wrong but the version."""


@pytest.mark.parametrize(
    ("spoil", "version", "sentence"),
    [
        (change_a_file, "0.2.0", "There are changes that are not committed"),
        (tag, "0.2.0", "Version 0.2.0 exists"),
        (leave_it, "0.1.0", "Version 0.1.0 exists"),
        (empty_the_section, "0.2.0", "CHANGELOG.md says nothing below `## Unreleased`"),
        (leave_it, "v2", "v2 is not a version"),
    ],
)
def test_what_is_not_ready_is_refused_with_one_sentence(
    project: Path, spoil: Callable[[Path], None], version: str, sentence: str
) -> None:
    refuse_unless_ready(project, "0.2.0")
    spoil(project)
    with pytest.raises(Refused, match=f"^{sentence}") as refused:
        release(project, version, "2026-02-03", dry_run=False)
    assert str(refused.value).count("\n") == 0


def test_the_version_is_named_in_the_project_and_in_the_changelog(project: Path) -> None:
    rewrite(project, "0.2.0", "2026-02-03")
    assert 'version = "0.2.0"' in (project / "pyproject.toml").read_text("utf-8")
    changelog = (project / "CHANGELOG.md").read_text("utf-8")
    assert "## Unreleased\n\n## 0.2.0 – 2026-02-03\n\n### Added\n\n- A thing.\n" in changelog
    assert section_of(changelog) == ""


def test_this_changelog_has_a_section_for_what_comes() -> None:
    assert "\n## Unreleased\n" in (ROOT / "CHANGELOG.md").read_text("utf-8")


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """What is committed here, ready to be released."""
    if not (ROOT / ".git").exists():
        pytest.skip("this is not a checkout")
    git(tmp_path, "clone", "--quiet", "--no-local", str(ROOT), "clone")
    return tmp_path / "clone"


@pytest.mark.slow
def test_a_rehearsal_builds_and_checks_and_changes_nothing(clone: Path) -> None:
    before = git(clone, "rev-parse", "HEAD")
    built = release(clone, "9.8.7", "2026-02-03", dry_run=True)
    assert {file.name for file in built} == {"unisono-9.8.7.tar.gz", "unisono-9.8.7-py3-none-any.whl"}
    assert git(clone, "status", "--porcelain") == git(clone, "tag", "--list", "v9*") == ""
    assert git(clone, "rev-parse", "HEAD") == before


@pytest.mark.slow
def test_a_release_is_built_committed_and_tagged(clone: Path) -> None:
    git(clone, "config", "user.name", "a")
    git(clone, "config", "user.email", "a@example.org")
    built = release(clone, "9.8.7", "2026-02-03", dry_run=False)
    assert all(file.is_file() for file in built)
    assert git(clone, "status", "--porcelain") == "", "what was built is ignored, the rest is committed"
    assert git(clone, "describe", "--exact-match").strip() == "v9.8.7"
    with pytest.raises(Refused, match="exists"):
        release(clone, "9.8.7", "2026-02-03", dry_run=True)
