"""Groups of real processes over real links, in network namespaces: loss, partitions, one-way links, narrow ones, an MTU of 1500."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.net.namespaces import missing, wired
from unisono.orders.registry import ORDERS
from unisono.runtime.seal import make_key

pytestmark = pytest.mark.skipif(missing() is not None, reason=missing() or "")
KEY = make_key()


def test_a10_a_message_larger_than_the_link_s_datagrams_arrives_sealed_and_in_no_ip_fragment(folder: Path) -> None:
    with wired(folder, 3, key=KEY) as (stage, net):
        stage.gather("abc")
        for size in (1_300, 1_400, 1_472, 1_500, 9_000, 65_507, 1 << 20):
            stage.tell("ab", "cast", count=2, payload_bytes=size)
        stage.until(lambda: all(stage[name].delivered == 28 for name in "abc"), "large messages")
        stage["a"].tell("cast", count=1, payload_bytes=(16 << 20) + 1)
        stage.until(lambda: bool(stage["a"].said("misuse")), "too large a message is refused")
        assert str(16 << 20) in stage["a"].said("misuse")[0]["text"]
        # A change in the middle of much traffic: reports and cuts are large as well.
        stage.tell("abc", "rate", rate=300)
        stage.until_delivered("abc", 100)
        stage.kill("c")
        stage.until_one_view("ab")
        stage.finish("ab")
        assert [net.fragments(name) for name in "ab"] == [0, 0]
        assert not any("EMSGSIZE" in reason for reason in stage["a"].status["port"])


def test_d2_a_link_that_works_in_one_direction_only(folder: Path) -> None:
    with wired(folder, 4, key=KEY) as (stage, net):
        stage.gather("abcd", rate=50)
        stage.until_delivered("abcd", 50)
        whole = stage["c"].view["id"]
        net.cut("a", "b")  # a does not hear b, and b hears a
        stage.until(lambda: stage["c"].view["id"] != whole, "the others do something about it")
        stage.until_delivered("cd", 50)
        assert net.dropped("a") > 0
        net.heal()
        stage.until_one_view("abcd")
        stage.finish("abcd")


def test_d4_two_halves_with_messages_under_way_go_on_apart_and_merge(folder: Path) -> None:
    with wired(folder, 4, key=KEY, hooks=True) as (stage, net):
        stage.gather("abcd", rate=100)
        stage.until_delivered("abcd", 100)
        net.part("ab", "cd")
        stage.until_one_view("ab")
        stage.until_one_view("cd")
        stage.until_delivered("abcd", 50)
        net.part("abcd")
        stage.until_one_view("abcd")
        stage.until_delivered("abcd", 50)
        stage.finish("abcd")


def test_d4_a_member_whose_cable_is_pulled_goes_on_alone_and_merges(folder: Path) -> None:
    with wired(folder, 3, key=KEY, order="toto") as (stage, net):
        stage.gather("abc", rate=50)
        stage.until_delivered("abc", 50)
        net.unplug("c")
        stage.until_one_view("ab")
        stage.until_one_view("c")
        stage.until_delivered("abc", 30)
        net.plug("c")
        stage.until_one_view("abc")
        stage.finish("abc")


def test_d15_the_bandwidth_of_one_link_collapses(folder: Path) -> None:
    with wired(folder, 3, key=KEY, payload_bytes=600) as (stage, net):
        stage.gather("abc", rate=60)
        stage.until_delivered("abc", 50)
        net.narrow("a", kilobit_per_s=200)  # it wants three times as much
        stage.until_delivered("bc", 20)
        net.widen("a")
        stage.until_one_view("abc")
        stage.finish("abc")


@pytest.mark.parametrize("order", sorted(ORDERS))
def test_every_order_keeps_its_promises_with_15_percent_loss(order: str, folder: Path) -> None:
    with wired(folder, 3, key=KEY, order=order) as (stage, net):
        stage.gather("abc")
        net.lose(15)
        stage.tell("abc", "rate", rate=60)
        stage.until_delivered("abc", 150)
        assert all(net.dropped(name) > 0 for name in "abc")
        net.heal()
        stage.finish("abc")


def test_the_orders_take_turns_with_20_percent_loss(folder: Path) -> None:
    with wired(folder, 3, key=KEY, order="sequencer") as (stage, net):
        stage.gather("abc", rate=40)
        net.lose(20)
        for order in ("causal", "abcast", "all-ack", "rmp", "sequencer"):
            stage["a"].tell("switch", order=order)
            stage.until(lambda order=order: all(stage[name].view["order"] == order for name in "abc"), order)  # type: ignore[misc]
            stage.until_delivered("abc", 20)
        net.heal()
        stage.until_one_view("abc")
        stage.finish("abc")


def test_d16_under_the_primary_policy_the_smaller_part_is_read_only_and_says_so(folder: Path) -> None:
    with wired(folder, 5, key=KEY, policy="primary") as (stage, net):
        stage.gather("abcde", rate=50)
        stage.until_delivered("abcde", 50)
        net.part("abc", "de")
        stage.until_one_view("abc")
        stage.until_one_view("de")
        assert [stage[name].view["primary"] for name in "abcde"] == [True, True, True, False, False]
        stage.until(
            lambda: all(stage[name].said("not primary") for name in "de"), "casts are refused in the smaller part"
        )
        assert "read-only" in stage["d"].said("not primary")[0]["text"]
        stage.until_delivered("abc", 50)
        net.part("abcde")
        stage.until_one_view("abcde")
        assert all(stage[name].view["primary"] for name in "abcde")
        stage.until_delivered("abcde", 50)
        stage.finish("abcde", "P20")
