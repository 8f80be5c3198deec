"""The tests with real processes and strangers can fail: each guard of the product is taken away once, and its test must see it."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.net import test_hostile as hostile
from tests.net import test_hostile_control as control
from tests.net.soak import Table
from tests.net.stage import Process, Stage, staged
from unisono.core.errors import UnisonoError
from unisono.core.member.member import Member
from unisono.core.membership.membership import Membership
from unisono.core.streams import inbound as stream_inbound
from unisono.core.streams.intake import Intake
from unisono.core.wire.envelope import ReplayWindow, take_plain
from unisono.core.wire.frame import HEAD_BYTES
from unisono.runtime.seal import SEALED, Seal
from unisono.runtime.udp import UdpSocket
from unisono.trace.checks.judge import Result
from unisono.trace.reader import read
from unisono.trace.schema import DELIVER
from unisono.trace.sinks import FolderSink

KEY = hostile.KEY


def open_for_all(
    self: Seal, datagram: memoryview | bytes, true: Callable[..., bytes | None] = Seal.open
) -> bytes | None:
    """What is not sealed passes."""
    return true(self, datagram) if datagram[:1] == bytes((SEALED,)) else bytes(datagram)


def receive_without_group(self: Member, datagrams: list[bytes], now: int, true: Any = Member.receive) -> None:
    """Datagrams of other groups pass."""
    head = self._frames.stream_head
    true(self, [head + bytes(one)[HEAD_BYTES:] if one[1:2] == b"\1" else one for one in datagrams], now)


def check_no_rows(self: Intake, sender: int, table: bytes | memoryview) -> Any:
    """Acknowledgements are believed, if not used."""
    return []


def take_any(body: bytes, count: int, marks: int, count_max: int, true: Any = take_plain) -> Any:
    """A datagram may hold as many packets as fit."""
    return true(body, count, marks, 65_535)


def break_it(mutant: str, patch: pytest.MonkeyPatch) -> None:
    match mutant:
        case "replays pass":
            patch.setattr(ReplayWindow, "fresh", lambda self, counter: True)
        case "no seal is needed":
            patch.setattr(Seal, "open", open_for_all)
        case "other groups pass":
            patch.setattr(Member, "receive", receive_without_group)
        case "acknowledgements are not checked":
            patch.setattr(Intake, "_check_rows", check_no_rows)
        case "any number of packets":
            patch.setattr(stream_inbound, "take_plain", take_any)
        case "any number of a view":
            patch.setattr(Membership, "_leaps", lambda self, message: False)


def replays() -> None:
    hostile.test_f7_replays_of_a_packet_of_an_old_view_and_of_another_group_are_counted_apart(KEY)


def strangers() -> None:
    hostile.test_f4_f16_empty_largest_of_another_version_or_group_are_dropped_each_for_its_reason(None)


def forged() -> None:
    control.test_f9_an_acknowledgement_of_what_was_never_sent_is_refused(None)


def tiny() -> None:
    hostile.test_f3_a_datagram_of_very_many_tiny_packets_is_refused_with_little_work(None)


@pytest.mark.parametrize(
    ("mutant", "test"),
    [
        ("replays pass", replays),
        ("no seal is needed", hostile.test_f5_what_carries_no_seal_is_refused_on_every_path),
        ("no seal is needed", hostile.test_f1_with_a_key_every_flipped_bit_is_dropped_and_counted_and_changes_nothing),
        ("other groups pass", strangers),
        ("acknowledgements are not checked", forged),
        ("any number of packets", tiny),
        ("any number of a view", control.test_f12_a_forged_number_of_a_view_does_not_use_up_the_numbers),
    ],
)
def test_a_missing_guard_is_seen(mutant: str, test: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    break_it(mutant, monkeypatch)
    with pytest.raises((AssertionError, UnisonoError)):  # a member that was stopped by it says so when it leaves
        test()


def test_a_process_that_ends_by_itself_is_seen(folder: Path) -> None:
    with staged(folder, 1, order="no such order") as stage:
        stage.start("a")
        with pytest.raises(AssertionError, match=r"ended by itself(.|\n)*no such order"):
            stage.until(lambda: False, "nothing")


def test_a_lost_delivery_in_a_trace_is_seen(folder: Path) -> None:
    with staged(folder, 3) as stage:
        stage.gather("abc")
        stage["a"].tell("cast", count=3)
        stage.until(lambda: stage["b"].delivered == 3, "three messages")
        stage.finish("abc")
        lose_a_delivery(stage, stage["b"])
        assert stage.judge().result is Result.FAIL


def lose_a_delivery(stage: Stage, process: Process) -> None:
    """Rewrite a member's trace without its last delivery, as if nothing had been there."""
    lives = read(stage.traces).lives
    for path in stage.traces.iterdir():
        path.unlink()
    for life, rows in lives.items():
        if life.member == process.address:
            last = max(index for index, row in enumerate(rows) if row.kind == DELIVER)
            del rows[last]
            for row in rows[last:]:
                row.local_index -= 1
        sink = FolderSink(stage.traces, *life)
        sink.write(rows)
        sink.close()


def test_what_grows_in_a_soak_is_seen() -> None:
    def row(rss_kib: int, files: int, tasks: int) -> dict[str, dict[str, Any]]:
        return {name: {"rss_kib": rss_kib, "files": files, "tasks": tasks} for name in "abcd"}

    assert Table([row(30_000, 8, 6), row(31_000, 8, 5)]).leaks() == []
    assert len(Table([row(30_000, 8, 6), row(60_000, 8, 6)]).leaks()) == 4
    assert len(Table([row(30_000, 8, 6), row(30_000, 9, 6)]).leaks()) == 4
    assert len(Table([row(30_000, 8, 6), row(30_000, 8, 7)]).leaks()) == 4


def test_a_socket_gives_its_buffers_back_when_it_is_closed() -> None:
    udp = UdpSocket(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    assert sum(map(len, udp._buffers)) > 1 << 20
    udp.close()
    assert sum(map(len, udp._buffers)) == 0
    assert udp.receive() == []
