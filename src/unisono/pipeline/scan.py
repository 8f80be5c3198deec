"""The fast scan: what one life of one member says of itself, as a handful of numbers instead of its rows.

A worker reads the segments of a life in order, column by column with pyarrow and numpy, and returns digests: of each block of
4,096 deliveries in their order, of what each view delivered of each origin, of what was cast. Whatever looks odd to it is a
**suspicion**. Nothing here proves a violation; but if no scan is suspicious and the digests agree (see `verify`), the
properties hold, and rows need not be moved at all.

Sound, not complete: every doubt (a gap, a placeholder, an unusual batch) is a suspicion, and then rows decide.

A life may be scanned in **parts**, each without a look at those before it: as its rows come, or by several tasks where one would
keep a core busy long after the others are idle. A part is named by its first local index. It assumes what it must know of the
rows before it, and says so in `edge` facts; `view_judge` compares these with what the parts before it have reached. A part ends
the life if it holds an ending.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from typing import TYPE_CHECKING, Any, NamedTuple, get_args, get_type_hints

import numpy as np

from unisono.pipeline.columns import WORD_MASK, Batches, Columns, is_consecutive
from unisono.trace.promises import order_named, services_of, unknown_in, unordered_in
from unisono.trace.schema import DATED_BACK, ENDINGS, KINDS, SHOWN, TOTAL, member_name, view_number

if TYPE_CHECKING:
    import pyarrow

    from unisono.pipeline.columns import Codes, Longs, Rows

BLOCK = 4_096
NEEDED = (
    "run", "group", "protocol", "member", "incarnation", "local_index", "kind", "view", "members", "origin",
    "origin_incarnation", "first", "count", "service", "destinations", "ordinal", "digest", "reason", "transitional",
    "time_ns", "previous_view",
)  # fmt: skip
DECIDED_BY_DIGESTS = frozenset(
    {"P0", "P1", "P2", "P3", "P4", "P5", "P6", "P7", "P9a", "P9b", "P9c", "P11", "P12", "P13", "P14", "P15"}
)
"""The properties that hold where no scan is suspicious and all digests agree.

