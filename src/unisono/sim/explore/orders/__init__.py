"""Every interleaving of small cases of an order: what to ask (`Case`), how (`explore`), and how to see it again (`replay`)."""

from unisono.sim.explore.orders.case import Case, Counterexample, Message, distributions, load_counterexample
from unisono.sim.explore.orders.model import explore
from unisono.sim.explore.orders.replay import replay

__all__ = ["Case", "Counterexample", "Message", "distributions", "explore", "load_counterexample", "replay"]
