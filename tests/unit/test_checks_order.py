"""Causal and total order (P8 to P10) on small stories: what is allowed, what is not, and what the sentence says."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.test_checks_properties import found, said, told
from unisono.trace.story import tell


class TestP8Causal:
    def test_an_answer_before_its_question(self) -> None:
        story = "a,b,c VIEW 1@a a b c\na CAST x\nb DELIVER x\nb CAST y\nc DELIVER y\nc DELIVER x\nall END"
        assert said("P8", story) == [
            "c delivered b:0 (local 1) in view 1@a before a:0, which is in its past (a cast it at local 1)."
        ]

    def test_transitive_through_a_message_that_is_not_addressed_to_the_receiver(self) -> None:
        story = """
            a,b,c,d VIEW 1@a a b c d
            a CAST x
            b DELIVER x
            b CAST y to b,c
            c PLACE x
            c DELIVER y
            c CAST z
            d PLACE y
            d DELIVER z
            d DELIVER x
            all END
        """
        assert [violation.witness["past"] for violation in found("P8", story)] == ["a:0"]

    def test_a_message_of_the_past_that_is_not_addressed_to_the_receiver(self) -> None:
        story = "a,b,c VIEW 1@a a b c\na CAST x to b\nb DELIVER x\nb CAST y\nc DELIVER y\nc PLACE x\nall END"
        assert said("P8", story) == []

    def test_a_void_payload_is_exempt(self) -> None:
        story = "a,b,c VIEW 1@a a b c\na CAST x to b,c\nb DELIVER x\nb CAST y\nc DELIVER y\nc PLACE x{}\nall END"
        assert said("P8", story.format(" void")) == []
        assert len(said("P8", story.format(""))) == 1

    def test_the_past_ends_with_the_view(self) -> None:
        story = "a,b VIEW 1@a a b\na CAST x\na DELIVER x\na,b VIEW 2@a a b\na CAST y\na,b DELIVER y\nall END"
        assert said("P8", story) == []

    def test_a_causal_message_waits_for_what_came_through_a_total_one(self) -> None:
        """y is total, so z need not wait for it; but x, which is causal and in y's past, must come first."""
        story = """
            a,b,c VIEW 1@a a b c
            a CAST x causal
            a CAST y total
            b DELIVER x
            b DELIVER y
            b CAST z causal
            c DELIVER z
            c DELIVER x
            c DELIVER y
            all END
        """
        assert [violation.witness["past"] for violation in found("P8", story)] == ["a:0"]


class TestP8cOwnClocks:
    def test_a_vector_that_counts_too_much(self) -> None:
        story = "a,b VIEW 1@a a b\na CAST x vector 0,0\na DELIVER x\nb CAST y vector 1,0\na,b DELIVER y\nall END"
        assert said("P8c", story, "causal") == [
            "b cast b:0 (local 1) when it had delivered [0,0] in view 1@a, but its vector says [1,0]."
        ]

    def test_the_own_entry_counts_casts(self) -> None:
        story = "a VIEW 1@a a\na CAST x count 2 vector 0\na CAST y vector 2\na DELIVER x\na DELIVER y\na END"
        assert said("P8c", story, "causal") == []

    def test_a_vector_written_with_spaces_is_the_same_vector(self) -> None:
        events = tell("a VIEW 1@a a\na CAST x vector 0\na DELIVER x\na END", service="causal")
        events[2] = replace(events[2], attributes={"vector": "[ 0 ]"})
        assert told("P8c", events) == []


