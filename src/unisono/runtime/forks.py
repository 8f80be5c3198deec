"""A forked child gives up the groups that its parent has joined.

A child has a copy of everything: the key, the counters, the socket, the journal's files. If both sides went on, they would seal
two plaintexts under one key and one nonce, and cast two messages under one number. So a child disowns its copies as it begins.
"""

from __future__ import annotations

import os
from functools import cache
from typing import Protocol
from weakref import WeakSet


class Inherited(Protocol):
    """What a forked child has a copy of and must not use."""

    def disown(self) -> None:
        """Be dead from now on, and say so when used. Called in a child as it begins: it must not fail, wait, or use an event
        loop, which the child may share with its parent."""


def disown_in_children(one: Inherited) -> None:
    """From now on, forked children of this process disown their copy of this."""
    _of_this_process().add(one)


def sentence(who: str, process: int) -> str:
    """Why a child cannot use what process `process` has made."""
    return f"{who} in process {process}, and this is process {os.getpid()}, forked from it: join anew in the child."


@cache
def _of_this_process() -> WeakSet[Inherited]:
    inherited: WeakSet[Inherited] = WeakSet()

    def disown_all() -> None:
        for one in list(inherited):
            one.disown()

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=disown_all)
    return inherited
