"""Every story is told as its file says. `./dev stories --rewrite` writes what happens now; review that as a diff."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.stories import by_hand, members
from tests.stories.forms import Forms
from tests.stories.packets import FATES
from tests.stories.showing import by_variant, in_short
from tests.stories.telling import tell
from tests.stories.text import StoryError, all_stories, read_story, takes_seconds


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=path.stem, marks=pytest.mark.seconds if takes_seconds(path.stem) else ())
        for path in all_stories()
    ],
)
def test_the_story_is_told_as_its_file_says(path: Path) -> None:
    story = read_story(path)
    difference = story.differences(tell(story))
    assert not difference, difference
    assert "PASS" in story.lines[story.blocks[-1].begin :], "the checkers have the last word"


PLAYED = """# A story for its mistakes

Two members.

members a b
a casts m
wait 10ms
----
a b: delivers m

judge
----
PASS
"""


def told(folder: Path, text: str) -> str:
    path = folder / "story.txt"
    path.write_text(text, "utf-8")
    return tell(read_story(path))


def test_what_is_written_below_the_line_does_not_change_what_is_told(tmp_path: Path) -> None:
    assert told(tmp_path, PLAYED) == PLAYED
    assert told(tmp_path, PLAYED.replace("delivers m\n", "delivers nothing\nat all\n")) == PLAYED
    (tmp_path / "other.txt").write_text(PLAYED.replace("delivers m", "delivers n"), "utf-8")
    assert "-a b: delivers n\n+a b: delivers m\n" in read_story(tmp_path / "other.txt").differences(PLAYED)


@pytest.mark.parametrize(
    ("command", "line", "sentence"),
    [
        ("a shouts m", 6, "there is no such command"),
        ("c casts m", 6, "there is no member 'c'"),
        ("lose cast a -> c", 6, "there is no member 'c'"),
        ("lose rumour a -> b", 6, "there is no kind of packet"),
        ("lose cast a to b", 6, "write: lose"),
        ("lose cut a -> b", 6, "it met no packet"),
        ("delay cast a -> b", 6, "need a time"),
        ("until b delivers n within 1s", 6, "not within 1.0 s"),
        ("until b dances", 6, "write: until view PARTS, or: "),
        ("settings patience=3", 6, "before the first member"),
        ("network gravity=1%", 6, "the network has no gravity"),
        ("show mercy", 6, "write: show packets WORD to MEMBERS, or: "),
        ("show packets rumour", 6, "there is no kind of packet"),
        ("a crashes loudly", 6, "write: MEMBERS crash."),
        ("heal a", 6, "write: heal."),
        ("wait long", 6, "is not a duration"),
        ("a crashes\na crashes", 7, "a is not up"),
    ],
)
def test_a_mistake_is_told_with_its_line(tmp_path: Path, command: str, line: int, sentence: str) -> None:
    with pytest.raises(StoryError, match=f"^story.txt:{line}: ") as caught:
        told(tmp_path, PLAYED.replace("a casts m\n", f"{command}\n"))
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("# A story", "A story", "no title"),
        ("Two members.", "two members.", "neither prose"),
        ("judge", "wait 1s", "the last command"),
    ],
)
def test_a_file_that_is_no_story_is_refused(tmp_path: Path, old: str, new: str, sentence: str) -> None:
    with pytest.raises(StoryError, match=sentence):
        told(tmp_path, PLAYED.replace(old, new, 1))


BY_HAND = PLAYED.replace("members a b", "orders fifo NotAnOrder\nengines a b").replace("wait 10ms", "a -> b")


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("fifo Not", "Not", "story.txt:5: orders NotAnOrder\n  there is no order"),
        (" NotAnOrder\nengines a b", "\nengines b a", "engines are called a b"),
        (" NotAnOrder", "", "story.txt:8: a -> b, a -> b\n  nothing is under way: a -> b."),
    ],
)
def test_a_mistake_by_hand_is_told_too(tmp_path: Path, old: str, new: str, sentence: str) -> None:
    with pytest.raises(StoryError) as caught:
        told(tmp_path, BY_HAND.replace(old, new).replace("a -> b", "a -> b, a -> b"))
    assert sentence in str(caught.value)


@pytest.mark.parametrize("forms", [members.FORMS, by_hand.FORMS])
def test_the_page_of_the_language_lists_every_form(forms: Forms) -> None:
    page = (Path(__file__).parent / "README.md").read_text("utf-8")
    assert [form.text for form in forms.table if f"`{form.text}`" not in page] == []
    assert [fate for fate in FATES if f"`{fate}" not in page] == []


def test_many_payloads_are_told_as_ranges_and_variants_by_what_they_share() -> None:
    assert in_short(["a1", "a2", "x", "a3"]) == "a1..a2 x a3"
    assert in_short([f"{name}{n}" for n in range(1, 9) for name in "ab"]) == "16 mixed: a1..a8 b1..b8"
    variants = [(order, way) for way in ("star", "ring") for order in ("fifo", "toto")]
    by_order = [(variant, [variant[0]]) for variant in variants]
    assert by_variant(by_order) == ["[fifo]", "fifo", "[toto]", "toto"]
    by_way = [(variant, [variant[1]]) for variant in variants]
    assert by_variant(by_way) == ["[star]", "star", "[ring]", "ring"]
    assert by_variant([(variant, []) for variant in variants]) == ["nothing is shown"]
