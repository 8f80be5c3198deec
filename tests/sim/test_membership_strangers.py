"""What anyone can send to a group without a key: it takes no member down and little memory. All found by reading."""

from __future__ import annotations

import pytest

from tests.group_tools import control_in, greeting, send, with_membership
from unisono.core.config import SECOND, Config
from unisono.core.errors import PeerFault
from unisono.core.membership.chunks import IncomingChunks
from unisono.core.membership.context import Outlived, Refused
from unisono.core.membership.discovery import REASON_LETTERS_MAX, REFUSAL_PROBES
from unisono.core.membership.settings import MembershipSettings
from unisono.core.membership.tickets import PAIR
from unisono.core.types import MemberId, ViewId
from unisono.core.wire.codec import Codec
from unisono.core.wire.control import ANSWER, ROLL, Answer, Chunk, Hello, Notice, Outlive, Propose, Refuse, Standing
from unisono.core.wire.frame import ADDRESS_BYTES_MAX, Frames
from unisono.orders.registry import ORDERS
from unisono.orders.rmp_recovery import RmpReport, recover
from unisono.orders.stamps import StampReport, merge_stamps
from unisono.sim.group_world import GroupWorld, SimulatedProcess

STRANGER = MemberId("stranger", 1)


def settled() -> tuple[GroupWorld, SimulatedProcess]:
    world = GroupWorld("fifo", seed=1)
    a, *_ = world.gather("abc")
    world.run(0.5)
    return world, a


def test_addresses_that_no_member_can_have_are_not_passed_on() -> None:
    """Two of 60,000 letters were remembered, and no greeting fitted into a datagram any more: nobody could join."""
    world, a = settled()
    for number in (1, 2):
        sender = MemberId("stranger", number)
        send(world, "a", sender, greeting(a, sender, addresses=(str(number) * 60_000, "")))
    assert all(0 < len(one) <= ADDRESS_BYTES_MAX for one in a.member._membership.addresses)
    world.network.fails = lambda source, to, datagram: 90 if len(datagram) > 65_507 else 0
    world.start("d", seeds="a")
    assert world.run(20, lambda: world.is_one("abcd"))


def test_a_notice_of_another_view_sends_nobody_anywhere() -> None:
    """Every address in it was greeted before it was looked at: thousands of datagrams for one."""
    world, a = settled()
    before = world.network.sent
    notice = Notice(ViewId(1, STRANGER), (), tuple(f"10.0.{i // 250}.{i % 250}:9" for i in range(4_000)), False, "", ())
    send(world, "a", STRANGER, notice)
    assert world.network.sent - before <= 2
    assert len(a.member._membership.addresses) < 10


def test_a_notice_sends_members_to_a_few_addresses_at_most() -> None:
    world, a = settled()
    assert a.view is not None
    before = world.network.sent
    notice = Notice(a.view.id, (), tuple(f"10.0.{i // 250}.{i % 250}:9" for i in range(4_000)), False, "", ())
    send(world, "a", a.view.members[1], notice)
    assert world.network.sent - before <= MembershipSettings().probe_addresses_max


def test_chunked_data_holds_no_more_than_it_says() -> None:
    """Chunks that overlap were all kept."""
    incoming = IncomingChunks(ViewId(100, STRANGER), ROLL, 70_000)
    for offset in range(1, 500):
        incoming.add(Chunk(incoming.ballot, ROLL, offset, 70_000, bytes(60_000)))
    assert sum(map(len, incoming._chunks.values())) <= 70_000


def test_refusals_are_heard_now_and_then() -> None:
    """Anyone could fill a joiner's memory and its log with them."""
    world = GroupWorld("fifo", seed=1)
    world.start("z", seeds=["a", "z"])
    z = world.processes["z"]
    z.turn()
    shown: list[Refused] = []

    def hear(sender: MemberId) -> None:
        nonce = z.member._membership.greeting().nonce
        pair = PAIR.pack(1, z.member.tickets.ticket(sender.address))
        frame = Frames("simulated", sender).control(pair + z.member._control.encode(Refuse("no" * 30_000, None, nonce)))
        z.member.receive([frame], z.clock())
        shown.extend(event for event in z.member.drain(z.clock()).events if isinstance(event, Refused))

    for number in range(10):
        hear(MemberId(f"stranger{number}", 1))
    assert [len(refused.reason) for refused in shown] == [REASON_LETTERS_MAX], "one of those that nobody has heard of"
    for _ in range(10):
        hear(MemberId("a", 1))
    assert len(shown) == 2
    world.run(2 * MembershipSettings().probe_ns / SECOND)
    for sender in (STRANGER, MemberId("a", 1)):
        hear(sender)
    assert [refused.by.address for refused in shown] == ["stranger0", "a"], "each once"


