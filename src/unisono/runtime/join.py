"""Build and start a member from the options of `join`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from dataclasses import replace
from types import TracebackType
from typing import Any

from unisono.core.errors import Misuse, UnisonoError
from unisono.core.incarnation import begin_life, highest_credible
from unisono.core.member import Happening, Member, Settings
from unisono.core.types import MemberId
from unisono.environment import Environment, Port
from unisono.orders.registry import ORDERS
from unisono.runtime import control_socket, logs
from unisono.runtime import metrics as metrics_server
from unisono.runtime.addresses import Endpoint, check_family, datagram_bytes, outer_host, resolve, split
from unisono.runtime.checksum import CHECKSUM_BYTES
from unisono.runtime.errors import Outdated, TimedOut
from unisono.runtime.group import Group
from unisono.runtime.hub import find_hub
from unisono.runtime.journal import Journal
from unisono.runtime.lookup import FIRST_WAIT_S, Lookup, Resolved
from unisono.runtime.machine import find_or_this_machine
from unisono.runtime.multicast import MulticastPort
from unisono.runtime.multicast import check as check_multicast
from unisono.runtime.named_peers import NamedPeers
from unisono.runtime.options import JoinOptions, taking_options
from unisono.runtime.peer_search import PeerSearch
from unisono.runtime.recording import Recording
from unisono.runtime.running import RunningMember
from unisono.runtime.seal import Seal, find_key, overhead
from unisono.services.transfer import Decliner
from unisono.trace.recorder import Recorder
from unisono.trace.schema import TraceError
from unisono.trace.sinks import FolderSink

LIVES_MAX = 8
"""Maximum number of lives that one join begins because the group knows later ones."""
FIRST_VIEW_S = 1.0
"""A join that is cancelled while the first view is being agreed on waits this long for it, in order to leave it."""
ALONE = "left without the others"
"""Why a trace ends with CRASH though the member was told to leave: no view without it was seen there."""


@taking_options(JoinOptions)
def join(*arguments: Any, **options: Any) -> Joining:
    """Join a group: `async with unisono.join("chat", peers=[…]) as group`, or `group = await unisono.join(…)`.

    The arguments are the fields of `JoinOptions`, where each is described.
    """
    return Joining(JoinOptions(*arguments, **options))


class Joining:
    """A join that has not begun: enter it with `async with`, or await it and call `leave` yourself."""

    def __init__(
        self,
        options: JoinOptions,
        environment: Environment | None = None,
        prepare: Callable[[RunningMember], None] | None = None,
    ) -> None:
        """`prepare` is called with the member before it meets others, to put something around it. Without an `environment`,
        the one in force where the join begins counts."""
        self._options = options
        self._environment = environment
        self._prepare = prepare
        self._member: RunningMember | None = None  # from the start on, before its first view too

    def __await__(self) -> Generator[Any, None, Group]:
        return self.__aenter__().__await__()

    async def __aenter__(self) -> Group:
        return Group(await self.enter())

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._member is not None
        try:
            await self._member.leave(self._options.leave_timeout)
        except Exception as failure:
            if error is None:  # or else the first error is the one to tell
                raise
            logs.tell_failed_leave(self._member, failure)

    @property
    def options(self) -> JoinOptions:
        return self._options

    @property
    def running(self) -> RunningMember | None:
        """The member from its start on, before its first view too; None: the join has not begun."""
        return self._member

    def explain(self) -> list[str]:
        """Why the group is not there yet, a sentence each."""
        return [] if self._member is None else self._member.explain() + self._member.explain_strangers()

    async def enter(self) -> RunningMember:
        """Start a member. If the group has met a later life of it, start again with a higher incarnation."""
        environment = self._environment or find_or_this_machine()
        lives, floor = LIVES_MAX, 0
        while True:
            try:
                return await self._live(environment, floor)
            except Outdated as error:
                lives -= 1
                if not lives or error.newest >= highest_credible(environment.wall_clock()):
                    raise
                floor = error.newest + 1
            if isinstance(self._options.journal, Journal):
                self._options = replace(self._options, journal=self._options.journal.again())

    async def _live(self, environment: Environment, floor: int) -> RunningMember:
        """Begin a life at `floor` or later."""
        options = self._options
        self._member = member = await Starting(options, environment, asyncio.get_running_loop()).start(floor)
        if self._prepare is not None:
            self._prepare(member)
        try:
            await member.until(
                lambda: member.is_whole(options.min_members),
                options.timeout,
                f"no view of {options.min_members} or more members of {options.group!r} was formed",
            )
        except BaseException as error:
            entered = member.entered
            if isinstance(error, asyncio.CancelledError | TimedOut):
                await withdraw(member, options.leave_timeout)
            member.close()
            if isinstance(error, TimedOut) and entered is not None and len(entered.view) >= options.min_members:
                raise TimedOut(
                    f"{member.id} is in {options.group!r}, but the state did not come within {options.timeout:g} s: a member "
                    "that has it hands it over when its application takes its next event, so let that one read meanwhile."
                ) from None
            if isinstance(error, TimedOut):
                hints = [*member.peers.sentences(), *member.explain_strangers()]
                hints = [one for one in hints if one not in str(error)]  # it has the first sentences of `explain`
                hints.append("Are the peers up, and do they have the same key and settings?")
                raise TimedOut(f"{error} {' '.join(hints)}") from None
            raise
        return member


async def withdraw(member: RunningMember, timeout: float) -> None:
    """Leave before `join` has returned. The others may count this member in already, and must not find it silent."""
    try:
        with suppress(UnisonoError):
            await member.until(
                lambda: member.entered is not None or not member.member.state.is_changing,
                FIRST_VIEW_S,
                "the first view did not come",
            )
        with suppress(UnisonoError):
            await member.leave(timeout)
    finally:
        member.close()


class Starting:
    """The start of one life of a member: its port, its identity, its parts, its first turn."""

    def __init__(self, options: JoinOptions, environment: Environment, loop: asyncio.AbstractEventLoop) -> None:
        self._options = options
        self._environment = environment
        self._ports = environment.ports
        self._loop = loop

    async def start(self, floor: int = 0) -> RunningMember:
        """Open the port, make the member and let it look for the group. Its incarnation is `floor` or above."""
        options, ports = self._options, self._ports
        journal = options.open_journal()
        port: Port | None = None
        lookup = Lookup(self._loop, options.peers, ports is not None)
        try:
            port, own, found = await self._open_port(lookup)
            peers = [endpoint for peer in found for endpoint in peer.endpoints]
            key = find_key(options.key)
            listening = Endpoint(port.endpoint.host, port.endpoint.port)
            is_inside = key is None and not options.insecure and ports is None
            if is_inside:
                self._check_reach([own, listening, *peers])
            search = PeerSearch(lookup, found, own, listening, is_inside)
            address, life = str(own), max(self._environment.wall_clock(), floor)
            if journal is not None:
                incarnation = journal.begin_life(life, options.group)
            else:
                incarnation = begin_life(None, life).incarnation
            identity = MemberId(address, incarnation)
            room = datagram_bytes(own, peers) if ports is None else ports.datagram_bytes
            is_logged = self._environment.welcome is None and logs.is_heard()
            quorum = () if callable(options.peers) else search.quorum(options.peers)
            unsealed_bytes = room - (CHECKSUM_BYTES if key is None else overhead(address))
            settings = options.settings_for(quorum, unsealed_bytes, is_logged)
            member = self._build(port, identity, settings, search, key, journal)
        except BaseException:
            lookup.close()
            if journal is not None:
                journal.close()
            if port is not None:
                port.release()  # unless others use it
            raise
        try:
            await self._publish(member)
        except BaseException:
            member.close()
            raise
        return member

    async def _numeric(self, text: str, what: str, family: int = 0) -> Endpoint:
        if self._ports is not None:
            return Endpoint(*split(text, what))
        return await self._loop.run_in_executor(None, resolve, text, what, family)

    async def _open_port(self, lookup: Lookup) -> tuple[Port, Endpoint, list[Resolved]]:
        """The port, this member's outer address, and the peers' addresses as far as they are known."""
        options, ports = self._options, self._ports
        listen = None if options.listen is None else await self._numeric(options.listen, "listen")
        family = 0 if listen is None else int(listen.family)
        found = await lookup.find(family, None if listen is None else FIRST_WAIT_S)
        peers = [endpoint for peer in found for endpoint in peer.endpoints]
        if ports is not None:
            own_address = [(one, "listen") for one in (listen,) if one is not None]
            check_family(own_address + [(peer, "the peer") for peer in peers])
        unknown = [peer.text for peer in found if not peer.endpoints]
        if listen is None and not peers and unknown:
            are = "is" if len(unknown) == 1 else "are"
            raise Misuse(
                f"this member has no address to listen on: of its peers, {', '.join(unknown)} {are} not known here, or not yet. "
                "Give listen."
            )
        port: Port
        if ports is not None:
            port = ports.port(listen, peers)
        else:
            port = hub = find_hub(self._loop, listen, peers)
        try:
            if ports is None and options.multicast is not None:
                port = MulticastPort(self._loop, hub, check_multicast(options.multicast))
            listening = own = Endpoint(port.endpoint.host, port.endpoint.port)
            if options.advertise is not None:
                own = await self._numeric(options.advertise, "advertise", int(listening.family))
                own = own if own.port else Endpoint(own.host, listening.port)
                check_family([(listening, "listen"), (own, "advertise")])
            elif ports is None and own.is_unspecified:
                own = Endpoint(outer_host(own, peers, bool(unknown) or lookup.is_function), own.port)
        except BaseException:
            port.release()  # unless others use it
            raise
        return port, own, found

    def _check_reach(self, addresses: Sequence[Endpoint]) -> None:
        """Without a key, refuse to be reached from outside of this machine."""
        outside = [one for one in addresses if not one.is_loopback]
        if outside:
            raise Misuse(
                f"{outside[0]} can be reached from outside, and the group {self._options.group!r} has no key: give key, or --key "
                "(`unisono keygen` makes one); or insecure=True, or --insecure, if everyone on the network may read and cast."
            )

    def _build(
        self,
        port: Port,
        identity: MemberId,
        settings: Settings,
        search: PeerSearch,
        key: bytes | None,
        journal: Journal | None,
    ) -> RunningMember:
        """Put the member and its parts together, and take the first turn."""
        options, environment = self._options, self._environment
        clock = environment.clock
        recording = None if options.trace is None else Recording(self._recorder(identity), clock)
        now = clock()
        record = None if journal is None else journal.record
        credible = highest_credible(max(environment.wall_clock(), identity.incarnation))
        member = Member(
            identity, options.group, ORDERS, options.order, settings, environment.random, now, recording is not None, record,
            credible,
        )  # fmt: skip
        is_row = (
            self._ports is None
            and options.listen is None
            and Endpoint(*split(identity.address, "the address")).is_loopback
        )
        peers = NamedPeers(
            options.group, identity, key, clock,
            send=lambda address, hint: port.send([((address,), hint)]),
            source_of=port.source_of,
            silence_is_news=not is_row,  # of a row of addresses on one machine, members take the first that are free
        )  # fmt: skip
        running = RunningMember(
            self._loop, options.group, port, member, peers,
            clock=clock, seal=None if key is None else Seal(options.group, identity, key),
            journal=journal, recording=recording, hooks=options.hooks, answer=options.answer,
            shows_stalls=options.shows_stalls,
        )  # fmt: skip
        if options.is_observer:
            decline_states(running)
        if recording is not None:
            recording.begin(running.observers, now)
            running.call_at_end(lambda: recording.end(why_it_crashed(running)))
        if journal is not None:
            running.call_at_end(journal.close)
        running.call_at_end(search.stop)
        search.start(self._loop, running.driver, peers)
        member.join(search.addresses(), search.expects_more)
        running.driver.turn()
        return running

    def _recorder(self, identity: MemberId) -> Recorder:
        options = self._options
        assert options.trace is not None
        try:
            sink = FolderSink(options.trace, options.run_name, identity.address, identity.incarnation)
        except TraceError as error:  # which is none of ours: the trace is read without unisono, too
            raise Misuse(str(error)) from error
        kind = "real" if self._ports is None else "simulated"
        return Recorder(options.run_name, options.group, options.order, identity, kind, sink)

    async def _publish(self, member: RunningMember) -> None:
        """Let others look at the member: its environment or the log, metrics, the control socket."""
        if self._environment.welcome is None:
            logs.attach(member, self._loop)
        else:
            self._environment.welcome(member)
        if self._options.metrics is not None:
            await metrics_server.serve(member, self._options.metrics)
        if self._options.control:
            await control_socket.serve(member)


def decline_states(running: RunningMember) -> None:
    """Answer members that ask this observer for a state."""
    decliner = Decliner(running.member)

    def look(events: list[Happening], now: int) -> None:
        if decliner.take(events):
            running.driver.wake()

    running.observers.turn.append(look)


def why_it_crashed(running: RunningMember) -> str | None:
    """What a trace says of a member's end; None: it has left in order."""
    if running.failure is not None:
        return str(running.failure)
    return None if running.member.state.is_gone else ALONE  # to the others it is as one that crashed
