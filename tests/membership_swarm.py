"""Random runs of membership: faults in any number and mixture, often two at once, then a heal and a judgement."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random

from tests.membership_harness import World
from unisono.core.config import MILLISECOND, SECOND
from unisono.core.membership.membership import Membership
from unisono.core.membership.settings import MembershipSettings, Policy
from unisono.core.options import CastOptions
from unisono.core.types import MemberId
from unisono.core.wire.control import Chunk, Confirm, Control, Fetch, Hello, Install, Propose
from unisono.trace.checks import Verdict

SWARM_ORDERS = ("fifo", "causal", "sequencer", "abcast", "toto")
NAMES = "abcdefgh"
FAULTS = (
    "crash",
    "restart",
    "pause",
    "partition",
    "heal",
    "one_way",
    "join",
    "leave",
    "suspect",
    "storm",
    *("ambush",) * 4,
)
STEPS = (Propose, Chunk, Chunk, Fetch, Confirm, Install, Hello)


@dataclass
class Run:
    """One run; `verdict` is None until it is judged."""

    seed: int
    order: str
    kind: type[Membership] = Membership
    primary: bool = False
    collect: str | None = None  # None: star or ring, as the seed says
    faults: list[tuple[float, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = random = Random(f"swarm {self.seed} {self.order}")
        self.over = False  # no more faults
        small = random.random() < 0.5
        settings = MembershipSettings(
            chunk_bytes_max=random.choice((64, 200)) if small else 8192,
            members_min=1,
            policy=Policy.PRIMARY if self.primary else Policy.PARTITIONABLE,
            collect=self.collect or Random(f"collect {self.seed} {self.order}").choice(("star", "ring")),
        )
        self.world = World(
            self.order,
            f"{self.seed}",
            settings,
            self.kind,
            loss=random.choice((0.0, 0.05, 0.25)),
            duplication=random.choice((0.0, 0.2)),
            owed={"P20"} if self.primary else (),
        )
        if self.primary:
            self.world.own_settings["a"] = replace(settings, bootstrap=True)

    def go(self) -> Verdict:
        world, random = self.world, self.random
        count = random.randint(2, 6)
        names = NAMES[:count]
        if self.primary:  # the first primary is installed, not only confirmed, or nobody could name a predecessor
            world.start("a")
            world.run(0.2)
            names = names[1:]
        if random.random() < 0.7:
            world.start(*names, seeds=tuple(NAMES[:count]))
        else:
            for name in names:
                world.start(name, seeds=(NAMES[0],) if name != NAMES[0] else ())
                world.run(random.random() * 0.3)
        world.run(random.choice((0.1, 1.0, 3.0)))
        duration = random.uniform(1.0, 5.0)
        self._cast_until(world.now + int(duration * SECOND))
        for _ in range(random.randint(1, 7)):
            when = random.random() * duration
            for fault in random.sample(FAULTS, random.choice((1, 1, 2))):
                late = when + random.choice((0.0, 0.002, 0.01, 0.3)) * random.random()
                self.faults.append((late, fault))
                world.at(int(late * SECOND), self._striker(fault))
        world.run(duration)
        self.over = True
        world.loss = min(world.loss, 0.05)
        for node in world.living:  # else one whose only seed is dead can never be found
            node.membership.heard_of(sorted(world.nodes))
        return world.finish()

    def _cast_until(self, end: int) -> None:
        world, random = self.world, self.random

        def cast() -> None:
            living = world.living
            if living:
                node = random.choice(living)
                options = None
                if random.random() < 0.15 and node.view is not None:
                    some = tuple(sorted(random.sample(node.view.members, random.randint(1, len(node.view)))))
                    options = CastOptions(some)
                for _ in range(random.choice((1, 1, 3))):
                    node.cast(bytes(random.choice((3, 40, 700))), options)
            if world.now < end:
                world.at(random.randint(1, 40) * MILLISECOND, cast)

        cast()

    def _striker(self, fault: str) -> Callable[[], None]:
        def strike() -> None:
            if not self.over:
                getattr(self, f"_{fault}")()

        return strike

    def _pick(self) -> str | None:
        living = sorted(node.id.address for node in self.world.living)
        return self.random.choice(living) if living else None

    def _crash(self) -> None:
        name = self._pick()
        if name and len(self.world.living) > 1:
            self.world.crash(name)

    def _restart(self) -> None:
        name = self._pick()
        if name and len(self.world.living) > 1:
            records = self.world.nodes[name].records
            self.world.crash(name)

            def again() -> None:
                if not self.world.nodes[name].alive:
                    seeds = tuple(one for one in sorted(self.world.nodes) if one != name)
                    self.world.start(name, seeds=seeds, record=records[-1] if records else None)

            self.world.at(int(self.random.choice((0.001, 0.1, 1.0)) * SECOND), again)

    def _pause(self) -> None:
        name = self._pick()
        if name:
            self.world.pause(name)
            self.world.at(int(self.random.choice((0.1, 0.5, 2.0)) * SECOND), lambda: self.world.resume(name))

    def _partition(self) -> None:
        names = sorted(self.world.nodes)
        self.random.shuffle(names)
        at = self.random.randint(0, len(names))
        more = self.random.randint(at, len(names))
        self.world.partition(names[:at], names[at:more], names[more:])

    def _heal(self) -> None:
        self.world.heal()

    def _one_way(self) -> None:
        a, b = self._pick(), self._pick()
        if a and b and a != b:
            self.world.cut(a, b, both=self.random.random() < 0.4)

    def _join(self) -> None:
        free = [name for name in NAMES if name not in self.world.nodes]
        if free:
            self.world.start(free[0], seeds=tuple(self.random.sample(sorted(self.world.nodes), 1)))

    def _storm(self) -> None:
        for _ in range(2):
            self._join()

    def _leave(self) -> None:
        name = self._pick()
        if name and len(self.world.living) > 1:
            node = self.world.nodes[name]
            node.turn(node.membership.leave)

    def _ambush(self) -> None:
        """Wait for one step of a view change, and strike there: at its sender, its receiver, the link, or the network."""
        world, step, how = self.world, self.random.choice(STEPS), self.random.randrange(6)
        skip = self.random.randrange(4)

        def watch(sender: MemberId, to: MemberId, message: Control) -> bool:
            nonlocal skip
            if not isinstance(message, step) or self.over:
                return True
            skip -= 1
            if skip >= 0:
                return True
            world.filter = None
            victim = (sender if how % 2 else to).address
            if how < 2 and len(world.living) > 1:
                world.crash(victim)
            elif how < 4:
                world.cut(sender.address, to.address, both=how == 3)
            elif how == 4:
                self._partition()
            else:
                world.pause(victim)
                world.at(SECOND, lambda: world.resume(victim))
            return self.random.random() < 0.5

        world.filter = watch
        if self.random.random() < 0.5:
            self._crash()  # so that there is a view change to wait for

    def _suspect(self) -> None:
        name = self._pick()
        node = self.world.nodes[name] if name else None
        if node is not None and node.view is not None and not node.paused:
            self.world.suspect(node, self.random.choice(node.view.members))


def run(seed: int, order: str, kind: type[Membership] = Membership, primary: bool = False) -> Run:
    return Run(seed, order, kind, primary)
