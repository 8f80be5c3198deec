"""P23 resources: queues, unacknowledged bytes, retransmissions per message within their limits.

COUNTERS rows carry what the driver counts and how far it may go: for each attribute ``x`` with a sibling ``x_limit``, x is at
most x_limit (`queue_max` and `queue_max_limit`). Both are numbers with or without a fraction; something else is a violation
too. A counter without a limit, and a limit without its counter, say nothing.
"""

from __future__ import annotations

from unisono.trace.checks.attributes import decimal
from unisono.trace.checks.checker import Checker
from unisono.trace.checks.model import Life
from unisono.trace.checks.property import Example, Kind, PropertyRecord, RowOf
from unisono.trace.schema import COUNTERS, Event

LIMIT = "_limit"


class Resources(Checker):
    about = PropertyRecord(
        id="P23",
        name="resources",
        says="Queues, unacknowledged bytes and retransmissions stay within their limits.",
        exact=__doc__,
        rows=(COUNTERS,),
        roles=("who",),
        witness={
            "what": Kind.TEXT, "local": RowOf("who"), "counter": Kind.TEXT, "value": Kind.TEXT, "limit": Kind.TEXT,
        },
        sentence={
            "over": "{who} has {counter} = [{value}|nothing], with a limit of {limit} (local {local}).",
            "unreadable": "{who} has {counter} = [{value}|nothing], with a limit of {limit} (local {local}).",
        },
        example=Example(
            ("a",), "1@a", {"what": "over", "local": 1, "counter": "queue_max", "value": "5", "limit": "4"}
        ),
    )  # fmt: skip

    def row(self, life: Life, event: Event) -> None:
        if event.kind != COUNTERS or event.attributes is None:
            return
        for name in sorted(event.attributes):
            limit = event.attributes.get(name + LIMIT)
            if limit is not None:
                self._judge(life, event, name, event.attributes[name], limit)

    def _judge(self, life: Life, event: Event, name: str, text: str, limit_text: str) -> None:
        value, limit = decimal(text), decimal(limit_text)
        if value is not None and limit is not None and value <= limit:
            return
        self.report(
            [life.name],
            event.view,
            what="unreadable" if value is None or limit is None else "over",
            local=event.local_index,
            counter=name,
            value=text,
            limit=limit_text,
        )
