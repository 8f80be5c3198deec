"""One member put together: what a runtime or a simulator drives.

`member` shows the whole in one file: the inputs of a turn, its effects, and the parts that do the work. Whatever is asked of
a member is asked of its `state`, which is read-only. `events` names what a turn leads to.
"""

from unisono.core.member.comparison import Check as Check
from unisono.core.member.comparison import Checking as Checking
from unisono.core.member.counters import MemberCounters as MemberCounters
from unisono.core.member.events import Aside as Aside
from unisono.core.member.events import Diverged as Diverged
from unisono.core.member.events import Effects as Effects
from unisono.core.member.events import Entered as Entered
from unisono.core.member.events import Happening as Happening
from unisono.core.member.events import Replaced as Replaced
from unisono.core.member.events import Resumed as Resumed
from unisono.core.member.events import Stalled as Stalled
from unisono.core.member.member import Member as Member
from unisono.core.member.settings import FlowSettings as FlowSettings
from unisono.core.member.settings import Settings as Settings
from unisono.core.member.settings import Slow as Slow
from unisono.core.member.state import MemberState as MemberState
from unisono.core.member.watchdog import Culprit as Culprit
