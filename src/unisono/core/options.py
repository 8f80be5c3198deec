"""The options of a cast, and how people give them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from unisono.core.errors import Misuse
from unisono.core.types import MemberId, Service


class CastOptions(NamedTuple):
    """How one message is cast. ``to`` names the addressees (None: everyone); the others hold a placeholder. ``safe``: deliver it
    only when every member has taken it in (None: as the group is configured)."""

    to: tuple[MemberId, ...] | None = None
    service: Service | None = None
    safe: bool | None = None

    @classmethod
    def of(
        cls, to: MemberId | Iterable[MemberId] | None, safe: bool | None, service: Service | str | None
    ) -> CastOptions:
        """As people give them."""
        if isinstance(service, str):
            try:
                service = Service[service.upper()]
            except KeyError:
                names = ", ".join(one.name.lower() for one in Service)
                raise Misuse(f"there is no service {service!r}: choose {names}.") from None
        return cls(addressees(to), service, safe)


DEFAULT = CastOptions()


def addressees(to: MemberId | Iterable[MemberId] | None) -> tuple[MemberId, ...] | None:
    """One member, or several, or None: everyone."""
    if to is None or isinstance(to, MemberId):
        return None if to is None else (to,)
    named = () if isinstance(to, str | bytes) else tuple(to)
    if isinstance(to, str | bytes) or not all(isinstance(one, MemberId) for one in named):
        raise Misuse(f"to = {to!r} names no members: give a MemberId, as in `group.members`, or several.")
    return named
