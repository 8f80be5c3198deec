"""The stage of engines by hand: nothing moves unless the story says so. Its world is `tests.harness.Group`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from typing import Any, cast
from unittest.mock import patch

from tests.harness import Group, shown
from tests.mutants import agreed_mutants, causal_mutants, sequencer_mutants, stamped_mutants, tomp_mutants
from tests.stories.forms import Casting, Forms, demand, read_setting, said
from tests.stories.showing import in_short
from tests.stories.text import Line
from unisono.core.config import Config
from unisono.core.errors import UnisonoError
from unisono.core.ordering import AnyOrdering
from unisono.core.types import Batch, MemberId
from unisono.orders import causal, holdback, stamps
from unisono.orders.registry import ORDERS
from unisono.orders.tomp import Tomp

MUTANTS = (agreed_mutants, causal_mutants, sequencer_mutants, stamped_mutants, tomp_mutants)
FORMS = Forms()


def order_named(name: str) -> type[AnyOrdering]:
    """An order, or a naive variant of one, by the name of its class."""
    known: dict[str, Any] = dict(ORDERS) | {
        kind: order for module in MUTANTS for kind, order in vars(module).items() if kind[0].isupper()
    }
    demand(name in known, f"there is no order {name!r}.")
    return cast(type[AnyOrdering], known[name])


def unguarded() -> AbstractContextManager[Any]:
    """A naive variant is judged by what it shows the application, so nothing that it sends is refused before."""
    stack = ExitStack()
    for where, names in (
        (holdback.VectorHoldback, ("demand",)),
        (stamps.Stamped, ("_demand_number", "_demand_proposals", "_demand_finals", "_demand_cut")),
        (Tomp, ("_demand_rows", "_demand_acknowledgements")),
        (stamps, ("_demand_sound", "_demand_prefix")),
        (holdback, ("_demand_sound",)),
        (causal, ("demand_closed",)),
    ):
        for name in names:
            stack.enter_context(patch.object(where, name, lambda *_: None))
    return stack


class ByHand:
    """A group of engines under one order."""

    group: Group
    cut: Any

    def __init__(self, order: str, way: str) -> None:
        self.order, self.is_naive = order_named(order), order not in ORDERS
        self.config = Config()
        self.seen: list[int] = []

    def begin(self) -> None:
        pass

    def do(self, line: Line) -> list[str]:
        with unguarded() if self.is_naive else ExitStack():
            return [*said(one for part in line.text.split(", ") for one in FORMS.act(self, part, self.ranks))]

    def shown(self) -> list[tuple[str, list[str]]]:
        found = []
        for rank, name in enumerate(self.group.letters):
            batches, self.seen[rank] = self.group.delivered[rank][self.seen[rank] :], len(self.group.delivered[rank])
            texts = [one.decode() for batch in batches if shown(batch, rank) for one in batch.payloads or ()]
            found.append((name, [f"delivers {in_short(texts)}"] if texts else []))
        return found

    def close(self) -> None:
        pass

    def ranks(self, words: Sequence[str]) -> list[int]:
        """Members by their ranks; `*` is all of them."""
        letters = self.group.letters
        for word in words:
            demand(word in letters or word == "*", f"there is no member {word!r}.")
        return list(range(len(letters))) if "*" in words else [letters.index(word) for word in words]

    @FORMS("orders WORDS")
    def _orders(self, _: list[str]) -> None:
        """Each is told on its own."""

    @FORMS("settings WORDS")
    def _settings(self, changes: list[str]) -> None:
        for name, _, text in (change.partition("=") for change in changes):
            self.config = replace(self.config, **{name: read_setting(getattr(self.config, name), text)})

    @FORMS("engines WORDS")
    def _engines(self, names: list[str]) -> None:
        self.group = Group(self.order, len(names), self.config, noting=True)
        demand(names == list(self.group.letters), f"engines are called {' '.join(self.group.letters)}.")
        self.seen = [0] * len(names)

    @FORMS("settle")
    def _settle(self) -> None:
        self.group.settle()

    @FORMS("flush")
    def _flush(self) -> None:
        self.cut = self.group.flush()

    @FORMS("show cut")
    def _cut(self) -> str:
        return f"cut: {self.cut}"

    @FORMS("show under way MEMBER -> MEMBER")
    def _under_way(self, src: int, dst: int) -> list[str]:
        return [
            f"{self.group.letters[src]} {way} {self.group.letters[dst]}: {_in_words(packet)}"
            for way, is_cast in (("->", True), ("~>", False))
            for packet in self.group.under_way(src, dst, is_cast)
        ]

    @FORMS("judge")
    def _judge(self) -> list[str]:
        return [f"FAIL {kind}: {sentence}" for kind, sentence in self.group.violations().items()] or ["PASS"]

    @FORMS("MEMBER WAY MEMBERS")
    def _carry(self, sender: int, way: str, receivers: list[int]) -> None:
        """``a -> b c``: the next cast of a arrives at each of them; ``~>``: its next packet to that member alone; ``->>``: all."""
        is_cast = way.startswith("-")
        for receiver in receivers:
            if way.endswith(">>"):
                self.group.carry_all(sender, [receiver], is_cast)
            else:
                src, dst = self.group.letters[sender], self.group.letters[receiver]
                demand(
                    bool(self.group.under_way(sender, receiver, is_cast)), f"nothing is under way: {src} {way} {dst}."
                )
                self.group.carry(sender, receiver, is_cast)

    def cast(self, rank: int, words: list[str]) -> None:
        casting = Casting.read(words)
        to = None if casting.to is None else tuple(sorted(self.ranks(casting.to)))
        for text in casting.texts:
            self.group.cast(rank, text, casting.service, to)

    def take(self, rank: int, words: list[str]) -> list[str]:
        refused = []
        casting = Casting.read(words)
        for text in casting.texts:
            try:
                options = casting.options(lambda names: map(MemberId, names))
                why = None if self.group.take(rank, text.encode(), options) else "it must wait"
            except UnisonoError as error:
                why = str(error)
            refused += [f"{self.group.letters[rank]} cannot cast {text}: {why}"] if why else []
        return refused

    def waits(self, rank: int) -> list[str]:
        letters = self.group.letters
        return [
            f"{letters[rank]} holds {_title(wait.batch)} back, for "
            f"{' '.join(letters[one] for one in wait.waits_for)}: {wait.reason}"
            for wait in self.group.orderings[rank].waits()
        ]

    def notes(self, rank: int) -> list[str]:
        """What has been noted since the last time."""
        notes, self.group.notes[rank] = self.group.notes[rank], []
        return [
            f"{self.group.letters[rank]} notes {note.kind.name}"
            + ("" if note.batch is None else f" {_title(note.batch)}")
            + ("" if note.position is None else f" at {note.position}")
            + (f" {note.attributes}" if note.attributes else "")
            for note in notes
        ]

    def timer(self, rank: int) -> str:
        at = self.group.engines[rank].quiet_at
        return f"{self.group.letters[rank]} acknowledges {f'at {at}' if at else 'nothing'}"

    def report(self, rank: int) -> str:
        return f"{self.group.letters[rank]} reports {self.group.orderings[rank].report()}"


FORMS.add_each(
    {
        "MEMBERS cast WORDS": ByHand.cast,
        "MEMBERS take WORDS": ByHand.take,
        "MEMBERS turn at NUMBER": lambda stage, rank, now: stage.group.turn(rank, int(now)),
        "MEMBERS turn": lambda stage, rank: stage.group.turn(rank),
        "MEMBERS acknowledge": lambda stage, rank: stage.group.quiet(rank),
        "MEMBERS crash": lambda stage, rank: stage.group.crash(rank),
        "show waits MEMBERS": ByHand.waits,
        "show notes MEMBERS": ByHand.notes,
        "show timer MEMBERS": ByHand.timer,
        "show report MEMBERS": ByHand.report,
    }
)


def _title(batch: Batch) -> str:
    return " ".join(payload.decode() for payload in batch.payloads) if batch.payloads else "a placeholder"


def _in_words(packet: Any) -> str:
    fields = (
        f"{name}={_title(value) if isinstance(value, Batch) else value}" for name, value in packet._asdict().items()
    )
    return f"{type(packet).__name__}({', '.join(fields)})"
