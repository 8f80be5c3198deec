"""The explorer: what it proves of the orders, what it catches, and that its shortcuts lose nothing."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator
from copy import deepcopy
from itertools import product
from pathlib import Path

import pytest

from tests.mutants import explore_mutants as mutants
from tests.mutants import stamped_mutants as stamped
from unisono.core.config import Config
from unisono.core.errors import Misuse
from unisono.core.ordering import AnyOrdering
from unisono.core.types import Property, Rank, Service
from unisono.orders.registry import ORDERS
from unisono.sim.explore.freeze import freeze
from unisono.sim.explore.orders import Case, Message, distributions, explore, load_counterexample, replay
from unisono.sim.explore.orders.case import End, FlushStep, Step, Stream, Turn, parse_step, write_step
from unisono.sim.explore.orders.judge import Judge
from unisono.sim.explore.orders.member import Act, Setup
from unisono.sim.explore.orders.model import OrdersModel
from unisono.sim.explore.orders.replay import Run
from unisono.sim.explore.search import Search, SearchProgress
from unisono.trace.promises import promises

# What it proves.


@pytest.mark.parametrize(("members", "total"), [(2, 3), (3, 2)])
@pytest.mark.parametrize("name", ORDERS)
def test_every_interleaving_keeps_every_promise_whoever_crashes(name: str, members: int, total: int) -> None:
    for case in distributions(members, total):
        report = explore(case, ORDERS[name], crashes=members - 1)
        assert report.violation is None, str(report.violation)
        assert report.complete
        assert report.probes > report.states


@pytest.mark.parametrize("name", [name for name, order in ORDERS.items() if not order.acknowledges])
def test_three_members_and_three_messages_keep_every_promise(name: str) -> None:
    """One origin casts two, so that FIFO is at stake. (Explicit acknowledgements make this a matter of minutes: left out.)"""
    report = explore(Case.of(2, 1, 0), ORDERS[name], crashes=2)
    assert report.violation is None, str(report.violation)
    assert report.complete


SIZES = {
    "fifo": ((36, 46, 6), (46, 73, 6), (49, 80, 6)),
    "causal": ((36, 46, 6), (46, 73, 6), (45, 78, 6)),
    "sequencer": ((63, 88, 9), (92, 209, 7), (124, 268, 10)),
    "fifo-total": ((63, 88, 9), (92, 209, 7), (124, 268, 10)),
    "causal-total": ((63, 88, 9), (92, 209, 7), (124, 268, 10)),
    "abcast": ((893, 1_225, 12), (1_059, 2_175, 12), (1_172, 2_440, 14)),
    "tomp": ((954, 1_318, 12), (1_129, 2_327, 12), (1_242, 2_600, 14)),
    "all-ack": ((307, 398, 12), (347, 533, 11), (8_931, 23_772, 18)),
    "toto": ((307, 398, 12), (347, 533, 11), (8_931, 23_772, 18)),
    "rmp": ((399, 640, 18), (493, 1_143, 18), (613, 1_492, 22)),
}
"""By order: states, transitions and deepest of three cases."""


@pytest.mark.parametrize("name", ORDERS)
def test_every_state_is_visited(name: str) -> None:
    """Several inputs a turn, or messages to one member each, break no promise either."""
    to_one = Case(((Message(to=(1,)),), (Message(to=(2,)),), ()))
    for case, size in zip((Case.of(2, 1), Case.of(2, 1, turn_inputs_max=3), to_one), SIZES[name], strict=True):
        report = explore(case, ORDERS[name], crashes=1)
        assert report.violation is None, str(report.violation)
        assert report.complete
        assert (report.states, report.transitions, report.depth) == size


@pytest.mark.parametrize("ack_delay_ns", [1, None])
@pytest.mark.parametrize("name", ["toto", "all-ack"])
def test_causal_and_total_messages_in_one_stream_keep_every_promise(name: str, ack_delay_ns: int | None) -> None:
    causal, total = Message(Service.CAUSAL), Message(Service.TOTAL)
    for first, second in product((causal, total), repeat=2):
        report = explore(Case(((first, second), (total,)), Config(ack_delay_ns=ack_delay_ns)), ORDERS[name], crashes=1)
        assert report.violation is None, str(report.violation)
        assert report.complete


def test_semi_reliable_and_reliable_messages_in_one_stream_keep_every_promise() -> None:
    semi, reliable = Message(Service.FIFO), Message(Service.TOTAL)
    for first, second in product((semi, reliable), repeat=2):
        for case in (Case(((first, second), (reliable,))), Case(((first, second), (semi,), ()))):
            report = explore(case, ORDERS["rmp"], crashes=1)
            assert report.violation is None, str(report.violation)
            assert report.complete


@pytest.mark.parametrize("name", ORDERS)
def test_what_is_asked_is_what_the_order_promises(name: str) -> None:
    owed = Judge(Setup(Case.of(1), ORDERS[name])).owed
    assert owed == promises(name) - {"P8c", "P18"}, "histories have neither clocks nor votes"


# What it catches.


@pytest.mark.parametrize("order", [stamped.AbcastCounterStays, stamped.TompCounterStays])
@pytest.mark.parametrize(
    ("case", "steps"), [(Case.of(1, 1), 6), (Case.of(2, 1), 6), (Case.of(1, 1, 0), 10), (Case.of(1, 1, 1), 10)]
)
def test_the_printed_algorithms_split_the_order(order: type[AnyOrdering], case: Case, steps: int) -> None:
    report = explore(case, order)
    assert report.violation is not None
    assert "the total order splits" in report.violation.sentence
    assert len(report.violation.schedule) == steps


@pytest.mark.parametrize("crashed", [(), (0,), (1,), (2,)])
@pytest.mark.parametrize(
    "order",
    [
        stamped.FinalsFirstAbcast,
        stamped.FinalsFirstTomp,
        stamped.OriginalProposalsAbcast,
        stamped.OriginalProposalsTomp,
    ],
)
def test_a_merge_that_looks_right_is_caught_whoever_crashes(
    order: type[AnyOrdering], crashed: tuple[Rank, ...]
) -> None:
    model = OrdersModel(Case.of(2, 1, 0), order, 1)
    model.flushes = [flushes for flushes in model.flushes if flushes.crashed == crashed]
    violation = Search(model, 10_000).run().violation
    assert violation is not None
    assert parse_step(violation.schedule[-1], 3) == FlushStep(crashed)


def test_forgetting_raised_stamps_is_caught() -> None:
    """c stamped b:0 before it saw a:0, so b knew a:0 to come later; with c gone, only the raised stamp says so."""
    report = explore(Case.of(2, 1, 0), stamped.ForgetsRaisesTomp, crashes=1)
    assert report.violation is not None
    assert report.violation.schedule[-1] == "c crashes; survivors a, b flush"
    assert "has delivered what others put behind" in report.violation.sentence  # the merge itself sees it


def test_b5_waiting_for_ever_is_caught() -> None:
    report = explore(Case.of(1, 0), mutants.NeverAcknowledges)
    assert report.violation is not None
    assert report.violation.schedule == ("a casts a:0", "b receives from a (cast): Data 1", "nothing more can happen")
    assert report.violation.sentence.startswith("P4: a cast a:0")


def test_a_merge_that_depends_on_the_order_of_reports_is_caught() -> None:
    report = explore(Case.of(1, 0), mutants.FirstReportWins, crashes=1)
    assert report.violation is not None
    assert report.violation.schedule == ("a casts a:0", "a, b flush")
    assert report.violation.sentence.startswith("the merge depends on the order of the reports")


def test_a_cut_that_nobody_can_fill_is_caught() -> None:
    report = explore(Case.of(1, 0), mutants.WantsTooMuch, crashes=1)
    assert report.violation is not None
    assert report.violation.schedule == ("a, b flush",)
    assert report.violation.sentence == "the cut wants packet 1 of a, which no survivor holds."


def test_an_exception_in_an_ordering_is_caught() -> None:
    report = explore(Case.of(2, 0), mutants.Stumbles)
    assert report.violation is not None
    assert len(report.violation.schedule) == 4
    assert report.violation.sentence.startswith("ZeroDivisionError in receive")


# Its shortcuts lose nothing.


def test_states_can_be_counted_by_hand() -> None:
    """Member a cast i of three messages, b received j <= i of them: 1 + 2 + 3 + 4 states."""
    report = explore(Case.of(3, 0), ORDERS["fifo"])
    assert (report.states, report.transitions, report.local_states, report.depth) == (10, 12, 8, 6)


def possible_steps(run: Run) -> Iterator[Turn]:
    for local in run.locals:
        if local.cast < len(run.setup.case.messages[local.rank]):
            yield Turn(local.rank, 1)
        if local.is_armed:
            out = deepcopy(local).take_turn(0, (), quiet=True)
            if out.casts:
                yield Turn(local.rank, quiet=True)
    for (sender, receiver, stream), packets in run.streams.items():
        if packets:
            yield Turn(receiver, 0, ((sender, stream),))


def after(run: Run, step: Step) -> Run:
    """The run one step further, on copies."""
    memo = {id(run.setup): run.setup, id(run.judge): run.judge}
    copy = deepcopy(run, memo)
    copy.take(step)
    return copy


Histories = tuple[tuple[Act, ...], ...]


def histories_of(run: Run, crashed: tuple[Rank, ...] = ()) -> Histories:
    """As the explorer compares them: of a crashed member, what came up to its last cast; all of it if the order is uniform."""
    result = []
    for local in run.locals:
        acts = tuple(local.history)
        if local.rank in crashed and Property.UNIFORM not in run.setup.order.guarantees:
            acts = acts[: max((i for i, act in enumerate(acts, 1) if not act.delivered), default=0)]
        result.append(acts)
    return tuple(result)


def outcomes_of(model: OrdersModel, crashed: tuple[Rank, ...] | None) -> set[Histories]:
    numbers = model.ends
    if crashed is not None:
        numbers = next(flushes.outcomes for flushes in model.flushes if flushes.crashed == crashed)
    return {tuple(model.shared.histories.values[number] for number in row) for row in numbers}


@pytest.mark.parametrize(
    ("name", "counts"),
    [("abcast", (1, 1)), ("tomp", (2, 0)), ("all-ack", (1, 1)), ("sequencer", (0, 1, 0)), ("rmp", (1, 1))],
)
def test_trying_every_schedule_one_by_one_finds_the_same_ends(name: str, counts: tuple[int, ...]) -> None:
    """Without comparing states at all, so that a state taken for another would show."""
    case = Case.of(*counts)
    ends: set[Histories] = set()
    schedules = 0
    stack = [Run(case, ORDERS[name])]
    while stack:
        run = stack.pop()
        steps = list(possible_steps(run))
        stack += [after(run, step) for step in steps]
        if not steps:
            schedules += 1
            ends.add(histories_of(run))
    model = OrdersModel(case, ORDERS[name])
    assert Search(model).run().complete
    assert outcomes_of(model, None) == ends
    assert schedules > len(ends)


@pytest.mark.parametrize(
    ("name", "counts"), [("causal", (1, 1, 0)), ("sequencer", (1, 1, 0)), ("abcast", (1, 0, 0)), ("rmp", (1, 0, 0))]
)
def test_crashes_with_real_losses_lead_to_the_same_ends(name: str, counts: tuple[int, ...]) -> None:
    """A member crashes at any point, any last packets of each of its streams are lost, and the rest go on before they flush."""
    case = Case.of(*counts)
    model = OrdersModel(case, ORDERS[name], 1)
    assert Search(model).run().complete
    start = Run(case, ORDERS[name])
    for victim in start.setup.ranks:
        seen, found = set(), set()
        todo = deque([(start, False)])
        while todo:
            run, crashed = todo.popleft()
            state = (tuple(local.freeze() for local in run.locals), freeze(list(run.streams.values())), crashed)
            if state in seen:
                continue
            seen.add(state)
            todo.extend(
                (after(run, step), crashed) for step in possible_steps(run) if not (crashed and step.member == victim)
            )
            if crashed:
                found.add(histories_of(after(run, FlushStep((victim,))), (victim,)))
            else:
                todo.extend((lossy, True) for lossy in losses(run, victim))
        assert found == outcomes_of(model, (victim,))


def losses(run: Run, victim: Rank) -> Iterator[Run]:
    """Every way in which the last packets of the victim's streams can be lost."""
    streams = [key for key in run.streams if key[0] == victim]
    for kept in product(*(range(len(run.streams[key]) + 1) for key in streams)):
        copy = deepcopy(run, {id(run.setup): run.setup, id(run.judge): run.judge})
        for key, count in zip(streams, kept, strict=True):
            copy.streams[key] = deque(list(run.streams[key])[:count])
        yield copy


