"""From a witness to a sentence that a person can check by hand in the trace: one template a property."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

from unisono.pipeline.explain_views import TEMPLATES

Witness = Mapping[str, str]


def sentence(property: str, members: Sequence[str], view: str | None, witness: Witness) -> str:
    """What a violation says, in words. `local` numbers are local indices of the named member's rows."""
    return _TEMPLATES[property](members, view or "?", {name: text or "?" for name, text in witness.items()})


def _p0(members: Sequence[str], view: str, w: Witness) -> str:
    row = f"its {w['kind']} (local {w['local_index']})"
    says = {
        "twice": f"it has two rows with local index {w['local_index']}",
        "after the end": f"it goes on with {w['kind']} (local {w['local_index']}) after its {w['ending']}",
        "view": f"{row} names view {view}, but it installed {'none' if w['installed'] == '?' else w['installed']} last",
        "ordinal": f"{row} has ordinal {w['ordinal']} of service {w['service']} in view {view}, not {w['expected']}",
        "service": f"{row} is of service {w['service']}, which the order {w['order']} of view {view} does not carry",
        "protocol": f"its row {w['local_index']} says protocol {w['protocol']}, the row before {w['protocol_before']}",
        "cast again": f"{row} casts message {w['first']}, but it has cast messages below {w['cast_end']} before",
        "joins again": f"it joins (local {w['local_index']}) in the middle of its life",
        "begin": f"its trace begins with {w['kind']}, not with JOIN or VIEW",
    }
    return f"{members[0]}: {says[w['what']]}."


def _p1(members: Sequence[str], view: str, w: Witness) -> str:
    who, origin = members[0], members[1]
    did = f"{who} {'placed' if w.get('kind') == 'PLACE' else 'delivered'} {w['message']} (local {w['local_index']})"
    labels = {
        "digest": (f" with digest {w.get('digest')}", f"with digest {w.get('cast_digest')}"),
        "service": (f" as {w.get('service')}", f"as {w.get('cast_service')}"),
        "destinations": (f" as a message for {w.get('destinations')}", f"for {w.get('cast_destinations')}"),
        "withheld": (" without a void payload", f"for {w.get('cast_destinations')}"),
    }
    if w["what"] == "not addressed":
        return f"{did}, which {origin} addressed to {w['cast_destinations']} only (local {w['cast_local']})."
    if w["what"] in labels:
        how, instead = labels[w["what"]]
        return f"{did}{how}, but {origin} cast it (local {w['cast_local']}) {instead}."
    if w["what"] == "too early":
        return f"{did}, before {origin} can have cast it (local {w['cast_local']})."
    return f"{did}, but {origin} never cast it."


def _p2(members: Sequence[str], view: str, w: Witness) -> str:
    return f"{members[0]} delivered {w['message']} twice (local {w['local_index']} and local {w['again_local']})."


def _p3(members: Sequence[str], view: str, w: Witness) -> str:
    did = "placed" if w.get("kind") == "PLACE" else "delivered"
    return (
        f"{members[0]} {did} {w['message']} (local {w['local_index']}) in view {view}, of which {w['stranger']} is no member "
        f"({w['list']})."
    )


def _p4(members: Sequence[str], view: str, w: Witness) -> str:
    return (
        f"{members[0]} cast {w['message']} (local {w['local_index']}, view {view}) and never delivered it, although it ended with "
        f"{w['ending']}."
    )


def _p5(members: Sequence[str], view: str, w: Witness) -> str:
    if w.get("cast_local", "?") != "?":
        how = f"{w['lacking']} had not blocked for the end of the view"
        if w["cast_local"] != "-1":
            how = f"{w['holder']}, who cast it (local {w['cast_local']}), also {_way(w)}"
        placed = f"{w['lacking']} placed {w['message']} (local {w['local_index']}), which is addressed to it, as void"
        return f"{placed} in view {view}; {how}."
    is_safe = w.get("safe", "?") == "true"
    kind, also = ("the safe ", "") if is_safe else ("", "also ")
    return (
        f"{w['holder']} delivered {kind}{w['message']} (local {w['local_index']}) in view {view}; {w['lacking']}, to whom it is "
        f"addressed and who {also}{_way(w)}, did not."
    )


def _p6(members: Sequence[str], view: str, w: Witness) -> str:
    return f"{members[0]} delivered {w['before']} (local {w['before_local']}) before {w['message']} (local {w['local_index']})."


def _p7(members: Sequence[str], view: str, w: Witness) -> str:
    return f"{members[0]} delivered {w['message']} (local {w['local_index']}) without {w['missing']} before it in view {view}."


