"""A grid of runs as data: every combination of order, members, source, rate, delay, loss, phi and seed.

A grid is one or several blocks; in a block the axes may be lists, everything else is one value. As a file:

    name = "mine"

    [[block]]
    order = ["abcast", "tomp"]
    members = [3, 5]
    source = "poisson"
    rate = [300, 1000]
    delay = "exponential:1ms"
    seeds = 20            # the seeds 0 to 19; or seed = [3, 7]
    messages = 200
    ack_delay = "none"    # a duration, or none: acknowledgements ride on casts only

A cell is one scenario with an id made of what it holds: the same cell has the same id in every grid and on every machine.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from itertools import product
from pathlib import Path
from typing import Any

from unisono.core.errors import Misuse, UnisonoError
from unisono.sim.scenario import Scenario, Source
from unisono.sim.units import parse_duration
from unisono.trace.files import parse_toml, read_text

AXES: dict[str, Any] = {
    "order": "sequencer",
    "members": 3,
    "source": "poisson",
    "rate": 100.0,
    "delay": "uniform:0.5ms:2ms",
    "loss": 0.0,
    "phi": "default",
    "seed": 0,
}
"""The axes, in the order in which they vary, each with the value it has if a block does not name it."""
FIXED = ("messages", "ack_delay", "retransmit", "turn", "size", "burst", "depth", "causal_share", "subset_share")
CELLS_MAX = 1_000_000


@dataclass(frozen=True, slots=True)
class GridCell:
    id: str
    scenario: Scenario

    @property
    def cost_s(self) -> float:
        """Roughly how long it takes to run, to deal out work evenly: deliveries count, and the graph orders grow with n."""
        s = self.scenario
        slow = 1 + s.members / 16 if s.order in ("toto", "all-ack") else 1.0
        return 0.003 + s.source.messages * s.members * 60e-6 * slow


@dataclass(frozen=True, slots=True)
class Grid:
    name: str
    cells: tuple[GridCell, ...]
    """Sorted by id, each once."""


def make_grid(name: str, *blocks: Mapping[str, Any]) -> Grid:
    """The grid of these blocks; a cell that two blocks name is in it once."""
    if not blocks:
        raise Misuse(f"the grid {name!r} is empty: write at least one [[block]].")
    cells: dict[str, GridCell] = {}
    for number, block in enumerate(blocks, 1):
        for scenario in _scenarios(block, f"block {number} of the grid {name!r}"):
            cell = GridCell(id_of(scenario), scenario)
            cells[cell.id] = cell
    return Grid(name, tuple(cells[id] for id in sorted(cells)))


def read_grid(path: Path) -> Grid:
    """Read a grid from a TOML file; raise `Misuse` if anything is wrong."""
    try:
        data = parse_toml(read_text(path))
    except OSError as error:
        raise Misuse(f"{path} cannot be read: {error.strerror or error}.") from None
    except ValueError as error:
        raise Misuse(f"{path} is not a grid in TOML: {error}.") from None
    for key in data:
        if key not in ("name", "block"):
            raise Misuse(f"{path} has {key!r} at the top: a grid has a name and [[block]] tables.")
    blocks, name = data.get("block", []), data.get("name", path.stem)
    if not isinstance(name, str):
        raise Misuse(f"{path}: the name must be a text, not {name!r}.")
    if not isinstance(blocks, list) or not all(isinstance(block, dict) for block in blocks):
        raise Misuse(f"{path}: write each block as a table of its own, under [[block]].")
    return make_grid(name, *blocks)


def id_of(scenario: Scenario) -> str:
    """Readable in front, and unique by a hash of all in which the scenario differs from the default.

    So a setting that a later version adds does not make strangers of cells that leave it alone.
    """
    text = json.dumps(_different(scenario.to_json(), Scenario().to_json()), sort_keys=True, separators=(",", ":"))
    source = scenario.source
    front = f"{scenario.order}-n{scenario.members}-{source.kind}-{source.rate:g}-s{scenario.seed}"
    return f"{front}-{blake2b(text.encode(), digest_size=6).hexdigest()}"


def _different(values: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    kept = {}
    for name, value in values.items():
        usual = defaults.get(name)
        if isinstance(value, dict) and isinstance(usual, dict):
            value, usual = _different(value, usual), {}
        if value != usual:
            kept[name] = value
    return kept


def _scenarios(block: Mapping[str, Any], where: str) -> list[Scenario]:
    values = dict(block)
    if "seeds" in values:
        if "seed" in values:
            raise Misuse(f"{where} has both seeds and seed: one is enough.")
        values["seed"] = list(range(_count(values.pop("seeds"), where)))
    for key in values:
        if key not in AXES and key not in FIXED:
            raise Misuse(f"{where} has no {key!r}: choose among {', '.join((*AXES, 'seeds', *FIXED))}.")
    axes = {name: _axis(name, values.get(name, default), where) for name, default in AXES.items()}
    size = 1
    for choices in axes.values():
        size *= len(choices)
    if size > CELLS_MAX:
        raise Misuse(f"{where} has {size:,} cells: the limit is {CELLS_MAX:,}.")
    fixed = {name: values[name] for name in FIXED if name in values}
    try:
        return [_scenario(dict(zip(axes, choice, strict=True)), fixed) for choice in product(*axes.values())]
    except UnisonoError as error:
        raise Misuse(f"{where}: {error}") from None


def _scenario(axes: dict[str, Any], fixed: dict[str, Any]) -> Scenario:
    config: dict[str, Any] = {}
    if axes["phi"] != "default" and axes["order"] == "toto":  # to the other orders the axis means nothing
        config["phi"] = float(axes["phi"])
    if "ack_delay" in fixed:
        config["ack_delay_ns"] = None if fixed["ack_delay"] == "none" else _duration("ack_delay", fixed)
    size = fixed.get("size", 64)
    load = {
        name: fixed[name] for name in ("messages", "burst", "depth", "causal_share", "subset_share") if name in fixed
    }
    times: dict[str, Any] = {f"{name}_ns": _duration(name, fixed) for name in ("retransmit", "turn") if name in fixed}
    return Scenario(
        order=axes["order"],
        members=axes["members"],
        seed=axes["seed"],
        source=Source(kind=axes["source"], rate=axes["rate"], size_bytes_min=size, size_bytes_max=size, **load),
        delay=axes["delay"],
        loss=axes["loss"],
        config=config,
        **times,
    )


def _duration(name: str, fixed: Mapping[str, Any]) -> int:
    if not isinstance(fixed[name], str):
        raise Misuse(f'{name} must be a duration in quotes, such as "5ms", not {fixed[name]!r}.')
    return parse_duration(fixed[name])


def _axis(name: str, value: Any, where: str) -> list[Any]:
    choices = value if isinstance(value, list) else [value]
    if not choices:
        raise Misuse(f"{where}: the list of {name} is empty.")
    wanted = type(AXES[name])
    for choice in choices:
        fits = isinstance(choice, wanted) or (wanted is float and isinstance(choice, int))
        if name == "phi":
            fits = choice == "default" or isinstance(choice, int | float)
        if not fits or isinstance(choice, bool):
            what = {int: "a whole number", float: "a number", str: "a text"}[wanted]
            raise Misuse(f"{where}: {name} must be {'a number or default' if name == 'phi' else what}, not {choice!r}.")
    return [float(choice) if wanted is float else choice for choice in choices]


def _count(value: Any, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise Misuse(f"{where}: seeds must be how many, at least 1, not {value!r}.")
    return value
