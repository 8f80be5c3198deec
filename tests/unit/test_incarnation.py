"""Which life this is: numbers that never repeat as long as the record or the clock is good (C20)."""

from __future__ import annotations

from random import Random

import pytest

from unisono.core.config import SECOND
from unisono.core.errors import Misuse
from unisono.core.incarnation import INCARNATION_MAX, begin_life, make_record, read_record
from unisono.core.types import MemberId

NOON = 1_700_000_000 * SECOND


def test_c20_the_first_life_is_named_by_the_clock() -> None:
    life = begin_life(None, NOON)
    assert life.incarnation == NOON
    assert read_record(life.record) == NOON


def test_c20_the_next_life_is_above_the_record_and_not_below_the_clock() -> None:
    record = make_record(NOON)
    assert begin_life(record, NOON + 5).incarnation == NOON + 5
    assert begin_life(record, NOON).incarnation == NOON + 1, "two starts within one reading of the clock"


@pytest.mark.parametrize("wall_ns", [NOON - 1, NOON - 3_600 * SECOND, 0, -SECOND])
def test_c20_a_clock_that_was_set_back_does_not_bring_old_numbers_back(wall_ns: int) -> None:
    assert begin_life(make_record(NOON), wall_ns).incarnation == NOON + 1


def test_c20_a_truncated_or_altered_record_says_nothing() -> None:
    record = make_record(NOON)
    damaged = [record[:length] for length in range(len(record))]
    damaged += [
        record[:i] + bytes([record[i] ^ 1 << bit]) + record[i + 1 :] for i in range(len(record)) for bit in range(8)
    ]
    damaged += [record + b"\0", bytes(len(record))]
    for bad in damaged:
        assert read_record(bad) is None
        assert begin_life(bad, NOON + 7).incarnation == NOON + 7


def test_c20_numbers_rise_as_long_as_one_of_the_two_is_good() -> None:
    """Thousands of starts: each time the record is lost, or the clock is wrong and behind, but never both."""
    for seed in range(20):
        random = Random(seed)
        wall, record, last = NOON, None, -1
        for _ in range(200):
            wall += random.choice((1, 1_000, SECOND))
            match random.choice(("good", "record lost", "clock back")):
                case "good":
                    life = begin_life(record, wall)
                case "record lost":
                    wall = max(wall, last + 1)  # a good clock is past every life so far
                    life = begin_life(random.choice((None, b"", (record or b"")[:9])), wall)
                case _:
                    life = begin_life(record, wall - random.randrange(NOON)) if record else begin_life(None, wall)
            assert life.incarnation > last
            record, last = life.record, life.incarnation


def test_c20_if_both_fail_the_number_falls_and_this_is_said() -> None:
    """The limit of the promise, so that whoever changes the rule sees it."""
    life = begin_life(make_record(NOON)[:-1], NOON - SECOND)
    assert life.incarnation < NOON


def test_c20_a_number_that_no_trace_can_hold_is_refused() -> None:
    assert begin_life(make_record(INCARNATION_MAX - 1), 0).incarnation == INCARNATION_MAX
    with pytest.raises(Misuse, match="set the clock right"):
        begin_life(make_record(INCARNATION_MAX), 0)
    with pytest.raises(Misuse, match="set the clock right"):
        begin_life(None, 2**63)


def test_c20_lives_compare_by_their_numbers() -> None:
    first = begin_life(None, NOON)
    second = begin_life(first.record, NOON - SECOND)
    assert MemberId("a", first.incarnation) < MemberId("a", second.incarnation)
