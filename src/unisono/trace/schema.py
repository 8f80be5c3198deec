"""The one definition of a trace: its columns, its kinds of rows, and what a row must hold.

A trace has one row per event of one member; a batch of messages is one event. Recorder, checkers, reader and the
pipeline all take the columns from here. This file needs nothing but the standard library and imports nothing of
unisono, so that a cluster can load it alone; `parquet` makes an Arrow schema of it.

How values are written:

- a **member** in a list (`members`, `destinations`, `transitional`) is its name: the address, and for a later life of
  the process at that address ``address#incarnation``. The columns `member` and `origin` hold the address alone, with
  the incarnation in a column of its own. An address therefore never contains ``#``.
- a **view** is ``number@proposer``, unique across partitions; `parts` lists the views that were merged into one.
- a **digest** is the 64 bits of the hash read as a signed integer, because that is what Parquet and Spark have.
- the **frontier** is aligned with the members of the view: how many messages of each origin this member had delivered
  in this view, placeholders included, when it cast.
- the **attributes** map strings to strings. A string stands for itself; any other value is JSON without spaces
  (``true``, ``17``, ``[0,2,1]``). `vector` is such a list, by rank, in messages of this view, its caster's own entry
  counting what it had cast before this batch. `void` is ``true`` on the PLACE of a message that was addressed to this
  member but whose payload no member holds any more. `together`, `joined`, `left`, `known` and `parts` are lists of names.
- lists are tuples in an `Event`, so that rows may share them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple

SCHEMA_VERSION = 1


class TraceError(Exception):
    """A trace cannot be written, read or understood. The text is one sentence for a person."""


@dataclass(slots=True)
class Event:
    """One row. Never changed after it is made; not frozen only because that would triple the cost of making one."""

    run: str
    group: str
    protocol: str
    member: str
    incarnation: int
    local_index: int
    time_ns: int
    clock: str
    kind: str
    view: str | None = None
    members: tuple[str, ...] | None = None
    previous_view: str | None = None
    transitional: tuple[str, ...] | None = None
    parts: tuple[str, ...] | None = None
    origin: str | None = None
    origin_incarnation: int | None = None
    first: int | None = None
    count: int | None = None
    service: str | None = None
    destinations: tuple[str, ...] | None = None
    ordinal: int | None = None
    position: int | None = None
    digest: int | None = None
    frontier: tuple[int, ...] | None = None
    transaction: str | None = None
    decision: str | None = None
    reason: str | None = None
    attributes: dict[str, str] | None = None


class BadRow(NamedTuple):
    """A row that cannot be used: why, and whose it says to be."""

    text: str
    run: str | None = None
    member: str | None = None
    incarnation: int = 0


class Column(NamedTuple):
    """A column's name, its logical type (a key of `TYPES`), whether it may be null, and what it means."""

    name: str
    type: str
    nullable: bool
    meaning: str


COLUMNS: tuple[Column, ...] = (
    Column("run", "string", False, "which run"),
    Column("group", "string", False, "which group"),
    Column("protocol", "string", False, "which order"),
    Column("member", "string", False, "whose event: the address"),
    Column("incarnation", "long", False, "which life of the process at that address"),
    Column("local_index", "long", False, "0, 1, 2, … without gaps for each member and incarnation"),
    Column("time_ns", "long", False, "the member's clock, in nanoseconds"),
    Column("clock", "string", False, "what time_ns is: real (monotonic) or simulated (virtual)"),
    Column("kind", "string", False, "what happened, one of KINDS"),
    Column("view", "string", True, "number@proposer"),
    Column("members", "list<string>", True, "on VIEW and SHOW: the members by rank"),
    Column("previous_view", "string", True, "on VIEW: the view that this member came from"),
    Column("transitional", "list<string>", True, "on VIEW: who came along from the previous view"),
    Column("parts", "list<string>", True, "on VIEW: the views that were merged"),
    Column("origin", "string", True, "the batch: address of its caster"),
    Column("origin_incarnation", "long", True, "the batch: incarnation of its caster"),
    Column("first", "long", True, "the batch: index of its first message, running on across views"),
    Column("count", "long", True, "the batch: how many messages"),
    Column("service", "string", True, "what the batch was promised: total, causal, fifo, …"),
    Column("destinations", "list<string>", True, "who is addressed; null: all of the view"),
    Column("ordinal", "long", True, "on DELIVER and PLACE: 0, 1, 2, … per member, view and service"),
    Column("position", "long", True, "place in the total order, where the protocol stamps one"),
    Column("digest", "long", True, "hash of the payloads"),
    Column("frontier", "list<long>", True, "on CAST: by rank, how many messages were delivered here in this view"),
    Column("transaction", "string", True, "two-phase commit: which"),
    Column("decision", "string", True, "on VOTE yes or no; on DECIDE commit or abort"),
    Column("reason", "string", True, "why dropped, left or ended; on VIEW: its order, if that is not `protocol`"),
    Column("attributes", "map<string,string>", True, "the rest"),
)
NAMES: tuple[str, ...] = tuple(column.name for column in COLUMNS)

