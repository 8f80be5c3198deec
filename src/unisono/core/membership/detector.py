"""Whom one member believes crashed, from nothing but its own clock and what it hears.

A peer is suspected when it has been silent for longer than its silences usually are: their mean plus some deviations, within
bounds. Only silences are measured (gaps of a quarter heartbeat and more), or a burst of datagrams would teach that a
millisecond is long. A suspicion is an opinion and can be refuted: hearing from the peer withdraws it, and the next one
takes twice as long, up to the bound.

This leniency is taken back, one doubling at a time, or a peer that once stumbled would for ever be given ten seconds to be
found dead. A doubling goes when for eight of its timeouts all silences were shorter than the timeout would be without it: in all
that time the stricter rule would have been right. So a peer whose long silences return within that time keeps what it needs, and
one whose silences return more rarely is wrongly suspected once in eight timeouts at the most.

Clocks of two members are never compared, so an offset does not matter, and a drift of 10 % is far inside the three heartbeats
that the lower bound leaves. If the own process was stopped for a while (SIGSTOP, a sleeping laptop), everyone *seems* to have
been silent: a leap of `now` between two calls forgives all peers for one timeout.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from unisono.core.config import MILLISECOND, SECOND, check_ranges, duration, ranged
from unisono.core.errors import ConfigError
from unisono.core.types import MemberId

_DOUBLINGS_MAX = 16
_PROBATION = 8  # number of timeouts that a doubling outlives the silence that called for it


@dataclass(frozen=True, slots=True)
class DetectorSettings:
    """How fast a crash is noticed, and how much silence is forgiven."""

    heartbeat_ns: int = duration(300 * MILLISECOND)
    """A member that has sent nothing to all for this long sends a heartbeat."""
    suspicion_ns_min: int = duration(1_500 * MILLISECOND)
    """No member is suspected earlier; three heartbeats at least, so that one may be lost and clocks may drift."""
    suspicion_ns_max: int = duration(10 * SECOND)
    """A member that is silent for this long is suspected, however unsteady the network."""
    deviations: int = ranged(6, 1, 100)
    """A silence this number of mean deviations above the mean is too long."""
    pause_ns: int = duration(700 * MILLISECOND)
    """If no method was called for this long, this process was stopped."""

    def __post_init__(self) -> None:
        check_ranges(self)
        if self.suspicion_ns_min < 3 * self.heartbeat_ns:
            raise ConfigError(
                f"suspicion_ns_min = {self.suspicion_ns_min} is less than three heartbeats: "
                f"choose {3 * self.heartbeat_ns} at least, or a shorter heartbeat_ns."
            )
        if self.suspicion_ns_max < self.suspicion_ns_min:
            raise ConfigError(
                f"suspicion_ns_max = {self.suspicion_ns_max} is below suspicion_ns_min = {self.suspicion_ns_min}: "
                "raise it."
            )
        if not 2 * self.heartbeat_ns <= self.pause_ns < self.suspicion_ns_min:
            raise ConfigError(
                f"pause_ns = {self.pause_ns} is out of range: choose {2 * self.heartbeat_ns} (two heartbeats) "
                f"to {self.suspicion_ns_min - 1}."
            )


class Change(NamedTuple):
    """A peer is suspected from now on, or no longer."""

    peer: MemberId
    suspected: bool


@dataclass(slots=True)
class _Peer:
    """What is known of one peer. Times are of the own clock."""

    heard_at: int
    proven_at: int  # since when it proves that it needs fewer doublings …
    longest: int = 0  # … and its longest silence since then
    mean: int = 0
    deviation: int = 0
    doublings: int = 0  # suspicions that were refuted, and not forgotten
    suspected: bool = False


class Detector:
    """The failure detector of one member."""

    def __init__(self, settings: DetectorSettings, now: int) -> None:
        self._settings = settings
        self._peers: dict[MemberId, _Peer] = {}
        self._changes: list[Change] = []  # refutations that `tick` has not yet told
        self._called_at = now
        self._sent_at = now
        self.pauses = 0
        """How often this process was found to have been stopped."""

    def watch(self, peers: Iterable[MemberId], now: int) -> None:
        """Watch these alone, as after a new view. A peer that was watched before keeps its history; a suspicion ends."""
        self._notice(now)
        old, self._peers = self._peers, {}
        for peer in peers:
            known = old.get(peer) or _Peer(now, now)
            if known.suspected:
                known.suspected, known.heard_at = False, now
            self._peers[peer] = known
        self._changes = []

    def heard(self, peer: MemberId, now: int) -> None:
        """Something authentic came from a peer."""
        self._notice(now)
        known = self._peers.get(peer)
        if known is None:
            return
        gap = now - known.heard_at
        known.heard_at = now
        if 4 * gap >= self._settings.heartbeat_ns:
            self._sample(known, gap)
            known.longest = max(known.longest, gap)
        if known.suspected:
            known.suspected = False
            known.doublings = min(known.doublings + 1, _DOUBLINGS_MAX)
            known.proven_at, known.longest = now, 0
            self._changes.append(Change(peer, False))

    def sent(self, now: int) -> None:
        """Something went out to all members: no heartbeat is needed for a while."""
        self._notice(now)
        self._sent_at = now

    def tick(self, now: int) -> list[Change]:
        """Time has passed. Returns what has changed since the last tick, in the order in which it did."""
        self._notice(now)
        changes, self._changes = self._changes, []
        for peer, known in self._peers.items():
            if not known.suspected and now - known.heard_at >= self._timeout(known):
                known.suspected = True
                changes.append(Change(peer, True))
            elif known.doublings and now - known.proven_at >= _PROBATION * self._timeout(known):
                self._relent(known, now)
        return changes

    def silence(self, peer: MemberId, now: int) -> int:
        """For how long nothing has come from a watched peer."""
        return now - self._peers[peer].heard_at

    def wants_heartbeat(self, now: int) -> bool:
        """Whether the others have heard nothing from here for a heartbeat's time."""
        return bool(self._peers) and now - self._sent_at >= self._settings.heartbeat_ns

    @property
    def suspects(self) -> tuple[MemberId, ...]:
        return tuple(peer for peer, known in self._peers.items() if known.suspected)

    @property
    def deadline(self) -> int | None:
        """Call `tick` by then, and look whether a heartbeat is wanted."""
        if not self._peers:
            return None
        due = self._called_at if self._changes else self._sent_at + self._settings.heartbeat_ns
        # Even right after sending, be called once a heartbeat: a later call is taken for a pause.
        due = min(due, self._called_at + self._settings.heartbeat_ns)
        for known in self._peers.values():
            if not known.suspected:
                due = min(due, known.heard_at + self._timeout(known))
        return due

    def timeout(self, peer: MemberId) -> int:
        """How long a watched peer may be silent."""
        return self._timeout(self._peers[peer])

    def _timeout(self, known: _Peer) -> int:
        settings = self._settings
        usual = known.mean + settings.deviations * known.deviation
        return min(max(usual, settings.suspicion_ns_min) << known.doublings, settings.suspicion_ns_max)

    def _relent(self, known: _Peer, now: int) -> None:
        """A probation is over: forget one doubling, if the peer would have passed without it."""
        known.doublings -= 1
        if known.longest >= self._timeout(known):
            known.doublings += 1
        known.proven_at, known.longest = now, 0

    @staticmethod
    def _sample(known: _Peer, gap: int) -> None:
        if not known.mean:
            known.mean, known.deviation = gap, gap // 2
            return
        error = gap - known.mean
        known.mean += error >> 3
        known.deviation += (abs(error) - known.deviation) >> 2

    def _notice(self, now: int) -> None:
        """Look for a leap: it means that this process was stopped, and says nothing about the others.

        The silence before it still counts, or a process that is stopped now and then would wait for ever; but everyone is
        given the time for a heartbeat, and those that came meanwhile are about to be read.
        """
        leap = now - self._called_at
        if leap > self._settings.pause_ns:
            self.pauses += 1
            for known in self._peers.values():
                grace = now - self._timeout(known) + self._settings.heartbeat_ns
                known.heard_at = min(now, max(known.heard_at + leap, grace))
        self._called_at = max(self._called_at, now)
