"""Finds the addresses of the peers that `join` was given: at the start, and again and again while the member runs.

A peer is an address, or a name that stands for one or several. In a cluster a name may not be known yet when a member starts,
and mean another address after a restart: so a name that is not known is no error, and all names are looked up anew, every few
seconds while a peer is missing, else rarely. Only addresses of the socket's family count. Looking up waits, so it is done in
threads of its own: a name server that does not answer holds up neither the event loop nor the application's threads, nor the end
of the program.

`peers` may also be a function that returns the list; it is called just as often, also in a thread. In virtual time names are
addresses already.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from functools import partial
from itertools import islice
from queue import SimpleQueue
from socket import AF_INET6
from threading import Thread
from typing import Any, NamedTuple, TypeAlias

from unisono.core.errors import Misuse
from unisono.runtime.addresses import Endpoint, Unresolved, is_numeric, resolve_records, split
from unisono.trace.sanitize import cut, sanitize

PeerList: TypeAlias = Iterable[str]
PeerFunction: TypeAlias = Callable[[], "PeerList | Awaitable[PeerList]"]

SOON_S = 3.0
"""While a peer is missing, names are looked up so often …"""
RARELY_S = 30.0
"""… and else so often."""
FIRST_WAIT_S = 2.0
"""A member that knows where to listen does not wait longer than this for the names of its peers."""
FAILURES_MAX = 5
"""A name keeps its last addresses until it was not found this many times in a row."""
THREADS = 4
PEERS_MAX = 1_024
"""Maximum number of peers that a function may return."""


class Resolved(NamedTuple):
    """What was found out about one peer."""

    text: str
    """As it was written."""
    endpoints: tuple[Endpoint, ...]
    problem: str = ""
    """Why there are none."""


NOT_YET = "the name server has not answered yet"


class Lookup:
    """Looks up the peers of one member. `find` is called once for the start, then `round` again and again."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, peers: Sequence[str] | PeerFunction, in_virtual_time: bool = False
    ) -> None:
        self._loop = loop
        self._peers = peers
        self._in_virtual_time = in_virtual_time
        self._family = 0
        self._texts: tuple[str, ...] = () if callable(peers) else tuple(dict.fromkeys(peers))
        self._known: dict[str, Resolved] = {}  # numbers, and what names meant last
        self._errors: dict[str, Misuse] = {}  # of what will never be an address
        self._asked: dict[str, asyncio.Future[Resolved | Misuse]] = {}  # names that are being looked up
        self._failures: dict[str, int] = {}  # of names that were known before, in a row
        self._called: asyncio.Task[object] | None = None  # a call of the function that is under way
        self._executor: DaemonThreads | None = None
        self.problem = ""
        """Why the function did not return a list of peers the last time, as a sentence."""

    @property
    def is_function(self) -> bool:
        return callable(self._peers)

    @property
    def can_change(self) -> bool:
        """Whether looking again may find something else."""
        return self.is_function or (not self._in_virtual_time and any(not _is_number(text) for text in self._texts))

    async def find(self, family: int = 0, wait_s: float | None = None) -> list[Resolved]:
        """Look up all peers for a member that is about to start, of this family if one is given; else of that of the first
        number, or of the first name that is known. Names that take longer than `wait_s` are not known yet."""
        await self._look(wait_s, is_first=True)
        for text in self._texts:
            if (error := self._errors.get(text)) is not None:
                raise error
        if self._in_virtual_time:
            return self._of_family()
        numbers = [text for text in self._texts if _is_number(text)]
        first = [*(self._known[text] for text in numbers), *self._known.values()]
        self._family = family or next((int(one.endpoints[0].family) for one in first if one.endpoints), 0)
        for text in numbers:
            if self._known[text].endpoints[0].family != self._family:
                kind = "IPv6" if ":" not in text else "IPv4"
                raise Misuse(
                    f"the peer {text!r} is of another family than the other addresses: write all of them as {kind}."
                )
        return self._of_family()

    async def round(self, wait_s: float | None = None) -> list[Resolved]:
        """Look up all peers once more. Of a name that takes longer than `wait_s`, the next round may hear."""
        await self._look(wait_s, is_first=False)
        return self._of_family()

    async def _look(self, wait_s: float | None, is_first: bool) -> None:
        if self.is_function:
            await self._call(wait_s, is_first)
        if self._in_virtual_time:
            self._known = {text: Resolved(text, (Endpoint(*split(text, "the peer")),)) for text in self._texts}
        else:
            await self._resolve(wait_s)

    def close(self) -> None:
        for asked in self._asked.values():
            asked.cancel()
        if self._called is not None:
            self._called.cancel()
        if self._executor is not None:
            self._executor.shutdown()
            self._executor = None

    def _of_family(self) -> list[Resolved]:
        found = []
        for text in self._texts:
            one = self._known[text]
            endpoints = tuple(endpoint for endpoint in one.endpoints if self._family in (0, endpoint.family))
            problem = one.problem
            if one.endpoints and not endpoints:
                problem = f"it is not {'IPv6' if self._family == AF_INET6 else 'IPv4'}, as this member's address is"
            found.append(Resolved(text, endpoints, problem))
        return found

    # Names.

    async def _resolve(self, wait_s: float | None) -> None:
        for text in self._texts:
            if _is_number(text):
                if text not in self._known:
                    self._learn(text, look_up(text))
            elif text not in self._asked:
                self._asked[text] = self._loop.run_in_executor(self._threads(), look_up, text)
        if self._asked:
            await asyncio.wait(self._asked.values(), timeout=wait_s)
        for text, asked in list(self._asked.items()):
            if asked.done():
                del self._asked[text]
                self._learn(text, asked.result())
            else:
                self._known.setdefault(text, Resolved(text, (), NOT_YET))
        self._known = {text: self._known[text] for text in self._texts}

    def _learn(self, text: str, answer: Resolved | Misuse) -> None:
        if isinstance(answer, Misuse):
            self._errors[text] = answer
            answer = Resolved(text, (), "this is not the name of a host")
        known = self._known.get(text)
        if known is not None and known.endpoints and not answer.endpoints:  # a name server may have a bad moment
            self._failures[text] = self._failures.get(text, 0) + 1
            if self._failures[text] < FAILURES_MAX:
                return
        self._failures.pop(text, None)
        self._known[text] = answer

    def _threads(self) -> DaemonThreads | None:
        if self._executor is None and not self._in_virtual_time:
            self._executor = DaemonThreads(THREADS, "unisono-names")
        return self._executor

    # The function.

    async def _call(self, wait_s: float | None, is_first: bool) -> None:
        """Ask for the list. If that fails or takes longer than `wait_s`, the last one stays; what is no list of addresses is an
        error at the start."""
        if self._called is None:
            self._called = self._loop.create_task(self._ask())
        await asyncio.wait({self._called}, timeout=wait_s)
        if not self._called.done():
            self.problem = "the function peers has not returned yet; its list is waited for."
            return
        called, self._called = self._called, None
        try:
            returned = called.result()
        except (Exception, asyncio.CancelledError) as error:
            what = sanitize(cut(f"{type(error).__name__}: {error}", 200))
            self.problem = f"the function peers raised {what}; it is called again."
            return
        try:
            self._texts = check_peers(returned)[:PEERS_MAX]
            self.problem = ""
        except Misuse as error:
            if is_first:
                raise
            self.problem = f"the function peers returned no list of addresses: {error}"

    async def _ask(self) -> object:
        function = self._peers
        assert callable(function)
        if inspect.iscoroutinefunction(function):
            return await function()
        returned = await self._loop.run_in_executor(self._threads(), _call_here, function)
        return await returned if inspect.isawaitable(returned) else returned


