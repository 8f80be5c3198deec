"""`unisono check-net`, `directory` and `bench`: what looks at a network, and names on it."""

from __future__ import annotations

import json
import os
import signal
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.net.programs import DEADLINE_S, Done, Program, addresses
from tests.runtime.ports import free_addresses
from unisono.cli.bench_group import end_all


def test_all_pairs_of_one_machine_hear_each_other(folder: Path) -> None:
    Done("keygen", "k", folder=folder)
    peers = addresses(3)
    answer = Done(
        "check-net", "--peers", ",".join(peers), "--local", "--for", "500ms", "--key", "k", "--json", folder=folder
    )
    assert answer.code == 0
    pairs = json.loads(answer.out)
    assert {(one["from"], one["to"]) for one in pairs} == {(a, b) for a in peers for b in peers if a != b}
    assert all(one["verdict"] == "ok" and one["loss"] <= 0.05 and one["rtt_ns"] > 0 for one in pairs)
    assert min(one["largest_bytes"] for one in pairs) >= 1_400


def test_two_checks_find_each_other_and_a_third_is_missed(folder: Path) -> None:
    peers = addresses(3)
    shared = ("check-net", "--peers", ",".join(peers), "--wait", "3s", "--json")
    with Program(*shared, "--listen", peers[0], folder=folder) as first:
        first.expect("listening at")
        second = Done(*shared, "--listen", peers[1], folder=folder)
        assert first.wait() == 1
    for text in (first.text.splitlines()[-1], second.out):
        verdicts = {(one["from"], one["to"]): one["verdict"] for one in json.loads(text)}
        assert verdicts[peers[0], peers[1]] == verdicts[peers[1], peers[0]] == "ok"
        assert "may not be up" in verdicts[peers[2], peers[0]]
        assert "not heard" in verdicts[peers[0], peers[2]]
    assert second.code == 1
    taken = Done("check-net", "--peers", f"{peers[0]},{peers[1]}", "--listen", "127.0.0.1:1", folder=folder)
    assert "not among --peers" in taken.err


@pytest.mark.parametrize("other", [("--key", "theirs"), ()], ids=["another key", "no key"])
def test_a_check_with_another_key_is_named_as_such(folder: Path, other: tuple[str, ...]) -> None:
    """Found by trying: it said that the other one may not be up."""
    peers = free_addresses(2)
    for name in ("ours", "theirs"):
        assert Done("keygen", name, folder=folder).code == 0
    shared = ("check-net", "--peers", ",".join(peers), "--wait", "2s")
    with Program(*shared, "--listen", peers[1], *other, folder=folder) as second:
        first = Done(*shared, "--listen", peers[0], "--key", "ours", folder=folder)
        assert first.code == 1
        assert (
            f"{peers[1]} answers, but its probes fail authentication; does it use a different key, or none?"
            in first.err
        )
        second.expect(f"{peers[0]} answers, but its probes fail authentication")
        assert second.wait() == 1


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_seven_checks_learn_of_all_pairs(folder: Path, host: str) -> None:
    """More than the rows that a probe has room for, and more large probes than a socket holds by default."""
    peers = free_addresses(7, host)
    shared = ("check-net", "--peers", ",".join(peers), "--for", "2s", "--json")
    with ExitStack() as stack:
        others = [stack.enter_context(Program(*shared, "--listen", peer, folder=folder)) for peer in peers[1:]]
        answer = Done(*shared, "--listen", peers[0], folder=folder)
        assert [other.wait() for other in others] == [0] * 6
    assert answer.code == 0
    pairs = json.loads(answer.out)
    assert len(pairs) == 42
    assert {one["largest_bytes"] for one in pairs} == {60_000}


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_managers_agree_on_names(folder: Path, host: str) -> None:
    managers = free_addresses(2, host)
    (folder / "permanent.txt").write_text("board 17\n", "utf-8")
    shared = ("directory", "run", "--managers", ",".join(managers))
    with (
        Program(*shared, "--permanent", "permanent.txt", folder=folder) as first,
        Program(*shared, "--listen", managers[1], folder=folder) as second,
    ):
        first.expect("manager .* runs")
        second.expect("manager .* runs")
        a, b = ("--manager", managers[0]), ("--manager", managers[1])
        unclear = Done("directory", "list", folder=folder)
        assert unclear.code == 2
        assert managers[0] in unclear.err
        claimed = json.loads(Done("directory", "claim", "news", *a, "--json", folder=folder).out)
        assert claimed["address"].startswith("239.255.")
        refused = Done("directory", "claim", "news", *b, folder=folder)
        assert refused.code == 1
        assert managers[0] in refused.out
        assert (
            json.loads(Done("directory", "lookup", "news", *b, "--json", folder=folder).out)["number"]
            == claimed["number"]
        )
        assert [row["name"] for row in json.loads(Done("directory", "list", *b, "--json", folder=folder).out)] == [
            "news"
        ]
        assert "239.255.0.17" in Done("directory", "permanent", *a, folder=folder).out
        assert Done("directory", "lookup", "nothing", *b, folder=folder).code == 1
        assert Done("directory", "release", "news", *b, folder=folder).code == 2
        assert first.finish(signal.SIGTERM) == 0
        assert json.loads(Done("directory", "list", *b, "--json", folder=folder).out) == []  # it gave back what it had
        assert second.finish(signal.SIGINT) == 0


def test_a_table_of_permanent_groups_is_checked(folder: Path) -> None:
    for text, line in (("board\n", 1), ("a 1\n\nb one\n", 3), ("a 1\na 2\n", 2), ("a 1\nb 1\n", 2), ("a 65536\n", 1)):
        (folder / "permanent.txt").write_text(text, "utf-8")
        answer = Done("directory", "run", "--permanent", "permanent.txt", folder=folder)
        assert answer.code == 2
        assert f"line {line}:" in answer.err


def test_bench_measures(folder: Path) -> None:
    with Program("bench", "--members", "2", "--for", "500ms", "--rate", "200", "--json", folder=folder) as bench:
        bench.end_input()
        assert bench.wait() == 0
        result = json.loads(bench.text)
    assert result["messages_per_s"] > 10
    assert 0 < result["p50_ns"] <= result["p99_ns"]


def test_whoever_interrupts_a_bench_ends_all_of_it_quietly(folder: Path) -> None:
    """Found by reading: Ctrl-C, which all processes of a terminal hear, was a page of complaints for each member."""
    with Program("bench", "--members", "2", "--for", "60s", folder=folder, own_group=True) as bench:
        children = Path(f"/proc/{bench.process.pid}/task/{bench.process.pid}/children")
        end = time.monotonic() + DEADLINE_S
        while len(members := children.read_text().split()) < 3:  # the watcher of multiprocessing, and two members
            assert time.monotonic() < end
        os.killpg(bench.process.pid, signal.SIGINT)
        assert bench.wait() == 130
    assert "Traceback" not in bench.text
    assert not any(Path(f"/proc/{one}").exists() for one in members[1:])


class Worker:
    def __init__(self, said: list[str]) -> None:
        self._said = said

    def terminate(self) -> None:
        self._said.append("end")

    def join(self, timeout: float) -> None:
        self._said.append("wait")


def test_the_members_of_a_bench_end_together() -> None:
    """Found by reading: each was waited for before the next was told, five seconds each."""
    said: list[str] = []
    end_all([Worker(said) for _ in range(3)])  # type: ignore[misc]
    assert said == ["end"] * 3 + ["wait"] * 3
