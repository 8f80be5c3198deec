"""What all checkers have in common: they listen to a history, and what they find is a `Violation`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import ClassVar

from unisono.trace.checks.history import History
from unisono.trace.checks.model import Cast, DeliveredPart, Life, Stay
from unisono.trace.checks.property import PropertyRecord, Violation
from unisono.trace.schema import Event

VIOLATIONS_MAX = 50
"""Maximum number of violations of one property that are told with their witnesses; all are counted."""


class Checker:
    """Judges one property of one run.

    Feed it rows with `observe`, in any interleaving that keeps each member's own order, and ask `finish` at the end;
    `violations` holds what is certain so far, the first ones of each view. Several checkers may share one history: then feeding
    any of them (or the history) feeds all, and each row is understood only once.

    A subclass overrides the methods for the rows that it wants to see; those that it leaves alone cost nothing.
    """

    about: ClassVar[PropertyRecord]

    def __init__(self, history: History | None = None) -> None:
        self.history = history or History()
        self.violations: list[Violation] = []
        self.counts: Counter[str | None] = Counter()
        """By view: how many violations there are."""
        self._concluded = False
        for name in ("row", "view", "cast", "deliver", "place", "end"):
            if getattr(type(self), name) is not getattr(Checker, name):
                self.history.listen(name, getattr(self, name))

    def observe(self, event: Event) -> None:
        self.history.observe(event)

    def finish(self) -> list[Violation]:
        """No more rows will come. Everything that was found; asking again gives the same answer."""
        self.history.finish()
        if not self._concluded:
            self._concluded = True
            self.conclude()
        return self.violations

    def tells(self, view: str | None) -> bool:
        """Whether the next violation in this view is told with its witness; otherwise it is only counted."""
        return self.counts[view] < VIOLATIONS_MAX

    def report(self, members: Iterable[str], view: str | None, **witness: object) -> None:
        if self.tells(view):
            known = {key: value for key, value in witness.items() if value is not None and value != []}
            self.violations.append(self.about.violation(tuple(members), view, known))
        self.counts[view] += 1

    # What a subclass may listen to. Called before the history takes the row into its books.

    def row(self, life: Life, event: Event) -> None:
        """Any row."""

    def view(self, stay: Stay, event: Event) -> None:
        """A VIEW row; `stay` is the stay that it begins."""

    def cast(self, cast: Cast, event: Event) -> None:
        """A CAST row."""

    def deliver(self, delivery: DeliveredPart) -> None:
        """(A part of) a DELIVER row; its CAST was seen before, if there is one."""

    def place(self, delivery: DeliveredPart) -> None:
        """(A part of) a PLACE row."""

    def end(self, life: Life, event: Event) -> None:
        """An END, LEAVE or CRASH row."""

    def conclude(self) -> None:
        """The run is over: report what only its end makes certain."""
