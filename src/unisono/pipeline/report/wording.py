"""The words of a report: what each property says to someone who has never heard of it, and how numbers are written."""

from __future__ import annotations

from typing import NamedTuple

from unisono.trace.sanitize import sanitize

NAME_MAX = 64


class PropertyText(NamedTuple):
    name: str
    statement: str


PROPERTIES: dict[str, PropertyText] = {
    "P0": PropertyText(
        "well-formed", "Each member's rows are numbered without gaps, begin with a view, and stop at its end."
    ),
    "P1": PropertyText("no creation", "Whatever is delivered was cast, with the same content, and to this receiver."),
    "P2": PropertyText("no duplication", "No member delivers a message twice."),
    "P3": PropertyText("in view", "Deliverer and origin are both members of the view in which a message is delivered."),
    "P4": PropertyText("validity", "A member that does not crash delivers what it cast itself."),
    "P5": PropertyText(
        "agreement", "What one member delivers, every member delivers that goes on with it into the same next view."
    ),
    "P6": PropertyText("FIFO", "Messages of one origin are delivered in the order in which it cast them."),
    "P7": PropertyText("FIFO without gaps", "… and none of them is left out within a view."),
    "P8": PropertyText("causal", "No answer is delivered before its question: all of a message's past comes first."),
    "P8c": PropertyText("own clocks", "The vectors that the protocol stamps say what the trace says."),
    "P9a": PropertyText("total, pairwise", "Two members that deliver the same two messages agree which comes first."),
    "P9b": PropertyText("total, acyclic", "All members' orders of delivery together contain no circle."),
    "P9c": PropertyText("total, same sequence", "In a view, the k-th ordered message is the same one everywhere."),
    "P10": PropertyText(
        "uniform total", "… even at members that crash: what they delivered is the beginning of everyone's sequence."
    ),
    "P11": PropertyText(
        "view agreement", "A view has one list of members, the same for all, and each member that installs it is on it."
    ),
    "P12": PropertyText("views go forward", "View numbers only grow, and no view holds two lives of one address."),
    "P13": PropertyText("sending view", "A message is delivered in the view in which it was cast."),
    "P14": PropertyText(
        "virtual synchrony", "Members that go on together delivered the same messages before the change."
    ),
    "P15": PropertyText("transitional set", "A new view says rightly who came along from the old one."),
    "P16": PropertyText("merge", "A merged view names its parts, and nothing of the old view comes after the new one."),
    "P17": PropertyText("safe", "A safe message is delivered only when every member is known to have it."),
    "P18": PropertyText("two-phase commit", "A transaction has one outcome, and commits only if all voted for it."),
    "P19": PropertyText(
        "state transfer", "A member that joins gets the state that all the others have at that moment."
    ),
    "P20": PropertyText(
        "primary component", "Of several partitions at most one is primary, and primaries form one chain."
    ),
    "P21": PropertyText("security", "Only authenticated members are listened to, and every attack is counted."),
    "P22": PropertyText("bounded liveness", "After the last fault, everything is delivered within the bound."),
    "P23": PropertyText("resources", "Queues, unacknowledged bytes and retransmissions stay within their limits."),
    "P24": PropertyText("determinism", "The same seed and the same code make the same trace."),
    "P25": PropertyText(
        "together", "Applications that are told they came along together were shown the same messages."
    ),
    "P26": PropertyText("stable is kept", "A message that its caster was told is stable is delivered by everyone."),
    "P27": PropertyText("safe and primary", "A safe message, once delivered in a primary view, is in every later one."),
    "P28": PropertyText("receipts", "The stages of a receipt come in their order, and after a doubt none follows."),
    "P29": PropertyText(
        "state lineage", "A primary's state is that of the last primary, and is never replaced in silence."
    ),
}


def describe(property: str) -> PropertyText:
    return PROPERTIES.get(property, PropertyText("unknown property", "This report does not know what it says."))


def in_order(property: str) -> tuple[int, str]:
    """Sorts P2 before P10, and P9a before P9b."""
    digits = "".join(c for c in property if c.isdigit())
    return int(digits or 0), property


def counted(number: int, noun: str, plural: str | None = None) -> str:
    return f"{grouped(number)} {noun if number == 1 else plural or noun + 's'}"


def grouped(number: float) -> str:
    """Thousands apart by a narrow space."""
    return f"{number:,.0f}".replace(",", "\u202f")


def duration(ns: float | None) -> str:
    """Three figures and a unit; a dash for what is not known."""
    if ns is None:
        return "–"
    for unit, name in ((1e9, "s"), (1e6, "ms"), (1e3, "µs")):
        if abs(ns) >= unit * 0.9995:
            return f"{figures(ns / unit)}\u202f{name}"
    return "0" if ns == 0 else f"{ns:.0f}\u202fns"


def figures(value: float) -> str:
    """Three significant figures without an exponent."""
    if abs(value) >= 100:
        return grouped(value)
    return f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}"


def cohort(protocol: str, members: int | None, several_sizes: bool) -> str:
    """How a cohort is called: the size of the group is named only where it distinguishes."""
    return f"{protocol} n={members}" if several_sizes and members is not None else protocol


def brief(name: str) -> str:
    """A name as lists show it."""
    return shortened(sanitize(name), NAME_MAX)


def shortened(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
