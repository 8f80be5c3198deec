"""What a member writes to the log: the logger is called "unisono", and configured by the application or by `configure`.

Views, refusals, stalls and the end are written as they happen. What is dropped (damaged, replayed, foreign datagrams) is counted
anyway; once a second the log says what was added, so that a flood of bad datagrams is one line a second and not a second flood.
What every view change drops is no warning, unless it goes on without one. Where the sender is known, the line names it and the
cure, and is repeated ever more rarely. So is the warning about a named peer that does not answer (`named_peers`).
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TextIO

from unisono.core.config import SECOND
from unisono.core.member import Diverged, Entered, Happening, Replaced, Resumed, Stalled
from unisono.core.membership import Evicted, Left, Refused
from unisono.core.text import shorten
from unisono.runtime.named_peers import Trouble
from unisono.trace.sanitize import cut, json_text, sanitize

if TYPE_CHECKING:
    from unisono.runtime.journal import Undecided
    from unisono.runtime.running import RunningMember

LOGGER = logging.getLogger("unisono")
DROPS_EVERY_S = 1.0
ORDINARY = frozenset({"other view", "early datagrams", "membership: stale incarnation", "unproven", "unasked"})
"""What is dropped while members go from one view to the next, and comes again if it is needed."""
PULSES = 4
"""How often a member looks whether its event loop runs, in the time that the others wait for it."""
NAMED = frozenset({"membership: settings", "membership: full", "membership: refusal"})
"""What is dropped of a member that is not taken in, and is told with its name, or was told to this one in a `Refused`."""
PEERS_AGAIN_S = 10.0
"""A warning about a peer that does not answer is repeated after this, then after twice as long, and so on …"""
PEERS_AGAIN_S_MAX = 3_600.0
"""… but no later than this."""
TURNED_AWAY_MAX = 64
LASTING_LOOKS = 30
"""Datagrams of other views that keep coming for this many looks in a row, without a view change, are worth a warning."""


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, message, and what was given in `extra` under `fields`."""

    def format(self, record: logging.LogRecord) -> str:
        row: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="microseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        row |= getattr(record, "fields", {})
        if record.exc_info:
            row["error"] = self.formatException(record.exc_info)
        return json_text(row, default=str)


def configure(level: int | str = logging.INFO, as_json: bool = False, stream: TextIO | None = None) -> logging.Handler:
    """Send the log of unisono to a stream (standard error unless told), as text or as JSON lines."""
    handler = logging.StreamHandler(stream or sys.stderr)
    text = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    handler.setFormatter(JsonFormatter() if as_json else text)
    LOGGER.addHandler(handler)
    LOGGER.setLevel(level)
    return handler


class _Said:
    """When something was last told, and when it may be told again."""

    __slots__ = ("again_s", "at")

    def __init__(self, now: int) -> None:
        self.at, self.again_s = now, PEERS_AGAIN_S

    def is_due(self, now: int) -> bool:
        if now - self.at < self.again_s * SECOND:
            return False
        self.at, self.again_s = now, min(2 * self.again_s, PEERS_AGAIN_S_MAX)
        return True


