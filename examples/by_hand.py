"""Two members without a network: a list carries their datagrams, and time is a number.

A member does no I/O. Its driver hands it inputs, ends the turn with `drain`, and performs the effects.
"""

from random import Random

from unisono.core.member import Entered, Member, Settings
from unisono.core.types import Batch, MemberId
from unisono.orders.registry import ORDERS

PLACES = ("a:1", "b:1")
now = 0  # in nanoseconds; it passes only where a line below says so
network: list[tuple[str, bytes]] = []  # datagrams under way: where to, and what
deadlines: dict[str, int] = {}  # when each member wants a turn even if nothing arrives
members = {
    place: Member(MemberId(place, 1), "chat", ORDERS, "causal-total", Settings(), Random(place), now)
    for place in PLACES
}


def take_turn(place: str) -> None:
    effects = members[place].drain(now)  # performed from top to bottom; records, the first, would need a disk
    network.extend((to, datagram) for places, datagram in effects.datagrams for to in places)
    for event in effects.events:
        match event:
            case Entered(view):
                print(f"{now / 1e9:.3f} s  {place} enters a view of {len(view)}")
            case Batch(payloads=payloads) if payloads:
                print(f"{now / 1e9:.3f} s  {place} delivers {b' and '.join(payloads).decode()}")
    deadlines[place] = effects.deadline or now + 10**9


def run_until(end: int) -> None:
    global now
    while now < end:
        if network:
            place, datagram = network.pop(0)  # lose one, or take another first: the members cope
            members[place].receive([datagram], now)
        else:  # nothing is under way, so time passes until a member wants a turn
            place = min(PLACES, key=deadlines.__getitem__)
            now = max(now, deadlines[place])
        take_turn(place)


for place in PLACES:
    members[place].join(seeds=PLACES)  # where members may be
    take_turn(place)
run_until(2 * 10**9)
for place, text in (("a:1", b"question"), ("a:1", b"remark"), ("b:1", b"answer")):
    members[place].cast(text)  # what one member casts in a turn leaves as one batch
for place in PLACES:
    take_turn(place)
run_until(3 * 10**9)
