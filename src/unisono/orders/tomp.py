"""TOMP, ABCAST that lets final messages overtake those that will end later anyway. Paper 000, section 3.

Idea: an acknowledgement also tells which message of each origin its sender expects next. From all of them the origin learns,
for every k, a message of k that some member had not received when it stamped ours, so that this member will stamp it later.
The origin tells everyone with the final stamp, and members raise the provisional stamps of such waiting messages; a final
message that only waited for them is delivered at once. Orders and final stamps are ABCAST's; only t2 falls.

| packet      | stream  | meaning                                                                                           |
|-------------|---------|---------------------------------------------------------------------------------------------------|
| Data        | cast    | batch `number` of this origin                                                                     |
| Acknowledge | unicast | to the origin, a row a batch: (number, counter, next_mid), next_mid[k] = the batch of k expected next |
| Final       | cast    | from the origin, a row a batch: (number, stamp, min_next_mid, max_next_ts)                        |

Folding (the paper's text lacks it; its figures fix it). For each k, an acknowledgement with a smaller next_mid[k] replaces the
pair by (next_mid[k], its stamp + 1); with an equal one the larger stamp + 1 stays; with a larger one nothing changes. So the
pair says: a member that expected batch min_next_mid[k] of k had stamped ours with max_next_ts[k] - 1.

I1-I3 of ABCAST, and
I4  a raised stamp is a lower bound of the final one: that member stamps batch min_next_mid[k] + d of k at least d + 1 after
    ours, because its counter rises by one a batch and batches of k reach it in order. This is why TOMP needs FIFO per source.
I5  on a tie of a final and a raised stamp the final goes first: the final is unique, so the raised message ends above it.

View change: `stamps.merge_stamps`, over the raised stamps: by I4 they are what deliveries were decided on.

Deviations: the max update of ABCAST; the sender acknowledges to itself; next_mid is taken after the receiver's own update;
numbers count an origin's batches in the view from 1; acknowledgements and finals of one turn travel in one packet.
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

from unisono.core.config import Config
from unisono.core.errors import Contradiction, PeerFault
from unisono.core.outbox import Outbox
from unisono.core.types import Batch, Packet, Rank, View
from unisono.core.wire import BATCH, LIST, ROW, SLOT, STAMP, STAMPS, U64, VECTOR, Layout
from unisono.orders.stamps import Stamp, Stamped


class Data(NamedTuple):
    number: int
    batch: Batch


class AckRow(NamedTuple):
    number: int
    counter: int
    next_mid: tuple[int, ...]


class FinalRow(NamedTuple):
    number: int
    stamp: Stamp
    min_next_mid: tuple[int, ...]
    max_next_ts: tuple[Stamp, ...]


class Acknowledge(NamedTuple):
    rows: tuple[AckRow, ...]


class Final(NamedTuple):
    rows: tuple[FinalRow, ...]


ROWS_MAX = 512
"""Maximum number of rows per packet. A row grows with the group, and a packet must travel among a thousand members, too."""
RowT = TypeVar("RowT", AckRow, FinalRow)


class Folding:
    """The acknowledgements of one own batch, folded as they come."""

    __slots__ = ("count", "greatest", "max_next_ts", "min_next_mid")

    def __init__(self, size: int) -> None:
        self.count = 0
        self.greatest: Stamp = (0, 0)
        self.min_next_mid = [0] * size  # 0: no acknowledgement yet
        self.max_next_ts: list[Stamp] = [(0, 0)] * size

    def add(self, stamp: Stamp, next_mid: tuple[int, ...]) -> None:
        self.count += 1
        self.greatest = max(self.greatest, stamp)
        following = (stamp[0] + 1, stamp[1])
        for k, expected in enumerate(next_mid):
            known = self.min_next_mid[k]
            if known == 0 or expected < known:
                self.min_next_mid[k] = expected
                self.max_next_ts[k] = following
            elif expected == known and following > self.max_next_ts[k]:
                self.max_next_ts[k] = following

    def final(self, number: int) -> FinalRow:
        return FinalRow(number, self.greatest, tuple(self.min_next_mid), tuple(self.max_next_ts))


class Tomp(Stamped):
    numbered = (Data,)
    wire = (
        Layout(0x17, Data, (SLOT, BATCH)),
        Layout(0x18, Acknowledge, (LIST(ROW(SLOT, U64, VECTOR, type=AckRow)),)),
        Layout(0x19, Final, (LIST(ROW(SLOT, STAMP, VECTOR, STAMPS, type=FinalRow)),)),
    )

    def __init__(self, view: View, rank: Rank, config: Config) -> None:
        super().__init__(view, rank, config)
        self._foldings: dict[int, Folding] = {}  # own batches that are not decided
        self._acks: dict[Rank, list[AckRow]] = {}  # this turn's acknowledgements, by origin
        self._decided: list[FinalRow] = []  # this turn's finals of own batches

    def submit(self, batch: Batch, out: Outbox) -> None:
        number = self._take(self._rank, batch)
        out.to_all.append(Data(number, batch))
        self._foldings[number] = Folding(self._size)
        self._fold(self._rank, AckRow(number, self._counter, self._next_mid()), out)

    def receive(self, sender: Rank, packet: Packet, out: Outbox) -> None:
        if isinstance(packet, Data):
            self._demand_number(sender, packet.number)
            number = self._take(sender, packet.batch)
            self._acks.setdefault(sender, []).append(AckRow(number, self._counter, self._next_mid()))
        elif isinstance(packet, Acknowledge):
            self._demand_acknowledgements(sender, packet.rows)
            self._stamped_by[sender] = packet.rows[-1][:2]
            for ack in packet.rows:
                self._fold(sender, ack, out)
        else:
            assert isinstance(packet, Final)
            self._demand_rows(sender, packet.rows)
            for final in packet.rows:
                self._decide(sender, final, out)

    def end_turn(self, out: Outbox) -> None:
        if self._acks:
            for origin, rows in self._acks.items():
                out.to_one += [(origin, Acknowledge(some)) for some in _shared(rows)]
            self._acks = {}
        if self._decided:
            out.to_all += map(Final, _shared(self._decided))
            self._decided = []

    _too_low = Contradiction  # the stamp here may have been raised by what a third member said

    def _demand_acknowledgements(self, sender: Rank, rows: tuple[AckRow, ...]) -> None:
        self._demand_proposals(sender, ((number, counter) for number, counter, _ in rows))
        for number, _, next_mid in rows:
            if next_mid[self._rank] != number + 1 or 0 in next_mid:
                raise PeerFault("an acknowledgement expects a batch that cannot be the next")

    def _demand_rows(self, sender: Rank, rows: tuple[FinalRow, ...]) -> None:
        self._demand_finals(sender, ((row.number, row.stamp) for row in rows))
        for number, stamp, expected, following in rows:
            if expected[sender] != number + 1 or 0 in expected or expected[self._rank] > self._held[self._rank] + 1:
                raise PeerFault("a final stamp comes with a batch that no member can have expected next")
            if any(not 1 < counter <= stamp[0] + 1 for counter, _ in following):
                raise PeerFault("a final stamp comes with a counter that no member can have given")

    def _next_mid(self) -> tuple[int, ...]:
        return tuple(held + 1 for held in self._held)

    def _fold(self, sender: Rank, ack: AckRow, out: Outbox) -> None:
        """Count an acknowledgement of an own batch; with the last one the batch is decided."""
        folding = self._foldings[ack.number]
        folding.add((ack.counter, sender), ack.next_mid)
        if folding.count == self._size:
            del self._foldings[ack.number]
            row = folding.final(ack.number)
            self._decided.append(row)
            self._decide(self._rank, row, out)

    def _decide(self, origin: Rank, row: FinalRow, out: Outbox) -> None:
        self._finish((origin, row.number), row.stamp, out)
        self._lift(row)
        self._deliver_ready(out)

    def _lift(self, row: FinalRow) -> None:
        """Raise the waiting messages that will be stamped after this one somewhere (I4)."""
        for (k, number), entry in self._queue.entries.items():
            if entry.final:
                continue
            ahead = number - row.min_next_mid[k]
            if ahead >= 0:
                counter, rank = row.max_next_ts[k]
                self._queue.lift((k, number), (counter + ahead, rank))


def _shared(rows: list[RowT]) -> list[tuple[RowT, ...]]:
    """A turn's rows, in as few packets as can travel."""
    return [tuple(rows[at : at + ROWS_MAX]) for at in range(0, len(rows), ROWS_MAX)]
