"""Which row of which query a message is, so that a row that was cast twice counts once. Needs no Spark.

A message that the sink casts begins with a line, and the row's payload follows behind it, unchanged:

    unisono:row <query> <batch> <partition> <row>

Spark runs a task again when it failed or its executor was lost, and may run two attempts side by side. All attempts cast the same
rows with the same names, provided that the query's plan gives the same rows in the same order when it is computed again.
"""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from typing import Final, NamedTuple

QUERIES_MAX: Final = 1_000
LINE: Final = r"^unisono:row ([0-9A-Za-z_-]{1,64}) ([0-9]{1,18}) ([0-9]{1,9}) ([0-9]{1,18})\n"
_LINE = re.compile(LINE.encode())


class RowId(NamedTuple):
    """The name of a row: `row` counts the messages that one partition of a micro-batch casts, from 0."""

    query: str
    batch: int
    partition: int
    row: int


def with_id(row: RowId, payload: bytes) -> bytes:
    """A message that says which row it is."""
    return b"unisono:row %s %d %d %d\n%s" % (row.query.encode(), row.batch, row.partition, row.row, payload)


def split_id(message: bytes) -> tuple[RowId | None, bytes]:
    """Which row a message is, and its payload. None: the sink did not cast it, or with `ids=false`."""
    found = _LINE.match(message)
    if found is None:
        return None, message
    query, *numbers = found.groups()
    return RowId(query.decode(), *map(int, numbers)), message[found.end() :]


class Repeats:
    """Tells new rows from repeated ones, for one receiver that is given every message in the order of its delivery.

    It remembers of each query the latest micro-batch, and of that one the next row of each partition: memory grows with partitions,
    not with rows. That is enough, because

    1. one attempt's messages come in its order without gaps, so what several attempts have brought is always rows 0 … n−1;
    2. a micro-batch begins after every row of the one before is stable in the group and its casters have left. What comes
       of an earlier micro-batch later is a repeat from an attempt that was given up.

    A receiver that joins in the middle begins with the rows that it is given. Beyond `queries_max` queries, the least
    recently used one is forgotten, and its repeats would count as new. For a replicated state, put `snapshot` into it.
    """

    def __init__(self, queries_max: int = QUERIES_MAX) -> None:
        self._queries_max = queries_max
        self._queries: OrderedDict[str, tuple[int, dict[int, int]]] = OrderedDict()
        self.dropped = 0
        """How many messages were repeats."""

    def take(self, message: bytes) -> bytes | None:
        """The payload of a message; None if it repeats a row."""
        row, payload = split_id(message)
        if row is None or self.is_new(row):
            return payload
        self.dropped += 1
        return None

    def is_new(self, row: RowId) -> bool:
        """Whether a row was not seen before. From now on it was."""
        batch, following = self._queries.pop(row.query, (row.batch, {}))
        if row.batch > batch:
            batch, following = row.batch, {}
        self._queries[row.query] = batch, following
        if len(self._queries) > self._queries_max:
            self._queries.popitem(last=False)
        if row.batch < batch or row.row < following.get(row.partition, 0):
            return False
        following[row.partition] = row.row + 1
        return True

    def snapshot(self) -> bytes:
        """All that it remembers, for a state that is handed to other members."""
        known = [(query, batch, list(following.items())) for query, (batch, following) in self._queries.items()]
        return json.dumps(known).encode()

    def restore(self, data: bytes) -> None:
        """Go on with what another receiver remembered."""
        self._queries = OrderedDict((query, (batch, dict(following))) for query, batch, following in json.loads(data))
