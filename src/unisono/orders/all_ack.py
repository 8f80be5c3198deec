"""all-ack, the total order that waits for everyone. Paper 004, section 1 and references there.

Idea: "Wait for a message from each machine in the system; deliver the set of messages that do not causally follow any other, in
lexicographical order." Graph, packets and view change are those of `agreed`.

I1  when every member has a packet that follows some candidate, the candidates are final. A batch that is not here yet
    is of a member that already has a packet following a candidate: if cast before that packet, it would be here (FIFO); if
    after it, it follows a candidate and is none itself.

Its index of latency is always n. The acknowledgements travel in the stream of the data, so none overtakes a batch of its sender.
"""

from __future__ import annotations

from unisono.orders.agreed import Agreed, Candidate


class AllAck(Agreed):
    def _choose(self) -> list[Candidate]:
        return self._candidates if self._tail == self._everyone else []
