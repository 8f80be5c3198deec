"""The fast scan: what one life of one member says of itself, as a handful of numbers instead of its rows.

A worker reads the segments of a life in order, column by column with pyarrow and numpy, and returns digests: of each block of
4,096 deliveries in their order, of what each view delivered of each origin, of what was cast. Whatever looks odd to it is a
**suspicion**. Nothing here proves a violation; but if no scan is suspicious and the digests agree (see `verify`), the
properties hold, and rows need not be moved at all.

Sound, not complete: every doubt (a gap, a placeholder, an unusual batch) is a suspicion, and then the property's own
formulation decides.

A life that would keep one core busy long after the others are idle is scanned in **pieces**, each a run of its segments. What a
piece must know of the rows before it, it assumes, and says so in `edge` facts; `stitch` holds them against what the pieces before
it have reached.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from unisono.trace.schema import ENDINGS, KINDS, REQUIRED, SHOWN, TOTAL, member_name, view_number

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyarrow

    Longs = npt.NDArray[np.int64]
    Words = npt.NDArray[np.uint64]

BLOCK = 4_096
NEEDED = (
    "run", "group", "protocol", "member", "incarnation", "local_index", "kind", "view", "members", "origin",
    "origin_incarnation", "first", "count", "service", "destinations", "ordinal", "digest", "reason", "transitional",
)  # fmt: skip
SCAN_DDL = (
    "run string, `group` string, protocol string, who string, what string, view string, name string, number bigint, "
    "count bigint, xor bigint, sum bigint, note string"
)
"""One row is one fact: `what` says which (life, stay, order, block, origin, cast, edge, shown, suspect, misnamed)."""


def _mix(x: Words) -> Words:
    """A 64-bit mixer (splitmix64's finaliser): every bit of the input moves half of the output's."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _seed(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


class LifeScan:
    """Takes the rows of one life in their order, batch after batch."""

    def __init__(self, piece: int = 0, is_last: bool = True, inherited: tuple[str, list[str]] | None = None) -> None:
        self._piece, self._is_last = piece, is_last
        self._is_whole = piece == 0 and is_last
        self._is_new = piece == 0  # no row has been seen yet
        self._inherits = piece > 0  # still in the view that the rows before had installed, or before any
        self.facts: list[tuple[Any, ...]] = []
        self.identity: tuple[str, str, str, str] | None = None  # run, group, protocol, who
        self.suspicions: dict[str, str] = {}
        self.runs: set[str] = set()  # of which there are rows
        self.unread_rows = 0
        """How many rows lie in segments that were not scanned, because something in them or before them could not be read."""
        self._strangers: dict[tuple[str, str, str], int] = {}  # of a file with several lives: run, group, protocol
        self._expected = -1 if piece else 0  # -1: whatever comes
        self._ended: str | None = None
        self._ended_reason: str | None = None
        self._view: str | None = inherited[0] if inherited else None
        self._members: list[str] = inherited[1] if inherited else []
        self._seen: dict[str, str] = {}  # by origin: the view in which something of it was delivered last
        self._ordinals: dict[str, int] = {}  # by service, in this view
        self._next: dict[str, int] = {}  # by origin: the index that must come next; kept across views
        self._blocks: dict[tuple[str, int], list[int]] = {}  # of this view: (service, block) -> count, xor, sum
        self._origins: dict[
            tuple[str, str], list[int]
        ] = {}  # of this view: (service, origin) -> messages, xor, sum, rows
        self._casts: dict[str, list[int]] = {}  # of this view: service -> messages, xor, sum, rows
        self._is_shown = False  # there are rows of what the application was shown
        self._cast_end = -1
        self._cast_at: list[Longs] = [np.empty(0, np.int64)]
        self._cast_ends: list[Longs] = [np.empty(0, np.int64)]

    def suspect(self, what: str, note: str) -> None:
        self.suspicions.setdefault(what, note)

    def take(self, table: pyarrow.Table) -> None:
        """Scan one batch of rows."""
        if not len(table):
            return
        columns = {name: table.column(name) for name in NEEDED}
        self._identify(columns)
        index = _longs(columns["local_index"])
        if self._expected < 0:
            self._expected = int(index[0])
            self._assume("local", self._expected, "=")
        if index[0] != self._expected or np.any(np.diff(index) != 1):
            self.suspect("P0", "its local indices are not 0, 1, 2, …")
        self._expected = int(index[-1]) + 1
        kinds, kind_names = _codes(columns["kind"])
        if self._is_new:
            self._begin(kind_names[kinds[0]])
        if self._ended is not None:
            self.suspect("P0", "there are rows after the end")
        if unknown := sorted({kind_names[i] for i in np.flatnonzero(np.bincount(kinds, minlength=1))} - KINDS):
            self.suspect("P0", f"there is no kind of row {unknown[0]}")
        bounds = [i for i, name in enumerate(kind_names) if name in ("VIEW", "JOIN") or name in ENDINGS]
        special = np.flatnonzero(np.isin(kinds, bounds))
        start = 0
        for at in [*special.tolist(), len(index)]:
            if at > start:
                self._stretch(columns, index, kinds, kind_names, start, at)
            if at < len(index):
                self._turning_point(columns, kind_names[kinds[at]], at)
            start = at + 1

    def misnamed(self, path: str) -> None:
        """A segment holds rows of other runs than its name says."""
        self.facts.append(self._fact("misnamed", note=path))

    def finish(self) -> Iterator[tuple[Any, ...]]:
        """All facts of the life."""
        if self.identity is None:
            return
        if self._is_last:
            self._leave_view(None, None)
            if self._ended is None:
                self.suspect("unknown", "its trace stops without END, LEAVE or CRASH")
            yield self._fact("life", number=self._expected, name=self._ended, note=self._ended_reason)
        elif self._ended is not None:
            self.suspect("P0", "there are rows after the end")
        if not self._is_whole:
            self._reach()
            self._tell_digests()
        yield from self.facts
        for what, note in self.suspicions.items():
            yield self._fact("suspect", name=what, note=note, number=self.unread_rows if what == "unreadable" else None)
        for (run, group, protocol), rows in self._strangers.items():
            if (run, group) != self.identity[:2]:
                self.identity = (run, group, protocol, self.identity[3])
                yield self._fact("suspect", name="mixed", number=rows, note="its rows lie in a file of several runs")

    # Inside.

    def _fact(
        self,
        what: str,
        view: str | None = None,
        name: str | None = None,
        number: int | None = None,
        digest: tuple[int, int, int] = (0, 0, 0),
        note: str | None = None,
    ) -> tuple[Any, ...]:
        assert self.identity is not None
        count, xor, total = digest
        return (*self.identity, what, view, name, number, count, _signed(xor), _signed(total), note)

    # Pieces.

    def _assume(self, name: str, value: int, relation: str) -> None:
        """The rows before this piece must have reached this value: exactly, at least (>=) or at most (<=)."""
        self.facts.append(self._fact("edge", self._view, name, self._piece, (value, 0, 0), relation))

    def _reach(self) -> None:
        """What the rows of this piece have reached, for the pieces after it."""
        reached = {"local": self._expected}
        reached |= {f"ordinal {service}": ordinal for service, ordinal in self._ordinals.items()}
        reached |= {f"next {origin}": index for origin, index in self._next.items()}
        if self._cast_end >= 0:
            reached["cast"] = self._cast_end
        for name, value in reached.items():
            self.facts.append(self._fact("edge", self._seen.get(name[5:]), name, self._piece, (value, 0, 0), "reached"))
        view = None if self._inherits else self._view
        self.facts.append(self._fact("edge", view, "view", self._piece, (len(self._members), 0, 0), "reached"))

    def _identify(self, columns: dict[str, Any]) -> None:
        row = tuple(columns[name][0].as_py() for name in ("run", "group", "protocol", "member", "incarnation"))
        identity = (row[0], row[1], row[2], member_name(row[3], row[4]))
        if self.identity is None:
            self.identity = identity
        self.runs.update(columns["run"].unique().to_pylist())
        for name in ("run", "group", "protocol", "member", "incarnation"):
            if len(columns[name].unique()) != 1:
                self.suspect("mixed", f"one file holds several lives: {name} differs")
                self._note_strangers(columns)
        if identity != self.identity:
            self.suspect("mixed", "the segments of one life disagree about whose they are")
            self._note_strangers(columns)

    def _note_strangers(self, columns: dict[str, Any]) -> None:
        """Every run that a mixed file holds is a run to be judged, not only the one of its first row."""
        for row in zip(*(columns[name].to_pylist() for name in ("run", "group", "protocol")), strict=True):
            self._strangers.setdefault(row, 0)
            self._strangers[row] += 1

    def _begin(self, kind: str) -> None:
        self._is_new = False
        if kind not in ("JOIN", "VIEW"):
            self.suspect("P0", f"its trace begins with {kind}")

    def _turning_point(self, columns: dict[str, Any], kind: str, at: int) -> None:
        if self._ended is not None:
            self.suspect("P0", "there are rows after the end")
        if kind == "VIEW":
            view = columns["view"][at].as_py()
            along = columns["transitional"][at].as_py() or []
            self._leave_view(view, ",".join(sorted(along)))
            if self._view is not None and view_number(view) <= view_number(self._view):
                self.suspect("P12", f"it installs {view} after {self._view}")
            self._view, self._members = view, columns["members"][at].as_py() or []
            self._inherits = False
            assert self.identity is not None
            if order := columns["reason"][at].as_py():
                self.facts.append(self._fact("order", view, order))
            if self.identity[3] not in self._members:
                self.suspect("P11", f"it installs {view}, of which it is no member")
            if len({member.partition("#")[0] for member in self._members}) < len(self._members):
                self.suspect("P12", f"{view} holds two lives of one address")
        elif kind in ENDINGS:
            self._ended = kind
            self._ended_reason = columns["reason"][at].as_py()

    def _leave_view(self, next_view: str | None, along: str | None) -> None:
        view = self._view
        if view is None:
            return
        way = f"{next_view}|{along}" if next_view else (self._ended if self._ended == "END" else None)
        members = ",".join(self._members)
        self.facts.append(self._fact("stay", view, way, len(self._members), note=members))
        self._tell_digests()
        self._ordinals = {}

    def _tell_digests(self) -> None:
        """What was delivered and cast since the view began, or since this piece did."""
        view = self._view
        for (service, block), (count, xor, total) in self._blocks.items():
            self.facts.append(self._fact("block", view, service, block, (count, xor, total)))
        for (service, origin), (count, xor, total, rows) in self._origins.items():
            self.facts.append(self._fact("origin", view, origin, rows, (count, xor, total), service))
        for service, (count, xor, total, rows) in self._casts.items():
            self.facts.append(self._fact("cast", view, None, rows, (count, xor, total), service))
        self._blocks, self._origins, self._casts = {}, {}, {}

    def _stretch(
        self, columns: dict[str, Any], index: Longs, kinds: Longs, names: list[str], start: int, stop: int
    ) -> None:
        """Rows between two turning points: all of one view."""
        part = kinds[start:stop]
        if self._ended is not None:
            self.suspect("P0", "there are rows after the end")
        if self._view is None:
            self.suspect("P0", "its trace does not begin with JOIN or VIEW")
        for kind, scan in (("CAST", self._scan_casts), ("DELIVER", self._scan_deliveries)):
            rows = np.flatnonzero(part == names.index(kind)) + start if kind in names else np.empty(0, np.int64)
            if len(rows):
                taken = _Rows(columns, rows, start, stop, kind)
                if not taken.all_of_view(self._view):
                    self.suspect("views", f"a {kind} names another view than the one installed")
                scan(taken, index[rows])
        if not self._is_shown and any(kind in names and np.any(part == names.index(kind)) for kind in SHOWN):
            self._is_shown = True
            self.facts.append(self._fact("shown"))
        for kind in ("PLACE", "VOTE", "DECIDE", "SNAPSHOT_IN", "SNAPSHOT_OUT", "STABLE"):
            if kind in names and np.any(part == names.index(kind)):
                self.suspect("special", f"there are {kind} rows")

    def _scan_casts(self, rows: _Rows, at: Longs) -> None:
        self._own_only(rows)
        if rows.has_destinations:
            self.suspect("special", "there are lists of recipients")
        ends = rows.first + rows.count
        if self._cast_end < 0 and self._piece:
            self._assume("cast", int(rows.first[0]), "<=")
        if rows.first[0] < self._cast_end or np.any(rows.first[1:] < ends[:-1]):
            self.suspect("P1", "it casts an index twice")
        self._cast_end = int(ends[-1])
        self._cast_at.append(at)
        self._cast_ends.append(ends)
        for service, chosen in rows.by_service():
            _add(self._casts.setdefault(service, [0, 0, 0, 0]), rows, chosen)

    def _own_only(self, rows: _Rows) -> None:
        assert self.identity is not None
        if rows.origins_used != [self.identity[3]]:
            self.suspect("P1", "a CAST names another origin than the caster")

    def _scan_deliveries(self, rows: _Rows, at: Longs) -> None:
        if rows.has_destinations:
            self.suspect("special", "there are lists of recipients")
        for service, chosen in rows.by_service():
            self._scan_sequence(service, rows, chosen)
        for code, origin in enumerate(rows.origin_names):
            chosen = np.flatnonzero(rows.origin == code)
            if not len(chosen):
                continue
            if origin not in self._members:
                self.suspect("P3", f"it delivers a message of {origin}, which is not in its view")
            first, ends = rows.first[chosen], rows.first[chosen] + rows.count[chosen]
            expected = self._next.get(origin)
            if expected is None and self._piece:
                self._assume(f"next {origin}", int(first[0]), "follows")
            if np.any(first[1:] != ends[:-1]) or (expected is not None and first[0] < expected):
                self.suspect("fifo", f"messages of {origin} are not delivered in their order, each once")
            if expected is not None and first[0] != expected and self._delivered(origin):
                self.suspect("fifo", f"messages of {origin} are not delivered without gaps")
            self._next[origin] = max(int(ends[-1]), expected or 0)
            self._seen[origin] = self._view or ""
            for service, of_service in rows.by_service():
                both = (
                    np.intersect1d(chosen, of_service, assume_unique=True)
                    if len(of_service) < len(rows.first)
                    else chosen
                )
                if len(both):
                    _add(self._origins.setdefault((service, origin), [0, 0, 0, 0]), rows, both)
            assert self.identity is not None
            if origin == self.identity[3]:
                self._own_after_cast(at[chosen], ends)

    def _delivered(self, origin: str) -> bool:
        return any(known == origin for _, known in self._origins)

    def _own_after_cast(self, at: Longs, ends: Longs) -> None:
        """Every own message is delivered after it was cast."""
        cast_at, cast_ends = np.concatenate(self._cast_at), np.concatenate(self._cast_ends)
        before = np.searchsorted(cast_at, at) - 1
        if self._piece and self._cast_end >= 0 and np.any(before < 0):
            self._assume("cast", int(ends[before < 0].max()), ">=")
            at, ends, before = at[before >= 0], ends[before >= 0], before[before >= 0]
        elif self._piece and not len(cast_at):
            self._assume("cast", int(ends.max()), ">=")
            return
        if not len(at):
            return
        if np.any(before < 0) or np.any(cast_ends[np.maximum(before, 0)] < ends):
            self.suspect("P8", "it delivers an own message before its CAST")
        self._cast_at, self._cast_ends = [cast_at[-1:]], [cast_ends[-1:]]
        later = cast_at > at[-1]
        if np.any(later):
            self._cast_at, self._cast_ends = [cast_at[np.argmax(later) - 1 :]], [cast_ends[np.argmax(later) - 1 :]]

    def _scan_sequence(self, service: str, rows: _Rows, chosen: Longs) -> None:
        ordinal = rows.ordinal[chosen]
        expected = self._ordinals.get(service)
        if expected is None:
            expected = 0
            if self._inherits:
                expected = int(ordinal[0])
                self._assume(f"ordinal {service}", expected, "=")
        if ordinal[0] != expected or np.any(np.diff(ordinal) != 1):
            self.suspect("P0", "its ordinals are not 0, 1, 2, …")
        self._ordinals[service] = int(ordinal[-1]) + 1
        if service != TOTAL:
            return
        words = _mix(rows.message[chosen] + ordinal.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15))
        blocks = ordinal // BLOCK
        starts = np.flatnonzero(np.diff(blocks, prepend=blocks[0] - 1))
        xors, sums = np.bitwise_xor.reduceat(words, starts), np.add.reduceat(words, starts)
        counts = np.diff(starts, append=len(blocks))
        for block, count, xor, total in zip(
            blocks[starts].tolist(), counts.tolist(), xors.tolist(), sums.tolist(), strict=True
        ):
            known = self._blocks.setdefault((service, block), [0, 0, 0])
            known[0] += count
            known[1] ^= xor
            known[2] = (known[2] + total) & 0xFFFFFFFFFFFFFFFF


