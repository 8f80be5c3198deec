"""What waits at a member, for whom and since when; who is slow; and the watchdog that speaks when nothing moves.

**Since when.** No message carries a time. The member *looks* every `look_ns`, and what waits is dated from the first look that
found it. So `since` is never too early, and late by at most the time between two looks: `look_ns`, or longer where no turn
was taken meanwhile. Asking for what the ordering holds back can cost time in a large holdback, so a look asks only if nothing was
delivered since the look before, and with the watchdog on at every eighth too. So a message that waits while others pass it is
dated late by up to eight looks, or without the watchdog from the first `explain` on, which looks too. What membership
waits for it dates itself, exactly.

**Watchdog.** Each concern has a key that changes when it moves. If one keeps its key for `stall_ns`, `Stalled` tells all that
waits, again after twice as long, and so on; when none of those is left, `Moving` tells that.

**Slow.** Who holds the window shut is the one that the streams name at a look, if the window is shut then or a cast was refused
since the last one. A window is full at every moment of a healthy group under full load, so time alone is no evidence:
one is evicted that acknowledged fewer than `evict_datagrams_min` datagrams in `evict_after_ns` while casts were refused (datagrams,
because a few large messages are much work, too). A caster that was refused waits until the window opens, so a refusal counts for
as long as the window is found shut. While my own rate limit holds data back, nobody is blamed.
A member without room goes on acknowledging what the ordering casts by itself, above all in answer to its own messages. That is
no sign that its application reads: it is evicted as well if it had no room at any look and no message was accepted here meanwhile.

**Forgetting.** An ordering keeps what it delivered, because somebody may lack it in a view change. At a look it is asked how far it
is; when every member has taken in all that had arrived here by then, it is told so.
"""

from __future__ import annotations

from itertools import chain, islice
from typing import TYPE_CHECKING, NamedTuple

from unisono.core.errors import Shed
from unisono.core.events import Moving, Stalled
from unisono.core.member.explain import REACHES_KEPT, SAID_MAX, Reach, explain_key, message_concerns, stream_concerns
from unisono.core.member.settings import Slow
from unisono.core.streams.outbound import Slowness
from unisono.core.types import Key, MemberId, Rank
from unisono.core.waiting import Concern

if TYPE_CHECKING:
    from unisono.core.member.member import Member

_FULL_LOOKS = 8  # every so many looks, the watchdog asks the ordering what it holds back even if deliveries go on


class Culprit(NamedTuple):
    """Who holds the window shut, why, and for how long."""

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


class Hold:
    """A window that one member holds shut."""

    __slots__ = ("accepted", "had_room", "is_felt", "judged_at", "rank", "since", "taken")

    def __init__(self, rank: Rank, now: int, taken: int, accepted: int) -> None:
        self.rank = rank
        self.since = now
        self.judged_at = now  # when `taken` and `accepted` were noted
        self.taken = taken  # datagrams that it had acknowledged
        self.accepted = accepted  # messages that were cast here
        self.is_felt = False  # a cast was refused since then, or before and the window has stayed shut
        self.had_room = False  # a look since then found that something else holds the window shut, or nothing

    def judge(self, now: int, taken: int, accepted: int, is_shut: bool) -> None:
        """A judgement was passed: the next one looks at what comes after it."""
        self.judged_at, self.taken, self.accepted = now, taken, accepted
        self.is_felt = self.is_felt and is_shut
        self.had_room = False


