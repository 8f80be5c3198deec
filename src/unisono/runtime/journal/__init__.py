"""The journal: what a member remembers beyond its process, in a folder of its own.

- `Journal`, `Retention`  what a member writes, and when old deliveries may be removed (`journal`)
- `read`, `Reader`        deliveries of one journal, from any place on, while it is being written (`reader`)
- `Delivered`, `Viewed`, `Missing`  the rows that readers see (`format`)
- `JournalMerge`          several members' journals of one group as one stream (`merge`)
"""

from unisono.runtime.journal.deliveries import Retention as Retention
from unisono.runtime.journal.disk import Locked as Locked
from unisono.runtime.journal.format import Delivered as Delivered
from unisono.runtime.journal.format import Missing as Missing
from unisono.runtime.journal.format import Row as Row
from unisono.runtime.journal.format import Viewed as Viewed
from unisono.runtime.journal.journal import Journal as Journal
from unisono.runtime.journal.merge import Ends as Ends
from unisono.runtime.journal.merge import JournalMerge as JournalMerge
from unisono.runtime.journal.merge import JournalPiece as JournalPiece
from unisono.runtime.journal.merge import ends_now as ends_now
from unisono.runtime.journal.merge import read_piece as read_piece
from unisono.runtime.journal.reader import BEGINNING as BEGINNING
from unisono.runtime.journal.reader import GapError as GapError
from unisono.runtime.journal.reader import Limits as Limits
from unisono.runtime.journal.reader import Place as Place
from unisono.runtime.journal.reader import Reader as Reader
from unisono.runtime.journal.reader import Stretch as Stretch
from unisono.runtime.journal.reader import end_now as end_now
from unisono.runtime.journal.reader import read as read
from unisono.runtime.journal.reader import read_stretch as read_stretch
from unisono.runtime.journal.records import Undecided as Undecided
from unisono.runtime.journal.segments import segment_path as segment_path
