"""Every order by its name on the command line, and the wire table of all their packets."""

from __future__ import annotations

from collections.abc import Mapping

from unisono.core.config import Config
from unisono.core.errors import Misuse
from unisono.core.ordering import AnyOrdering
from unisono.core.wire import Codec
from unisono.orders.abcast import Abcast
from unisono.orders.all_ack import AllAck
from unisono.orders.causal import Causal
from unisono.orders.fifo import Fifo
from unisono.orders.rmp import Rmp
from unisono.orders.sequencer import CausalTotal, FifoTotal, Sequencer
from unisono.orders.tomp import Tomp
from unisono.orders.toto import Toto

ORDERS: Mapping[str, type[AnyOrdering]] = {
    "fifo": Fifo,
    "causal": Causal,
    "sequencer": Sequencer,
    "fifo-total": FifoTotal,
    "causal-total": CausalTotal,
    "abcast": Abcast,
    "tomp": Tomp,
    "all-ack": AllAck,
    "toto": Toto,
    "rmp": Rmp,
}

DEFAULT_ORDER = "causal-total"
"""What members take unless told otherwise: the sequencer, with everything promised that its code keeps."""

FLUSH_LAYOUTS = tuple(
    dict.fromkeys(layout for order in ORDERS.values() for layout in (order.report_wire, order.cut_wire))
)
"""How reports and cuts look on the wire."""

LAYOUTS = tuple(dict.fromkeys(layout for order in ORDERS.values() for layout in order.wire))


def find_order(name: str) -> type[AnyOrdering]:
    """The order of that name; an unknown name is the caller's mistake, answered with the names there are."""
    if name not in ORDERS:
        raise Misuse(f"there is no order {name!r}: choose among {', '.join(ORDERS)}.")
    return ORDERS[name]


def make_codec(config: Config) -> Codec:
    """The codec for every order's packets."""
    return Codec(LAYOUTS, config)
