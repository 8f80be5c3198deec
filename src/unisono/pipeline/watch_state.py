"""How groups stand, by the table `views`. Needs no Spark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

Whose = tuple[str, str]
"""A run and its group."""


@dataclass
class GroupState:
    """How one group stands."""

    order: str = ""
    views: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    """By view, what was said last; a FAIL stays."""
    failures: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    """By id, each violation once."""

    @property
    def result(self) -> str:
        results = {row["result"] for row in self.views.values()} | ({"FAIL"} if self.failures else set())
        return next((one for one in ("FAIL", "UNKNOWN") if one in results), "PASS so far")

    @property
    def passes_to(self) -> str | None:
        """The last view up to which all that are closed pass."""
        last = None
        for row in sorted(self.views.values(), key=lambda row: row["number"]):
            if row["result"] != "PASS":
                break
            last = str(row["view"])
        return last

    @property
    def open_views(self) -> list[str]:
        return [view for view, row in self.views.items() if row["result"] == "open"]

    def take(self, row: Mapping[str, Any]) -> None:
        view = str(row["view"])
        self.order = row["order"] or self.order
        if row["result"] == "FAIL":
            self.failures.setdefault(str(row["id"]), row)
        if self.views.get(view, {}).get("result") != "FAIL":
            self.views[view] = row

    def __str__(self) -> str:
        if self.failures:
            return f"FAIL: {len(self.failures)} violations"
        unknown = [view for view, row in self.views.items() if row["result"] == "UNKNOWN"]
        so_far = f"PASS so far, to view {self.passes_to}" if self.passes_to else "no view is closed yet"
        return f"{so_far}; UNKNOWN: {', '.join(unknown)}" if unknown else so_far


def group_states(
    rows: Iterable[Mapping[str, Any]], of_runs: Iterable[Mapping[str, Any]] = ()
) -> dict[Whose, GroupState]:
    """The state of every group from the rows of `views`, in any order, and violations that only whole runs show."""
    states: dict[Whose, GroupState] = {}
    for row in sorted(rows, key=lambda row: (row["said_ms"], row["batch"])):
        states.setdefault((row["run"], row["group"]), GroupState()).take(row)
    for row in of_runs:
        states.setdefault((row["run"], row["group"]), GroupState()).failures.setdefault(str(row["id"]), row)
    return dict(sorted(states.items()))
