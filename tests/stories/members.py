"""The stage of whole members in virtual time, and the commands that it knows."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from functools import partial
from typing import Any, TypeAlias

from tests.stories.applications import Caster, Reader
from tests.stories.forms import Casting, Forms, demand, read_setting, said
from tests.stories.packets import FATES, Packets, kinds_of, read_rule
from tests.stories.showing import Onlooker, in_short
from tests.stories.text import Line, StoryError
from tests.transfer_world import AppProcess, TransferWorld
from unisono.core.config import SECOND
from unisono.core.errors import UnisonoError
from unisono.core.member.settings import Settings
from unisono.core.membership.settings import Policy
from unisono.core.options import CastOptions
from unisono.core.types import Batch, MemberId
from unisono.services.transfer.transfer import Transfer
from unisono.sim.group_world import QUICK, GroupWorld, SimulatedProcess
from unisono.sim.units import parse_duration

LIMIT_S = 20
"""What is waited for comes within this, unless the story says how soon."""
FORMS = Forms()
Holds: TypeAlias = Callable[[], bool]


class Members:
    """A group under one order. A command returns what it says, or a condition to wait for."""

    def __init__(self, order: str, way: str) -> None:
        self.order = order
        self.settings = replace(QUICK, membership=replace(QUICK.membership, collect=way or None))
        self.seed, self.delay = "0", "constant:1ms"
        self.ballast: int | None = None
        self._world: GroupWorld | None = None
        self.onlookers: dict[MemberId, Onlooker] = {}
        self.counts: Counter[str] = Counter()
        self.failed: dict[tuple[str, str], list[str]] = {}
        self.readers: dict[MemberId, Reader] = {}
        self.casters: dict[MemberId, Caster] = {}

    def begin(self) -> None:
        self.failed = {}
        if self._world is not None:
            self.packets.sent.clear()

    def do(self, line: Line) -> list[str]:
        if line.words[0] in FATES:
            self.packets.rules.append(read_rule(line, self.names))
            return []
        text, _, limit = line.text.partition(" within ")
        found = FORMS.act(self, text, self.named)
        conditions = [one for one in found if callable(one)]
        self._run_until(
            lambda: all(holds() for holds in conditions), parse_duration(limit) / SECOND if limit else LIMIT_S
        )
        return [*said(found)]

    def shown(self) -> list[tuple[str, list[str]]]:
        lines = [(str(life.id), self.onlooker(life).lines()) for life in self.world.lives]
        for (who, why), texts in self.failed.items():
            lines.append((f"{who} cannot cast {in_short(texts)}", [why]))
        return lines

    def close(self) -> None:
        self.packets.heal()

    def named(self, words: Sequence[str]) -> list[SimulatedProcess]:
        """Members that are there; `all` are those that are up, and `*` is every address."""
        known = self.world.processes
        if list(words) in (["all"], ["*"]):
            return [one for one in known.values() if one.is_up or words[0] == "*"]
        for word in words:
            demand(word in known, f"there is no member {word!r}.")
        return [known[word] for word in words]

    def names(self, words: Sequence[str]) -> list[str]:
        return [one.id.address for one in self.named(words)]

    @property
    def world(self) -> GroupWorld:
        if self._world is None:
            some: dict[str, Any] = {"settings": self.settings, "delay": self.delay}
            if self.ballast is not None:
                self._world = TransferWorld(self.order, self.seed, ballast=self.ballast, **some)
            else:
                owed = ["P20"] if self.settings.membership.policy is Policy.PRIMARY else []
                self._world = GroupWorld(self.order, self.seed, owed=owed, **some)
            self.packets = Packets(self._world)
        return self._world

    def onlooker(self, life: SimulatedProcess) -> Onlooker:
        return self.onlookers.setdefault(life.id, Onlooker(life))

    def _run_until(self, holds: Holds, seconds: float = LIMIT_S) -> None:
        if not (holds() or self.world.run(seconds, holds)):
            raise StoryError(f"not within {float(seconds)} s.\n{self.world.story()}")

    # Before the story begins.

    @FORMS("orders WORDS", "collect WORDS")
    def _before(self, *_: object) -> None:
        demand(self._world is None, "this stands before the first member.")

    @FORMS("settings WORDS")
    def _settings(self, changes: list[str]) -> None:
        self._before()
        self.settings = with_settings(self.settings, changes)

    @FORMS("state SIZE")
    def _state(self, size: int) -> None:
        self._before()
        self.ballast = size

    @FORMS("network WORDS")
    def _network(self, words: list[str]) -> None:
        for word in sorted(words, key=lambda word: not word.startswith(("seed", "delay"))):
            name, _, value = word.partition("=")
            if name in ("seed", "delay"):
                self._before()
                setattr(self, name, value)
            else:
                demand(name in ("loss", "duplicate", "reorder", "replay"), f"the network has no {name}.")
                setattr(self.world.network, name, float(value.removesuffix("%")) / 100)

    @FORMS("members WORDS")
    def _members(self, names: list[str]) -> None:
        world = self.world
        world.gather(names)
        if isinstance(world, TransferWorld):
            self._run_until(lambda: world.all_live(names))
        for life in world.lives:
            self.onlooker(life).lines()
        self.packets.sent.clear()

    # What the network does, what is waited for, and the end.

    @FORMS("partition PARTS")
    def _partition(self, parts: list[list[str]]) -> None:
        self.world.partition(*parts)

    @FORMS("wait TIME")
    def _wait(self, time_ns: int) -> None:
        self.world.run(time_ns / SECOND)

    @FORMS("until view PARTS")
    def _view(self, parts: list[list[str]]) -> Holds:
        known = [self.names(part) for part in parts]
        return lambda: all(self.world.is_one(part) for part in known)

    @FORMS("heal")
    def _heal(self) -> None:
        self.packets.heal()
        self.world.network.heal()
        self.packets.listen()

    @FORMS("rest")
    def _rest(self) -> Holds:
        return self._is_at_rest

    def _is_at_rest(self) -> bool:
        """As the world would say, but it counts the suspicion of a crashed member as unrest for ever."""
        world = self.world
        up = [process.member.state for process in world.up]
        busy = any(one.unfinished or one.is_changing or one.held_back() or one.not_yet_safe() for one in up)
        live = not isinstance(world, TransferWorld) or world.all_live([one.id.address for one in world.up])
        return not busy and live and world.is_one([one.id.address for one in world.up])

    @FORMS("until sent WORD MEMBER -> MEMBERS")
    def _sent(self, kinds: str, src: SimulatedProcess, targets: list[SimulatedProcess]) -> Holds:
        wanted = [(kind, src.id.address, dst.id.address) for kind in kinds_of(kinds) for dst in targets]
        return lambda: any(self.packets.sent[one] for one in wanted)

    @FORMS("show packets WORD to MEMBERS", "show packets WORD")
    def _packets(self, kinds: str, targets: list[SimulatedProcess] | None = None) -> str:
        receivers = None if targets is None else [one.id.address for one in targets]
        counts = dict.fromkeys(kinds_of(kinds), 0)
        for (kind, _, dst), count in self.packets.sent.items():
            if kind in counts and (receivers is None or dst in receivers):
                counts[kind] += count
        return "packets: " + ", ".join(f"{kind} {count}" for kind, count in counts.items())

    @FORMS("judge")
    def _judge(self) -> list[str]:
        self.packets.heal()
        up = self.world.up
        verdict = self.world.finish()
        lines = ["PASS"] if verdict.result == "PASS" else str(verdict).splitlines()
        if isinstance(self.world, TransferWorld):
            apps = [one for one in up if isinstance(one, AppProcess) and not one.member.state.is_gone]
            lines += self.world.faults_found(apps)
        return lines

    # What members do.

    @FORMS("WORDS starts at WORDS")
    def _starts(self, names: list[str], words: list[str]) -> None:
        seeds, _, changes = " ".join(words).partition(" with ")
        settings = with_settings(self.settings, changes.split())
        self.world.start(*names, seeds=seeds.split(), settings=settings)

    @FORMS("MEMBERS cast WORDS")
    def _casts(self, casters: list[SimulatedProcess], words: list[str]) -> None:
        casting = Casting.read(words)
        options = casting.options(lambda names: [one.id for one in self.named(names)])
        for number in range(casting.each or len(casting.texts)):
            for process in casters:
                name = process.id.address
                self.counts[name] += bool(casting.each)
                text = f"{name}{self.counts[name]}" if casting.each else casting.texts[number]
                self._cast(process, text, options, casting.is_awaited)
            self.world.run(casting.gap_ns / SECOND)

    def _cast(self, process: SimulatedProcess, text: str, options: CastOptions, is_awaited: bool) -> None:
        demand(process.paused_until <= self.world.now, f"{process.id.address} is paused.")
        key = process.member.state.accepted
        if process.cast(text.encode(), options, is_awaited):
            self.onlooker(process).titles[key] = text
            return
        why = "it has no view" if process.view is None else "it is gone" if not process.is_up else "it must wait"
        if why == "it must wait":
            try:
                process.member.cast(text.encode(), options)
            except UnisonoError as error:
                why = str(error)
        self.failed.setdefault((str(process.id), why), []).append(text)

    def crash(self, process: SimulatedProcess) -> None:
        demand(process.is_up, f"{process.id.address} is not up.")
        self.world.crash(process.id.address)

    def read(self, process: SimulatedProcess, gap_ns: int | None = None) -> None:
        if process.id in self.readers:
            self.readers[process.id].read_every(gap_ns)
        else:
            self.readers[process.id] = Reader(process, gap_ns)

    def keep_casting(self, process: SimulatedProcess, size: int, gap_ns: int, is_patient: bool = False) -> None:
        self.casters[process.id] = Caster(process, gap_ns, size, is_patient)

    def explain(self, process: SimulatedProcess) -> list[str]:
        sentences = process.member.explain() or [""]
        return [f"{process.id.address} explains{f': {one}' if one else ' nothing'}" for one in sentences]

    def counters(self, process: SimulatedProcess, names: list[str]) -> str:
        streams = process.member.counters.streams
        return f"{process.id.address} counts " + ", ".join(f"{name} {streams[name]}" for name in names)

    def donor(self, process: SimulatedProcess) -> str:
        progress = transfer_of(process).progress
        return f"the donor of {process.id.address} is {progress and progress.donor}"

    def held(self, process: SimulatedProcess) -> str:
        return f"{process.id.address} holds {transfer_of(process).bytes_held // 1000} kB for joiners"


def transfer_of(process: SimulatedProcess) -> Transfer:
    if not isinstance(process, AppProcess):
        raise StoryError("the members of this story have no state.")
    return process.transfer


def pulls(process: SimulatedProcess) -> bool:
    """A third of a state is here."""
    progress = transfer_of(process).progress
    return progress is not None and 0 < (progress.total_bytes or 0) // 3 < progress.here_bytes


def switch(process: SimulatedProcess, order: str) -> None:
    process.member.switch(order)
    process.turn()


def answer(asked: SimulatedProcess, word: str) -> None:
    question = re.compile(rf"{re.escape(word)}\d+".encode())

    def on_event(process: SimulatedProcess, event: Any) -> None:
        for payload in (event.payloads or ()) if isinstance(event, Batch) else ():
            if question.fullmatch(payload):
                process.member.cast(bytes(payload) + process.id.address.encode())

    asked.on_event = on_event


FORMS.add_each(
    {
        "until MEMBERS blocked": lambda stage, one: lambda: one.member.state.is_blocked,
        "until MEMBERS left": lambda stage, one: lambda: one.ended,
        "until MEMBERS suspect MEMBER": lambda stage, one, other: lambda: other.id in one.member.state.suspects,
        "until MEMBERS deliver WORD": lambda stage, one, text: (
            lambda: text.encode() in (payload for _, payload in one.delivered)
        ),
        "until MEMBERS in WORDS": lambda stage, one, names: (
            lambda: one.view is not None and [member.address for member in one.view.members] == names
        ),
        "until MEMBERS pull": lambda stage, one: lambda: pulls(one),
        "show explain MEMBERS": Members.explain,
        "show counts MEMBERS WORDS": Members.counters,
        "show casts MEMBERS": lambda stage, one: str(stage.casters[one.id]),
        "show donor MEMBERS": Members.donor,
        "show held MEMBERS": Members.held,
        "MEMBERS restart at WORDS": lambda stage, one, seeds: stage.world.restart(one.id.address, seeds),
        "MEMBERS crash": Members.crash,
        "MEMBERS leave": lambda stage, one: stage.world.leave(one.id.address),
        "MEMBERS pause TIME": lambda stage, one, time_ns: stage.world.pause(one.id.address, time_ns),
        "MEMBERS drift NUMBER": lambda stage, one, rate: one.drift(rate),
        "MEMBERS send NUMBER bytes/s": lambda stage, one, rate: stage.world.network.bytes_per_s.update(
            {one.id.address: int(rate)}
        ),
        "MEMBERS switch WORD": lambda stage, one, order: switch(one, order),
        "MEMBERS answer WORD": lambda stage, one, word: answer(one, word),
        "MEMBERS read every TIME": Members.read,
        "MEMBERS read nothing": Members.read,
        "MEMBERS keep casting SIZE every TIME": Members.keep_casting,
        "MEMBERS keep casting patiently SIZE every TIME": partial(Members.keep_casting, is_patient=True),
        "MEMBERS stop casting": lambda stage, one: stage.casters[one.id].stop(),
    }
)


def with_settings(settings: Settings, changes: Sequence[str]) -> Settings:
    """All at once, so that they need to fit each other only in the end."""
    parts: dict[str, dict[str, Any]] = {}
    for change in changes:
        name, _, text = change.partition("=")
        owners = [part.name for part in fields(settings) if hasattr(getattr(settings, part.name), name)]
        demand(len(owners) == 1, f"there is no setting {name!r}.")
        parts.setdefault(owners[0], {})[name] = read_setting(getattr(getattr(settings, owners[0]), name), text)
    return replace(settings, **{part: replace(getattr(settings, part), **given) for part, given in parts.items()})
