"""Damaged, foreign and repeated datagrams from a stranger's socket, against live members with and without a key (F1 to F8, F16)."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Iterator
from itertools import product
from random import Random

import pytest

from tests.net.hostile import (
    DATAGRAM_BYTES_MAX,
    Besieged,
    Sent,
    besieged,
    head,
    is_control,
    is_stream,
    live,
    with_checksum,
)
from tests.runtime.ports import free_addresses
from unisono.core.types import MemberId
from unisono.core.wire.codec import VERSION as WIRE
from unisono.core.wire.envelope import BODY, CAST, make_plain
from unisono.core.wire.frame import STREAM, Frames
from unisono.runtime.seal import SEALED, Seal, make_key, overhead, read_key

KEY = make_key()
KEYS = [pytest.param(None, id="open"), pytest.param(KEY, id="sealed")]
GROWTH_BYTES_MAX = 4 << 20


def to(siege: Besieged, victim: int, sent: list[Sent] | None = None) -> list[bytes]:
    """What others have sent to a member so far."""
    own = siege.groups[victim].id
    return [one.data for one in sent or siege.seen if own.address in one.to and one.sender != own]


def some_of_each_kind(datagrams: list[bytes], key: str | None) -> list[bytes]:
    """A few of each kind and size: the longest, the shortest, and some between."""
    kinds = (
        [datagrams]
        if key
        else [[one for one in datagrams if is_stream(one)], [one for one in datagrams if is_control(one)]]
    )
    chosen: list[bytes] = []
    for kind in kinds:
        kind.sort(key=len)
        chosen += kind[:: max(1, len(kind) // 6)]
    return chosen


def prefixes(datagrams: list[bytes]) -> Iterator[bytes]:
    for datagram in datagrams:
        for length in range(min(len(datagram), 400)):
            yield datagram[:length]


def flips(datagrams: list[bytes]) -> Iterator[bytes]:
    for datagram in datagrams:
        for bit in range(8 * min(len(datagram), 200)):
            changed = bytearray(datagram)
            changed[bit // 8] ^= 1 << bit % 8
            yield bytes(changed)


@pytest.mark.parametrize("key", KEYS)
@live
async def test_f1_every_prefix_of_a_datagram_is_dropped_and_counted_and_changes_nothing(key: str | None) -> None:
    async with besieged(key=key) as siege:
        await siege.cast(50)
        await siege.cast_and_agree()
        chosen = some_of_each_kind(to(siege, 0), key)
        cut, before, views = list(prefixes(chosen)), siege.refused(0), list(siege.views)
        delivered = [len(one) for one in siege.delivered]
        await siege.storm(0, cut)
        assert sum(siege.more(0, before).values()) >= len(cut), siege.more(0, before)
        assert [len(one) for one in siege.delivered] == delivered
        assert siege.views == views
        await siege.cast_and_agree(21)


@live
async def test_f1_with_a_key_every_flipped_bit_is_dropped_and_counted_and_changes_nothing() -> None:
    async with besieged(key=KEY) as siege:
        await siege.cast(50)
        await siege.cast_and_agree()
        changed, before, views = list(flips(some_of_each_kind(to(siege, 0), KEY))), siege.refused(0), list(siege.views)
        await siege.storm(0, changed)
        more = siege.more(0, before)
        assert sum(more.values()) >= len(changed), more
        assert all(reason.startswith("seal: ") for reason in more), more  # nothing got as far as the member
        assert siege.views == views
        await siege.cast_and_agree(21)


@live
async def test_f1_without_a_key_flipped_bits_of_what_was_seen_crash_nobody_and_fill_no_memory() -> None:
    async with besieged() as siege:
        await siege.cast(50)
        await siege.cast_and_agree()
        chosen = [one for one in some_of_each_kind(to(siege, 0), None) if is_stream(one)]
        gc.collect()
        tracemalloc.start()
        try:
            await siege.storm(0, flips(chosen))
            gc.collect()
            assert tracemalloc.get_traced_memory()[0] < GROWTH_BYTES_MAX
        finally:
            tracemalloc.stop()
        siege.check_alive()
        await siege.agree_in_the_end()


@live
async def test_f1_without_a_key_what_is_damaged_on_its_way_is_dropped_and_counted_and_changes_nothing() -> None:
    """A fresh datagram with a wrong bit would be a lie in a member's name: a batch that does not follow, a gap in the order."""
    async with besieged() as siege:
        await siege.cast(50)
        await siege.cast_and_agree()
        rank = siege.rank(1)
        fresh = siege.stream(rank, make_plain(CAST, rank, 10_000, [b"a packet"], [8], []))
        damaged, before, views = list(flips([fresh])), siege.refused(0), list(siege.views)
        await siege.storm(0, damaged)
        more = siege.more(0, before)
        assert sum(more.values()) == len(damaged), more
        assert more.keys() == {"checksum: damaged", "frame: version", "frame: group"}
        assert siege.views == views
        await siege.cast_and_agree(21)


