"""The table `views`: its rows, what only the verdict on a whole run adds to them, and how groups stand by them. Needs no Spark."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, NamedTuple

from unisono.pipeline.data_files import ALL, Chosen
from unisono.pipeline.lake import open_table, table_names
from unisono.pipeline.storage import Location
from unisono.trace.schema import view_number

Whose = tuple[str, str]
"""A run and its group."""


class ViewVerdict(NamedTuple):
    """What was said of a view at one moment: open, PASS, UNKNOWN, or one violation (FAIL)."""

    run: str
    group: str
    view: str
    """Empty for a violation of the whole run."""
    order: str
    result: str
    by: str
    why: str = ""
    asked: tuple[str, ...] = ()
    property: str | None = None
    members: tuple[str, ...] = ()
    witness: Mapping[str, str] | None = None
    sentence: str | None = None

    def id(self) -> str | None:
        """Names a violation, whenever and however often it is found; None if this is none."""
        if self.property is None:
            return None
        text = json.dumps([self.run, self.group, self.view, self.property, self.members, self.sentence])
        return blake2b(text.encode(), digest_size=12).hexdigest()

    def as_row(self, batch: int = 0, said_ms: int = 0) -> dict[str, Any]:
        """As a row of the table, fit for JSON."""
        more = {"number": view_number(self.view), "id": self.id(), "batch": batch, "said_ms": said_ms}
        return {**self._asdict(), "asked": list(self.asked), "members": list(self.members), **more}


class VerdictViolation(NamedTuple):
    """A violation in the table `violations`."""

    row: dict[str, Any]
    """As a row of `views`; its view is empty if the property is one of the whole run."""
    is_in_views: bool
    """Whether a view has failed for it."""


def run_violations(out: Location, runs: frozenset[str] | None = None) -> list[VerdictViolation]:
    """The violations that the verdicts on these runs, or on all, tell of.

    A view and the run put one violation into different words. So what fails one property in one view counts as the same.
    """
    names = table_names(out)
    if "violations" not in names or runs == frozenset():
        return []
    chosen = ALL if runs is None else Chosen(runs)
    broken = [row for row in open_table(out, "violations").read(chosen).to_pylist() if row["run"] is not None]
    known = set()
    if broken and "views" in names:
        views = open_table(out, "views")
        for part in views.parts(views.files(chosen), chosen):
            for row in part.select(["run", "group", "property", "view"]).to_pylist():
                known.add((row["run"], row["group"], row["property"], row["view"]))
    return [
        VerdictViolation(_of_run(row).as_row(), (row["run"], row["group"], row["property"], row["view"] or "") in known)
        for row in broken
    ]


def _of_run(row: Mapping[str, Any]) -> ViewVerdict:
    members, witness = tuple(row["members"] or ()), dict(row["witness"] or ())
    about = {"property": row["property"], "members": members, "witness": witness, "sentence": row["sentence"]}
    return ViewVerdict(row["run"], row["group"] or "", row["view"] or "", "", "FAIL", "run", **about)


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
