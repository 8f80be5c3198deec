"""Processes in virtual time: an application that is killed, started again and paused, with every task that it started.

A **life** is one run of a process. Whatever runs because of it (tasks, timers, datagrams that arrive at its
addresses) carries it in a context variable, which tasks and callbacks inherit. The loop asks the life before
it runs such a callback, and a life that stands still keeps it for later. A killed life stands still for good:
like a process after `kill -9` it runs nothing more, no `finally` and no orderly leave. Only when the test is over
are its tasks cancelled, cut off from the network, so that nothing is left behind.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from enum import Enum
from typing import TYPE_CHECKING, Any

from unisono.core.errors import Misuse, UnisonoError

if TYPE_CHECKING:
    from unisono.environment import Resident
    from unisono.sim.loop import Network, VirtualLoop


class Crashed(UnisonoError):
    """The simulation has crashed this member, or killed this process."""


class State(Enum):
    """What a life does with its callbacks."""

    RUNNING = "running"
    PAUSED = "paused"  # keeps them for later
    DEAD = "dead"  # likewise, until the test is over
    BURIED = "buried"  # runs them: its tasks are being cancelled, and are cut off from the network


class ProcessLife:
    """One run of a process, and everything that it started."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.state = State.RUNNING
        self.tasks: set[asyncio.Task[Any]] = set()
        self.members: list[Resident] = []
        self.held: list[Guarded] = []

    @property
    def is_over(self) -> bool:
        return self.state in (State.DEAD, State.BURIED)

    def check(self) -> None:
        """Whether it may use the network at all."""
        if self.is_over:
            raise Crashed(f"{self.name} was killed.")

    def adopt(self, task: asyncio.Task[Any]) -> None:
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard, context=Context())


class Guarded:
    """A callback of a life, which decides when it runs."""

    def __init__(
        self, life: ProcessLife, callback: Callable[..., object], arguments: tuple[Any, ...], context: Context
    ) -> None:
        self._life = life
        self._callback = callback
        self._arguments = arguments
        self.context = context
        self.handle: asyncio.Handle | None = None

    def __call__(self) -> None:
        if self.handle is not None and self.handle.cancelled():
            return
        if self._life.state in (State.PAUSED, State.DEAD):
            self._life.held.append(self)
        else:
            self._callback(*self._arguments)


_LIFE: ContextVar[ProcessLife | None] = ContextVar("unisono_life", default=None)


def life_of(context: Context | None) -> ProcessLife | None:
    """To which life a callback with this context belongs; None: the current one."""
    return _LIFE.get() if context is None else context.get(_LIFE)


class Process:
    """An application that runs like a process of its own. `Network.process` makes it."""

    def __init__(
        self, network: Network, loop: VirtualLoop, name: str, main: Callable[[], Coroutine[Any, Any, Any]]
    ) -> None:
        self.name = name
        self._network = network
        self._loop = loop
        self._main = main
        self._lives: list[ProcessLife] = []
        self._over = asyncio.Event()
        self._result: object = None
        self._error: BaseException | None = None
        self._is_heard = True  # its error, if it has failed
        self._wakes: asyncio.TimerHandle | None = None  # from a pause
        self._start()

    def __repr__(self) -> str:
        return f"<{self.name}, {self._life.state.value}>"

    @property
    def _life(self) -> ProcessLife:
        return self._lives[-1]

    @property
    def is_running(self) -> bool:
        """Whether it was neither killed nor has come to its end; a paused one is running."""
        return not self._life.is_over

    def kill(self) -> None:
        """End it here and now, as `kill -9` does: nothing of it runs any more, and nothing leaves it."""
        if self.is_running:
            self._error, self._is_heard = Crashed(f"{self.name} was killed."), True
            self._end()

    def restart(self) -> None:
        """Start it again, with the arguments that it was given, and with whatever it wrote to files; if need be, kill it before."""
        self.kill()
        self._loop.now_ns += 1  # two lives never begin at the same time
        self._start()

    def pause(self, seconds: float | None = None) -> None:
        """Let it stand still, for a while or until `resume`. What is sent to it waits. Of several pauses the last to end counts."""
        if not self.is_running:
            raise Misuse(f"{self.name} does not run, so it cannot be paused: restart it.")
        is_paused, until = self._life.state is State.PAUSED, self._wakes
        self._life.state = State.PAUSED
        if is_paused and (until is None or (seconds is not None and until.when() >= self._loop.time() + seconds)):
            return
        self._stay_asleep()
        if seconds is not None:
            self._wakes = self._loop.call_later(seconds, self.resume, context=Context())

    def resume(self) -> None:
        """Go on after a pause."""
        self._stay_asleep()
        if self._life.state is State.PAUSED:
            self._release(self._life, State.RUNNING)

    async def wait(self) -> Any:
        """Wait until it is over, and return what `main` returned or raise what it raised; `Crashed` if it was killed."""
        await self._over.wait()
        self._is_heard = True
        if isinstance(self._error, Crashed):
            raise Crashed(*self._error.args)
        if self._error is not None:
            raise self._error
        return self._result

    # For the network.

    def take_error(self) -> BaseException | None:
        """The error that ended it, if no task has heard of it."""
        error, self._error = (None if self._is_heard else self._error), None
        return error

    def bury(self) -> None:
        """The test is over: let what the process has started end, where it can do no harm."""
        self._stay_asleep()
        for life in self._lives:
            if life.state is not State.BURIED:
                for member in self._open_members(life):
                    self._network.crash_member(member)
                self._release(life, State.BURIED)

    # One life.

    def _start(self) -> None:
        self._lives.append(ProcessLife(self.name))
        self._over, self._result, self._error = asyncio.Event(), None, None
        context = copy_context()
        context.run(_LIFE.set, self._life)
        self._loop.create_task(self._live(self._life), name=self.name, context=context)

    async def _live(self, life: ProcessLife) -> None:
        error: BaseException | None = None
        try:
            self._result = await self._main()
        except BaseException as raised:
            if life.state is State.BURIED:  # the test is over, and cancels its tasks
                raise
            error = raised
        rest = [task for task in life.tasks if task is not asyncio.current_task()]
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)
        if not life.is_over:
            self._error, self._is_heard = error, error is None
            self._end()

    def _end(self) -> None:
        self._stay_asleep()
        life = self._life
        life.state = State.DEAD
        for member in self._open_members(life):
            self._network.crash_member(member)
        self._network.close_ports_of(life)
        self._over.set()

    def _open_members(self, life: ProcessLife) -> list[Resident]:
        return [member for member in life.members if self._loop.residents.is_open(member)]

    def _release(self, life: ProcessLife, state: State) -> None:
        life.state = state
        held, life.held = life.held, []
        for guarded in held:
            self._loop.call_soon(guarded, context=guarded.context)

    def _stay_asleep(self) -> None:
        if self._wakes is not None:
            self._wakes.cancel()
            self._wakes = None