def test_a_limit_and_progress() -> None:
    seen: list[SearchProgress] = []
    report = explore(Case.of(1, 1, 1), ORDERS["abcast"], states_max=70_000, progress=seen.append)
    assert not report.complete
    assert report.violation is None
    assert 70_000 <= report.states < 70_020
    assert [progress.states for progress in seen] == list(range(8_192, 70_000, 8_192))


def test_more_crashes_than_leave_a_survivor_are_refused() -> None:
    with pytest.raises(Misuse, match="at most 1 can crash"):
        explore(Case.of(1, 1), ORDERS["fifo"], crashes=2)


# Values.


def test_values_tell_apart_what_code_can_tell_apart() -> None:
    shared: list[int] = []
    different: list[object] = [
        1,
        True,
        1.0,
        "1",
        b"1",
        (1,),
        [1],
        {1},
        deque([1]),
        {1: 2, 3: 4},
        {3: 4, 1: 2},
        [shared, shared],
        [[], []],
        Message(),
        Turn(0),
        Stream.CAST,
        "cast",
    ]
    assert len({freeze(thing) for thing in different}) == len(different)
    assert freeze([[1], {2: deque([3])}]) == freeze([[1], {2: deque([3])}])


def test_what_hides_its_state_is_refused() -> None:
    with pytest.raises(Misuse, match="generator"):
        freeze([(i for i in range(3))])