def _p8(members: Sequence[str], view: str, w: Witness) -> str:
    return (
        f"{members[0]} delivered {w['message']} (local {w['local_index']}) in view {view} before {w['past']}, which is in its past "
        f"({w['past_caster']} cast it at local {w['past_local']})."
    )


def _p8c(members: Sequence[str], view: str, w: Witness) -> str:
    return (
        f"{members[0]} cast {w['message']} (local {w['local_index']}) when it had delivered {w['frontier']} in view {view}, but "
        f"its vector says {w['vector']}."
    )


def _p9a(members: Sequence[str], view: str, w: Witness) -> str:
    one, other = members
    return (
        f"{one} delivered {w['x']} (local {w['x_local']}) before {w['y']} (local {w['y_local']}), {other} delivered {w['y']} "
        f"(local {w['other_y_local']}) before {w['x']} (local {w['other_x_local']}), in view {view}."
    )


def _p9b(members: Sequence[str], view: str, w: Witness) -> str:
    if "circle" not in w:  # longer than one task can hold
        return (
            f"In view {view} {members[0]} delivered {w['x']} (local {w['x_local']}) before {w['y']} (local {w['y_local']}), but "
            f"the orders of all members together put {w['y']} before {w['x']}."
        )
    steps = [
        f"{who} delivered {one} (local {one_local}) before {other} (local {other_local})"
        for who, one, other, one_local, other_local in json.loads(w["circle"])
    ]
    return f"In view {view} the orders go in a circle: {', '.join(steps)}."


def _p9c(members: Sequence[str], view: str, w: Witness) -> str:
    return (
        f"In view {view} ordered message number {w['number']} is {w['message']} at {members[0]} (local {w['local_index']}) and "
        f"{w['other']} at {members[1]} (local {w['other_local']})."
    )


def _p10(members: Sequence[str], view: str, w: Witness) -> str:
    crashed = " (which crashed)" if w["ended"] == "CRASH" else ""
    theirs = "nothing there" if w["other"] == "?" else f"{w['other']} (local {w['other_local']})"
    return (
        f"In view {view} {members[0]}{crashed} delivered {w['message']} as ordered message number {w['number']} "
        f"(local {w['local_index']}) before it blocked; {members[1]} has {theirs}."
    )


def _p11(members: Sequence[str], view: str, w: Witness) -> str:
    if w["what"] == "outside":
        return f"{members[0]} installed view {view} (local {w['local_index']}) without being in it: {w['list']}."
    if w["what"] == "two orders":
        return (
            f"View {view} has the order {w['order']} at {members[0]} (local {w['local_index']}), but {w['other_order']} at "
            f"{members[1]} (local {w['other_local']})."
        )
    return (
        f"View {view} has the members {w['list']} at {members[0]} (local {w['local_index']}), but {w['other_list']} at "
        f"{members[1]} (local {w['other_local']})."
    )


def _p12(members: Sequence[str], view: str, w: Witness) -> str:
    if w["what"] == "backwards":
        return f"{members[0]} installed view {view} (local {w['local_index']}) after view {w['before']}."
    return (
        f"View {view}, which {members[0]} installed (local {w['local_index']}), holds {w['incarnations']}: one "
        "address more than once."
    )


def _p13(members: Sequence[str], view: str, w: Witness) -> str:
    return (
        f"{members[0]} delivered {w['message']} in view {view} (local {w['local_index']}), but {members[1]} cast it in view "
        f"{w['cast_view']} (local {w['cast_local']})."
    )


def _p14(members: Sequence[str], view: str, w: Witness) -> str:
    return (
        f"In view {view} {w['holder']} delivered or placed {w['message']} (local {w['local_index']}) and {w['lacking']} did not, "
        f"although all {_way(w)}."
    )


def _way(w: Witness) -> str:
    return "stayed to the end" if w["next_view"] == "?" else f"went on to {w['next_view']}"


_TEMPLATES: dict[str, Callable[[Sequence[str], str, Witness], str]] = {
    "P0": _p0,
    "P1": _p1,
    "P2": _p2,
    "P3": _p3,
    "P4": _p4,
    "P5": _p5,
    "P6": _p6,
    "P7": _p7,
    "P8": _p8,
    "P8c": _p8c,
    "P9a": _p9a,
    "P9b": _p9b,
    "P9c": _p9c,
    "P10": _p10,
    "P11": _p11,
    "P12": _p12,
    "P13": _p13,
    "P14": _p14,
    **TEMPLATES,
}