JOIN, LEAVE, VIEW, CAST, RECEIVE, ORDERED = "JOIN", "LEAVE", "VIEW", "CAST", "RECEIVE", "ORDERED"
DELIVER, PLACE, STABLE, BLOCK, UNBLOCK = "DELIVER", "PLACE", "STABLE", "BLOCK", "UNBLOCK"
VOTE, DECIDE, SNAPSHOT_OUT, SNAPSHOT_IN = "VOTE", "DECIDE", "SNAPSHOT_OUT", "SNAPSHOT_IN"
SUSPECT, PAUSE, HEAL, DROP, COUNTERS = "SUSPECT", "PAUSE", "HEAL", "DROP", "COUNTERS"
TRANSITION, SHOW, RECEIPT, STATE = "TRANSITION", "SHOW", "RECEIPT", "STATE"
CRASH, END = "CRASH", "END"
KINDS = frozenset(
    f"{JOIN} {LEAVE} {VIEW} {CAST} {RECEIVE} {ORDERED} {DELIVER} {PLACE} {STABLE} {BLOCK} {UNBLOCK} {VOTE} {DECIDE} "
    f"{SNAPSHOT_OUT} {SNAPSHOT_IN} {SUSPECT} {PAUSE} {HEAL} {DROP} {COUNTERS} {TRANSITION} {SHOW} {RECEIPT} {STATE} "
    f"{CRASH} {END}".split()
)
SHOWN = frozenset({TRANSITION, SHOW, RECEIPT, STATE})
"""What the application was shown or told; their attributes are in docs/trace-conventions.md."""
DATED_BACK = frozenset({SNAPSHOT_OUT, SNAPSHOT_IN})
"""Rows whose time is that of an earlier one: a state is dated by the delivery that it reaches to."""
STAGES = ("delivered", "applied", "stable")
"""The stages of a receipt that are recorded, each later than those before it."""
OK, UNCERTAIN = "ok", "uncertain"
"""How a stage ended."""
ENDINGS = frozenset({LEAVE, CRASH, END})
TOTAL, DATAGRAM = "total", "datagram"
"""The service whose deliveries are one sequence. A group can carry several services."""
NOT_KNOWN = "?"
"""Stands for the run or the group of rows that do not tell it. So no run and no group has this name."""
CLOCKS = frozenset({"real", "simulated"})
CUT = "cut"
"""The reason of an END that stopped the run while messages were still under way."""

_BATCH = ("view", "origin", "origin_incarnation", "first", "count")
REQUIRED: dict[str, tuple[str, ...]] = {
    VIEW: ("view", "members"),
    CAST: (*_BATCH, "service"),
    RECEIVE: _BATCH,
    ORDERED: _BATCH,
    DELIVER: (*_BATCH, "service", "ordinal"),
    PLACE: (*_BATCH, "service", "ordinal"),
    TRANSITION: ("view",),
    SHOW: ("view", "members"),
    RECEIPT: ("origin", "origin_incarnation", "first", "count"),
}
"""Nullable columns that a row of this kind must have all the same."""

