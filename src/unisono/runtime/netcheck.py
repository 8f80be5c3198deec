"""Do all members of a group-to-be hear each other? Probes between every pair of addresses, both ways.

Each address sends small probes to all others, now and then large ones (never cut on the way), and with each probe its row: what it
has heard of whom. Rows are passed on, so that a pair which hears nothing of each other is still known to whoever hears a third.

    probe   4 u8 · 0x20 u8 · length u16 · JSON · zeros up to the probe's size

A row is sent whole, so it is never half of one moment and half of another; of two rows of one address the later one counts.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from struct import Struct
from struct import error as StructError
from typing import Any, NamedTuple

VERSION, KIND = 4, 0x20
_HEAD = Struct("<BBH")
SMALL_BYTES = 1_000
SIZES_BYTES = (1_200, 1_452, 1_472, 8_952, 8_972, 60_000)
"""Beyond the small ones: IPv6's least, Ethernet, jumbo frames, loopback; payloads of UDP over IPv6 and IPv4."""
LARGE_EVERY = 5
LOSS_MAX = 0.05
"""More than this is worth a warning: the streams heal it, slowly."""


@dataclass(slots=True)
class Heard:
    """What one address has heard of another."""

    first: int = 0
    highest: int = 0
    received: int = 0
    largest: int = 0
    rtt_ns: int = 0

    @property
    def loss(self) -> float:
        return 1 - self.received / (self.highest - self.first + 1) if self.received else 1.0


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
    rows: dict[str, tuple[int, dict[str, list[int]]]] = field(default_factory=dict)
    refused: int = 0
    _sent: int = 0
    _rounds: int = 0
    _heard: dict[str, Heard] = field(default_factory=dict)
    _last_at: dict[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def others(self) -> list[str]:
        return [peer for peer in self.peers if peer != self.own]

    def probe(self, now: int) -> list[tuple[str, bytes]]:
        """A round: a small probe to each other address, and every few rounds a large one."""
        self._rounds += 1
        self._sent += 1
        self._write_row()
        out = [(peer, self._make(peer, self._sent, SMALL_BYTES, now)) for peer in self.others]
        if self._rounds % LARGE_EVERY == 0:
            size = SIZES_BYTES[self._rounds // LARGE_EVERY % len(SIZES_BYTES)]
            out += [(peer, self._make(peer, 0, size, now)) for peer in self.others]
        return out

    def _write_row(self) -> None:
        row = {
            peer: [one.first, one.highest, one.received, one.largest, one.rtt_ns] for peer, one in self._heard.items()
        }
        self.rows[self.own] = (self._rounds, row)

    def _make(self, peer: str, number: int, size: int, now: int) -> bytes:
        names = list(self.rows)
        passed_on = names[self._rounds % len(names)]
        rows = {name: self.rows[name] for name in dict.fromkeys((self.own, passed_on))}
        at, taken = self._last_at.get(peer, (0, 0))
        content: dict[str, Any] = {
            "from": self.own,
            "n": number,
            "at": now,
            "echo": at,
            "held": now - taken,
            "rows": rows,
        }
        text = json.dumps(content, separators=(",", ":")).encode()
        if _HEAD.size + len(text) > SMALL_BYTES:  # a large group: the own row alone, and that only if it fits
            content["rows"] = {}
            text = json.dumps(content, separators=(",", ":")).encode()
        return (_HEAD.pack(VERSION, KIND, len(text)) + text).ljust(size, b"\0")

    def receive(self, datagram: bytes, now: int) -> None:
        """Take a probe of another address."""
        try:
            version, kind, length = _HEAD.unpack_from(datagram)
            content = json.loads(datagram[_HEAD.size : _HEAD.size + length])
            sender, number, at = str(content["from"]), int(content["n"]), int(content["at"])
            echo, held = int(content["echo"]), int(content["held"])
            rows = {
                str(name): (int(stamp), {str(peer): [int(value) for value in values] for peer, values in row.items()})
                for name, (stamp, row) in content["rows"].items()
            }
            is_sound = (version, kind) == (VERSION, KIND) and all(
                len(values) == 5 for _, row in rows.values() for values in row.values()
            )
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError, ArithmeticError, StructError):
            is_sound = False
        if not is_sound or sender not in self.others:
            self.refused += 1
            return
        heard = self._heard.setdefault(sender, Heard())
        heard.largest = max(heard.largest, len(datagram))
        if number:
            heard.first = heard.first or number
            heard.highest = max(heard.highest, number)
            heard.received += 1
        if echo:
            sample = now - echo - held
            heard.rtt_ns = sample if not heard.rtt_ns else min(sample, heard.rtt_ns)
        self._last_at[sender] = (at, now)
        for name, (stamp, row) in rows.items():
            if name in self.peers and name != self.own and stamp > self.rows.get(name, (-1, {}))[0]:
                self.rows[name] = (stamp, row)

    @property
    def has_heard_all(self) -> bool:
        """Whether every address was heard here, and says that it has heard every other."""
        self._write_row()
        return all(
            name in self.rows and all(peer in self.rows[name][1] for peer in self.peers if peer != name)
            for name in self.peers
        )


def judge(probers: Sequence[Prober]) -> list[Pair]:
    """Every direction, from all rows that are known here."""
    peers = probers[0].peers
    rows: dict[str, tuple[int, dict[str, list[int]]]] = {}
    for prober in probers:
        prober._write_row()
        for name, (stamp, row) in prober.rows.items():
            if stamp > rows.get(name, (-1, {}))[0]:
                rows[name] = (stamp, row)
    return [_judge_pair(source, target, rows) for source in peers for target in peers if source != target]


def _judge_pair(source: str, target: str, rows: dict[str, tuple[int, dict[str, list[int]]]]) -> Pair:
    if target not in rows:
        return Pair(source, target, f"unknown: {target} was not heard by anyone here")
    values = rows[target][1].get(source)
    if values is None:
        back = rows.get(source, (0, {}))[1].get(target)
        if source not in rows:
            return Pair(source, target, f"nothing arrives: {source} may not be up")
        return Pair(source, target, "nothing arrives, though the way back is open" if back else "nothing arrives")
    heard = Heard(*values)
    verdict = "ok" if heard.loss <= LOSS_MAX else "lossy"
    return Pair(source, target, verdict, heard.loss, heard.largest, heard.rtt_ns or None)
