"""A program can name whatever it sees of its group, `join` documents its options, and importing costs no runtime."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import MISSING, fields
from itertools import pairwise
from typing import Any, get_args, get_type_hints

import pytest

import unisono
from unisono import JoinOptions

EXPORTED = {id(getattr(unisono, name)) for name in unisono.__all__}


def types_in(hint: Any) -> Iterator[type]:
    """The classes of unisono that an annotation is made of."""
    if isinstance(hint, type) and hint.__module__.startswith("unisono."):
        yield hint
    for inner in get_args(hint):
        yield from types_in(inner)


def shown_by(event: type) -> Iterator[type]:
    """The classes of an event's fields and properties, and of theirs in turn."""
    hints = dict(get_type_hints(event))
    for name, value in inspect.getmembers(event, lambda value: isinstance(value, property)):
        hints[name] = get_type_hints(value.fget)["return"]
    for hint in hints.values():
        for found in types_in(hint):
            yield found
            yield from shown_by(found)


def test_names_are_listed_once() -> None:
    assert len(set(unisono.__all__)) == len(unisono.__all__)


@pytest.mark.parametrize("event", get_args(unisono.Event), ids=lambda event: event.__name__)
def test_an_event_and_all_that_is_in_it_is_public(event: type) -> None:
    hidden = {one.__qualname__ for one in (event, *shown_by(event)) if id(one) not in EXPORTED}
    assert not hidden


def test_why_a_member_is_gone_can_be_asked_by_its_cause() -> None:
    gone, other = unisono.MemberId("a"), unisono.MemberId("b")
    departure = unisono.Departure(gone, unisono.Cause.LEFT, other)
    assert departure.cause is unisono.Cause.LEFT
    assert str(departure) == "left"


def test_the_options_of_join_are_the_fields_of_join_options() -> None:
    options = [one.name for one in fields(JoinOptions)]
    for join in (unisono.join, unisono.sync.join):
        parameters = inspect.signature(join).parameters
        assert list(parameters) == options
        defaults = {one.name: one.default for one in fields(JoinOptions) if one.default is not MISSING}
        assert {name: one.default for name, one in parameters.items() if name in defaults} == defaults
        assert [one.kind for one in parameters.values()][1:] == [inspect.Parameter.KEYWORD_ONLY] * (len(options) - 1)


def test_each_option_of_join_is_documented() -> None:
    tree = ast.parse(inspect.getsource(JoinOptions))
    (made,) = (node for node in tree.body if isinstance(node, ast.ClassDef))
    documented = {
        node.target.id
        for node, text in pairwise(made.body)
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
    }
    assert documented == {one.name for one in fields(JoinOptions)}


def run_alone(program: str) -> str:
    """What a program prints that nothing was imported for."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_importing_unisono_does_not_import_the_runtime() -> None:
    show = "print(sorted(name for name in sys.modules if name.startswith('unisono.runtime')))"
    assert run_alone(f"import sys, unisono; {show}") == "[]\n"


WITHOUT_SOCKETS = """
import sys
BLOCKED = (
    "socket", "_socket", "select", "selectors", "ssl", "asyncio", "asyncio.selector_events", "multiprocessing",
    "concurrent.futures.process",
)
for name in BLOCKED:
    sys.modules[name] = None
from importlib import import_module
from pkgutil import walk_packages
import unisono
"""
NEED_AN_EVENT_LOOP = ("unisono.sim.loop", "unisono.sim.process")
IMPORTS_ALL_BUT = """
for part in ("core", "orders", "services", "trace", "sim"):
    package = import_module(f"unisono.{part}")
    for module in walk_packages(package.__path__, f"{package.__name__}."):
        if module.name not in %r:
            import_module(module.name)
"""
RUNS = """
from unisono.orders.registry import ORDERS
from unisono.sim.explore.orders import Case, explore
from unisono.sim.group_swarm import run_group_seed
from unisono.sim.run import simulate
from unisono.sim.scenario import Scenario, Source
from unisono.sim.swarm import swarm
print(simulate(Scenario(order="sequencer", members=3, source=Source(messages=20), seed=1)).verdict.result)
swarm(["fifo"], seeds=1, workers=1, seen=lambda finding: print(finding.sentence) or True)
print(run_group_seed("fifo", 0).result)
print(explore(Case.of(1, 1), ORDERS["fifo"], 0).violation)
"""


def test_core_orders_services_simulator_and_trace_are_imported_where_there_are_no_sockets() -> None:
    """Nor processes, nor an event loop: `sim.loop` and `sim.process` alone need asyncio."""
    assert run_alone(WITHOUT_SOCKETS + IMPORTS_ALL_BUT % (NEED_AN_EVENT_LOOP,)) == ""


@pytest.mark.parametrize("name", NEED_AN_EVENT_LOOP)
def test_what_needs_an_event_loop_is_not_imported_where_there_is_none(name: str) -> None:
    with pytest.raises(AssertionError, match="asyncio"):
        run_alone(f"{WITHOUT_SOCKETS}import_module({name!r})")


def test_simulator_swarms_and_explorer_run_where_there_are_no_sockets() -> None:
    assert run_alone(WITHOUT_SOCKETS + RUNS).split() == ["PASS", "None", "PASS", "None"]
