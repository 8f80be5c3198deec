"""One member put together: what a runtime or a simulator drives.

`member` shows the whole in one file: the inputs of a turn, its effects, and the parts that do the work. `explain` and the watchdog
see the member as a read-only `MemberState`.
"""

from unisono.core.member.comparison import Check as Check
from unisono.core.member.comparison import Checking as Checking
from unisono.core.member.counters import MemberCounters as MemberCounters
from unisono.core.member.member import Member as Member
from unisono.core.member.settings import FlowSettings as FlowSettings
from unisono.core.member.settings import Settings as Settings
from unisono.core.member.settings import Slow as Slow
from unisono.core.member.state import MemberState as MemberState
from unisono.core.member.watchdog import Culprit as Culprit

__all__ = [
    "Check",
    "Checking",
    "Culprit",
    "FlowSettings",
    "Member",
    "MemberState",
    "Settings",
    "Slow",
    "MemberCounters",
]
