"""The log: what is written, as JSON, and that a flood of bad datagrams does not become a flood of lines."""

from __future__ import annotations

import asyncio
import errno
import io
import json
import logging
import socket
from collections.abc import Iterator
from pathlib import Path
from time import sleep
from typing import Any

import pytest

from unisono import View, join
from unisono.core.member import Resumed, Stalled
from unisono.core.membership.context import Evicted, Left, Refused
from unisono.core.types import MemberId
from unisono.runtime import logs, options
from unisono.runtime.logs import LOGGER, JsonFormatter, Reporter
from unisono.runtime.named_peers import NamedPeers
from unisono.trace.sinks import FolderSink


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """The log as JSON lines."""
    text = io.StringIO()
    level = LOGGER.level
    handler = logs.configure(logging.INFO, as_json=True, stream=text)
    yield text
    LOGGER.removeHandler(handler)
    LOGGER.setLevel(level)


def rows(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_views_and_the_end_are_written_with_their_fields(stream: io.StringIO) -> None:
    async def main() -> None:
        async with join("lab", listen="127.0.0.1:0") as a, join("lab", listen="127.0.0.1:0", peers=[a.id.address]) as b:
            await a.running.until(lambda: len(a.status()["members"]) == 2, 10, "two members")
            await b.leave()
            await a.running.until(lambda: len(a.status()["members"]) == 1, 10, "one member")

    asyncio.run(main())
    views = [row for row in rows(stream) if "view" in row]
    assert {len(row["members"]) for row in views} >= {1, 2}
    assert all(row["group"] == "lab" and row["level"] == "info" and row["logger"] == "unisono" for row in views)
    gone = [row for row in views if row["gone"]]
    assert set(gone[-1]["gone"].values()) == {"left"}
    assert "this member has left" in rows(stream)[-1]["message"]


def test_a_flood_of_bad_datagrams_is_one_line_with_a_count(stream: io.StringIO) -> None:
    async def main() -> None:
        async with join("lab", listen="127.0.0.1:0") as group:
            host, _, port = group.id.address.rpartition(":")
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
                for _ in range(300):
                    stranger.sendto(b"nonsense", (host, int(port)))
            member = group.running.member
            async with asyncio.timeout(10):
                while member.counters.dropped.get("frame: version", 0) < 300:
                    await asyncio.sleep(0)

    asyncio.run(main())
    dropped = [row for row in rows(stream) if "drops" in row]
    assert 1 <= len(dropped) <= 10  # at most one a second
    assert sum(row["drops"]["frame: version"] for row in dropped) == 300
    assert all(row["level"] == "warning" for row in dropped)


def test_rows_of_a_trace_that_are_not_written_are_told(
    stream: io.StringIO, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by trying: a full disk under a trace was silent until somebody tried to judge it."""

    def full(sink: FolderSink, events: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    async def main() -> None:
        async with join("lab", listen="127.0.0.1:0", trace=tmp_path) as group:
            monkeypatch.setattr(FolderSink, "_append", full)
            await (await group.cast(b"lost")).delivered(10)

    asyncio.run(main())
    dropped = [row["drops"] for row in rows(stream) if "drops" in row]
    assert sum(drops["trace: rows not written"] for drops in dropped) >= 2  # its cast, its delivery and the end


class Quiet:
    """A group that has nothing to say by itself."""

    def __init__(self, drops: dict[str, int]) -> None:
        self.name, self.id = "lab", MemberId("a", 1)
        self.drops = drops
        self.member = self
        self.turned_away: dict[str, str] = {}
        self.peers = NamedPeers("lab", self.id, None, lambda: 0, send=lambda address, hint: None)

    def count_drops(self) -> dict[str, int]:
        return dict(self.drops)


def test_drops_are_told_once(stream: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    group = Quiet({"frame: group": 3})
    reporter = Reporter(group)  # type: ignore[arg-type]
    reporter.tell_drops()
    assert rows(stream) == []  # that was before
    group.drops = {"frame: group": 5, "seal: seal": 1}
    reporter.tell_drops()
    reporter.tell_drops()
    (row,) = rows(stream)
    assert row["drops"] == {"frame: group": 2, "seal: seal": 1}
    assert "3 dropped: frame: group 2, seal: seal 1" in row["message"]
    group.drops = {"frame: group": 6, "seal: seal": 1}
    reporter.tell_drops()
    assert rows(stream)[-1]["message"].endswith("1 dropped: frame: group 1")


def test_what_every_view_change_drops_is_no_warning(stream: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    group = Quiet({"other view": 3})
    reporter = Reporter(group)  # type: ignore[arg-type]
    group.drops = {"other view": 5, "early datagrams": 7}
    reporter.tell_drops()
    assert rows(stream) == []
    LOGGER.setLevel(logging.DEBUG)
    group.drops = {"other view": 6, "early datagrams": 7, "frame: group": 2}
    reporter.tell_drops()
    ordinary, strange = rows(stream)
    assert (ordinary["level"], ordinary["drops"]) == ("debug", {"other view": 1})
    assert (strange["level"], strange["drops"]) == ("warning", {"frame: group": 2})


def test_datagrams_of_other_views_that_keep_coming_are_a_warning(
    stream: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No view change is under way, and still a member sends to this one in another view: a link that works one way only."""
    group = Quiet({})
    reporter = Reporter(group)  # type: ignore[arg-type]

    def look(drops: int) -> None:
        group.drops = {"other view": drops}
        reporter.tell_drops()

    for number in range(1, 2 * logs.LASTING_LOOKS - 1):
        look(number)
        if number == logs.LASTING_LOOKS - 1:
            look(number)  # a second without any, so it begins anew
    assert rows(stream) == []
    look(2 * logs.LASTING_LOOKS - 1)
    (row,) = rows(stream)
    assert row["level"] == "warning"
    assert "check that datagrams pass between them in both directions" in row["message"]


def test_what_goes_wrong_is_a_warning(stream: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    other = MemberId("b", 2)
    reporter = Reporter(Quiet({}))  # type: ignore[arg-type]
    reporter.tell(
        [
            Refused(other, "another order"),
            Evicted(other, 2_000_000_000, 1),
            Stalled(("It waits for c.",)),
            Resumed(3_000_000_000),
            Left(),
        ],
        0,
    )
    assert [row["level"] for row in rows(stream)] == ["warning", "warning", "warning", "info", "info"]
    texts = " ".join(row["message"] for row in rows(stream))
    for part in ("another order", "could not cast for 2.000 s", "It waits for c.", "after 3.000 s", "has left"):
        assert part in texts


def test_what_a_peer_says_does_nothing_to_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Found by reading: the reason of a refusal was written as it came, and set the title of the reader's window."""
    text = io.StringIO()
    handler = logs.configure(logging.INFO, stream=text)
    group = Quiet({})
    group.name = "lab\x1b[31m"
    try:
        Reporter(group).tell(  # type: ignore[arg-type]
            [Refused(MemberId("b", 2), "\x1b]0;owned\x07" + "x" * 100_000), Stalled(("waits for \x9b2J",))], 0
        )
    finally:
        LOGGER.removeHandler(handler)
    refused, stalled = text.getvalue().splitlines()
    assert all(line.isprintable() for line in (refused, stalled))
    assert r"refuses this member: \x1b]0;owned\x07xxx" in refused
    assert len(refused) < 1_000
    assert r"lab\x1b[31m" in stalled


def test_what_waits_is_told_without_asking_for_a_watchdog_and_only_to_the_log(
    stream: io.StringIO, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(options, "WATCHDOG_S", 0.3)
    peers = ["127.0.0.1:1", "127.0.0.1:2"]  # silent for ever, so no view is primary

    async def main(**wishes: Any) -> list[type]:
        settings: dict[str, Any] = {"policy": "primary", "pace": 0.1, "peers": peers}
        async with join(
            "lab", listen="127.0.0.1:0", journal=tmp_path / str(len(wishes)), **settings, **wishes
        ) as group:
            async with asyncio.timeout(30):
                while not any("still waiting" in row["message"] for row in rows(stream)):
                    await asyncio.sleep(0.01)
            return [type(event) for event in group.ready()]

    assert asyncio.run(main()) == [View]
    waiting = [row for row in rows(stream) if "still waiting" in row["message"]]
    assert waiting[0]["level"] == "warning"
    assert "is not the primary one" in waiting[0]["message"]
    stream.seek(0)
    stream.truncate()
    assert asyncio.run(main(watchdog=0.3)) == [View, Stalled]


def test_a_watchdog_for_the_log_alone_looks_only_where_the_log_is_read() -> None:
    async def main() -> int | None:
        async with join("lab", listen="127.0.0.1:0") as group:
            return group.running.member.settings.flow.stall_ns

    handlers, logging.getLogger().handlers = logging.getLogger().handlers, []
    silent = logging.NullHandler()
    own, LOGGER.handlers = LOGGER.handlers, [silent]
    try:
        assert asyncio.run(main()) is None
        for handler in (logging.StreamHandler(io.StringIO()), None):
            if handler is None:
                LOGGER.removeHandler(silent)  # Python's last resort
            else:
                LOGGER.addHandler(handler)
            try:
                assert asyncio.run(main()) == options.WATCHDOG_S * 1e9
            finally:
                if handler is not None:
                    LOGGER.removeHandler(handler)
    finally:
        LOGGER.handlers = own
        logging.getLogger().handlers = handlers


def test_a_member_whose_event_loop_was_blocked_says_so_itself(stream: io.StringIO) -> None:
    async def main() -> None:
        wishes: dict[str, Any] = {"pace": 0.1}
        async with (
            join("lab", listen="127.0.0.1:0", **wishes) as a,
            join("lab", listen="127.0.0.1:0", peers=[a.id.address], min_members=2, **wishes),
            asyncio.timeout(30),
        ):
            await asyncio.sleep(0)
            sleep(0.5)  # what no coroutine should do
            while not any("was blocked" in row["message"] for row in rows(stream)):
                await asyncio.sleep(0.01)

    asyncio.run(main())
    told = next(row for row in rows(stream) if "was blocked" in row["message"])
    assert told["level"] == "warning"
    assert told["blocked_s"] >= 0.5
    assert "longer than the others wait (0.15 s)" in told["message"]


def test_a_member_alone_is_not_warned_of_a_blocked_event_loop(stream: io.StringIO) -> None:
    async def main() -> None:
        async with join("lab", listen="127.0.0.1:0", pace=0.1) as group:
            sleep(0.5)
            turns = group.running.driver.turns
            group.running.driver.wake()
            while group.running.driver.turns == turns:
                await asyncio.sleep(0)

    asyncio.run(main())
    assert not any("was blocked" in row["message"] for row in rows(stream))


def test_nobody_pays_for_a_log_that_nobody_reads() -> None:
    async def main() -> None:
        async with join("lab", listen="127.0.0.1:0") as group:
            unread = logging.getLogger("unisono.unread")
            unread.propagate = False
            unread.addHandler(logging.NullHandler())
            assert logs.attach(group.running, asyncio.get_running_loop(), unread) is None
            assert not group.running.observers.turn

    handlers = logging.getLogger().handlers[:]
    logging.getLogger().handlers[:] = [logging.NullHandler()]  # instead of pytest's own
    try:
        asyncio.run(main())
    finally:
        logging.getLogger().handlers[:] = handlers


def test_a_json_line_is_one_line_whatever_is_in_it() -> None:
    record = logging.LogRecord("unisono", logging.ERROR, "", 0, "a\n%s", ("b\u2028é",), None)
    record.fields = {"odd": {1, 2}}
    line = JsonFormatter().format(record)
    assert "\n" not in line
    assert json.loads(line)["message"] == "a\nb\u2028é"


# Planted faults.


class TellsAgain(Reporter):
    """Forgets what it has told."""

    def tell_drops(self) -> None:
        before = dict(self._dropped)
        super().tell_drops()
        self._dropped = before


def test_a_reporter_that_tells_drops_again_is_found(stream: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "Reporter", TellsAgain)
    with pytest.raises(ValueError, match="too many values"):
        test_drops_are_told_once(stream, monkeypatch)
