"""What waits at a member, for whom and since when; which peer is slow; and the watchdog that reports when nothing moves.

**Since when.** No message carries a time. The member *looks* every `look_ns`, and what waits is dated from the first look that
found it. So `since` is never too early, and late by at most the time between two looks: `look_ns`, or longer if no turn
was taken meanwhile. Asking what the ordering holds back can take long in a large holdback, so a look asks only if nothing was
delivered since the look before, and at every eighth too. So a message that waits while others pass it is dated late by up to
eight looks. Membership dates what it waits for exactly. A question dates nothing, so it cannot change what is reported.

**Watchdog.** Each thing that waits has a key that changes when it moves. If one keeps its key for `stall_ns`, `Stalled` reports all
that waits, again after twice as long, and so on; when none of those is left, `Resumed` reports that.

**Slow.** The streams name the peer that holds the window shut, at each look at which the window is shut or a cast was refused
since the look before. The window of a healthy group under full load is always full, so time alone is no evidence:
a peer is evicted if it acknowledged fewer than `evict_datagrams_min` datagrams in `evict_after_ns` while casts were refused
(datagrams, because a few large messages are much work, too). A caller that was refused waits until the window opens, so a refusal
counts for as long as the window is found shut. While the member's own rate limit holds data back, no peer is blamed.
A peer without room goes on acknowledging what the ordering casts by itself, above all in answer to its own messages. That is
no sign that its application reads: it is evicted as well if it had no room at any look and no message was accepted here meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from unisono.core.errors import Shed
from unisono.core.member.events import Resumed, Stalled
from unisono.core.member.explain import REACHES_KEPT, Reach, explain_key, waiting_gaps, waiting_messages
from unisono.core.member.settings import FlowSettings, Slow
from unisono.core.member.state import MemberState
from unisono.core.membership import Waiting
from unisono.core.streams import Slowness
from unisono.core.types import Key, MemberId, Rank

_FULL_LOOKS = 8  # every eighth look asks what the ordering holds back, even if deliveries go on


class Culprit(NamedTuple):
    """The peer that holds the window shut, why, and for how long."""

    member: MemberId
    why: Slowness
    lasted_ns: int

    @property
    def blame(self) -> str:
        return f"{self.member} holds the window shut, because it {_WHYS[self.why]}"

    def __str__(self) -> str:
        return f"{self.blame}, for {self.lasted_ns / 1e9:.3f} s"


_WHYS = {
    Slowness.ROOM: "has no room for more",
    Slowness.SILENT: "does not answer",
    Slowness.BEHIND: "has not received what was cast",
}


@dataclass(slots=True)
class Hold:
    """A window that one member holds shut."""

    rank: Rank
    since: int
    judged_at: int  # when `taken` and `accepted` were noted
    taken: int  # datagrams that it had acknowledged
    accepted: int  # messages that were cast here
    is_felt: bool = False  # a cast was refused since then, or before and the window has stayed shut
    had_room: bool = False  # a look since then found that something else holds the window shut, or nothing

    def judge(self, now: int, taken: int, accepted: int, is_shut: bool) -> None:
        """The member was judged: from here on, the next judgement counts."""
        self.judged_at, self.taken, self.accepted = now, taken, accepted
        self.is_felt = self.is_felt and is_shut
        self.had_room = False


class Watchdog:
    """The part of a member that watches it. It is never called for a message."""

    def __init__(
        self,
        member: MemberState,
        settings: FlowSettings,
        evict: Callable[[MemberId, int], None],
        now: int,
    ) -> None:
        """`evict` puts a member out that has been slow for this long, in nanoseconds."""
        self._member = member
        self._settings = settings
        self._evict = evict
        self._since: dict[tuple[object, ...], int] = {}
        self._looks = 0
        self._delivered = 0  # at the last look
        self._looked_at = now
        self._reaches: list[Reach] = []  # of the looks that found new deliveries
        self._hold: Hold | None = None
        self._stalled: dict[tuple[object, ...], None] = {}  # what the watchdog has reported
        self._stalled_at = 0
        self._speak_ns = self._settings.stall_ns or 0
        self.look_at = now
        self.is_needed = self._settings.stall_ns is not None or self._settings.slow is Slow.EVICT
        """Whether the driver must wake the member for a look; otherwise it looks when it is awake."""
        self._was_refused = False  # a cast, since the last look
        self.refused = 0
        """How many casts were refused."""

    # Questions.

    def waiting(self, now: int) -> Iterator[Waiting]:
        """All that waits here: membership first, then the window, then messages."""
        yield from self._standing(now)
        yield from waiting_messages(self._member)

    def _standing(self, now: int) -> list[Waiting]:
        member = self._member
        culprit = self.slowest(now)
        said = member.standing()
        if member.is_shut:
            whose = "its own rate limit holds them" if culprit is None else culprit.blame
            said.append(Waiting(("window", member.window_start), f"casts wait at {member.id}: {whose}"))
        return said + waiting_gaps(member)

    def explain(self, now: int, most: int | None = None) -> list[str]:
        """Why things wait, one sentence for each. With `most`, only the first are made, and only these take time."""
        return [self._say(one, now) for one in islice(self.waiting(now), most)]

    def explain_key(self, key: Key, now: int) -> str:
        """Why one message is not delivered here, or when it was, or that it is not known."""
        found = explain_key(self._member, key, self._reaches, now)
        return self._say(found, now) if isinstance(found, Waiting) else found

    def slowest(self, now: int) -> Culprit | None:
        """The peer that holds the window shut."""
        member, hold = self._member, self._hold
        found = member.slowest() if member.is_shut and member.tells_who_is_slow else None
        if found is None:
            return None
        rank, why = found
        since = hold.since if hold is not None and hold.rank == rank else now
        return Culprit(member.members[rank], why, now - since)

    # Casting.

    def refuse(self, now: int) -> None:
        """A cast found no room. Under `shed` the caller gets an error, otherwise it waits."""
        self._was_refused = True
        self.refused += 1
        if self._settings.slow is Slow.SHED:
            why = self.slowest(now) or "too much is cast and not yet delivered"
            raise Shed(f"the message was refused, and nothing of it remains: {why}.")

    # Looking.

    def look(self, now: int) -> list[Stalled | Resumed]:
        """Look at what waits and which peer is slow. Returns what there is to report."""
        self.look_at = now + self._settings.look_ns
        self._looks += 1
        self._look_at_window(now)
        delivered = self._member.delivered
        is_moving, self._delivered = delivered != self._delivered, delivered
        if is_moving:
            self._reaches.append(Reach(self._looked_at, now, self._member.reaches()))
            del self._reaches[:-REACHES_KEPT]
        self._looked_at = now
        if is_moving and not self._stalled and self._looks % _FULL_LOOKS:
            waiting = self._standing(now)
            known = {key: since for key, since in self._since.items() if key[0] == "message"}
            self._date(waiting, now)
            self._since |= known
            return []
        waiting = list(self.waiting(now))
        self._date(waiting, now)
        return self._report(waiting, now) if self._settings.stall_ns is not None else []

    def renew_window(self) -> None:
        """A view was installed: its window is a new one, and so is its ordering."""
        self._hold = None
        self._was_refused = False

    def _date(self, waiting: list[Waiting], now: int) -> None:
        """Looks alone do this: a question changes no date, and so no report."""
        self._since = {one.key: self._dated(one, now) for one in waiting}

    def _dated(self, one: Waiting, now: int) -> int:
        return one.since if one.since is not None else self._since.get(one.key, now)

    def _say(self, one: Waiting, now: int) -> str:
        return f"{one.sentence} (for {(now - self._dated(one, now)) / 1e9:.3f} s)."

    def _report(self, waiting: list[Waiting], now: int) -> list[Stalled | Resumed]:
        stall_ns = self._settings.stall_ns
        assert stall_ns is not None
        if self._stalled and not any(key in self._since for key in self._stalled):
            self._stalled = {}
            self._speak_ns = stall_ns
            return [Resumed(now - self._stalled_at)]
        late = [one for one in waiting if now - self._since[one.key] >= self._speak_ns]
        if not late:
            return []
        if not self._stalled:
            self._stalled_at = min(self._since[one.key] for one in late)
        self._stalled = dict.fromkeys(one.key for one in late)
        self._speak_ns *= 2
        return [Stalled(tuple(self._say(one, now) for one in waiting if now - self._since[one.key] >= stall_ns))]

    def _look_at_window(self, now: int) -> None:
        member, settings = self._member, self._settings
        was_refused, self._was_refused = self._was_refused, False
        if not member.tells_who_is_slow:
            self._hold = None
            return
        is_shut = member.is_shut
        if not is_shut and not was_refused:
            self._hold = None
            return
        found = member.slowest() if is_shut else None
        accepted = member.accepted
        if found is not None and (self._hold is None or self._hold.rank != found[0]):
            self._hold = Hold(found[0], now, now, member.acknowledged_by(found[0]), accepted)
        hold = self._hold
        if hold is None:
            return
        hold.is_felt = hold.is_felt or was_refused
        hold.had_room = hold.had_room or found is None or found[1] is not Slowness.ROOM
        if settings.slow is not Slow.EVICT or now - hold.judged_at < settings.evict_after_ns:
            return
        taken = member.acknowledged_by(hold.rank)
        has_no_room = not hold.had_room and accepted == hold.accepted
        if hold.is_felt and (has_no_room or taken - hold.taken < settings.evict_datagrams_min):
            self._evict(member.members[hold.rank], now - hold.since)
        hold.judge(now, taken, accepted, is_shut)
