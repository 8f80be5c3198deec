"""What happens in a chaos run: the group, and a list of faults with their times, all drawn from one seed.

A plan is written to `plan.json` before its run begins, and can be repeated from there. Processes and kernels keep their own time,
so a repeated plan brings the same faults at the same times, not the same interleaving.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from typing import Any

ORDERS = (
    "fifo", "causal", "sequencer", "fifo-total", "causal-total", "abcast", "tomp", "all-ack", "toto", "rmp",
)  # fmt: skip
PACE = 0.25
TIMEOUT_S = 1.5 * PACE
"""The shortest silence after which a member is suspected, at this pace. Faults and bounds are multiples of it."""
PATIENCE = 80
"""So many failure timeouts after the heal, one view of all must be there, and later everything delivered."""

Action = dict[str, Any]


@dataclass
class Plan:
    """One run."""

    seed: int
    order: str
    policy: str
    hooks: str
    """none; restore: snapshot and restore; merge: with a merge function as well."""
    safe: bool
    """Whether the group is joined with `safe=True`."""
    safe_share: float
    """Otherwise: the fraction of casts that ask for it."""
    key: bool
    names: str
    """All members there may be."""
    founders: str
    """Those that start first."""
    min_members: int
    rate: float
    payload_bytes: int
    length_s: float
    """From the first view of the founders to the heal."""
    pace: float = PACE
    timeout_s: float = TIMEOUT_S
    actions: list[Action] = field(default_factory=list)
    faulty: dict[str, str] = field(default_factory=dict)
    """Members whose program has a fault (`tests.chaos.faulty`), to see that it is found."""

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self), indent=1) + "\n")

    @classmethod
    def read(cls, path: Path) -> Plan:
        return cls(**json.loads(path.read_text()))

    def __str__(self) -> str:
        safe = "safe" if self.safe else f"{self.safe_share:.0%} safe" if self.safe_share else "unsafe"
        hooks = {"none": "no state", "restore": "state", "merge": "state+merge"}[self.hooks]
        key = "key" if self.key else "no key"
        return f"{self.order:12} {self.policy:13} {hooks:11} {safe:8} {key:6} {len(self.names)} members"


def draw(seed: int, orders: tuple[str, ...] = ORDERS) -> Plan:
    """The plan of a seed. Ten seeds in a row have all ten orders."""
    random = Random(f"chaos {seed}")
    policy = random.choice(("partitionable", "primary"))
    size = random.randint(3, 5)
    names = "abcde"[:size]
    founders = names[: random.randint(max(3, size // 2 + 1), size)] if size > 3 else names
    safe = random.random() < 0.4
    plan = Plan(
        seed=seed,
        order=orders[seed % len(orders)],
        policy=policy,
        hooks=random.choice(("none", "restore", "merge")),
        safe=safe,
        safe_share=0.0 if safe else random.choice((0.0, 0.25)),
        key=random.random() < 0.5,
        names=names,
        founders=founders,
        min_members=random.choice((1, len(founders))),
        rate=random.choice((10.0, 20.0, 40.0)),
        payload_bytes=random.choice((40, 200, 900)),
        length_s=round(random.uniform(16, 24) * TIMEOUT_S, 2),
    )
    plan.actions = sorted(Drawing(plan, random).actions(), key=lambda action: float(action["at"]))
    return plan


class Drawing:
    """Draws the faults of a plan."""

    def __init__(self, plan: Plan, random: Random) -> None:
        self.plan = plan
        self.random = random
        self.drawn: list[Action] = []
        self.count = 0

    def actions(self) -> list[Action]:
        random, plan = self.random, self.plan
        kinds = {
            "crash": 4, "pause": 3, "part": 4, "one_way": 2, "loss": 2, "narrow": 2, "slow_reader": 1, "leave": 1, "burst": 1,
            "switch": 2, "total_restart": 1,
        }  # fmt: skip
        at = 0.5
        for _ in range(random.randint(3, 7)):
            if at > plan.length_s - TIMEOUT_S:
                break
            (kind,) = random.choices(list(kinds), list(kinds.values()))
            self.count += 1
            getattr(self, kind)(at)
            close = random.random() < 0.5  # many defects need a second fault while the first is being dealt with
            at += random.uniform(0, 1.2 * TIMEOUT_S) if close else random.uniform(2, 6) * TIMEOUT_S
        for name in plan.names[len(plan.founders) :]:
            self.add(random.uniform(0.3, plan.length_s - 0.3), "start", "join", name=name)
        return self.drawn

    def add(self, at: float, do: str, kind: str, **words: Any) -> None:
        self.drawn.append({"at": round(at, 3), "do": do, "kind": kind, "fault": self.count, **words})

    def some(self, low: int = 1) -> str:
        """Some members, but not all."""
        count = self.random.randint(low, len(self.plan.names) - 1)
        return "".join(sorted(self.random.sample(self.plan.names, count)))

    def one(self) -> str:
        return self.random.choice(self.plan.names)

    def time(self, low: float, high: float) -> float:
        """A time around the failure timeout."""
        return self.random.uniform(low, high) * TIMEOUT_S

    # The kinds.

    def crash(self, at: float) -> None:
        name = self.one()
        self.add(at, "kill", "crash", name=name)
        if self.random.random() < 0.7:
            self.add(at + self.time(0.1, 8), "start", "restart", name=name)

    def total_restart(self, at: float) -> None:
        for name in self.plan.names:
            self.add(at, "kill", "total restart", name=name)
        for name in self.plan.founders:
            self.add(at + self.time(0.1, 3), "start", "total restart", name=name)

    def pause(self, at: float) -> None:
        name = self.one()
        self.add(at, "stop", "pause", name=name)
        self.add(at + self.time(0.3, 4), "go_on", "pause", name=name)

    def part(self, at: float) -> None:
        names = list(self.plan.names)
        self.random.shuffle(names)
        cuts = sorted(self.random.sample(range(1, len(names)), self.random.choice((1, 1, 2))))
        parts = ["".join(sorted(names[low:high])) for low, high in zip([0, *cuts], [*cuts, len(names)], strict=True)]
        kind = f"partition in {len(parts)}"
        self.add(at, "part", kind, parts=parts)
        self.add(at + self.time(0.3, 9), "undo", kind)

    def one_way(self, at: float) -> None:
        senders = self.some()
        receivers = "".join(name for name in self.plan.names if name not in senders)
        receivers = "".join(sorted(self.random.sample(receivers, self.random.randint(1, len(receivers)))))
        self.add(at, "cut", "one-way link", receivers=receivers, senders=senders)
        self.add(at + self.time(0.3, 9), "undo", "one-way link")

    def loss(self, at: float) -> None:
        names = self.random.choice((self.plan.names, self.some()))
        self.add(at, "lose", "loss", names=names, percent=self.random.randint(2, 25))
        self.add(at + self.time(2, 12), "undo", "loss")

    def narrow(self, at: float) -> None:
        names = self.some()
        self.add(at, "narrow", "narrow link", names=names, kilobit=self.random.choice((150, 400, 1_000)))
        self.add(at + self.time(2, 9), "undo", "narrow link")

    def slow_reader(self, at: float) -> None:
        name = self.one()
        self.add(at, "tell", "slow reader", name=name, order={"do": "speed", "delay_s": round(self.time(0.05, 0.3), 3)})
        self.add(at + self.time(2, 8), "tell", "slow reader", name=name, order={"do": "speed", "delay_s": 0})

    def leave(self, at: float) -> None:
        name = self.one()
        self.add(at, "leave", "leave", name=name)
        self.add(at + self.time(1, 8), "start", "restart", name=name)

    def burst(self, at: float) -> None:
        self.add(at, "tell", "burst", name=self.one(), order={"do": "burst", "count": self.random.randint(50, 300)})

    def switch(self, at: float) -> None:
        order = self.random.choice(ORDERS)
        self.add(at, "tell", "switch", name=self.one(), order={"do": "switch", "order": order})
