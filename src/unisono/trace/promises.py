"""Which properties each order owes, by the service of the message.

`sequencer` promises a plain total order, although on FIFO streams it happens to be FIFO and causal too; `fifo-total` and
`causal-total` are the same protocol with those promises made, and `causal-total` is the default. Uniform total order (P10)
is promised by `rmp` alone, whose two-phase commit (P18) delivers nothing that some member may lack.
P9 judges the service `total` alone, so an order that carries several services in one stream owes the union of them; P5, P7 and
P14 do not ask for datagrams.

What is owed is owed view by view, because the order of a running group can be switched: a VIEW row names the order of its view
(`reason`, else `protocol`). An order that is not known here owes what every order owes, and keeps its run from passing. So does a
list of properties that contains an unknown one; the others in the list are checked.
"""

from __future__ import annotations

from collections.abc import Iterable

from unisono.trace import schema
from unisono.trace.schema import VIEW, Event, TraceError

SHOWN = frozenset({"P25", "P26", "P27", "P28", "P29"})
"""What an application is shown. They say nothing where that was not recorded, P27 and P29 nothing without the primary policy."""
ALWAYS = frozenset({"P0", "P1", "P2", "P3", "P4", "P5", "P11", "P12", "P13", "P14", "P15"}) | SHOWN
"""Every order in views: nothing created, duplicated or lost, views that agree, and applications that are told the truth."""
FIFO = frozenset({"P6", "P7"})
CAUSAL = FIFO | {"P8"}
TOTAL = frozenset({"P9a", "P9b", "P9c"})
UNIFORM = TOTAL | {"P10"}
DATAGRAM = ALWAYS - {"P5", "P14"}
"""Fire and forget: delivery is not promised, except to the caster, at once."""

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
SERVICES = frozenset[str]().union(*PROMISES.values())
"""All services that any order carries."""

PROPERTIES = frozenset({*(f"P{number}" for number in range(30) if number not in (9, 24)), "P8c", "P9a", "P9b", "P9c"})
"""The properties that one run can keep or break. P24 compares two runs."""
LISTED = "owes "
"""An order of another system, as a list of properties: ``owes P1,P2,P9a``. It owes these and P0, and may carry any service."""


def order_that_owes(properties: Iterable[str]) -> str:
    """The name of an order that owes these properties, for traces of other systems."""
    return LISTED + ",".join(sorted(properties))


def properties_listed(order: str) -> tuple[str, ...] | None:
    """What an order of another system lists, properties or not; None if it is no list, or lists nothing."""
    return tuple(order.removeprefix(LISTED).split(",")) if order.startswith(LISTED) and order != LISTED else None


def unknown_in(order: str, view: str) -> str | None:
    """Why a view of this order cannot pass; None: it is known what the order owes."""
    listed = properties_listed(order)
    if listed is None:
        return None if order in PROMISES else f"nothing is known of the order {order!r} of view {view}"
    unknown = [one for one in listed if one not in PROPERTIES]
    return f"there is no property {min(unknown)!r}, which the order of view {view} owes" if unknown else None


def is_known(order: str) -> bool:
    """Whether it is known what an order owes."""
    return unknown_in(order, "") is None


def owed_by(order: str) -> frozenset[str]:
    """The ids of the properties that an order owes; of an unknown one, what every order owes."""
    listed = properties_listed(order)
    if listed is not None:
        return PROPERTIES.intersection({"P0", *listed})
    return promises(order) if order in PROMISES else ALWAYS


def order_of(view: Event) -> str:
    """The order of the view that a VIEW row installs."""
    return order_named(view.reason, view.protocol)


def order_named(reason: str | None, protocol: str) -> str:
    """The order that a VIEW row names by its `reason`, or else by its `protocol`.

    A list of properties adds to what a known protocol owes: those rows are written by this program, and a list takes nothing back.
    """
    if reason and properties_listed(reason) is not None and protocol in PROMISES:
        return f"{reason},{_listed_beside(protocol)}"
    return reason or protocol


def _listed_beside(protocol: str) -> str:
    return ",".join(sorted(promises(protocol)))


def is_committed(order: str, service: str | None) -> bool:
    """Whether an order commits messages of a service in two phases (P18)."""
    if properties_listed(order) is not None:
        return "P18" in owed_by(order) and service != schema.DATAGRAM
    return "P18" in PROMISES.get(order, {}).get(service or "", ())


def unordered_in(order: str, service: str | None) -> bool:
    """Whether an order owes a total order, and may carry this service, of which nothing is known."""
    return service not in SERVICES and properties_listed(order) is not None and not owed_by(order).isdisjoint(UNIFORM)


class Orders:
    """The orders of a run's views, and what is owed in each.

    If members disagree about the order of a view (which P11 reports), all that any of the orders owes is owed in it. So it is
    where no VIEW row tells of a view, or a violation belongs to no view: then every order of the run counts.
    """

    def __init__(self) -> None:
        self.by_view: dict[str | None, set[str]] = {}
        self._protocols: set[str] = set()

    def add(self, event: Event) -> None:
        """Take in a row of the run."""
        self._protocols.add(event.protocol)
        if event.kind == VIEW:
            self.by_view.setdefault(event.view, set()).add(order_of(event))

    @property
    def all(self) -> frozenset[str]:
        """All orders of the run; without any view, those that its rows name."""
        return frozenset().union(*self.by_view.values()) or frozenset(self._protocols)

    def owed_in(self, view: str | None) -> frozenset[str]:
        return owed_by_all(self.by_view.get(view) or self.all)

    @property
    def owed(self) -> frozenset[str]:
        """What is owed in any view."""
        return owed_by_all(self.all)


def owed_by_all(orders: Iterable[str]) -> frozenset[str]:
    """What any of these orders owes."""
    return frozenset().union(*map(owed_by, orders))


def services_of(orders: Iterable[str]) -> frozenset[str] | None:
    """The services that these orders carry; None if one of them may carry any."""
    known = [PROMISES.get(order) for order in orders]
    return None if None in known else frozenset().union(*(services for services in known if services is not None))


def promises(order: str, service: str | None = None) -> frozenset[str]:
    """The ids of the properties that `order` owes: of one service, or (None) of a run that may use all it carries."""
    services = PROMISES.get(order)
    if services is None:
        known = ", ".join(sorted(PROMISES))
        raise TraceError(
            f"nothing is promised for the order {order!r}: choose among {known}; "
            "for an order of your own, add it to PROMISES in trace/promises.py."
        )
    if service is None:
        return frozenset().union(*services.values())
    if service not in services:
        raise TraceError(f"the order {order} carries no service {service!r}: choose {' or '.join(sorted(services))}.")
    return services[service]
