"""Every limit and every timeout, with its unit in its name, validated where it is set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from struct import Struct
from typing import Any

from unisono.core.errors import ConfigError

MILLISECOND = 1_000_000
SECOND = 1_000 * MILLISECOND


@dataclass(frozen=True, slots=True)
class Config:
    """The settings of a group. All members of a group use the same."""

    members_max: int = 1_024
    """Maximum number of members in a view."""
    payload_bytes_max: int = 16 * 1024 * 1024
    """Maximum payload size of one message, in bytes."""
    batch_messages_max: int = 4_096
    """Maximum number of messages per batch."""
    batch_bytes_max: int = 1024 * 1024
    """Maximum payload bytes per batch; a single message may be larger, and is then alone in its batch."""
    window_messages: int = 65_536
    """Maximum number of own messages that are cast and not yet delivered here; beyond it `cast` is refused."""
    ack_delay_ns: int | None = 5 * MILLISECOND
    """Maximum delay of an acknowledgement that waits for an own cast to carry it; None: no limit (ToTo's paper mode)."""
    hold_batches_max: int = 64
    """RMP: maximum number of batches that the holder of the group's lock transmits while others wait for it."""
    safe: bool = False
    """The default for messages cast without `safe`: deliver only after every member has processed all that precedes."""
    phi: float | None = None
    """ToTo's threshold, n/2 <= phi < n; None: n/2."""

    def __post_init__(self) -> None:
        for name, low, high in _RANGES:
            value = getattr(self, name)
            if value is None and name == "ack_delay_ns":
                continue
            if isinstance(value, bool) or not isinstance(value, int):
                raise ConfigError(f"{name} must be a whole number, not {value!r}.")
            if not low <= value <= high:
                raise ConfigError(f"{name} = {value} is out of range: choose {low} to {high}.")
        if not isinstance(self.safe, bool):
            raise ConfigError(f"safe must be true or false, not {self.safe!r}.")
        if self.phi is not None and (isinstance(self.phi, bool) or not isinstance(self.phi, int | float)):
            raise ConfigError(f"phi must be a number, not {self.phi!r}.")

    def threshold(self, members: int) -> float:
        """ToTo's threshold for a view of this size; refuses one that would break agreement."""
        if self.phi is None:
            return members / 2
        if not members / 2 <= self.phi < members:
            raise ConfigError(
                f"phi = {self.phi:g} is out of range for {members} members: "
                f"choose {members / 2:g} <= phi < {members}, or leave it out for {members / 2:g}."
            )
        return float(self.phi)

    def fitted(self, members: int) -> Config:
        """The settings for a later view of this size: a threshold that no longer fits gives way to the default."""
        if self.phi is None or members / 2 <= self.phi < members:
            return self
        return replace(self, phi=None)

    def as_numbers(self) -> tuple[int, ...]:
        """Every setting as an unsigned number of 64 bits, in the order of the fields, as a greeting carries them."""
        return tuple(_number_of(name, getattr(self, name)) for name in CONFIG_NAMES)

    @classmethod
    def from_mapping(cls, settings: dict[str, Any]) -> Config:
        """Build from names and values, as a replay file has them; an unknown name is an error."""
        known = {field.name for field in fields(cls)}
        for name in settings:
            if name not in known:
                raise ConfigError(f"there is no setting {name!r}: choose among {', '.join(sorted(known))}.")
        return cls(**settings)


CONFIG_NAMES = tuple(field.name for field in fields(Config))
"""In the order of `Config.as_numbers`. Within a version of the wire format the names and their order do not change."""
NO_NUMBER = 2**64 - 1
"""Stands for None; no setting has this value."""
_FLOAT, _BITS = Struct("<d"), Struct("<Q")
FLOAT_MAX = 1e300  # a larger `phi` fits no view, and need not be told from this one


def _number_of(name: str, value: int | float | None) -> int:
    if value is None:
        return NO_NUMBER
    if name == "phi":
        bits: int = _BITS.unpack(_FLOAT.pack(min(value, FLOAT_MAX)))[0]
        return bits
    return int(value)


def describe_numbers(numbers: Sequence[int]) -> list[str]:
    """Settings as a person writes them, `safe=True`, from what a greeting carries. Impossible values are shown as they are."""
    return [f"{name}={_value_of(name, number)}" for name, number in zip(CONFIG_NAMES, numbers, strict=True)]


def _value_of(name: str, number: int) -> str:
    if number == NO_NUMBER:
        return "None"
    if name == "phi":
        return repr(_FLOAT.unpack(_BITS.pack(number))[0])
    if name == "safe" and number <= 1:
        return str(bool(number))
    return str(number)


_RANGES: tuple[tuple[str, int, int], ...] = (
    ("members_max", 1, 65_535),
    ("payload_bytes_max", 1, 2**31 - 1),
    ("batch_messages_max", 1, 65_535),
    ("batch_bytes_max", 1, 2**31 - 1),
    ("window_messages", 1, 2**31 - 1),
    ("ack_delay_ns", 1, 3_600 * SECOND),
    ("hold_batches_max", 1, 2**31 - 1),
)
