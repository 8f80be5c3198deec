"""Looks at a page with a real browser, and says everything that is wrong with it.

Each check returns a list of offences; an empty list is a good page. Whether a check can fail is tested too.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

THEMES = ("light", "dark")
WIDTHS = {1280: 800, 390: 844}
CONTRAST_AT_LEAST = 4.5
ARGUMENTS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip


def find_chromium() -> str | None:
    """Where the browser is: `UNISONO_CHROMIUM`, or wherever the system has it."""
    names = ("chromium", "chromium-browser", "google-chrome")
    return os.environ.get("UNISONO_CHROMIUM") or next(filter(None, map(shutil.which, names)), None)


@contextmanager
def open_browser(executable: str) -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=list(ARGUMENTS))
        try:
            yield browser
        finally:
            browser.close()


class Visit:
    """One page in one theme and width, with what it said and asked for while it was loaded."""

    def __init__(self, page: Page, file: Path) -> None:
        self.page = page
        self.file = file
        self.said: list[str] = []
        self.asked_for: list[str] = []
        page.on("console", lambda message: self.said.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: self.said.append(f"error: {error}"))
        page.on("dialog", self._dialog)
        page.on("request", lambda request: self.asked_for.append(request.url))
        page.goto(file.resolve().as_uri(), wait_until="load")

    def _dialog(self, dialog: Any) -> None:
        self.said.append(f"dialog: {dialog.message}")
        dialog.dismiss()


@contextmanager
def visit(
    browser: Browser, file: Path, theme: str = "light", width: int = 1280, scripts: bool = True
) -> Iterator[Visit]:
    context = browser.new_context(
        color_scheme="dark" if theme == "dark" else "light",
        viewport={"width": width, "height": WIDTHS.get(width, 800)},
        java_script_enabled=scripts,
    )
    try:
        yield Visit(context.new_page(), file)
    finally:
        context.close()


def noise(seen: Visit) -> list[str]:
    """A good page says nothing on the console."""
    return list(seen.said)


def connections(seen: Visit) -> list[str]:
    """It asks for itself and nothing else; what lies inside it as data is no request."""
    own = seen.file.resolve().as_uri()
    return [url[:200] for url in seen.asked_for if url != own and not url.startswith("data:")]


def overflow(seen: Visit) -> list[str]:
    """The page itself never scrolls sideways; boxes inside it may."""
    wide, window = seen.page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
    return [f"the page is {wide} px wide in a window of {window} px"] if wide > window else []


def broken_images(seen: Visit) -> list[str]:
    broken = (
        "all => all.filter(i => !(i.complete && i.naturalWidth > 0)).map(i => i.currentSrc.slice(0, 80) || 'empty')"
    )
    return list(seen.page.eval_on_selector_all("img", broken))


def silent_images(seen: Visit) -> list[str]:
    """Pictures that say nothing to someone who does not see them."""
    silent = "img:not([alt]), img[alt=''], svg:not([aria-label])"
    return list(seen.page.eval_on_selector_all(silent, "all => all.map(i => i.outerHTML.slice(0, 80))"))


def faint_text(seen: Visit) -> list[str]:
    """Every text outside of pictures, against the background that it really has."""
    found = seen.page.evaluate(_CONTRASTS)
    return [f"{text!r}: {ratio:.2f}" for text, ratio in found if ratio < CONTRAST_AT_LEAST]


_CONTRASTS = """() => {
  const rgb = text => text.match(/[\\d.]+/g).map(Number);
  const linear = v => (v /= 255) <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => .2126 * linear(r) + .7152 * linear(g) + .0722 * linear(b);
  const ground = element => {
    for (let e = element; e; e = e.parentElement) {
      const c = rgb(getComputedStyle(e).backgroundColor);
      if (c.length < 4 || c[3] > 0) return c.slice(0, 3);
    }
    return matchMedia('(prefers-color-scheme: dark)').matches ? [0, 0, 0] : [255, 255, 255];
  };
  const found = [];
  for (const e of document.querySelectorAll('body *:not(script):not(svg):not(svg *)')) {
    const text = [...e.childNodes].filter(n => n.nodeType === 3).map(n => n.data.trim()).join(' ').trim();
    if (!text || !e.checkVisibility()) continue;
    const a = light(rgb(getComputedStyle(e).color).slice(0, 3)), b = light(ground(e));
    found.push([text.slice(0, 60), (Math.max(a, b) + .05) / (Math.min(a, b) + .05)]);
  }
  return found;
}"""


def bare_structure(seen: Visit) -> list[str]:
    """Headings in order, one of the first rank; tables with heads; landmarks."""
    ranks = seen.page.evaluate("[...document.querySelectorAll('h1,h2,h3,h4')].map(h => +h.tagName[1])")
    offences = [] if ranks.count(1) == 1 else [f"there are {ranks.count(1)} first headings"]
    offences += [f"a heading of rank {b} follows one of rank {a}" for a, b in pairwise(ranks) if b > a + 1]
    tables = "[...document.querySelectorAll('table')].filter(t => !t.querySelector('thead th[scope=col]') || !t.caption).length"
    offences += [f"{bad} tables have no head or caption" for bad in [seen.page.evaluate(tables)] if bad]
    wanted = {"main": "main", "language": "html[lang]", "title": "title"}
    return offences + [f"there is no {name}" for name, css in wanted.items() if seen.page.query_selector(css) is None]


CHECKS: tuple[Callable[[Visit], list[str]], ...] = (
    noise,
    connections,
    overflow,
    broken_images,
    silent_images,
    faint_text,
    bare_structure,
)


def offences(seen: Visit) -> list[str]:
    return [f"{check.__name__}: {offence}" for check in CHECKS for offence in check(seen)]
