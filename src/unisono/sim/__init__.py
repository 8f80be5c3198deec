"""The same core without a network: simulated worlds, their faults, and exhaustive search; and asyncio in virtual time.

What needs asyncio is imported when it is used, so that the worlds run where there is none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unisono.sim.loop import Network as Network
    from unisono.sim.loop import Stuck as Stuck
    from unisono.sim.loop import in_virtual_time as in_virtual_time
    from unisono.sim.loop import test as test
    from unisono.sim.process import Crashed as Crashed
    from unisono.sim.process import Process as Process

__all__ = ["Crashed", "Network", "Process", "Stuck", "in_virtual_time", "test"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from unisono.sim import loop, process

    value = globals()[name] = getattr(process if name in ("Crashed", "Process") else loop, name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
