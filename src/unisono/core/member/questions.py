"""What one may ask a member at any time. Nothing here changes it."""

from __future__ import annotations

from collections.abc import Mapping

from unisono.core.member.settings import Settings
from unisono.core.member.watchdog import Culprit, Watch
from unisono.core.membership.membership import Membership
from unisono.core.membership.settings import Policy
from unisono.core.streams.streams import Streams
from unisono.core.types import Key, MemberId, View, ViewId
from unisono.core.views.engine import Phase, ViewEngine
from unisono.core.views.own_casts import Doubt, OwnCasts


class MemberQuestions:
    """The half of `Member` that answers."""

    id: MemberId
    lie: str
    settings: Settings
    _now: int
    _order: str
    _engine: ViewEngine
    _streams: Streams | None
    _membership: Membership
    _watch: Watch
    _suspected: dict[MemberId, None]
    _own_casts: OwnCasts

    @property
    def view(self) -> View | None:
        return self._engine.view if self._engine.has_view else None

    @property
    def order(self) -> str:
        """The order of the view; before there is one, as configured."""
        return self._order

    @property
    def is_blocked(self) -> bool:
        """Whether a view change is under way: casts wait for the next view."""
        return self._engine.is_blocked

    @property
    def is_changing(self) -> bool:
        """Whether a view is being agreed on, the first one too."""
        return self._membership.explain() is not None

    @property
    def is_lied_to(self) -> bool:
        """Whether anything was refused here because no correct member sends it."""
        return bool(self.lie) or self._membership.is_lied_to

    @property
    def is_primary(self) -> bool:
        return self._membership.is_primary

    @property
    def lost_state(self) -> ViewId | None:
        """The primary whose state the view lacks to be primary."""
        charter = self._membership.charter
        return None if charter is None or charter.primary or charter.lost is None else charter.lost.view

    @property
    def turned_away(self) -> Mapping[str, str]:
        """Addresses of members that are not taken in, the latest last, each with the reason that it was given."""
        return self._membership.turned_away

    @property
    def is_gone(self) -> bool:
        return self._membership.is_gone

    @property
    def suspects(self) -> tuple[MemberId, ...]:
        return tuple(self._suspected)

    @property
    def settled_index(self) -> int:
        """All own messages below this index are stable, except those that a `Doubt` was told of."""
        return self._own_casts.settled_index

    def take_doubts(self) -> list[Doubt]:
        """Own messages whose view ended before every member was known to have them; each is told once."""
        doubts, self._own_casts.doubts = self._own_casts.doubts, []
        return doubts

    @property
    def unfinished(self) -> int:
        """How many own messages are cast and not yet delivered here."""
        return self._engine.unfinished

    @property
    def cast_index(self) -> int:
        """The index of the next own message."""
        return self._engine.accepted

    @property
    def is_partitionable(self) -> bool:
        return self.settings.membership.policy is Policy.PARTITIONABLE

    @property
    def is_writable(self) -> bool:
        """Whether a cast would be accepted now."""
        engine, streams = self._engine, self._streams
        if streams is None or self.is_gone:
            return False
        return engine.has_room and (engine.phase is not Phase.RUNNING or streams.writable())

    @property
    def is_at_rest(self) -> bool:
        """Whether nothing waits here: no view change, no suspicion, no message held back, nothing owed on a stream."""
        engine, streams = self._engine, self._streams
        idle = not engine.unfinished and not engine.is_gated and not engine.waits()
        owes = streams is not None and streams.deadline is not None
        return idle and not owes and not engine.is_blocked and not self._suspected

    def explain(self, key: Key | None = None, most: int | None = None) -> list[str]:
        """Why something waits here, for whom and since when, at most `most` sentences; with a key, of that message alone."""
        return self._watch.explain(self._now, most) if key is None else [self._watch.explain_key(key, self._now)]

    @property
    def slowest(self) -> Culprit | None:
        """Who holds the window shut now, so that nothing can be cast, and since when."""
        return self._watch.slowest()
