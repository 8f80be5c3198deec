"""The hashes of the messages in a member's state, as P19 wants them: the ledger of `services.transfer`.

A recorder feeds it every view and every delivery, placeholders too, which an application does not see. It is ahead of the
application while that holds messages back, so it keeps a log of what is not yet known to be in the state.

A row for the service `total` names the exact point of a snapshot. A row for another service names the beginning of the view, the
last point at which all members have the same set; the state holds more than that, and a member that takes it over has those
rows itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from unisono.core.types import MemberId, Service, ViewId
from unisono.trace.checks.p19_state_transfer import START, chained, summed
from unisono.trace.schema import SNAPSHOT_IN, SNAPSHOT_OUT, TOTAL

if TYPE_CHECKING:
    from unisono.trace.recorder import Recorder

Values: TypeAlias = tuple[tuple[str, int, str], ...]
"""Service, ordinal, hash."""
Offered: TypeAlias = dict[tuple[MemberId, int], Values]
"""The hashes of the snapshots that the members of one run have offered, by member and number."""

SERVICES = tuple(service.name.lower() for service in Service)


class _Delivered(NamedTuple):
    service: str
    ordinal: int
    origin: str
    first: int
    messages: int


class StateLine:
    """See the module's text. What is *included* is in the state for good; the log is what follows."""

    def __init__(self, recorder: Recorder, offered: Offered) -> None:
        self._recorder = recorder
        self._offered = offered
        self._now = 0
        self._view = ""  # where the included part ends: this view …
        self._rows = dict.fromkeys(SERVICES, 0)  # … number of rows seen, by service
        self._values = dict.fromkeys(SERVICES, START)
        self._entry = dict(self._values)  # at the beginning of that view
        self._before = (self._view, self._rows)  # where the view before it ended
        self._log: list[str | _Delivered] = []  # a string is a view

    # What the recorder feeds.

    def enter(self, now_ns: int, view: str) -> None:
        self._now = now_ns
        self._log.append(view)

    def deliver(self, now_ns: int, service: str, ordinal: int, origin: str, first: int, count: int) -> None:
        self._now = now_ns
        self._log.append(_Delivered(service, ordinal, origin, first, count))

    # What state transfer asks for.

    def include(self, until: ViewId | None = None) -> None:
        """A view that is not in the log was entered before: nothing behind it is included."""
        end = len(self._log)
        if until is not None:
            end = self._log.index(str(until)) + 1 if str(until) in self._log else 0
        for row in self._log[:end]:
            self._add(row)
        del self._log[:end]

    def enter_merge(self, view: ViewId) -> Values:
        self.include(view)
        return tuple((service, 0, self._values[service]) for service in SERVICES)

    def tell(self, number: int, values: Values) -> None:
        self._offered[self._recorder.member, number] = values

    def told(self, donor: MemberId, number: int) -> Values:
        return self._offered[donor, number]

    def give(self) -> Values:
        values = tuple(
            (service, self._rows[TOTAL], self._values[TOTAL])
            if service == TOTAL
            else (service, 0, self._entry[service])
            for service in SERVICES
        )
        self._write(SNAPSHOT_OUT, self._view, values)
        return values

    def give_base(self, view: ViewId, first: bool) -> None:
        """The base is the state at the end of the view before. It becomes the merged one's only if its part goes first."""
        assert self._view == str(view), "a merge holds everything back"
        before, rows = self._before
        if before:
            self._write(SNAPSHOT_OUT, before, tuple((s, rows[s], self._entry[s]) for s in SERVICES))
        if first:
            self.vouch(view)

    def vouch(self, view: ViewId) -> None:
        assert self._view == str(view), "a merge holds everything back"
        self._write(SNAPSHOT_OUT, self._view, tuple((service, 0, self._entry[service]) for service in SERVICES))

    def take(self, view: ViewId, values: Values) -> None:
        """Replace what is included; rows of the log beyond the point are applied on top."""
        name = str(view)
        if name in self._log:
            del self._log[: self._log.index(name) + 1]
        else:
            assert self._view == name, "a state is taken over at a point of a view that was installed"
        self._view = name
        self._rows = dict.fromkeys(SERVICES, 0)
        for service, ordinal, value in values:
            if service in self._values:
                self._values[service] = value
                self._rows[service] = ordinal
        self._entry = dict(self._values)
        self._before = ("", self._rows)
        inside = next((i for i, row in enumerate(self._log) if isinstance(row, str)), len(self._log))
        known = {service: ordinal for service, ordinal, _ in values}
        self._log[:inside] = [
            row
            for row in self._log[:inside]
            if not isinstance(row, _Delivered) or row.ordinal >= known.get(row.service, 0)
        ]
        self._write(SNAPSHOT_IN, name, values)

    # Inside.

    def _add(self, row: str | _Delivered) -> None:
        if isinstance(row, str):
            self._before = (self._view, self._rows)
            self._view, self._rows, self._entry = row, dict.fromkeys(SERVICES, 0), dict(self._values)
            return
        step = chained if row.service == TOTAL else summed
        value = self._values[row.service]
        for index in range(row.first, row.first + row.messages):
            value = step(value, f"{row.origin}:{index}")
        self._values[row.service] = value
        self._rows[row.service] = row.ordinal + 1

    def _write(self, kind: str, view: str, values: Values) -> None:
        for service, ordinal, value in values:
            self._recorder.snapshot(self._now, kind, view, service, ordinal, value)