DECISIONS: dict[str, frozenset[str]] = {VOTE: frozenset({"yes", "no"}), DECIDE: frozenset({"commit", "abort"})}
"""What `decision` may be in a row of this kind; other kinds have none."""

VIEW_DIGITS_MAX = 18
"""Digits of a view's number."""


def member_name(address: str, incarnation: int) -> str:
    """How a member is written in lists and in sentences."""
    return f"{address}#{incarnation}" if incarnation else address


def not_a_name(column: str) -> str:
    """Why a row of this run or group is refused."""
    return f"{NOT_KNOWN!r} stands for a {column} that is not known; give the {column} another name."


def view_number(view: str) -> int:
    """The number in a view's id; -1 if there is none, or one of more digits than 64 bits hold."""
    number, at, _ = view.partition("@")
    return int(number) if at and len(number) <= VIEW_DIGITS_MAX and number.isascii() and number.isdigit() else -1


def attribute(value: object) -> str:
    """A value as the attributes hold it: a string as it is, anything else as JSON without spaces."""
    if isinstance(value, str):
        return str(value)
    if type(value) in _LISTS and set(map(type, value)) <= _WHOLE:  # type: ignore[call-overload]
        return f"[{','.join(map(str, value))}]"  # type: ignore[call-overload]  # vectors, without the encoder
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return str(value)  # a member or a view, which are tuples with a name of their own
    return json.dumps(value, separators=(",", ":"), default=_plain)


_LISTS = frozenset({list, tuple})
_WHOLE = frozenset({int})


def _plain(value: object) -> object:
    return sorted(str(item) for item in value) if isinstance(value, set | frozenset) else str(value)


# Events to rows and back.

values_of: Callable[[Event], tuple[Any, ...]] = attrgetter(*NAMES)
"""All values of an event in the order of the columns."""
_encode = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode


def to_row(event: Event) -> dict[str, Any]:
    """The event as a JSON object: columns in order, nulls left out."""
    return {name: value for name, value in zip(NAMES, values_of(event), strict=True) if value is not None}


def to_line(event: Event) -> str:
    """The event as one line of a JSON lines file."""
    return _encode(to_row(event)) + "\n"


def from_row(row: object, where: str) -> Event:
    """The event of a JSON object, checked column by column. `where` says where the row was found, for the error."""
    if not isinstance(row, Mapping):
        raise TraceError(f"{where}: a row must be a JSON object, not {_shown(row)}.")
    values = [row.get(name) for name in NAMES]
    for place, ((name, kind, nullable, _), value) in enumerate(zip(COLUMNS, values, strict=True)):
        if value is None:
            if not nullable:
                raise TraceError(f"{where}, column {name}: is missing.")
        elif kind == "string":
            if type(value) is not str:
                raise TraceError(f"{where}, column {name}: must be {TYPES[kind]}, not {_shown(value)}.")
        elif kind == "long":
            if type(value) is not int or not -(2**63) <= value < 2**63:
                raise TraceError(f"{where}, column {name}: must be {TYPES[kind]}, not {_shown(value)}.")
        else:
            values[place] = _collection(value, kind, f"{where}, column {name}")
    if any(name not in _KNOWN for name in row):
        unknown = min(str(name) for name in row if name not in _KNOWN)
        raise TraceError(f"{where}, column {unknown}: there is no such column in version {SCHEMA_VERSION}.")
    event = Event(*values)  # type: ignore[arg-type]  # every column was checked just now
    _check_meaning(event, where)
    return event


