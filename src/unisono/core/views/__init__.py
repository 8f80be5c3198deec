"""The engine of one view after another: own casts, the ordering, the gate for safe messages, and what is kept for others."""

from unisono.core.views.contiguous import Contiguous as Contiguous
from unisono.core.views.delivered import TOTAL_LANE as TOTAL_LANE
from unisono.core.views.delivered import DeliveredLanes as DeliveredLanes
from unisono.core.views.delivered import Lane as Lane
from unisono.core.views.delivered import LaneMark as LaneMark
from unisono.core.views.delivered import Place as Place
from unisono.core.views.delivered import differing_lanes as differing_lanes
from unisono.core.views.delivered import first_difference as first_difference
from unisono.core.views.engine import Phase as Phase
from unisono.core.views.engine import ViewEngine as ViewEngine
from unisono.core.views.own_casts import Doubt as Doubt
from unisono.core.views.own_casts import OwnCasts as OwnCasts
from unisono.core.views.own_casts import Span as Span
from unisono.core.views.retained import Retained as Retained
from unisono.core.views.retained import packet_for as packet_for
