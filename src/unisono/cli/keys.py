"""`unisono keygen`: a key for a group."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from unisono.cli.show import out
from unisono.core.errors import Misuse
from unisono.runtime.seal import make_key


def keygen(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="File to create; only you can read it.")],
) -> None:
    """Create a group key. Copy the file to every member over a private channel, and pass it with `--key FILE`."""
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise Misuse(f"{file} is there already, and a key that is overwritten is lost: choose another name.") from None
    except OSError as error:
        raise Misuse(f"{file} cannot be written: {error.strerror}.") from None
    with os.fdopen(descriptor, "w") as stream:
        stream.write(make_key() + "\n")
    out.print(
        f"{file}: a new group key. Anyone who has it can join; pass it with --key {file}.", markup=False, soft_wrap=True
    )
