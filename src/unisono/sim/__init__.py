"""The same core without a network: simulated worlds, their faults, and exhaustive search; and asyncio in virtual time."""

from unisono.sim.loop import Crashed, Network, Stuck, in_virtual_time, test

__all__ = ["Crashed", "Network", "Stuck", "in_virtual_time", "test"]