class TestP9Total:
    def test_two_members_disagree(self) -> None:
        story = "a,b VIEW 1@a a b\na CAST x\nb CAST y\na DELIVER x\na DELIVER y\nb DELIVER y\nb DELIVER x\nall END"
        assert said("P9a", story) == [
            "a delivered a:0 (local 2) before b:0 (local 3), b delivered b:0 (local 2) before a:0 (local 3), in view 1@a."
        ]
        assert len(said("P9b", story)) == 1
        assert said("P9c", story) == [
            "In view 1@a ordered message number 0 is a:0 at a (local 2) and b:0 at b (local 2)."
        ]

    CIRCLE = """
        a,b,c VIEW 1@a a b c
        a CAST x
        b CAST y
        c CAST z
        a DELIVER x
        a DELIVER y
        b DELIVER y
        b DELIVER z
        c DELIVER z
        c DELIVER x
        all END
    """

    def test_a_circle_that_no_two_members_see(self) -> None:
        assert said("P9a", self.CIRCLE) == []
        assert said("P9b", self.CIRCLE) == [
            "In view 1@a the orders go in a circle: a delivered a:0 (local 2) before b:0 (local 3), "
            "b delivered b:0 (local 2) before c:0 (local 3), c delivered c:0 (local 2) before a:0 (local 3)."
        ]

    def test_a_message_that_one_member_lacks(self) -> None:
        story = "a,b VIEW 1@a a b\na CAST x\na CAST y\na DELIVER x\na DELIVER y\nb DELIVER y\nall END"
        assert said("P9a", story) == []
        assert said("P9b", story) == []
        assert len(said("P9c", story)) == 1

    def test_a_shorter_sequence_is_no_other_order(self) -> None:
        story = "a,b VIEW 1@a a b\na CAST x\na CAST y\na DELIVER x\na DELIVER y\nb DELIVER x\nall END"
        for property_id in ("P9a", "P9b", "P9c"):
            assert said(property_id, story) == []

    def test_two_partitions_need_not_agree(self) -> None:
        story = """
            a,b VIEW 1@a a b
            a CAST x
            b CAST y
            a DELIVER x
            a DELIVER y
            b DELIVER y
            b DELIVER x
            a VIEW 2@a a from a
            b VIEW 2@b b from b
            all END
        """
        for property_id in ("P9a", "P9b", "P9c"):
            assert said(property_id, story) == []
        assert len(said("P10", story)) > 0

    def test_other_services_are_not_judged(self) -> None:
        story = "a,b VIEW 1@a a b\na CAST x\nb CAST y\na DELIVER x\na DELIVER y\nb DELIVER y\nb DELIVER x\nall END"
        for property_id in ("P9a", "P9b", "P9c", "P10"):
            assert said(property_id, story, "causal") == []

    def test_placeholders_keep_their_place(self) -> None:
        story = "a,b VIEW 1@a a b\na CAST x\na CAST y to a\na DELIVER x\na DELIVER y\nb PLACE y\nb DELIVER x\nall END"
        assert len(said("P9a", story)) == 1

    def test_a_batch_torn_apart_at_one_member(self) -> None:
        """b puts y between the two messages of x: it agrees with a on (x0, y) and disagrees on (x1, y)."""
        story = """
            a,b VIEW 1@a a b
            a CAST x count 2
            b CAST y
            a DELIVER x
            a DELIVER y
            b DELIVER x[0:1]
            b DELIVER y
            b DELIVER x[1:2]
            all END
        """
        assert [(one.witness["x"], one.witness["y"]) for one in found("P9a", story)] == [("a:1", "b:0")]
        assert [violation.witness["number"] for violation in found("P9c", story)] == [1]


class TestP10UniformTotal:
    def test_what_a_crashed_member_delivered_is_a_prefix(self) -> None:
        story = """
            a,b VIEW 1@a a b
            a CAST x
            b CAST y
            a DELIVER x
            a CRASH
            b BLOCK
            b DELIVER y
            {}b VIEW 2@b b from b
            b END
        """
        assert said("P10", story.format("b DELIVER x\n")) == [
            "In view 1@a a (which ended with CRASH) delivered a:0 as ordered message number 0 (local 2) before it blocked; "
            "b has b:0 (local 3)."
        ]
        for property_id in ("P9a", "P9b", "P9c"):
            assert said(property_id, story.format("b DELIVER x\n")) == []

    def test_a_survivor_that_lacks_it(self) -> None:
        story = "a,b VIEW 1@a a b\na CAST x\na DELIVER x\na CRASH\nb BLOCK\nb VIEW 2@b b from b\nb END"
        assert len(said("P10", story)) == 1

    def test_after_its_block_a_member_is_not_asked(self) -> None:
        story = "a,b VIEW 1@a a b\na CAST x\na,b BLOCK\na DELIVER x\na CRASH\nb VIEW 2@b b from b\nb END"
        assert said("P10", story) == []
