"""Tells a story: plays its commands with whole members in virtual time, and notes what they show.

    orders fifo toto · collect star ring       tell it once under each; outcomes that differ stand apart
    settings retry_ns=30ms policy=primary      of all members, by the names in `core`, on top of `group_world.QUICK`
    network delay=constant:1ms loss=5%         of all links; also duplicate, reorder, replay, and `seed=3`
    state 400kB                                each member's application has a state of at least this size
    members a b c                              start these; once they have one view (and a state), the story begins
    d starts at a b [with NAME=VALUE …]        and looks for the group there
    a casts m x1..x5 [every 5ms] [to b c] [safe] [service=fifo] [awaited]
    all cast 20 each every 10ms                in turns; the messages are a1, b1, a2, …
    b c answer q                               casts `q1b` from inside the delivery of q1
    a crashes · b leaves · c pauses 2s · b restarts at a c · a drifts 1.1 · b switches toto · b sends 8000 bytes/s
    partition a b | c d · heal                 `heal` ends every fault and every rule below
    lose first 2 answer c -> a                 also delay, repeat (by TIME) and refuse: the rules of `packets`
    wait 20ms · rest                           `rest` waits until nothing changes any more
    until CONDITION [within 5s]                view b c | d … · b delivers m · a b blocked · b suspects a · a left ·
                                               b in a b c (its view) · sent KIND FROM -> TO (in this
                                               block) · d pulls (a third of a state)
    show explain b · show counts a resent · show packets cut [to c] ·
    show donor d · show held a (snapshots)
    judge                                      heals; the group must come to rest, and the checkers have the last word

Times are virtual and delays constant unless a story says otherwise, so an outcome depends on no draw of the network.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from typing import Any

from tests.stories.packets import FATES, KINDS, Packets, read_rule
from tests.stories.showing import Onlooker, by_variant, in_short, merged
from tests.stories.text import Block, Line, Story, StoryError
from tests.transfer_world import AppProcess, TransferWorld
from unisono.core.config import SECOND
from unisono.core.errors import UnisonoError
from unisono.core.member.settings import Settings, Slow
from unisono.core.membership.settings import Policy
from unisono.core.options import CastOptions
from unisono.core.types import Batch, MemberId, Service
from unisono.sim.group_world import QUICK, GroupWorld, SimulatedProcess
from unisono.sim.units import parse_duration, parse_size

LIMIT_S = 20
"""What is waited for comes within this, unless the story says how soon."""
VERBS = ["starts", "casts", "crashes", "leaves", "pauses", "restarts", "drifts", "switches", "sends", "answers"]
WORDS = {"crash": 0, "leave": 0, "crashes": 0, "leaves": 0, "pauses": 1, "drifts": 1, "switches": 1, "sends": 2, "answers": 1} | {
    "heal": 0, "rest": 0, "judge": 0, "wait": 1, "state": 1,
}  # fmt: skip
"""How many words must follow, where that is fixed."""
RANGE = re.compile(r"(.*?)(\d+)\.\.\1(\d+)")


def tell(story: Story) -> str:
    """The text of the story with what happens now."""
    first = [line.words for line in story.blocks[0].commands]
    orders = next((words[1:] for words in first if words[0] == "orders"), ["sequencer"])
    ways = next((words[1:] for words in first if words[0] == "collect"), [""])
    told = [((order, way), Telling(story, order, way).outcomes()) for way in ways for order in orders]
    return story.with_outcomes(
        [by_variant([(variant, outcomes[i]) for variant, outcomes in told]) for i in range(len(story.blocks))]
    )


class Telling:
    """One telling of a story, under one order."""

    def __init__(self, story: Story, order: str, way: str) -> None:
        self.story, self.order = story, order
        self.settings = replace(QUICK, membership=replace(QUICK.membership, collect=way or None))
        self.seed, self.delay = "0", "constant:1ms"
        self.state: int | None = None
        self._world: GroupWorld | None = None
        self.onlookers: dict[MemberId, Onlooker] = {}
        self.titles: dict[tuple[MemberId, int], str] = {}
        self.counts: Counter[str] = Counter()
        self.said: list[str] = []
        self.failed: dict[tuple[str, str], list[str]] = {}

    def outcomes(self) -> list[list[str]]:
        found = [self._play(block) for block in self.story.blocks]
        self.packets.heal()
        return found

    def _play(self, block: Block) -> list[str]:
        self.said, self.failed = [], {}
        if self._world is not None:
            self.packets.sent.clear()
        for line in block.commands:
            with _place(line):
                self._command(line, line.words)
        shown = [(str(life.id), self._onlooker(life).lines(self.titles)) for life in self.world.lives]
        failed = [f"{who} cannot cast {in_short(texts)}: {why}" for (who, why), texts in self.failed.items()]
        return [*merged(shown), *failed, *self.said]

    def _onlooker(self, life: SimulatedProcess) -> Onlooker:
        return self.onlookers.setdefault(life.id, Onlooker(life))

    def _command(self, line: Line, words: list[str]) -> None:
        if words[0] in FATES:
            self.packets.rules.append(read_rule(line, self._names))
            return
        at = (
            0 if hasattr(self, f"_do_{words[0]}") else next((i for i, word in enumerate(words) if i and _verb(word)), 0)
        )
        name, rest = _verb(words[at]) if at else f"do_{words[0]}", words[at + 1 :]
        action: Callable[..., None] | None = getattr(self, f"_{name}", None)
        if action is None:
            raise StoryError("there is no such command.")
        self._demand(WORDS.get(words[at], len(rest)) == len(rest), f"{words[at]} takes other words.")
        if at:
            action(words[:at] if name == "starts" else self._names(words[:at]), rest)
        else:
            action(rest)

    # The world.

    @property
    def world(self) -> GroupWorld:
        if self._world is None:
            some: dict[str, Any] = {"settings": self.settings, "delay": self.delay}
            if self.state is not None:
                self._world = TransferWorld(self.order, self.seed, ballast=self.state, **some)
            else:
                owed = ["P20"] if self.settings.membership.policy is Policy.PRIMARY else []
                self._world = GroupWorld(self.order, self.seed, owed=owed, **some)
            self.packets = Packets(self._world)
        return self._world

    def _names(self, words: Sequence[str]) -> list[str]:
        """Members that are there; `all` are those that are up, and `*` is every address."""
        names = self.world.processes
        if list(words) in (["all"], ["*"]):
            return [name for name, one in names.items() if one.is_up or words[0] == "*"]
        for word in words:
            if word not in names:
                raise StoryError(f"there is no member {word!r}.")
        return list(words)

    def _process(self, words: Sequence[str]) -> SimulatedProcess:
        (name,) = self._names(words)
        return self.world.processes[name]

    def _do_orders(self, words: list[str]) -> None:
        self._demand(self._world is None, "this stands before the first member.")

    _do_collect = _do_orders

    def _do_settings(self, words: list[str]) -> None:
        self._do_orders(words)
        self.settings = with_settings(self.settings, words)

    def _do_state(self, words: list[str]) -> None:
        self._do_orders(words)
        self.state = parse_size(words[0])

    def _do_network(self, words: list[str]) -> None:
        for word in words:
            name, _, value = word.partition("=")
            if name in ("seed", "delay"):
                self._do_orders(words)
                setattr(self, name, value)
            else:
                self._demand(name in ("loss", "duplicate", "reorder", "replay"), f"the network has no {name}.")
                setattr(self.world.network, name, float(value.removesuffix("%")) / 100)

    def _do_members(self, words: list[str]) -> None:
        world = self.world
        world.gather(words)
        if isinstance(world, TransferWorld):
            self._demand(world.run(LIMIT_S, lambda: world.all_live(words)), "not all have a state.")
        for life in self.world.lives:
            self._onlooker(life).lines({})
        self.packets.sent.clear()

    def _starts(self, names: list[str], words: list[str]) -> None:
        self._demand(bool(words) and words[0] == "at", "say where it looks for the group: `d starts at a b`.")
        seeds, _, changes = " ".join(words[1:]).partition(" with ")
        settings = with_settings(self.settings, changes.split())
        self.world.start(*names, seeds=seeds.split(), settings=settings)

    # What members do.

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
                    options = options._replace(to=tuple(self._process([name]).id for name in rest))
                case _:
                    texts += _numbered(word)
        for number in range(each or len(texts)):
            for name in names:
                if each:
                    self.counts[name] += 1
                self._cast(name, f"{name}{self.counts[name]}" if each else texts[number], options, is_awaited)
            self.world.run(every / SECOND)

    def _cast(self, name: str, text: str, options: CastOptions, is_awaited: bool) -> None:
        process = self.world.processes[name]
        self._demand(process.paused_until <= self.world.now, f"{name} is paused.")
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

    def _answers(self, names: list[str], words: list[str]) -> None:
        question = re.compile(rf"{re.escape(words[0])}\d+".encode())

        def answer(process: SimulatedProcess, event: Any) -> None:
            for payload in (event.payloads or ()) if isinstance(event, Batch) else ():
                if question.fullmatch(payload):
                    process.member.cast(bytes(payload) + process.id.address.encode())

        for name in names:
            self.world.processes[name].on_event = answer

    def _crashes(self, names: list[str], words: list[str]) -> None:
        for name in names:
            self._demand(self.world.processes[name].is_up, f"{name} is not up.")
            self.world.crash(name)

    def _leaves(self, names: list[str], words: list[str]) -> None:
        for name in names:
            self.world.leave(name)

    def _restarts(self, names: list[str], words: list[str]) -> None:
        self._demand(words[:1] == ["at"], "say where it looks for the group: `b restarts at a c`.")
        for name in names:
            self.world.restart(name, seeds=words[1:])

    def _pauses(self, names: list[str], words: list[str]) -> None:
        for name in names:
            self.world.pause(name, parse_duration(words[0]))

    def _drifts(self, names: list[str], words: list[str]) -> None:
        for name in names:
            self.world.processes[name].drift(float(words[0]))

    def _switches(self, names: list[str], words: list[str]) -> None:
        process = self._process(names)
        process.member.switch(words[0])
        process.turn()

    def _sends(self, names: list[str], words: list[str]) -> None:
        self._demand(words[1] == "bytes/s", "say how much: `b sends 8000 bytes/s`.")
        for name in names:
            self.world.network.bytes_per_s[name] = int(words[0])

    # What happens to them.

    def _do_partition(self, words: list[str]) -> None:
        self.world.partition(*(part.split() for part in " ".join(words).split("|")))

    def _do_heal(self, words: list[str]) -> None:
        self.packets.heal()
        self.world.network.heal()
        self.packets.listen()

    def _do_wait(self, words: list[str]) -> None:
        self.world.run(parse_duration(words[0]) / SECOND)

    def _do_rest(self, words: list[str]) -> None:
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

    def _do_until(self, words: list[str]) -> None:
        limit: float = LIMIT_S
        if words[-2] == "within":
            words, limit = words[:-2], parse_duration(words[-1]) / SECOND
        holds = self._condition(words)
        self._demand(holds() or self.world.run(limit, holds), f"not within {limit} s.\n{self.world.story()}")

    def _condition(self, words: list[str]) -> Callable[[], bool]:
        world = self.world
        match words:
            case ["view", *some]:
                parts = [self._names(part.split()) for part in " ".join(some).split("|")]
                return lambda: all(world.is_one(part) for part in parts)
            case [name, "delivers", text]:
                process, payload = self._process([name]), text.encode()
                return lambda: any(one == payload for _, one in process.delivered)
            case [*names, "blocked"]:
                return lambda: all(world.processes[name].member.state.is_blocked for name in self._names(names))
            case [name, "suspects", other]:
                process, suspect = self._process([name]), self._process([other]).id
                return lambda: suspect in process.member.state.suspects
            case [*names, "left"]:
                return lambda: all(world.processes[name].ended for name in self._names(names))
            case ["sent", kinds, src, "->", *to]:
                self._demand(set(kinds.split(",")) <= {*KINDS}, f"there is no kind of packet {kinds!r}.")
                wanted = [(kind, src, dst) for kind in kinds.split(",") for dst in self._names(to)]
                return lambda: any(self.packets.sent[one] for one in wanted)
            case [name, "in", *members]:
                process = self._process([name])
                return lambda: process.view is not None and [one.address for one in process.view.members] == members
            case [name, "pulls"]:
                return lambda: _pulls(self._process([name]))
        raise StoryError("there is no such condition.")

    # What is asked.

    def _do_show(self, words: list[str]) -> None:
        match words:
            case ["explain", *names]:
                for name in self._names(names):
                    sentences = self.world.processes[name].member.explain()
                    self.said += [f"{name} explains: {one}" for one in sentences] or [f"{name} explains nothing"]
            case ["counts", name, *counters]:
                streams = self._process([name]).member.counters.streams
                self.said.append(f"{name} counts " + ", ".join(f"{one} {streams[one]}" for one in counters))
            case ["packets", kinds, *to]:
                counts = dict.fromkeys(kinds.split(","), 0)
                self._demand(counts.keys() <= {*KINDS}, f"there is no kind of packet {kinds!r}.")
                for (kind, _, dst), count in self.packets.sent.items():
                    if kind in counts and dst in self._names(to[1:] or ["*"]):
                        counts[kind] += count
                self.said.append("packets: " + ", ".join(f"{kind} {count}" for kind, count in counts.items()))
            case ["donor", name]:
                progress = _stateful(self._process([name])).transfer.progress
                self.said.append(f"the donor of {name} is {progress and progress.donor}")
            case ["held", name]:
                self.said.append(
                    f"{name} holds {_stateful(self._process([name])).transfer.bytes_held // 1000} kB for joiners"
                )
            case _:
                raise StoryError("show what? explain, counts, packets, donor or held.")

    def _do_judge(self, words: list[str]) -> None:
        self.packets.heal()
        up = list(self.world.up)
        verdict = self.world.finish()
        self.said += ["PASS"] if verdict.result == "PASS" else str(verdict).splitlines()
        if isinstance(self.world, TransferWorld):
            self.said += self.world.faults_found([_stateful(one) for one in up if not one.member.state.is_gone])

    def _demand(self, holds: bool, message: str) -> None:
        if not holds:
            raise StoryError(message)


@contextmanager
def _place(line: Line) -> Iterator[None]:
    """Whatever goes wrong, it is told with the line."""
    try:
        yield
    except StoryError as error:
        text = str(error)
        raise (error if text.startswith(f"{line.path.name}:") else line.error(text)) from None
    except (UnisonoError, ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise line.error(f"{type(error).__name__}: {error}") from error


def _verb(word: str) -> str | None:
    """What one member does, from a word of one member or of several: `crashes`, `crash`."""
    return next((verb for verb in VERBS if verb in (word, f"{word}s", f"{word}es")), None)


def _numbered(word: str) -> list[str]:
    """`x1..x5` is five words."""
    match = RANGE.fullmatch(word)
    return [word] if match is None else [f"{match[1]}{n}" for n in range(int(match[2]), int(match[3]) + 1)]


def _stateful(process: SimulatedProcess) -> AppProcess:
    if not isinstance(process, AppProcess):
        raise StoryError("the members of this story have no state.")
    return process


def _pulls(process: SimulatedProcess) -> bool:
    progress = _stateful(process).transfer.progress
    return (
        progress is not None and bool(progress.total_bytes) and progress.here_bytes > (progress.total_bytes or 0) // 3
    )


def with_settings(settings: Settings, changes: Sequence[str]) -> Settings:
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
        owners = [part for part in fields(settings) if hasattr(getattr(settings, part.name), name)]
        if len(owners) != 1:
            raise StoryError(f"there is no setting {name!r}.")
        part = owners[0].name
        settings = replace(settings, **{part: replace(getattr(settings, part), **{name: value})})
    return settings
