"""ToTo, total order by an adaptive majority of acknowledgements. Paper 004, section 4 (Dolev, Kramer, Malki).

Idea: as all-ack, but do not wait for everyone. The candidates compete: a member votes, with its first packet that follows any
candidate, for those that it follows. When more than phi members prefer one to another, no future packet can turn that round;
when the unbeaten candidates (sources) are known and settled, they are delivered. Graph, packets and view change are those
of `agreed`; this file is sections 4.1 and 4.2 over its sets of voters.

With n members, n/2 <= phi < n, T = tail, V(m) = votes of candidate m, and a, b candidates:

- beats(a, b) = |V(a) - V(b)|, the members whose component for a is smaller than for b. The paper's Win(a, b) = 1 when beats > phi.
- 1 is in Future(a, b), a may yet win, while |T| - beats(a, b) < n - phi. A component * (not in T) takes part in no comparison.
- Future(a, b) = {1} exactly when Win(a, b) = 1.
- source: a candidate that no other may yet beat. DEL delivers the sources S when
  (internal) every other candidate is beaten for good by some candidate, and
  (external) (a) some source has more than phi votes and every source is followed by packets of n - phi members,
  or (b) T is everyone.

I1  Win(a, b) = 1 excludes that b ever beats anyone (W.1 of the paper), so there is always a source when T is everyone.
I2  a message that all have acknowledged is delivered: then (b) holds for every candidate set on the way to it.
I3  floor(phi) + 1 <= index of latency <= n, outside view changes.

Deviations (all close gaps that break agreement as printed): * equals nothing, not even *; a packet that follows no candidate
leaves its sender's components at *; after a delivery everything is computed anew for *every* candidate and DEL is
tried until it fails; phi may be fractional; an idle member acknowledges explicitly after `ack_delay` (None is the paper's mode).
"""

from __future__ import annotations

from unisono.core.config import Config
from unisono.core.types import Rank, View
from unisono.orders.agreed import Agreed, Candidate


class Toto(Agreed):
    def __init__(self, view: View, rank: Rank, config: Config) -> None:
        super().__init__(view, rank, config)
        self._phi = config.threshold(len(view))

    def _choose(self) -> list[Candidate]:
        """Criterion DEL: the sources, if they are settled."""
        if self._tail.bit_count() <= self._phi:
            return []  # no candidate can have more than phi votes, and (b) is far
        sources = [m for m in self._candidates if not self._may_lose(m)]
        if not sources or not self._externally_stable(sources):
            return []
        beaten = all(self._is_beaten(m) for m in self._candidates if m not in sources)
        return sources if beaten else []

    def _may_lose(self, m: Candidate) -> bool:
        slack = self._tail.bit_count() - (self._size - self._phi)
        return any(_beats(other, m) > slack for other in self._candidates if other is not m)

    def _is_beaten(self, m: Candidate) -> bool:
        return any(_beats(other, m) > self._phi for other in self._candidates)

    def _externally_stable(self, sources: list[Candidate]) -> bool:
        if self._tail == self._everyone:
            return True
        enough = self._size - self._phi
        return any(s.votes.bit_count() > self._phi for s in sources) and all(
            s.tail.bit_count() >= enough for s in sources
        )


def _beats(a: Candidate, b: Candidate) -> int:
    """How many members prefer a to b."""
    return (a.votes & ~b.votes).bit_count()
