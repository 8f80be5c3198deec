"""Drives one member on an event loop: datagrams and time go in, effects are performed strictly in their order.

Everything that was cast or received since the last turn is the input of the next one. `cast` calls `wake`, which schedules at most
one turn at the end of the current loop iteration. Datagrams from the socket cause a turn at once, and so does a cast after a quiet
moment (`calm_at`).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from time import monotonic_ns
from typing import TYPE_CHECKING, Protocol

from unisono.core.config import MILLISECOND
from unisono.core.errors import PeerFault, UnisonoError
from unisono.core.member import Happening, Member
from unisono.core.membership import DetectorSettings
from unisono.core.outbox import VoteWatermark
from unisono.core.types import MemberId
from unisono.environment import Port
from unisono.runtime.checksum import Checksum
from unisono.runtime.forks import disown_in_children
from unisono.runtime.observers import Observers
from unisono.runtime.seal import Seal
from unisono.runtime.udp import LARGE_BYTES

if TYPE_CHECKING:
    from unisono.runtime.clients import Desk
    from unisono.runtime.named_peers import NamedPeers

Clock = Callable[[], int]

CALM_NS = 3 * MILLISECOND
"""After this long without a turn, a message does not wait for others to share a turn with; under load it should."""
NEVER = 1 << 63
give_way: Callable[[], object] = getattr(os, "sched_yield", lambda: None)
"""Let other processes run first on this core, if there are any."""


class Keeper(Protocol):
    """Stores the records that must outlive the process."""

    def keep(self, records: Sequence[bytes]) -> None: ...

    def keep_votes(self, watermark: VoteWatermark) -> None: ...


class Driver:
    """See the module's text."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        port: Port,
        group: str,
        member: Member,
        show: Callable[[list[Happening], int], None],
        *,
        seal: Seal | Checksum | None = None,
        observers: Observers | None = None,
        keeper: Keeper | None = None,
        fail: Callable[[Exception], None],
        clock: Clock = monotonic_ns,
        pause_ns: int = DetectorSettings().pause_ns,
    ) -> None:
        self._loop = loop
        self._port = port
        self.group = group
        self.member = member
        self._show = show
        self.turned: Callable[[], None] = lambda: None
        """Called when a turn is finished, to find out how much may be cast until the next one."""
        self.seal = seal or Checksum(group)
        self.observers = observers or Observers()
        self._keeper = keeper
        self._fail = fail
        self.clock = clock
        self._pause_ns = max(CALM_NS, pause_ns)
        self._is_due = False  # a turn, at the end of this pass of the loop
        self._is_turn_open = False  # the last turn has left something to do
        self._turned_at = clock()
        self.calm_at = self._turned_at + CALM_NS
        """From when on a cast may take a turn at once: after a while without any. Never while a turn is under way."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0  # by the member's clock
        self._deadline: int | None = None  # of the member, as the last turn left it
        self.is_stopped = False
        self._frozen: list[bytes] | None = None  # datagrams that arrived while the process stood still
        self.turns = 0
        self.casting: list[bytes] = []
        """Messages without options that the member has room for; they are cast with the next turn."""
        self.watched: Callable[[], None] | None = None
        """Called after every turn while a task waits for something that a turn may bring."""
        self._deadline_above: Callable[[], int | None] | None = None  # of state transfer
        self.peers: NamedPeers | None = None
        """What is known of the peers that this member was told to look for."""
        self.desk: Desk | None = None
        """Serves clients outside of the group."""
        port.open(group, self.receive)
        disown_in_children(self)

    def disown(self) -> None:
        """In a forked child: take no turns, and leave the port alone, which the parent listens at."""
        self.is_stopped = True

    def also_wake_at(self, deadline: Callable[[], int | None]) -> None:
        """State transfer, above the member, has deadlines too, and is shown turns that bring no events as well."""
        self._deadline_above = deadline

    def counters(self) -> dict[str, int]:
        """What the port has counted."""
        return self._port.counters()

    # Inputs.

    def wake(self) -> None:
        """Take a turn soon."""
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._due)

    def receive(self, datagrams: list[memoryview]) -> None:
        """Take datagrams from the network, and a turn unless all of them are refused: a flood must not cost turns."""
        if self.is_stopped:
            return
        if self._frozen is not None:
            self.calm_at = NEVER
            self._frozen += map(bytes, datagrams)
            return
        seal, peers = self.seal, self.peers
        open_one = seal.open
        is_watching = peers is not None and peers.is_watching
        taken: list[bytes | memoryview] = []
        senders: list[MemberId | None] = []  # of `taken`, as far as the seal proves it
        for one in datagrams:
            if is_watching and peers.takes(one):  # type: ignore[union-attr]
                continue
            frame = open_one(one)
            if frame is not None:
                taken.append(frame)
                senders.append(seal.sender)
                if is_watching:
                    peers.opened(frame, one)  # type: ignore[union-attr]
            elif peers is not None:
                peers.refused(one, seal.reason)
        if not taken:
            return
        self.calm_at = NEVER
        if self._is_turn_open:
            self._finish_turn()
        if self.casting:
            self.hand_in()
        try:
            if self.desk is not None:
                taken, senders = self.desk.receive(taken, senders)
            self.member.receive(taken, self.clock(), senders)
        except Exception as error:  # nothing that a peer sends may end the process without a word
            self._break(error)
            return
        self.turn()

    def watch_peers(self, peers: NamedPeers) -> None:
        """Show this object refused datagrams, and all datagrams while a named peer is missing."""
        self.peers = peers
        if isinstance(self.seal, Checksum):
            self.seal.foreign = lambda datagram: peers.refused(memoryview(datagram), "")

    def hand_in(self) -> None:
        """Cast what waits in `casting`.

        This precedes every other input of the member, which could take the room that was found after the last turn.
        """
        casting, self.casting = self.casting, []
        self.member.cast_many(casting)

    def _due(self) -> None:
        if self._is_due:
            self.turn()

    # A turn.

    def turn(self) -> None:
        """Drain the member and perform its effects."""
        self._is_due = False
        if self.is_stopped or self._frozen is not None:
            return
        if self._is_turn_open:
            self._finish_turn()
        self.turns += 1
        self.calm_at = NEVER
        if self.casting:
            casting, self.casting = self.casting, []
            self.member.cast_many(casting)
        now = self.clock()
        is_alone = now - self._turned_at >= CALM_NS
        if is_alone and now - self._turned_at > self._pause_ns:
            self.seal.resalt()  # while it stood still, the process may have been copied
        self._turned_at = now
        try:
            effects = self.member.act(now)
            if effects.records and self._keeper is not None:
                self._keeper.keep(effects.records)
            if effects.vote_watermark is not None and self._keeper is not None:
                self._keeper.keep_votes(effects.vote_watermark)
        except Exception as error:
            self._break(error)
            return
        if effects.notes:
            for note in self.observers.noted:
                note(now, effects.notes)
        if self.desk is not None:
            effects.datagrams += self.desk.drain()
        if effects.datagrams:
            close, pieces = self.seal.close, self.seal.pieces
            closed: list[tuple[tuple[str, ...], bytes | tuple[bytes, ...]]] = []
            for to, frame in effects.datagrams:
                closed.append((to, close(frame) if len(frame) < LARGE_BYTES else pieces(frame)))
            self._port.send(closed)
        self._is_turn_open = True
        events = effects.events
        if events or self._deadline_above is not None:
            self._show(events, now)
        for look in self.observers.turn:
            look(events, now)
        self.calm_at = now + CALM_NS
        if events:  # the application comes first
            self._loop.call_soon(self._finish_turn)
        elif is_alone and effects.datagrams:
            self._loop.call_soon(self._finish_turn_last)
        else:
            self._finish_turn()

    def _finish_turn_last(self) -> None:
        """Finish the turn after the processes that the datagrams woke; with few cores, they may need this one."""
        if self._is_turn_open:
            give_way()
            self._finish_turn()

    def _finish_turn(self) -> None:
        """Do what a turn leaves to do once its effects are performed, before the next input reaches the member."""
        if not self._is_turn_open or self.is_stopped:
            return
        self._is_turn_open = False
        try:
            deadline = self.member.finish_turn()
        except Exception as error:
            self._break(error)
            return
        self.turned()
        if self.watched is not None:
            self.watched()
        if self._deadline_above is not None:
            above = self._deadline_above()
            if above is not None and (deadline is None or above < deadline):
                deadline = above
        self._deadline = deadline
        if deadline is not None and (self._timer is None or deadline < self._timer_at):
            if self._timer is not None:
                self._timer.cancel()
            self._set_timer(deadline, self.clock())  # or else the timer rings early, looks, and is set anew

    def _break(self, error: Exception) -> None:
        """End the member. An error that was not raised on purpose comes from what a peer sent, or from a defect of ours."""
        if not isinstance(error, UnisonoError):
            is_open = isinstance(self.seal, Checksum)
            cure = "give the group a key, so that only members are heard" if is_open else "please report it"
            what = f"{self.member.id} met what no correct member sends ({error or type(error).__name__}) and has stopped: {cure}."
            fault = PeerFault(what)
            fault.__cause__ = error
            error = fault
        self._fail(error)

    def _set_timer(self, deadline: int, now: int) -> None:
        """Set the timer, never early: loops count whole milliseconds, and a timer that rings too soon rings many times."""
        self._timer_at = deadline
        self._timer = self._loop.call_later((max(0, deadline - now) // MILLISECOND + 1) / 1e3, self._ring)

    def _ring(self) -> None:
        self._timer = None
        now = self.clock()
        if self._deadline is None or self._deadline <= now:
            self.turn()
        else:
            self._set_timer(self._deadline, now)

    def freeze(self) -> None:
        """Stand still, as a stopped process does, until `thaw`; for simulations."""
        self._frozen = self._frozen or []

    def thaw(self) -> None:
        """Go on, first of all with the datagrams that arrived meanwhile."""
        frozen, self._frozen = self._frozen, None
        if frozen is not None and not self.is_stopped:
            self._timer = None
            self.receive([memoryview(datagram) for datagram in frozen])

    def stop(self) -> None:
        """Take no more turns, and give the port back."""
        if not self.is_stopped:
            self.is_stopped = True
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            self._port.close(self.group)
