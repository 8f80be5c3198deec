"""The stage of whole members in virtual time, and the commands that it knows."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any, TypeAlias

from tests.stories.applications import Caster, Reader
from tests.stories.forms import Forms
from tests.stories.packets import FATES, Packets, kinds_of, read_rule
from tests.stories.showing import Onlooker, in_short
from tests.stories.text import Line, StoryError
from tests.transfer_world import AppProcess, TransferWorld
from unisono.core.config import SECOND
from unisono.core.errors import UnisonoError
from unisono.core.member.settings import Settings, Slow
from unisono.core.membership.settings import Policy
from unisono.core.options import CastOptions
from unisono.core.types import Batch, MemberId, Service
from unisono.sim.group_world import QUICK, GroupWorld, SimulatedProcess
from unisono.sim.units import parse_duration

LIMIT_S = 20
"""What is waited for comes within this, unless the story says how soon."""
RANGE = re.compile(r"(.*?)(\d+)\.\.\1(\d+)")
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
        self.titles: dict[tuple[MemberId, int], str] = {}
        self.counts: Counter[str] = Counter()
        self.failed: dict[tuple[str, str], list[str]] = {}
        self.readers: dict[str, Reader] = {}
        self.casters: dict[str, Caster] = {}

    def begin(self) -> None:
        self.failed = {}
        if self._world is not None:
            self.packets.sent.clear()

    def do(self, line: Line) -> list[str]:
        if line.words[0] in FATES:
            self.packets.rules.append(read_rule(line, self.names))
            return []
        text, _, limit = line.text.partition(" within ")
        found = FORMS.act(self, text, self.names)
        if not callable(found):
            return [] if found is None else [found] if isinstance(found, str) else found
        seconds = parse_duration(limit) / SECOND if limit else LIMIT_S
        if not (found() or self.world.run(seconds, found)):
            raise StoryError(f"not within {seconds} s.\n{self.world.story()}")
        return []

    def shown(self) -> list[tuple[str, list[str]]]:
        lines = [(str(life.id), self._onlooker(life).lines(self.titles)) for life in self.world.lives]
        for (who, why), texts in self.failed.items():
            lines.append((f"{who} cannot cast {in_short(texts)}", [why]))
        return lines

    def close(self) -> None:
        self.packets.heal()

    def names(self, words: Sequence[str]) -> list[str]:
        """Members that are there; `all` are those that are up, and `*` is every address."""
        names = self.world.processes
        if list(words) in (["all"], ["*"]):
            return [name for name, one in names.items() if one.is_up or words[0] == "*"]
        for word in words:
            demand(word in names, f"there is no member {word!r}.")
        return list(words)

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

    def _onlooker(self, life: SimulatedProcess) -> Onlooker:
        return self.onlookers.setdefault(life.id, Onlooker(life))

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
            demand(world.run(LIMIT_S, lambda: world.all_live(names)), "not all have a state.")
        for life in world.lives:
            self._onlooker(life).lines({})
        self.packets.sent.clear()

    # What is asked and waited for.

    @FORMS("partition PARTS")
    def _partition(self, parts: list[list[str]]) -> None:
        self.world.partition(*parts)

    @FORMS("heal")
    def _heal(self) -> None:
        self.packets.heal()
        self.world.network.heal()
        self.packets.listen()

    @FORMS("wait TIME")
    def _wait(self, time_ns: int) -> None:
        self.world.run(time_ns / SECOND)

    @FORMS("rest")
    def _rest(self) -> None:
        for _ in range(10 * LIMIT_S):
            self.world.run(0.1)
            if self._is_at_rest():
                return
        raise StoryError(f"no rest within {LIMIT_S} s.\n{self.world.story()}")

    def _is_at_rest(self) -> bool:
        """As the world would say, but it counts the suspicion of a crashed member as unrest for ever."""
        world = self.world
        up = [process.member.state for process in world.up]
        busy = any(one.unfinished or one.is_changing or one.held_back() or one.not_yet_safe() for one in up)
        live = not isinstance(world, TransferWorld) or world.all_live([one.id.address for one in world.up])
        return not busy and live and world.is_one([one.id.address for one in world.up])

    @FORMS("until view PARTS")
    def _view(self, parts: list[list[str]]) -> Holds:
        known = [self.names(part) for part in parts]
        return lambda: all(self.world.is_one(part) for part in known)

    @FORMS("until MEMBER delivers WORD")
    def _delivers(self, name: str, text: str) -> Holds:
        process = self.world.processes[name]
        return lambda: any(one == text.encode() for _, one in process.delivered)

    @FORMS("until MEMBERS blocked")
    def _blocked(self, names: list[str]) -> Holds:
        return lambda: all(self.world.processes[name].member.state.is_blocked for name in names)

    @FORMS("until MEMBER suspects MEMBER")
    def _suspects(self, name: str, other: str) -> Holds:
        process, suspect = self.world.processes[name], self.world.processes[other].id
        return lambda: suspect in process.member.state.suspects

    @FORMS("until MEMBERS left")
    def _left(self, names: list[str]) -> Holds:
        return lambda: all(self.world.processes[name].ended for name in names)

    @FORMS("until sent WORD MEMBER -> MEMBERS")
    def _sent(self, kinds: str, src: str, targets: list[str]) -> Holds:
        wanted = [(kind, src, dst) for kind in kinds_of(kinds) for dst in targets]
        return lambda: any(self.packets.sent[one] for one in wanted)

    @FORMS("until MEMBER in WORDS")
    def _in(self, name: str, members: list[str]) -> Holds:
        process = self.world.processes[name]
        return lambda: process.view is not None and [one.address for one in process.view.members] == members

    @FORMS("until MEMBER pulls")
    def _pulls(self, name: str) -> Holds:
        """A third of a state is here."""
        transfer = self._stateful(name).transfer

        def holds() -> bool:
            progress = transfer.progress
            return (
                progress is not None and bool(total := progress.total_bytes or 0) and progress.here_bytes > total // 3
            )

        return holds

    @FORMS("show explain MEMBERS")
    def _explain(self, names: list[str]) -> list[str]:
        said = []
        for name in names:
            sentences = self.world.processes[name].member.explain()
            said += [f"{name} explains: {one}" for one in sentences] or [f"{name} explains nothing"]
        return said

    @FORMS("show counts MEMBER WORDS")
    def _counts(self, name: str, counters: list[str]) -> str:
        streams = self.world.processes[name].member.counters.streams
        return f"{name} counts " + ", ".join(f"{one} {streams[one]}" for one in counters)

    @FORMS("show packets WORD to MEMBERS", "show packets WORD")
    def _packets(self, kinds: str, to: list[str] | None = None) -> str:
        targets = to or self.names(["*"])
        counts = dict.fromkeys(kinds_of(kinds), 0)
        for (kind, _, dst), count in self.packets.sent.items():
            if kind in counts and dst in targets:
                counts[kind] += count
        return "packets: " + ", ".join(f"{kind} {count}" for kind, count in counts.items())

    @FORMS("show casts MEMBERS")
    def _casts_so_far(self, names: list[str]) -> list[str]:
        return [str(self.casters[name]) for name in names]

    @FORMS("show donor MEMBER")
    def _donor(self, name: str) -> str:
        progress = self._stateful(name).transfer.progress
        return f"the donor of {name} is {progress and progress.donor}"

    @FORMS("show held MEMBER")
    def _held(self, name: str) -> str:
        return f"{name} holds {self._stateful(name).transfer.bytes_held // 1000} kB for joiners"

    @FORMS("judge")
    def _judge(self) -> list[str]:
        self.packets.heal()
        up = [one.id.address for one in self.world.up]
        verdict = self.world.finish()
        said = ["PASS"] if verdict.result == "PASS" else str(verdict).splitlines()
        if isinstance(self.world, TransferWorld):
            apps = [self._stateful(name) for name in up]
            said += self.world.faults_found([one for one in apps if not one.member.state.is_gone])
        return said

    def _stateful(self, name: str) -> AppProcess:
        process = self.world.processes[name]
        if not isinstance(process, AppProcess):
            raise StoryError("the members of this story have no state.")
        return process

    # What members do.

    @FORMS("WORDS starts at WORDS", "WORDS start at WORDS")
    def _starts(self, names: list[str], words: list[str]) -> None:
        seeds, _, changes = " ".join(words).partition(" with ")
        settings = with_settings(self.settings, changes.split())
        self.world.start(*names, seeds=seeds.split(), settings=settings)

    @FORMS("MEMBERS restart at WORDS")
    def _restarts(self, names: list[str], seeds: list[str]) -> None:
        for name in names:
            self.world.restart(name, seeds=seeds)

    @FORMS("MEMBERS crash")
    def _crashes(self, names: list[str]) -> None:
        for name in names:
            demand(self.world.processes[name].is_up, f"{name} is not up.")
            self.world.crash(name)

    @FORMS("MEMBERS leave")
    def _leaves(self, names: list[str]) -> None:
        for name in names:
            self.world.leave(name)

    @FORMS("MEMBERS pause TIME")
    def _pauses(self, names: list[str], time_ns: int) -> None:
        for name in names:
            self.world.pause(name, time_ns)

    @FORMS("MEMBERS drift NUMBER")
    def _drifts(self, names: list[str], rate: float) -> None:
        for name in names:
            self.world.processes[name].drift(rate)

    @FORMS("MEMBER switch WORD")
    def _switches(self, name: str, order: str) -> None:
        process = self.world.processes[name]
        process.member.switch(order)
        process.turn()

    @FORMS("MEMBERS send NUMBER bytes/s")
    def _sends(self, names: list[str], rate: float) -> None:
        for name in names:
            self.world.network.bytes_per_s[name] = int(rate)

    @FORMS("MEMBERS answer WORD")
    def _answers(self, names: list[str], word: str) -> None:
        question = re.compile(rf"{re.escape(word)}\d+".encode())

        def answer(process: SimulatedProcess, event: Any) -> None:
            for payload in (event.payloads or ()) if isinstance(event, Batch) else ():
                if question.fullmatch(payload):
                    process.member.cast(bytes(payload) + process.id.address.encode())

        for name in names:
            self.world.processes[name].on_event = answer

    @FORMS("MEMBERS read every TIME", "MEMBERS read nothing")
    def _reads(self, names: list[str], gap_ns: int | None = None) -> None:
        for name in names:
            if name in self.readers:
                self.readers[name].read_every(gap_ns)
            else:
                self.readers[name] = Reader(self.world.processes[name], gap_ns)

    @FORMS("MEMBERS keep casting SIZE every TIME")
    def _keeps_casting(self, names: list[str], size: int, gap_ns: int, is_patient: bool = False) -> None:
        for name in names:
            self.casters[name] = Caster(self.world.processes[name], gap_ns, size, is_patient)

    @FORMS("MEMBERS keep casting patiently SIZE every TIME")
    def _keeps_casting_patiently(self, names: list[str], size: int, gap_ns: int) -> None:
        self._keeps_casting(names, size, gap_ns, is_patient=True)

    @FORMS("MEMBERS stop casting")
    def _stops_casting(self, names: list[str]) -> None:
        for name in names:
            self.casters[name].is_over = True

    @FORMS("MEMBERS cast WORDS")
    def _casts(self, names: list[str], words: list[str]) -> None:
        every, each, options, is_awaited = 0, 0, CastOptions(), False
        texts: list[str] = []
        rest = iter(words)
        for word in rest:
            match word.partition("="):
                case "every", _, _:
                    every = parse_duration(next(rest))
                case "each", _, _:
                    each = int(texts.pop())
                case "safe", _, _:
                    options = options._replace(safe=True)
                case "awaited", _, _:
                    is_awaited = True
                case "service", "=", value:
                    options = options._replace(service=Service[value.upper()])
                case "to", _, _:
                    options = options._replace(to=tuple(self.world.processes[one].id for one in self.names([*rest])))
                case _:
                    texts += numbered(word)
        for number in range(each or len(texts)):
            for name in names:
                self.counts[name] += bool(each)
                self._cast(name, f"{name}{self.counts[name]}" if each else texts[number], options, is_awaited)
            self.world.run(every / SECOND)

    def _cast(self, name: str, text: str, options: CastOptions, is_awaited: bool) -> None:
        process = self.world.processes[name]
        demand(process.paused_until <= self.world.now, f"{name} is paused.")
        key = process.member.state.accepted
        if process.cast(text.encode(), options, is_awaited):
            self.titles[process.id, key] = text
            return
        why = "it has no view" if process.view is None else "it is gone" if not process.is_up else "it must wait"
        if why == "it must wait":
            try:
                process.member.cast(text.encode(), options)
            except UnisonoError as error:
                why = str(error)
        self.failed.setdefault((str(process.id), why), []).append(text)


def demand(holds: bool, message: str) -> None:
    if not holds:
        raise StoryError(message)


def numbered(word: str) -> list[str]:
    """`x1..x5` is five words."""
    match = RANGE.fullmatch(word)
    return [word] if match is None else [f"{match[1]}{n}" for n in range(int(match[2]), int(match[3]) + 1)]


def with_settings(settings: Settings, changes: Sequence[str]) -> Settings:
    """All at once, so that they need to fit each other only in the end."""
    parts: dict[str, dict[str, Any]] = {}
    for change in changes:
        name, _, text = change.partition("=")
        value: Any = text
        if "_ns" in name:
            value = parse_duration(text)
        elif text.isdecimal():
            value = int(text)
        elif name == "peers":
            value = tuple(text.split(","))
        elif name in ("policy", "slow"):
            value = {"policy": Policy, "slow": Slow}[name](text)
        owners = [part.name for part in fields(settings) if hasattr(getattr(settings, part.name), name)]
        demand(len(owners) == 1, f"there is no setting {name!r}.")
        parts.setdefault(owners[0], {})[name] = value
    return replace(settings, **{part: replace(getattr(settings, part), **given) for part, given in parts.items()})
