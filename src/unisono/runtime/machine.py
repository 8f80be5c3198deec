"""The environment of a member that is not simulated: this machine's clocks, randomness and sockets."""

from __future__ import annotations

from random import SystemRandom
from time import monotonic_ns, time_ns

from unisono.environment import Environment, find_environment


def this_machine() -> Environment:
    return Environment(monotonic_ns, time_ns, SystemRandom())


def find_or_this_machine() -> Environment:
    """The environment in force where this is called."""
    return find_environment() or this_machine()
