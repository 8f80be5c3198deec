"""Do all members of a group-to-be hear each other? Probes between every pair of addresses, both ways.

Each address sends small probes to all others, now and then large ones (never cut on the way), and with each probe some of its row:
what it has heard of whom. Rows are passed on, so that a pair which hears nothing of each other is still known to a third address
that hears one of them.

    probe   4 u8 · 0x20 u8 · length u16 · JSON · zeros up to the probe's size

What is said of a pair carries the life and the round of the address that heard it; the latest counts. A program that is started
again has another life: what it had heard, and what was heard of it, is forgotten. In a large group a probe has room for a part of a
row, and the next one goes on where it ended.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from struct import Struct
from struct import error as StructError
from typing import Any, NamedTuple, TypeAlias

from unisono.runtime.addresses import DATAGRAM_BYTES_MIN

VERSION, KIND = 4, 0x20
_HEAD = Struct("<BBH")
SMALL_BYTES = 1_000
CONTENT_BYTES_MAX = 180
"""What a probe says besides rows and names: six numbers, and what is around them."""
SIZES_BYTES = (1_200, 1_452, 1_472, 8_952, 8_972, 60_000)
"""Beyond the small ones: IPv6's least, Ethernet, jumbo frames, loopback; payloads of UDP over IPv6 and IPv4."""
LARGE_EVERY = 5
"""Each address gets a large probe once in this many rounds; not all in the same one, which would fill their sockets."""
SIZES_ROUNDS = 2 * LARGE_EVERY * len(SIZES_BYTES)
"""Rounds until each size has been tried twice with each address."""
LOSS_MAX = 0.05
"""More than this is worth a warning: the streams heal it, slowly."""


Rows: TypeAlias = dict[str, dict[str, list[int]]]
"""By who has heard, then by whom: the life and the round of the former, and the values of a `Heard`."""
VALUES = 7


@dataclass(slots=True)
class Heard:
    """What one address has heard of another."""

    first: int = 0
    highest: int = 0
    received: int = 0
    largest: int = 0
    rtt_ns: int = 0

    def count(self, number: int) -> None:
        """Count a small probe. A probe that comes twice or late was not lost."""
        self.first = min(self.first or number, number)
        self.highest = max(self.highest, number)
        self.received = min(self.received + 1, self.rounds)

    @property
    def rounds(self) -> int:
        return self.highest - self.first + 1

    @property
    def is_possible(self) -> bool:
        return (
            0 <= self.first <= self.highest
            and 0 <= self.received <= self.rounds
            and min(self.largest, self.rtt_ns) >= 0
        )

    @property
    def loss(self) -> float:
        return 1 - self.received / self.rounds if self.received else 1.0


class Pair(NamedTuple):
    """What is known of one direction."""

    source: str
    target: str
    verdict: str
    loss: float | None = None
    largest: int | None = None
    rtt_ns: int | None = None

    @property
    def is_good(self) -> bool:
        return self.verdict == "ok"


