"""The engine of one view after another: own casts, the ordering, the gate for safe messages, and what is kept for others."""

from unisono.core.views.engine import Phase as Phase
from unisono.core.views.engine import ViewEngine as ViewEngine
from unisono.core.views.engine import packet_for as packet_for
from unisono.core.views.own_casts import Doubt as Doubt
from unisono.core.views.own_casts import OwnCasts as OwnCasts

__all__ = ["Doubt", "OwnCasts", "Phase", "ViewEngine", "packet_for"]
