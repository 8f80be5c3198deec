"""A batch of rows as numpy arrays: what the fast scan (`scan`) computes with.

`Columns` turns a column into an array when it is first asked for. `Batches` are its CAST or DELIVER rows, with two hashes of each
message. Words stay codes into a short list of words, so that a comparison costs a pass over integers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow
import pyarrow.compute as pc

from unisono.trace.schema import REQUIRED, member_name

if TYPE_CHECKING:
    import numpy.typing as npt

    Longs = npt.NDArray[np.int64]
    Words = npt.NDArray[np.uint64]
    Codes = npt.NDArray[np.int32]
    Bools = npt.NDArray[np.bool_]
    Rows = Longs | slice

WHOSE_LIFE = ("run", "group", "member", "incarnation")
WORD_MASK = 0xFFFFFFFFFFFFFFFF
_INDEX, _COUNT = np.uint64(0xD6E8FEB86659FD93), np.uint64(0xA0761D6478BD642F)
_ORDINAL, _DIGEST = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xE7037ED1A0B428DB)


def mix(x: Words) -> Words:
    """A 64-bit mixer (splitmix64's finaliser): every bit of the input moves half of the output's."""
    x = x ^ (x >> np.uint64(30))
    x *= np.uint64(0xBF58476D1CE4E5B9)
    x ^= x >> np.uint64(27)
    x *= np.uint64(0x94D049BB133111EB)
    x ^= x >> np.uint64(31)
    return x


@lru_cache(maxsize=65_536)
def seed(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def is_consecutive(numbers: Longs) -> bool:
    """Whether each number is the one before it plus one."""
    return int(numbers[-1]) - int(numbers[0]) == len(numbers) - 1 and bool(np.all(numbers[1:] > numbers[:-1]))


class Columns:
    """The columns of a batch of rows as numpy arrays, each made when it is first asked for."""

    def __init__(self, table: pyarrow.Table) -> None:
        self._table = table
        self._longs: dict[str, Longs] = {}
        self._codes: dict[str, tuple[Codes, list[str]]] = {}
        self._nulls: dict[str, Bools] = {}

    def __len__(self) -> int:
        return len(self._table)

    def value(self, name: str, row: int) -> Any:
        return self._table.column(name)[row].as_py()

    def values(self, name: str) -> list[Any]:
        values: list[Any] = self._table.column(name).to_pylist()
        return values

    def longs(self, name: str) -> Longs:
        """A column of integers; null is 0."""
        if name not in self._longs:
            column = self._table.column(name)
            filled = pc.fill_null(column, 0) if column.null_count else column
            self._longs[name] = np.asarray(filled.to_numpy(), np.int64)
        return self._longs[name]

    def codes(self, name: str) -> tuple[Codes, list[str]]:
        """A column of words: the place of each row's word in a list of words; null is -1."""
        if name not in self._codes:
            column = self._table.column(name)
            if not pyarrow.types.is_dictionary(column.type):
                column = column.dictionary_encode()
            if column.num_chunks != 1:
                column = column.unify_dictionaries().combine_chunks()
            chunk = column.chunk(0) if isinstance(column, pyarrow.ChunkedArray) else column
            if len({*chunk.dictionary.to_pylist(), None}) <= len(chunk.dictionary):  # a word twice, or null as a word
                chunk = chunk.dictionary_decode().dictionary_encode()
            indices = chunk.indices.fill_null(-1) if chunk.null_count else chunk.indices
            self._codes[name] = np.asarray(indices.to_numpy(), np.int32), chunk.dictionary.to_pylist()
        return self._codes[name]

    def lacks(self, name: str, rows: Rows | Bools) -> bool:
        """Whether one of these rows has no value."""
        return bool(self._table.column(name).null_count) and bool(np.any(self._null(name)[rows]))

    def has(self, name: str, rows: Rows) -> bool:
        """Whether one of these rows has a value."""
        return self._table.column(name).null_count < len(self) and not np.all(self._null(name)[rows])

    def _null(self, name: str) -> Bools:
        if name not in self._nulls:
            self._nulls[name] = pc.is_null(self._table.column(name)).to_numpy()
        return self._nulls[name]

    def is_one(self, name: str) -> bool:
        """Whether all rows have one value."""
        column = self._table.column(name)
        if column.null_count:
            return bool(column.null_count == len(column))
        if pyarrow.types.is_integer(column.type):
            bounds = pc.min_max(column).as_py()
            return bool(bounds["min"] == bounds["max"])
        codes, words = self.codes(name)
        return len(words) == 1 or bool(np.all(codes == codes[0]))


def by_life(table: pyarrow.Table) -> Iterator[tuple[tuple[Any, ...], pyarrow.Table]]:
    """The rows of a batch, life by life. A segment holds one life, as a rule, and then the batch stays as it is."""
    if not len(table):
        return
    columns = Columns(table)
    differing = [name for name in WHOSE_LIFE if not columns.is_one(name)]
    if not differing:
        yield tuple(columns.value(name, 0) for name in WHOSE_LIFE), table
        return
    number = np.zeros(len(table), np.int64)
    for name in differing:
        values = columns.longs(name) if name == "incarnation" else columns.codes(name)[0]
        known, codes = np.unique(values, return_inverse=True)
        _, number = np.unique(number * len(known) + codes, return_inverse=True)
    order = np.argsort(number, kind="stable")
    starts = np.flatnonzero(np.diff(number[order], prepend=-1))
    sorted_rows = table.take(pyarrow.array(order))
    for start, stop in pairwise([*starts.tolist(), len(table)]):
        rows = sorted_rows.slice(start, stop - start)
        yield tuple(rows.column(name)[0].as_py() for name in WHOSE_LIFE), rows


class Batches:
    """Some CAST or DELIVER rows."""

    def __init__(self, columns: Columns, rows: Longs, kind: str) -> None:
        # Rows that follow each other are looked at where they are; others are copied together.
        self._rows: Rows = slice(int(rows[0]), int(rows[-1]) + 1) if is_consecutive(rows) else rows
        self._columns = columns
        for name in REQUIRED[kind]:
            if columns.lacks(name, self._rows):
                raise ValueError(f"a {kind} row without {name}.")
        self.first, self.count, self.ordinal = map(self._longs, ("first", "count", "ordinal"))
        self.lacks_digest = columns.lacks("digest", self._rows)
        self.has_destinations = columns.has("destinations", self._rows)
        codes, names = columns.codes("origin")
        lives = self._longs("origin_incarnation")
        if min(int(self.first.min()), int(lives.min()), int(self.ordinal.min()), int(self.count.min()) - 1) < 0:
            raise ValueError(f"a {kind} row with a negative number, or without messages.")
        self.origin, self.origin_names = _lives(codes[self._rows], names, lives)

    def __len__(self) -> int:
        return len(self.first)

    def _longs(self, name: str) -> Longs:
        return self._columns.longs(name)[self._rows]

    @cached_property
    def ends(self) -> Longs:
        return self.first + self.count

    @cached_property
    def message(self) -> Words:
        """A hash of origin, index and number of messages."""
        seeds = np.array([seed(name) for name in self.origin_names], np.uint64)
        return mix(seeds[self.origin] + self.first.view(np.uint64) * _INDEX + self.count.view(np.uint64) * _COUNT)

    @cached_property
    def hashes(self) -> tuple[Words, Words]:
        """Two hashes of message and payload digest, which join the two in different ways.

        Digests that were chosen so that the words of one change places change the other.
        """
        digest = self._longs("digest").view(np.uint64)
        return mix(self.message ^ digest), mix(self.message + digest * _DIGEST)

    def placed(self, rows: Rows, ordinal: Longs) -> Words:
        """A hash of each of these messages with its place in the sequence."""
        return mix(self.message[rows] + ordinal.view(np.uint64) * _ORDINAL)

    def all_of_view(self, view: str | None) -> bool:
        codes, words = self._columns.codes("view")
        chosen = codes[self._rows]
        return bool(chosen[0] >= 0) and words[chosen[0]] == view and bool(np.all(chosen == chosen[0]))

    @cached_property
    def by_service(self) -> list[tuple[str, Rows]]:
        """Each service with the places of its rows among these."""
        codes, words = self._columns.codes("service")
        if len(words) == 1:
            return [(words[0], slice(None))]
        chosen = codes[self._rows]
        return [(words[code], np.flatnonzero(chosen == code)) for code in np.flatnonzero(np.bincount(chosen))]

    @property
    def origins_used(self) -> list[str]:
        return [self.origin_names[code] for code in np.flatnonzero(np.bincount(self.origin))]

    @property
    def by_origin(self) -> Iterator[tuple[str, Longs]]:
        """Each origin with the places of its rows among these, in their order."""
        order = np.argsort(self.origin, kind="stable")
        bounds = np.searchsorted(self.origin[order], np.arange(len(self.origin_names) + 1)).tolist()
        for name, (start, end) in zip(self.origin_names, pairwise(bounds), strict=True):
            if end > start:
                yield name, order[start:end]

    def of_service(self, service: str, rows: Longs) -> Longs:
        """Those of these places whose rows are of a service."""
        codes, words = self._columns.codes("service")
        if len(words) == 1:
            return rows
        chosen: Longs = rows[codes[self._rows][rows] == words.index(service)]
        return chosen


def _lives(codes: Codes, names: list[str], lives: Longs) -> tuple[npt.NDArray[np.uint16 | np.int64], list[str]]:
    """Addresses and incarnations as codes of members. Few codes are kept as short numbers, which sort faster."""
    if len(names) < 1 << 16:
        place = np.zeros(len(names), np.intp)
        place[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)  # the first row of each address is written last
        first_lives = lives[place]
        if np.array_equal(first_lives[codes], lives):  # each address has one life here, as a rule
            return codes.astype(np.uint16), list(map(member_name, names, first_lives.tolist()))
    known, which = np.unique(lives, return_inverse=True)
    pairs, packed = np.unique(codes.astype(np.int64) * len(known) + which, return_inverse=True)
    both = (divmod(pair, len(known)) for pair in pairs.tolist())
    return packed, [member_name(names[address], int(known[life])) for address, life in both]
