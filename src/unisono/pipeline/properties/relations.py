"""What several properties need: who went on together, and an order in which casts come first."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import functions as F
from pyspark.sql.window import Window

from unisono.pipeline.tables import LIFE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from unisono.pipeline.tables import TraceTables

STAY = (*LIFE, "view", "stay")
WAY = ("run", "group", "view", "way")


def deliveries(tables: TraceTables) -> DataFrame:
    """DELIVER and PLACE rows in their stays."""
    return tables.attributed.where(F.col("kind") != "CAST")


def transitions(tables: TraceTables) -> DataFrame:
    """(V→V'): whole stays with their way, who went it together, and whether it was a last view that was cut."""
    same = Window.partitionBy(*WAY).rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    was_cut = (F.col("way") == "END") & F.coalesce(F.col("ended_reason") == "cut", F.lit(False))
    return (
        judged_stays(tables)
        .where(F.col("way").isNotNull())
        .select(
            *STAY,
            "who",
            "way",
            "next_view",
            F.min(was_cut).over(same).alias("cut"),
            F.array_sort(F.collect_set("who").over(same)).alias("together"),
        )
    )


def judged_stays(tables: TraceTables) -> DataFrame:
    """Stays of which no row is missing, each life's only one in its view, of members of that view."""
    whole = ~F.col("holed") & F.col("first_word") & F.array_contains("members", F.col("who"))
    return tables.stays.where(whole).withColumnRenamed("from_index", "stay")


def batch_name(origin: str = "origin_who", first: str = "first", count: str = "count") -> Column:
    """``a:5``, or ``a:5-7`` for several."""
    last = F.when(F.col(count) > 1, F.concat(F.lit("-"), F.col(first) + F.col(count) - 1)).otherwise("")
    return F.concat(F.col(origin), F.lit(":"), F.col(first), last)


# Plain Python, for sequential scans on the workers.


class RelationStep(NamedTuple):
    """A row of one life: it casts `casts`, or needs `needs` to have been cast before. `row` says which row it is."""

    row: int
    casts: Hashable = None
    needs: Hashable = None
    delivers: bool = False


def causal_order(lives: Mapping[str, Sequence[RelationStep]]) -> Iterator[tuple[RelationStep, bool]]:
    """All steps, each life's in their order, casts before deliveries.

    No order explains a circle of casts and deliveries. It is opened at one delivery that then comes with True: before its cast.
    Messages without a CAST are not waited for.
    """
    owner = {step.casts: life for life, steps in lives.items() for step in steps if step.casts is not None}
    place = dict.fromkeys(lives, 0)
    cast: set[Hashable] = set()
    waiting: defaultdict[Hashable, list[str]] = defaultdict(list)
    ready = deque(lives)
    given_up: str | None = None
    while True:
        while ready:
            life = ready.popleft()
            steps = lives[life]
            while place[life] < len(steps):
                step = steps[place[life]]
                early = step.needs in owner and step.needs not in cast
                if early and life != given_up:
                    waiting[step.needs].append(life)
                    break
                given_up = None if early else given_up
                yield step, early
                place[life] += 1
                if step.casts is not None:
                    cast.add(step.casts)
                    ready.extend(waiting.pop(step.casts, ()))
        stuck = {life: lives[life][place[life]] for life in lives if place[life] < len(lives[life])}
        if not stuck:
            return
        given_up = _one_of_a_circle(stuck, owner)
        waiting[stuck[given_up].needs].remove(given_up)
        ready.append(given_up)


def _one_of_a_circle(stuck: Mapping[str, RelationStep], owner: Mapping[Hashable, str]) -> str:
    """Follow who waits for whom until someone comes again; in that circle, one that delivers rather than places."""
    path: list[str] = []
    life = next(iter(stuck))
    while life not in path:
        path.append(life)
        life = owner[stuck[life].needs]
    circle = path[path.index(life) :]
    return next((life for life in circle if stuck[life].delivers), circle[0])
