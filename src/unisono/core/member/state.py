"""What a member may be asked: by its drivers, by `explain`, by the watchdog and for its counters.

`Member.state` is the one place for questions. None of them changes anything, and none hands out a part that could be changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from unisono.core.errors import NotPrimary
from unisono.core.member.settings import Settings
from unisono.core.member.stability import Stability
from unisono.core.member.suspicions import Suspicions
from unisono.core.membership import Membership, Policy, ViewChange, Waiting
from unisono.core.ordering import Wait
from unisono.core.streams import Slowness, Streams
from unisono.core.types import Batch, MemberId, Rank, View, ViewId
from unisono.core.views import Phase, ViewEngine


class MemberState:
    """A member as its observers see it. The member tells it of each view's streams."""

    def __init__(
        self,
        settings: Settings,
        engine: ViewEngine,
        membership: Membership,
        suspicions: Suspicions,
        stability: Stability,
    ) -> None:
        self.id = engine.id
        self._engine = engine
        self._membership = membership
        self._suspicions = suspicions
        self._stability = stability
        self._streams: Streams | None = None  # of the view
        self.is_partitionable = settings.membership.policy is Policy.PARTITIONABLE
        """Whether members go on in every part of a partition."""

    def enter(self, streams: Streams) -> None:
        """A view was installed, with these streams."""
        self._streams = streams

    # The view.

    @property
    def has_view(self) -> bool:
        """Whether any view was installed."""
        return self._engine.has_view

    @property
    def view(self) -> View | None:
        """The view that was installed last."""
        return self._engine.view if self._engine.has_view else None

    @property
    def members(self) -> Sequence[MemberId]:
        """The members of the view, by rank; empty before the first view."""
        return self._engine.view.members

    @property
    def rank(self) -> Rank:
        """The own one, in the view."""
        return self._engine.rank

    @property
    def order(self) -> str:
        """The order of the view; before there is one, as configured."""
        return self._membership.order

    @property
    def is_primary(self) -> bool:
        """Whether the view may change state: always under `partitionable`."""
        return self._membership.is_primary

    def demand_primary(self) -> None:
        """Raise `NotPrimary` if nothing can be cast in the view."""
        if not self._membership.is_primary:
            raise NotPrimary(
                f"{self._membership.explain_read_only()}. Nothing was cast: wait until a view is primary "
                "(`await group.until(lambda view: view.is_primary)`), then cast again."
            )

    @property
    def lost_state(self) -> ViewId | None:
        """The primary whose state the view lacks to be primary."""
        charter = self._membership.charter
        return None if charter is None or charter.primary or charter.lost is None else charter.lost.view

    @property
    def is_blocked(self) -> bool:
        """Whether a view change is under way: casts wait for the next view."""
        return self._engine.is_blocked

    @property
    def is_changing(self) -> bool:
        """Whether a view is being agreed on, the first one too."""
        return self._membership.explain() is not None

    @property
    def view_change(self) -> ViewChange:
        """How far this member is with the change of its view."""
        return self._membership.view_change

    @property
    def is_gone(self) -> bool:
        """Whether this member has left."""
        return self._membership.is_gone

    @property
    def suspects(self) -> tuple[MemberId, ...]:
        """The members that are suspected because they are silent."""
        return self._suspicions.members

    @property
    def turned_away(self) -> Mapping[str, str]:
        """Addresses of members that are not taken in, the latest last, each with the reason that it was given."""
        return self._membership.turned_away

    # Own messages.

    @property
    def accepted(self) -> int:
        """How many own messages were cast so far, in all views: the index of the next one."""
        return self._engine.casting.index

    @property
    def submitted(self) -> int:
        """How many of them the ordering was given."""
        return self._engine.casting.submitted

    @property
    def unfinished(self) -> int:
        """How many own messages are cast and not yet delivered here."""
        return self._engine.casting.unfinished

    @property
    def settled_index(self) -> int:
        """All own messages below this index are stable, except those that a `Doubt` was told of."""
        return self._stability.settled_index

    @property
    def is_writable(self) -> bool:
        """Whether a cast would be accepted now."""
        return self._engine.has_room and not self.is_gone and not self.is_shut

    def room_messages(self) -> int:
        """How many messages without options are accepted now, whatever their size: the room in the window."""
        return self._engine.casting.room_messages if self.is_writable and self.is_primary else 0

    # What waits.

    @property
    def is_at_rest(self) -> bool:
        """Whether nothing waits here: no view change, no suspicion, no message held back, nothing owed on a stream."""
        engine = self._engine
        idle = not engine.casting.unfinished and not engine.showing.gate.waiting and not engine.waits()
        owes = engine.has_view and self._in_view.deadline is not None
        return idle and not owes and not engine.is_blocked and not self._suspicions.silent

    def standing(self) -> list[Waiting]:
        """What waits for other members, beside messages: to join, to leave, a view change."""
        return self._membership.waiting()

    def held_back(self) -> Sequence[Wait]:
        """What the ordering holds back, for what, and for whom."""
        return self._engine.waits()

    def not_yet_safe(self) -> Sequence[tuple[Batch, tuple[int, ...] | None]]:
        """What is ordered and waits to be safe, and how many packets of each origin all must have taken in for it."""
        return self._engine.showing.gate.waiting

    def behind(self, origin: Rank, packets: int) -> Sequence[Rank]:
        """The members that are not known to have taken in this many packets of an origin."""
        return self._in_view.behind(origin, packets)

    def behind_own(self) -> Sequence[Rank]:
        """The members that are not known to have taken in all that was cast here in this view."""
        return self._in_view.behind(self.rank, self._in_view.packets_cast)

    def gaps(self) -> Sequence[tuple[Rank, int, int]]:
        """Gaps in what others cast: a datagram was lost, and has not come again. None during a view change."""
        return self._in_view.gaps() if self._is_running else []

    # What was delivered.

    @property
    def delivered(self) -> int:
        """How many messages were delivered, with those that are for other members alone."""
        return self._engine.showing.delivered

    def reaches(self) -> dict[MemberId, int]:
        """By member of the view: up to which index its messages were delivered here; 0: none that is known of."""
        return self._engine.showing.reaches()

    # The window of the streams. It says nothing before the first view, during a view change, and while the rate limit holds back.

    @property
    def is_shut(self) -> bool:
        """Whether the window takes nothing more in a view that goes on."""
        return self._is_running and not self._in_view.writable()

    @property
    def tells_who_is_slow(self) -> bool:
        """Whether it is the others that decide how much can be cast, and not the own rate limit or a view change."""
        return self._is_running and not self._in_view.is_paced

    @property
    def window_start(self) -> int:
        """How many own packets of this view are known to have come to all."""
        return self._in_view.received_by_all[self.rank]

    def slowest(self) -> tuple[Rank, Slowness] | None:
        """The peer that holds the window shut, and why."""
        return self._in_view.slowest()

    def acknowledged_by(self, peer: Rank) -> int:
        """How many datagrams a peer has acknowledged."""
        return self._in_view.acknowledged_by(peer)

    @property
    def _is_running(self) -> bool:
        """Whether there is a view, and no change of it under way."""
        return self._engine.phase is Phase.RUNNING

    @property
    def _in_view(self) -> Streams:
        assert self._streams is not None, "there are streams in a view alone"
        return self._streams