@pytest.mark.parametrize("key", KEYS)
@live
async def test_f2_lengths_and_counts_that_lie_are_refused_before_memory_is_taken(key: str | None) -> None:
    async with besieged(key=key) as siege:
        rank = siege.rank(1)
        lies = [
            siege.stream(rank, b"", b"", **dict([lie]))
            for lie in product(("naks", "rows", "body_bytes"), (1, 7, 200, 255))
        ]
        body = make_plain(CAST, rank, 0, [b"x"], [1], [])
        for count, marks in ((0, 0), (65_535, 0), (65_535, 65_535), (1, 65_535), (2, 0)):
            lies.append(siege.stream(rank, BODY.pack(CAST, rank, 0, count, marks) + body[BODY.size :]))
        for total, offset in ((2**32 - 1, 0), (2**31, 2**31), (0, 0), (5, 2**32 - 1)):
            piece = total.to_bytes(4, "little") + offset.to_bytes(4, "little") + b"piece"
            lies.append(siege.stream(rank, BODY.pack(2, rank, 0, 0, 0) + piece))
        for kind in range(0x40, 0x57):
            lies.append(siege.proven(siege.groups[1].id, bytes((WIRE, kind)) + b"\xff" * 60))
        before, views = siege.refused(0), list(siege.views)
        gc.collect()
        tracemalloc.start()
        try:
            await siege.storm(0, lies * 20)
            gc.collect()
            assert tracemalloc.get_traced_memory()[1] < GROWTH_BYTES_MAX
        finally:
            tracemalloc.stop()
        more = siege.more(0, before)
        assert sum(more.values()) >= 20 * len(lies), more
        assert siege.views == views
        await siege.cast_and_agree()


@pytest.mark.parametrize("key", KEYS)
@live
async def test_f3_a_datagram_of_very_many_tiny_packets_is_refused_with_little_work(key: str | None) -> None:
    async with besieged(key=key) as siege:
        rank, many = siege.rank(1), 20_000
        tiny = make_plain(CAST, rank, 0, [b"x"] * many, [1] * many, [])
        datagram = siege.stream(rank, tiny)
        assert len(datagram) < DATAGRAM_BYTES_MAX
        before = siege.refused(0)
        await siege.storm(0, [datagram] * 20, burst=1)
        assert siege.more(0, before) == {"seal: unsealed" if key else "stream: body": 20}
        await siege.one_view()
        await siege.cast_and_agree()


@live
async def test_f3_a_datagram_inside_of_a_datagram_is_no_packet() -> None:
    async with besieged() as siege:
        rank = siege.rank(1)
        inner = siege.stream(rank, make_plain(CAST, rank, 0, [b"inner"], [5], []))
        siege.hit(0, siege.stream(rank, make_plain(CAST, rank, 0, [inner], [len(inner)], [])))
        await siege.until(lambda: siege.refused(0).get("packet", 0) > 0, "what is no packet is refused")
        # It seems to come from a member, so the victim wants to be without that one; but it goes on.
        for group in siege.groups:
            await (await group.cast(b"on")).delivered(timeout=30)
        assert not any(b"inner" in delivered for delivered in siege.delivered)


@pytest.mark.parametrize("key", KEYS)
@live
async def test_f4_f16_empty_largest_of_another_version_or_group_are_dropped_each_for_its_reason(
    key: str | None,
) -> None:
    async with besieged(key=key) as siege:
        frame = siege.stream(siege.rank(1))
        strange = {
            "empty": b"",
            "largest": b"\xff" * DATAGRAM_BYTES_MAX,
            "version": head(STREAM, version=9) + frame[6:],
            "group": head(STREAM, group="another") + frame[6:],
            "kind": with_checksum(head(77) + frame[6:-4]),
        }
        if key is not None:
            stranger = MemberId("127.0.0.1:9", 1)
            strange["group"] = Seal("another", stranger, read_key(key, "")).close(frame)
        reasons = {}
        for name, datagram in strange.items():
            before = siege.refused(0)
            await siege.storm(0, [datagram] * 5)
            more = siege.more(0, before)
            assert sum(more.values()) == 5, (name, more)
            reasons[name] = next(iter(more))
        wanted = (
            {"empty": "frame: version", "version": "frame: version", "group": "frame: group", "kind": "frame: kind"}
            if key is None
            else {
                "empty": "seal: unsealed",
                "version": "seal: unsealed",
                "group": "seal: group",
                "kind": "seal: unsealed",
            }
        )
        assert {name: reasons[name] for name in wanted} == wanted
        await siege.cast_and_agree()


