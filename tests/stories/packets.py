"""The network of a story: what each datagram is, and what becomes of those that the story names."""

from __future__ import annotations

import errno
import re
from collections import Counter
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field

from tests.group_tools import CHUNKS, body_in, control_in, name_of
from tests.stories.text import Line, StoryError
from unisono.core.types import MemberId
from unisono.core.wire.frame import ControlFrame, Frames
from unisono.sim.group_world import GroupWorld
from unisono.sim.units import parse_duration

KINDS = (
    *("hello", "refuse", "outlive", "notice", "propose", "pull", "fetch", "confirm", "install", "outbid", "moved"),
    *("dismiss", *CHUNKS.values(), "packets", "ticket", "cast", "send", "ack"),
)
"""Control messages by their names in `core.wire.control`, chunks by what they are part of; then what streams carry."""
ALL = "all"
FATES = ("lose", "delay", "refuse", "repeat")
_FRAMES = Frames("simulated", MemberId("onlooker"))


@dataclass
class Rule:
    """What becomes of the datagrams that it names; it must meet at least one."""

    line: Line
    fate: str
    kinds: Sequence[str]
    origin: str | None
    """Of casts alone: whose they are, whichever member sends them."""
    links: Set[tuple[str, str]]
    most: int
    """How many it meets on each link."""
    time_ns: int = 0
    hits: Counter[tuple[str, str]] = field(default_factory=Counter)

    def meets(self, src: str, dst: str, kind: str, origin: str | None) -> bool:
        found = (
            (src, dst) in self.links
            and self.hits[src, dst] < self.most
            and (ALL in self.kinds or kind in self.kinds)
            and self.origin in (None, origin)
        )
        self.hits[src, dst] += found
        return found


class Packets:
    """Stands in the network of a world, looks at every datagram, and does what rules say."""

    def __init__(self, world: GroupWorld) -> None:
        self._world = world
        self.rules: list[Rule] = []
        self.sent: Counter[tuple[str, str, str]] = Counter()
        """By kind, sender and receiver."""
        self.listen()

    def listen(self) -> None:
        """Look at every datagram from now on, also after the network was healed."""
        self._world.network.drops, self._world.network.fails = self._drops, self._fails

    def heal(self) -> None:
        """End every rule. One that met nothing is a mistake of the story."""
        rules, self.rules = self.rules, []
        for rule in rules:
            if not rule.hits.total():
                raise rule.line.error("it met no packet.")

    def _look(self, src: str, datagram: bytes) -> tuple[str, str | None]:
        """The kind of a datagram, and of a cast its origin."""
        body = body_in(datagram)
        if body is not None:
            view = self._world.processes[src].view
            known = view is not None and body.origin < len(view)
            origin = view.members[body.origin].address if view is not None and known else None
            return ("cast", origin) if body.is_cast else ("send", None)
        message = control_in(datagram)
        if message is not None:
            return name_of(message), None
        return "ticket" if isinstance(_FRAMES.open(datagram), ControlFrame) else "ack", None

    def _fails(self, src: str, dst: str, datagram: bytes) -> int:
        rules = [rule for rule in self.rules if rule.fate == "refuse"]
        look = self._look(src, datagram) if rules else ("", None)
        return errno.ENOBUFS if any(rule.meets(src, dst, *look) for rule in rules) else 0

    def _drops(self, src: str, dst: str, datagram: bytes) -> bool:
        kind, origin = self._look(src, datagram)
        self.sent[kind, src, dst] += 1
        for rule in self.rules:
            if rule.fate != "refuse" and rule.meets(src, dst, kind, origin):
                if rule.fate != "lose":
                    self._world.at(self._world.now + rule.time_ns, self._bring(dst, datagram))
                if rule.fate != "repeat":
                    return True
        return False

    def _bring(self, dst: str, datagram: bytes) -> Callable[[], None]:
        return lambda: self._world.processes[dst].take(datagram)


FORM = re.compile(
    r"(lose|delay|refuse|repeat) (?:first (\d+) )?([a-z,]+) (?:of (\S+) )?([^<>]+?) (->|<->) (.+?)(?: by (\S+))?"
)


def kinds_of(word: str) -> list[str]:
    """The kinds of packets that a word such as `cut,answer` names."""
    kinds = word.split(",")
    if not {*kinds} <= {ALL, *KINDS}:
        raise StoryError(f"there is no kind of packet {word!r}: choose {', '.join((ALL, *KINDS))}.")
    return kinds


def read_rule(line: Line, names: Callable[[Sequence[str]], list[str]]) -> Rule:
    """``lose [first N] KIND[,KIND] [of ORIGIN] FROM -> TO [by TIME]``; ``<->`` is both ways."""
    match = FORM.fullmatch(line.text)
    if match is None:
        raise line.error("write: lose|delay|refuse|repeat [first N] KIND [of ORIGIN] FROM -> TO [by TIME].")
    fate, first, kinds, origin, sources, way, targets, time = match.groups()
    if (time is not None) != (fate in ("delay", "repeat")):
        raise line.error("`delay` and `repeat` need a time, `by 20ms`, and the others take none.")
    pairs = {(src, dst) for src in names(sources.split()) for dst in names(targets.split()) if src != dst}
    links = pairs | {(dst, src) for src, dst in pairs} if way == "<->" else pairs
    return Rule(
        line,
        fate,
        kinds_of(kinds),
        names([origin])[0] if origin else None,
        links,
        int(first) if first else 1 << 60,
        parse_duration(time) if time else 0,
    )
