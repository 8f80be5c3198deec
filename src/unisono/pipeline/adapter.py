"""Other systems' logs as traces: a mapping says what their columns mean, and every line becomes one event in our schema.

A log is CSV with a header, or JSON lines. The mapping is TOML (or a dict of the same shape):

```toml
format = "csv"                       # or "jsonl"
# properties = ["P1", "P2", "P9a"]   # what to judge by, instead of an order in `protocol`; P0 is always asked

[constants]                          # our columns that their log does not have
run = "night-7"
group = "orders"
protocol = "fifo-total"              # which promises to judge by: see `unisono sim orders` (or `properties`, below)
clock = "real"
service = "total"

[columns]                            # their column = our column
node = "member"
what = "kind"

[kinds]                              # their word = our kind; "-" leaves such lines out
send = "CAST"
deliver = "DELIVER"
heartbeat = "-"

[patterns]                           # their column = a regular expression whose named groups are our columns
msg = '(?P<origin>\\w+)/(?P<first>\\d+)'

[templates]                          # our column = text with their columns in braces
view = "{epoch}@{coordinator}"

[scale]                              # our column = what to multiply their number with
time_ns = 1000                       # they have microseconds

[lists]                              # our column = what stands between the items of theirs
members = " "

[order]
local_index = "by line"              # or the name of their counter
```

What can be known without being told is filled in: `incarnation`, `origin_incarnation` and `time_ns` are 0, `count` is 1, the caster
of a CAST is its member, `ordinal` counts deliveries per member, view and service. A `digest` that is no number is hashed. Empty
fields are absent. A log that does not tell how its members ended gets no END from us, and one without digests does not show that
what was delivered is what was cast: their verdict can be FAIL or UNKNOWN, not PASS.
"""

from __future__ import annotations

import csv
import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from itertools import groupby
from pathlib import Path
from typing import Any

from unisono.pipeline.session import PipelineError
from unisono.trace.checks.properties import CHECKERS
from unisono.trace.files import lines_of, open_regular, parse_json, parse_toml, read_text
from unisono.trace.promises import PROMISES, is_known, order_that_owes
from unisono.trace.schema import CAST, COLUMNS, DELIVER, KINDS, NAMES, PLACE, Event, TraceError, from_row
from unisono.trace.sinks import FolderSink

BY_LINE = "by line"
LEFT_OUT = "-"
_TYPES = {column.name: column.type for column in COLUMNS}
_PART = re.compile(r"\{([^{}]+)\}")
_BATCHES = frozenset({"CAST", "RECEIVE", "ORDERED", "DELIVER", "PLACE"})


@dataclass(frozen=True)
class Mapped:
    """A mapping that was checked: every name in it exists."""

    format: str
    properties: tuple[str, ...] = ()
    constants: Mapping[str, Any] = field(default_factory=dict)
    columns: Mapping[str, str] = field(default_factory=dict)
    kinds: Mapping[str, str] = field(default_factory=dict)
    patterns: Mapping[str, str] = field(default_factory=dict)
    templates: Mapping[str, str] = field(default_factory=dict)
    scale: Mapping[str, int] = field(default_factory=dict)
    lists: Mapping[str, str] = field(default_factory=dict)
    order: Mapping[str, str] = field(default_factory=dict)


def load_mapping(source: Path | Mapping[str, Any]) -> Mapped:
    """Read and check a mapping."""
    where = str(source) if isinstance(source, Path) else "the mapping"
    try:
        data = parse_toml(read_text(source)) if isinstance(source, Path) else dict(source)
    except OSError as error:
        raise PipelineError(f"{where} cannot be read: {error.strerror or error}.") from None
    except ValueError as error:
        raise PipelineError(f"{where} is not TOML: {error}.") from None
    known = {part.name for part in fields(Mapped)}
    if unknown := sorted(data.keys() - known):
        raise PipelineError(
            f"{where}: there is no [{unknown[0]}] in a mapping: choose among {', '.join(sorted(known))}."
        )
    if data.get("format") not in ("csv", "jsonl"):
        raise PipelineError(f'{where}: format must be "csv" or "jsonl", not {data.get("format")!r}.')
    properties = data.get("properties", [])
    if not isinstance(properties, list | tuple) or not all(isinstance(one, str) for one in properties):
        raise PipelineError(f"{where}: properties must be a list of names, such as P1 and P9a.")
    data["properties"] = tuple(properties)
    for part in known - {"format", "properties"}:
        if not isinstance(data.get(part, {}), Mapping):
            raise PipelineError(f"{where}: [{part}] must be a table.")
    mapping = Mapped(**data)
    _check(mapping, where)
    return mapping


