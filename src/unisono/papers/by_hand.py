"""What the programs of paper 001 share: options as they are printed there, and questions that are answered by typing."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from typer.core import TyperCommand

from unisono.cli.keyboard import Keyboard
from unisono.core.config import SECOND
from unisono.core.errors import Misuse
from unisono.runtime.faulty import AS_IT_IS, AckVerdict, Question
from unisono.sim.units import parse_duration

NUMBER_MAX = 2**32 - 1
"""What an acknowledgement has room for."""
DELAY_NS_MAX = 24 * 3_600 * SECOND


class AsPrinted(TyperCommand):
    """A command whose switches may be followed by 1 or 0, as the paper prints them: `-D 1`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        switches = {name for one in self.params if getattr(one, "is_flag", False) for name in one.opts}
        taken: list[str] = []
        for word in args:
            if word in ("0", "1") and taken and taken[-1] in switches:
                if word == "0":
                    taken.pop()
                continue
            taken.append(word)
        return super().parse_args(ctx, taken)


class Prompts:
    """Questions about acknowledgements. The next line that is typed answers the oldest one; receiving goes on meanwhile."""

    def __init__(self, keyboard: Keyboard, decide: Callable[[AckVerdict], None], numbers: bool, delays: bool) -> None:
        self._keyboard = keyboard
        self._decide = decide
        self._stages = [stage for stage, wanted in (("number", numbers), ("delay", delays)) if wanted]
        self._waiting: deque[Question] = deque()
        self._stage = 0
        self._verdict = AS_IT_IS
        self._is_over = False

    @property
    def is_waiting(self) -> bool:
        return bool(self._waiting)

    def ask(self, question: Question) -> None:
        self._waiting.append(question)
        if self._is_over:
            self.finish()
        elif len(self._waiting) == 1:
            self._prompt()

    def _prompt(self) -> None:
        seq, peer = self._waiting[0].seq, self._waiting[0].peer
        if self._stages[self._stage] == "number":
            self._keyboard.say(f"ACK {seq} to {peer}: another number? Enter: no; a number; or drop")
        else:
            self._keyboard.say(f"ACK {seq} to {peer}: delay it? Enter: no; seconds; or drop")

    def answer(self, line: str) -> None:
        """Take a line as the answer to the oldest question."""
        words = line.strip()
        verdict = self._read(words)
        if verdict is None:
            self._keyboard.say(f"{words!r} is no answer.")
            self._prompt()
            return
        self._verdict = verdict
        self._stage += 1
        if verdict.is_dropped or self._stage == len(self._stages):
            self._decide_oldest(self._verdict)
        if self._waiting:
            self._prompt()

    def _read(self, words: str) -> AckVerdict | None:
        if not words:
            return self._verdict
        if words == "drop":
            return AckVerdict(is_dropped=True)
        if self._stages[self._stage] == "number":
            is_number = words.isascii() and words.isdigit() and len(words) <= len(str(NUMBER_MAX))
            return self._verdict._replace(seq=int(words)) if is_number and int(words) <= NUMBER_MAX else None
        try:
            delay_ns = parse_duration(words + ("" if words[-1].isalpha() else "s"))
        except Misuse:
            return None
        return self._verdict._replace(delay_ns=delay_ns) if delay_ns <= DELAY_NS_MAX else None

    def _decide_oldest(self, verdict: AckVerdict) -> None:
        self._waiting.popleft()
        self._stage, self._verdict = 0, AS_IT_IS
        self._decide(verdict)

    def finish(self) -> None:
        """The input has ended: send all waiting acknowledgements unchanged."""
        self._is_over = True
        while self._waiting:
            self._decide_oldest(AS_IT_IS)
