"""The report in a real browser: by day and by night, on a laptop and on a phone, with names that attack it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.web import pages, reports
from unisono.pipeline.report.model import ReportData
from unisono.pipeline.report.page import build

for module in ("playwright", "matplotlib", "jinja2"):
    if find_spec(module) is None:
        pytest.skip(f"the report's tests need {module}", allow_module_level=True)
if pages.find_chromium() is None:
    pytest.skip("there is no Chromium on this machine (on Debian: apt-get install chromium)", allow_module_level=True)

if TYPE_CHECKING:
    from playwright.sync_api import Browser

SCREENS = [(theme, width) for theme in pages.THEMES for width in pages.WIDTHS]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    executable = pages.find_chromium()
    assert executable is not None
    with pages.open_browser(executable) as opened:
        yield opened


Built = Callable[[str], tuple[ReportData, Path]]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """A report by its name in `reports`, built once."""
    made: dict[str, tuple[ReportData, Path]] = {}

    def make(name: str) -> tuple[ReportData, Path]:
        if name not in made:
            data: ReportData = getattr(reports, name)()
            made[name] = data, build(data, tmp_path_factory.mktemp(name))
        return made[name]

    return make


@pytest.mark.parametrize(("theme", "width"), SCREENS)
@pytest.mark.parametrize("name", ["mixed", "clean", "hostile", "many"])
def test_a_page_is_good_on_every_screen(name: str, theme: str, width: int, built: Built, browser: Browser) -> None:
    _, file = built(name)
    with pages.visit(browser, file, theme, width) as seen:
        assert pages.offences(seen) == []


@pytest.mark.parametrize(("theme", "width"), SCREENS)
def test_the_verdict_is_what_one_sees_first(theme: str, width: int, built: Built, browser: Browser) -> None:
    _, file = built("mixed")
    with pages.visit(browser, file, theme, width) as seen:
        verdict = seen.page.locator("h1")
        box = verdict.bounding_box()
        assert "FAIL" in verdict.inner_text()
        assert box is not None
        assert box["y"] + box["height"] < 250
        assert float(verdict.evaluate("e => parseFloat(getComputedStyle(e).fontSize)")) >= 40
        headings = seen.page.locator("h2").all_inner_texts()
        assert headings == [
            *("Who kept which promise", "What was broken", "What cannot be known", "How long a message takes"),
            *("Where the time goes", "How many must be heard", "What a message costs", "Who was in which view when"),
            "What each property says",
        ]


def test_every_violation_is_told_and_the_weakest_are_drawn(built: Built, browser: Browser) -> None:
    data, file = built("mixed")
    with pages.visit(browser, file) as seen:
        text = seen.page.locator("body").text_content() or ""
        sentences = [finding.sentence for run in data.runs for finding in run.findings]
        assert len(sentences) >= 5
        assert [sentence for sentence in sentences if sentence not in text] == []
        drawn = seen.page.locator("article svg[role=img]").count()
        assert drawn == sum(1 for run in data.runs for finding in run.findings if finding.diagram) >= 3
        assert seen.page.locator("article svg .ring").count() >= drawn
        assert "follows from P9a" in text


def test_gaps_and_rows_set_aside_are_told(built: Built, browser: Browser) -> None:
    data, file = built("mixed")
    with pages.visit(browser, file) as seen:
        gaps = seen.page.locator("#gaps").inner_text()
        assert "its trace stops without END, LEAVE or CRASH" in gaps
        assert "3 rows" in gaps
        assert all(problem in gaps for problem in data.problems)


def test_dark_pages_show_dark_pictures(built: Built, browser: Browser) -> None:
    _, file = built("mixed")
    shown = {}
    for theme in pages.THEMES:
        with pages.visit(browser, file, theme) as seen:
            shown[theme] = seen.page.eval_on_selector_all("img", "all => all.map(i => i.currentSrc)")
    assert len(shown["light"]) == 4
    assert all(light != dark for light, dark in zip(shown["light"], shown["dark"], strict=True))


def test_without_javascript_nothing_is_missing(built: Built, browser: Browser) -> None:
    data, file = built("many")
    with pages.visit(browser, file, scripts=False) as seen:
        assert seen.page.locator("tr[data-run]").count() == len(data.runs)
        assert not seen.page.locator("#filter").is_visible()


def test_five_hundred_runs_stay_readable(built: Built, browser: Browser) -> None:
    data, file = built("many")
    assert len(data.runs) == 500
    assert file.stat().st_size < 5_000_000
    with pages.visit(browser, file) as seen:
        page = seen.page
        assert page.evaluate("document.documentElement.scrollHeight") < 20_000
        shown = page.locator("#promises tr[data-run]:visible")
        assert shown.count() == 15
        assert set(shown.evaluate_all("all => all.map(r => r.dataset.result)")) == {"FAIL"}
        assert "and 485 more runs" in page.locator("#promises").inner_text()
        page.locator("#filter input").fill("night-0123")
        assert shown.count() == 1
        assert "1 of 500 runs" in page.locator("#filter output").inner_text()
        page.locator("#filter input").fill("")
        page.locator("#filter select").select_option("FAIL")
        assert shown.count() == sum(run.result == "FAIL" for run in data.runs)


def test_hostile_names_are_only_names(built: Built, browser: Browser) -> None:
    _, file = built("hostile")
    with pages.visit(browser, file) as seen:
        page = seen.page
        assert page.evaluate("window.hacked") is None
        assert page.locator("script").count() == 1
        assert page.locator("img").count() == 4
        assert page.locator("[onerror], [onload]").count() == 0
        assert reports.HOSTILE[0] in (page.locator("#violations").text_content() or "")
        assert "\u202e" not in page.locator("body").inner_text()
        hrefs = page.eval_on_selector_all("a", "all => all.map(a => a.getAttribute('href'))")
        assert all(href.startswith("#") for href in hrefs)


def test_every_link_leads_somewhere(built: Built, browser: Browser) -> None:
    _, file = built("mixed")
    with pages.visit(browser, file) as seen:
        dead = (
            """all => all.filter(a => !document.getElementById(decodeURIComponent(a.hash.slice(1)))).map(a => a.hash)"""
        )
        assert seen.page.eval_on_selector_all("a", dead) == []


def test_a_page_may_be_built_again_and_is_the_same(built: Built, tmp_path: Path) -> None:
    data, file = built("mixed")
    assert build(data, tmp_path).read_bytes() == file.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        [
            "report.html",
            *(f"{name}{dark}.png" for name in ("cost", "latency", "tau", "waits") for dark in ("", "-dark")),
        ]
    )


# The checks are checked: a page that is broken on purpose must be found out.

GOOD = """<!doctype html><html lang="en"><title>t</title><style>body {{ margin: 8px; background: #fff; color: #111 }}</style>
<main><h1>One</h1>{}</main></html>"""
FAULTS: list[tuple[Callable[[pages.Visit], list[str]], str]] = [
    (pages.noise, "<script>console.error('no')</script>"),
    (pages.noise, "<script>throw new Error('no')</script>"),
    (pages.noise, "<script>alert(1)</script>"),
    (pages.connections, "<img alt='x' src='http://127.0.0.1:9/x.png'>"),
    (pages.connections, "<link rel=stylesheet href='http://127.0.0.1:9/x.css'>"),
    (pages.overflow, "<div style='width: 3000px'>wide</div>"),
    (pages.broken_images, "<img alt='x' src='data:image/png;base64,AAAA'>"),
    (pages.silent_images, "<img src='data:,'>"),
    (pages.silent_images, "<svg width=5 height=5></svg>"),
    (pages.faint_text, "<p style='color: #999'>faint</p>"),
    (pages.faint_text, "<p style='background: #123'>faint</p>"),
    (pages.bare_structure, "<h1>Two</h1>"),
    (pages.bare_structure, "<h3>Too deep</h3>"),
    (pages.bare_structure, "<table><tr><td>1</table>"),
]


@pytest.mark.parametrize(("check", "fault"), FAULTS)
def test_a_planted_fault_is_found(
    check: Callable[[pages.Visit], list[str]], fault: str, tmp_path: Path, browser: Browser
) -> None:
    file = tmp_path / "broken.html"
    file.write_text(GOOD.format(fault), "utf-8")
    with pages.visit(browser, file) as seen:
        assert check(seen) != []


def test_a_page_without_faults_is_let_pass(tmp_path: Path, browser: Browser) -> None:
    file = tmp_path / "good.html"
    file.write_text(GOOD.format("<h2>Two</h2>"), "utf-8")
    with pages.visit(browser, file) as seen:
        assert pages.offences(seen) == []


def test_every_check_has_a_planted_fault() -> None:
    assert {check for check, _ in FAULTS} == set(pages.CHECKS)
