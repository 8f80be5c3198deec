"""unisono: ordered, reliable group communication. This file holds the public names, nothing else."""

from unisono.core.config import Config
from unisono.core.errors import ConfigError, Misuse, PeerFault, UnisonoError
from unisono.core.types import CastOptions, Key, MemberId, Service, View, ViewId

__all__ = [
    "CastOptions",
    "Config",
    "ConfigError",
    "Key",
    "MemberId",
    "Misuse",
    "PeerFault",
    "Service",
    "UnisonoError",
    "View",
    "ViewId",
]
