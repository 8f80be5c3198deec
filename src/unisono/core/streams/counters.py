"""What is counted in the streams of one view."""

from __future__ import annotations

from dataclasses import dataclass, field

from unisono.core.wire import Refusal


@dataclass(slots=True)
class StreamCounters:
    """What happened in the streams of one view. All parts of `Streams` count here."""

    datagrams_sent: int = 0
    bytes_sent: int = 0
    packets_sent: int = 0
    datagrams_received: int = 0  # authentic and well-formed
    bytes_received: int = 0
    packets_received: int = 0
    resent: int = 0  # because a timer ran out
    answers: int = 0  # sent again because a peer asked
    answers_denied: int = 0  # asked for too soon, or too much
    naks_sent: int = 0  # ranges asked for
    naks_received: int = 0
    duplicates: int = 0  # bodies that were here already
    acks_alone: int = 0  # datagrams that carried nothing but acknowledgements
    polls_sent: int = 0  # questions how far a member is
    unkept: int = 0  # others' casts that could not be kept for peers that lack them
    refused: dict[Refusal, int] = field(default_factory=lambda: dict.fromkeys(Refusal, 0))