class Watch:
    """The part of a member that looks at itself. Nothing here is called for a message."""

    def __init__(self, member: Member, now: int) -> None:
        self._member = member
        self._settings = member.settings.flow
        self._since: dict[tuple[object, ...], int] = {}
        self._looks = 0
        self._delivered = 0  # at the last look
        self._looked_at = now
        self._reaches: list[Reach] = []  # of looks that found that something had been delivered
        self._hold: Hold | None = None
        self._stalled: dict[tuple[object, ...], None] = {}  # what the watchdog has spoken of
        self._stalled_at = 0
        self._speak_ns = self._settings.stall_ns or 0
        self.look_at = now
        self.is_needed = self._settings.stall_ns is not None or self._settings.slow is Slow.EVICT
        """Whether the driver must wake the member for a look; else it looks when it is awake."""
        self._was_refused = False  # a cast, since the last look
        self._marked: tuple[object, tuple[int, ...]] | None = None  # how far the ordering was, and what had arrived
        self.refused = 0
        """How many casts were refused."""

    # Questions.

    def concerns(self) -> list[Concern]:
        """All that waits here: membership first, then the window, then messages."""
        return [*self._standing(), *message_concerns(self._member)]

    def _standing(self) -> list[Concern]:
        member = self._member
        culprit = self.slowest()
        said = member._membership.concerns()
        streams = member._streams
        if streams is not None and not member._is_blocked and not streams.writable():
            whose = "its own rate limit holds them" if culprit is None else culprit.blame
            said.append(Concern(("window", streams.stable[member._rank]), f"casts wait at {member.id}: {whose}"))
        return said + stream_concerns(member)

    def explain(self, now: int, most: int | None = None) -> list[str]:
        """Why something waits, a sentence each; the first `most` cost no more than that many."""
        if most is None:
            concerns = self.concerns()
            self._date(concerns, now)
        else:
            concerns = list(islice(chain(self._standing(), message_concerns(self._member)), most))
            known = self._since if len(self._since) < 2 * SAID_MAX else {}
            self._date(concerns, now)
            self._since = known | self._since  # what was not looked at keeps its date
        return [self._say(concern, now) for concern in concerns]

    def explain_key(self, key: Key, now: int) -> str:
        """Why one message is not delivered here, or when it was, or that nothing is known of it."""
        concerns = self.concerns()
        self._date(concerns, now)
        found = explain_key(self._member, key, self._reaches, now)
        return self._say(found, now) if isinstance(found, Concern) else found

    def slowest(self) -> Culprit | None:
        """Who holds the window shut."""
        member, hold = self._member, self._hold
        streams = member._streams
        if streams is None or member._is_blocked or streams.is_paced or streams.writable():
            return None
        found = streams.slowest()
        if found is None:
            return None
        rank, why = found
        since = hold.since if hold is not None and hold.rank == rank else member._now
        return Culprit(member._members[rank], why, member._now - since)

    # Casting.

    def refuse(self) -> None:
        """A cast finds no room. Under `shed` the caller hears it as an error, else it waits."""
        self._was_refused = True
        self.refused += 1
        if self._settings.slow is Slow.SHED:
            why = self.slowest() or "too much is cast and not yet delivered"
            raise Shed(f"the message was refused, and nothing of it remains: {why}.")

    # Looking.

    def look(self, now: int) -> list[Stalled | Moving]:
        """See what waits, who is slow, and whether to say so."""
        self.look_at = now + self._settings.look_ns
        self._looks += 1
        self._look_at_window(now)
        self._look_back()
        seat = self._member._seat
        delivered = 0 if seat is None else seat.delivered
        is_moving, self._delivered = delivered != self._delivered, delivered
        if seat is not None and is_moving:
            self._reaches.append(Reach(self._looked_at, now, seat.reaches()))
            del self._reaches[:-REACHES_KEPT]
        self._looked_at = now
        is_due = self._settings.stall_ns is not None and self._looks % _FULL_LOOKS == 0
        if is_moving and not self._stalled and not is_due:
            concerns = self._standing()
            known = {key: since for key, since in self._since.items() if key[0] == "message"}
            self._date(concerns, now)
            self._since |= known
            return []
        concerns = self.concerns()
        self._date(concerns, now)
        return self._bark(concerns, now) if self._settings.stall_ns is not None else []

    def renew_window(self) -> None:
        """A view was installed: its window is a new one, and so is its ordering."""
        self._hold = None
        self._was_refused = False
        self._marked = None

    def _date(self, concerns: list[Concern], now: int) -> None:
        old = self._since
        self._since = {c.key: c.since if c.since is not None else old.get(c.key, now) for c in concerns}

    def _say(self, concern: Concern, now: int) -> str:
        waited = now - self._since.get(concern.key, now)
        return f"{concern.sentence} (for {waited / 1e9:.3f} s)."

    def _bark(self, concerns: list[Concern], now: int) -> list[Stalled | Moving]:
        stall_ns = self._settings.stall_ns
        assert stall_ns is not None
        if self._stalled and not any(key in self._since for key in self._stalled):
            self._stalled = {}
            self._speak_ns = stall_ns
            return [Moving(now - self._stalled_at)]
        late = [c for c in concerns if now - self._since[c.key] >= self._speak_ns]
        if not late:
            return []
        if not self._stalled:
            self._stalled_at = min(self._since[c.key] for c in late)
        self._stalled = dict.fromkeys(c.key for c in late)
        self._speak_ns *= 2
        return [Stalled(tuple(self._say(c, now) for c in concerns if now - self._since[c.key] >= stall_ns))]

    def _look_at_window(self, now: int) -> None:
        member, settings = self._member, self._settings
        was_refused, self._was_refused = self._was_refused, False
        streams = member._streams
        if streams is None or member._is_blocked or streams.is_paced:
            self._hold = None
            return
        is_shut = not streams.writable()
        if not is_shut and not was_refused:
            self._hold = None
            return
        found = streams.slowest() if is_shut else None
        accepted = member.cast_index
        if found is not None and (self._hold is None or self._hold.rank != found[0]):
            self._hold = Hold(found[0], now, streams.acknowledged_by(found[0]), accepted)
        hold = self._hold
        if hold is None:
            return
        hold.is_felt = hold.is_felt or was_refused
        hold.had_room = hold.had_room or found is None or found[1] is not Slowness.ROOM
        if settings.slow is not Slow.EVICT or now - hold.judged_at < settings.evict_after_ns:
            return
        taken = streams.acknowledged_by(hold.rank)
        has_no_room = not hold.had_room and accepted == hold.accepted
        if hold.is_felt and (has_no_room or taken - hold.taken < settings.evict_datagrams_min):
            member._evict(member._members[hold.rank], now - hold.since)
        hold.judge(now, taken, accepted, is_shut)

    def _look_back(self) -> None:
        """Let the ordering forget what nobody can lack."""
        seat, streams = self._member._seat, self._member._streams
        if seat is None or streams is None or self._member._is_blocked:
            return
        if self._marked is not None:
            mark, arrived = self._marked
            if any(count > taken for count, taken in zip(arrived, streams.taken_by_all, strict=True)):
                return
            seat.forget(mark)
        mark = seat.mark()
        self._marked = None if mark is None else (mark, streams.held())
