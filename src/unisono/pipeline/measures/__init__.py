"""Measures: what a trace says of speed and cost, apart from whether it is right. Each is a DataFrame made from the silver tables.

| measure            | one row is                                                                                      |
|--------------------|-------------------------------------------------------------------------------------------------|
| latency            | cast to delivery, of one run: at the sender, and over all members (simulated clocks alone)      |
| latency_by_member  | the same for each life that delivered                                                           |
| t1, t2             | first received until the place is known; from then until delivered (000, section 2.3)           |
| holdback           | first received until delivered, at members that did not cast the message                           |
| index_of_latency   | means and bounds of τ and ω of one run (004, section 6)                                         |
| joint_distribution | how many messages had this τ and this ω                                                         |
| throughput         | messages a second, of each life by its own clock                                                |
| view_change_gaps   | one life that passes from one view to the next: how long it was blocked and how long silent     |
| cost               | packets and bytes a message beside the theory, where a trace holds COUNTERS                      |

Clocks of two members are compared only if both are simulated. Durations are in ns, and count every message of a batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from unisono.pipeline.measures.cost import cost
from unisono.pipeline.measures.gaps import view_change_gaps
from unisono.pipeline.measures.indices import index_of_latency, joint_distribution
from unisono.pipeline.measures.journeys import journeys_of
from unisono.pipeline.measures.latency import holdback, latency, latency_by_member, t1, t2
from unisono.pipeline.measures.spread import fitting_accuracy
from unisono.pipeline.measures.throughput import throughput
from unisono.pipeline.tables import keep_for_good

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from unisono.pipeline.tables import Keep, TraceTables

__all__ = [
    "cost",
    "fitting_accuracy",
    "holdback",
    "index_of_latency",
    "joint_distribution",
    "latency",
    "latency_by_member",
    "measure_all",
    "t1",
    "t2",
    "throughput",
    "view_change_gaps",
]


def measure_all(tables: TraceTables, accuracy: int | None = None, keep: Keep = keep_for_good) -> dict[str, DataFrame]:
    """Every measure by name. Percentiles are exact; with `accuracy` their rank may be off by 1/accuracy of the whole."""
    journeys = keep(journeys_of(tables))  # five of them ask for it
    return {
        "latency": latency(journeys, accuracy),
        "latency_by_member": latency_by_member(journeys, accuracy),
        "t1": t1(journeys, accuracy),
        "t2": t2(journeys, accuracy),
        "holdback": holdback(journeys, accuracy),
        "index_of_latency": index_of_latency(tables),
        "joint_distribution": joint_distribution(tables),
        "throughput": throughput(tables),
        "view_change_gaps": view_change_gaps(tables),
        "cost": cost(tables),
    }
