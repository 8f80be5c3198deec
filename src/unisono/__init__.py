"""unisono: ordered, reliable group communication. This file holds the public names, nothing else."""

from unisono import sim, sync
from unisono.core.config import Config
from unisono.core.departure import Arrival, Cause, Departure, Origin
from unisono.core.errors import ConfigError, Misuse, NotPrimary, PeerFault, Shed, UnisonoError
from unisono.core.events import Diverged, Replaced, Resumed, Stalled
from unisono.core.member.comparison import Check
from unisono.core.member.settings import Settings
from unisono.core.membership.context import Evicted, Refused
from unisono.core.types import CastOptions, Key, MemberId, Service, Transition, ViewId
from unisono.runtime.clients import Outside, Unanswered, client
from unisono.runtime.errors import Closed, JournalError, NotFlushed, Outdated, TimedOut, Uncertain
from unisono.runtime.events import Delivery, Event, View
from unisono.runtime.group import Group
from unisono.runtime.join import Joining, join
from unisono.runtime.journal.journal import Journal, Retention
from unisono.runtime.program import run
from unisono.runtime.receipts import Receipt
from unisono.version import __version__

__all__ = [
    "join",
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
