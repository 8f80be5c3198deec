"""The view change of the simulator's first stage: an oracle that sees everything.

It takes the place of membership, and asks the orderings exactly what membership asks: some time after a crash all
survivors are blocked and report, then one merge, then everyone closes with the cut and what it misses, and installs the
next view. A member that crashes between the two steps is simply no survivor. Nothing is decided here that an ordering owes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from unisono.core.ordering import Cut, Report
from unisono.core.types import Packet, Rank, Slot, View, ViewId
from unisono.core.views import Retained, packet_for

if TYPE_CHECKING:
    from unisono.sim.world import World


class ContractViolation(Exception):
    """An ordering broke its contract. The text says how, in one sentence."""


class OracleChange:
    def __init__(self, world: World) -> None:
        self._world = world
        self._reports: dict[Rank, Report] = {}  # of the change under way; empty: none is
        self.count = 0  # view changes so far

    def begin(self) -> None:
        """Block the survivors and take their reports."""
        world = self._world
        if self._reports or all(host.alive for host in world.in_view):
            return  # the crash is part of a change under way, or over
        if self._postpone(self.begin):
            return
        for rank, host in enumerate(world.in_view):
            if host.alive:
                self._reports[rank] = host.member.block()
                world.take_turn(host)
        world.drop_in_flight()
        world.at(world.now + world.scenario.flush_ns, self.finish)

    def finish(self) -> None:
        """Merge the survivors' reports, let each close, and install the next view."""
        world = self._world
        if self._postpone(self.finish):
            return
        old = world.view
        survivors = {rank: host for rank, host in enumerate(world.in_view) if host.alive}
        reports = {rank: self._reports[rank] for rank in survivors}
        self._reports = {}
        cut = world.order.merge(old, world.config, reports)
        gaps = missing_packets(old, cut, reports, [host.member.kept for host in survivors.values()])
        new = View(
            ViewId(old.id.number + 1, old.members[min(survivors)]), tuple(old.members[rank] for rank in survivors)
        )
        for rank, host in survivors.items():
            host.member.close(cut, gaps[rank])
        for host in survivors.values():
            host.member.install(new, old, new.members)
        self.count += 1
        world.enter_view(new, list(survivors.values()))
        for host in survivors.values():
            world.take_turn(host)
        world.at(world.now, self.begin)  # someone may have crashed between the two steps' reports and now

    def _postpone(self, step: Callable[[], None]) -> bool:
        """A paused survivor cannot answer: wait for it."""
        world = self._world
        paused = [host.paused_until for host in world.in_view if host.alive and host.paused_until > world.now]
        if not paused:
            return False
        world.at(max(paused), step)
        return True


def missing_packets(
    view: View, cut: Cut, reports: Mapping[Rank, Report], holders: Sequence[Retained]
) -> dict[Rank, dict[Slot, Packet]]:
    """What each survivor lacks of the cut, from what the survivors hold.

    Payloads go to addressees only. A payload that no survivor holds is void: everyone gets the placeholder that is left of it.
    """
    return {rank: _missing_at(view, rank, report, cut, holders) for rank, report in reports.items()}


def _missing_at(view: View, rank: Rank, report: Report, cut: Cut, holders: Sequence[Retained]) -> dict[Slot, Packet]:
    result: dict[Slot, Packet] = {}
    for origin, last in enumerate(cut.wanted):
        for number in range(report.held[origin] + 1, last + 1):
            slot = (origin, number)
            copies = [packet for holder in holders if (packet := holder.get(slot)) is not None]
            if not copies:
                raise ContractViolation(
                    f"the cut wants packet {number} of {view.members[origin]}, which no survivor holds."
                )
            whole = [packet for packet in copies if _has_payload(packet)]
            result[slot] = packet_for((whole or copies)[0], rank)
    return result


def _has_payload(packet: Packet) -> bool:
    batch = getattr(packet, "batch", None)
    return batch is None or batch.payloads is not None
