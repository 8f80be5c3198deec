"""Every limit and every timeout, with its unit in its name, validated where it is set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from struct import Struct
from typing import Any, TypeVar

from unisono.core.errors import ConfigError

MILLISECOND = 1_000_000
SECOND = 1_000 * MILLISECOND
HOUR = 3_600 * SECOND
NUMBER_MAX = 2**63 - 1
"""No setting is larger."""
T = TypeVar("T", bound=int | None)


def ranged(default: T, low: int, high: int, may_be_none: bool = False) -> T:
    """A setting that is a whole number within these bounds, or None if that is its default or `may_be_none`."""
    return field(default=default, metadata={"range": (low, high, may_be_none or default is None)})


def duration(default: int) -> int:
    """A setting that is a time, up to an hour."""
    return ranged(default, 1, HOUR)


def check_ranges(settings: Any) -> None:
    """Raise `ConfigError` for the first setting that is outside of its range."""
    for one in fields(settings):
        if "range" not in one.metadata:
            continue
        value, (low, high, may_be_none) = getattr(settings, one.name), one.metadata["range"]
        if value is None and may_be_none:
            continue
        if isinstance(value, bool) or not isinstance(value, int):
            raise ConfigError(f"{one.name} must be a whole number, not {value!r}.")
        if not low <= value <= high:
            choice = f"at least {low}" if high == NUMBER_MAX and value < low else f"{low} to {high}"
            raise ConfigError(f"{one.name} = {value} is out of range: choose {choice}.")


@dataclass(frozen=True, slots=True)
class Config:
    """The settings of a group. All members of a group use the same."""

    members_max: int = ranged(1_024, 1, 65_535)
    """Maximum number of members in a view."""
    payload_bytes_max: int = ranged(16 * 1024 * 1024, 1, 2**31 - 1)
    """Maximum payload size of one message, in bytes."""
    batch_messages_max: int = ranged(4_096, 1, 65_535)
    """Maximum number of messages per batch."""
    batch_bytes_max: int = ranged(1024 * 1024, 1, 2**31 - 1)
    """Maximum payload bytes per batch; a single message may be larger, and is then alone in its batch."""
    window_messages: int = ranged(65_536, 1, 2**31 - 1)
    """Maximum number of own messages that are cast and not yet delivered here; beyond it `cast` is refused."""
    ack_delay_ns: int | None = ranged(5 * MILLISECOND, 1, HOUR, may_be_none=True)
    """Maximum delay of an acknowledgement that waits for an own cast to carry it; None: no limit (ToTo's paper mode)."""
    hold_batches_max: int = ranged(64, 1, 2**31 - 1)
    """RMP: maximum number of batches that the holder of the group's lock transmits while others wait for it."""
    safe: bool = False
    """The default for messages cast without `safe`: deliver only after every member has processed all that precedes."""
    phi: float | None = None
    """ToTo's threshold, n/2 <= phi < n; None: n/2."""

    def __post_init__(self) -> None:
        check_ranges(self)
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
