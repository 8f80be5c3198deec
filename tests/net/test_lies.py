"""One forged datagram with a number that cannot be: it stopped every receiver once (with a key, from any holder of it)."""

from __future__ import annotations

import unisono
from tests.net.hostile import GROUP, Besieged, besieged, live
from tests.runtime.ports import free_addresses
from unisono.core.config import Config
from unisono.core.types import MemberId
from unisono.core.wire.codec import Codec
from unisono.core.wire.envelope import CAST, make_plain
from unisono.orders import sequencer
from unisono.runtime.checksum import CHECKSUM_BYTES
from unisono.runtime.seal import Seal, make_key, read_key

KEY = make_key()


def lie_of_the_sequencer(siege: Besieged, victim: int) -> bytes:
    """In the name of rank 0: positions from 999 on, of which nobody has heard."""
    packet = Codec(sequencer.Sequencer.wire, Config()).encode(sequencer.Order(999, (0,)))
    streams = siege.groups[victim].running.member.streams
    assert streams is not None
    seq = streams.bodies_of(0)
    return siege.stream(0, make_plain(CAST, 0, seq, [packet], [len(packet)], []), cast_end=seq + 1)


def victims_of(siege: Besieged) -> list[int]:
    return [number for number in range(len(siege.groups)) if siege.rank(number) != 0]


@live
async def test_with_a_key_one_that_is_no_member_speaks_for_none() -> None:
    async with besieged(key=KEY, order="sequencer") as siege:
        await siege.cast_and_agree()
        before = list(siege.views)
        stranger = Seal(GROUP, MemberId(free_addresses(1)[0], 7), read_key(KEY, "the test"))
        for victim in victims_of(siege):
            frame = lie_of_the_sequencer(siege, victim)[:-CHECKSUM_BYTES]
            siege.hit(victim, stranger.close(frame))
            await siege.until(
                lambda victim=victim: siege.refused(victim).get("sender") == 1,  # type: ignore[misc]
                "the datagram is dropped, and counted",
            )
        await siege.cast_and_agree()
        assert siege.views == before


@live
async def test_with_a_key_a_member_speaks_for_no_other_member() -> None:
    async with besieged(key=KEY, order="sequencer") as siege:
        await siege.cast_and_agree()
        before = list(siege.views)
        victim, liar = victims_of(siege)
        frame = lie_of_the_sequencer(siege, victim)[:-CHECKSUM_BYTES]
        siege.hit(victim, siege.groups[liar].running.driver.seal.close(frame))
        await siege.until(lambda: siege.refused(victim).get("sender") == 1, "the datagram is dropped, and counted")
        await siege.cast_and_agree()
        assert siege.views == before


@live
async def test_without_a_key_a_forged_number_stops_no_receiver() -> None:
    """Nothing says who sent it, so the member in whose name it came loses its place for a while; all live and go on."""
    async with besieged(order="sequencer") as siege:
        await siege.cast_and_agree()
        victims = victims_of(siege)
        framed = next(number for number in range(3) if siege.rank(number) == 0)
        for victim in victims:
            siege.hit(victim, lie_of_the_sequencer(siege, victim))
        await siege.until(
            lambda: all(
                view is not None and siege.groups[framed].id not in view.members for view in views(siege, victims)
            ),
            "the victims go on without the one in whose name it came",
        )
        for number, group in enumerate(siege.groups):
            mark = f"after the lie, {number}".encode()
            await group.cast(mark)
            heard_by = victims if number in victims else [number]
            await siege.until(
                lambda mark=mark, heard_by=heard_by: all(mark in siege.delivered[one] for one in heard_by),  # type: ignore[misc]
                "it is delivered",
            )


def views(siege: Besieged, numbers: list[int]) -> list[unisono.View | None]:
    return [siege.views[number] for number in numbers]
