"""What is explored of views: which members there are, how often each thing may happen, and the settings of all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from unisono.core.config import Config
from unisono.core.errors import Misuse
from unisono.core.membership import Membership, MembershipSettings, Policy
from unisono.core.options import CastOptions
from unisono.core.ordering import AnyOrdering
from unisono.core.types import MemberId
from unisono.core.views import ViewEngine
from unisono.orders.registry import ORDERS
from unisono.sim.explore.orders.case import NAMES

PATIENCE = MembershipSettings(
    retry_ns=1,
    retry_ns_max=1,
    answer_wait_ns=2,
    proposal_wait_ns=3,
    takeover_ns=1,
    backoff_ns=1,
    backoff_ns_max=2,
    gather_ns=1,
    probe_ns=1_000,
    contact_ns=100_000,
    merge_wait_ns=5_000,
    shun_ns=2,
    join_wait_ns=1_000_000,
)
"""A tick repeats what was not answered, the next one gives up waiting for it. Greeting comes long after, founding alone never."""
SOON_NS = 100
"""What is due sooner belongs to a view change; later than that, members only greet strangers once more."""

SEEDS = ("a",)
"""The addresses that a joiner knows. If the member there has crashed, the joiner hears of the others before all comes to rest."""


class SharedDict(dict[str, Any]):
    """A dict that all members of one search share; copies and digests leave it out."""


@dataclass(frozen=True)
class Scope:
    """What is explored: which members there are, and how often each thing may happen, at any point, to any member."""

    order: str = "fifo"
    members: int = 3
    """Number of members in the first view."""
    casts: int = 1
    crashes: int = 1
    joins: int = 1
    """Number of other members that join, one after the other."""
    suspicions: int = 0
    """How often a member suspects another that lives. A crashed member may be suspected besides, by any other."""
    ticks: int = 1
    """How often time passes for some member, up to its next deadline, while other things can still happen."""
    detours: int = 0
    """How often a control message overtakes an earlier one of the same sender to the same member."""
    losses: int = 0
    """Number of control messages that are lost, one by one."""
    blackout: bool = False
    """Whether in every state, besides, all control messages that are under way are lost at once."""
    repeats: int = 0
    """How often a control message arrives and arrives again."""
    cuts: int = 0
    """How often a member is cut off from all others: control messages are lost, packets wait, and suspicions are free."""
    restarts: int = 0
    """How often a process crashes and starts again at once, with its record and without a state."""
    greetings: int = 0
    """How often a member greets the addresses that it knows, before it is time; so what a cut has parted may merge at any point."""
    leaves: int = 0
    """How often a member asks to leave. Once it has left, its process ends at any point."""
    switches: int = 0
    """How often a member asks for the order `switch_to`."""
    switch_to: str = "sequencer"
    cut_off: str = ""
    """Names of the members that may be cut off; empty: any."""
    heals: bool = True
    """Whether a cut ends at any point; otherwise only when all is to come to rest."""
    safe: bool = False
    """Whether what is cast is safe."""
    primary: bool = False
    """Whether the primary policy holds."""
    has_state: bool = False
    """Whether applications have a state, as simple as `views_app` makes it."""
    kind: type[Membership] = Membership
    engine: type[ViewEngine] = ViewEngine
    orders: Mapping[str, type[AnyOrdering]] = field(default_factory=lambda: SharedDict(ORDERS))

    def __post_init__(self) -> None:
        object.__setattr__(self, "orders", SharedDict(self.orders))
        for order in (self.order, self.switch_to):
            if order not in self.orders:
                raise Misuse(f"there is no order {order!r}: choose among {', '.join(self.orders)}.")
        if self.switches and self.switch_to == self.order:
            raise Misuse(f"the group begins with {self.order}: switch to another order.")
        if not 2 <= self.members <= 4 or not 0 <= self.joins <= 2:
            raise Misuse("the explorer of views takes 2 to 4 members and up to 2 joins: the number of states explodes.")
        if not 0 <= self.crashes + self.leaves < self.members:
            gone = self.crashes + self.leaves
            raise Misuse(f"of {self.members} members at most {self.members - 1} can crash or leave, not {gone}.")
        if not 0 <= self.restarts <= self.members:
            raise Misuse(f"{self.members} members can restart {self.members} times, once each, not {self.restarts}.")
        if self.has_state and not self.primary:
            raise Misuse("the explorer of views models a state under the primary policy alone: add --primary.")
        for name in ("casts", "suspicions", "ticks", "detours", "losses", "repeats", "cuts", "greetings", "switches"):
            if not 0 <= getattr(self, name) <= 6:
                raise Misuse(f"--{name} must be 0 to 6, not {getattr(self, name)}: the number of states explodes.")

    @property
    def all_orders(self) -> frozenset[str]:
        """The orders that views may have."""
        return frozenset({self.order, self.switch_to} if self.switches else {self.order})

    @property
    def ids(self) -> tuple[MemberId, ...]:
        """Everyone: the first members, those that may join, and the second lives of the first members, if there are any."""
        return IDS[: self.members + self.joins] + (SECOND_LIVES[: self.members] if self.restarts else ())

    def former_life(self, number: int) -> int | None:
        """Whose second life this is."""
        first = number - self.members - self.joins
        return first if first >= 0 else None

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"{one.address}'" if one.incarnation else one.address for one in self.ids)

    @property
    def config(self) -> Config:
        return CONFIG

    @property
    def settings(self) -> MembershipSettings:
        return _settings(self.members, self.primary, self.has_state)


CONFIG = Config()
SAFE = CastOptions(safe=True)
IDS = tuple(MemberId(name) for name in NAMES)
SECOND_LIVES = tuple(MemberId(name, 1) for name in NAMES)


@cache
def _settings(members: int, primary: bool, has_state: bool) -> MembershipSettings:
    if not primary:
        return PATIENCE
    peers = tuple(member.address for member in IDS[:members])
    return replace(PATIENCE, policy=Policy.PRIMARY, peers=peers, has_state=has_state)