class Reporter:
    """Writes the log of one member."""

    def __init__(self, member: RunningMember, logger: logging.Logger = LOGGER) -> None:
        self._member = member
        self._logger = logger
        self._fields = {"group": member.name, "member": str(member.id)}
        self._dropped = member.count_drops()
        self._strays = 0  # looks in a row that found datagrams of other views, since the last view
        self._has_view = False
        self._said: dict[str, dict[Trouble, _Said]] = {}  # by peer, while it does not answer
        self._turned_away: dict[str, str] = {}  # members that were told of, and why they are not taken in

    def tell(self, events: list[Happening], now: int) -> None:
        """After a turn, write what is worth a line."""
        for event in events:
            if isinstance(event, Entered):
                self._tell_view(event)
                if not self._has_view:
                    self._has_view = True
                    self.tell_peers()
            elif isinstance(event, Refused):
                self._log(
                    logging.WARNING, f"{event.by} refuses this member: {_foreign(event.reason)}", by=str(event.by)
                )
            elif isinstance(event, Evicted):
                self._log(
                    logging.WARNING,
                    f"{event.by} evicted this member, because of which it could not cast for "
                    f"{event.lasted_ns / 1e9:.3f} s; read its events faster",
                )
            elif isinstance(event, Stalled):
                self._log(logging.WARNING, f"still waiting: {_foreign(' '.join(event.sentences))}")
            elif isinstance(event, Resumed):
                self._log(logging.INFO, f"nothing waits any longer, after {event.lasted_ns / 1e9:.3f} s")
            elif isinstance(event, Diverged):
                self._tell_diverged(event)
            elif isinstance(event, Left):
                self._log(logging.INFO, "this member has left")

    def _tell_diverged(self, event: Diverged) -> None:
        """Their states may differ from here on: no other line is as urgent."""
        self._log(
            logging.ERROR,
            f"{event}; keep the traces and journals of all, and restart the members whose state cannot be trusted",
            view=str(event.view),
            parts=[[str(member) for member in part] for part in event.parts],
            origin=None if event.origin is None else str(event.origin),
            alike=event.alike,
            differs_by=event.differs_by,
        )

    def tell_blocked(self, blocked_ns: int, patience_ns: int) -> None:
        """The event loop did not run for longer than the others wait for a silent member, which only this one can say."""
        self._log(
            logging.WARNING,
            f"the event loop was blocked for {blocked_ns / 1e9:.1f} s, longer than the others wait ({patience_ns / 1e9:g} s), so "
            "they may have excluded this member: find what blocks it (PYTHONASYNCIODEBUG=1 makes asyncio name slow "
            "callbacks), unless the process was stopped",
            blocked_s=round(blocked_ns / 1e9, 3),
        )

    def tell_replaced(self, event: Replaced) -> None:
        """What only this part of the group had is gone: a person may want to know before anything else does."""
        lost, kept = (_listed([str(one) for one in some]) for some in (event.lost_members, event.kept_members))
        text = f"the state that {lost} had since view {event.lost} is thrown away here; that of {kept} is taken over"
        self._log(logging.WARNING, text, lost=str(event.lost), kept=str(event.kept))

    def _tell_view(self, event: Entered) -> None:
        self._strays = 0
        left = {str(member): _foreign(str(why)) for member, why in event.left.items() if member not in event.joined}
        joined = [str(member) for member in event.joined if member not in event.left]
        text = f"view {event.view.id} with {len(event.view)} members"
        if joined:
            text += f", joined: {', '.join(joined)}"
        if left:
            text += f", gone: {', '.join(f'{member} ({why})' for member, why in left.items())}"
        members = [str(member) for member in event.view.members]
        self._log(logging.INFO, text, view=str(event.view.id), members=members, gone=left, order=event.charter.order)
        diverged: dict[str, list[str]] = {}
        for member, arrival in event.joined.items():
            if member in event.left:  # it was here all along
                diverged.setdefault(str(arrival), []).append(str(member))
        for what, members in diverged.items():
            self._log(logging.WARNING, f"{_listed(members)} {what}", view=str(event.view.id), diverged=members)

    def tell_undecided(self, votes: Undecided) -> None:
        """At the start: an earlier life left votes behind whose outcome this one does not know."""
        text = (
            f"an earlier life voted for {votes} and did not learn the decision; the members that lived on know it: join them, and "
            "their state or deliveries bring it; if all failed, compare the journals of all"
        )
        self._log(logging.WARNING, text, undecided={"view": str(votes.view), "first": votes.first, "last": votes.last})

    def tell_drops(self) -> None:
        """What was dropped since the last time: one line, with a count for each reason."""
        drops = self._member.count_drops()
        added = {reason: count - self._dropped.get(reason, 0) for reason, count in drops.items()}
        added = {reason: count for reason, count in added.items() if count > 0}
        self._strays = self._strays + 1 if "other view" in added else 0
        self._dropped = drops
        self._tell_named_drops(added)
        ordinary = {reason: count for reason, count in added.items() if reason in ORDINARY}
        strange = {reason: count for reason, count in added.items() if reason not in ORDINARY}
        if ordinary:
            self._log(logging.DEBUG, _count(ordinary), drops=ordinary)
        if strange:
            self._log(logging.WARNING, _count(strange), drops=strange)
        if self._strays and self._strays % LASTING_LOOKS == 0:
            self._log(
                logging.WARNING,
                f"datagrams of other views have come for {self._strays * DROPS_EVERY_S:g} s and the view does not change: a "
                "member counts this one in a view that it is not in; check that datagrams pass between them in both directions",
            )

    def _tell_named_drops(self, added: dict[str, int]) -> None:
        """What was dropped of senders that can be named; the rest stays in `added`."""
        peers = self._member.peers
        for reason, count in peers.take_attributed().items():
            if added.get(reason, 0) <= count:
                added.pop(reason, None)
            else:
                added[reason] -= count
        for sentence in peers.take_strangers():
            self._log(logging.WARNING, sentence)
        if not NAMED.intersection(added):
            return
        for reason in NAMED:
            added.pop(reason, None)
        for address, reason in self._member.member.state.turned_away.items():
            if self._turned_away.get(address) != reason:
                self._turned_away[address] = reason
                self._log(logging.WARNING, f"{_foreign(address)} is not taken in: {_foreign(reason)}", peer=address)
        while len(self._turned_away) > TURNED_AWAY_MAX:
            del self._turned_away[next(iter(self._turned_away))]

    def tell_peers(self) -> None:
        """Which named peers do not answer, and why: at once, then ever more rarely. Which of them have answered.

        That a peer is silent that was a member before is no warning: the view that it left was a line.
        """
        peers, now = self._member.peers, self._member.now
        reports = [one for one in peers.missed() if one.trouble is not Trouble.SILENT or not one.was_met]
        due = [report for report in reports if self._is_due(report.peer, report.trouble, now)]
        remarks = peers.remarks()
        told = [report.sentence for report in due]
        told += [remark for remark in remarks if self._is_due(remark, Trouble.UNRESOLVED, now)]
        if told:
            missing = {report.peer: report.trouble.value for report in due}
            self._log(logging.WARNING, " ".join(told), missing=missing)
        missed = {report.peer for report in reports}.union(remarks)
        for peer in [peer for peer in self._said if peer not in missed]:
            del self._said[peer]
            if peers.has_answered(peer):
                self._log(logging.INFO, f"{peer} has answered", peer=peer)

    def _is_due(self, what: str, trouble: Trouble, now: int) -> bool:
        said = self._said.setdefault(what, {})
        if trouble in said:
            return said[trouble].is_due(now)
        said[trouble] = _Said(now)
        return True

    def look(self) -> None:
        """Once a second."""
        self.tell_drops()
        self.tell_peers()

    def _log(self, level: int, text: str, **fields: Any) -> None:
        self._logger.log(
            level,
            "%s of %s: %s",
            self._member.id.short,
            sanitize(self._member.name),
            sanitize(shorten(text)),
            extra={"fields": self._fields | fields},
        )