# Steps and files.


@pytest.mark.parametrize(
    ("step", "text"),
    [
        (Turn(0, 1), "a casts a:4"),
        (Turn(1, 0, ((0, Stream.CAST),)), "b receives from a (cast): x"),
        (
            Turn(2, 2, ((0, Stream.UNICAST), (1, Stream.CAST))),
            "c casts c:4, then casts c:5, then receives from a (unicast): x, then receives from b (cast)",
        ),
        (Turn(0, quiet=True), "a is quiet for long enough"),
        (FlushStep((2,)), "c crashes; survivors a, b flush"),
        (FlushStep((0, 2)), "a, c crash; survivors b flush"),
        (FlushStep(()), "a, b, c flush"),
        (End(), "nothing more can happen"),
    ],
)
def test_a_step_is_a_sentence_and_back(step: Step, text: str) -> None:
    assert write_step(step, 3, ["x"], 4) == text
    assert parse_step(text, 3) == step


@pytest.mark.parametrize(
    "text", ["", "a", "a sings", "d casts d:0", "a crashes; survivors b flush", "b receives from d (cast)"]
)
def test_what_is_no_step_is_refused(text: str) -> None:
    with pytest.raises(Misuse):
        parse_step(text, 3)


def test_a_counterexample_is_seen_again(tmp_path: Path) -> None:
    report = explore(Case.of(1, 1), stamped.AbcastCounterStays)
    assert report.violation is not None
    path = tmp_path / "split.json"
    report.violation.save(path)
    assert load_counterexample(path) == report.violation
    lines: list[str] = []
    sentence = replay(path, {"AbcastCounterStays": stamped.AbcastCounterStays}, lines.append)
    assert sentence == report.violation.sentence
    assert "  1. a casts a:0" in lines
    assert "       a delivers a:0" in lines
    assert lines[-1] == f"   => {sentence}"