@dataclass(slots=True)
class Prober:
    """One address. Sans-IO: `probe` makes what to send, `receive` takes what came."""

    own: str
    peers: Sequence[str]
    life: int = 1
    rows: Rows = field(default_factory=dict)
    refused: int = 0
    _rounds: int = 0
    _told: list[int] = field(default_factory=lambda: [0, 0])  # of the own row, and of the others': where to go on
    _heard: dict[str, Heard] = field(default_factory=dict)
    _lives: dict[str, int] = field(default_factory=dict)
    _last_at: dict[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def others(self) -> list[str]:
        return [peer for peer in self.peers if peer != self.own]

    def probe(self, now: int) -> list[tuple[str, bytes]]:
        """A round: a small probe to each other address, and every few rounds a large one."""
        self._rounds += 1
        self._write_row()
        rows = self._some_rows()
        out = [(peer, self._make(peer, self._rounds, SMALL_BYTES, now, rows)) for peer in self.others]
        size = SIZES_BYTES[self._rounds // LARGE_EVERY % len(SIZES_BYTES)]
        turn = self._rounds + self.peers.index(self.own)
        large = [peer for place, peer in enumerate(self.others) if (turn + place) % LARGE_EVERY == 0]
        return out + [(peer, self._make(peer, 0, size, now, {})) for peer in large]

    def _write_row(self) -> None:
        self.rows[self.own] = {
            peer: [self.life, self._rounds, one.first, one.highest, one.received, one.largest, one.rtt_ns]
            for peer, one in self._heard.items()
        }

    def known_rows(self) -> Rows:
        """All rows that are known here; the own one says what was heard up to now."""
        self._write_row()
        return self.rows

    def _some_rows(self) -> Rows:
        """What a small probe has room for: of the own row, and in every other round of the rows that others have told."""
        is_passing_on = self._rounds % 2
        names = [name for name in self.rows if (name != self.own) == is_passing_on]
        known = [(name, peer) for name in names for peer in (None, *self.rows[name])]  # None: that there is such a row
        some: Rows = {self.own: {}}
        room = SMALL_BYTES - _HEAD.size - CONTENT_BYTES_MAX - len(self.own)
        told = 0
        for told in range(len(known)):
            name, peer = known[(self._told[is_passing_on] + told) % len(known)]
            entry = {peer: self.rows[name][peer]} if peer is not None else {}
            room -= len(json.dumps({name: entry}))
            if room < 0:
                break
            some.setdefault(name, {}).update(entry)
        self._told[is_passing_on] += max(told, 1)
        return some

    def _make(self, peer: str, number: int, size: int, now: int, rows: Rows) -> bytes:
        at, taken = self._last_at.get(peer, (0, 0))
        content: dict[str, Any] = {
            "from": self.own,
            "life": self.life,
            "n": number,
            "at": now,
            "echo": at,
            "held": now - taken,
            "rows": rows,
        }
        text = json.dumps(content, separators=(",", ":")).encode()
        return (_HEAD.pack(VERSION, KIND, len(text)) + text).ljust(size, b"\0")

    def receive(self, datagram: bytes, now: int) -> None:
        """Take a probe of another address."""
        try:
            version, kind, length = _HEAD.unpack_from(datagram)
            content = json.loads(datagram[_HEAD.size : _HEAD.size + length])
            sender, number, at = str(content["from"]), int(content["n"]), int(content["at"])
            life, echo, held = int(content["life"]), int(content["echo"]), int(content["held"])
            rows = {
                str(name): {str(peer): [int(value) for value in values] for peer, values in row.items()}
                for name, row in content["rows"].items()
            }
            is_sound = (version, kind) == (VERSION, KIND) and all(
                len(values) == VALUES and Heard(*values[2:]).is_possible
                for row in rows.values()
                for values in row.values()
            )
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError, ArithmeticError, StructError):
            is_sound = False
        if not is_sound or sender not in self.others:
            self.refused += 1
            return
        if self._lives.get(sender) != life:
            self._begin_anew(sender, life)
        heard = self._heard.setdefault(sender, Heard())
        heard.largest = max(heard.largest, len(datagram))
        if number:
            heard.count(number)
        sample = now - echo - held
        if echo and sample > 0:
            heard.rtt_ns = sample if not heard.rtt_ns else min(sample, heard.rtt_ns)
        self._last_at[sender] = (at, now)
        learn(
            self.rows, {name: self._living(name, row) for name, row in rows.items() if name in self.others}, self.peers
        )

    def _begin_anew(self, sender: str, life: int) -> None:
        """It was started, or started again: its numbers begin anew, and what an earlier life had heard is no longer true."""
        self._lives[sender] = life
        for known in (self._heard, self._last_at, self.rows):
            known.pop(sender, None)

    def _living(self, name: str, row: dict[str, list[int]]) -> dict[str, list[int]]:
        """What others say of an address that is heard here is true of its present life, or no more."""
        life = self._lives.get(name)
        return {peer: values for peer, values in row.items() if life is None or values[0] == life}

    @property
    def has_heard_all(self) -> bool:
        """Whether every address was heard here, and says that it has heard every other."""
        rows = self.known_rows()
        return all(
            name in rows and all(peer in rows[name] for peer in self.peers if peer != name) for name in self.peers
        )


def learn(known: Rows, told: Rows, peers: Sequence[str]) -> None:
    """Take over what is new, or newer, of addresses that are checked."""
    for name, row in told.items():
        mine = known.setdefault(name, {})
        for peer, values in row.items():
            if peer in peers and (peer not in mine or values[:2] > mine[peer][:2]):
                mine[peer] = values
        life = max((values[0] for values in mine.values()), default=0)
        for peer in [peer for peer, values in mine.items() if values[0] < life]:
            del mine[peer]  # an earlier life had heard it


def judge(probers: Sequence[Prober]) -> list[Pair]:
    """Every direction, from all rows that are known here."""
    peers = probers[0].peers
    rows: Rows = {}
    for prober in probers:
        learn(rows, prober.known_rows(), peers)
    return [_judge_pair(source, target, rows) for source in peers for target in peers if source != target]


def _judge_pair(source: str, target: str, rows: Rows) -> Pair:
    if target not in rows:
        return Pair(source, target, f"unknown: {target} was not heard by anyone here")
    values = rows[target].get(source)
    if values is None:
        back = rows.get(source, {}).get(target)
        if source not in rows:
            return Pair(source, target, f"nothing arrives: {source} may not be up")
        return Pair(source, target, "nothing arrives, though the way back is open" if back else "nothing arrives")
    heard = Heard(*values[2:])
    if heard.largest >= DATAGRAM_BYTES_MIN:
        verdict = "ok" if heard.loss <= LOSS_MAX else "lossy"
    elif heard.rounds >= SIZES_ROUNDS:
        verdict = f"only {heard.largest:,} bytes get through: a group needs {DATAGRAM_BYTES_MIN:,}"
    else:
        verdict = f"too short to tell whether {DATAGRAM_BYTES_MIN:,} bytes get through: measure longer"
    return Pair(source, target, verdict, heard.loss, heard.largest, heard.rtt_ns or None)
