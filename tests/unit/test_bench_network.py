"""The network benchmark judges rightly: percentiles, order, loss, disturbance, verdicts; and it runs, on real sockets."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterable
from io import StringIO
from pathlib import Path
from time import monotonic_ns
from typing import Any

import pytest
from rich.console import Console

from benchmarks.network import UNISONO, Bench, Scale, choose, undisturbed
from benchmarks.network_cases import BASE, COMMON, OWN, Case
from benchmarks.network_corosync import config_of
from benchmarks.network_judge import (
    FOREIGN_CORES_MAX,
    Load,
    Sample,
    compare,
    find_fault,
    foreign_cores,
    is_disturbed,
    percentile,
    settle,
)
from benchmarks.network_peers import BATCHED
from benchmarks.network_run import Failure, Program, System, load_of, measure, peak_bytes
from benchmarks.network_table import remarks, show, verdicts
from benchmarks.peers.common import Pace, Plan, Taken, make_payload, pack_batch, padding_of, unpack_batch

PLAN = Plan(0, 3, 100, warm_s=0.0, seconds=1.0)
MESSAGES = [(0, 0), (1, 0), (0, 1), (2, 0), (1, 1)]  # sender, index


def taken_of(messages: Iterable[tuple[int, int]], plan: Plan = PLAN, rank: int = 0) -> dict[str, Any]:
    taken = Taken(plan, rank, monotonic_ns())
    for sender, index in messages:
        taken.take(make_payload(sender, index, monotonic_ns(), padding_of(plan)))
    return {**taken.report(), "rank": rank}


# Order and loss.


@pytest.mark.parametrize("plan", [PLAN, Plan(0, 3, 100, rate_per_s=200.0)], ids=["fast", "timed"])
@pytest.mark.parametrize(("one", "other"), [(0, 1), (0, 2)], ids=["two senders", "one sender"])
def test_equal_orders_pass_and_a_swap_is_found(plan: Plan, one: int, other: int) -> None:
    swapped = list(MESSAGES)
    swapped[one], swapped[other] = swapped[other], swapped[one]
    assert find_fault([taken_of(MESSAGES, plan), taken_of(MESSAGES, plan, 1)], 5) is None
    assert find_fault([taken_of(MESSAGES, plan), taken_of(swapped, plan, 1)], 5) == (
        "the members took the messages in different orders"
    )


def test_a_loss_at_one_member_is_found() -> None:
    assert find_fault([taken_of(MESSAGES), taken_of(MESSAGES[:-1], rank=1)], 5) == "member 1 lost 1 of 5 messages"


def test_a_loss_at_all_members_is_found() -> None:
    """Nobody disagrees, and yet something that was sent is gone."""
    reports = [taken_of(MESSAGES[:-1]), taken_of(MESSAGES[:-1], rank=1)]
    assert find_fault(reports, 5) == "member 0 lost 1 of 5 messages"
    assert find_fault(reports, None) is None  # after a crash it is not known what was sent


def test_a_duplicate_is_found() -> None:
    assert find_fault([taken_of([*MESSAGES, (1, 1)])], 5) == "member 0 took 1 more than 5 messages"


def test_after_a_crash_the_survivors_must_agree() -> None:
    assert find_fault([taken_of(MESSAGES), taken_of(MESSAGES[:-1], rank=1)], None) == (
        "the members took different numbers of messages: 5, 4"
    )


def test_fifo_lets_senders_interleave_but_no_sender_s_messages_swap() -> None:
    plan = Plan(0, 3, 100, ordered="fifo")
    interleaved = [(1, 0), (0, 0), (0, 1), (1, 1), (2, 0)]
    swapped = [(0, 1), (1, 0), (0, 0), (2, 0), (1, 1)]
    assert find_fault([taken_of(MESSAGES, plan), taken_of(interleaved, plan, 1)], 5) is None
    assert find_fault([taken_of(MESSAGES, plan), taken_of(swapped, plan, 1)], 5) is not None


def test_the_chain_is_the_same_in_every_process() -> None:
    """Members are processes: what they hash must not depend on a seed of the process, which the benchmark fixes."""
    program = (
        "from benchmarks.peers.common import Plan, Taken; taken = Taken(Plan(0, 3, 100), 0, 0); "
        "taken.take(b'x' * 100); print(taken.report()['chain'])"
    )
    root = Path(__file__).parents[2]
    said = {
        subprocess.run(
            [sys.executable, "-c", program], capture_output=True, check=True, text=True, cwd=root,
            env={**os.environ, "PYTHONHASHSEED": "0"},
        ).stdout
        for _ in range(2)
    }  # fmt: skip
    assert len(said) == 1


# What is measured.


def test_only_the_window_counts() -> None:
    """Warm-up and overtime are left out: 128 messages before the window, 128 within, 640 after."""
    taken = Taken(PLAN, 0, 0)
    payload = make_payload(1, 0, 0, b"")
    for count, now in ((64, -1), (64, 0), (32, 500_000_000), (96, 1_000_000_000), (640, 2_000_000_000)):
        taken.count += count
        taken._look(now)
    taken.take(payload)
    assert taken.report()["per_s"] == 128


def test_a_member_that_takes_nothing_in_the_window_has_rate_zero() -> None:
    assert taken_of([])["per_s"] == 0


def test_latency_is_measured_at_the_others_only() -> None:
    plan = Plan(1, 3, 100, rate_per_s=200.0, warm_s=0.0, seconds=60.0)
    assert len(taken_of([(1, 0), (1, 1)], plan, 1)["latencies_ns"]) == 0
    assert len(taken_of([(0, 0), (1, 0), (2, 0)], plan, 1)["latencies_ns"]) == 2


def test_latency_leaves_the_warm_up_out() -> None:
    plan = Plan(1, 3, 100, rate_per_s=200.0, warm_s=60.0, seconds=1.0)
    assert taken_of([(0, 0)], plan, 1)["latencies_ns"] == []


def test_senders_take_turns() -> None:
    plan = Plan(0, 4, 100, rate_per_s=200.0)
    due = sorted(Pace(plan, number, 0).wait_ns(index, 0) for number in range(4) for index in range(3))
    assert due == [i * 5_000_000 for i in range(12)]


def test_as_fast_as_it_goes_never_waits() -> None:
    assert Pace(PLAN, 2, 0).wait_ns(1_000, 0) == 0


def test_one_sender_is_the_last_member() -> None:
    plan = Plan(0, 3, 100, senders="one")
    assert [plan.casts(number) for number in range(3)] == [False, False, True]


def test_an_application_s_batch_comes_out_as_it_went_in() -> None:
    payloads = [b"a" * 100, b"", b"ccc"]
    assert unpack_batch(b"12345678" + pack_batch(payloads), 8) == payloads


@pytest.mark.parametrize(
    ("share", "expected"), [(0.5, 50), (0.99, 99), (1.0, 100), (0.001, 1)], ids=["p50", "p99", "greatest", "least"]
)
def test_percentiles_of_one_to_a_hundred(share: float, expected: int) -> None:
    assert percentile(list(range(100, 0, -1)), share) == expected


def test_there_is_no_percentile_of_nothing() -> None:
    with pytest.raises(ValueError, match="nothing"):
        percentile([], 0.5)


# Disturbance.


def test_foreign_load_is_what_is_not_ours() -> None:
    assert foreign_cores(Load(10.0, 1.0), Load(13.0, 3.0), 2.0) == 0.5
    assert foreign_cores(Load(10.0, 1.0), Load(12.0, 3.01), 2.0) == 0.0  # ticks are coarse
    assert not is_disturbed(FOREIGN_CORES_MAX)
    assert is_disturbed(FOREIGN_CORES_MAX + 0.01)


def test_our_own_load_is_seen() -> None:
    before = load_of([])
    spent = os.times()
    while os.times().user + os.times().system - spent.user - spent.system < 0.1:
        sum(range(1_000))
    after = load_of([])
    assert after.ours_s - before.ours_s >= 0.08
    assert after.machine_s - before.machine_s >= 0.08
    assert peak_bytes([os.getpid()]) > 1_000_000


def tried(samples: list[Sample], tries: int) -> tuple[Sample, int]:
    left = iter(samples)

    async def run() -> Sample:
        return next(left)

    return asyncio.run(undisturbed(run, tries))


def test_a_disturbed_round_is_repeated_until_it_is_quiet() -> None:
    assert tried([Sample(per_s=1, foreign=1.0), Sample(per_s=2), Sample(per_s=3)], 3) == (Sample(per_s=2), 2)


def test_repeating_is_bounded_and_keeps_the_least_disturbed() -> None:
    samples = [Sample(per_s=rate, foreign=foreign) for rate, foreign in ((1, 0.9), (2, 0.5), (3, 0.8))]
    assert tried(samples, 3) == (samples[1], 3)


def test_a_fault_is_never_repeated_away() -> None:
    assert tried([Sample(fault="lost", foreign=1.0), Sample(per_s=1)], 3)[0].fault == "lost"


# Figures and verdicts.


def test_medians_are_over_the_rounds_that_went_well() -> None:
    samples = [Sample(per_s=rate, latencies_ns=[rate * 1_000]) for rate in (30, 10, 20)]
    figures = settle([*samples, Sample(per_s=99, fault="lost")])
    assert (figures["per_s"], figures["per_s_least"], figures["per_s_most"], figures["p50_us"]) == (20, 10, 30, 20)
    assert (figures["rounds"], figures["faults"]) == (3, ["lost"])
    assert "per_s" not in settle([Sample(fault="lost")])


RESULTS: dict[str, dict[str, dict[str, Any]]] = {
    "unisono": {"N=3 100 B all": {"per_s": 300}, "latency N=3": {"p50_us": 100}},
    "slow": {"N=3 100 B all": {"per_s": 100}, "latency N=3": {"p50_us": 200}},
    "fast": {"N=3 100 B all": {"per_s": 200}, "latency N=3": {"p50_us": 400}},
    BATCHED: {"N=3 100 B all": {"per_s": 600}},
}


def test_unisono_is_compared_with_the_best_peer_of_each_column() -> None:
    assert compare(RESULTS, "N=3 100 B all", "per_s", ["slow", "fast"]) == (1.5, "fast")
    assert compare(RESULTS, "latency N=3", "p50_us", ["slow", "fast"]) == (2.0, "slow")
    assert compare(RESULTS, "latency N=3", "p50_us", [BATCHED]) is None


def test_batches_are_compared_apart() -> None:
    assert verdicts(RESULTS, list(RESULTS)) == {
        "to the best unbatched": {"N=3 100 B": (1.5, "fast"), "p50 N=3": (2.0, "slow")},
        f"to {BATCHED}": {"N=3 100 B": (0.5, BATCHED)},
    }


def test_every_figure_is_legible_in_a_file() -> None:
    """Nothing is cut, and the best peer of each column is named."""
    results: dict[str, Any] = {
        name: {case: {"faults": [], "disturbed": 0, "rounds": 1} | found for case, found in cases.items()}
        for name, cases in RESULTS.items()
    }
    for case in (BASE, *OWN):
        figures = {"per_s": 123_456.0, "cpu_us": 1_234.5, "memory_mb": 99.0, "p50_us": 1_234.0, "p99_us": 98_765.0}
        results["unisono"][case.name] = {"faults": [], "disturbed": 0, "rounds": 1, "gap_ms": 1_727.0} | figures
    console = Console(file=StringIO(), width=80)
    show(console, results, {"absent": "not installed"}, list(results))
    assert isinstance(console.file, StringIO)
    shown = console.file.getvalue()
    assert "…" not in shown
    for text in ("123,456", "617.28", "98,765 µs", "1,727", "slow (p50 N=3)", "absent: not installed."):
        assert text in shown


def test_faults_and_disturbed_rounds_are_told() -> None:
    told = remarks(
        {"fast": {"a": settle([Sample(per_s=1, foreign=1.0), Sample(fault="member 1 lost 3 of 9 messages")])}}
    )
    assert told[0] == "fast, a: member 1 lost 3 of 9 messages."
    assert "1 of 1 rounds were disturbed" in told[1]


def test_a_share_of_the_load_needs_the_load() -> None:
    pairs = choose([UNISONO], "latency at half")
    assert [case.name for _, case in pairs] == [BASE.name, "latency at half load"]
    assert choose([UNISONO], "no such case") == []


def test_without_a_pattern_all_cases_run_and_batches_have_no_latency() -> None:
    batched = System(BATCHED, "none", "none", lambda members: 1, has_latency=False)
    pairs = choose([UNISONO, batched], None)
    assert [case for system, case in pairs if system is UNISONO] == COMMON + OWN
    assert all(case.rate_per_s is None for system, case in pairs if system is batched)


def test_a_corosync_node_list_names_every_node_once() -> None:
    config = config_of(8, 5_405, Path("state"))
    assert [config.count(f"name: bench{i + 1}\n") for i in range(8)] == [1] * 8
    assert config.count("{") == config.count("}")


# For real.

TINY = Scale(rounds=1, repeats=0.0, warm_s=0.1, seconds=0.5)


def test_two_real_members_are_measured_and_so_is_the_latency_of_two_others() -> None:
    cases = (Case("tiny", 2, 100, "all"), Case("tiny", 2, 100, "all", rate_per_s=200.0))

    async def measure_both() -> list[Sample]:
        return await asyncio.gather(*(measure(UNISONO, case, TINY.warm_s, TINY.seconds) for case in cases))

    fast, calm = asyncio.run(measure_both())
    assert fast.fault is calm.fault is None
    assert fast.per_s > 0
    assert fast.cpu_us > 0
    assert len(calm.latencies_ns) > 10


def test_a_program_that_dies_is_a_fault_with_its_last_words() -> None:
    dying = System("dying", "benchmarks.nothing_of_that_name", sys.executable, lambda members: 1)
    sample = asyncio.run(measure(dying, Case("tiny", 2, 100, "all"), 0.1, 0.1))
    assert sample.fault is not None
    assert "No module named benchmarks.nothing_of_that_name" in sample.fault
    bench = Bench(TINY)
    bench.samples["dying"] = {"tiny": [sample]}
    assert bench.results()["dying"]["tiny"]["faults"] == [sample.fault]


def test_a_program_that_says_something_else_is_a_fault(tmp_path: Path) -> None:
    async def talk() -> None:
        program = await Program.start("odd", [sys.executable, "-c", "print('{\"odd\": 1}')"], tmp_path)
        try:
            await program.hear("ready", 20.0)
        finally:
            await program.end()

    with pytest.raises(Failure, match="instead of 'ready'"):
        asyncio.run(talk())