class Liar:
    """Greets as the coordinator of a view that there never was, and answers the ballot that follows."""

    def __init__(
        self, world: GroupWorld, me: MemberId, hello: Hello, listed: tuple[MemberId, ...], unsent: int
    ) -> None:
        self._world, self._me, self._hello, self._listed, self._unsent = world, me, hello, listed, unsent

    def take(self, datagram: bytes) -> None:
        a = self._world.processes["a"]
        message = control_in(datagram)
        if message is None:  # a question
            pair = PAIR.pack(1, a.member.tickets.ticket(self._me.address))
            a.take(Frames("simulated", self._me).control(pair))
        if isinstance(message, Hello) and not message.answer and self._me == self._hello.coordinator:
            send(self._world, "a", self._me, self._hello._replace(answer=True, nonce=message.nonce))
        if isinstance(message, Propose):
            order = ORDERS["rmp"]
            codec = Codec((*order.wire, order.report_wire, order.cut_wire), Config())
            report = codec.encode(RmpReport((0,) * len(self._listed), 0, (), self._unsent))
            answer = Answer(self._hello.view, self._listed, "rmp", report, None, False, False, Standing(None, ()))
            data = a.member._control.encode(answer)
            chunk = Chunk(message.ballot, ANSWER, 0, len(data), data)
            self._world.after(1_000, lambda: send(self._world, "a", self._me, chunk))


@pytest.mark.parametrize("unsent", [0, 2**32 - 1], ids=["lists that differ", "a number that is too large"])
def test_an_answer_of_a_made_up_view_is_refused(unsent: int) -> None:
    """One that listed others stopped the proposer; one with a large number took all memory."""
    world, a = settled()
    world.has_liars = True
    one, other = MemberId("s1", 1), MemberId("s2", 1)
    members = (one,) if unsent else (one, other)
    hello = greeting(a, one, view=ViewId(1, one), order="rmp", members=members)
    for me, listed in ((one, (one,)), (other, members)):
        world.processes[me.address] = Liar(world, me, hello, listed, unsent)  # type: ignore[assignment]
    send(world, "a", one, hello)
    world.run(2)
    assert a.member._membership.refused["report"] > 0
    assert a.view is not None
    assert len(a.view) == 3


def test_numbers_in_reports_are_compared_before_anything_is_made_of_them() -> None:
    huge = 2**40
    for report in (RmpReport((huge,), 0, (), huge), RmpReport((huge,), 0, (), 2**21)):
        with pytest.raises(PeerFault, match="waits for the lock"):
            recover({0: report}, 2**20)
    with pytest.raises(PeerFault, match="further ahead"):
        recover({0: RmpReport((huge, 0), 0, (), 0), 1: RmpReport((huge, 0), huge, (), 0)}, 2**20)
    world, a = settled()
    assert a.view is not None
    with pytest.raises(PeerFault, match="further ahead"):
        merge_stamps(a.view, Config(), {0: StampReport((huge, 0, 0), 0, (0, 0, 0), (), ())})
    assert len(world.up) == 3


def test_a_member_knows_its_own_life() -> None:
    """One that came back with other members to wait for proposed a view with its own earlier life."""
    world = GroupWorld("fifo", seed=1)
    a, *_ = world.gather("a")
    contacts = a.member._membership._contacts
    assert contacts.is_stale(MemberId(a.id.address, a.id.incarnation - 1))


def test_an_answer_or_a_refusal_to_a_greeting_of_long_ago_counts_for_nothing() -> None:
    """A captured refusal kept every joiner out, and greetings of the dead made contacts that a merge waited for."""
    world = GroupWorld("fifo", seed=1)
    world.start("z", seeds=["a", "z"])
    z = world.processes["z"]
    world.run(0.05)
    a, membership = MemberId("a", 1), z.member._membership
    stale = membership.greeting().nonce
    world.run(20)
    unasked = membership.refused.get("unasked", 0)
    send(world, "z", a, greeting(z, a)._replace(nonce=stale))
    send(world, "z", a, Refuse("no", ViewId(1, a), stale))
    assert membership.refused["unasked"] == unasked + 2
    assert membership.refusal is None
    assert not membership._contacts.contacts