def _check(mapping: Mapped, where: str) -> None:
    try:
        groups = [name for pattern in mapping.patterns.values() for name in re.compile(pattern).groupindex]
    except re.error as error:
        raise PipelineError(f"{where}: [patterns] {error.pattern!r} is no regular expression: {error}.") from None
    ours = [*mapping.constants, *mapping.columns.values(), *groups, *mapping.templates, *mapping.scale, *mapping.lists]
    for name in ours:
        if name not in NAMES:
            raise PipelineError(f"{where}: a trace has no column {name!r}: choose among {', '.join(NAMES)}.")
    _check_order(mapping, where, {*mapping.columns.values(), *groups, *mapping.templates})
    for theirs, kind in mapping.kinds.items():
        if kind not in KINDS and kind != LEFT_OUT:
            raise PipelineError(
                f'{where}: [kinds] {theirs} = {kind!r}: choose among {", ".join(sorted(KINDS))}, or "-".'
            )
    if set(mapping.order) - {"local_index"}:
        raise PipelineError(f'{where}: [order] knows local_index alone: "by line", or the name of their counter.')


def _check_order(mapping: Mapped, where: str, mapped: set[str]) -> None:
    """What a log is judged by must be said: guessing would ask for too little."""
    unknown = sorted(set(mapping.properties) - CHECKERS.keys())
    if unknown:
        raise PipelineError(f"{where}: there is no property {unknown[0]!r}: choose among {', '.join(CHECKERS)}.")
    order, is_mapped = mapping.constants.get("protocol"), "protocol" in mapped
    if mapping.properties:
        if order is not None or is_mapped:
            raise PipelineError(f"{where}: give either an order in `protocol` or a list of `properties`, not both.")
    elif order is None and not is_mapped:
        raise PipelineError(
            f'{where}: say what to judge by: an order in [constants] (protocol = "fifo-total"), or a list of properties '
            '(properties = ["P1", "P9a"]).'
        )
    elif order is not None and not is_known(str(order)):
        raise PipelineError(
            f"{where}: nothing is promised for the order {order!r}: choose among {', '.join(sorted(PROMISES))}, or list the "
            'properties (properties = ["P1", "P9a"]).'
        )


def adapt_files(paths: Iterable[Path], mapping: Mapped) -> Iterator[Event]:
    """The events of these logs, line after line. What does not fit is an error that names file and line."""
    adapter = _Adapter(mapping)
    for path in paths:
        for where, row in _rows(path, mapping.format):
            event = adapter.event(row, where)
            if event is not None:
                yield event


def write_trace(events: Iterable[Event], folder: Path) -> Counter[tuple[str, str, int]]:
    """Write events as a trace folder, one life after the other; how many rows each has, is returned."""
    sinks: dict[tuple[str, str, int], FolderSink] = {}
    counts: Counter[tuple[str, str, int]] = Counter()
    try:
        for life, rows in groupby(events, key=lambda event: (event.run, event.member, event.incarnation)):
            if life not in sinks:
                sinks[life] = FolderSink(folder, *life)
            some = list(rows)
            sinks[life].write(some)
            counts[life] += len(some)
    finally:
        for sink in sinks.values():
            sink.close()
    if not counts:
        raise PipelineError("there is no event in these logs: is the mapping the right one?")
    return counts


