"""The crash check of the explorer: what a flush among some survivors would lead to, from any state, each computed once."""

from __future__ import annotations

from collections.abc import Sequence

from unisono.core.errors import Misuse
from unisono.core.types import Property, Rank
from unisono.sim.explore.orders.judge import Judge
from unisono.sim.explore.orders.member import Setup, merge
from unisono.sim.explore.orders.side import OrderSide
from unisono.sim.explore.search import blame
from unisono.sim.oracle import missing_packets


class Flushes:
    """Flushes among the survivors of one set of crashed members.

    The outcome depends on the survivors' local states, and on the histories of the crashed up to their last casts, which decide
    what their messages follow; if the order is uniform, on all that they delivered. Reports are fewer than local states, and cuts
    than reports, so each part is remembered by itself.
    """

    def __init__(self, setup: Setup, sides: Sequence[OrderSide], crashed: tuple[Rank, ...], judge: Judge) -> None:
        self.crashed = crashed
        self.checked = 0
        self.outcomes: set[tuple[int, ...]] = set()  # by rank: the number of the history
        self._setup = setup
        self._sides = sides
        self._shared = sides[0].shared
        self._uniform = Property.UNIFORM in setup.order.guarantees
        self._survivors = [side for side in sides if side.rank not in crashed]
        self._judge = judge
        self._seen: set[int] = set()
        self._cuts: dict[tuple[int, ...], int] = {}  # by the numbers of the reports: the number of their cut

    def check(self, locals_: Sequence[int]) -> str | None:
        """Flush from these local states of all members; the sentence on what is wrong, if anything is."""
        key = 0
        for side in self._sides:
            local = locals_[side.rank]
            if side.rank in self.crashed:
                local = self._history(side, local)
            key |= local << side.situations.shift
        if key in self._seen:
            return None
        self._seen.add(key)
        self.checked += 1
        try:
            histories = self._flush(locals_)
        except Misuse:
            raise
        except Exception as error:
            return blame(error)
        if histories in self.outcomes:
            return None
        self.outcomes.add(histories)
        acts = self._shared.histories.values
        return self._judge.flush([acts[history] for history in histories], self.crashed)

    def _flush(self, locals_: Sequence[int]) -> tuple[int, ...]:
        """By rank: the history to the end of the view, or as far as it matters of a member that crashed."""
        reported = [side.report(locals_[side.rank]) for side in self._survivors]
        reports = {side.rank: one.report for side, one in zip(self._survivors, reported, strict=True)}
        numbers = tuple([one.number for one in reported])
        number = self._cuts.get(numbers)
        if number is None:
            number = self._cuts[numbers] = self._shared.cut(merge(self._setup, reports))
        lacks = missing_packets(
            self._setup.view, self._shared.cuts.values[number], reports, [one.kept for one in reported]
        )
        histories = [self._history(side, local) for side, local in zip(self._sides, locals_, strict=True)]
        for side in self._survivors:
            histories[side.rank] = side.close(locals_[side.rank], number, lacks[side.rank])
        return tuple(histories)

    def _history(self, side: OrderSide, local: int) -> int:
        """What matters of a crashed member's history."""
        state = side.locals.values[local]
        return state.history if self._uniform else state.until_cast
