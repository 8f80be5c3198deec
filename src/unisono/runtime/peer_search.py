"""Tells a member where its peers are: what `Lookup` finds goes to membership as places to look, and to `NamedPeers` as names.

Under the primary policy the first primary view needs a majority of the peers, and each peer as it was written counts once,
whatever its address is by now. A name with several addresses could be counted more than once, and a function returns no list
that all members have in common: neither counts, and then one member needs `bootstrap`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from unisono.core.membership import Policy
from unisono.runtime.addresses import Endpoint, is_local
from unisono.runtime.lookup import FIRST_WAIT_S, RARELY_S, SOON_S, Lookup, Resolved
from unisono.runtime.named_peers import NamedPeers

if TYPE_CHECKING:
    from unisono.runtime.driver import Driver

OUTSIDE = "it is at {}, outside of this machine, and this group has no key and stays on loopback"


class PeerSearch:
    """See the module's text."""

    def __init__(
        self, lookup: Lookup, found: Sequence[Resolved], own: Endpoint, port: Endpoint, on_loopback: bool
    ) -> None:
        self._lookup = lookup
        self._own = own
        self._port = port
        self._on_loopback = on_loopback
        self._found = self._usable(found)
        self._task: asyncio.Task[None] | None = None

    def addresses(self) -> list[str]:
        """Where to look, without this member itself."""
        return list(dict.fromkeys(str(one) for peer in self._found for one in peer.endpoints if not self._is_own(one)))

    @property
    def expects_more(self) -> bool:
        """Whether peers are named that have no address yet."""
        return bool(self._lookup.problem) or any(not peer.endpoints for peer in self._found)

    def quorum(self, written: Sequence[str]) -> tuple[str, ...]:
        """The peers that the first primary view needs a majority of: the address of each, and what has not just one as it was
        written, which no member's address is equal to."""
        found = {peer.text: peer for peer in self._found}
        return tuple(self._counted(found[text]) for text in written)

    def _counted(self, peer: Resolved) -> str:
        if len(peer.endpoints) != 1:
            return peer.text
        return str(self._own if self._is_own(peer.endpoints[0]) else peer.endpoints[0])

    def _is_own(self, one: Endpoint) -> bool:
        """Whether an address leads back to this member. One that listens everywhere also has the machine's other addresses."""
        if one in (self._own, self._port):
            return True
        return (
            one.port == self._port.port
            and self._port.family == one.family
            and self._port.host in ("0.0.0.0", "::")
            and is_local(one.host)
        )

    def _usable(self, found: Iterable[Resolved]) -> list[Resolved]:
        usable = []
        for peer in found:
            outside = [one for one in peer.endpoints if self._on_loopback and not one.is_loopback]
            if outside:
                kept = tuple(one for one in peer.endpoints if one not in outside)
                peer = Resolved(peer.text, kept, "" if kept else OUTSIDE.format(outside[0].host))
            usable.append(peer)
        return usable

    # While the member runs.

    def start(self, loop: asyncio.AbstractEventLoop, driver: Driver, peers: NamedPeers) -> None:
        """Name the peers, and keep what is known of them up to date."""
        self._name(peers)
        settings = driver.member.settings.membership
        peers.remarks = lambda: self._remarks(settings.policy, settings.bootstrap, driver.member.state.is_primary)
        if self._lookup.can_change:
            self._task = loop.create_task(self._go_on(driver, peers))

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
        self._lookup.close()

    async def _go_on(self, driver: Driver, peers: NamedPeers) -> None:
        looked_s = 0.0
        while not driver.is_stopped:
            await asyncio.sleep(SOON_S)
            looked_s += SOON_S
            if not peers.is_watching and looked_s < RARELY_S:
                continue
            looked_s = 0.0
            before = self.addresses()
            self._found = self._usable(await self._lookup.round(FIRST_WAIT_S))
            self._name(peers)
            if driver.is_stopped:
                return
            found = self.addresses()
            driver.member.join(found)
            driver.member.doubt([address for address in before if address not in found])
            if driver.member.settings.membership.policy is Policy.PRIMARY and not self._lookup.is_function:
                counted = self.quorum([peer.text for peer in self._found])
                if len(set(counted)) == len(counted):
                    driver.member.name_peers(counted)
            driver.wake()

    def _name(self, peers: NamedPeers) -> None:
        for peer in self._found:
            peers.name(peer.text, [str(one) for one in peer.endpoints if not self._is_own(one)], peer.problem)
        peers.keep_only(peer.text for peer in self._found)

    def _remarks(self, policy: Policy, bootstrap: bool, is_primary: bool) -> list[str]:
        said = [self._lookup.problem] if self._lookup.problem else []
        if policy is not Policy.PRIMARY or bootstrap or is_primary:
            return said
        cure = "so the first primary view needs a member that has joined with bootstrap=True."
        if self._lookup.is_function:
            said.append(f"peers is a function, and there is no list to count a majority of, {cure}")
        for peer in self._found:
            if len(peer.endpoints) > 1:
                said.append(
                    f"{peer.text} has {len(peer.endpoints)} addresses and is not counted for a majority, {cure}"
                )
        return said
