"""The stage of engines by hand: nothing moves unless the story says so. Its world is `tests.harness.Group`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any
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
from unisono.core.types import Batch, MemberId, Packet, Service
from unisono.orders import causal, holdback, stamps
from unisono.orders.registry import ORDERS
from unisono.orders.tomp import Tomp

MUTANTS = (agreed_mutants, causal_mutants, sequencer_mutants, stamped_mutants, tomp_mutants)
MOVE = re.compile(r"(\S+) (->|~>)(>?) (.+)")
FORMS = Forms()


def order_named(name: str) -> type[AnyOrdering]:
    """An order, or a naive variant of one, by the name of its class."""
    known = ORDERS | {kind: order for module in MUTANTS for kind, order in vars(module).items() if kind[0].isupper()}
    demand(name in known, f"there is no order {name!r}.")
    return known[name]


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
            said = FORMS.act(self, line.text, self.names)
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

    def names(self, words: Sequence[str]) -> list[str]:
        letters = self.group.letters
        for word in words:
            demand(word in letters or word == "*", f"there is no member {word!r}.")
        return list(letters) if "*" in words else list(words)

    def _ranks(self, names: Sequence[str]) -> list[int]:
        return [self.group.letters.index(name) for name in self.names(names)]

    def _carry(self, move: str) -> None:
        """``a -> b c``: the next cast of a arrives at each of them; ``~>``: its next packet to that member alone; ``->>``: all."""
        match = MOVE.fullmatch(move)
        demand(match is not None, "write: a -> b c, a ~> b, a ->> b, or a ~>> b.")
        assert match is not None
        (sender,), targets = self._ranks([match[1]]), self._ranks(match[4].split())
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
    def _under_way(self, sender: str, receiver: str) -> list[str]:
        (src,), (dst,) = self._ranks([sender]), self._ranks([receiver])
        casts, sends = (self.group.under_way(src, dst, is_cast) for is_cast in (True, False))
        return [
            f"{sender} {way} {receiver}: {_in_words(one)}"
            for way, some in (("->", casts), ("~>", sends))
            for one in some
        ]

    @FORMS("show report MEMBER")
    def _report(self, name: str) -> list[str]:
        return [f"{name} reports {self.group.orderings[self._ranks([name])[0]].report()}"]

    @FORMS("show waits MEMBERS")
    def _waits(self, names: list[str]) -> list[str]:
        said = []
        for name, rank in zip(names, self._ranks(names), strict=True):
            for wait in self.group.orderings[rank].waits():
                others = " ".join(self.group.letters[one] for one in wait.waits_for)
                said.append(f"{name} holds {_title(wait.batch)} back, for {others}: {wait.reason}")
        return said

    @FORMS("show notes MEMBERS")
    def _notes(self, names: list[str]) -> list[str]:
        said = []
        for name, rank in zip(names, self._ranks(names), strict=True):
            for note in self.group.notes[rank]:
                more = "" if note.position is None else f" at {note.position}"
                more += "" if not note.attributes else f" {dict(note.attributes)}"
                said.append(
                    f"{name} notes {note.kind.name}{'' if note.batch is None else ' ' + _title(note.batch)}{more}"
                )
            self.group.notes[rank].clear()
        return said

    @FORMS("judge")
    def _judge(self) -> list[str]:
        return [f"FAIL {kind}: {sentence}" for kind, sentence in self.group.violations().items()] or ["PASS"]

    @FORMS("MEMBERS cast WORDS")
    def _casts(self, names: list[str], words: list[str]) -> None:
        texts, options = self._options(words)
        to = None if options.to is None else tuple(sorted(self._ranks([one.address for one in options.to])))
        for rank in self._ranks(names):
            for text in texts:
                self.group.cast(rank, text, options.service, to)

    @FORMS("MEMBER take WORDS")
    def _takes(self, name: str, words: list[str]) -> list[str]:
        said = []
        texts, options = self._options(words)
        for text in texts:
            try:
                if not self.group.take(*self._ranks([name]), text.encode(), options):
                    said.append(f"{name} cannot cast {text}: it must wait")
            except UnisonoError as error:
                said.append(f"{name} cannot cast {text}: {error}")
        return said

    def _options(self, words: list[str]) -> tuple[list[str], CastOptions]:
        texts: list[str] = []
        options = CastOptions()
        rest = iter(words)
        for word in rest:
            if word == "to":
                options = options._replace(to=tuple(MemberId(one) for one in rest))
            elif word.startswith("service="):
                options = options._replace(service=Service[word.partition("=")[2].upper()])
            else:
                texts += numbered(word)
        return texts, options

    @FORMS("MEMBER turn at NUMBER", "MEMBER turn")
    def _turns(self, name: str, now: float = 0) -> None:
        self.group.turn(*self._ranks([name]), int(now))

    @FORMS("show timer MEMBERS")
    def _timer(self, names: list[str]) -> list[str]:
        times = [self.group.engines[rank].quiet_at for rank in self._ranks(names)]
        return [f"{name} acknowledges {f'at {at}' if at else 'nothing'}" for name, at in zip(names, times, strict=True)]

    @FORMS("MEMBERS acknowledge")
    def _acknowledges(self, names: list[str]) -> None:
        for rank in self._ranks(names):
            self.group.quiet(rank)

    @FORMS("MEMBERS crash")
    def _crashes(self, names: list[str]) -> None:
        for rank in self._ranks(names):
            self.group.crash(rank)


def _title(batch: Batch) -> str:
    return " ".join(payload.decode() for payload in batch.payloads) if batch.payloads else "a placeholder"


def _in_words(packet: Packet) -> str:
    fields = (
        f"{name}={_title(value) if isinstance(value, Batch) else value}" for name, value in packet._asdict().items()
    )  # type: ignore[attr-defined]
    return f"{type(packet).__name__}({', '.join(fields)})"
