"""Scenarios to begin with: the member that numbers the messages crashes before all others know the numbers.

Whole members run here in virtual time, over datagrams that `network.cut` throws away in one direction. Member a has rank 0,
so it is the sequencer. `passes` ends a run: the network heals, the group comes to rest, and the judge checks every promise of
the order. The second scenario is the story in the text of `orders/sequencer.py`.
"""

from __future__ import annotations

from tests.group_tools import passes, settles, texts
from tests.mutants.sequencer_mutants import WithoutSeen
from unisono.orders.registry import ORDERS
from unisono.sim.group_world import GroupWorld


def test_survivors_keep_the_order_that_one_of_them_knows() -> None:
    """1. c and b cast, and a numbers that; c misses the numbers. 2. b delivers, and casts again. 3. a crashes."""
    world = GroupWorld("causal-total", seed=1)
    a, b, c = world.gather("abc")
    world.network.cut("a", "c")
    c.cast(b"remark")
    b.cast(b"question")
    world.run(0.01)
    assert sorted(texts(a)) == [b"question", b"remark"]
    assert texts(b) == texts(a)
    assert texts(c) == [], "c has both messages, and waits for their numbers"
    b.cast(b"answer")
    world.crash("a")
    settles(world, "bc")  # membership suspects a, and agrees on a view of b and c
    assert texts(c) == texts(b) == [*texts(a), b"answer"], "what had a number comes first"
    passes(world)


def an_answer_without_its_question(world: GroupWorld) -> list[bytes]:
    """1. b asks, and only a hears it: a numbers it, delivers it, and answers. 2. c gets the answer. 3. a and b crash."""
    a, b, c = world.gather("abc")
    world.network.cut("b", "c")
    world.network.cut("a", "b")
    b.cast(b"question")
    world.run(0.002)
    assert texts(a) == [b"question"]
    a.cast(b"answer")
    world.run(0.002)
    (waiting,) = c.member.explain()
    assert waiting.startswith("a:0 is held back at c"), "it has a number, and what comes before it is not there"
    world.crash("a")
    world.crash("b")
    settles(world, "c")
    return texts(c)


def test_an_answer_is_dropped_when_its_question_is_lost() -> None:
    world = GroupWorld("causal-total", seed=1)
    assert an_answer_without_its_question(world) == []
    passes(world)


def test_a_merge_that_does_not_ask_what_a_caster_had_seen_is_caught() -> None:
    world = GroupWorld("causal-total", seed=1, orders={**ORDERS, "causal-total": WithoutSeen})
    assert an_answer_without_its_question(world) == [b"answer"]
    verdict = world.finish()
    assert list(verdict.broken) == ["P8"], "causality"
    assert "c delivered a:0" in str(verdict)
