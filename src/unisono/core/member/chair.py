"""How membership sees the member: the one that holds the current view."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from unisono.core.ordering import Cut, Report
from unisono.core.types import MemberId, Packet, Slot, View, ViewId

if TYPE_CHECKING:
    from unisono.core.member.member import Member


class Chair:
    def __init__(self, member: Member) -> None:
        self._member = member

    def approach(self, wanted: bool) -> bool:
        assert self._member._seat is not None
        return self._member._seat.approach(wanted)

    def block(self) -> Report:
        assert self._member._seat is not None
        self._member._is_blocked = True
        return self._member._seat.block()

    def retained(self, slot: Slot) -> Packet | None:
        assert self._member._seat is not None
        return self._member._seat.retained(slot)

    def close(self, cut: Cut, missing: Mapping[Slot, Packet]) -> None:
        assert self._member._seat is not None
        self._member._seat.close(cut, missing)

    def depart(self, together: Sequence[MemberId], is_primary: bool) -> None:
        self._member._depart(together, is_primary)

    def install(
        self,
        view: View,
        previous: View | None,
        transitional: Sequence[MemberId],
        parts: Sequence[ViewId],
        order: str,
        attributes: Mapping[str, object],
    ) -> None:
        self._member._install(view, previous, transitional, parts, order, attributes)
