"""The journal: what a member remembers beyond its process, in a folder of its own.

- `Journal`, `Retention`  what a member writes, and when old deliveries may be removed (`journal`)
- `read`, `Reader`        deliveries of one journal, from any place on, while it is being written (`reader`)
- `Delivered`, `Viewed`, `Missing`  the rows that readers see (`format`)
- `JournalMerge`          several members' journals of one group as one stream (`merge`)
"""

from unisono.runtime.journal.deliveries import Retention as Retention
from unisono.runtime.journal.format import Delivered as Delivered
from unisono.runtime.journal.format import Missing as Missing
from unisono.runtime.journal.format import Row as Row
from unisono.runtime.journal.format import Viewed as Viewed
from unisono.runtime.journal.journal import Journal as Journal
from unisono.runtime.journal.merge import JournalMerge as JournalMerge
from unisono.runtime.journal.reader import GapError as GapError
from unisono.runtime.journal.reader import Limits as Limits
from unisono.runtime.journal.reader import Place as Place
from unisono.runtime.journal.reader import Reader as Reader
from unisono.runtime.journal.reader import read as read

__all__ = [
    "Delivered",
    "GapError",
    "Journal",
    "JournalMerge",
    "Limits",
    "Missing",
    "Place",
    "Reader",
    "Retention",
    "Row",
    "Viewed",
    "read",
]
