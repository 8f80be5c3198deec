"""The same core without a network: simulated worlds, their faults, and exhaustive search; and asyncio in virtual time."""

import unisono.sim.run  # noqa: F401 - loaded first, or the module would later hide the function of its name
from unisono.sim.loop import Crashed, Network, Stuck, run, test

__all__ = ["Crashed", "Network", "Stuck", "run", "test"]
