"""From a violation in a table to its sentence: what the property says of it (`trace.checks.property`).

The formulations on Spark still call some things in a witness otherwise than the plain checkers; `as_reported` renames them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from unisono.trace.checks.properties import PROPERTIES


def sentence(property: str, members: Sequence[str], view: str | None, witness: Mapping[str, str]) -> str:
    """What a violation says, in words. `local` numbers are local indices of the named member's rows."""
    return PROPERTIES[property].tell(members, view, as_reported(property, witness))


def as_reported(property: str, witness: Mapping[str, str]) -> dict[str, str]:
    """A witness with the keys of the plain checker."""
    found = {("local" if key == "local_index" else key): text for key, text in witness.items() if text is not None}
    if "what" not in found and property == "P5":
        found |= _of_agreement(found)
    elif found.get("what") == "twice":
        found.setdefault("after", found["local"])
    return found


def _of_agreement(found: Mapping[str, str]) -> dict[str, str]:
    if "cast_local" not in found:
        return {"what": "safe" if found.get("safe") == "true" else "lacking"}
    return {"what": "void early" if found["cast_local"] == "-1" else "void", "placed_local": found["local"]}
