"""All timers of a member faster or slower by one factor; and times that people give, in seconds."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, TypeVar

from unisono.core.errors import Misuse
from unisono.core.member import Settings

_KEPT = {"nak_delay_ns", "retransmit_ns_per_kib"}
"""These follow the network, not people's patience."""
_NEVER_SLOWER = {"ack_delay_ns", "retransmit_ns_min"}
"""These wait for company on the way, and waiting longer brings no more of it."""
T = TypeVar("T")


SECONDS_MIN, SECONDS_MAX = 0.001, 1e9


def check_seconds(seconds: float | None, what: str, least: float = SECONDS_MIN) -> None:
    """None means without a limit. What is no number of seconds is refused by its name."""
    if seconds is not None and not (isinstance(seconds, int | float) and least <= seconds <= SECONDS_MAX):
        raise Misuse(f"{what} = {seconds!r} is impossible: choose {least:g} to {SECONDS_MAX:g} seconds.")


def paced(settings: Settings, factor: float) -> Settings:
    """The same settings with every time multiplied."""
    if not 0.01 <= factor <= 100:
        raise Misuse(f"pace = {factor:g} is out of range: choose 0.01 to 100.")
    if factor == 1:
        return settings
    return replace(
        settings,
        streams=_scaled(settings.streams, factor),
        detector=_scaled(settings.detector, factor),
        membership=_scaled(settings.membership, factor),
        flow=_scaled(settings.flow, factor),
    )


def _scaled(part: T, factor: float) -> T:
    changed: dict[str, Any] = {}
    for field in fields(part):  # type: ignore[arg-type]
        value = getattr(part, field.name)
        is_time = field.name.endswith("_ns") or "_ns_" in field.name
        if is_time and field.name not in _KEPT and isinstance(value, int):
            changed[field.name] = max(1, int(value * (min(factor, 1) if field.name in _NEVER_SLOWER else factor)))
    return replace(part, **changed)  # type: ignore[type-var]