@live
async def test_f5_what_carries_no_seal_is_refused_on_every_path() -> None:
    async with besieged(key=KEY) as sealed, besieged() as plain:
        await plain.cast(5, payload_bytes=200_000)  # bodies, pieces, acknowledgements, control
        await plain.cast_and_agree()
        await plain.groups[2].switch("fifo-total")
        unsealed = to(plain, 0)
        assert any(is_stream(one) for one in unsealed)
        assert any(is_control(one) for one in unsealed)
        before, delivered = sealed.refused(0), [len(one) for one in sealed.delivered]
        await sealed.storm(0, unsealed)
        assert sealed.more(0, before) == {"seal: unsealed": len(unsealed)}
        emptied = [bytes((SEALED,)) + one[1:] for one in unsealed]  # says that it is sealed
        before = sealed.refused(0)
        await sealed.storm(0, emptied)
        assert sum(sealed.more(0, before).values()) == len(emptied)
        assert [len(one) for one in sealed.delivered] == delivered
        await sealed.cast_and_agree()


@live
async def test_f6_f8_another_member_s_name_or_one_changed_field_does_not_open() -> None:
    async with besieged(key=KEY) as siege:
        await siege.cast_and_agree()
        captured = to(siege, 0)[-1]
        second, third = (siege.groups[number].id for number in (1, 2))
        before = siege.refused(0)
        wrong_key = Seal("besieged", second, b"k" * 32)
        await siege.storm(0, [wrong_key.close(siege.stream(siege.rank(1))) for _ in range(5)])
        assert siege.more(0, before) == {"seal: seal": 5}
        # An insider that speaks as somebody else: its box opens, and the sender inside is not the one outside.
        before = siege.refused(0)
        insider = Seal("besieged", third, read_key(KEY, ""))
        await siege.storm(0, [insider.close(Frames("besieged", second).control(b"\1\x47"))])
        assert siege.more(0, before) == {"seal: sender": 1}
        before = siege.refused(0)
        changed = [
            captured[:at] + bytes((captured[at] ^ 0x55,)) + captured[at + 1 :] for at in range(overhead(second.address))
        ]
        await siege.storm(0, changed)
        assert sum(siege.more(0, before).values()) == len(changed)
        await siege.cast_and_agree(21)


@pytest.mark.parametrize("key", KEYS)
@live
async def test_f7_replays_of_a_packet_of_an_old_view_and_of_another_group_are_counted_apart(key: str | None) -> None:
    async with besieged(key=key) as siege:
        await siege.cast(30)
        await siege.cast_and_agree()
        streams = [one for one in to(siege, 0) if key is not None or is_stream(one)]
        delivered = [len(one) for one in siege.delivered]
        before = siege.refused(0)
        await siege.storm(0, streams)
        same_view = siege.more(0, before)
        assert same_view == {"seal: replayed" if key else "stream: replayed": len(streams)}
        await siege.groups[2].switch("fifo-total")  # another view
        await siege.until(lambda: all(view is not None and view.order == "fifo-total" for view in siege.views), "view")
        before = siege.refused(0)
        await siege.storm(0, streams)
        assert siege.more(0, before) == {"seal: replayed" if key else "other view": len(streams)}
        assert [len(one) for one in siege.delivered] == delivered
        before = siege.refused(0)
        other = [one[:2] + head(STREAM, "another")[2:] + one[6:] for one in streams]
        await siege.storm(0, other)
        assert siege.more(0, before) == {"seal: group" if key else "frame: group": len(other)}
        await siege.cast_and_agree(21)


@pytest.mark.parametrize("key", KEYS)
@live
async def test_f7_a_capture_of_a_whole_run_delivers_nothing_to_the_next_lives_at_the_same_addresses(
    key: str | None,
) -> None:
    addresses = free_addresses(3)
    async with besieged(addresses=addresses, key=key) as first:
        await first.cast(50)
        await first.cast_and_agree()
        await first.groups[2].switch("fifo-total")
        captured = [(number, data) for number in range(3) for data in to(first, number)]
    async with besieged(addresses=addresses, key=key) as second:
        before = [second.refused(number) for number in range(3)]
        views = list(second.views)
        for number in range(3):
            await second.storm(number, [data for victim, data in captured if victim == number])
        for number in range(3):
            more = second.more(number, before[number])
            assert more["other view"] > 0, more
            assert more["unproven"] > 0, more
        assert second.delivered == [[], [], []]
        if key is not None:
            assert second.views == views
        await second.one_view()
        await second.cast_and_agree()


@live
async def test_f8_bytes_of_chance_crash_nobody() -> None:
    random = Random(8)
    async with besieged() as siege:
        noise = [head(random.choice((1, 2, 3))) + random.randbytes(random.randrange(300)) for _ in range(3_000)]
        before = siege.refused(0)
        await siege.storm(0, noise)
        assert sum(siege.more(0, before).values()) > 2_900
        await siege.one_view()
        await siege.cast_and_agree()
