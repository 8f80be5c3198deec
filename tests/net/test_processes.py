"""Groups of real processes on loopback: stopped, killed, restarted, slow, with a full disk; every trace is judged."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests.net.soak import soak
from tests.net.stage import staged
from unisono.core.wire.frame import VERSION, group_tag
from unisono.runtime.checksum import Checksum
from unisono.trace.checks.judge import Result


def test_a12_a_silent_peer_with_a_thousand_messages_queued_is_reported_and_the_others_go_on(folder: Path) -> None:
    with staged(folder, 3) as stage:
        stage.gather("abc")
        stage.stop("c")
        stage["a"].tell("cast", count=1_000)
        stage.until_one_view("ab")
        assert "silence" in stage["a"].view["left"][stage["c"].address]
        stage.until(lambda: stage["b"].delivered == 1_000, "all thousand at b")
        assert stage.ask("a")["streams"]["resent"] < 100  # it backs off: nothing like a thousand
        stage.go_on("c")
        stage.until_one_view("abc")
        stage.finish("abc")


def test_c14_a_stopped_member_is_excluded_learns_it_and_comes_back_with_what_it_had_queued(folder: Path) -> None:
    with staged(folder, 3, order="causal-total") as stage:
        stage.gather("abc", rate=100)
        stage.until_delivered("abc", 50)
        stage.stop("c")
        stage["c"].tell("cast", count=300)  # it reads this as soon as it goes on, before it knows
        stage.until_one_view("ab")
        stage.until_delivered("ab", 50)
        views = len(stage["c"].said("view"))
        stage.go_on("c")
        stage.until_one_view("abc")
        assert len(stage["c"].said("view")) > views
        assert len({line["id"] for line in stage["c"].said("joined")}) == 1  # without a restart it is the same member
        stage.until(lambda: stage["c"].progress["cast"] >= 300, "what was queued is cast")
        stage.finish("abc")


def test_c18_eight_that_start_at_once_are_one_group(folder: Path) -> None:
    with staged(folder, 8) as stage:
        stage.start(*"abcdefgh")
        stage.until_one_view("abcdefgh")
        stage.tell("abcdefgh", "cast", count=50)
        stage.until_delivered("abcdefgh", 1)
        stage.finish("abcdefgh")


def test_c19_a_member_that_restarts_before_it_is_excluded_is_a_new_member(folder: Path) -> None:
    with staged(folder, 3, silence_s=300, order="abcast") as stage:
        stage.gather("abc", rate=50)
        stage.until_delivered("abc", 30)
        old = stage["c"]
        stage.kill("c")
        stage.start("c", rate=50)
        stage.until_one_view("abc")
        assert stage["c"].id != old.id
        left = [line["left"].get(old.address, "") for line in stage["a"].said("view")]
        assert any("restarted" in why for why in left), left
        stage.until_delivered("abc", 30)
        stage.finish("abc")


@pytest.mark.parametrize("order", ["tomp", "rmp"])
def test_two_crashes_in_a_row_under_load(order: str, folder: Path) -> None:
    with staged(folder, 5, order=order) as stage:
        stage.gather("abcde", rate=80)
        stage.until_delivered("abcde", 100)
        first, second = (name_of(stage.addresses, address) for address in stage["a"].members[:2])
        rest = "".join(name for name in "abcde" if name not in (first, second))
        stage.kill(first)
        seen = {name: stage[name].view["id"] for name in rest}
        stage.kill(second)  # which would have led the change that the first one's death calls for
        stage.until_one_view(rest)
        assert all(stage[name].view["id"] != view for name, view in seen.items())
        stage.until_delivered(rest, 50)
        stage.finish(rest)


def test_c22_the_donor_is_killed_while_a_joiner_takes_over_a_large_state_under_load(folder: Path) -> None:
    with staged(folder, 4, hooks=True, state_bytes=24 << 20) as stage:
        stage.gather("abc", rate=50)
        stage.until_delivered("abc", 50)
        given = {name: len(stage[name].said("snapshot")) for name in "abc"}
        stage.start("d")

        def donors() -> list[str]:
            return [name for name in "abc" if len(stage[name].said("snapshot")) > given[name]]

        stage.until(lambda: bool(donors()), "a donor takes a snapshot")
        donor = donors()[0]
        stage.kill(donor)
        rest = "".join(name for name in "abcd" if name != donor)
        stage.until_one_view(rest)
        stage["d"].tell("rate", rate=50)
        stage.until_delivered(rest, 50)
        stage.finish(rest)


def test_e1_a_slow_receiver_blocks_the_casters_and_nothing_is_lost(folder: Path) -> None:
    with staged(folder, 3, slow="block", payload_bytes=32 << 10) as stage:
        stage.gather("abc")
        stage["c"].tell("speed", delay_s=0.5)
        stage["a"].tell("rate", rate=1_000)

        def waits() -> bool:
            status = stage.ask("a")  # for a moment a may wait for c on a busy machine, long before its queue is full
            return stage["a"].progress["cast"] > 500 and any(stage["c"].address in why for why in status["explain"])

        stage.until(waits, "a waits for c")
        assert stage.ask("c")["queued_bytes"] < 24 << 20
        assert stage.agree("abc")
        stage["c"].tell("speed", delay_s=0)
        stage.finish("abc")
        assert stage["c"].delivered == stage["a"].progress["cast"]


def test_e1_a_slow_receiver_makes_casts_be_refused_at_once(folder: Path) -> None:
    with staged(folder, 3, slow="shed", payload_bytes=32 << 10) as stage:
        stage.gather("abc")
        stage["c"].tell("speed", delay_s=0.5)
        stage["a"].tell("rate", rate=1_000)
        stage.until(lambda: stage["a"].progress["shed"] > 20, "casts are refused")
        assert stage.ask("c")["queued_bytes"] < 24 << 20
        stage["c"].tell("speed", delay_s=0)
        stage.finish("abc")
        assert stage["c"].delivered == stage["a"].progress["cast"]  # what was accepted, and nothing else


def test_e1_a_slow_receiver_is_evicted_and_comes_back_when_it_has_drained(folder: Path) -> None:
    with staged(folder, 3, slow="evict", payload_bytes=32 << 10) as stage:
        stage.gather("abc")
        stage["c"].tell("speed", delay_s=0.5)
        stage["a"].tell("rate", rate=1_000)
        stage.until_one_view("ab")
        assert "evicted" in stage["a"].view["left"][stage["c"].address]
        stage.until_delivered("ab", 100)
        stage["a"].tell("rate", rate=20)
        stage["c"].tell("speed", delay_s=0)
        stage.until(lambda: bool(stage["c"].said("evicted")), "c is told")
        stage.until_one_view("abc")
        stage.finish("abc")


def test_e7_with_a_full_trace_disk_the_group_keeps_its_promises_and_the_verdict_is_unknown(folder: Path) -> None:
    with staged(folder, 3) as stage:
        stage.start("a", "b", rate=100, min_members=3)
        stage.start("c", rate=100, min_members=3, file_bytes_max=64 << 10)
        stage.until_one_view("abc")
        stage.until(lambda: stage.ask("c")["gaps"] > 0, "the disk of c is full")
        stage.until_delivered("abc", 200)
        stage.settle("abc")
        stage.leave("abc")
        verdict = stage.judge()
    assert verdict.result is Result.UNKNOWN, str(verdict)
    assert not verdict.counts, str(verdict)
    assert {verdict.members[life] for life in verdict.unknown} == {Result.UNKNOWN}
    assert all(life.startswith(stage["c"].address) for life in verdict.unknown), verdict.unknown


def test_e8_with_a_view_change_a_second_memory_files_and_tasks_stay_flat(folder: Path) -> None:
    table = soak(folder, changes=40, warm_up=20)
    assert table.leaks() == [], str(table)


def test_f4_a_flood_of_strange_datagrams_is_dropped_by_reason_and_fills_no_log(folder: Path) -> None:
    with staged(folder, 2) as stage, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        stage.gather("ab", rate=50)
        host, port = stage["a"].address.split(":")
        tag = group_tag("stage").to_bytes(4, "little")
        other = group_tag("another").to_bytes(4, "little")
        checksum = Checksum("stage")
        strange = [
            b"",
            b"\xff" * 65_507,
            b"\x09\x01" + tag + b"x" * 60,
            bytes((VERSION, 1)) + other,
            checksum.close(bytes((VERSION, 0x4D)) + tag),
            checksum.close(bytes((VERSION, 1)) + tag),
            bytes((VERSION, 1)) + tag + b"damaged",
        ]
        wanted = {
            "frame: version": 300,
            "frame: group": 100,
            "frame: kind": 100,
            "short datagram": 100,
            "checksum: damaged": 100,
        }
        before = stage.ask("a")["dropped"]

        def more() -> dict[str, int]:
            dropped = stage.ask("a")["dropped"]
            return {reason: dropped.get(reason, 0) - before.get(reason, 0) for reason in wanted}

        for count in range(1, 101):
            for datagram in strange:
                stranger.sendto(datagram, (host, int(port)))
            if count % 10 == 0:  # no faster than they are taken
                stage.until(lambda count=count: sum(more().values()) >= 7 * count, "the strange ones are dropped")  # type: ignore[misc]
        assert more() == wanted
        assert len(stage["a"].complaints) < 20, stage["a"].complaints
        stage.until_delivered("ab", 50)
        stage.finish("ab")


def name_of(addresses: list[str], address: str) -> str:
    return "abcdefgh"[addresses.index(address)]
