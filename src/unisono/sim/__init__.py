"""The same core without a network: simulated worlds, their faults, and exhaustive search; and asyncio in virtual time."""

from unisono.sim.loop import Network, Stuck, in_virtual_time, test
from unisono.sim.process import Crashed, Process

__all__ = ["Crashed", "Network", "Process", "Stuck", "in_virtual_time", "test"]
