"""The shrinker: from a failing scenario to the smallest one that still fails.

Greedy: try the changes below, most radical first; keep a change if the scenario still fails; start again until none helps. What
counts as "still fails" is the caller's, so the same shrinker serves any property.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from unisono.core.errors import Misuse
from unisono.sim.scenario import Scenario

RUNS_MAX = 400
SIMPLEST_DELAY = "constant:1ms"


def shrink(
    scenario: Scenario, sentence: str, failure_of: Callable[[Scenario], str | None], runs_max: int = RUNS_MAX
) -> tuple[Scenario, str]:
    """Return the smallest failing scenario found within `runs_max` runs, and what fails in it."""
    runs = 0
    progress = True
    while progress and runs < runs_max:
        progress = False
        for smaller in _smaller(scenario):
            if runs >= runs_max:
                break
            runs += 1
            found = failure_of(smaller)
            if found is not None:
                scenario, sentence, progress = smaller, found, True
                break
    return scenario, sentence


def _smaller(s: Scenario) -> Iterator[Scenario]:
    """Simpler scenarios, the most radical first. Those that make no sense are left out."""
    for change in _changes(s):
        try:
            candidate = s.with_(**change)
        except Misuse:
            continue
        if candidate != s:
            yield candidate


def _changes(s: Scenario) -> Iterator[dict[str, Any]]:
    messages = s.source.messages
    for fewer in dict.fromkeys((messages // 4, messages // 2, messages - 1)):
        if 1 <= fewer < messages:
            yield {"source": replace(s.source, messages=fewer)}
    if s.faults:
        half = len(s.faults) // 2
        yield from ({"faults": some} for some in ((), s.faults[:half], s.faults[half:]))
        yield from ({"faults": s.faults[:i] + s.faults[i + 1 :]} for i in range(len(s.faults)))
    for fewer in dict.fromkeys((2, s.members // 2, s.members - 1)):
        if 1 <= fewer < s.members:
            yield _with_members(s, fewer)
    yield from ({name: 0.0} for name in ("loss", "duplicate", "reorder"))
    yield from ({name: 0} for name in ("turn_ns", "flush_ns"))
    yield {"source": replace(s.source, causal_share=0.0)}
    yield {"source": replace(s.source, fifo_share=0.0)}
    yield {"source": replace(s.source, subset_share=0.0)}
    yield {"source": replace(s.source, size_bytes_min=0, size_bytes_max=0)}
    for name in s.config:
        yield {"config": {other: value for other, value in s.config.items() if other != name}}
    if s.delay != SIMPLEST_DELAY:
        yield from ({"delay": delay} for delay in (SIMPLEST_DELAY, "uniform:0.1ms:3ms"))


def _with_members(s: Scenario, members: int) -> dict[str, Any]:
    """Fewer members; faults that name others go, and a threshold that no longer fits."""
    faults = []
    for fault in s.faults:
        who = tuple(number for number in fault.who if number < members)
        if who == fault.who or (fault.kind == "partition" and who):
            faults.append(replace(fault, who=who))
    config = {name: value for name, value in s.config.items() if name != "phi"}
    return {"members": members, "faults": tuple(faults), "config": config}
