"""The options of a cast, as people give them."""

from __future__ import annotations

from collections.abc import Iterable

from unisono.core.errors import Misuse
from unisono.core.types import CastOptions, MemberId, Service


def options_of(
    to: MemberId | Iterable[MemberId] | None, safe: bool | None, service: Service | str | None
) -> CastOptions:
    """Raises `Misuse` if a service or a member is none."""
    if isinstance(service, str):
        try:
            service = Service[service.upper()]
        except KeyError:
            names = ", ".join(one.name.lower() for one in Service)
            raise Misuse(f"there is no service {service!r}: choose {names}.") from None
    return CastOptions(addressees(to), service, safe)


def addressees(to: MemberId | Iterable[MemberId] | None) -> tuple[MemberId, ...] | None:
    """One member, or several, or None: everyone."""
    if to is None or isinstance(to, MemberId):
        return None if to is None else (to,)
    named = () if isinstance(to, str | bytes) else tuple(to)
    if isinstance(to, str | bytes) or not all(isinstance(one, MemberId) for one in named):
        raise Misuse(f"to = {to!r} names no members: give a MemberId, as in `group.members`, or several.")
    return named
