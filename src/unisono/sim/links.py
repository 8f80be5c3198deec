"""Links of a simulated network: how long what is sent is under way, what becomes of it, and faults on single links.

A link leads from one host to another. Every draw is keyed by the link and the number of what is sent on it (`lots`), so a fault
on one link does not change what becomes of anything on others.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from unisono.sim.delay import parse_delay
from unisono.sim.faults import Fault
from unisono.sim.kernel import VirtualTime
from unisono.sim.lots import key_of, number

LOSS, TWICE, DETOUR, LENGTH = (key_of(what) for what in ("loss", "twice", "detour", "length"))
"""What alters the key of what is sent, so that each of these is decided by a number of its own; its delay by the key itself."""

HostT = TypeVar("HostT")
"""What names a host."""


class Links(Generic[HostT]):
    """The links of one network, and how they are at fault."""

    def __init__(self, delay: str) -> None:
        self.mean_ns, self.sample = parse_delay(delay)
        self.loss = 0.0
        self.duplicate = 0.0
        self.reorder = 0.0
        self.is_plain = True  # nothing but delays matters
        self._clogs: dict[tuple[HostT, HostT], int] = {}  # until when
        self._lossy: dict[tuple[HostT, HostT], float] = {}
        self._slow: dict[tuple[HostT, HostT], float] = {}

    def clog(self, src: HostT, dst: HostT, until: int) -> None:
        """Nothing gets through until then; what was sent meanwhile comes afterwards, at once."""
        self._clogs[src, dst] = max(until, self._clogs.get((src, dst), 0))
        self.is_plain = False

    def lose(self, src: HostT, dst: HostT, share: float) -> None:
        self._lossy[src, dst] = share
        self.is_plain = False

    def slow(self, src: HostT, dst: HostT, factor: float) -> None:
        self._slow[src, dst] = factor
        self.is_plain = False

    def strike(self, fault: Fault, src: HostT, dst: HostT, time: VirtualTime) -> None:
        """Let a fault of one link happen, for its duration if it has one."""
        end = time.now + fault.duration_ns
        match fault.kind:
            case "clog":
                self.clog(src, dst, end)
            case "slow":
                self.slow(src, dst, fault.amount)
            case "lossy":
                self.lose(src, dst, fault.amount)
            case _:
                raise NotImplementedError(f"the simulator does not play the fault {fault.kind} here")
        if fault.duration_ns and fault.kind == "slow":
            time.at(end, lambda: self.slow(src, dst, 1.0))
        elif fault.duration_ns and fault.kind == "lossy":
            time.at(end, lambda: self.lose(src, dst, 0.0))

    def heal(self) -> None:
        """No fault remains, not even ordinary loss."""
        self._clogs.clear()
        self._lossy.clear()
        self._slow.clear()
        self.loss = self.duplicate = self.reorder = 0.0

    def loses(self, src: HostT, dst: HostT, key: int) -> bool:
        """Whether what has this key is lost."""
        loss = max(self.loss, self._lossy.get((src, dst), 0.0))
        return loss > 0 and number(key ^ LOSS) < loss

    def doubles(self, key: int) -> bool:
        return self.duplicate > 0 and number(key ^ TWICE) < self.duplicate

    def arrival(self, src: HostT, dst: HostT, places: tuple[int, int], start: int, key: int, detour_ns: int) -> int:
        """When what leaves at `start` arrives, and on a detour how much later at most. A place decides which region it is in."""
        took = self.sample(*places, key)
        if self._slow:
            took = int(took * self._slow.get((src, dst), 1.0))
        if self.reorder and number(key ^ DETOUR) < self.reorder:
            took += int(number(key ^ LENGTH) * detour_ns)
        return max(start + took, self._clogs.get((src, dst), 0))