def _listed(names: Sequence[str]) -> str:
    """x, y and z."""
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _count(drops: dict[str, int]) -> str:
    reasons = ", ".join(f"{reason} {count}" for reason, count in drops.items())
    return f"{sum(drops.values())} dropped: {reasons}"


def _foreign(text: str) -> str:
    """What a peer said, in a log that may be read on a terminal."""
    return sanitize(cut(text))


def attach(member: RunningMember, loop: asyncio.AbstractEventLoop, logger: logging.Logger = LOGGER) -> Reporter | None:
    """Let a member write the log, unless no handler would show it."""
    if not is_heard(logger, logging.ERROR):
        return None
    reporter = Reporter(member, logger)
    if member.journal is not None and member.journal.undecided is not None:
        reporter.tell_undecided(member.journal.undecided)
    if member.entered is not None:  # alone at once
        reporter.tell([member.entered], 0)
    else:
        reporter.tell_peers()  # names that are not known
    member.observers.turn.append(reporter.tell)
    member.observers.replaced.append(reporter.tell_replaced)
    timer = _Every(loop, DROPS_EVERY_S, reporter.look)
    pulse = _Pulse(member, loop, reporter.tell_blocked)

    def end() -> None:
        timer.stop()
        pulse.stop()
        reporter.tell_drops()

    member.call_at_end(end)
    return reporter


def tell_failed_leave(member: RunningMember, failure: Exception) -> None:
    """Log that leaving failed while an earlier error, or a cancellation, was on its way, which is raised instead."""
    LOGGER.warning("%s of %s: %s", member.id.short, sanitize(member.name), sanitize(shorten(str(failure))))


def is_heard(logger: logging.Logger = LOGGER, level: int = logging.WARNING) -> bool:
    """Whether a line of this level would reach a person: by a handler, or by Python's last resort, standard error."""
    if not logger.isEnabledFor(level):
        return False
    if not logger.hasHandlers():
        return logging.lastResort is not None
    at: logging.Logger | None = logger
    while at is not None:
        if any(not isinstance(handler, logging.NullHandler) for handler in at.handlers):
            return True
        at = at.parent if at.propagate else None
    return False


class _Every:
    """Calls a function again and again."""

    def __init__(self, loop: asyncio.AbstractEventLoop, seconds: float, function: Callable[[], None]) -> None:
        self._loop, self._seconds, self._function = loop, seconds, function
        self._timer = loop.call_later(seconds, self._ring)

    def _ring(self) -> None:
        self._function()
        self._timer = self._loop.call_later(self._seconds, self._ring)

    def stop(self) -> None:
        self._timer.cancel()


class _Pulse:
    """Notices that the event loop has not run for longer than the others wait for a silent member."""

    def __init__(
        self, member: RunningMember, loop: asyncio.AbstractEventLoop, tell: Callable[[int, int], None]
    ) -> None:
        self._member, self._tell = member, tell
        self._patience_ns = member.member.settings.detector.suspicion_ns_min
        self._ran_at = member.now
        self._timer = _Every(loop, self._patience_ns / PULSES / 1e9, self._beat)

    def _beat(self) -> None:
        now, entered = self._member.now, self._member.entered
        blocked_ns, self._ran_at = now - self._ran_at, now
        if blocked_ns > self._patience_ns and entered is not None and len(entered.view) > 1:
            self._tell(blocked_ns, self._patience_ns)

    def stop(self) -> None:
        self._timer.stop()
