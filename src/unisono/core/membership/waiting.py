"""What `explain` and the watchdog say about something that waits."""

from __future__ import annotations

from typing import NamedTuple


class Waiting(NamedTuple):
    """Something that waits. `key` changes when it moves; `sentence` says what waits, and for whom.

    `since` is when it began to wait; None: not known, and the watchdog takes the time when it first saw the key.
    """

    key: tuple[object, ...]
    sentence: str
    since: int | None = None