def _rows(path: Path, form: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each line of a log with the place where it was found."""
    try:
        with open_regular(path) as file:
            lines = (line.decode("utf-8") for line in lines_of(file))
            if form == "csv":
                reader = csv.DictReader(lines, strict=True)
                for row in reader:
                    where = f"{path}, line {reader.line_num}"
                    if None in row or None in row.values():
                        raise PipelineError(
                            f"{where}: the header has {len(reader.fieldnames or ())} fields, this line has not."
                        )
                    yield where, row
                return
            for number, line in enumerate(lines, 1):
                where = f"{path}, line {number}"
                if line.strip():
                    yield where, _object(line, where)
    except OSError as error:
        raise PipelineError(f"{path} cannot be read: {error.strerror or error}.") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise PipelineError(f"{path} is not {'CSV' if form == 'csv' else 'JSON lines'} in UTF-8: {error}.") from None


def _object(line: str, where: str) -> dict[str, Any]:
    try:
        row = parse_json(line)
    except ValueError as error:
        raise PipelineError(f"{where}: this line is not JSON ({error}).") from None
    if not isinstance(row, dict):
        raise PipelineError(f"{where}: a line must be a JSON object.")
    return row


class _Adapter:
    """Turns rows of theirs into events, and counts what they did not number."""

    def __init__(self, mapping: Mapped) -> None:
        self._mapping = mapping
        self._patterns = {theirs: re.compile(pattern) for theirs, pattern in mapping.patterns.items()}
        self._index: Counter[tuple[str, str, int]] = Counter()
        self._ordinals: Counter[tuple[Any, ...]] = Counter()

    def event(self, row: Mapping[str, Any], where: str) -> Event | None:
        """The event of one line, or None if the mapping leaves such lines out."""
        values = {name: value for name, value in self._values(row, where).items() if value not in (None, "")}
        word = str(values.get("kind", ""))
        kind = self._mapping.kinds.get(word, word)
        if kind == LEFT_OUT:
            return None
        if kind not in KINDS:
            raise PipelineError(f"{where}: the mapping does not say what kind {word!r} is: add it to [kinds].")
        typed = {name: self._typed(name, value, f"{where}, column {name}") for name, value in values.items()}
        typed["kind"] = kind
        self._fill_in(typed)
        try:
            return from_row(typed, where)
        except TraceError as error:
            raise PipelineError(f"{error} (Our column names: see the mapping.)") from None

    def _values(self, row: Mapping[str, Any], where: str) -> dict[str, Any]:
        mapping = self._mapping
        values: dict[str, Any] = dict(mapping.constants)
        if mapping.properties:
            values["protocol"] = order_that_owes(mapping.properties)
        for theirs, ours in mapping.columns.items():
            values[ours] = self._theirs(row, theirs, where)
        for theirs, pattern in self._patterns.items():
            text = self._theirs(row, theirs, where)
            if text in (None, ""):
                continue
            found = pattern.fullmatch(str(text))
            if found is None:
                raise PipelineError(
                    f"{where}: {theirs} is {text!r}, which the pattern {pattern.pattern!r} does not match."
                )
            values |= found.groupdict()
        for ours, template in mapping.templates.items():
            parts = {part: self._theirs(row, part, where) for part in _PART.findall(template)}
            if not {None, ""} & set(parts.values()):
                values[ours] = _PART.sub(lambda found, parts=parts: str(parts[found[1]]), template)  # type: ignore[misc]
        counter = mapping.order.get("local_index", BY_LINE)
        if counter != BY_LINE:
            values["local_index"] = self._theirs(row, counter, where)
        return values

    def _theirs(self, row: Mapping[str, Any], name: str, where: str) -> Any:
        if name not in row and self._mapping.format == "csv":
            raise PipelineError(f"{where}: the log has no column {name!r}: it has {', '.join(row)}.")
        return row.get(name)

    def _typed(self, name: str, value: Any, where: str) -> Any:
        """Their value as our column's type wants it."""
        kind = _TYPES[name]
        if kind == "string":
            return value if isinstance(value, str) else json.dumps(value)
        if kind == "long":
            return self._number(name, value, where)
        if kind.startswith("list"):
            items = value.split(self._mapping.lists.get(name, " ")) if isinstance(value, str) else value
            numbers = kind == "list<long>"
            return [self._number(name, item, where) if numbers else str(item) for item in items if item != ""]
        return {str(key): str(item) for key, item in dict(value).items()} if isinstance(value, Mapping) else value

    def _number(self, name: str, value: Any, where: str) -> int:
        scale = self._mapping.scale.get(name, 1)
        if isinstance(value, int) and not isinstance(value, bool):
            return value * scale
        text = str(value).strip()
        if re.fullmatch(r"[+-]?\d+", text):
            return int(text) * scale
        if re.fullmatch(r"[+-]?\d*\.\d+", text) and name in self._mapping.scale:
            return round(float(text) * scale)
        if name == "digest":
            return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little", signed=True)
        raise PipelineError(f"{where}: must be a whole number, not {value!r}.")

    def _fill_in(self, values: dict[str, Any]) -> None:
        values.setdefault("incarnation", 0)
        values.setdefault("time_ns", 0)
        if values["kind"] in _BATCHES:
            values.setdefault("count", 1)
            values.setdefault("origin_incarnation", values["incarnation"] if values["kind"] == CAST else 0)
            if values["kind"] == CAST:
                values.setdefault("origin", values.get("member"))
        life = (str(values.get("run")), str(values.get("member")), values["incarnation"])
        if "local_index" not in values:
            values["local_index"] = self._index[life]
        self._index[life] += 1
        if values["kind"] in (DELIVER, PLACE) and "ordinal" not in values:
            place = (*life, values.get("view"), values.get("service"))
            values["ordinal"] = self._ordinals[place]
            self._ordinals[place] += 1
