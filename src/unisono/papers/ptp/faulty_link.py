"""A point-to-point link whose acknowledgements a person, or a test, delays, alters or drops."""

from __future__ import annotations

from collections.abc import Callable

from unisono.papers.ptp.link import Link, LinkDatagram, LinkTurn, decode
from unisono.runtime.faulty import AckVerdict, Later, Question, Tell, earlier


class FaultyLink:
    """Wraps a link. With `ask`, each acknowledgement waits until `decide` is called for it."""

    def __init__(self, link: Link, peer: str, tell: Tell, ask: Callable[[Question], None] | None) -> None:
        self.link = link
        self._peer, self._tell, self._ask = peer, tell, ask
        self._asked: list[LinkDatagram] = []  # waiting for a verdict, the oldest first
        self._later = Later()

    def decide(self, verdict: AckVerdict, now: int) -> None:
        """The verdict on the acknowledgement that was asked about first."""
        held = self._asked.pop(0)
        assert held.ack is not None
        number = held.ack.seq
        if verdict.is_dropped:
            self._tell(f"ACK {number} to {self._peer} dropped")
            return
        if verdict.seq is not None and verdict.seq != number:
            self._tell(f"ACK {number} to {self._peer} altered to {verdict.seq}")
            held = held._replace(ack=held.ack._replace(seq=verdict.seq))
        if verdict.delay_ns:
            self._tell(f"ACK {number} to {self._peer} delayed by {verdict.delay_ns / 1e9:g} s")
        self._later.put(now + verdict.delay_ns, held)

    def drain(self, now: int) -> LinkTurn:
        turn = self.link.drain(now)
        out = []
        for encoded in turn.datagrams:
            datagram = decode(encoded)
            assert datagram is not None
            if datagram.ack is None:
                out.append(encoded)
            elif self._ask is None:
                self._tell(f"ACK {datagram.ack.seq} sent to {self._peer}")
                out.append(encoded)
            else:
                if datagram.data is not None:
                    out.append(datagram._replace(ack=None).encode())
                self._asked.append(datagram._replace(seq=0, tries=0, data=None, is_last=False))
                self._ask(Question(self._peer, datagram.ack.seq))
        for datagram in self._later.take(now):
            self._tell(f"ACK {datagram.ack.seq} sent to {self._peer}")
            out.append(datagram.encode())
        return turn._replace(datagrams=out, deadline=earlier(turn.deadline, self._later.deadline))
