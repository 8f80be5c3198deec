"""Make a release: from a clean tree, name the changelog's section and the version, build, check, commit and tag.

The new version is built and checked in a copy of what is committed, so a release that fails changes nothing.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import tarfile
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from tools.wheel import build, install, run

ROOT = Path(__file__).resolve().parents[1]
VERSION = re.compile(r"\d+\.\d+\.\d+(?:(?:a|b|rc)\d+)?")
UNRELEASED = "## Unreleased"
VERSION_LINE = re.compile(r'^version = ".*"$', re.MULTILINE)


class Refused(Exception):
    """Why this cannot be released, in one sentence."""


def refuse_unless_ready(root: Path, version: str) -> None:
    if not VERSION.fullmatch(version):
        raise Refused(f"{version} is not a version; write one such as 1.2.3 or 1.2.3rc1.")
    if run("git", "status", "--porcelain", cwd=root):
        raise Refused("There are changes that are not committed; commit or stash them first.")
    changelog = (root / "CHANGELOG.md").read_text("utf-8")
    if run("git", "tag", "--list", f"v{version}", cwd=root) or f"\n## {version} " in changelog:
        raise Refused(f"Version {version} exists; choose a new one.")
    if not section_of(changelog):
        raise Refused(f"CHANGELOG.md says nothing below `{UNRELEASED}`; write there what this version changes.")


def section_of(changelog: str) -> str:
    """What the changelog says of the coming version, without headings."""
    _, _, rest = changelog.partition(f"\n{UNRELEASED}\n")
    section = re.split(r"^## ", rest, maxsplit=1, flags=re.MULTILINE)[0]
    return "\n".join(line for line in section.splitlines() if line.strip() and not line.startswith("#"))


def rewrite(root: Path, version: str, date: str) -> None:
    """Name the version in the project file and in the changelog."""
    project, changelog = root / "pyproject.toml", root / "CHANGELOG.md"
    text, count = VERSION_LINE.subn(f'version = "{version}"', project.read_text("utf-8"))
    assert count == 1, "pyproject.toml has one line with a version"
    project.write_text(text, "utf-8")
    heading = f"{UNRELEASED}\n\n## {version} – {date}"
    changelog.write_text(changelog.read_text("utf-8").replace(UNRELEASED, heading, 1), "utf-8")


def copy_of_head(root: Path, target: Path) -> Path:
    """What is committed, and nothing else that lies there."""
    archive = target / "head.tar"
    run("git", "archive", "--output", str(archive), "HEAD", cwd=root)
    with tarfile.open(archive) as tar:
        tar.extractall(target / "tree", filter="data")
    return target / "tree"


def check(wheel: Path, requirements: Path, version: str, scratch: Path) -> None:
    """The wheel alone says its version, and passes a short simulated run."""
    commands = install(wheel, requirements, scratch / "environment")
    said = run(str(commands / "unisono"), "--version", cwd=scratch).strip()
    if said != f"unisono {version}":
        raise Refused(f"The wheel says that it is {said}.")
    if "PASS" not in run(str(commands / "unisono"), "sim", "run", "--messages", "50", cwd=scratch):
        raise Refused("A simulated run with the wheel does not pass.")


def release(root: Path, version: str, date: str, dry_run: bool) -> list[Path]:
    """The files that were built; with `dry_run` they are gone again, and nothing is changed."""
    refuse_unless_ready(root, version)
    with tempfile.TemporaryDirectory(prefix="unisono-release-") as folder:
        scratch = Path(folder)
        tree = copy_of_head(root, scratch)
        rewrite(tree, version, date)
        print(f"Building {version}.", flush=True)
        build(tree, scratch / "dist")
        built = sorted((scratch / "dist").iterdir())
        (wheel,) = (scratch / "dist").glob("*.whl")
        print(f"Checking {wheel.name} in an environment of its own.", flush=True)
        check(wheel, tree / "requirements" / "runtime.txt", version, scratch)
        if dry_run:
            return [Path(file.name) for file in built]
        rewrite(root, version, date)
        (root / "dist").mkdir(exist_ok=True)
        kept = [Path(shutil.copy(file, root / "dist")) for file in built]
    message = f"release: {version}\n\nThe changelog's section and the version are named; sdist and wheel were built and checked."
    run("git", "commit", "--quiet", "--message", message, "--", "pyproject.toml", "CHANGELOG.md", cwd=root)
    run("git", "tag", "--annotate", f"v{version}", "--message", f"unisono {version}", cwd=root)
    return kept


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev release", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("version", help="such as 1.2.3")
    parser.add_argument("--dry-run", action="store_true", help="build and check, but change nothing")
    chosen = parser.parse_args()
    try:
        made = release(ROOT, chosen.version, datetime.now(UTC).date().isoformat(), chosen.dry_run)
    except Refused as reason:
        print(f"./dev release: {reason}", file=sys.stderr)
        return 2
    print(
        "Built and checked "
        + " and ".join(str(path.relative_to(ROOT) if path.is_absolute() else path) for path in made)
    )
    print(
        "Nothing was changed."
        if chosen.dry_run
        else f"Committed and tagged v{chosen.version}; push both to publish them."
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
