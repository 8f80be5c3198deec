"""Who is in the group, agreed in ballots by its members. `Membership` is one member's; `membership.py` holds the argument.

Beside it stand what tells it whom to suspect (`Detector`), and what proves that a sender receives at its address (`Tickets`).
`carry` and `is_carried` say what becomes of an application's state with a primary view.
"""

from unisono.core.membership.context import Engine as Engine
from unisono.core.membership.context import Evicted as Evicted
from unisono.core.membership.context import Installed as Installed
from unisono.core.membership.context import Installer as Installer
from unisono.core.membership.context import Left as Left
from unisono.core.membership.context import MembershipOut as MembershipOut
from unisono.core.membership.context import Outlived as Outlived
from unisono.core.membership.context import Refused as Refused
from unisono.core.membership.context import Waiting as Waiting
from unisono.core.membership.detector import Detector as Detector
from unisono.core.membership.detector import DetectorSettings as DetectorSettings
from unisono.core.membership.membership import Membership as Membership
from unisono.core.membership.primary import carry as carry
from unisono.core.membership.primary import is_carried as is_carried
from unisono.core.membership.settings import MembershipSettings as MembershipSettings
from unisono.core.membership.settings import Policy as Policy
from unisono.core.membership.states import ParticipantState as ParticipantState
from unisono.core.membership.states import ViewChange as ViewChange
from unisono.core.membership.tickets import SECRET_BYTES as SECRET_BYTES
from unisono.core.membership.tickets import Tickets as Tickets
