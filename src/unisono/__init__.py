"""unisono: ordered, reliable group communication. This file holds the public names, nothing else.

The core's names are here at once. What needs sockets or an event loop is imported when it is used, so that
core, orders, simulator and trace run where there are none.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from unisono.core.config import Config
from unisono.core.departure import Arrival, Cause, Departure, Origin
from unisono.core.errors import ConfigError, Misuse, NotPrimary, PeerFault, Shed, UnisonoError
from unisono.core.events import Diverged, Replaced, Resumed, Stalled
from unisono.core.member import Check, Settings
from unisono.core.membership import Evicted, Refused
from unisono.core.options import CastOptions
from unisono.core.transition import Transition
from unisono.core.types import Key, MemberId, Service, ViewId

if TYPE_CHECKING:
    from unisono import sim, sync
    from unisono.runtime.clients import Outside, Unanswered, client
    from unisono.runtime.errors import Closed, JournalError, NotFlushed, Outdated, TimedOut, Uncertain
    from unisono.runtime.events import Delivery, Event, View
    from unisono.runtime.group import Group
    from unisono.runtime.join import Joining, join
    from unisono.runtime.journal import Journal, Retention
    from unisono.runtime.options import JoinOptions
    from unisono.runtime.program import run
    from unisono.runtime.receipts import Receipt
    from unisono.version import __version__

__all__ = [
    "join",
    "JoinOptions",
    "run",
    "client",
    "sync",
    "sim",
    "Group",
    "Joining",
    "Outside",
    "Receipt",
    "Journal",
    "Retention",
    "Delivery",
    "Transition",
    "View",
    "Arrival",
    "Origin",
    "Departure",
    "Cause",
    "Replaced",
    "Refused",
    "Evicted",
    "Stalled",
    "Resumed",
    "Diverged",
    "Check",
    "Event",
    "Key",
    "MemberId",
    "Service",
    "ViewId",
    "CastOptions",
    "Config",
    "Settings",
    "UnisonoError",
    "Misuse",
    "ConfigError",
    "Closed",
    "PeerFault",
    "NotPrimary",
    "Shed",
    "TimedOut",
    "Uncertain",
    "Unanswered",
    "NotFlushed",
    "Outdated",
    "JournalError",
    "__version__",
]

_MODULES = ("sim", "sync")
_HOMES = {
    "Outside": "runtime.clients",
    "Unanswered": "runtime.clients",
    "client": "runtime.clients",
    "Closed": "runtime.errors",
    "JournalError": "runtime.errors",
    "NotFlushed": "runtime.errors",
    "Outdated": "runtime.errors",
    "TimedOut": "runtime.errors",
    "Uncertain": "runtime.errors",
    "Delivery": "runtime.events",
    "Event": "runtime.events",
    "View": "runtime.events",
    "Group": "runtime.group",
    "Joining": "runtime.join",
    "join": "runtime.join",
    "Journal": "runtime.journal",
    "Retention": "runtime.journal",
    "JoinOptions": "runtime.options",
    "run": "runtime.program",
    "Receipt": "runtime.receipts",
    "__version__": "version",
}
"""In which module a name is defined. (The version is read from the installed package, with the standard library's sockets.)"""


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"unisono.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"unisono.{_HOMES[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
