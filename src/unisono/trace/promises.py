"""Which properties each order owes, by the service of the message.

`sequencer` promises a plain total order, although on FIFO streams it happens to be FIFO and causal too; `fifo-total` and
`causal-total` are the same protocol with those promises made, and `causal-total` is the default. Uniform total order (P10)
is promised by `rmp` alone, whose two-phase commit (P18) delivers nothing that some member may lack.
P9 judges the service `total` alone, so an order that carries several services in one stream owes the union of them; P5, P7 and
P14 do not ask for datagrams. A run whose order is switched owes what all of its orders promise.
"""

from __future__ import annotations

from unisono.trace.schema import TraceError

SHOWN = frozenset({"P25", "P26", "P27", "P28", "P29"})
"""What an application is shown. They say nothing where that was not recorded, P27 and P29 nothing without the primary policy."""
ALWAYS = frozenset({"P0", "P1", "P2", "P3", "P4", "P5", "P11", "P12", "P13", "P14"}) | SHOWN
"""Every order in views: nothing created, duplicated or lost, views that agree, and applications that are told the truth."""
FIFO = frozenset({"P6", "P7"})
CAUSAL = FIFO | {"P8"}
TOTAL = frozenset({"P9a", "P9b", "P9c"})
UNIFORM = TOTAL | {"P10"}
DATAGRAM = ALWAYS - {"P5", "P14"}
"""Fire and forget: whoever gets it. Its caster does, at once."""

PROMISES: dict[str, dict[str, frozenset[str]]] = {
    "fifo": {"fifo": ALWAYS | FIFO},
    "causal": {"causal": ALWAYS | CAUSAL | {"P8c"}},
    "sequencer": {"total": ALWAYS | TOTAL},
    "fifo-total": {"total": ALWAYS | FIFO | TOTAL},
    "causal-total": {"total": ALWAYS | CAUSAL | TOTAL},
    "abcast": {"total": ALWAYS | FIFO | TOTAL},
    "tomp": {"total": ALWAYS | FIFO | TOTAL},
    "all-ack": {"total": ALWAYS | CAUSAL | TOTAL, "causal": ALWAYS | CAUSAL},
    "toto": {"total": ALWAYS | CAUSAL | TOTAL, "causal": ALWAYS | CAUSAL},
    "rmp": {"total": ALWAYS | FIFO | UNIFORM | {"P18"}, "fifo": ALWAYS | FIFO, "datagram": DATAGRAM},
}


def excused(protocol: str, order: str) -> frozenset[str]:
    """What a run of `protocol` does not owe any more once it has had a view of another order."""
    return owed_by(protocol) - owed_by(order)


def owed_by(order: str) -> frozenset[str]:
    """What an order owes; of one that nobody knows, what everyone owes."""
    if order in PROMISES:
        return promises(order)
    return frozenset.intersection(*(promises(name) for name in PROMISES))


def promises(order: str, service: str | None = None) -> frozenset[str]:
    """The ids of the properties that `order` owes: of one service, or (None) of a run that may use all it carries."""
    services = PROMISES.get(order)
    if services is None:
        raise TraceError(f"nothing is promised for the order {order!r}: choose among {', '.join(sorted(PROMISES))}.")
    if service is None:
        return frozenset().union(*services.values())
    if service not in services:
        raise TraceError(f"the order {order} carries no service {service!r}: choose {' or '.join(sorted(services))}.")
    return services[service]
