"""What the explorer is asked, and how it answers: small cases, the steps that lead through them, and files that keep them.

A **case** says how many members there are and what each casts, and nothing about when. A **schedule** says when: a list of
steps, each one turn of one member, and at its end perhaps a flush. Steps are written as sentences that a person can follow and
`parse_step` can read back; what stands behind a colon is for the reader alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from unisono.core.config import Config
from unisono.core.errors import Misuse
from unisono.core.ordering import AnyOrdering
from unisono.core.types import MemberId, Rank, Service, View, ViewId
from unisono.sim.files import load_json

NAMES = "abcdefgh"
"""The members' names by rank. Eight are far more than can be searched exhaustively."""
KIND = "explore"


class Message(NamedTuple):
    """One message to cast; None: the order's own service, addressed to everyone."""

    service: Service | None = None
    to: tuple[Rank, ...] | None = None


@dataclass(frozen=True)
class Case:
    """What each member casts. The explorer tries every possible timing of these casts."""

    messages: tuple[tuple[Message, ...], ...]
    """By member: its messages, in the order in which it casts them."""
    config: Config = field(default_factory=Config)
    """Of the timing settings only one matters: with `ack_delay_ns` None an idle member never acknowledges."""
    turn_inputs_max: int = 1
    """How many inputs one turn may take. One finds the races; more also try what is gathered in a turn, at a price."""

    def __post_init__(self) -> None:
        if not 1 <= len(self.messages) <= len(NAMES):
            raise Misuse(f"a case has 1 to {len(NAMES)} members, not {len(self.messages)}.")
        if self.turn_inputs_max < 1:
            raise Misuse(f"a turn takes at least one input, not {self.turn_inputs_max}.")
        for message in (message for own in self.messages for message in own):
            for rank in message.to or ():
                if not 0 <= rank < len(self.messages):
                    raise Misuse(f"a message is addressed to rank {rank}, but there are {len(self.messages)} members.")

    @classmethod
    def of(cls, *counts: int, config: Config | None = None, turn_inputs_max: int = 1) -> Case:
        """A case of ordinary messages, counted by member: in `Case.of(2, 1, 0)` the first casts two, the second one."""
        if any(count < 0 for count in counts):
            raise Misuse("a member cannot cast fewer than no messages.")
        return cls(tuple((Message(),) * count for count in counts), config or Config(), turn_inputs_max)

    @property
    def members(self) -> int:
        return len(self.messages)

    @property
    def view(self) -> View:
        members = tuple(MemberId(name) for name in NAMES[: self.members])
        return View(ViewId(1, members[0]), members)

    def __str__(self) -> str:
        return "+".join(str(len(own)) for own in self.messages)


def distributions(members: int, total: int, config: Config | None = None, turn_inputs_max: int = 1) -> Iterator[Case]:
    """Every way to divide `total` messages among the members. Ranks differ, so no way stands for another."""

    def split(parts: int, rest: int) -> Iterator[tuple[int, ...]]:
        if parts == 1:
            yield (rest,)
            return
        for first in range(rest, -1, -1):
            yield from ((first, *others) for others in split(parts - 1, rest - first))

    if members < 1 or total < 0:
        raise Misuse(f"{total} messages cannot be divided among {members} members.")
    for counts in split(members, total):
        yield Case.of(*counts, config=config, turn_inputs_max=turn_inputs_max)


# Steps.


class Stream(StrEnum):
    """Packets of one member to another travel on two streams. Each keeps its order; nothing is promised between them."""

    CAST = "cast"
    UNICAST = "unicast"


class Turn(NamedTuple):
    """One member takes inputs, in the order of a member's turn: casts, then packets, then the end of its patience."""

    member: Rank
    casts: int = 0
    receives: tuple[tuple[Rank, Stream], ...] = ()
    """The heads of these streams, one after the other."""
    quiet: bool = False


class FlushStep(NamedTuple):
    """Some members crash (or none, as when one joins), and all others close the view."""

    crashed: tuple[Rank, ...]


class End(NamedTuple):
    """Nothing more can happen: everything was cast, received and acknowledged."""


Step: TypeAlias = Turn | FlushStep | End
ENDED = "nothing more can happen"
QUIET = "is quiet for long enough"


def write_step(step: Step, members: int, shown: Sequence[str] = (), first: int = 0) -> str:
    """The step as a sentence. `shown` describes the received packets, `first` is the index of the next message to cast."""
    if isinstance(step, End):
        return ENDED
    if isinstance(step, FlushStep):
        survivors = ", ".join(NAMES[rank] for rank in range(members) if rank not in step.crashed)
        if not step.crashed:
            return f"{survivors} flush"
        crashed = ", ".join(NAMES[rank] for rank in step.crashed)
        return f"{crashed} {'crash' if len(step.crashed) > 1 else 'crashes'}; survivors {survivors} flush"
    me = NAMES[step.member]
    parts = [f"casts {me}:{first + i}" for i in range(step.casts)]
    for i, (sender, stream) in enumerate(step.receives):
        parts.append(f"receives from {NAMES[sender]} ({stream})" + (f": {shown[i]}" if i < len(shown) else ""))
    if step.quiet:
        parts.append(QUIET)
    return f"{me} " + ", then ".join(parts)


