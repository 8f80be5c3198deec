"""The options of the format `unisono`, as Spark hands them over: text, in any case."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from unisono.pipeline.session import PipelineError

KNOWN = {
    "journal", "journals", "gapWait", "group", "peers", "listen", "advertise", "order", "key", "pace", "timeout",
    "start", "from", "to", "gaps", "views", "reader", "maxRowsPerBatch", "maxBytesPerBatch", "partitionBytes", "fsync", "ids",
}  # fmt: skip
_KNOWN = {name.lower() for name in KNOWN} | {"path"}


class Options:
    """See the module's text. What is wrong with an option is said before a query starts."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = {name.lower(): value for name, value in options.items()}
        unknown = sorted(name for name in self._options if name not in _KNOWN and not name.startswith("checkpoint"))
        if unknown:
            raise PipelineError(
                f"the format unisono has no option {unknown[0]!r}: choose from {', '.join(sorted(KNOWN))}."
            )

    def text(self, name: str) -> str | None:
        return self._options.get(name.lower()) or None

    def require(self, name: str, what: str) -> str:
        value = self.text(name)
        if value is None:
            raise PipelineError(f'the format unisono needs .option("{name}", …): {what}.')
        return value

    def choose(self, name: str, choices: Sequence[str]) -> str:
        """One of some words; the first is the default."""
        value = self.text(name) or choices[0]
        if value not in choices:
            raise PipelineError(f"the option {name} is {value!r}: choose {' or '.join(choices)}.")
        return value

    def flag(self, name: str) -> bool:
        return self.choose(name, ("false", "true")) == "true"

    def number(self, name: str, default: float | None = None) -> float | None:
        value = self.text(name)
        if value is None:
            return default
        try:
            found = float(value)
        except ValueError:
            found = -1.0
        if not 0 < found < float("inf"):
            raise PipelineError(f"the option {name} is {value!r}: give a number above 0.")
        return found

    def count(self, name: str) -> int | None:
        """A whole number of at least 1, or None."""
        number = self.number(name)
        return None if number is None else max(1, int(number))

    def position(self, name: str) -> int | None:
        """A row's number in the journal, from 0, or None."""
        value = self.text(name)
        if value is not None and not value.isdecimal():
            raise PipelineError(f"the option {name} is {value!r}: give a position, a whole number from 0 on.")
        return None if value is None else int(value)

    def refuse(self, names: Sequence[str], why: str) -> None:
        """Say that options have no meaning here."""
        for name in names:
            if self.text(name) is not None:
                raise PipelineError(f"the option {name} {why}.")

    @property
    def stretch_bytes(self) -> int:
        """How much of the journal one task reads."""
        return int(self.number("partitionBytes") or 4 << 20)

    def joining(self) -> dict[str, Any]:
        """What `unisono.join` is told."""
        peers = [peer.strip() for peer in self.require("peers", "addresses of members, with commas between").split(",")]
        is_local = all(peer.startswith(("127.", "localhost:", "[::1]")) for peer in peers)
        wishes: dict[str, Any] = {
            "peers": peers,
            "listen": self.text("listen") or ("127.0.0.1:0" if is_local else "0.0.0.0:0"),
            "timeout": self.number("timeout", 30.0),
            "pace": self.number("pace", 1.0),
        }
        for name in ("order", "key", "advertise"):
            if (value := self.text(name)) is not None:
                wishes[name] = value
        return wishes
