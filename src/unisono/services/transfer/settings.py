"""Every limit and every timeout of state transfer, and what it asks of its surroundings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from unisono.core.config import MILLISECOND, SECOND
from unisono.core.errors import ConfigError
from unisono.core.events import Happening
from unisono.core.types import Batch, MemberId, ViewId
from unisono.core.wire.control import Held
from unisono.services.transfer.messages import Values

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class TransferSettings:
    """The settings of state transfer. Members may have different ones."""

    chunk_bytes: int = 64 * 1024
    """A donor sends so much at a time."""
    chunks_ahead: int = 8
    """So many chunks an asker has under way; so much of a snapshot is in a donor's streams at most."""
    snapshots_max: int = 4
    """So many snapshots a donor holds at once; beyond it, it declines."""
    hold_ns: int = 10 * SECOND
    """A snapshot that nobody pulls is dropped after this, and so are the bases of a merge."""
    patience_ns: int = 3 * SECOND
    """An asker that hears nothing from a donor for so long tries the next one."""
    retry_ns: int = 50 * MILLISECOND
    """How long an asker rests when all have declined."""
    state_bytes_max: int = 256 * MIB
    """A larger state is not taken."""
    buffer_bytes_max: int = 16 * MIB
    """Messages held back here; on the way there the others are asked for less and less, and at the limit for nothing."""
    buffer_messages_max: int = 262_144
    """Likewise, in messages."""

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value < 2**63:
                raise ConfigError(f"{name} = {value!r} is out of range: choose a whole number from 1.")
        if self.chunk_bytes > 16 * MIB:
            raise ConfigError(f"chunk_bytes = {self.chunk_bytes} is out of range: choose 1 to {16 * MIB}.")


class Application(Protocol):
    """Who has the state. All calls come in the order of the stream, from within `Transfer.take` and its like."""

    def show(self, event: Happening) -> None:
        """Something happened to the group: apply it."""

    def snapshot(self) -> bytes:
        """The state now, with everything shown so far. Equal states must give equal bytes."""

    def restore(self, state: bytes) -> None:
        """Replace the state by this one."""

    def merge(self, parts: Sequence[bytes]) -> None:
        """Replace the state by one made of these, which are the same, in the same order, at every member."""

    @property
    def can_merge(self) -> bool:
        """Whether `merge` makes one of several states. If not, it takes the first."""

    def skip(self, batch: Batch, is_in_state: bool) -> None:
        """A batch is not shown: the state that was restored has it, or it belongs to a state that is not here."""


class Port(Protocol):
    """What state transfer needs of a member: `core.whole.Member` has it."""

    @property
    def id(self) -> MemberId: ...

    def send(self, to: MemberId, data: bytes) -> bool: ...

    def set_free_room(self, packets: int | None) -> None: ...

    def hold(self, state: Held | None) -> None: ...


class Ledger(Protocol):
    """What a recorder keeps for P19: the hashes of the messages in the state (`trace.state_line`)."""

    def settle(self) -> None:
        """Everything delivered so far is in the state."""

    def enter_merge(self, view: ViewId) -> Values:
        """Everything before this view is in the state; the hashes at its beginning."""

    def give(self) -> Values:
        """A snapshot of everything delivered so far is given away."""

    def give_base(self, view: ViewId, first: bool) -> None:
        """The base of a merge is given away. `first`: of the part that goes first in the merge."""

    def vouch(self, view: ViewId) -> None:
        """The merge is done, with the hashes that this member has at the beginning of the view."""

    def take(self, view: ViewId, values: Values) -> None:
        """A state with these hashes, at a point of this view, is taken over; later messages follow upon it."""
