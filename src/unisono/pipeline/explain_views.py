"""The templates of P15–P29. A witness's `what` says which fault of the property it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

Witness = Mapping[str, str]


def _p15(members: Sequence[str], view: str, w: Witness) -> str:
    installed = f"{members[0]} installed view {view} (local {w['local_index']})"
    came_from = _or(w["previous_view"], "nowhere")
    if w["what"] == "came from":
        return (
            f"{installed} and says that it came from {came_from}, but it installed {_or(w['installed'], 'none')} last."
        )
    wrongs = [f"with {w['extra']}, who did not come along"] if w["extra"] != "?" else []
    wrongs += [f"without {w['lacking']}, who did"] if w["lacking"] != "?" else []
    return f"{installed} from {came_from} {' and '.join(wrongs)}."


def _p16(members: Sequence[str], view: str, w: Witness) -> str:
    at = f"(local {w['local_index']})"
    if w["what"] == "parts":
        wrongs = [f"names {w['extra']}, from which no member came"] if w["extra"] != "?" else []
        wrongs += [f"does not name {w['lacking']}, from which some came"] if w["lacking"] != "?" else []
        return f"{members[0]} installed view {view} {at} with parts in which it {' and '.join(wrongs)}."
    thing = f"a {w['kind']} of view {view}"
    if w["what"] == "message":
        thing = f"the {w['kind']} of a message cast in view {view}"
    return f"{members[0]} has {thing} {at} after it installed view {w['installed']}."


def _p17(members: Sequence[str], view: str, w: Witness) -> str:
    how = "before its STABLE for it"
    if w["what"] == "not held":
        how = f"although {w['lacking']} did not receive it"
    return f"{members[0]} delivered the safe {w['messages']} in view {view} (local {w['local_index']}) {how}."


def _p18(members: Sequence[str], view: str, w: Witness) -> str:
    who, at = members[0], f"(local {w.get('local_index', '?')})"
    how = {
        "two decisions": w.get("told", "?"),
        "votes": f"{who} committed it {at} with {w.get('lacking')} without voting yes",
        "not held": f"{who} committed it {at} with {w.get('lacking')} without holding it",
        "undecided": f"{who} delivered it {at} without having decided to commit it",
        "not delivered": f"{who} committed it {at} and never delivered it",
    }
    return f"Transaction {w['transaction']}: {how[w['what']]}."


def _p19(members: Sequence[str], view: str, w: Witness) -> str:
    how = {
        "foreign view": f"took a snapshot of view {view}, which it had not installed",
        "joiner": f"took the state {w.get('value')}, but {_or(w.get('given', '?'), 'none')} was given away",
        "not reached": "gave away more than it had delivered",
        "donor": f"gave away the state {w.get('value')}, but its rows give {w.get('computed')}",
        "other": f"has the state {w.get('computed')} there, but {members[-1]} has {w.get('theirs')}",
    }
    where = f"(local {w['local_index']}: view {view}, ordinal {w['ordinal']}, {w['service']})"
    return f"{members[0]} {how[w['what']]} {where}."


def _p20(members: Sequence[str], view: str, w: Witness) -> str:
    how = {
        "disagree": f"{view}: its members do not agree whether it is primary, and after which",
        "two firsts": f"{w.get('views')}: each begins a chain of primaries of its own",
        "fork": f"{w.get('views')}: each follows primary {view}",
        "number": f"{view}: it comes after {w.get('predecessor')}, whose number is not lower",
    }
    return f"Primary {how[w['what']]}."


def _p21(members: Sequence[str], view: str, w: Witness) -> str:
    how = {
        "stranger": f"accepted a packet of {w.get('strangers')}, no member of view {view}",
        "unauthenticated": "accepted a packet whose sender it could not authenticate",
        "forged": f"accepted {w.get('forged')} forged packets",
        "uncounted": f"was attacked with {w.get('injected')} packets, and dropped {w.get('dropped')} of them",
    }
    return f"{members[0]} {how[w['what']]} (local {w['local_index']})."


def _p22(members: Sequence[str], view: str, w: Witness) -> str:
    after = f"{w.get('bound')} ns after the last disturbance"
    blocked = f"was blocked (local {w.get('local_index')}) for {w.get('length')} ns of {w.get('bound')}"
    if w.get("length", "?") == "?":
        blocked = f"blocked (local {w.get('local_index')}) and never went on"
    how = {
        "views": f"{after} there are several views: {w.get('told')}",
        "outsiders": f"{after} view {view} still holds {w.get('outsiders')}",
        "late": f"{members[0]} had not delivered {w.get('message')} "
        f"(cast at {members[-1]}, local {w.get('cast_local')}) at {w.get('due')} ns",
        "blocked": f"{members[0]} {blocked}",
    }
    return f"{how[w['what']]}."


def _p23(members: Sequence[str], view: str, w: Witness) -> str:
    return f"{members[0]} has {w['counter']} = {w['value']}, with a limit of {w['limit']} (local {w['local_index']})."


def _p24(members: Sequence[str], view: str, w: Witness) -> str:
    return f"The run is a twin of {w['twin']}, but {members[0]} differs from its row {w['local_index']} on."


def _told(members: Sequence[str], view: str, w: Witness) -> str:
    """What is decided by the function of the plain checker is told by it too."""
    return w["sentence"]


def _or(text: str, otherwise: str) -> str:
    return otherwise if text == "?" else text


TEMPLATES: dict[str, Callable[[Sequence[str], str, Witness], str]] = {
    "P15": _p15,
    "P16": _p16,
    "P17": _p17,
    "P18": _p18,
    "P19": _p19,
    "P20": _p20,
    "P21": _p21,
    "P22": _p22,
    "P23": _p23,
    "P24": _p24,
    **dict.fromkeys(("P25", "P26", "P27", "P28", "P29"), _told),
}
