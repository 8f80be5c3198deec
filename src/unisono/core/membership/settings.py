"""How membership waits, repeats and limits itself: every time with its unit in its name, validated where it is set."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from unisono.core.config import MILLISECOND, SECOND, Config, check_ranges, duration, ranged
from unisono.core.errors import ConfigError
from unisono.core.wire import GroupSettings, HookSet
from unisono.core.wire.codec import VERSION


class Policy(StrEnum):
    """What a partition may do."""

    PARTITIONABLE = "partitionable"  # every part goes on with its own views
    PRIMARY = "primary"  # at most one part is primary; the others' views are read-only


@dataclass(frozen=True, slots=True)
class MembershipSettings:
    """The settings of one member's membership. `policy` and the hooks must be the same at all members; times may differ."""

    retry_ns: int = duration(100 * MILLISECOND)
    """A request is repeated after this, then after twice as long, and so on."""
    retry_ns_max: int = duration(1 * SECOND)
    """Longest time between two repetitions of a request."""
    answer_wait_ns: int = duration(1 * SECOND)
    """A proposer goes on without a participant that has been silent for this long."""
    proposal_wait_ns: int = duration(3 * SECOND)
    """A participant gives up a proposal that has not moved for this long."""
    takeover_ns: int = duration(400 * MILLISECOND)
    """How much longer than the first the next in line waits before it proposes; the one after it waits twice as much, and so
    on. Also how long a change that no failure forces waits for a boundary between messages, where the order has such."""
    backoff_ns: int = duration(150 * MILLISECOND)
    """Wait of a proposer that was outbid before its next ballot, then twice as long, and so on."""
    backoff_ns_max: int = duration(4 * SECOND)
    """The longest back-off."""
    gather_ns: int = duration(50 * MILLISECOND)
    """A coordinator that hears of newcomers waits for more of them, so that a storm of joins is few views."""
    probe_ns: int = duration(500 * MILLISECOND)
    """Time between two greetings of a coordinator to known addresses outside of its view."""
    probe_addresses_max: int = ranged(16, 1, 65_535)
    """Maximum number of addresses greeted each time."""
    contact_ns: int = duration(2 * SECOND)
    """A member outside of the view that has not been heard for this long is no contact any more."""
    merge_wait_ns: int = duration(3 * SECOND)
    """After this a coordinator does not wait for a lower one to merge any longer, and leads itself."""
    shun_ns: int = duration(1 * SECOND)
    """A member that did not answer a proposal is not asked again for this long, then for twice as long, and so on."""
    join_wait_ns: int = duration(1 * SECOND)
    """A member that has seeds and hears nothing founds a group of its own after this."""
    refused_probe_ns: int = duration(10 * SECOND)
    """Time after which a member that a group has refused asks again; it founds no group of its own."""
    stops_when_refused: bool = False
    """A member that a group has refused does not ask again."""
    leave_wait_ns: int = duration(5 * SECOND)
    """A member that leaves goes without the others' consent after this."""
    rest_ns: int = duration(5 * SECOND)
    """A member that was evicted is turned away for this long, the next time for twice as long, and so on …"""
    rest_ns_max: int = duration(300 * SECOND)
    """… but no longer than this."""
    drain_wait_ns: int = duration(60 * SECOND)
    """A member that was evicted comes back after this even if its application has not drained."""
    members_min: int = ranged(1, 1, 65_535)
    """The smallest first view. Above 1, members wait for each other instead of starting alone."""
    chunk_bytes_max: int = ranged(8 * 1024, 64, 2**31 - 1)
    """Maximum number of bytes of a report, cut or packet in one control message."""
    chunks_max: int = ranged(64, 1, 65_535)
    """Maximum number of chunks sent for one request."""
    chunked_bytes_max: int = ranged(1024 * 1024 * 1024, 1024, 2**32 - 1)
    """The largest report, or cut with its missing packets."""
    missing_max: int = ranged(4 * 1024 * 1024, 1, 2**31 - 1)
    """Maximum number of packets that one member may lack at a view change. No correct member sends a report that makes it more."""
    addresses_max: int = ranged(4_096, 1, 65_535)
    """Maximum number of addresses, lives and greetings remembered. Beyond it hearsay is dropped first, then what is oldest."""
    collect: str | None = None
    """How reports travel when this member proposes: by "star" or by "ring"; None: as the view's order prefers."""
    policy: Policy = Policy.PARTITIONABLE
    """What a partition may do."""
    peers: tuple[str, ...] = ()
    """Primary policy: the first primary needs a majority of these addresses."""
    bootstrap: bool = False
    """Primary policy: this member's first view may be the first primary. Set it at one member, once."""
    has_state: bool = False
    """Whether the application has hooks that carry a state. A primary then needs a member that has it."""
    has_merge: bool = False
    """Whether it merges the states of the parts of a partition."""
    has_answer: bool = False
    """Whether it answers clients outside of the group."""
    is_observer: bool = False
    """An observer joins a group whatever hooks its members give. It has no state, so it never gives one."""

    def __post_init__(self) -> None:
        check_ranges(self)
        if self.collect not in (None, "star", "ring"):
            raise ConfigError(f"collect must be star, ring or None, not {self.collect!r}.")
        if not isinstance(self.policy, Policy):
            raise ConfigError(f"policy must be partitionable or primary, not {self.policy!r}.")
        if self.proposal_wait_ns <= self.answer_wait_ns:
            raise ConfigError(
                f"proposal_wait_ns = {self.proposal_wait_ns} must be above answer_wait_ns = {self.answer_wait_ns}: "
                "participants must be more patient than their proposer."
            )
        if self.rest_ns > self.rest_ns_max:
            raise ConfigError(f"rest_ns = {self.rest_ns} is above rest_ns_max = {self.rest_ns_max}: raise the latter.")
        for name in ("has_state", "has_merge", "has_answer", "is_observer"):
            if not isinstance(getattr(self, name), bool):
                raise ConfigError(f"{name} must be true or false, not {getattr(self, name)!r}.")
        if self.has_merge and not self.has_state:
            raise ConfigError("has_merge needs has_state: what has no state has nothing to merge.")
        if self.is_observer and (self.has_state or self.has_answer):
            raise ConfigError("an observer has no hooks: leave has_state, has_merge and has_answer out.")
        if len(set(self.peers)) != len(self.peers):
            raise ConfigError("peers names an address twice: name each once.")

    def agreed(self, order: str, config: Config) -> GroupSettings:
        """What all members of a group must have in common, as a greeting says it."""
        hooks = None if self.is_observer else HookSet(self.has_state, self.has_merge, self.has_answer)
        return GroupSettings(VERSION, order, self.policy.value, hooks, self.is_observer, config.as_numbers())
