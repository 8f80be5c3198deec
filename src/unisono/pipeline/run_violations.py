"""Violations that only the verdict on a whole run tells, in the form in which the table `views` tells of those of views.

A view and the run put one violation into different words. So what fails one property in one view counts as the same violation.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

from unisono.pipeline.data_files import ALL, Chosen
from unisono.pipeline.lake import open_table, table_names
from unisono.pipeline.storage import Location
from unisono.trace.schema import view_number


class VerdictViolation(NamedTuple):
    """A violation in the table `violations`."""

    row: dict[str, Any]
    """As a row of `views`; its view is empty if the property is one of the whole run."""
    is_in_views: bool
    """Whether a view has failed for it."""


def run_violations(out: Location, runs: frozenset[str] | None = None) -> list[VerdictViolation]:
    """Those of these runs, or of all."""
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
        VerdictViolation(_as_view(row), (row["run"], row["group"], row["property"], row["view"] or "") in known)
        for row in broken
    ]


def violation_id(run: str, group: str, view: str, property: str, members: Sequence[str], sentence: str | None) -> str:
    """Names a violation, whenever and however often it is found."""
    text = json.dumps([run, group, view, property, list(members), sentence])
    return blake2b(text.encode(), digest_size=12).hexdigest()


def _as_view(row: dict[str, Any]) -> dict[str, Any]:
    group, view, members = row["group"] or "", row["view"] or "", row["members"] or []
    return {
        "run": row["run"],
        "group": group,
        "view": view,
        "number": view_number(view),
        "order": "",
        "result": "FAIL",
        "by": "run",
        "why": "",
        "asked": [],
        "property": row["property"],
        "members": members,
        "witness": dict(row["witness"] or ()),
        "sentence": row["sentence"],
        "id": violation_id(row["run"], group, view, row["property"], members, row["sentence"]),
        "batch": 0,
        "said_ms": 0,
    }
