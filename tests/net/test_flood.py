"""A stranger floods a sealed member with datagrams of invented lives: casts go on. Ratios alone are judged."""

from __future__ import annotations

import asyncio
import sys
from time import monotonic
from timeit import repeat
from typing import Any

import pytest

import unisono
from tests.net import flooder
from tests.net.hostile import live
from tests.net.stage import PACE, Process
from tests.runtime.ports import free_addresses
from unisono.core.types import MemberId
from unisono.core.wire.frame import group_tag
from unisono.runtime.addresses import sockaddr_of
from unisono.runtime.seal import SEALED, Seal, make_key

GROUP = "flooded"
ROUNDS, ROUND_S = 4, 1.2
PAUSE_S = 0.005

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the flood leaves by UDP GSO")


def unbearable_rate() -> float:
    """So many key derivations a second keep a core of this machine busy, and nothing else is done."""
    seal = Seal("g", MemberId("127.0.0.1:1", 1), bytes(range(32)))
    return 100 / min(repeat(lambda: seal._derive(bytes(16), b"name"), number=100, repeat=20))


async def count_casts(group: unisono.Group, until: asyncio.Future[bytes] | None = None) -> float:
    """How many casts a second are delivered, one after the other: for a round, or until something has come."""
    begin, casts = monotonic(), 0
    while (monotonic() - begin < ROUND_S) if until is None else not until.done():
        await (await group.cast(bytes(100))).delivered(timeout=60)
        casts += 1
        await asyncio.sleep(PAUSE_S)
    return casts / (monotonic() - begin)


async def count_flooded(group: unisono.Group, address: str, rate: float) -> float:
    tag = group_tag(GROUP).to_bytes(4, "little").hex()
    arguments = map(str, (sockaddr_of(address)[1], rate, ROUND_S, tag, SEALED))
    flood = await asyncio.create_subprocess_exec(
        sys.executable, flooder.__file__, *arguments, stdout=asyncio.subprocess.PIPE
    )
    assert flood.stdout is not None
    assert await flood.stdout.readline() == b"go\n"
    flooded = await count_casts(group, asyncio.ensure_future(flood.stdout.readline()))
    assert await flood.wait() == 0
    return flooded


@live
async def test_f18_casts_go_on_at_half_their_rate_while_a_stranger_invents_lives() -> None:
    """Found by flooding: each datagram cost a key derivation, and of 300 casts 6 were left."""
    own, victim = free_addresses(2)
    wishes: dict[str, Any] = {
        "group": GROUP,
        "peers": [own, victim],
        "key": make_key(),
        "min_members": 2,
        "timeout": 30,
    }
    wishes |= {"pace": PACE, "safe": True}  # so that no cast is delivered without the victim
    process = Process("victim", victim, {**wishes, "listen": victim})
    try:
        async with unisono.join(**wishes, listen=own) as group:
            reading = asyncio.ensure_future(group.each(lambda sender, payload: None))
            rate, quiet, flooded = unbearable_rate(), 0.0, 0.0
            for _ in range(ROUNDS):
                quiet += await count_casts(group)
                flooded += await count_flooded(group, victim, rate)
            assert len(group.members) == 2
            reading.cancel()
            assert flooded >= quiet / 2, f"{flooded:.0f} casts instead of {quiet:.0f} at {rate:.0f} datagrams a second"
    finally:
        process.clear()