class _Rows:
    """The columns of some CAST or DELIVER rows as numpy arrays, with a hash of each message."""

    def __init__(self, columns: dict[str, Any], rows: Longs, start: int, stop: int, kind: str) -> None:
        import pyarrow

        whole = len(rows) == stop - start and stop - start == len(columns["first"])
        select = None if whole else pyarrow.array(rows)

        def column(name: str) -> Any:
            return columns[name] if select is None else columns[name].take(select)

        self._column = column
        for name in REQUIRED[kind]:
            if column(name).null_count:
                raise ValueError(f"a {kind} row without {name}.")
        self.first, self.count = _longs(column("first")), _longs(column("count"))
        self.ordinal = _longs(column("ordinal"))
        self.digest = _longs(column("digest"))
        self.has_destinations = column("destinations").null_count < len(rows)
        addresses, names = _codes(column("origin"))
        lives = _longs(column("origin_incarnation"))
        if np.any(
            lives != 0
        ):  # of a real group they are times in nanoseconds, so they are counted before they are packed
            incarnations, codes = np.unique(lives, return_inverse=True)
            unique, addresses = np.unique(addresses * len(incarnations) + codes, return_inverse=True)
            pairs = (divmod(int(pair), len(incarnations)) for pair in unique)
            names = [member_name(names[address], int(incarnations[code])) for address, code in pairs]
        if np.any(self.first < 0) or np.any(self.count < 1) or np.any(lives < 0) or np.any(self.ordinal < 0):
            raise ValueError(f"a {kind} row with a negative number, or without messages.")
        self.origin, self.origin_names = addresses, names
        self.origins_used = [names[i] for i in np.flatnonzero(np.bincount(addresses, minlength=len(names)))]
        seeds = np.array([_seed(name) for name in names], np.uint64)
        self.message = _mix(
            seeds[self.origin]
            + self.first.astype(np.uint64) * np.uint64(0xD6E8FEB86659FD93)
            + self.count.astype(np.uint64) * np.uint64(0xA0761D6478BD642F)
        )
        self._services: list[tuple[str, Longs]] | None = None

    def all_of_view(self, view: str | None) -> bool:
        return bool(self._column("view").unique().to_pylist() == [view])

    def by_service(self) -> list[tuple[str, Longs]]:
        if self._services is None:
            codes, names = _codes(self._column("service"))
            self._services = [(name, np.flatnonzero(codes == i)) for i, name in enumerate(names)]
            self._services = [(name, chosen) for name, chosen in self._services if len(chosen)]
        return self._services