def from_line(line: str, where: str) -> Event:
    """The event of one line of a JSON lines file."""
    try:
        row = _each_name_once.decode(line)
    except ValueError as error:
        raise TraceError(f"{where}: this line is not JSON ({error}).") from None
    except RecursionError:
        raise TraceError(f"{where}: this line is nested too deeply.") from None
    if "\\ud" in line or "\\uD" in line:  # JSON can escape half of a pair; Parquet and Spark cannot hold it
        try:
            json.dumps(row, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise TraceError(f"{where}: this line holds half a character, which is not UTF-8.") from None
    return from_row(row, where)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON. Of a name that is there twice, one reader would take the first value, and another the last."""
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        name = next(name for name in found if names.count(name) > 1)
        raise ValueError(f"it has the name {_shown(name)} twice")
    return found


_each_name_once = json.JSONDecoder(object_pairs_hook=_object)

TYPES: dict[str, str] = {
    "string": "a string",
    "long": "a whole number of 64 bits",
    "list<string>": "a list of strings",
    "list<long>": "a list of whole numbers",
    "map<string,string>": "an object whose values are strings",
}
"""The logical types, each in words."""
_KNOWN = frozenset(NAMES)
NOT_NEGATIVE = ("incarnation", "local_index", "origin_incarnation", "first", "ordinal")
INDEX_MAX = 1 << 62
"""The greatest of these numbers: sums of two do not overflow."""
COUNT_MAX = 1 << 24
"""Messages of one batch. A judge may have to look at each."""


def _collection(value: object, kind: str, where: str) -> object:
    """A list as a tuple or a map as a dict, its items checked."""
    if kind == "map<string,string>":
        if isinstance(value, Mapping) and all(type(item) is str for pair in value.items() for item in pair):
            return dict(value)
    elif isinstance(value, list | tuple):
        wanted: type = str if kind == "list<string>" else int
        if all(type(item) is wanted for item in value):
            return tuple(value)
    raise TraceError(f"{where}: must be {TYPES[kind]}, not {_shown(value)}.")


def _check_meaning(event: Event, where: str) -> None:
    """What the types alone cannot say."""
    if event.kind not in KINDS:
        raise TraceError(f"{where}, column kind: there is no kind {_shown(event.kind)}.")
    if event.clock not in CLOCKS:
        raise TraceError(f"{where}, column clock: must be real or simulated, not {_shown(event.clock)}.")
    for name in ("run", "group"):
        if getattr(event, name) == NOT_KNOWN:
            raise TraceError(f"{where}, column {name}: {not_a_name(name)}")
    for name in REQUIRED.get(event.kind, ()):
        if getattr(event, name) is None:
            raise TraceError(f"{where}, column {name}: is missing, and a {event.kind} row needs it.")
    for name in NOT_NEGATIVE:
        if (getattr(event, name) or 0) < 0:
            raise TraceError(f"{where}, column {name}: must not be negative, but is {getattr(event, name)}.")
        if (getattr(event, name) or 0) > INDEX_MAX:
            raise TraceError(f"{where}, column {name}: must be at most {INDEX_MAX}, but is {getattr(event, name)}.")
    if event.count is not None and not 1 <= event.count <= COUNT_MAX:
        raise TraceError(
            f"{where}, column count: a batch holds at least one message and at most {COUNT_MAX:,}, not {event.count}."
        )
    if "#" in event.member or "#" in (event.origin or ""):
        column = "member" if "#" in event.member else "origin"
        raise TraceError(f"{where}, column {column}: an address has no '#'; the incarnation has its own column.")
    if event.view is not None and view_number(event.view) < 0:
        raise TraceError(f"{where}, column view: must be number@proposer, not {_shown(event.view)}.")
    if event.kind in DECISIONS and event.decision not in DECISIONS[event.kind]:
        words = " or ".join(sorted(DECISIONS[event.kind]))
        raise TraceError(
            f"{where}, column decision: must be {words} on a {event.kind} row, not {_shown(event.decision)}."
        )
    if event.kind == CAST and (event.origin, event.origin_incarnation) != (event.member, event.incarnation):
        raise TraceError(f"{where}, column origin: {event.member} cannot cast a message of {_shown(event.origin)}.")


def _shown(value: object) -> str:
    try:
        text = repr(value)
    except RecursionError:
        return "a value that is nested too deeply"
    return text if len(text) <= 60 else text[:57] + "..."
