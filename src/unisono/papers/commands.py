"""The commands of the wing."""

from __future__ import annotations

import typer

from unisono.papers.by_hand import AsPrinted
from unisono.papers.causal import causal
from unisono.papers.directory import commands as directory
from unisono.papers.ptp.program import ptp


def register(app: typer.Typer) -> None:
    """Add the wing's commands to the command line."""
    app.add_typer(directory.app, name="directory")
    app.command("causal", cls=AsPrinted)(causal)
    app.command("ptp", cls=AsPrinted)(ptp)
