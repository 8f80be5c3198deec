"""Each property but those of causal and total order on small stories: what is allowed, what is not, and the sentence."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from unisono.trace.checks import CHECKERS, Violation, judge
from unisono.trace.schema import Event
from unisono.trace.story import renumber, tell


def found(property_id: str, story: str, service: str = "total") -> list[Violation]:
    """What one checker alone says of a story."""
    return judge(tell(story, service=service, protocol=CARRIES[service]), [property_id]).violations


CARRIES = {"total": "causal-total", "causal": "causal", "fifo": "fifo"}
"""An order that carries a service."""


def told(property_id: str, events: Iterable[Event]) -> list[str]:
    return [violation.sentence for violation in judge(events, [property_id]).violations]


def said(property_id: str, story: str, service: str = "total") -> list[str]:
    return [violation.sentence for violation in found(property_id, story, service)]


CLEAN = """
a,b,c JOIN
a,b,c VIEW 1@a a b c
a CAST x vector 0,0,0
a DELIVER x
b,c DELIVER x
b CAST y to a,b vector 1,0,0
b DELIVER y
a DELIVER y
c PLACE y
c CAST z count 3 vector 1,1,0
a,b DELIVER z
c DELIVER z
a,b,c BLOCK
c CRASH
a,b VIEW 2@a a b from a b
b CAST w count 2 vector 0,0
b DELIVER w
a DELIVER w[0:1]
a DELIVER w[1:2]
b LEAVE
a END
"""


@pytest.mark.parametrize("property_id", CHECKERS)
@pytest.mark.parametrize("service", ["total", "causal", "fifo"])
def test_a_clean_run_raises_nothing(property_id: str, service: str) -> None:
    assert said(property_id, CLEAN, service) == []


@pytest.mark.parametrize("property_id", CHECKERS)
def test_an_empty_run_raises_nothing(property_id: str) -> None:
    assert said(property_id, "") == []


def test_asking_twice_gives_the_same_answer() -> None:
    checker = CHECKERS["P4"]()
    for event in tell("a VIEW 1@a a\na CAST x\na END"):
        checker.observe(event)
    assert len(checker.finish()) == 1
    assert len(checker.finish()) == 1


class TestP0WellFormed:
    def test_begins_with_join_or_view(self) -> None:
        assert said("P0", "a SUSPECT\na END") == ["a: its trace begins with SUSPECT, not with JOIN or VIEW."]

    def test_nothing_comes_after_the_end(self) -> None:
        assert said("P0", "a VIEW 1@a a\na END\na PAUSE") == ["a: it goes on with PAUSE (local 2) after its END."]

    def test_an_index_that_comes_twice(self) -> None:
        events = tell("a JOIN\na PAUSE\na END")
        events[2] = replace(events[2], local_index=1)
        assert told("P0", events) == ["a: its row 1 comes after its row 1."]

    def test_an_ordinal_that_is_left_out(self) -> None:
        events = tell("a VIEW 1@a a\na CAST x\na DELIVER x\na END")
        events[2] = replace(events[2], ordinal=3)
        assert told("P0", events) == ["a: its DELIVER (local 2) has ordinal 3 of service total in view 1@a, not 0."]

    def test_a_row_of_a_view_that_was_never_installed(self) -> None:
        events = tell("a JOIN\na CAST x\na END")
        events[1] = replace(events[1], view="7@b")
        assert told("P0", events) == ["a: its CAST (local 1) names view 7@b, but it has installed none."]


class TestP1NoCreation:
    def test_delivered_but_never_cast(self) -> None:
        events = tell("a,b VIEW 1@a a b\na CAST x\na,b DELIVER x\nall END")
        assert told("P1", renumber(event for event in events if event.kind != "CAST")) == [
            "a delivered a:0 (local 1), but a never cast it.",
            "b delivered a:0 (local 1), but a never cast it.",
        ]

    def test_delivered_by_one_who_is_not_addressed(self) -> None:
        story = "a,b,c VIEW 1@a a b c\na CAST x to a,c\na,b,c DELIVER x\nall END"
        assert said("P1", story) == ["b delivered a:0 (local 1), which a addressed to a, c only (local 1)."]

    def test_the_caster_delivers_before_it_casts(self) -> None:
        events = tell("a VIEW 1@a a\na CAST x\na DELIVER x\na END")
        assert told("P1", renumber([events[0], events[2], events[1], events[3]])) == [
            "a delivered a:0 (local 1), before a can have cast it (local 2)."
        ]

    def test_two_members_deliver_each_other_s_messages_before_casting_their_own(self) -> None:
        """No order of events explains that; where the circle is opened does not matter."""
        events = tell("a,b VIEW 1@a a b\na CAST x\nb CAST y\na,b DELIVER x\na,b DELIVER y\nall END")
        by_title = {(event.member, event.kind, event.origin): event for event in events}
        views, ends = events[:2], events[-2:]
        circle = [by_title["a", "DELIVER", "b"], by_title["a", "CAST", "a"]]
        circle += [by_title["b", "DELIVER", "a"], by_title["b", "CAST", "b"]]
        assert len(told("P1", renumber([*views, *circle, *ends]))) == 1


class TestP2NoDuplication:
    def test_the_same_message_in_two_views(self) -> None:
        story = "a VIEW 1@a a\na CAST x\na DELIVER x\na VIEW 2@a a\na DELIVER x\na END"
        assert said("P2", story) == ["a delivered a:0 twice (local 2 and local 4)."]

    def test_part_of_a_batch(self) -> None:
        story = "a VIEW 1@a a\na CAST x count 5\na DELIVER x[0:3]\na DELIVER x[2:5]\na END"
        assert said("P2", story) == ["a delivered a:2 twice (local 2 and local 3)."]

    def test_a_later_incarnation_is_another_member(self) -> None:
        story = "a,b VIEW 1@a a b\na CAST x\na,b DELIVER x\nb CRASH\nb#1 VIEW 1@a a b\nb#1 DELIVER x\nb#1 END\na END"
        assert said("P2", story) == []


class TestP3InView:
    def test_an_origin_outside_of_the_view(self) -> None:
        story = "a,b VIEW 1@a a b\nb CAST x\na,b DELIVER x\nb LEAVE\na VIEW 2@a a\na DELIVER x\na END"
        assert said("P3", story) == ["a delivered b:0 (local 3) in view 2@a, of which b is no member (a)."]

    def test_a_deliverer_outside_of_the_view(self) -> None:
        story = "a VIEW 1@a a\nb VIEW 1@a a\na CAST x\na,b DELIVER x\nall END"
        assert said("P3", story) == ["b delivered a:0 (local 1) in view 1@a, of which b is no member (a)."]


class TestP4Validity:
    def test_a_leaver_delivers_what_it_cast(self) -> None:
        assert said("P4", "a VIEW 1@a a\na CAST x count 3\na DELIVER x[0:1]\na LEAVE") == [
            "a cast a:1-2 (local 1, view 1@a) and never delivered it, although it ended with LEAVE."
        ]

    def test_a_crashed_member_owes_nothing(self) -> None:
        assert said("P4", "a VIEW 1@a a\na CAST x\na CRASH") == []

    def test_a_cut_exempts_the_last_view_only(self) -> None:
        assert said("P4", "a VIEW 1@a a\na VIEW 2@a a\na CAST x\na END cut") == []
        assert len(said("P4", "a VIEW 1@a a\na CAST x\na VIEW 2@a a\na END cut")) == 1

    def test_a_placeholder_counts(self) -> None:
        assert said("P4", "a,b VIEW 1@a a b\na CAST x to b\na PLACE x\nb DELIVER x\nall END") == []


class TestP5Agreement:
    def test_one_of_the_same_transition_lacks_a_message(self) -> None:
        story = "a,b VIEW 1@a a b\na CAST x\na DELIVER x\na,b VIEW 2@a a b from a b\nall END"
        assert said("P5", story) == [
            "a delivered a:0 (local 2) in view 1@a; b, to whom it is addressed and who also went on to 2@a, did not."
        ]

    def test_another_transitional_set_is_another_transition(self) -> None:
        story = "a,b VIEW 1@a a b\na CAST x\na DELIVER x\na VIEW 2@a a b from a\nb VIEW 2@a a b from b\nall END"
        assert said("P5", story) == []
        assert said("P14", story) == []

    def test_what_a_crashed_member_delivered_binds_nobody(self) -> None:
        assert said("P5", "a,b VIEW 1@a a b\na CAST x\na DELIVER x\na CRASH\nb VIEW 2@b b from b\nb END") == []

    def test_who_left_is_in_no_transition(self) -> None:
        assert said("P5", "a,b VIEW 1@a a b\na CAST x\na DELIVER x\nb LEAVE\na END") == []

    def test_only_addressees_are_bound(self) -> None:
        story = "a,b,c VIEW 1@a a b c\na CAST x to a,b\na DELIVER x\nc PLACE x\n{}all END"
        assert said("P5", story.format("b DELIVER x\n")) == []
        assert len(said("P5", story.format(""))) == 1

    def test_void_for_one_and_delivered_by_another(self) -> None:
        story = "a,b,c VIEW 1@a a b c\na CAST x to b,c\na PLACE x\nb DELIVER x\nc PLACE x void\nall END"
        assert len(said("P5", story)) == 2, "b delivered it, and its caster stayed"
        assert said("P14", story) == []

    def test_what_is_void_was_lost_with_its_caster_in_a_cut(self) -> None:
        cast = "a,b,c VIEW 1@a a b c\na CAST x to b,c\n"
        rest = "b,c PLACE x void\nb,c VIEW 2@b b c from b c\nall END"
        assert said("P5", f"{cast}a CRASH\nb,c BLOCK\n{rest}") == []
        assert len(said("P5", f"{cast}a CRASH\n{rest}")) == 2, "no cut had closed the view"
        together = rest.replace("b,c VIEW 2@b b c from b c", "a,b,c VIEW 2@b a b c from a b c")
        assert len(said("P5", f"{cast}a,b,c BLOCK\na PLACE x\n{together}")) == 2, "its caster came along"

    def test_a_cut_last_view_is_not_asked(self) -> None:
        story = "a,b VIEW 1@a a b\na CAST x\na DELIVER x\na,b END cut"
        assert said("P5", story) == []
        assert said("P14", story) == []

    def test_one_end_that_is_cut_excuses_nobody(self) -> None:
        """A member that ended uncut says that nothing was under way."""
        story = "a,b VIEW 1@a a b\na CAST x\na DELIVER x\na END\nb END cut"
        assert len(said("P5", story)) == 1
        assert len(said("P14", story)) == 1

    def test_batches_cut_otherwise_are_the_same_messages(self) -> None:
        story = "a,b VIEW 1@a a b\na CAST x count 4\na DELIVER x\nb DELIVER x[0:1]\nb DELIVER x[1:4]\nall END"
        for property_id in ("P5", "P7", "P8", "P9a", "P9b", "P9c", "P14"):
            assert said(property_id, story) == []


class TestP6AndP7Fifo:
    SWAPPED = "a,b VIEW 1@a a b\na CAST x\na CAST y\na DELIVER x\na DELIVER y\nb DELIVER y\nb DELIVER x\nall END"

    def test_two_of_one_origin_swapped(self) -> None:
        assert said("P6", self.SWAPPED) == ["b delivered a:1 (local 1) before a:0 (local 2)."]
        assert said("P7", self.SWAPPED) == ["b delivered a:1 (local 1) without a:0 before it in view 1@a."]

    def test_the_first_message_of_a_view_counts_for_gaps(self) -> None:
        story = "a,b VIEW 1@a a b\na CAST x\na CAST y\nb DELIVER y\na CRASH\nb VIEW 2@b b from b\nb END"
        assert said("P6", story) == []
        assert len(said("P7", story)) == 1

    def test_a_view_may_end_with_a_gap(self) -> None:
        story = "a,b VIEW 1@a a b\na CAST x\na,b VIEW 2@a a b\na CAST y\na,b DELIVER y\nall END"
        assert said("P7", story) == []

    def test_a_placeholder_fills_its_place(self) -> None:
        story = "a,b VIEW 1@a a b\na CAST x to a\na CAST y\n{}b DELIVER y\nall END"
        assert said("P7", story.format("b PLACE x\n")) == []
        assert len(said("P7", story.format(""))) == 1

    def test_a_void_payload_leaves_no_gap(self) -> None:
        story = "a,b VIEW 1@a a b\na CAST x to b\na CAST y\nb DELIVER y\n{}all END"
        assert said("P7", story.format("b PLACE x void\n")) == []
        assert len(said("P7", story.format(""))) == 1

    def test_a_causal_message_need_not_wait_for_a_total_one(self) -> None:
        story = "a,b VIEW 1@a a b\na CAST x {0}\na CAST y {1}\nb DELIVER y\nb DELIVER x\nall END"
        assert said("P6", story.format("total", "causal")) == []
        assert said("P7", story.format("total", "causal")) == []
        assert said("P8", story.format("total", "causal")) == []
        assert len(said("P6", story.format("causal", "total"))) == 1
        assert len(said("P7", story.format("causal", "total"))) == 1
        assert len(said("P8", story.format("causal", "total"))) == 1

    def test_the_same_gap_is_told_once(self) -> None:
        story = "a,b VIEW 1@a a b\na CAST x\na CAST y\na CAST z\nb DELIVER y\nb DELIVER z\nall END"
        assert len(said("P7", story)) == 1
        assert len(said("P8", story)) == 1


class TestViews:
    def test_one_id_with_two_lists(self) -> None:
        assert said("P11", "a VIEW 1@a a b\nb VIEW 1@a b a\nall END") == [
            "View 1@a has the members a, b at a (local 0), but b, a at b (local 0)."
        ]

    def test_a_view_without_the_one_who_installs_it(self) -> None:
        assert said("P11", "a VIEW 1@b b\na END") == ["a installed view 1@b (local 0) without being in it: b."]

    def test_numbers_that_do_not_increase(self) -> None:
        assert said("P12", "a VIEW 2@a a\na VIEW 2@b a\na END") == ["a installed view 2@b (local 1) after view 2@a."]
        assert said("P12", "a VIEW 9@a a\na VIEW 10@a a\na END") == []

    def test_two_incarnations_of_one_address(self) -> None:
        assert len(said("P12", "a VIEW 1@a a b b#1\na END")) == 1

    def test_a_restarted_member_counts_from_the_start(self) -> None:
        assert said("P12", "a VIEW 5@a a\na CRASH\na#1 VIEW 1@a#1 a#1\na#1 END") == []


class TestViewSynchrony:
    """The four cases of the lecture: p casts m and crashes."""

    def verdict(self, middle: str) -> set[str]:
        story = f"p,q,r VIEW 1@p p q r\np CAST m\np CRASH\n{middle}\nq,r END"
        return {property_id for property_id in ("P5", "P13", "P14") if said(property_id, story)}

    VIEW = "VIEW 2@q q r from q r"

    def test_nobody_delivers_m(self) -> None:
        assert self.verdict(f"q,r {self.VIEW}") == set()

    def test_both_deliver_m_and_then_the_view(self) -> None:
        assert self.verdict(f"q,r DELIVER m\nq,r {self.VIEW}") == set()

    def test_both_deliver_the_view_and_then_m(self) -> None:
        assert self.verdict(f"q,r {self.VIEW}\nq,r DELIVER m") == {"P13"}

    def test_one_delivers_m_before_the_view_and_the_other_does_not(self) -> None:
        assert self.verdict(f"q DELIVER m\nq,r {self.VIEW}") == {"P5", "P14"}
        assert self.verdict(f"q DELIVER m\nq,r {self.VIEW}\nr DELIVER m") == {"P5", "P13", "P14"}


DATAGRAMS = """
a,b,c VIEW 1@a a b c
a CAST x datagram
a CAST y fifo
a CAST z datagram
a DELIVER x
a,b,c DELIVER y
a,b DELIVER z
c CRASH
a,b VIEW 2@a a b from a b
all END
"""


@pytest.mark.parametrize("property_id", ["P5", "P6", "P7", "P14"])
def test_nobody_waits_for_a_datagram_and_not_everyone_gets_it(property_id: str) -> None:
    """b lacks x, although it has y, which a cast later, and although it goes on with a."""
    assert said(property_id, DATAGRAMS) == []


def test_what_is_cast_beside_datagrams_is_owed_as_ever() -> None:
    without_y = DATAGRAMS.replace("a,b,c DELIVER y", "a,c DELIVER y")
    assert [bool(said(one, without_y)) for one in ("P5", "P7", "P14")] == [True, True, True]