def _add(known: list[int], rows: _Rows, chosen: Longs) -> None:
    """Add messages with their payloads' digests to an order-free digest: how many, xor, and a sum of another hash."""
    words = _mix(rows.message[chosen] ^ rows.digest[chosen].astype(np.uint64))
    known[0] += int(rows.count[chosen].sum())
    known[1] ^= int(np.bitwise_xor.reduce(words))
    known[2] = (known[2] + int(np.add.reduce(_mix(words)))) & 0xFFFFFFFFFFFFFFFF
    known[3] += len(chosen)


def _longs(column: Any) -> Longs:
    import pyarrow.compute as pc

    filled = pc.fill_null(column, 0) if column.null_count else column
    return np.asarray(filled.to_numpy(), np.int64)


def _codes(column: Any) -> tuple[Longs, list[str]]:
    import pyarrow

    if not pyarrow.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    column = column.unify_dictionaries() if isinstance(column, pyarrow.ChunkedArray) else column
    combined = column.combine_chunks() if isinstance(column, pyarrow.ChunkedArray) else column
    if isinstance(combined, pyarrow.ChunkedArray):
        combined = combined.chunk(0)
    return np.asarray(combined.indices.to_numpy(zero_copy_only=False), np.int64), combined.dictionary.to_pylist()


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value
