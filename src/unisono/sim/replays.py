"""Replay files: a scenario of orders or of a whole group, and the sentence that it was kept for."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from unisono.core.errors import Misuse
from unisono.sim.files import load_json, write_whole
from unisono.sim.group_scenario import GroupScenario
from unisono.sim.scenario import Scenario
from unisono.sim.shrink import shrink

AnyScenario: TypeAlias = Scenario | GroupScenario
ScenarioT = TypeVar("ScenarioT", Scenario, GroupScenario)
KINDS: dict[str, type[Scenario] | type[GroupScenario]] = {"scenario": Scenario, "group": GroupScenario}


def save_replay(path: Path, scenario: AnyScenario, sentence: str, **beside: Any) -> None:
    """Write a replay file, whole or not at all. What is kept beside the scenario is for others than `load_replay`."""
    (kind,) = (kind for kind, cls in KINDS.items() if isinstance(scenario, cls))
    head = "".join(f"  {_row(*one)},\n" for one in {"kind": kind, "sentence": sentence, **beside}.items())
    rows = ",\n    ".join(_row(name, value) for name, value in scenario.to_json().items())
    write_whole(path, f'{{\n{head}  "scenario": {{\n    {rows}\n  }}\n}}\n')


def keep_smallest(path: Path, scenario: ScenarioT, sentence: str, failure_of: Callable[[ScenarioT], str | None]) -> str:
    """Shrink a failing scenario into a replay file. Returns what fails in it."""
    smallest, sentence = shrink(scenario, sentence, failure_of)
    path.parent.mkdir(parents=True, exist_ok=True)
    save_replay(path, smallest, sentence)
    return sentence


def load_replay(path: Path) -> AnyScenario:
    return read_replay(path, load_json(path))


def read_replay(path: Path, data: Any) -> AnyScenario:
    """The scenario in what a replay file holds."""
    kind = data.get("kind") if isinstance(data, dict) else None
    if not isinstance(kind, str) or kind not in KINDS:
        raise Misuse(f"{path} is not a replay file: its `kind` must be `scenario`, `group` or `explore`.")
    return KINDS[kind].from_json(data.get("scenario"))


def _row(name: str, value: Any) -> str:
    """A field on a line; of a list of objects each on a line of its own, so that a person can read and change them."""
    text = json.dumps(value)
    if isinstance(value, list | tuple) and value and isinstance(value[0], dict):
        text = "[\n      " + ",\n      ".join(json.dumps(one) for one in value) + "\n    ]"
    return f"{json.dumps(name)}: {text}"
