"""The command line: one file per command family; `app` puts them together."""

from __future__ import annotations


def main() -> None:
    """Run the command that the process's arguments name."""
    from unisono.cli.app import main as run

    run()
