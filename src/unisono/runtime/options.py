"""What `join` can be asked for, checked before anything is opened."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from enum import StrEnum
from inspect import signature
from typing import ParamSpec, TypeVar

from unisono.core.config import MILLISECOND, SECOND, Config
from unisono.core.errors import Misuse
from unisono.core.member import Settings, Slow
from unisono.core.membership import Policy
from unisono.orders.registry import DEFAULT_ORDER, find_order
from unisono.runtime.addresses import split
from unisono.runtime.clients import Answer
from unisono.runtime.hooks import Hooks, check_hook
from unisono.runtime.journal import Journal
from unisono.runtime.lookup import PeerFunction, check_peers
from unisono.runtime.multicast import check as check_multicast
from unisono.runtime.pace import check_seconds, paced
from unisono.trace.sanitize import is_text
from unisono.trace.schema import NOT_KNOWN

P = ParamSpec("P")
R = TypeVar("R")

ACK_DELAY_NS = 40 * MILLISECOND
"""A system call costs more than an idle acknowledgement is worth: it waits longer for company than in the simulator."""
RETRANSMIT_NS_MIN = 100 * MILLISECOND
"""… and so nothing is sent again before it could have come."""
FRAME_BYTES = 6
"""What a frame adds to a datagram of the streams."""
CHUNK_HEAD_BYTES = 220
"""What surrounds a chunk of a report or cut (twice an address, tickets, numbers): the network must not cut a datagram."""
WATCHDOG_S = 30.0
"""When the log tells what waits, unless `watchdog` says another time."""


class Role(StrEnum):
    """What a member is in its group."""

    MEMBER = "member"
    OBSERVER = "observer"  # without hooks, whatever the others give; it has no state and never gives one


@dataclass(frozen=True, slots=True)
class JoinOptions:
    """The options of `unisono.join` and `unisono.sync.join`: each field is a keyword of both."""

    group: str
    """The group's name. Members that use the same name, and can hear each other, form one group."""
    _: KW_ONLY
    listen: str | None = None
    """Where this member receives, as host:port. Without it: the first of `peers` that is local and free."""
    peers: Sequence[str] | PeerFunction = ()
    """Addresses where members may be, or a function that returns them. Names need not be known yet, and may stand for several
    addresses: they are looked up again and again. So is the function called, in a thread unless it is a coroutine."""
    order: str = DEFAULT_ORDER
    """The order in which messages are delivered: the name of a protocol. All members of a group use the same."""
    min_members: int = 1
    """The first view has at least this many members."""
    advertise: str | None = None
    """How the other members reach this one, if that is not `listen`."""
    policy: str = "partitionable"
    """`partitionable`: each part of a divided group goes on. `primary`: only a majority does, the others are
    read-only; it needs a journal. The first primary needs a majority of `peers`, each counted once as it is
    written, or `bootstrap` at one of them."""
    bootstrap: bool = False
    """Let this member form the first primary without a majority of `peers`."""
    slow: str = "block"
    """What happens when a receiver stays slow: `block` the senders, `shed` casts at once, or `evict` the receiver."""
    watchdog: float | None = None
    """After waiting this many seconds, show an event `Stalled` that says for what. Without it only the log does, after 30
    seconds."""
    safe: bool = False
    """Deliver messages only when every member has them."""
    key: str | bytes | os.PathLike[str] | None = field(default=None, repr=False)
    """The group key, or a file with one; else the environment's UNISONO_KEY, else the file that UNISONO_KEY_FILE
    names. Without a key only loopback is allowed, unless `insecure`."""
    insecure: bool = False
    """Allow a group without a key on a network where anyone can read and cast."""
    snapshot: Callable[[], bytes] | None = None
    """Returns the application's state, for members that join. All members of a group give the same hooks."""
    restore: Callable[[bytes], None] | None = None
    """Takes over a state that `snapshot` of another member has returned."""
    merge: Callable[[Sequence[bytes]], None] | None = None
    """Takes over the states of the parts of a group that was divided. Without it, that of the first part is restored."""
    answer: Answer | None = None
    """Serves clients outside (`unisono.client`): called with each request at its place in the stream, it returns this member's
    answer. Give it at all members or at none."""
    multicast: str | None = None
    """An IPv4 multicast address and port, such as 239.1.2.3:7500: what goes to all members leaves once. All members of a group use
    the same, or none."""
    journal: str | os.PathLike[str] | Journal | None = None
    """A folder (or a `Journal`) for what must outlive the process."""
    trace: str | os.PathLike[str] | None = None
    """A folder for a recording of the run."""
    run: str | None = None
    """The name of the run in its recording; without it, the group's."""
    pace: float = 1.0
    """Multiplies all timers (0.25: failures are noticed four times as fast)."""
    settings: Settings | None = None
    """Replaces every default that is not an option here; datagrams are then as small as `settings.streams` says."""
    timeout: float | None = None
    """Maximum number of seconds to wait for the first view."""
    leave_timeout: float = 5.0
    """Maximum number of seconds to leave at the end of the `async with`."""
    metrics: str | None = None
    """An address where Prometheus finds this member's numbers."""
    control: bool = False
    """Answer `unisono status` and the other commands that look at a running member."""
    role: str = "member"
    """`member` or `observer`. An observer gives no hooks and joins whatever hooks the members give: it is
    delivered everything and may cast, but it has no state, and is never asked for one."""

    def __post_init__(self) -> None:
        find_order(self.order)
        if not callable(self.peers):
            object.__setattr__(self, "peers", check_peers(self.peers))
        self._check_name()
        self._check_choices()
        self._check_times_and_places()
        self._check_hooks()

    def _check_name(self) -> None:
        group = self.group
        if not group:
            raise Misuse("a group needs a name.")
        if not isinstance(group, str):
            raise Misuse(f"the group's name {group!r} is of type {type(group).__name__}: give a text.")
        if not is_text(group):
            raise Misuse(f"the group's name {group!r} is not text: write it in UTF-8.")
        if group == NOT_KNOWN:
            raise Misuse(
                f"a trace could not tell the group {group!r} from one that is not known: give it another name."
            )

    def _check_choices(self) -> None:
        if self.policy not in tuple(Policy):
            raise Misuse(f"there is no policy {self.policy!r}: choose {' or '.join(Policy)}.")
        if self.policy == Policy.PRIMARY and self.journal is None:
            raise Misuse(
                "policy='primary' needs a journal: a process that forgot what it had confirmed could make a second primary."
            )
        if self.slow not in tuple(Slow):
            raise Misuse(f"there is no policy {self.slow!r} for slow receivers: choose {', '.join(Slow)}.")
        if not isinstance(self.min_members, int) or self.min_members < 1:
            raise Misuse(f"min_members = {self.min_members!r} is impossible: choose 1 or more, a whole number.")

    def _check_times_and_places(self) -> None:
        check_seconds(self.watchdog, "watchdog")
        check_seconds(self.timeout, "timeout", 0)
        check_seconds(self.leave_timeout, "leave_timeout", 0)
        for text, what in ((self.listen, "listen"), (self.advertise, "advertise"), (self.metrics, "metrics")):
            if text is not None:
                split(text, what)
        if self.multicast is not None:
            check_multicast(self.multicast)
        journal = None if isinstance(self.journal, Journal) else self.journal
        for place, what in ((self.trace, "trace"), (journal, "journal")):
            if place is not None and not isinstance(place, str | os.PathLike):
                raise Misuse(f"{what} = {place!r} is not a folder: give its path.")
        if self.safe and self.settings is not None and not self.settings.config.safe:
            raise Misuse("safe=True and settings contradict each other: give settings whose config has safe=True.")

    def _check_hooks(self) -> None:
        if self.role not in tuple(Role):
            raise Misuse(f"there is no role {self.role!r}: choose {' or '.join(Role)}.")
        Hooks.of(self.snapshot, self.restore, self.merge)
        check_hook(self.answer, "answer")
        named = ((name, getattr(self, name)) for name in ("snapshot", "restore", "merge", "answer"))
        given = [f"`{name}`" for name, hook in named if hook is not None]
        if self.role == Role.OBSERVER and given:
            raise Misuse(
                f"an observer has no state and answers no client, so it cannot have {', '.join(given)}: "
                "leave the hooks out, or join with role='member'."
            )

    @property
    def hooks(self) -> Hooks | None:
        """What carries the application's state, if anything does."""
        return Hooks.of(self.snapshot, self.restore, self.merge)

    @property
    def is_observer(self) -> bool:
        return self.role == Role.OBSERVER

    @property
    def run_name(self) -> str:
        return self.run or self.group

    @property
    def shows_stalls(self) -> bool:
        """Whether the application is shown what the watchdog says; else it is for the log alone."""
        return self.watchdog is not None or (self.settings is not None and self.settings.flow.stall_ns is not None)

    def open_journal(self) -> Journal | None:
        return self.journal if self.journal is None or isinstance(self.journal, Journal) else Journal(self.journal)

    def settings_for(self, quorum: tuple[str, ...], unsealed_bytes: int, is_logged: bool = False) -> Settings:
        """The settings of the member. `unsealed_bytes` of a datagram are left when it is sealed."""
        settings = self.settings
        if settings is None:
            settings = Settings(config=Config(safe=self.safe))
            room = unsealed_bytes - FRAME_BYTES
            chunk_bytes = min(settings.membership.chunk_bytes_max, room - CHUNK_HEAD_BYTES)
            settings = replace(
                settings,
                streams=replace(
                    settings.streams,
                    datagram_bytes=room,
                    ack_delay_ns=ACK_DELAY_NS,
                    retransmit_ns_min=RETRANSMIT_NS_MIN,
                ),
                membership=replace(settings.membership, chunk_bytes_max=chunk_bytes),
            )
        settings = paced(settings, self.pace)
        flow = replace(settings.flow, slow=Slow(self.slow))
        if self.watchdog is not None:
            stall_ns = int(self.watchdog * SECOND)
            flow = replace(flow, stall_ns=stall_ns, look_ns=max(MILLISECOND, min(flow.look_ns, stall_ns)))
        elif flow.stall_ns is None and is_logged:
            flow = replace(flow, stall_ns=max(flow.look_ns, int(WATCHDOG_S * SECOND)))
        return replace(
            settings,
            flow=flow,
            membership=replace(
                settings.membership,
                members_min=self.min_members,
                policy=Policy(self.policy),
                peers=quorum if self.policy == Policy.PRIMARY else (),
                bootstrap=self.bootstrap,
                has_state=self.snapshot is not None,
                has_merge=self.merge is not None,
                has_answer=self.answer is not None,
                is_observer=self.is_observer,
            ),
        )


def taking_options(model: Callable[P, JoinOptions]) -> Callable[[Callable[..., R]], Callable[P, R]]:
    """Give a function the arguments of `JoinOptions`, for type checkers, editors and `help`."""

    def dress(function: Callable[..., R]) -> Callable[P, R]:
        own = signature(function)
        shown = signature(model).replace(return_annotation=own.return_annotation)
        function.__signature__ = shown  # type: ignore[attr-defined]
        return function

    return dress
