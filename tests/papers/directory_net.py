"""Managers of a directory on a network that loses, delays and doubles messages, drawn from one seed."""

from __future__ import annotations

import itertools
from heapq import heappop, heappush
from random import Random

from unisono.core.config import MILLISECOND, SECOND
from unisono.core.types import MemberId
from unisono.papers.directory.directory import Directory, DirectorySettings, Outcome, hash_into
from unisono.papers.directory.messages import Announce, NameTaken, Probe, Query, Release, make_directory_codec

SETTINGS = DirectorySettings(pool=16, announce_ns=5 * SECOND, expiry_ns=20 * SECOND)


class Net:
    """Managers a, b, c, … and the network between them. Everything is drawn from one seed."""

    def __init__(
        self,
        count: int,
        settings: DirectorySettings = SETTINGS,
        *,
        kind: type[Directory] = Directory,
        loss: float = 0.0,
        seed: int = 0,
        permanent: dict[str, int] | None = None,
    ) -> None:
        self.settings, self.kind, self.permanent = settings, kind, permanent
        self.loss = loss
        self.cut: set[frozenset[str]] = set()  # pairs of managers that do not hear each other
        self.now = 0
        self.sent = 0
        self.happened: dict[str, list[Outcome]] = {}
        self.managers: dict[str, Directory] = {}
        self._random = Random(seed)
        self._heap: list[tuple[int, int, str, MemberId, bytes]] = []
        self._tie = 0
        self._codec = make_directory_codec()
        for name in "abcdefgh"[:count]:
            self.start(name)

    def __getitem__(self, name: str) -> Directory:
        return self.managers[name]

    def start(self, name: str, incarnation: int = 0) -> Directory:
        self.happened[name] = []
        self.managers[name] = self.kind(MemberId(name, incarnation), self.settings, self.permanent)
        return self.managers[name]

    def claim(self, manager: str, name: str) -> None:
        self[manager].claim(name, self.now)
        self.flush(manager)

    def flush(self, manager: str) -> None:
        messages, events = self[manager].drain()
        self.happened[manager] += events
        for message in messages:
            data = self._codec.encode(message)
            self.sent += 1
            for other in self.managers:
                if other == manager or frozenset((manager, other)) in self.cut:
                    continue
                for _ in range(2 if self._random.random() < 0.05 else 1):
                    if self._random.random() >= self.loss:
                        self._tie += 1
                        arrival = self.now + self._random.randint(1, 50) * MILLISECOND
                        heappush(self._heap, (arrival, self._tie, other, self[manager].id, data))

    def run(self, seconds: float) -> None:
        end = self.now + int(seconds * SECOND)
        while True:
            dues = [(due, name) for name, one in self.managers.items() if (due := one.deadline) is not None]
            arrival = self._heap[0][0] if self._heap else end + 1
            due, name = min(dues, default=(end + 1, ""))
            if min(due, arrival) > end:
                self.now = end
                return
            if arrival <= due:
                self.now, _, name, sender, data = heappop(self._heap)
                if name not in self.managers:
                    continue
                message = self._codec.decode(data, 0, 1)
                assert isinstance(message, Probe | NameTaken | Announce | Release | Query)
                self[name].receive(sender, message, self.now)
            else:
                self.now = due
                self[name].tick(self.now)
            self.flush(name)

    def owners(self, name: str) -> list[str]:
        return [manager for manager, one in self.managers.items() if name in one.owned]

    def addresses(self) -> list[int]:
        """Every address that somebody owns, as often as it is owned."""
        return sorted(address for one in self.managers.values() for address in one.owned.values())


def colliding(count: int, pool: int = SETTINGS.pool, at: int = 0) -> list[str]:
    """Names that hash to one address."""
    names = (f"n{number}" for number in itertools.count())
    return list(itertools.islice((name for name in names if hash_into(name, pool) == at), count))