If all messages are totally ordered, so does P8. If not, P1 holds but for circles of casts, which only rows show.
"""


class Fact(NamedTuple):
    """What a scan says of a life, a part of it, or a file; `what` tells which of the columns behind `view` are used.

    `life`: rows, ending, reason. `order`, from each VIEW row: order, members, local_index. `stay`, when it ends: members, way,
    local_index. `came`, if a part does not know the rows before: previous_view. `block`, `origin`, `cast`: digests, of what was
    delivered in a block, of an origin, and of what was cast. `edge`: what a part has `reached`, or assumes of the rows before it.
    `shown`: something was recorded of the application. `backwards`: local_index, of the first row whose clock is behind.
    `clock`: the time with which a part `begins`, and that it has `reached`. `suspect`: suspicion, reason; rows, if they could not
    be read. `file`: path, rows and size_bytes of this run and group in it.
    """

    run: str
    group: str
    protocol: str | None
    who: str | None
    what: str
    view: str | None = None
    local_index: int | None = None
    rows: int | None = None
    order: str | None = None
    members: str | None = None
    previous_view: str | None = None
    way: str | None = None
    ending: str | None = None
    service: str | None = None
    origin: str | None = None
    block: int | None = None
    messages: int | None = None
    xor: int | None = None
    sum: int | None = None
    piece: int | None = None
    edge: str | None = None
    relation: str | None = None
    value: int | None = None
    suspicion: str | None = None
    reason: str | None = None
    path: str | None = None
    size_bytes: int | None = None


SCAN_DDL = ", ".join(
    f"`{name}` {'bigint' if int in get_args(kind) else 'string'}" for name, kind in get_type_hints(Fact).items()
)


class InheritedState(NamedTuple):
    """What a part takes over from the rows before it."""

    view: str | None = None
    members: list[str] | None = None
    """None: not known."""
    order: str | None = None
    time_ns: int = -(1 << 63)


NOTHING = InheritedState()


class LifeScan:
    """Takes the rows of one life in their order, batch after batch."""

    def __init__(self, part: int | None = None, inherited: InheritedState = NOTHING) -> None:
        """`part`: the first local index of a part; None: the rows are the whole life. `inherited`: as far as it is known."""
        self._is_whole = part is None
        self._piece = part or 0
        self._is_new = not self._piece  # no row of the life has been seen yet
        self._inherits = self._piece > 0  # still in the view that the rows before had installed, or before any
        self.facts: list[Fact] = []
        self.identity: tuple[str, str, str, str] | None = None  # run, group, protocol, who
        self.suspicions: dict[tuple[str, str | None], str] = {}  # by what is suspected and the view
        self.rows_in_file = 0
        """How many rows were taken since the last call of `tell_file`."""
        self.unread_rows = 0
        """How many rows lie in the same segments and could not be used."""
        self._protocols: dict[str, None] = {}  # all that its rows name
        self._expected = -1 if self._piece else 0  # -1: whatever comes
        self._ended: str | None = None
        self._ended_reason: str | None = None
        self._view = inherited.view
        self._members = inherited.members
        self._order = inherited.order
        self._time = inherited.time_ns  # of the last row
        self._is_backwards = False  # its clock was behind once
        self._seen: dict[str, str] = {}  # by origin: the view in which something of it was delivered last
        self._ordinals: dict[str, int] = {}  # by service, in this view
        self._next: dict[str, int] = {}  # by origin: the index that must come next; kept across views
        self._blocks: dict[tuple[str, int], list[int]] = {}  # of this view: (service, block) -> count, xor, sum
        self._origins: dict[
            tuple[str, str], list[int]
        ] = {}  # of this view: (service, origin) -> messages, xor, sum, rows
        self._casts: dict[str, list[int]] = {}  # of this view: service -> messages, xor, sum, rows
        self._shown_in: set[str | None] = set()  # views with rows of what the application was shown
        self._cast_end = -1
        self._cast_at: list[Longs] = [np.empty(0, np.int64)]
        self._cast_ends: list[Longs] = [np.empty(0, np.int64)]

    def suspect(self, what: str, note: str) -> None:
        self.suspicions.setdefault((what, self._view), note)

    def take(self, table: pyarrow.Table) -> None:
        """Scan one batch of rows."""
        if not len(table):
            return
        columns = Columns(table)
        self._identify(columns)
        index = columns.longs("local_index")
        if self._expected < 0:
            self._expected = int(index[0])
            self._assume("local", self._expected, "=")
        if index[0] != self._expected or not is_consecutive(index):
            self.suspect("P0", "its local indices are not 0, 1, 2, …")
        self._expected = int(index[-1]) + 1
        kinds, kind_names = columns.codes("kind")
        present = _present(kinds, kind_names)
        self._watch_clock(
            columns.longs("time_ns"), index, kinds, [kind_names.index(kind) for kind in present & DATED_BACK]
        )
        if self._is_new:
            self._begin(kind_names[kinds[0]])
        if self._ended is not None:
            self.suspect("P0", "there are rows after the end")
        if unknown := sorted(present - KINDS):
            self.suspect("P0", f"there is no kind of row {unknown[0]}")
        bounds = [kind_names.index(kind) for kind in present & {"VIEW", "JOIN", *ENDINGS}]
        special = np.flatnonzero(np.isin(kinds, bounds)) if bounds else np.empty(0, np.int64)
        start = 0
        for at in [*special.tolist(), len(index)]:
            if at > start:
                self._stretch(columns, index, start, at, present)
            if at < len(index):
                self._turning_point(columns, kind_names[kinds[at]], at, int(index[at]))
            start = at + 1

    def tell_file(self, uri: str, size_bytes: int) -> None:
        """All rows of a file have been taken: name it as their place. `size_bytes`: about how many of its bytes are theirs."""
        if self.rows_in_file:
            self.facts.append(self._fact("file", path=uri, rows=self.rows_in_file, size_bytes=size_bytes))
        self.rows_in_file = 0

    def finish(self) -> Iterator[Fact]:
        """All facts of the life."""
        if self.identity is None:
            return
        if self._is_whole or self._ended is not None:
            self._leave_view(None, None, self._expected)
            if self._ended is None:
                self.suspect("unknown", "its trace stops without END, LEAVE or CRASH")
            yield self._fact("life", rows=self._expected, ending=self._ended, reason=self._ended_reason)
        if not self._is_whole:
            self._reach()
            self._tell_digests()
        yield from self.facts
        for (what, view), note in self.suspicions.items():
            unread = self.unread_rows if what == "unreadable" else None
            yield self._fact("suspect", view, suspicion=what, reason=note, rows=unread)
        run, group, first, who = self.identity
        for protocol in self._protocols:
            if protocol != first:
                self.identity = (run, group, protocol, who)
                yield self._fact("suspect", suspicion="P0", reason=f"some of its rows name the protocol {protocol}")

    @property
    def ended(self) -> str | None:
        """The kind of the row that ended the life, if there was one."""
        return self._ended

    @property
    def bequest(self) -> InheritedState:
        """What the part behind this one takes over."""
        return InheritedState(self._view, self._members, self._order, self._time)

    # Inside.

    def _fact(self, what: str, view: str | None = None, **values: Any) -> Fact:
        assert self.identity is not None
        return Fact(*self.identity, what, view, piece=None if self._is_whole else self._piece, **values)

    def _digest(self, what: str, known: list[int], **values: Any) -> None:
        """Tell the digest of a block, of an origin, or of what was cast: messages, xor, sum, and rows if they were counted."""
        messages, xor, total, *rows = known
        digest = {"messages": messages, "xor": _signed(xor), "sum": _signed(total)}
        self.facts.append(self._fact(what, self._view, rows=rows[0] if rows else None, **digest, **values))

    # Parts.

    def _assume(self, name: str, value: int, relation: str) -> None:
        """The rows before this part must have reached this value: exactly, at least (>=) or at most (<=).

        Or they must have `installed` the view in which it begins.
        """
        self.facts.append(self._fact("edge", self._view, edge=name, value=value, relation=relation))

    def _reach(self) -> None:
        """What the rows of this part have reached, for the parts after it."""
        reached = {"local": self._expected}
        if self._ended is not None:
            reached["end"] = self._expected
        reached |= {f"ordinal {service}": ordinal for service, ordinal in self._ordinals.items()}
        reached |= {f"next {origin}": index for origin, index in self._next.items()}
        if self._cast_end >= 0:
            reached["cast"] = self._cast_end
        for name, value in reached.items():
            self._tell_reached(name, self._seen.get(name[5:]), value)
        view = None if self._inherits else self._view
        self._tell_reached("view", view, len(self._members or ()))
        if self._time != NOTHING.time_ns:
            self.facts.append(self._fact("clock", edge="reached", value=self._time))

    def _tell_reached(self, name: str, view: str | None, value: int) -> None:
        self.facts.append(self._fact("edge", view, edge=name, value=value, relation="reached"))

    def _identify(self, columns: Columns) -> None:
        """Take the names from the first row; all rows are of one life (`by_life`), and name one protocol."""
        run, group, protocol, member, incarnation = (
            columns.value(name, 0) for name in ("run", "group", "protocol", "member", "incarnation")
        )
        if self.identity is None:
            self.identity = (run, group, protocol, member_name(member, incarnation))
        if protocol != self.identity[2] or not columns.is_one("protocol"):
            self.suspect("P0", "its rows name several protocols")
            self._protocols |= dict.fromkeys(columns.values("protocol"))
        self.rows_in_file += len(columns)

    def _begin(self, kind: str) -> None:
        self._is_new = False
        if kind not in ("JOIN", "VIEW"):
            self.suspect("P0", f"its trace begins with {kind}")

    def _watch_clock(self, times: Longs, index: Longs, kinds: Codes, dated_back: list[int]) -> None:
        """Tell where the clock is behind the row before. A state is dated by the delivery that it reaches to."""
        if self._is_backwards:
            return
        if dated_back:
            chosen = ~np.isin(kinds, dated_back)
            times, index = times[chosen], index[chosen]
        if not len(times):
            return
        if self._inherits and self._time == NOTHING.time_ns:
            self.facts.append(self._fact("clock", local_index=int(index[0]), edge="begins", value=int(times[0])))
        behind = np.flatnonzero(times[1:] < times[:-1]) + 1
        at = 0 if times[0] < self._time else int(behind[0]) if len(behind) else None
        self._time = int(times[-1])
        if at is not None:
            self._is_backwards = True
            self.facts.append(self._fact("backwards", local_index=int(index[at])))

    def _turning_point(self, columns: Columns, kind: str, at: int, local: int) -> None:
        if self._ended is not None:
            self.suspect("P0", "there are rows after the end")
        if kind == "VIEW":
            view = columns.value("view", at)
            along = columns.value("transitional", at) or []
            self._judge_origin(view, columns.value("previous_view", at), along)
            self._leave_view(view, ",".join(sorted(set(along))), local)
            if self._view is not None and view_number(view) <= view_number(self._view):
                self.suspect("P12", f"it installs {view} after {self._view}")
            self._view, self._members = view, columns.value("members", at) or []
            if set(along) - set(self._members):
                self.suspect("P15", f"it came to {view} with members that are not in it")
            self._inherits = False
            assert self.identity is not None
            self._order = order_named(columns.value("reason", at), columns.value("protocol", at))
            members = ",".join(self._members)
            self.facts.append(self._fact("order", view, order=self._order, local_index=local, members=members))
            if "|" in view or any("," in name for name in (*self._members, *along)):
                self.suspect("names", f"{view} or its members have names that facts cannot tell apart")
            if reason := unknown_in(self._order or "", view):
                self.suspect("order", reason)
            if self.identity[3] not in self._members:
                self.suspect("P11", f"it installs {view}, of which it is no member")
            if len({member.partition("#")[0] for member in self._members}) < len(self._members):
                self.suspect("P12", f"{view} holds one address more than once")
        elif kind == "JOIN" and (self._piece or local):
            self.suspect("P0", "it joins in the middle of its life")
        elif kind in ENDINGS:
            self._ended = kind
            self._ended_reason = columns.value("reason", at)

    def _judge_origin(self, view: str, previous: str | None, along: list[str]) -> None:
        """A VIEW row names the view that was installed last, and who came along; that the others agree, is compared."""
        assert self.identity is not None
        if previous is None and set(along) - {self.identity[3]}:
            self.suspect("P15", f"it installs {view} from nowhere, with others")
        if self._inherits and self._view is None:
            self.facts.append(self._fact("came", view, previous_view=previous))
        elif previous != self._view:
            self.suspect("P15", f"it installs {view} and says that it came from {previous or 'nowhere'}")

    def _leave_view(self, next_view: str | None, along: str | None, local: int) -> None:
        view = self._view
        if view is None and not (self._inherits):
            return  # a part that begins in a view and says nothing of it leaves it all the same
        way = f"{next_view}|{along}" if next_view else (self._ended if self._ended == "END" else None)
        members = None if self._members is None else ",".join(self._members)
        self.facts.append(self._fact("stay", view, way=way, local_index=local, members=members))
        self._tell_digests()
        self._ordinals = {}

    def _tell_digests(self) -> None:
        """What was delivered and cast since the view began, or since this part did."""
        for (service, block), known in self._blocks.items():
            self._digest("block", known, service=service, block=block)
        for (service, origin), known in self._origins.items():
            self._digest("origin", known, service=service, origin=origin)
        for service, known in self._casts.items():
            self._digest("cast", known, service=service)
        self._blocks, self._origins, self._casts = {}, {}, {}

    def _stretch(self, columns: Columns, index: Longs, start: int, stop: int, kinds: Set[str]) -> None:
        """Rows between two turning points, all of one view and of some of these kinds."""
        codes, names = columns.codes("kind")
        part = codes[start:stop]
        present = {kind for kind in kinds if np.any(part == names.index(kind))}
        if self._ended is not None:
            self.suspect("P0", "there are rows after the end")
        if self._view is None:
            self._find_view(columns, part, names, start)
        for kind, scan in (("CAST", self._scan_casts), ("DELIVER", self._scan_deliveries)):
            if kind in present:
                rows = np.flatnonzero(part == names.index(kind)) + start
                batches = Batches(columns, rows, kind)
                if not batches.all_of_view(self._view):
                    self.suspect("views", f"a {kind} names another view than the one installed")
                self._judge_labels(batches, kind)
                scan(batches, index[rows])
        if self._view not in self._shown_in and not present.isdisjoint(SHOWN):
            self._shown_in.add(self._view)
            self.facts.append(self._fact("shown", self._view))
        for kind in ("PLACE", "VOTE", "DECIDE", "SNAPSHOT_IN", "SNAPSHOT_OUT", "STABLE"):
            if kind in present:
                # Recipients change what a view owes; the others matter to a few properties of the whole run.
                self.suspect("special" if kind == "PLACE" else "kinds", f"there are {kind} rows")

    def _find_view(self, columns: Columns, part: Codes, names: list[str], start: int) -> None:
        """Without a VIEW row so far: in a part, the view is the one that its first CAST or DELIVER names."""
        if not (self._inherits):
            self.suspect("P0", "its trace does not begin with JOIN or VIEW")
            return
        named = np.flatnonzero(np.isin(part, [names.index(kind) for kind in ("CAST", "DELIVER") if kind in names]))
        if len(named):
            self._view = columns.value("view", start + int(named[0]))
            self._assume("view", 0, "installed")

    def _judge_labels(self, batches: Batches, kind: str) -> None:
        if batches.lacks_digest:
            self.suspect("digest", f"a {kind} has no digest")
        if any(unordered_in(self._order or "", service) for service, _ in batches.by_service):
            self.suspect("order", f"a {kind} is of a service of which the order is not judged")
        carried = None if self._order is None else services_of([self._order])
        if carried is not None and any(service not in carried for service, _ in batches.by_service):
            self.suspect("P0", f"a {kind} is of a service that the order {self._order} does not carry")

    def _scan_casts(self, batches: Batches, at: Longs) -> None:
        self._own_only(batches)
        if batches.has_destinations:
            self.suspect("special", "there are lists of recipients")
        first, ends = batches.first, batches.ends
        if self._cast_end < 0 and self._piece:
            self._assume("cast", int(first[0]), "<=")
        if first[0] < self._cast_end or np.any(first[1:] < ends[:-1]):
            self.suspect("P1", "it casts an index twice")
        self._cast_end = int(ends[-1])
        self._cast_at.append(at)
        self._cast_ends.append(ends)
        for service, rows in batches.by_service:
            _add(self._casts.setdefault(service, [0, 0, 0, 0]), batches, rows)

    def _own_only(self, batches: Batches) -> None:
        assert self.identity is not None
        if batches.origins_used != [self.identity[3]]:
            self.suspect("P1", "a CAST names another origin than the caster")

    def _scan_deliveries(self, batches: Batches, at: Longs) -> None:
        if batches.has_destinations:
            self.suspect("special", "there are lists of recipients")
        for service, rows in batches.by_service:
            self._scan_sequence(service, batches, rows)
        for origin, rows in batches.by_origin:
            self._scan_origin(origin, batches.first[rows], batches.ends[rows])
            for service, _ in batches.by_service:
                of_service = batches.of_service(service, rows)
                if len(of_service):
                    _add(self._origins.setdefault((service, origin), [0, 0, 0, 0]), batches, of_service)
            assert self.identity is not None
            if origin == self.identity[3]:
                self._own_after_cast(at[rows], batches.ends[rows])

    def _scan_origin(self, origin: str, first: Longs, ends: Longs) -> None:
        """What is delivered of one origin comes in its order, each message once, without gaps inside a view."""
        if self._members is not None and origin not in self._members:
            self.suspect("P3", f"it delivers a message of {origin}, which is not in its view")
        expected = self._next.get(origin)
        if expected is None and self._piece:
            self._assume(f"next {origin}", int(first[0]), "follows")
        in_view = self._seen.get(origin) == self._view
        if np.any(first[1:] != ends[:-1]) or (in_view and expected is not None and first[0] < expected):
            self.suspect("fifo", f"messages of {origin} are not delivered in their order, each once")
        elif expected is not None and first[0] < expected:
            self.suspect("indices", f"messages of {origin} come again, or late, from an earlier view")
        if expected is not None and first[0] != expected and self._delivered(origin):
            self.suspect("fifo", f"messages of {origin} are not delivered without gaps")
        self._next[origin] = max(int(ends[-1]), expected or 0)
        self._seen[origin] = self._view or ""

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

    def _scan_sequence(self, service: str, batches: Batches, rows: Rows) -> None:
        ordinal = batches.ordinal[rows]
        begin = int(ordinal[0])
        expected = self._ordinals.get(service)
        if expected is None:
            expected = 0
            if self._inherits:
                expected = begin
                self._assume(f"ordinal {service}", expected, "=")
        if begin != expected or not is_consecutive(ordinal):
            self.suspect("P0", "its ordinals are not 0, 1, 2, …")
        self._ordinals[service] = int(ordinal[-1]) + 1
        if service != TOTAL:
            return
        words = batches.placed(rows, ordinal)
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
            known[2] = (known[2] + total) & WORD_MASK


def _add(known: list[int], batches: Batches, rows: Rows) -> None:
    """Add messages with their payloads' digests to an order-free digest: messages, xor of one hash, sum of another, rows."""
    xors, sums = batches.hashes
    some = sums[rows]
    known[0] += int(batches.count[rows].sum())
    known[1] ^= int(np.bitwise_xor.reduce(xors[rows]))
    known[2] = (known[2] + int(np.add.reduce(some))) & WORD_MASK
    known[3] += len(some)


def _present(kinds: Codes, names: list[str]) -> set[str]:
    return {names[code] for code in np.flatnonzero(np.bincount(kinds))}


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value