def test_a_refusal_expires_unless_it_is_repeated() -> None:
    world = GroupWorld("fifo", seed=1, settings=with_membership(members_min=2))
    world.start("z", seeds=["a", "z"])
    z = world.processes["z"]
    world.run(0.05)
    membership = z.member._membership
    a = MemberId("a", 1)
    send(world, "z", a, Refuse("no", ViewId(1, a), membership.greeting().nonce))
    pause = z.member.settings.membership.refused_probe_ns / SECOND
    world.run((REFUSAL_PROBES - 1) * pause)
    assert membership.refusal is not None
    world.run(2 * pause)
    assert membership.refusal is None


def test_a_long_token_of_strangers_takes_no_memory() -> None:
    """A token of the ring was taken in from anyone, half a gigabyte of it."""
    world, a = settled()
    limit = a.member.settings.membership.chunk_bytes_max * a.member.settings.membership.chunks_max
    token = Chunk(ViewId(100, STRANGER), ROLL, 0, limit + 1, bytes(1_000))
    send(world, "a", STRANGER, token)
    membership = a.member._membership
    assert membership.refused["token of strangers"] == 1
    assert membership._ring._coming is None
    send(world, "a", STRANGER, token._replace(total=limit))
    assert membership._ring._coming is not None
    assert a.view is not None
    other = a.view.members[1]
    send(world, "a", other, token._replace(ballot=ViewId(101, other)))
    assert membership._ring._coming.total == limit + 1
    assert membership.refused["token of strangers"] == 1


def test_an_old_life_that_greets_is_told_the_number_to_begin_above() -> None:
    world = GroupWorld("fifo", seed=1)
    world.start("a", "b", seeds="ab")
    assert world.run(10, lambda: world.is_one("ab"))
    world.start("c", seeds="ab", incarnation=1_000)
    assert world.run(10, lambda: world.is_one("abc"))
    world.crash("c")
    assert world.run(10, lambda: world.is_one("ab"))
    world.start("c", seeds="ab", incarnation=500)
    told: list[Outlived] = []
    c = world.processes["c"]
    c.on_event = lambda process, event: told.append(event) if isinstance(event, Outlived) else None
    assert world.run(10, lambda: bool(told))
    assert told[0].newest == 1_000


def test_nobody_is_outlived_by_what_it_did_not_ask_for() -> None:
    world, a = settled()
    membership = a.member._membership
    nonce = membership.greeting().nonce
    for lie in (
        Outlive(a.id, 2**62, nonce + 1),
        Outlive(a.id, a.id.incarnation, nonce),
        Outlive(MemberId("a", 77), 2**62, nonce),
    ):
        send(world, "a", STRANGER, lie)
    assert membership.refused["unasked"] == 3
    send(world, "a", STRANGER, Outlive(a.id, 2**62, nonce))
    assert a.refusals, "a member among others does not give way; its operator is told"
    assert world.is_one("abc")


@pytest.mark.parametrize("order", ["all-ack", "sequencer"])
def test_datagrams_that_were_held_back_do_not_keep_a_dead_member_in_the_view(order: str) -> None:
    """A fifth of what a member sent in 20 s, held back and let through bit by bit after its crash, kept it in for minutes."""
    world = GroupWorld(order, seed=1)
    world.gather("abcd")
    held: dict[str, list[bytes]] = {name: [] for name in "abd"}
    luck = world.stream("held back")

    def hold_back(source: str, to: str, datagram: bytes) -> bool:
        is_held = source == "c" and luck.random() < 0.2
        if is_held:
            held[to].append(datagram)
        return is_held

    def load() -> None:
        for process in world.up:
            process.cast(b"load")
        world.after(SECOND // 20, load)

    def let_through() -> None:
        for name, datagrams in held.items():
            if datagrams:
                world.processes[name].take(datagrams.pop(0))
        world.after(SECOND // 10, let_through)

    world.network.drops = hold_back
    load()
    world.run(10)
    assert min(map(len, held.values())) > 50
    world.crash("c")
    let_through()
    assert world.run(3, lambda: world.is_one("abd")), world.story()
    assert all(held.values()), "there was more to let through"
