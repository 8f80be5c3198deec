"""What the events of a member say about its own messages, told to their receipts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from unisono.core.member import Entered, Happening
from unisono.core.membership import Left, Outlived
from unisono.core.transition import Transition
from unisono.core.types import Batch, Key, MemberId
from unisono.core.views import Doubt
from unisono.runtime.errors import NotFlushed
from unisono.runtime.receipts import Receipts


class OwnMessages:
    """Follows the stream of a member before state transfer may hold something back."""

    def __init__(
        self,
        receipts: Receipts,
        take_doubts: Callable[[], Sequence[Doubt]],
        entered: Callable[[Entered], None],
        follows_transfer: bool,
    ) -> None:
        """`entered` is called with each view. `follows_transfer`: `shown` or `skipped` will tell what becomes of each batch."""
        self._receipts = receipts
        self._take_doubts = take_doubts
        self._on_entered = entered
        self._rank = -1  # in the view of the events that come next
        self._outgoing: tuple[MemberId, ...] | None = None  # who comes along out of the primary view, if it is left
        # Own batches that state transfer may hold back, by identity.
        self._held: dict[int, Batch] | None = {} if follows_transfer else None
        self._unflushed: list[
            tuple[Doubt, tuple[MemberId, ...]]
        ] = []  # since it is leaving: in doubt, and who may lack it
        self.entered: Entered | None = None
        """The latest view that was installed."""
        self.is_leaving = False

    def note(self, events: Sequence[Happening]) -> Left | Outlived | None:
        """Note what a turn shows. Returns the end of this member, if it has come."""
        receipts, rank = self._receipts, self._rank
        end: Left | Outlived | None = None
        for event in events:
            if isinstance(event, Batch):
                if event.origin == rank:
                    if self._held is not None:
                        self._held[id(event)] = event
                    if self._outgoing is None:
                        receipts.delivered(event.first, event.count)
                    else:
                        receipts.lose(event.first, event.count, self._outgoing)
            elif isinstance(event, Transition):
                self._note_doubts()
                self._outgoing = None if event.is_primary else event.together
            elif isinstance(event, Entered):
                self._rank = rank = event.view.rank_of(receipts.member)
                self.entered = event
                self._on_entered(event)
                self._outgoing = None
            elif isinstance(event, Left | Outlived):
                end = event
        return end

    def _note_doubts(self) -> None:
        """The view has ended: tell what is not known to be everywhere."""
        for doubt in self._take_doubts():
            self._receipts.doubt(doubt)
            if self.is_leaving:
                self._unflushed.append((doubt, tuple(one for one in self._members() if one not in doubt.known)))

    def _members(self) -> tuple[MemberId, ...]:
        return () if self.entered is None else self.entered.view.members

    # Behind state transfer.

    def shown(self, event: Happening) -> None:
        """State transfer lets the application see an event."""
        if self._held:
            self._held.pop(id(event), None)

    def skipped(self, batch: Batch, is_in_state: bool) -> None:
        """A batch is not shown, because the state that was restored has it, or because its state is not here."""
        if self._held is None or self._held.pop(id(batch), None) is None:
            return  # another member's
        if is_in_state:
            self._receipts.applied(batch.first, batch.count)
        else:
            self._receipts.drop(batch.first, batch.count)

    # Leaving.

    def raise_not_flushed(self, group: str, end: int) -> None:
        """Raise `NotFlushed` if a message below `end`, of the last view or one that ended during `leave`, may not be everywhere.

        Receipts have told the application about messages of earlier views, if it asked.
        """
        me, first = self._receipts.member, self._receipts.settled_to
        missing = [(range(doubt.first, doubt.end), lacking) for doubt, lacking in self._unflushed]
        if first < end:
            missing.append((range(first, end), tuple(one for one in self._members() if one != me)))
        if missing:
            keys = sorted(Key(me, index) for indices, _ in missing for index in indices)
            members = dict.fromkeys(one for _, lacking in missing for one in lacking)
            raise NotFlushed(me, group, keys, tuple(members))
