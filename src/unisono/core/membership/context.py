"""What the parts of membership share: who this member is, the engine of its view, the time of the turn, and its outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeAlias

from unisono.core.config import Config
from unisono.core.membership.chunks import IncomingChunks, chunks_of
from unisono.core.membership.settings import MembershipSettings
from unisono.core.membership.tickets import Nonces
from unisono.core.ordering import AnyOrdering, Cut, Report
from unisono.core.text import one_line, shorten
from unisono.core.types import MemberId, Packet, Slot, View, ViewId
from unisono.core.wire import Charter, Codec, ControlCodec, Standing
from unisono.core.wire.control import Chunk, Control

NONCE_PERIODS = 2
"""An answer to a greeting counts for at least this many times `contact_ns`."""


class Engine(Protocol):
    """What runs the current view below membership: it blocks it and closes it."""

    def approach(self, wanted: bool) -> bool:
        """A new view is wanted, or not any more. True: the current view is at a boundary between messages."""

    def block(self) -> Report:
        """Stop the view and report what is held of it. Nothing more of it is taken in."""

    def retained(self, slot: Slot) -> Packet | None:
        """The packet of a slot of the current view, if it is held."""

    def close(self, cut: Cut, missing: Mapping[Slot, Packet]) -> None:
        """Take the agreed remainder of the current view."""


class Installer(Protocol):
    """What starts each view that was agreed on. A `ViewEngine` that stands alone does it itself."""

    def depart(self, together: Sequence[MemberId], is_primary: bool) -> None:
        """Show the remainder: this member leaves, and these come into the next view with the same one."""

    def install(
        self,
        view: View,
        previous: View | None,
        transitional: Sequence[MemberId],
        parts: Sequence[ViewId],
        order: str,
        attributes: Mapping[str, object],
    ) -> None:
        """Start the view with this order. `attributes`: the cut that closed the previous view, and whether it is primary."""


class Waiting(NamedTuple):
    """Something that waits, for `explain` and the watchdog. `key` changes when it moves; `sentence` says what waits, and for whom.

    `since` is when it began to wait; None: not known, and the watchdog takes the time when it first saw the key.
    """

    key: tuple[object, ...]
    sentence: str
    since: int | None = None


class Installed(NamedTuple):
    """A view was installed here. Under the primary policy, one that is not primary is read-only."""

    charter: Charter


class Refused(NamedTuple):
    """A group does not take this member, and why."""

    by: MemberId
    reason: str

    @property
    def long(self) -> str:
        """A line for people, with whole incarnations."""
        return f"refused by {self.by}: {one_line(self.reason)}"

    def __str__(self) -> str:
        return shorten(self.long)


class Outlived(NamedTuple):
    """The group knows a later life of the process at this member's address, and takes this one for a ghost."""

    by: MemberId
    newest: int
    """The incarnation of that life: the next one must be above it."""


class Evicted(NamedTuple):
    """The others went on without this member: `by` could not cast for `lasted_ns` because of it.

    It is alone from now on. It looks for them again after `rest_ns`, and when its application has drained.
    """

    by: MemberId
    lasted_ns: int
    rest_ns: int

    @property
    def long(self) -> str:
        """A line for people, with whole incarnations."""
        return f"evicted by {self.by}, which could not cast for {self.lasted_ns / 1e9:.3f} s because of this member"

    def __str__(self) -> str:
        return shorten(self.long)


class Left(NamedTuple):
    """This member has left; the object still answers late questions for as long as it is asked."""


Event: TypeAlias = Installed | Refused | Outlived | Evicted | Left
Receiver: TypeAlias = MemberId | str
"""A member, or a bare address where no member is known yet."""


@dataclass(slots=True)
class MembershipOut:
    """What a driver must do, strictly top to bottom: persist the records, send, show the events."""

    records: list[bytes] = field(default_factory=list)
    sends: list[tuple[Receiver, Control]] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)


class Context:
    """One member as the parts of its membership see it. They share nothing else that changes, and ask each other."""

    def __init__(
        self,
        member: MemberId,
        engine: Engine,
        installer: Installer,
        orders: Mapping[str, type[AnyOrdering]],
        order: str,
        config: Config,
        settings: MembershipSettings,
        secret: bytes = b"",
    ) -> None:
        self.id = member
        self.engine = engine
        self.installer = installer
        self.orders = orders
        self.order = order  # as configured
        self.config = config
        self.settings = settings
        self.nonces = Nonces(secret, NONCE_PERIODS * settings.contact_ns)
        self.codec = ControlCodec(config)
        self.peers = settings.peers  # whom the first primary needs a majority of
        self.now = 0
        self.out = MembershipOut()
        self.loop: list[Control] = []  # to myself
        self.refused: dict[str, int] = {}  # what was dropped, by reason
        self._codecs: dict[str, Codec] = {}

    def tick(self, now: int) -> None:
        """Time has passed. It never goes back."""
        self.now = max(now, self.now)

    def name_peers(self, peers: Sequence[str]) -> None:
        """Whom the first primary needs a majority of, from now on."""
        self.peers = tuple(peers)

    def send(self, to: Receiver, message: Control) -> None:
        if to == self.id:
            self.loop.append(message)
        else:
            self.out.sends.append((to, message))

    def send_chunk(self, to: MemberId, ballot: ViewId, topic: int, data: bytes) -> None:
        """Send the first chunk; the receiver pulls the others."""
        for chunk in chunks_of(ballot, topic, data, 0, self.settings.chunk_bytes_max, 1):
            self.send(to, chunk)

    def send_chunks(self, to: MemberId, ballot: ViewId, topic: int, data: bytes, offset: int) -> None:
        """Send what a pull may ask for at once."""
        for chunk in chunks_of(ballot, topic, data, offset, self.settings.chunk_bytes_max, self.settings.chunks_max):
            self.send(to, chunk)

    def pull(self, to: MemberId, incoming: IncomingChunks, again: bool = False) -> bool:
        """Ask for chunks that are missing, if there is a reason to. Returns whether there was."""
        pull = incoming.pull(self.settings.chunk_bytes_max * self.settings.chunks_max, again)
        if pull is not None:
            self.send(to, pull)
        return pull is not None

    def is_too_large(self, chunk: Chunk) -> bool:
        """Whether a chunk is of more than is taken in; then it is counted as refused."""
        if chunk.total > self.settings.chunked_bytes_max:
            self.refuse("chunks too large")
            return True
        return False

    def show(self, event: Event) -> None:
        """Show an event at the end of the turn."""
        self.out.events.append(event)

    def persist(self, standing: Standing) -> None:
        """Have a record of this kept before anything of the turn leaves."""
        self.out.records.append(self.codec.encode(standing))

    def take_out(self) -> MembershipOut:
        """The outputs of the turn, which ends."""
        out, self.out = self.out, MembershipOut()
        return out

    def take_loop(self) -> list[Control]:
        """What I sent to myself since the last time."""
        loop, self.loop = self.loop, []
        return loop

    def refuse(self, reason: str) -> None:
        self.refused[reason] = self.refused.get(reason, 0) + 1

    def use_codecs(self, control: ControlCodec, by_order: dict[str, Codec]) -> None:
        """Share codecs with other members that use the same orders and settings."""
        self.codec, self._codecs = control, by_order

    def order_codec(self, order: str) -> Codec:
        """For reports, cuts and packets of an order."""
        codec = self._codecs.get(order)
        if codec is None:
            kind = self.orders[order]
            codec = self._codecs[order] = Codec((*kind.wire, kind.report_wire, kind.cut_wire), self.config)
        return codec
