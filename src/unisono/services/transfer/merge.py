"""A merge of states: its parts, the bases that are here, and the members that may have the others. See `transfer`."""

from __future__ import annotations

from unisono.core.member import Entered, Happening
from unisono.core.types import MemberId
from unisono.core.wire import Part
from unisono.services.transfer.messages import PartKey
from unisono.services.transfer.settings import Values


def is_merge(event: Happening) -> bool:
    """Whether a view joins several parts whose states must be merged. Under the primary policy none does."""
    return isinstance(event, Entered) and len(event.charter.parts) > 1 and not has_primary_policy(event)


def has_primary_policy(entered: Entered) -> bool:
    """Whether the group follows the primary policy: without it every view may cast, yet no charter is primary."""
    return entered.is_primary is entered.charter.primary


def key_of(part: Part) -> PartKey:
    return PartKey(part.view, part.cut)


class Merge:
    """A merge under way. See the module's docstring."""

    def __init__(self, entered: Entered, own: PartKey, base: bytes, values: Values, companions: set[MemberId]) -> None:
        self.view = entered.view.id
        self.parts = {PartKey(part.view, part.cut): part.members for part in entered.charter.parts}
        self.order = sorted(self.parts)
        self.own = own
        self.bases: dict[PartKey, tuple[bytes, Values]] = {own: (base, values)}
        self.lost: set[PartKey] = set()  # parts whose base no member has
        self.in_doubt: PartKey | None = None  # the part whose base no companion has
        self.companions = companions
        self.gave = False  # the own base was offered

    def missing(self) -> PartKey | None:
        """The next part whose base must be fetched."""
        return next((key for key in self.order if key not in self.bases and key not in self.lost), None)

    def lacks_part_of(self, member: MemberId) -> bool:
        """Whether the base of this member's part is not here."""
        return any(member in self.parts[key] for key in self.order if key not in self.bases and key not in self.lost)

    def candidates(self, key: PartKey, me: MemberId) -> list[MemberId]:
        """Whom to ask for a base: members of that part first."""
        return sorted(self.companions - {me}, key=lambda member: (member not in self.parts[key], member))
