"""The acknowledgement matrix: how far every member is with every cast stream, as far as it is known here."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from unisono.core.streams.settings import NEVER
from unisono.core.types import Rank
from unisono.core.wire.envelope import NO_LIMIT


class Progress:
    """Who has what, what all have received, and which of the own numbers have changed since the others were told.

    Tables are by origin, then by peer. An origin needs no packets of its own stream, so it counts as having all. A floor is the
    least of a table's row.
    """

    def __init__(self, rank: Rank, members: int, first: int) -> None:
        self._rank = rank
        self._peers = tuple(peer for peer in range(members) if peer != rank)
        self.acked = [[first] * members for _ in range(members)]
        """Bodies of the origin's cast stream."""
        self.acked_by_all = [first] * members
        """By origin, the floor of `acked`: bodies below it need not be kept any more."""
        self.shown = [[first] * members for _ in range(members)]
        """Packets of it that could be shown."""
        self.taken = [[first] * members for _ in range(members)]
        """Packets of it that the ordering has taken in."""
        for table in (self.acked, self.shown, self.taken):
            for origin in range(members):
                table[origin][origin] = NEVER
        self.received_by_all = [first] * members
        """By origin, the floor of `shown`: how many packets of its cast stream every member of the view has received."""
        self.taken_by_all = [first] * members
        """By origin, the floor of `taken`: how many of them every member's ordering has taken in."""
        self.own_shown = [first] * members
        """By origin: the column of this member in `shown`, and in its own row how many it has cast, as of the last turn."""
        self.own_taken = [first] * members
        self.room_until = [NEVER] * members
        """By peer: how many packets of my cast stream it has room for."""
        self.changed: dict[Rank, None] = {}
        """Origins whose row has changed since all were told."""
        self.untaken: dict[Rank, None] = {}
        """Origins of which something has arrived since the ordering took in what had."""
        self.has_taken = False
        """Whether the ordering took in something that was not told since."""

    # What happens here.

    def cast(self, packets: int) -> None:
        """This member has cast so far the given number of packets, and its ordering took them in when it cast them."""
        own = self._rank
        self.own_shown[own] = self.own_taken[own] = packets
        if not self._peers:
            self.received_by_all[own] = self.taken_by_all[own] = packets

    def advance(self, origin: Rank, bodies: int, packets: int) -> bool:
        """So far this many bodies of the origin's cast stream are here, and packets could be shown.

        Returns whether `acked_by_all` has risen.
        """
        own = self._rank
        row = self.shown[origin]
        old = row[own]
        if packets > old:
            self.own_shown[origin] = row[own] = packets
            self.changed[origin] = self.untaken[origin] = None
            if old == self.received_by_all[origin]:
                self.received_by_all[origin] = min(row)
        row = self.acked[origin]
        old = row[own]
        if bodies <= old:
            return False
        row[own] = bodies
        self.changed[origin] = None
        if old != self.acked_by_all[origin]:
            return False
        self.acked_by_all[origin] = least = min(row)
        return least > old

    def cast_alone(self, packets: int) -> None:
        """In a view of one member, everyone has taken in what it has cast so far."""
        self.taken_by_all[self._rank] = packets

    def take_all(self, untrusted: Collection[Rank] = ()) -> None:
        """The ordering here has taken in all that has arrived, but for untrusted origins: others must keep their packets for it.

        Own packets it takes in when they are cast.
        """
        if not self.untaken:
            return
        self.has_taken = True
        own = self._rank
        for origin in self.untaken:
            if origin in untrusted:
                continue
            row = self.taken[origin]
            old = row[own]
            self.own_taken[origin] = row[own] = self.own_shown[origin]
            self.changed[origin] = None
            if old == self.taken_by_all[origin]:
                self.taken_by_all[origin] = min(row)
        self.untaken.clear()

    def owe(self, origins: Iterable[Rank]) -> None:
        """Others must be told of these origins, though nothing may have changed."""
        self.changed.update(dict.fromkeys(origins))

    # What others say.

    def hear(self, origin: Rank, peer: Rank, bodies: int, shown: int, taken: int) -> bool:
        """`peer` says how far it is with the cast stream of `origin`. Returns whether `acked_by_all` has risen."""
        row = self.shown[origin]
        old = row[peer]
        if shown > old:
            row[peer] = shown
            if old == self.received_by_all[origin]:
                self.received_by_all[origin] = min(row)
        row = self.taken[origin]
        old = row[peer]
        if taken > old:
            row[peer] = taken
            if old == self.taken_by_all[origin]:
                self.taken_by_all[origin] = min(row)
        row = self.acked[origin]
        old = row[peer]
        if bodies <= old:
            return False
        row[peer] = bodies
        if old != self.acked_by_all[origin]:
            return False
        self.acked_by_all[origin] = least = min(row)
        return least > old

    def hear_room(self, peer: Rank, room: int) -> None:
        """`peer` says how many more packets of each origin it can take in."""
        self.room_until[peer] = NEVER if room == NO_LIMIT else self.shown[self._rank][peer] + room

    # Questions.

    def held(self, packets_cast: int) -> tuple[int, ...]:
        """By origin: how many packets of its cast stream are here; of the own, how many were cast."""
        held = self.own_shown.copy()
        held[self._rank] = packets_cast
        return tuple(held)

    def behind(self, origin: Rank, count: int) -> list[Rank]:
        """Peers that are not known to have taken in `count` packets of an origin's cast stream."""
        row = self.taken[origin]
        return [peer for peer in self._peers if row[peer] < count]

    def lags(self, peer: Rank, shown: list[int], taken: list[int]) -> bool:
        """Whether `peer` has not told that it has, and has taken in, these numbers of packets, and has room for more."""
        return self.room_until[peer] <= self.own_shown[self._rank] or any(
            self.shown[origin][peer] < shown[origin] or self.taken[origin][peer] < taken[origin]
            for origin in range(len(shown))
        )

    @property
    def is_all_taken(self) -> bool:
        """Whether all have everything that is here, have taken it in, and have room for more."""
        return (
            self.received_by_all == self.own_shown
            and self.taken_by_all == self.own_taken
            and min(self.room_until) > self.own_shown[self._rank]
        )
