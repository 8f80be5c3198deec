"""Every way in which a small group can change its view: what to ask (`Scope`), and how (`explore_views`)."""

from unisono.sim.explore.views.model import ViewsCounterexample, explore_views
from unisono.sim.explore.views.scope import Scope

__all__ = ["Scope", "ViewsCounterexample", "explore_views"]
