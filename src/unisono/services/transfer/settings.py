"""Limits and timeouts of state transfer, and the interfaces that it needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from unisono.core.config import MILLISECOND, NUMBER_MAX, SECOND, check_ranges, ranged
from unisono.core.member import Happening
from unisono.core.types import Batch, MemberId, ViewId
from unisono.core.wire import HeldState

MIB = 1024 * 1024

Values: TypeAlias = tuple[tuple[str, int, str], ...]
"""For the trace: service, ordinal, and the hash of the messages in the state; empty unless a trace is recorded."""


@dataclass(frozen=True, slots=True)
class TransferSettings:
    """The settings of state transfer. Members may have different ones."""

    chunk_bytes: int = ranged(64 * 1024, 1, 16 * MIB)
    """Size of the chunks in which a donor sends a snapshot."""
    chunks_ahead: int = ranged(8, 1, NUMBER_MAX)
    """Maximum number of chunks that an asker has requested and not yet received."""
    snapshots_max: int = ranged(4, 1, NUMBER_MAX)
    """Maximum number of snapshots that a donor holds at once; beyond it, it declines."""
    hold_ns: int = ranged(10 * SECOND, 1, NUMBER_MAX)
    """How long a snapshot is kept after it was last pulled, and the bases after a merge."""
    patience_ns: int = ranged(3 * SECOND, 1, NUMBER_MAX)
    """An asker tries the next donor after this long without an answer."""
    retry_ns: int = ranged(50 * MILLISECOND, 1, NUMBER_MAX)
    """How long an asker rests when all have declined."""
    state_bytes_max: int = ranged(256 * MIB, 1, NUMBER_MAX)
    """Maximum size of a state that is accepted."""
    buffer_bytes_max: int = ranged(16 * MIB, 1, NUMBER_MAX)
    """Maximum size of the messages held back. From half of it on, others are asked to send less; at the limit, nothing."""
    buffer_messages_max: int = ranged(262_144, 1, NUMBER_MAX)
    """Maximum number of messages held back: the same limit as `buffer_bytes_max`, for small messages."""

    def __post_init__(self) -> None:
        check_ranges(self)


class Application(Protocol):
    """Has the state. It is called in the order of the stream, from within the inputs of `Transfer`."""

    def show(self, event: Happening) -> None:
        """Apply the next event."""

    def snapshot(self) -> bytes:
        """The state now, with everything shown so far. Equal states must give equal bytes."""

    def restore(self, state: bytes) -> None:
        """Replace the state by this one."""

    def merge(self, parts: Sequence[bytes]) -> None:
        """Replace the state by a combination of these, which every member gets in the same order."""

    @property
    def can_merge(self) -> bool:
        """Whether `merge` combines states. If not, it takes the first."""

    @property
    def is_untouched(self) -> bool:
        """Whether it has taken nothing of what it was shown, not even its first view."""

    def skip(self, batch: Batch, is_in_state: bool) -> None:
        """Learn that a batch is not shown: the restored state includes it, or it belongs to a state that is not here."""


class MemberPort(Protocol):
    """What state transfer needs of a `Member`."""

    @property
    def id(self) -> MemberId: ...

    def send(self, to: MemberId, data: bytes) -> bool: ...

    def set_free_room(self, packets: int | None) -> None: ...

    def hold(self, state: HeldState | None) -> None: ...


class Ledger(Protocol):
    """Keeps the hashes of the messages in the state, which P19 needs (`trace.state_line`).

    They travel beside the group: what is recorded sends the same bytes as what is not.
    """

    def include(self, until: ViewId | None = None) -> None:
        """Everything delivered so far, or before this view began, is in the state."""

    def enter_merge(self, view: ViewId) -> Values:
        """Everything before this view is in the state: return the hashes at its beginning."""

    def give(self) -> Values:
        """A snapshot of everything in the state is given to another member: return its hashes."""

    def tell(self, number: int, values: Values) -> None:
        """The snapshot of this number, which is offered here, has these hashes."""

    def told(self, donor: MemberId, number: int) -> Values:
        """The hashes of a snapshot that another member offered."""

    def give_base(self, view: ViewId, first: bool) -> None:
        """The base of a merge is given to another member. `first`: of the part that goes first in the merge."""

    def vouch(self, view: ViewId) -> None:
        """The merge is done, with the hashes that this member has at the beginning of the view."""

    def take(self, view: ViewId, values: Values) -> None:
        """A state with these hashes, at a point of this view, is taken over; later messages follow upon it."""