class DaemonThreads(Executor):
    """A few threads that do not hold up the end of the process, whatever they wait for. A `ThreadPoolExecutor`'s do."""

    def __init__(self, threads_max: int, name: str) -> None:
        self._threads_max, self._name = threads_max, name
        self._threads = 0
        self._jobs: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self._jobs.put((future, partial(function, *arguments, **named)))
        if self._threads < self._threads_max:
            Thread(target=self._work, name=f"{self._name}_{self._threads}", daemon=True).start()
            self._threads += 1
        return future

    def shutdown(self, wait: bool = False, *, cancel_futures: bool = False) -> None:
        """Let threads end that are done; none is waited for."""
        for _ in range(self._threads):
            self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            future, call = job
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(call())
                except BaseException as error:
                    future.set_exception(error)


def _call_here(function: PeerFunction) -> object:
    """Call the function, and let a generator run, in a thread: either may wait, or raise."""
    returned = function()
    return list(islice(returned, PEERS_MAX)) if isinstance(returned, Iterator) else returned


def look_up(text: str) -> Resolved | Misuse:
    """All addresses of a peer; what can never have one comes back as its error. It waits: call it in a thread."""
    try:
        return Resolved(text, tuple(resolve_records(text, "the peer")))
    except Unresolved:
        return Resolved(text, (), "the name is not known")
    except Misuse as error:
        return error


def _is_number(text: str) -> bool:
    return is_numeric(split(text, "the peer")[0])


def check_peers(peers: object) -> tuple[str, ...]:
    """A list of addresses as `join` takes it, each once."""
    if isinstance(peers, str | bytes) or not isinstance(peers, Iterable):
        raise Misuse(f"peers must be a list of addresses, not {peers!r}: write ['127.0.0.1:7400', …].")
    texts = list(peers)
    for text in texts:
        split(text, "the peer")
    return tuple(dict.fromkeys(texts))
