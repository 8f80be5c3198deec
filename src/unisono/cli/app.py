"""Puts the commands together and turns errors into sentences.

Exit codes: 0 success, all properties hold; 1 a violation was found, or the operation failed; 2 bad input, or no verdict is
possible; 70 an internal error; 130 interrupted.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from typing import Annotated

import typer
from rich.console import Console

from unisono.cli import (
    bench_group,
    chat,
    check_net,
    compare,
    demo,
    experiment,
    keys,
    node,
    pipeline,
    properties,
    sim,
    status,
    trace,
)
from unisono.cli.streams import prepare_streams
from unisono.core.errors import UnisonoError
from unisono.core.text import shorten
from unisono.papers.commands import register as register_papers
from unisono.runtime.errors import JournalError, NotFlushed, TimedOut
from unisono.trace.sanitize import sanitize_lines
from unisono.trace.schema import TraceError
from unisono.version import __version__

EXIT_FAILED, EXIT_BAD_INPUT, EXIT_FAULT, EXIT_PIPE = 1, 2, 70, 141

app = typer.Typer(
    name="unisono",
    help="Ordered, reliable group communication: run groups, simulate them, compare the protocols, judge what happened.",
    epilog="Exit codes: 0 success, 1 failure or violation, 2 bad input or no verdict, 70 internal error, 130 interrupted.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"unisono {__version__}")
        raise typer.Exit


@app.callback()
def options_of_all(
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


app.add_typer(sim.app, name="sim")
app.add_typer(trace.app, name="trace")
app.add_typer(experiment.app, name="experiment")
app.add_typer(pipeline.app, name="pipeline")
app.command("compare")(compare.compare)
app.command("properties")(properties.properties)
app.command("demo")(demo.demo)
app.command("chat")(chat.chat)
app.command("node")(node.node)
app.command("status")(status.status)
app.command("members")(status.members)
app.command("explain")(status.explain)
app.command("give-up")(status.give_up)
app.command("keygen")(keys.keygen)
app.command("check-net")(check_net.check_net)
app.command("bench")(bench_group.bench)
register_papers(app)


def main() -> None:
    """Run a command, and turn each error into one sentence and an exit code."""
    prepare_streams()
    logging.getLogger("unisono").addHandler(
        logging.NullHandler()
    )  # commands have words of their own; `--log` shows it all
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends like Ctrl-C, so that worker processes end too
    if hasattr(signal, "SIGPIPE"):  # `| head` ends us quietly, as it ends every other program
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        app()
    except (TimedOut, NotFlushed, JournalError) as error:  # not caused by the caller
        console.print("unisono:", sanitize_lines(shorten(str(error))), markup=False)
        sys.exit(EXIT_FAILED)
    except (UnisonoError, TraceError) as error:
        console.print("unisono:", sanitize_lines(shorten(str(error))), markup=False)
        sys.exit(EXIT_BAD_INPUT)
    except BrokenPipeError:  # the same for commands that have started Spark, which needs the signal ignored
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.exit(EXIT_PIPE)
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        console.print(sanitize_lines(f"unisono: {error.strerror or error}{where}."), markup=False)
        sys.exit(EXIT_BAD_INPUT)
    except Exception as error:
        if os.environ.get("UNISONO_DEBUG"):
            raise
        text = f"unisono: internal error, {type(error).__name__}: {error}. Set UNISONO_DEBUG=1 for the traceback."
        console.print(sanitize_lines(text), markup=False)
        sys.exit(EXIT_FAULT)