def test_a_schedule_that_breaks_nothing_says_so(tmp_path: Path) -> None:
    path = tmp_path / "fine.json"
    path.write_text(json.dumps({**VALID, "schedule": ["a casts a:0", "b crashes; survivors a flush"]}))
    lines: list[str] = []
    assert replay(path, write=lines.append) is None
    assert "   => every promise is kept so far." in lines


def test_messages_with_options_survive_a_file(tmp_path: Path) -> None:
    report = explore(Case(((Message(Service.FIFO, (1,)), Message()), ())), mutants.WantsTooMuch, crashes=1)
    assert report.violation is not None
    report.violation.save(tmp_path / "x.json")
    assert load_counterexample(tmp_path / "x.json") == report.violation


VALID = {
    "kind": "explore",
    "order": "fifo",
    "members": 2,
    "messages": [1, 0],
    "config": {},
    "schedule": ["a casts a:0"],
}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"kind": "trace"}, 'its "kind" must be "explore"'),
        ({"order": "chaos"}, "about the order 'chaos'"),
        ({"members": 3}, "3 members, but messages for 2"),
        ({"messages": None}, "is broken"),
        ({"messages": [[{"service": "loud"}], 0]}, "no service 'loud'"),
        ({"messages": [[{"to": ["z"]}], 0]}, "no member 'z'"),
        ({"config": {"speed": 1}}, "no setting 'speed'"),
        ({"schedule": ["a sings"]}, "no step 'a sings'"),
        ({"schedule": [7]}, "is broken"),
        ({"schedule": ["a casts a:0", "a casts a:1"]}, "step 2 is not possible, because a has nothing more to cast"),
        ({"schedule": ["b receives from a (cast)"]}, "its cast stream is empty"),
        ({"schedule": ["a casts a:0", "nothing more can happen"]}, "add the turns that member b can still take"),
        ({"schedule": ["a, b flush", "a, b flush"]}, "when all is over"),
    ],
)
def test_a_broken_file_gives_one_clear_sentence(change: dict[str, object], sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "broken.json"
    path.write_text(json.dumps({**VALID, **change}))
    with pytest.raises(Misuse, match=sentence) as caught:
        replay(path, write=lambda line: None)
    assert "\n" not in str(caught.value)


def test_what_is_no_file_gives_one_clear_sentence(tmp_path: Path) -> None:
    with pytest.raises(Misuse, match="cannot be read"):
        replay(tmp_path / "nowhere.json")
    (tmp_path / "text.json").write_text("hello")
    with pytest.raises(Misuse, match="is not a replay file"):
        replay(tmp_path / "text.json")
