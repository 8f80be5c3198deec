"""What is counted in the streams of one view."""

from __future__ import annotations

from unisono.core.wire import Refusal


class StreamCounters:
    """What happened in the streams of one view. All parts of `Streams` count here."""

    __slots__ = (
        "acks_alone",
        "answers",
        "answers_denied",
        "bytes_received",
        "bytes_sent",
        "datagrams_received",
        "datagrams_sent",
        "duplicates",
        "naks_received",
        "naks_sent",
        "packets_received",
        "packets_sent",
        "polls_sent",
        "refused",
        "resent",
        "unkept",
    )

    def __init__(self) -> None:
        self.datagrams_sent = 0
        self.bytes_sent = 0
        self.packets_sent = 0
        self.datagrams_received = 0  # authentic and well-formed
        self.bytes_received = 0
        self.packets_received = 0
        self.resent = 0  # because a timer ran out
        self.answers = 0  # sent again because a peer asked
        self.answers_denied = 0  # asked for too soon, or too much
        self.naks_sent = 0  # ranges asked for
        self.naks_received = 0
        self.duplicates = 0  # bodies that were here already
        self.acks_alone = 0  # datagrams that carried nothing but acknowledgements
        self.polls_sent = 0  # questions how far a member is
        self.unkept = 0  # others' casts that could not be kept for peers that lack them
        self.refused = dict.fromkeys(Refusal, 0)
