"""One thing that waits, as `explain` and the watchdog see it."""

from __future__ import annotations

from typing import NamedTuple


class Concern(NamedTuple):
    """Something that waits: `key` stays the same as long as it does not move, `sentence` says what and for whom.

    `since` is when it began, where that is known; else whoever looks takes the first time that it saw the key.
    """

    key: tuple[object, ...]
    sentence: str
    since: int | None = None
