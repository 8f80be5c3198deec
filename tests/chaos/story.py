"""Logs of a run that never took place: clean, small, and with everything that the checker looks at.

Three members; c is cut off while messages are under way, and delivers a remainder of its own; the parts meet again; c is cut off
so briefly that all go on in one view, though they delivered different messages in the last; b is killed, and comes back. Tests
plant faults into copies of it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from copy import deepcopy
from typing import Any
from zlib import crc32

from tests.chaos.checker import Line, Logs

ADDRESSES = {name: f"10.99.0.{number}:7400" for number, name in enumerate("abc", 1)}


class Actor:
    """One life as the story knows it."""

    def __init__(self, story: Story, name: str, number: int) -> None:
        self.story = story
        self.name = f"{name}{number}"
        self.file = f"{name}-{number}.jsonl"
        self.id = f"{ADDRESSES[name]}#{number}"
        self.lines: list[Line] = []
        self.state: list[str] = []
        self.view: Line | None = None
        self.casts = 0
        self.say("start", name=name, life=number, hooks=story.hooks)

    def say(self, kind: str, **words: Any) -> None:
        self.lines.append({"t": self.story.tick(), "is": kind, **words})

    def join(self) -> None:
        self.say("joined", id=self.id)

    def cast(self, safe: bool = False, probe: bool = False) -> str:
        self.casts += 1
        m = f"{self.name}:{self.casts}"
        self.say("cast", m=m, safe=safe, crc=crc32(m.encode()), probe=probe)
        self.say("accepted", m=m, sender=self.id, index=self.casts - 1)
        return m

    def deliver(self, *messages: str) -> None:
        for m in messages:
            name, _, index = m.partition(":")
            sender = self.story.actors[name]
            self.say("delivery", m=m, sender=sender.id, index=int(index) - 1, crc=crc32(m.encode()))
            self.state.append(m)

    def receipt(self, m: str, *stages: str, outcome: str = "yes") -> None:
        for stage in stages:
            self.say("receipt", m=m, stage=stage, outcome=outcome, known=[], text="")

    def transition(self, together: Sequence[Actor], primary: bool = True) -> None:
        assert self.view is not None
        names = sorted(one.id for one in together)
        self.say("transition", view=self.view["id"], together=names, primary=primary)

    def show(self, number: int, members: Sequence[Actor], together: Sequence[Actor], primary: bool = True) -> None:
        ids, along = [one.id for one in members], [one.id for one in together]
        before = [] if self.view is None else self.view["members"]
        self.say(
            "view", id=f"{number}@{ids[0]}", number=number, members=ids, together=sorted(along), primary=primary,
            order=self.story.order,
            joined={one: "new" for one in ids if one not in along},
            left={one: "lost" for one in before if one not in along},
        )  # fmt: skip
        self.view = self.lines[-1]

    def snapshot(self) -> list[str]:
        self.say("snapshot", digest=digest(self.state), state=list(self.state))
        return list(self.state)

    def restore(self, state: list[str]) -> None:
        self.state = list(state)
        self.say("restore", digest=digest(state), state=list(state))

    def merge(self, *parts: list[str]) -> None:
        self.state = list(dict.fromkeys(m for part in parts for m in part))
        self.say("merge", digest=digest(self.state), state=list(self.state), parts=[digest(part) for part in parts])


def digest(state: list[str]) -> str:
    return f"{crc32(json.dumps(state).encode()):08x}"


class Story:
    """Writes the logs. `policy` is primary or partitionable, `hooks` none, restore or merge."""

    def __init__(self, policy: str, hooks: str, order: str) -> None:
        self.policy, self.hooks, self.order = policy, hooks, order
        self.actors: dict[str, Actor] = {}
        self.nemesis: list[Line] = []
        self._clock = 0

    def tick(self) -> float:
        self._clock += 1
        return self._clock / 1000

    def start(self, name: str, number: int) -> Actor:
        actor = self.actors[f"{name}{number}"] = Actor(self, name, number)
        self.nemesis.append({"t": self.tick(), "is": "started", "name": name, "file": actor.file})
        return actor

    def reconcile(self) -> None:
        """The states of a and b, and of c, become one."""
        a, b, c = founders = [self.actors[name] for name in ("a1", "b1", "c1")]
        if self.hooks == "none":
            return
        first, _, other = (one.snapshot() for one in (a, b, c))
        if self.hooks == "merge":
            for one in founders:
                one.merge(first, other)
        else:
            c.say("replaced", text="")
            for one in founders if self.policy != "primary" else [c]:
                one.restore(first)

    def logs(self) -> Logs:
        plan = {"policy": self.policy, "hooks": self.hooks, "safe": False, "timeout_s": 0.4, "order": self.order}
        return deepcopy(Logs(plan, self.nemesis, {actor.file: actor.lines for actor in self.actors.values()}))


def tell(policy: str = "primary", hooks: str = "restore", order: str = "causal-total") -> Logs:
    """The story. It keeps what any order promises."""
    story = Story(policy, hooks, order)
    is_primary = policy == "primary"
    a, b, c = founders = [story.start(name, 1) for name in "abc"]
    if hooks != "none":
        initial = a.snapshot()
        b.restore(initial)
        c.restore(initial)
    for one in founders:
        one.join()
        one.show(1, founders, [one])

    first, second = a.cast(safe=True), b.cast()
    for one in founders:
        one.deliver(first, second)
    answer = c.cast(safe=True)
    twin, third = b.cast(), b.cast()
    for one in founders:
        one.deliver(answer, twin, third)
    for m, one in ((first, a), (second, b), (answer, c), (twin, b), (third, b)):
        one.receipt(m, "delivered", "applied", "stable")

    # c is cut off: what it casts then is in its remainder alone.
    lost, kept = c.cast(), a.cast()
    c.transition([c], primary=not is_primary)
    c.deliver(lost)
    c.receipt(lost, "delivered", "applied", outcome="uncertain" if is_primary else "yes")
    c.receipt(lost, "stable", outcome="uncertain")
    c.show(2, [c], [c], primary=not is_primary)
    for one in (a, b):
        one.transition([a, b])
        one.deliver(kept)
        one.show(2, [a, b], [a, b])
    a.receipt(kept, "delivered", "applied")
    a.receipt(kept, "stable", outcome="uncertain")
    apart, other = a.cast(safe=True), b.cast()
    for one in (a, b):
        one.deliver(apart, other)
    for m, one in ((apart, a), (other, b)):
        one.receipt(m, "delivered", "applied", "stable")

    # The parts meet again.
    for one in (a, b):
        one.transition([a, b])
    c.transition([c])
    story.reconcile()
    for one in (a, b):
        one.show(3, founders, [a, b])
    c.show(3, founders, [c])
    joint, reply = a.cast(), c.cast(safe=True)
    for one in founders:
        one.deliver(joint, reply)
    for m, one in ((joint, a), (reply, c)):
        one.receipt(m, "delivered", "applied", "stable")

    # c is cut off for a moment, and nobody needs a view without the others.
    solo = c.cast()
    for one in (a, b):
        one.transition([a, b])
    c.transition([c])
    c.deliver(solo)
    c.receipt(solo, "delivered", "applied")
    c.receipt(solo, "stable", outcome="uncertain")
    story.reconcile()
    for one in (a, b):
        one.show(4, founders, [a, b])
    c.show(4, founders, [c])

    # b is killed, and comes back.
    story.nemesis.append({"t": story.tick(), "is": "killed", "name": "b", "file": b.file})
    for one in (a, c):
        one.transition([a, c])
        one.show(5, [a, c], [a, c])
    again = story.start("b", 2)
    last = [a, again, c]
    for one in (a, c):
        one.transition([a, c])
        one.show(6, last, [a, c])
    early = a.cast()
    for one in (a, c):
        one.deliver(early)
    if hooks != "none":
        again.restore(a.snapshot())
    again.show(6, last, [again])
    if hooks == "none":
        again.deliver(early)
    again.join()
    a.receipt(early, "delivered", "applied", "stable")

    # Healed.
    story.nemesis.append({"t": story.tick(), "is": "heal"})
    probes = [(one, one.cast(probe=True)) for one in last]
    for one in last:
        one.deliver(*(m for _, m in probes))
    for one, m in probes:
        one.receipt(m, "delivered", "applied", "stable")
    for one in last:
        one.say("rest")
        one.say("end", state=list(one.state))
    story.nemesis.append({"t": story.tick(), "is": "settled"})
    a.transition([])
    a.say("left")
    for one in (again, c):
        one.transition([again, c])
        one.show(7, [again, c], [again, c])
        one.say("left")
    return story.logs()
