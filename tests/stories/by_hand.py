"""The stage of engines by hand: nothing moves unless the story says so. Its world is `tests.harness.Group`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any, cast
from unittest.mock import patch

from tests.harness import Group, shown
from tests.mutants import agreed_mutants, causal_mutants, sequencer_mutants, stamped_mutants, tomp_mutants
from tests.stories.forms import Forms
from tests.stories.members import demand, numbered
from tests.stories.showing import in_short
from tests.stories.text import Line
from unisono.core.config import Config
from unisono.core.errors import UnisonoError
from unisono.core.options import CastOptions
from unisono.core.ordering import AnyOrdering
from unisono.core.types import Batch, MemberId, Service
from unisono.orders import causal, holdback, stamps
from unisono.orders.registry import ORDERS
from unisono.orders.tomp import Tomp

MUTANTS = (agreed_mutants, causal_mutants, sequencer_mutants, stamped_mutants, tomp_mutants)
MOVE = re.compile(r"(\S+) (->|~>)(>?) (.+)")
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

    def __init__(self, order: str, way: str) -> None:
        self.order, self.is_naive = order_named(order), order not in ORDERS
        self.changes: dict[str, Any] = {}
        self.seen: list[int] = []

    def begin(self) -> None:
        pass

    def do(self, line: Line) -> list[str]:
        with unguarded() if self.is_naive else ExitStack():
            if MOVE.match(line.text):
                for move in line.text.split(", "):
                    self._carry(move)
                return []
            said = FORMS.act(self, line.text, self.ranks)
        return [] if said is None else said

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

    def _carry(self, move: str) -> None:
        """``a -> b c``: the next cast of a arrives at each of them; ``~>``: its next packet to that member alone; ``->>``: all."""
        match = MOVE.fullmatch(move)
        demand(match is not None, "write: a -> b c, a ~> b, a ->> b, or a ~>> b.")
        assert match is not None
        (sender,), targets = self.ranks([match[1]]), self.ranks(match[4].split())
        for target in targets:
            is_cast = match[2] == "->"
            if match[3]:
                self.group.carry_all(sender, [target], is_cast)
            else:
                demand(bool(self.group.under_way(sender, target, is_cast)), f"nothing is under way: {move}.")
                self.group.carry(sender, target, is_cast)

    @FORMS("orders WORDS")
    def _orders(self, _: list[str]) -> None:
        """Each is told on its own."""

    @FORMS("settings WORDS")
    def _settings(self, changes: list[str]) -> None:
        for change in changes:
            name, _, value = change.partition("=")
            self.changes[name] = None if value == "none" else int(value)

    @FORMS("engines WORDS")
    def _engines(self, names: list[str]) -> None:
        self.group = Group(self.order, len(names), Config(**self.changes), noting=True)
        demand(names == list(self.group.letters), f"engines are called {' '.join(self.group.letters)}.")
        self.seen = [0] * len(names)

    @FORMS("settle")
    def _settle(self) -> None:
        self.group.settle()

    @FORMS("flush")
    def _flush(self) -> None:
        self.cut = self.group.flush()

    @FORMS("show cut")
    def _cut(self) -> list[str]:
        return [f"cut: {self.cut}"]

    @FORMS("show under way MEMBER -> MEMBER")
    def _under_way(self, src: int, dst: int) -> list[str]:
        sender, receiver = (self.group.letters[rank] for rank in (src, dst))
        return [
            f"{sender} {way} {receiver}: {_in_words(packet)}"
            for way, is_cast in (("->", True), ("~>", False))
            for packet in self.group.under_way(src, dst, is_cast)
        ]

    @FORMS("show report MEMBER")
    def _report(self, rank: int) -> list[str]:
        return [f"{self.group.letters[rank]} reports {self.group.orderings[rank].report()}"]

    @FORMS("show waits MEMBERS")
    def _waits(self, ranks: list[int]) -> list[str]:
        letters = self.group.letters
        return [
            f"{letters[rank]} holds {_title(wait.batch)} back, for "
            f"{' '.join(letters[one] for one in wait.waits_for)}: {wait.reason}"
            for rank in ranks
            for wait in self.group.orderings[rank].waits()
        ]

    @FORMS("show notes MEMBERS")
    def _notes(self, ranks: list[int]) -> list[str]:
        """What has been noted since the last time."""
        said = []
        for rank in ranks:
            for note in self.group.notes[rank]:
                words = [self.group.letters[rank], "notes", note.kind.name]
                words += [] if note.batch is None else [_title(note.batch)]
                words += [] if note.position is None else [f"at {note.position}"]
                words += [str(note.attributes)] if note.attributes else []
                said.append(" ".join(words))
            self.group.notes[rank].clear()
        return said

    @FORMS("show timer MEMBER")
    def _timer(self, rank: int) -> list[str]:
        at = self.group.engines[rank].quiet_at
        return [f"{self.group.letters[rank]} acknowledges {f'at {at}' if at else 'nothing'}"]

    @FORMS("judge")
    def _judge(self) -> list[str]:
        return [f"FAIL {kind}: {sentence}" for kind, sentence in self.group.violations().items()] or ["PASS"]

    @FORMS("MEMBERS cast WORDS")
    def _casts(self, ranks: list[int], words: list[str]) -> None:
        texts, service, to = _options(words)
        for rank in ranks:
            for text in texts:
                self.group.cast(rank, text, service, None if to is None else tuple(sorted(self.ranks(to))))

    @FORMS("MEMBER take WORDS")
    def _takes(self, rank: int, words: list[str]) -> list[str]:
        said = []
        texts, service, to = _options(words)
        options = CastOptions(None if to is None else tuple(map(MemberId, to)), service)
        for text in texts:
            try:
                why = None if self.group.take(rank, text.encode(), options) else "it must wait"
            except UnisonoError as error:
                why = str(error)
            said += [f"{self.group.letters[rank]} cannot cast {text}: {why}"] if why else []
        return said

    @FORMS("MEMBER turn at NUMBER", "MEMBER turn")
    def _turns(self, rank: int, now: float | None = None) -> None:
        self.group.turn(rank, None if now is None else int(now))

    @FORMS("MEMBERS acknowledge")
    def _acknowledges(self, ranks: list[int]) -> None:
        for rank in ranks:
            self.group.quiet(rank)

    @FORMS("MEMBERS crash")
    def _crashes(self, ranks: list[int]) -> None:
        for rank in ranks:
            self.group.crash(rank)


def _options(words: Iterable[str]) -> tuple[list[str], Service | None, list[str] | None]:
    """Messages, their service, and to whom they are."""
    texts: list[str] = []
    service = None
    rest = iter(words)
    for word in rest:
        if word == "to":
            return texts, service, list(rest)
        if word.startswith("service="):
            service = Service[word.partition("=")[2].upper()]
        else:
            texts += numbered(word)
    return texts, service, None


def _title(batch: Batch) -> str:
    return " ".join(payload.decode() for payload in batch.payloads) if batch.payloads else "a placeholder"


def _in_words(packet: Any) -> str:
    fields = (
        f"{name}={_title(value) if isinstance(value, Batch) else value}" for name, value in packet._asdict().items()
    )
    return f"{type(packet).__name__}({', '.join(fields)})"
