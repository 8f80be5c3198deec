"""Joining: from addresses, a key and some wishes to a running member of a group."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from random import SystemRandom
from time import monotonic_ns, time_ns
from types import TracebackType
from typing import Any

from unisono.core.config import MILLISECOND, SECOND, Config
from unisono.core.errors import Misuse, UnisonoError
from unisono.core.events import Happening
from unisono.core.incarnation import begin_life, highest_credible
from unisono.core.member.member import Member
from unisono.core.member.settings import Settings, Slow
from unisono.core.membership.settings import Policy
from unisono.core.types import MemberId
from unisono.orders.registry import DEFAULT_ORDER, ORDERS, find_order
from unisono.runtime import control_socket, logs
from unisono.runtime import metrics as metrics_server
from unisono.runtime.addresses import Endpoint, check_family, datagram_bytes, resolve, split
from unisono.runtime.checksum import CHECKSUM_BYTES
from unisono.runtime.clients import Answer
from unisono.runtime.driver import Driver
from unisono.runtime.errors import Outdated, TimedOut
from unisono.runtime.group import Group
from unisono.runtime.hooks import Hooks, check_hook
from unisono.runtime.hub import Port, find_hub
from unisono.runtime.journal.journal import Journal
from unisono.runtime.lookup import FIRST_WAIT_S, Lookup, PeerFunction, Resolved, check_peers
from unisono.runtime.multicast import MulticastPort
from unisono.runtime.multicast import check as check_multicast
from unisono.runtime.named_peers import NamedPeers
from unisono.runtime.observe import call_at_end, explain_peers, explain_strangers, observe_turns
from unisono.runtime.pace import check_seconds, paced
from unisono.runtime.peer_search import PeerSearch
from unisono.runtime.seal import Seal, find_key, overhead
from unisono.services.transfer.observer import Decliner
from unisono.trace.recorder import Recorder
from unisono.trace.sanitize import is_text
from unisono.trace.schema import NOT_KNOWN, TraceError
from unisono.trace.sinks import FolderSink

ACK_DELAY_NS = 40 * MILLISECOND
"""A system call costs more than an idle acknowledgement is worth: it waits longer for company than in the simulator."""
RETRANSMIT_NS_MIN = 100 * MILLISECOND
"""… and so nothing is sent again before it could have come."""
FRAME_BYTES = 6
"""What a frame adds to a datagram of the streams."""
CHUNK_HEAD_BYTES = 220
"""What stands around a chunk of a report or cut (twice an address, tickets, numbers): the network shall not cut a datagram."""

LIVES_MAX = 8
"""How many lives a join begins at most because the group knows later ones."""

WATCHDOG_S = 30.0
"""When the log tells what waits, unless `watchdog` says another time."""
FIRST_VIEW_S = 1.0
"""A join that is cancelled while the first view is being agreed on waits this long for it, in order to leave it."""

ALONE = "left without the others"
"""Why a trace ends with CRASH though the member was told to leave: no view without it was seen there."""


class Role(StrEnum):
    """What a member is in its group."""

    MEMBER = "member"
    OBSERVER = "observer"  # without hooks, whatever the others give; it has no state and never gives one


@dataclass(frozen=True, slots=True)
class Wishes:
    """Everything that `join` was asked for."""

    group: str
    listen: str | None
    peers: tuple[str, ...] | PeerFunction
    advertise: str | None
    order: str
    min_members: int
    policy: str
    bootstrap: bool
    slow: str
    watchdog: float | None
    safe: bool
    key: str | bytes | os.PathLike[str] | None = field(repr=False)
    insecure: bool
    journal: str | os.PathLike[str] | Journal | None
    trace: str | os.PathLike[str] | None
    run: str | None
    pace: float
    settings: Settings | None
    timeout: float | None
    leave_timeout: float
    hooks: Hooks | None
    answer: Answer | None
    multicast: str | None
    metrics: str | None
    control: bool
    role: Role


def join(
    group: str,
    *,
    listen: str | None = None,
    peers: Sequence[str] | PeerFunction = (),
    order: str = DEFAULT_ORDER,
    min_members: int = 1,
    advertise: str | None = None,
    policy: str = "partitionable",
    bootstrap: bool = False,
    slow: str = "block",
    watchdog: float | None = None,
    safe: bool = False,
    key: str | bytes | os.PathLike[str] | None = None,
    insecure: bool = False,
    snapshot: Callable[[], bytes] | None = None,
    restore: Callable[[bytes], None] | None = None,
    merge: Callable[[Sequence[bytes]], None] | None = None,
    answer: Answer | None = None,
    multicast: str | None = None,
    journal: str | os.PathLike[str] | Journal | None = None,
    trace: str | os.PathLike[str] | None = None,
    run: str | None = None,
    pace: float = 1.0,
    settings: Settings | None = None,
    timeout: float | None = None,
    leave_timeout: float = 5.0,
    metrics: str | None = None,
    control: bool = False,
    role: str = "member",
) -> Joining:
    """Join a group: `async with unisono.join("chat", peers=[…]) as group`, or `group = await unisono.join(…)`.

    - `listen` is where this member receives (without it: the first of `peers` that is local and free), `advertise` how the others
      reach it if that is something else.
    - `peers` are addresses where members may be, or a function that returns them. Names need not be known yet, and may stand for
      several addresses: they are looked up again and again. So is the function called, in a thread unless it is a coroutine.
    - With `min_members`, the first view has so many members at least. `policy` is `partitionable` or `primary`; the first
      primary needs a majority of `peers`, each counted once as it is written, or `bootstrap` at one of them.
    - `slow` says what happens about a receiver that stays slow: `block`, `shed` or `evict`. `safe`: messages are delivered only
      when every member has them. With `watchdog`, an event `Stalled` tells what has waited for so many seconds; without it, only
      the log does, after 30 seconds.
    - `multicast` is an IPv4 multicast address and port, such as 239.1.2.3:7500: what goes to all leaves once. All members of a
      group use the same, or none.
    - `key` is a group key or a file with one (else the environment's UNISONO_KEY, else the file that UNISONO_KEY_FILE names);
      without any, only loopback is allowed, unless `insecure`.
    - `snapshot`, `restore` and `merge` carry the application's state to joiners and through merges. All members of a group give
      the same hooks.
    - `answer` serves clients outside (`unisono.client`): it is called with each request at its place in the stream, and returns
      this member's answer. Give it at all members or at none.
    - `role` is `member` or `observer`. An observer gives no hooks and joins whatever hooks the members give: it is delivered
      everything and may cast, but it has no state, and is never asked for one.
    - `journal` is a folder for what must outlive the process (or a `Journal`), `trace` a folder for a recording of the `run`,
      which is named like the group unless told.
    - `metrics` is an address where Prometheus finds this member's numbers; with `control` it answers `unisono status`.
    - `pace` scales all timers (0.25: failures are noticed four times as fast). `timeout` limits the wait for the first view,
      `leave_timeout` that at the end of the `async with`.
    - `settings` replaces every default that is not an option here; datagrams are then as small as `settings.streams` says.
    """
    find_order(order)
    if not callable(peers):
        peers = check_peers(peers)
    if not group:
        raise Misuse("a group needs a name.")
    if not isinstance(group, str):
        raise Misuse(f"the group's name {group!r} is of type {type(group).__name__}: give a text.")
    if not is_text(group):
        raise Misuse(f"the group's name {group!r} is no text: write it in UTF-8.")
    if group == NOT_KNOWN:
        raise Misuse(f"a trace could not tell the group {group!r} from one that is not known: give it another name.")
    if policy not in tuple(Policy):
        raise Misuse(f"there is no policy {policy!r}: choose {' or '.join(Policy)}.")
    if policy == Policy.PRIMARY and journal is None:
        raise Misuse(
            "policy='primary' needs a journal: a process that forgot what it had confirmed could make a second primary."
        )
    if slow not in tuple(Slow):
        raise Misuse(f"there is no policy {slow!r} for slow receivers: choose {', '.join(Slow)}.")
    if not isinstance(min_members, int) or min_members < 1:
        raise Misuse(f"min_members = {min_members!r} is impossible: choose 1 or more, a whole number.")
    check_seconds(watchdog, "watchdog")
    check_seconds(timeout, "timeout", 0)
    check_seconds(leave_timeout, "leave_timeout", 0)
    addresses = ((listen, "listen"), (advertise, "advertise"), (metrics, "metrics"))
    for text, what in addresses:
        if text is not None:
            split(text, what)
    if multicast is not None:
        check_multicast(multicast)
    for place, what in ((trace, "trace"), (None if isinstance(journal, Journal) else journal, "journal")):
        if place is not None and not isinstance(place, str | os.PathLike):
            raise Misuse(f"{what} = {place!r} is no folder: give its path.")
    if safe and settings is not None and not settings.config.safe:
        raise Misuse("safe=True and settings contradict each other: give settings whose config has safe=True.")
    if role not in tuple(Role):
        raise Misuse(f"there is no role {role!r}: choose {' or '.join(Role)}.")
    hooks = Hooks.of(snapshot, restore, merge)
    check_hook(answer, "answer")
    given = [
        f"`{name}`"
        for hook, name in ((snapshot, "snapshot"), (restore, "restore"), (merge, "merge"), (answer, "answer"))
        if hook is not None
    ]
    if role == Role.OBSERVER and given:
        raise Misuse(
            f"an observer has no state and answers no client, so it cannot have {', '.join(given)}: "
            "leave the hooks out, or join with role='member'."
        )
    return Joining(
        Wishes(
            group, listen, peers, advertise, order, min_members, policy, bootstrap, slow, watchdog, safe, key, insecure,
            journal, trace, run, pace, settings, timeout, leave_timeout, hooks, answer, multicast, metrics, control,
            Role(role),
        )
    )  # fmt: skip


class Joining:
    """A join that has not begun: enter it with `async with`, or await it and call `leave` yourself."""

    def __init__(self, wishes: Wishes) -> None:
        self._wishes = wishes
        self._group: Group | None = None  # from the start on, before its first view too

    def __await__(self) -> Generator[Any, None, Group]:
        return self._enter().__await__()

    async def __aenter__(self) -> Group:
        return await self._enter()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._group is not None
        try:
            await self._group.leave(self._wishes.leave_timeout)
        except Exception as failure:
            if error is None:  # or else the first error is the one to tell
                raise
            logs.tell_failed_leave(self._group, failure)

    def explain(self) -> list[str]:
        """Why the group is not there yet, a sentence each."""
        return [] if self._group is None else self._group.explain() + explain_strangers(self._group)

    def _prepare(self, group: Group) -> None:
        """For those who put something around a member before it meets others."""

    async def _enter(self) -> Group:
        """Begin a life, and a later one if the group says that this one is too early."""
        lives, floor = LIVES_MAX, 0
        while True:
            try:
                return await self._live(floor)
            except Outdated as error:
                lives -= 1
                if not lives or error.newest >= highest_credible(wall_clock(asyncio.get_running_loop())()):
                    raise
                floor = error.newest + 1
            if isinstance(self._wishes.journal, Journal):
                self._wishes = replace(self._wishes, journal=self._wishes.journal.again())

    async def _live(self, floor: int) -> Group:
        """Begin a life at `floor` or later."""
        wishes = self._wishes
        loop = asyncio.get_running_loop()
        self._group = group = await start(wishes, loop, floor)
        self._prepare(group)
        try:
            await group._until(
                lambda: group._is_whole(wishes.min_members),
                wishes.timeout,
                f"no view of {wishes.min_members} or more members of {wishes.group!r} was formed",
            )
        except BaseException as error:
            entered = group._entered
            if isinstance(error, asyncio.CancelledError | TimedOut):
                await withdraw(group, wishes.leave_timeout)
            group._close()
            if isinstance(error, TimedOut) and entered is not None and len(entered.view) >= wishes.min_members:
                raise TimedOut(
                    f"{group.id} is in {wishes.group!r}, but the state did not come within {wishes.timeout:g} s: a member "
                    "that has it hands it over when its application takes its next event, so let that one read meanwhile."
                ) from None
            if isinstance(error, TimedOut):
                hints = [*explain_peers(group), *explain_strangers(group)]
                hints = [one for one in hints if one not in str(error)]  # it has the first sentences of `explain`
                hints.append("Are the peers up, and do they have the same key and settings?")
                raise TimedOut(f"{error} {' '.join(hints)}") from None
            raise
        return group


async def start(wishes: Wishes, loop: asyncio.AbstractEventLoop, floor: int = 0) -> Group:
    """Open the port, make the member and let it look for the group. Its incarnation is `floor` or above."""
    journal = find_journal(wishes)
    port: Port | None = None
    network = getattr(loop, "unisono_network", None)
    lookup = Lookup(loop, wishes.peers, network is not None)
    try:
        port, own, found = await open_port(wishes, loop, lookup)
        peers = [endpoint for peer in found for endpoint in peer.endpoints]
        key = find_key(wishes.key)
        check_reach(wishes, port.endpoint, own, peers, key)
        on_loopback = key is None and not wishes.insecure and network is None
        search = PeerSearch(lookup, found, own, port.endpoint, on_loopback)
        wall = wall_clock(loop)
        address = str(own)
        if journal is not None:
            incarnation = journal.begin_life(max(wall(), floor), wishes.group)
        else:
            incarnation = begin_life(None, max(wall(), floor)).incarnation
        identity = MemberId(address, incarnation)
        room = datagram_bytes(own, peers) if network is None else network.datagram_bytes
        is_logged = network is None and logs.is_heard()
        quorum = () if callable(wishes.peers) else search.quorum(wishes.peers)
        unsealed_bytes = room - (CHECKSUM_BYTES if key is None else overhead(address))
        member_settings = settings_of(wishes, quorum, unsealed_bytes, is_logged)
        group = build(wishes, loop, port, identity, member_settings, search, key, journal)
    except BaseException:
        lookup.close()
        if journal is not None:
            journal.close()
        if port is not None:
            port.release()  # unless others use it
        raise
    try:
        await publish(wishes, group, loop)
    except BaseException:
        group._close()
        raise
    return group


def wall_clock(loop: asyncio.AbstractEventLoop) -> Callable[[], int]:
    """What tells the date, in nanoseconds: in virtual time, the loop."""
    return getattr(loop, "unisono_clock", None) or time_ns


async def withdraw(group: Group, timeout: float) -> None:
    """Leave before `join` has returned. The others may count this member in already, and shall not have to find it silent."""
    member = group._driver.member
    try:
        with suppress(UnisonoError):
            await group._until(
                lambda: group._entered is not None or not member.is_changing,
                FIRST_VIEW_S,
                "the first view did not come",
            )
        with suppress(UnisonoError):
            await group.leave(timeout)
    finally:
        group._close()


async def publish(wishes: Wishes, group: Group, loop: asyncio.AbstractEventLoop) -> None:
    """Let others look at the member: the log, metrics, the control socket; in virtual time, the loop."""
    open_groups: list[Group] | None = getattr(loop, "unisono_groups", None)
    if open_groups is None:  # the log's timer has no place in virtual time
        logs.attach(group, loop)
    else:
        open_groups.append(group)
        call_at_end(group, lambda: open_groups.remove(group))
    if wishes.metrics is not None:
        await metrics_server.serve(group, wishes.metrics)
    if wishes.control:
        await control_socket.serve(group)


def find_journal(wishes: Wishes) -> Journal | None:
    wish = wishes.journal
    return wish if wish is None or isinstance(wish, Journal) else Journal(wish)


async def open_port(
    wishes: Wishes, loop: asyncio.AbstractEventLoop, lookup: Lookup
) -> tuple[Port, Endpoint, list[Resolved]]:
    """The port, this member's outer address, and the peers' addresses as far as they are known."""
    network = getattr(loop, "unisono_network", None)

    async def numeric(text: str, what: str, family: int = 0) -> Endpoint:
        if network is not None:
            return Endpoint(*split(text, what))
        return await loop.run_in_executor(None, resolve, text, what, family)

    listen = None if wishes.listen is None else await numeric(wishes.listen, "listen")
    family = 0 if listen is None else int(listen.family)
    found = await lookup.find(family, None if listen is None else FIRST_WAIT_S)
    peers = [endpoint for peer in found for endpoint in peer.endpoints]
    if network is not None:
        check_family([(one, "listen") for one in (listen,) if one is not None] + [(peer, "the peer") for peer in peers])
    unknown = [peer.text for peer in found if not peer.endpoints]
    if listen is None and not peers and unknown:
        raise Misuse(
            f"where shall this member listen? Give listen: of peers, {', '.join(unknown)} {'is' if len(unknown) == 1 else 'are'} "
            "not known here, or not yet."
        )
    port: Port
    if network is not None:
        port = network.port(listen, peers)
    else:
        port = hub = find_hub(loop, listen, peers)
    try:
        if network is None and wishes.multicast is not None:
            port = MulticastPort(loop, hub, check_multicast(wishes.multicast))
        own = port.endpoint
        if wishes.advertise is not None:
            own = await numeric(wishes.advertise, "advertise", int(port.endpoint.family))
            own = own if own.port else own._replace(port=port.endpoint.port)
            check_family([(port.endpoint, "listen"), (own, "advertise")])
        elif network is None and own.is_unspecified:
            own = own._replace(host=outer_host(own, peers, bool(unknown) or lookup.is_function))
    except BaseException:
        port.release()  # unless others use it
        raise
    return port, own, found


def outer_host(own: Endpoint, peers: Sequence[Endpoint], expects_more: bool = False) -> str:
    """Which of this machine's addresses the peers would see; if not all are known yet, what most of the world would see."""
    seen: list[str] = []
    anywhere = [Endpoint("2001:db8::1" if own.family == socket.AF_INET6 else "192.0.2.1", own.port)]
    for peer in [*peers, *(anywhere if expects_more else ())]:
        with socket.socket(own.family, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect(peer.sockaddr)  # which sends nothing
                seen.append(str(probe.getsockname()[0]))
            except OSError:
                continue
    outside = [host for host in seen if not Endpoint(host, 0).is_loopback]  # a machine's own name is often on loopback
    if outside or seen:
        return (outside or seen)[0]
    raise Misuse(f"{own} is every address of this machine: say with advertise which one the others shall use.")


def check_reach(wishes: Wishes, port: Endpoint, own: Endpoint, peers: Sequence[Endpoint], key: bytes | None) -> None:
    if key is not None or wishes.insecure or hasattr(asyncio.get_running_loop(), "unisono_network"):
        return
    outside = [one for one in (own, port, *peers) if not one.is_loopback]
    if outside:
        raise Misuse(
            f"{outside[0]} can be reached from outside, and the group {wishes.group!r} has no key: give key, or --key "
            "(`unisono keygen` makes one); or insecure=True, or --insecure, if everyone on the network may read and cast."
        )


def asks_for_watchdog(wishes: Wishes) -> bool:
    """Whether the application wants to be shown what the watchdog says; else it is for the log alone."""
    return wishes.watchdog is not None or (wishes.settings is not None and wishes.settings.flow.stall_ns is not None)


def settings_of(wishes: Wishes, quorum: tuple[str, ...], unsealed_bytes: int, is_logged: bool = False) -> Settings:
    """What `join` was asked for, as settings; `unsealed_bytes` of a datagram are left when it is sealed."""
    settings = wishes.settings
    if settings is None:
        settings = Settings(config=Config(safe=wishes.safe))
        room = unsealed_bytes - FRAME_BYTES
        chunk_bytes = min(settings.membership.chunk_bytes_max, room - CHUNK_HEAD_BYTES)
        settings = replace(
            settings,
            streams=replace(
                settings.streams,
                datagram_bytes=room,
                ack_delay_ns=ACK_DELAY_NS,
                retransmit_ns_min=RETRANSMIT_NS_MIN,
            ),
            membership=replace(settings.membership, chunk_bytes_max=chunk_bytes),
        )
    settings = paced(settings, wishes.pace)
    flow = replace(settings.flow, slow=Slow(wishes.slow))
    if wishes.watchdog is not None:
        stall_ns = int(wishes.watchdog * SECOND)
        flow = replace(flow, stall_ns=stall_ns, look_ns=max(MILLISECOND, min(flow.look_ns, stall_ns)))
    elif flow.stall_ns is None and is_logged:
        flow = replace(flow, stall_ns=max(flow.look_ns, int(WATCHDOG_S * SECOND)))
    return replace(
        settings,
        flow=flow,
        membership=replace(
            settings.membership,
            members_min=wishes.min_members,
            policy=Policy(wishes.policy),
            peers=quorum if wishes.policy == Policy.PRIMARY else (),
            bootstrap=wishes.bootstrap,
            has_state=wishes.hooks is not None,
            has_merge=wishes.hooks is not None and wishes.hooks.merge is not None,
            has_answer=wishes.answer is not None,
            is_observer=wishes.role is Role.OBSERVER,
        ),
    )


def decline_states(group: Group, driver: Driver, member: Member) -> None:
    """Answer members that ask this observer for a state."""
    decliner = Decliner(member)

    def look(events: list[Happening], now: int) -> None:
        if decliner.take(events):
            driver.wake()

    observe_turns(group, look)


def build(
    wishes: Wishes,
    loop: asyncio.AbstractEventLoop,
    port: Port,
    identity: MemberId,
    settings: Settings,
    search: PeerSearch,
    key: bytes | None,
    journal: Journal | None,
) -> Group:
    """Put the member, its driver and its group together, and take the first turn."""
    group = Group(wishes.group, loop)
    recorder = None
    if wishes.trace is not None:
        try:
            sink = FolderSink(wishes.trace, wishes.run or wishes.group, identity.address, identity.incarnation)
        except TraceError as error:  # which is none of ours: the trace is read without unisono, too
            raise Misuse(str(error)) from error
        kind = "real" if getattr(loop, "unisono_clock", None) is None else "simulated"
        recorder = Recorder(wishes.run or wishes.group, wishes.group, wishes.order, identity, kind, sink)
    clock = getattr(loop, "unisono_clock", None)
    random = getattr(loop, "unisono_random", None) or SystemRandom()
    clock = clock or monotonic_ns
    now = clock()
    record = None if journal is None else journal.record
    credible = highest_credible(max(wall_clock(loop)(), identity.incarnation))
    member = Member(
        identity, wishes.group, ORDERS, wishes.order, settings, random, now, recorder is not None, record, credible
    )
    driver = Driver(
        loop, port, wishes.group, member, group._shown_by_driver, group._turned,
        seal=None if key is None else Seal(wishes.group, identity, key),
        recorder=recorder, keeper=journal, fail=group._fail, clock=clock,
        pause_ns=settings.detector.pause_ns,
    )  # fmt: skip
    is_real = getattr(loop, "unisono_network", None) is None
    is_row = is_real and wishes.listen is None and Endpoint(*split(identity.address, "the address")).is_loopback
    peers = NamedPeers(
        wishes.group, identity, key, clock,
        send=lambda address, hint: port.send([((address,), hint)]),
        source_of=port.source_of,
        silence_is_news=not is_row,  # of a row of addresses on one machine, members take the first that are free
    )  # fmt: skip
    driver.watch_peers(peers)
    group._open(identity, driver, wishes.hooks, journal, wishes.answer)
    group._inbox.shows_stalls = asks_for_watchdog(wishes)
    if wishes.role is Role.OBSERVER:
        decline_states(group, driver, member)

    def end() -> None:
        if recorder is not None:
            failure = group._inbox.failure
            if failure is not None:
                recorder.crash(driver.clock(), str(failure))
            elif member.is_gone:
                recorder.leave(driver.clock())
            else:  # to the others it is as one that crashed, and what it cast last is in doubt
                recorder.crash(driver.clock(), ALONE)
            recorder.sink.close()
        if journal is not None:
            journal.close()
        search.stop()

    group._at_end(end)
    if recorder is not None:
        recorder.join(now)
    search.start(loop, driver, peers)
    member.join(search.addresses(), search.expects_more)
    driver.turn()
    return group
