"""`unisono ptp`: two parties over reliable point-to-point datagrams, without the causal layer. Paper 001, section 2.1."""

from __future__ import annotations

import asyncio
import socket
from time import monotonic_ns, time_ns
from typing import Annotated

import typer

from unisono.cli import group_options as o
from unisono.cli.keyboard import Keyboard, ending_signals
from unisono.cli.show import err
from unisono.cli.streams import to_bytes, to_text
from unisono.core.errors import Misuse
from unisono.core.types import MemberId
from unisono.papers.by_hand import Prompts
from unisono.papers.ptp.faulty_link import FaultyLink
from unisono.papers.ptp.link import AckReceived, Link, LinkSettings, Note, PeerFailed, Received, Resent, Restarted
from unisono.runtime.addresses import Endpoint, bind, bound_endpoint, resolve
from unisono.runtime.faulty import AckVerdict
from unisono.runtime.loop import run
from unisono.runtime.seal import Seal, find_key, overhead
from unisono.trace.sanitize import sanitize

DATAGRAM_BYTES_MAX = 1_472
"""With the headers of UDP and IP: 1,500."""
DATAGRAMS_A_TURN = 256


def ptp(
    host: Annotated[str, typer.Option("-H", "--host", help="The peer's host name or address.")],
    port: Annotated[int, typer.Option("-P", "--port", help="The peer's port.", min=1, max=65_535)],
    own_port: Annotated[int, typer.Option("-p", "--own-port", help="The local port.", min=0, max=65_535)],
    resends: Annotated[
        int,
        typer.Option(
            "-n",
            "--resends",
            help="Number of unanswered resends after which the peer counts as failed.",
            min=0,
            max=100,
        ),
    ] = 5,
    delay: Annotated[
        bool, typer.Option("-t", "--ack-delay", help="Ask for each message whether to delay its ACK.")
    ] = False,
    alter: Annotated[
        bool, typer.Option("-s", "--alter", help="Ask for each message whether to change the number of its ACK.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("-D", "--debug", help="Print receptions, acknowledgements, resends and failures.")
    ] = False,
    key: o.KeyFile = None,
    insecure: o.Insecure = False,
) -> None:
    """Connect two parties: send each typed line, and print what the other sends.

    Lost datagrams are resent; lines arrive once and in order. After 1 + 5 unanswered sends the peer counts as failed; type
    another line to try again. Receiving never waits for typing, not even for answers to the questions of -s and -t.
    """
    peer = resolve(f"[{host}]:{port}" if ":" in host else f"{host}:{port}", "the peer")
    listen = Endpoint(_local_host(peer), own_port)
    found = find_key(key)
    if found is None and not insecure and not peer.is_loopback:
        raise Misuse(
            f"{peer} is not on this machine, and there is no key: pass --key (`unisono keygen` creates one), or --insecure if "
            "everyone on the network may read and write."
        )
    with bind(listen) as udp:
        has_lost = run(Party(udp, peer, resends, found, debug).attend(alter, delay))
    if has_lost:
        raise typer.Exit(1)


def _local_host(peer: Endpoint) -> str:
    """The address from which the peer is reached; from the same one it must be heard."""
    with socket.socket(peer.family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(peer.sockaddr)
        except OSError as error:
            raise Misuse(f"there is no way to {peer}: {error.strerror}.") from error
        return str(probe.getsockname()[0])


class Party:
    """Drives one link on a socket."""

    def __init__(self, udp: socket.socket, peer: Endpoint, resends: int, key: bytes | None, debug: bool) -> None:
        self._udp, self._peer, self._debug = udp, peer, debug
        life = time_ns()
        own = str(bound_endpoint(udp))
        self._seal = (
            None if key is None else Seal(f"ptp {'|'.join(sorted((own, str(peer))))}", MemberId(own, life), key)
        )
        room = DATAGRAM_BYTES_MAX - (0 if key is None else overhead(own))
        self._link = Link(life, LinkSettings(resends=resends, datagram_bytes=room))
        self._timer: asyncio.TimerHandle | None = None
        self._moved = asyncio.Event()
        self._told: list[str] = []  # about acknowledgements, in this turn
        self._in_hand = 0  # a line for which the link has no room yet
        self._has_lost = False

    async def attend(self, alter: bool, delay: bool) -> bool:
        """Until a signal, or the end of the input and everything acknowledged. True: something that was typed is lost."""
        loop = asyncio.get_running_loop()
        with Keyboard("> ") as self._keyboard, ending_signals() as end:
            prompts = Prompts(self._keyboard, self._decide, alter, delay)
            self._faulty = FaultyLink(
                self._link, str(self._peer), self._told.append, prompts.ask if alter or delay else None
            )
            loop.add_reader(self._udp.fileno(), self._read)
            typed = asyncio.create_task(self._type(prompts))
            ended = asyncio.create_task(end.wait())
            try:
                await asyncio.wait({typed, ended}, return_when=asyncio.FIRST_COMPLETED)
                if typed.done():
                    typed.result()
                elif waiting := self._in_hand + self._link.unacknowledged:
                    self._lose(f"{waiting} lines are not acknowledged: {self._peer} may not have them.")
            finally:
                for task in (typed, ended):
                    task.cancel()
                loop.remove_reader(self._udp.fileno())
                if self._timer is not None:
                    self._timer.cancel()
        return self._has_lost

    async def _type(self, prompts: Prompts) -> None:
        async for line in self._keyboard:
            if prompts.is_waiting:
                prompts.answer(line)
                continue
            await self._send(to_bytes(line))
            self._turn()
        prompts.finish()
        while not self._link.is_idle:
            await self._change()

    async def _send(self, message: bytes) -> None:
        self._in_hand = 1
        try:
            while not self._link.send(message):
                await self._change()
        except Misuse as error:  # too large; the next line may not be
            self._lose(str(error))
        self._in_hand = 0

    def _lose(self, text: str) -> None:
        self._has_lost = True
        err.print("unisono:", sanitize(text), markup=False, soft_wrap=True)

    async def _change(self) -> None:
        self._moved.clear()
        await self._moved.wait()

    def _decide(self, verdict: AckVerdict) -> None:
        self._faulty.decide(verdict, monotonic_ns())
        self._turn()

    def _read(self) -> None:
        for _ in range(DATAGRAMS_A_TURN):
            try:
                data, source = self._udp.recvfrom(65_536)
            except BlockingIOError:
                break
            except OSError:
                continue
            if (source[0], source[1]) != tuple(self._peer):
                continue  # a third party
            datagram = data if self._seal is None else self._seal.open(data)
            if datagram is not None:
                self._link.receive(datagram, monotonic_ns())
        self._turn()

    def _turn(self) -> None:
        now = monotonic_ns()
        turn = self._faulty.drain(now)
        for datagram in turn.datagrams:
            try:
                self._udp.sendto(datagram if self._seal is None else self._seal.close(datagram), self._peer.sockaddr)
            except OSError as error:
                self._tell(f"a datagram could not be sent: {error.strerror}")  # as if it were lost
        for note in turn.notes:
            self._note(note)
        for text in self._told:
            self._tell(text)
        self._told.clear()
        for message in turn.messages:
            self._keyboard.say(to_text(message))
        if self._timer is not None:
            self._timer.cancel()
        if turn.deadline is not None:
            wait_s = max(0, turn.deadline - now) / 1e9
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._turn)
        self._moved.set()

    def _note(self, note: Note) -> None:
        match note:
            case Received(seq, tries, is_duplicate):
                self._tell(f"received {seq}, transmission {tries}{', a duplicate' if is_duplicate else ''}")
            case AckReceived(seq, is_meaningless):
                self._tell(f"ACK {seq} received{', which acknowledges nothing' if is_meaningless else ''}")
            case Resent(seq, tries):
                self._tell(f"resend {tries - 1} of {seq}")
            case Restarted():
                self._tell(f"{self._peer} has restarted")
            case PeerFailed(seq, tries, given_up):
                self._has_lost = True
                self._keyboard.say(
                    f"{self._peer} did not acknowledge {seq} after {tries} sends: it counts as failed, and {given_up} "
                    "datagrams are given up."
                )

    def _tell(self, text: str) -> None:
        if self._debug:
            self._keyboard.say(f"[ptp] {text}")
