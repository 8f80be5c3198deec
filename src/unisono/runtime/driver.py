"""Drives one member on an event loop: datagrams and time go in, effects are performed strictly in their order.

Everything that was cast or received since the last turn is one turn's input. Whoever casts calls `wake`, which makes one turn due
at the end of this pass of the loop, however often it is called; what the socket brings is a turn at once, and so is what is cast
after a quiet moment (`is_calm`).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from time import monotonic_ns
from typing import TYPE_CHECKING, Protocol

from unisono.core.config import MILLISECOND
from unisono.core.errors import PeerFault, UnisonoError
from unisono.core.events import Happening
from unisono.core.member.member import Member
from unisono.core.membership.detector import DetectorSettings
from unisono.core.outbox import Pledge
from unisono.core.types import MemberId
from unisono.runtime.checksum import Checksum
from unisono.runtime.forks import disown_in_children
from unisono.runtime.hub import Port
from unisono.runtime.seal import Seal
from unisono.runtime.udp import LARGE_BYTES
from unisono.trace.recorder import Recorder

if TYPE_CHECKING:
    from unisono.runtime.clients import Desk
    from unisono.runtime.named_peers import NamedPeers

Clock = Callable[[], int]

CALM_NS = 3 * MILLISECOND
"""After so long without a turn, a message does not wait for others to share one with. Under load, cast in bunches, it should."""
give_way: Callable[[], object] = getattr(os, "sched_yield", lambda: None)
"""Let others run first on this core, if there are any."""


class Keeper(Protocol):
    """Where records go that must outlive the process."""

    def keep(self, records: Sequence[bytes]) -> None: ...

    def pledge(self, pledge: Pledge) -> None: ...


class Driver:
    """See the module's text."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        port: Port,
        group: str,
        member: Member,
        show: Callable[[list[Happening], int], None],
        turned: Callable[[], None],
        *,
        seal: Seal | Checksum | None = None,
        recorder: Recorder | None = None,
        keeper: Keeper | None = None,
        fail: Callable[[Exception], None],
        clock: Clock = monotonic_ns,
        pause_ns: int = DetectorSettings().pause_ns,
    ) -> None:
        self._loop = loop
        self._port = port
        self._group = group
        self.member = member
        self._show = show
        self._turned = turned
        self.seal = seal or Checksum(group)
        self.recorder = recorder
        self._keeper = keeper
        self._fail = fail
        self.clock = clock
        self._pause_ns = max(CALM_NS, pause_ns)
        self._is_due = False  # a turn, at the end of this pass of the loop
        self._is_unsettled = False  # the last turn has left something to do
        self._is_busy = False  # with a turn
        self._turned_at = clock()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0  # by the member's clock
        self._deadline: int | None = None  # of the member, as the last turn left it
        self.is_stopped = False
        self._frozen: list[bytes] | None = None  # what arrived while the process stood still
        self.turns = 0
        self.casting: list[bytes] = []
        """Messages without options that the member has room for; they are cast with the next turn."""
        self._members_needs: Callable[[], int | None] = lambda: None
        self.peers: NamedPeers | None = None
        """What is known of the peers that this member was told to look for."""
        self.desk: Desk | None = None
        """For clients outside of the group."""
        port.open(group, self.receive)
        disown_in_children(self)

    def disown(self) -> None:
        """In a forked child: take no turns, and leave the port alone, which the parent listens at."""
        self.is_stopped = True

    def also_wake_at(self, deadline: Callable[[], int | None]) -> None:
        """Something above the member has deadlines too."""
        self._members_needs = deadline

    # Inputs.

    def wake(self) -> None:
        """Take a turn soon."""
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._due)

    def receive(self, datagrams: list[memoryview]) -> None:
        """Take datagrams from the network, and a turn; none for what is refused, or a flood would cost turns."""
        if self.is_stopped:
            return
        if self._frozen is not None:
            self._is_busy = True
            self._frozen += map(bytes, datagrams)
            return
        seal, peers = self.seal, self.peers
        open_one = seal.open
        is_watching = peers is not None and peers.is_watching
        taken: list[bytes | memoryview] = []
        senders: list[MemberId | None] = []  # beside them: a rank in a view says less than a seal
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
        self._is_busy = True
        if self._is_unsettled:
            self._settle()
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
        """Let this object look at what is refused, and at everything while a named peer is missing."""
        self.peers = peers
        if isinstance(self.seal, Checksum):
            self.seal.foreign = lambda datagram: peers.refused(memoryview(datagram), "")

    def hand_in(self) -> None:
        """Before anything else reaches the member: only so is the room still there that was found after the last turn."""
        casting, self.casting = self.casting, []
        self.member.cast_many(casting)

    def _due(self) -> None:
        if self._is_due:
            self.turn()

    def is_calm(self) -> bool:
        """Whether a turn may be taken at once by somebody who casts: none is under way, and there was none for a while."""
        return not self._is_busy and self.clock() - self._turned_at >= CALM_NS

    # A turn.

    def turn(self) -> None:
        """Drain the member and perform its effects."""
        self._is_due = False
        if self.is_stopped or self._frozen is not None:
            return
        if self._is_unsettled:
            self._settle()
        self.turns += 1
        self._is_busy = True
        if self.casting:
            self.hand_in()
        now = self.clock()
        is_alone = now - self._turned_at >= CALM_NS
        if is_alone and now - self._turned_at > self._pause_ns:
            self.seal.resalt()  # while it stood still, the process may have been copied
        self._turned_at = now
        try:
            effects = self.member.act(now)
            if effects.records and self._keeper is not None:
                self._keeper.keep(effects.records)
            if effects.pledge is not None and self._keeper is not None:
                self._keeper.pledge(effects.pledge)
        except Exception as error:
            self._break(error)
            return
        if self.recorder is not None and effects.notes:
            self.recorder.turn(now, effects.notes)
        if self.desk is not None:
            effects.datagrams += self.desk.drain()
        if effects.datagrams:
            close, pieces = self.seal.close, self.seal.pieces
            self._port.send(
                [(to, close(frame) if len(frame) < LARGE_BYTES else pieces(frame)) for to, frame in effects.datagrams]
            )
        self._is_unsettled = True
        self._show(effects.events, now)
        self._is_busy = False
        if effects.events:  # the application comes first
            self._loop.call_soon(self._settle)
        elif is_alone and effects.datagrams:
            self._loop.call_soon(self._settle_last)
        else:
            self._settle()

    def _settle_last(self) -> None:
        """After whoever the datagrams have woken: with more members than cores it may be waiting for this one."""
        if self._is_unsettled:
            give_way()
            self._settle()

    def _settle(self) -> None:
        """What a turn leaves to do once its effects are performed; at the latest before anything else reaches the member."""
        if not self._is_unsettled or self.is_stopped:
            return
        self._is_unsettled = False
        try:
            deadline = self.member.settle()
        except Exception as error:
            self._break(error)
            return
        self._turned()
        self._arm(deadline, self.clock())

    def _break(self, error: Exception) -> None:
        """The member cannot go on. What was not raised on purpose comes of what somebody sent, or is a mistake of ours."""
        if not isinstance(error, UnisonoError):
            is_open = isinstance(self.seal, Checksum)
            cure = "give the group a key, so that only members are heard" if is_open else "please report it"
            what = f"{self.member.id} met what no correct member sends ({error or type(error).__name__}) and has stopped: {cure}."
            fault = PeerFault(what)
            fault.__cause__ = error
            error = fault
        self._fail(error)

    def _arm(self, deadline: int | None, now: int) -> None:
        above = self._members_needs()
        if above is not None and (deadline is None or above < deadline):
            deadline = above
        self._deadline = deadline
        if deadline is None:
            return
        if self._timer is not None:
            if self._timer_at <= deadline:
                return  # it rings early, looks, and is set anew
            self._timer.cancel()
        self._set_timer(deadline, now)

    def _set_timer(self, deadline: int, now: int) -> None:
        """Never early: loops count whole milliseconds, and one that rings too soon would ring again and again."""
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
        """Stand still, as a stopped process does; for simulations."""
        self._frozen = self._frozen or []

    def thaw(self) -> None:
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
            self._port.close(self._group)