_FLUSH = re.compile(r"(?:([a-h](?:, [a-h])*) crash(?:es)?; survivors )?([a-h](?:, [a-h])*) flush")
_TURN = re.compile(r"([a-h]) (.*)")
_CAST = re.compile(r"casts ([a-h]):(\d+)")
_RECEIVE = re.compile(r"receives from ([a-h]) \((cast|unicast)\)(?::.*)?")


def parse_step(text: str, members: int) -> Step:
    """The step that a sentence stands for."""
    if text == ENDED:
        return End()
    if found := _FLUSH.fullmatch(text):
        crashed = tuple(NAMES.index(name) for name in (found[1] or "").split(", ") if name)
        survivors = tuple(NAMES.index(name) for name in found[2].split(", "))
        if sorted(crashed + survivors) != list(range(members)):
            raise Misuse(f"the step {text!r} does not say of each of the {members} members whether it survives.")
        return FlushStep(crashed)
    if found := _TURN.fullmatch(text):
        member = NAMES.index(found[1])
        casts, receives, quiet = 0, [], False
        for part in found[2].split(", then "):
            if _CAST.fullmatch(part):
                casts += 1
            elif received := _RECEIVE.fullmatch(part):
                receives.append((NAMES.index(received[1]), Stream(received[2])))
            elif part == QUIET:
                quiet = True
            else:
                break
        else:
            if max([member, *(sender for sender, _ in receives)]) < members:
                return Turn(member, casts, tuple(receives), quiet)
    raise Misuse(
        f"there is no step {text!r} in a case of {members} members: write 'a casts a:0', 'b receives from a (cast)', "
        f"'b {QUIET}', 'c crashes; survivors a, b flush' or '{ENDED}'."
    )


# Files.


@dataclass(frozen=True)
class Counterexample:
    """A way that breaks a promise, and the promise that it breaks."""

    order: str
    """The name of the order, or of its class if it has none."""
    case: Case
    schedule: tuple[str, ...]
    sentence: str

    def __str__(self) -> str:
        steps = "\n".join(f"{number:3}. {step}" for number, step in enumerate(self.schedule, 1))
        return f"{self.order}, {self.case} messages: {self.sentence}\n{steps}"

    def save(self, path: Path) -> None:
        """Write the file that `replay` takes."""
        path.write_text(json.dumps(self.to_json(), indent=2) + "\n", "utf-8")

    def to_json(self) -> dict[str, Any]:
        default = asdict(Config())
        return {
            "kind": KIND,
            "order": self.order,
            "members": self.case.members,
            "messages": [_messages_to_json(own) for own in self.case.messages],
            "config": {name: value for name, value in asdict(self.case.config).items() if value != default[name]},
            "turn_inputs_max": self.case.turn_inputs_max,
            "schedule": list(self.schedule),
            "sentence": self.sentence,
        }


def load_counterexample(path: Path) -> Counterexample:
    """Read such a file; anything wrong with it is one sentence."""
    data = load_json(path)
    if not isinstance(data, dict) or data.get("kind") != KIND:
        raise Misuse(f'{path} is not a file of the explorer: its "kind" must be "{KIND}".')
    try:
        messages = tuple(_messages_from_json(own) for own in data["messages"])
        if len(messages) != data["members"]:
            raise Misuse(f"{data['members']} members, but messages for {len(messages)}.")
        case = Case(messages, Config.from_mapping(data.get("config", {})), data.get("turn_inputs_max", 1))
        schedule = tuple(data["schedule"])
        for step in schedule:
            parse_step(step, case.members)
        return Counterexample(str(data["order"]), case, schedule, str(data.get("sentence", "")))
    except Misuse as error:
        raise Misuse(f"{path} is broken: {error}") from None
    except KeyError as error:
        raise Misuse(f"{path} is broken: {error} is missing.") from None
    except (AttributeError, TypeError, ValueError) as error:
        raise Misuse(f"{path} is broken: {error}.") from None


def name_of(order: type[AnyOrdering], orders: Mapping[str, type[AnyOrdering]]) -> str:
    """The order's name in the registry; an order that is not in it goes by the name of its class."""
    return next((name for name, known in orders.items() if known is order), order.__name__)


def _messages_to_json(own: Sequence[Message]) -> int | list[dict[str, Any]]:
    """Ordinary messages are only counted."""
    if all(message == Message() for message in own):
        return len(own)
    rows = []
    for message in own:
        row: dict[str, Any] = {}
        if message.service is not None:
            row["service"] = message.service.name.lower()
        if message.to is not None:
            row["to"] = [NAMES[rank] for rank in message.to]
        rows.append(row)
    return rows


def _messages_from_json(own: int | list[dict[str, Any]]) -> tuple[Message, ...]:
    if isinstance(own, int):
        return (Message(),) * own
    return tuple(Message(_service(row.get("service")), _addressees(row.get("to"))) for row in own)


def _service(name: str | None) -> Service | None:
    if name is None:
        return None
    for service in Service:
        if service.name.lower() == name:
            return service
    raise Misuse(f"there is no service {name!r}: choose among {', '.join(one.name.lower() for one in Service)}.")


def _addressees(names: list[str] | None) -> tuple[Rank, ...] | None:
    return None if names is None else tuple(_rank(name) for name in names)


def _rank(name: str) -> Rank:
    if len(name) != 1 or name not in NAMES:
        raise Misuse(f"there is no member {name!r}: choose among {', '.join(NAMES)}.")
    return NAMES.index(name)
