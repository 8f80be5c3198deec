"""The documentation is under test: links lead somewhere, commands that are shown exist, examples work.

Commands are parsed and their scenarios built, but nothing is simulated: that takes no time, and finds what has gone stale.
"""

from __future__ import annotations

import asyncio
import re
import shlex
import tomllib
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.main import get_command

import unisono
from unisono.cli.app import app
from unisono.cli.options import RunOptions
from unisono.sim.explore.orders import Case, explore, replay

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])

LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`((?:unisono|\./dev)(?: [^`]*)?)`")


class Shown(NamedTuple):
    """A command as a page shows it."""

    page: str
    words: tuple[str, ...]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT)) if page.is_relative_to(ROOT) else page.name


def links_of(page: Path) -> Iterator[str]:
    prose = BLOCK.sub("", page.read_text("utf-8"))
    yield from (target for target in LINK.findall(prose) if not re.match(r"\w+:", target))


def anchors_of(page: Path) -> set[str]:
    """The headings of a page as a link names them."""
    prose = BLOCK.sub("", page.read_text("utf-8"))
    headings = re.findall(r"^#+ (.*)$", prose, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(page: Path) -> list[str]:
    offences = []
    for target in links_of(page):
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        if not found.exists():
            offences.append(f"{name_of(page)}: {target} is not there")
        elif anchor and anchor not in anchors_of(found):
            offences.append(f"{name_of(page)}: {target} has no such heading")
    return offences


def commands_of(page: Path) -> Iterator[Shown]:
    """Every line behind a prompt, and every command within a sentence."""
    text = page.read_text("utf-8")
    for language, block in BLOCK.findall(text):
        if language == "console":
            for line in re.findall(r"^\$ (.*)$", block, re.MULTILINE):
                yield Shown(name_of(page), tuple(shlex.split(line)))
    for inline in INLINE.findall(BLOCK.sub("", text)):
        yield Shown(name_of(page), tuple(shlex.split(inline)))


def mistake_in(words: tuple[str, ...]) -> str | None:
    """Why a command line cannot be run, or None if it can."""
    if words[0] == "./dev":
        return _mistake_in_dev(words[1:])
    if words[0] == "pip":
        return _mistake_in_pip(words[1:])
    if words[0] != "unisono":
        return (
            None
            if words[0] == "source" or words == ("python3", "-m", "venv", ".venv")
            else f"nobody knows what {words[0]} is"
        )
    command: Any = get_command(app)
    arguments = list(words[1:])
    while hasattr(command, "commands") and arguments:
        name = arguments.pop(0)
        if any(name in option.opts for option in command.params):
            continue
        if name not in command.commands:
            return f"there is no command {name}"
        command = command.commands[name]
    if not arguments:  # a command that is only mentioned
        return None
    try:
        parameters = command.make_context(command.name, arguments).params
        _build_scenarios(parameters)
    except Exception as error:
        return getattr(error, "message", None) or str(error)
    return None


def _mistake_in_dev(words: tuple[str, ...]) -> str | None:
    if not words:
        return None
    listed = re.findall(r"^  (\w+) ", (ROOT / "dev").read_text("utf-8"), re.MULTILINE)
    if words[0] not in listed:
        return f"./dev has no verb {words[0]}"
    if words[0] == "bench" and not (ROOT / "benchmarks" / f"{words[1]}.py").exists():
        return f"there is no benchmark {words[1]}"
    return None


def extras() -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return set(project["optional-dependencies"])


def _mistake_in_pip(words: tuple[str, ...]) -> str | None:
    """Only a checkout can be installed, with extras that there are."""
    found = re.fullmatch(r"install \.(?:\[([\w,]+)\])?", " ".join(words))
    if found is None:
        return "nobody knows what pip is to do"
    unknown = set((found[1] or "").split(",")) - {""} - extras()
    return f"there is no extra {', '.join(sorted(unknown))}" if unknown else None


def _build_scenarios(parameters: dict[str, Any]) -> None:
    """What options describe must make sense together: an order that exists, a delay that can be read, faults that fit."""
    given = {field.name: parameters[field.name] for field in fields(RunOptions) if field.name in parameters}
    if {"members", "seed", "delay"} <= given.keys():
        for order in str(parameters.get("orders") or parameters["order"]).split(","):
            RunOptions(**given | {"order": order}).scenario()


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    assert not broken_links(page)


@pytest.mark.seconds
@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_can_be_run_as_they_are_shown(page: Path) -> None:
    mistakes = {shlex.join(shown.words): mistake_in(shown.words) for shown in commands_of(page)}
    assert not {line: mistake for line, mistake in mistakes.items() if mistake}


def test_pages_that_must_show_commands_do() -> None:
    assert len(list(commands_of(ROOT / "README.md"))) >= 8
    assert len(list(commands_of(ROOT / "docs" / "tour.md"))) >= 5
    assert len(list(commands_of(ROOT / "docs" / "commands.md"))) >= 20


def test_the_readme_says_of_every_extra_what_it_is_for() -> None:
    section = (ROOT / "README.md").read_text("utf-8").partition("\n## Install\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| \S.* \| \S.* \|$", section, re.MULTILINE)
    assert sorted(rows) == sorted(extras())


def test_every_picture_is_shown_and_has_the_command_that_draws_it() -> None:
    pages = {page: page.read_text("utf-8") for page in PAGES}
    shown = {(page.parent / target).resolve() for page in pages for target in links_of(page)}
    pictures = sorted((ROOT / "docs" / "img").rglob("*.svg"))
    assert all(picture in shown for picture in pictures), sorted(picture.name for picture in set(pictures) - shown)
    for picture in (ROOT / "docs" / "img").glob("*.svg"):  # those of properties: tests/unit/test_properties_page.py
        assert any(f"--out docs/img/{picture.name}" in text for text in pages.values()), f"who draws {picture.name}?"


@pytest.mark.parametrize("path", sorted((ROOT / "docs" / "replays").iterdir()), ids=lambda path: path.name)
def test_replay_files_can_be_replayed(path: Path) -> None:
    lines: list[str] = []
    assert replay(path, write=lines.append) is None, "\n".join(lines)


def block_of(page: str, name: str) -> str:
    """The code of a page that a test runs."""
    text = (ROOT / "docs" / page).read_text("utf-8").partition(f"<!-- tested: {name} -->\n")[2]
    found = BLOCK.match(text)
    assert found is not None
    return found[2]


def undocumented(command: Any, words: str, page: str) -> Iterator[str]:
    """Options of a command and those below it that neither its section nor the one on shared options names."""
    if hasattr(command, "commands"):
        for name, one in command.commands.items():
            yield from undocumented(one, f"{words} {name}", page)
        return
    sections = re.split(r"^## ", page, flags=re.MULTILINE)
    family, last = words.rsplit(" ", 1)
    own = [
        one
        for one in sections
        if one.startswith((f"{words}\n", f"{family}\n"))
        or (one.startswith(f"{family} ") and f"{last}," in one.partition("\n")[0] + ",")
    ]
    if not own:
        yield f"{words} has no section"
    shared = next(one for one in sections if one.startswith("Options that several"))
    for parameter in command.params:
        names = [option for option in (*parameter.opts, *parameter.secondary_opts) if option.startswith("-")]
        named = re.compile("|".join(rf"(?<![\w-]){re.escape(name)}(?![\w-])" for name in names))
        if names and "--help" not in names and not any(named.search(one) for one in (*own, shared)):
            yield f"{words} {max(names, key=len)}"


def test_every_command_and_every_option_is_on_its_page() -> None:
    page = (ROOT / "docs" / "commands.md").read_text("utf-8")
    assert not list(undocumented(get_command(app), "unisono", page))


def test_an_option_that_no_page_names_is_found() -> None:
    page = (ROOT / "docs" / "commands.md").read_text("utf-8")
    assert "unisono node --pace" in list(undocumented(get_command(app), "unisono", page.replace("--pace", "pace")))
    without = page.replace("## unisono keygen", "## keygen")
    assert "unisono keygen has no section" in list(undocumented(get_command(app), "unisono", without))


@pytest.mark.seconds
def test_the_test_on_the_page_on_testing_passes() -> None:
    names: dict[str, Any] = {"__name__": "docs"}
    exec(block_of("testing.md", "virtual time"), names)
    names["test_a_crash_is_noticed"]()


@pytest.mark.seconds
def test_the_test_of_processes_on_the_page_on_testing_passes() -> None:
    names: dict[str, Any] = {"__name__": "docs"}
    exec(block_of("testing.md", "processes"), names)
    names["test_a_process_comes_back_with_its_journal"]()


def test_the_program_that_looks_at_views_notices_who_diverged(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {"__name__": "docs", "unisono": unisono}
    exec(block_of("reference.md", "views"), names)
    peers = [f"10.0.0.{number}:7400" for number in (1, 2, 3)]
    applied: list[bytes] = []
    compared: list[str] = []

    async def main(network: unisono.sim.Network) -> None:
        groups = await asyncio.gather(*(unisono.join("g", listen=one, peers=peers, min_members=3) for one in peers))
        first = groups[0]
        told = (lambda sender, payload: applied.append(payload), lambda member: compared.append(member.address))
        following = asyncio.ensure_future(names["follow"](first, *told))
        await asyncio.sleep(1)
        compared.clear()
        network.partition([peers[:1], peers[1:]])
        await first.cast(b"alone")
        await asyncio.sleep(10)
        network.heal()
        while not compared:
            await asyncio.sleep(0.1)
        for group in groups:
            await group.leave()
        await following

    unisono.sim.in_virtual_time(main)
    assert applied == [b"alone"]
    assert compared == peers[1:]
    assert "the same rest at 10.0.0.1:7400" in capsys.readouterr().out


def added_protocol(lost_line: str = "") -> Any:
    """The class of the page, perhaps without one of its lines."""
    imports = (
        "from typing import NamedTuple\n"
        "from unisono.core.types import Batch, Property, Service\n"
        "from unisono.core.wire.codec import BATCH, SLOT, Layout\n"
        "from unisono.orders.fifo import Fifo\n"
    )
    names: dict[str, Any] = {"__name__": "docs"}
    code = block_of("adding-a-protocol.md", "rounds")
    assert lost_line in code
    exec(imports + code.replace(lost_line, "", 1), names)
    return names["Rounds"]


def test_the_protocol_that_is_added_keeps_its_promises() -> None:
    """Explored like any order: with two and three members, and with crashes."""
    for case in (Case.of(1, 2), Case.of(2, 1), Case.of(0, 0, 2)):
        report = explore(case, added_protocol(), crashes=case.members - 1)
        assert report.complete, str(report.violation)


def test_the_first_draft_of_the_protocol_needs_three_messages_to_be_found() -> None:
    """Found by doing what the page said: with two messages, the default of the command, nothing was found."""
    draft = added_protocol("self._skip_to(max(self._held) - 1, out)")
    assert all(explore(case, draft, crashes=1).violation is None for case in (Case.of(2, 0), Case.of(1, 1)))
    assert explore(Case.of(1, 2), draft, crashes=1).violation is not None


# A check that cannot fail proves nothing.


@pytest.mark.parametrize(
    "words",
    [
        "unisono simulate",
        "unisono sim run --nope",
        "unisono sim run --order nope",
        "unisono sim run --members many",
        "unisono sim run --delay soon",
        "unisono sim run --members 3 --fault crash:d@1ms",
        "unisono compare sequencer,nope --seed 7",
        "unisono compare --seed 7",
        "./dev nope",
        "./dev bench nope",
        "unisono --nope",
        "pip install unisono",
        "pip install .[nope]",
        "rm -r docs",
    ],
)
def test_a_command_that_cannot_be_run_is_found(words: str) -> None:
    assert mistake_in(tuple(words.split()))


@pytest.mark.parametrize("target", ["nowhere.md", "#nowhere", "other.md#nowhere"])
def test_a_link_to_nowhere_is_found(target: str, tmp_path: Path) -> None:
    (tmp_path / "other.md").write_text("# Somewhere\n", "utf-8")
    page = tmp_path / "page.md"
    page.write_text(f"# Here\n\n[here](#here) [there](other.md#somewhere) [lost]({target})\n", "utf-8")
    assert len(broken_links(page)) == 1
