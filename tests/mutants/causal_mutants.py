"""Causal order with vectors that count the wrong things, without placeholders, and with a cut that is not closed.

**The own entry ticks on receipt** (001, "on receiving a message ... P_i increments V_i").
  1. A casts x. B receives and delivers it, and counts that as an event of its own: its entry is 1.
  2. B casts y; its vector says that B had one event before it.
  3. C has delivered x and nothing of B. It waits for the message of B before y, which was never cast, for ever.

**Every entry ticks on receipt** (001 as printed: "for j = 1..N, VT[j] := VT[j] + 1"). The same story with every origin.

**Lists of recipients without placeholders.**
  1. A casts x to B alone; C gets nothing. B delivers x and casts y to all.
  2. The vector of y says that one message of A comes before it. C waits for it for ever.

**A cut that is not closed.**
  1. A casts x, which reaches B alone. B delivers it and casts y, which reaches C and waits there for x.
  2. A and B crash. C and D hold y, but x is gone.
  3. A merge that takes all that survivors hold delivers y; its cause x is never delivered.
"""

from __future__ import annotations

from collections.abc import Mapping

from unisono.core.config import Config
from unisono.core.outbox import Outbox
from unisono.core.types import Packet, Rank, Slot, View
from unisono.orders.causal import Causal, CausalCut, Data
from unisono.orders.holdback import VectorReport, longest_held


class OwnEntryTicks(Causal):
    def receive(self, sender: Rank, packet: Packet, out: Outbox) -> None:
        super().receive(sender, packet, out)
        self._holdback.taken[self._rank] += 1


class EveryEntryTicks(Causal):
    def receive(self, sender: Rank, packet: Packet, out: Outbox) -> None:
        before = len(out.deliver)
        super().receive(sender, packet, out)
        for batch in out.deliver[before:]:
            for rank in range(len(self._held)):
                self._holdback.taken[rank] += rank != batch.origin  # the origin's own entry was counted by the delivery


class NoPlaceholders(Causal):
    """What is not addressed to a member does not exist for it."""

    def receive(self, sender: Rank, packet: Packet, out: Outbox) -> None:
        assert isinstance(packet, Data)
        if packet.batch.payloads is None:
            self._held[sender] = packet.number
        else:
            super().receive(sender, packet, out)


class NotClosed(Causal):
    """Takes all that survivors hold, and in the end delivers what is still held back."""

    @staticmethod
    def merge(view: View, config: Config, reports: Mapping[Rank, VectorReport]) -> CausalCut:
        return CausalCut(longest_held(reports))

    def close(self, cut: CausalCut, missing: Mapping[Slot, Packet], out: Outbox) -> None:
        for slot in sorted(missing):
            self.receive(slot[0], missing[slot], out)
        out.deliver += [held.packet.batch for _, held in self._holdback.waiting()]  # type: ignore[attr-defined]
