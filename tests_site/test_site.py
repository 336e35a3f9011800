"""The documentation site in a browser: search, phones, light and dark. Nothing fails or comes from elsewhere."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

SITE = Path(__file__).resolve().parent.parent / "build/site"
Visit = Callable[..., Page]
SCRIPTS = {path.stem: path.read_text("utf-8") for path in Path(__file__).parent.glob("*.js")}
PAGES = sorted(str(p.relative_to(SITE)).removesuffix("index.html") for p in SITE.rglob("index.html"))
PICTURES = [p for p in PAGES if "<img" in (SITE / p / "index.html").read_text("utf-8")]
# One of each kind: text, tables, code of three languages, the API of a module and of a class, operations.
KINDS = ["", "coverage/", "tutorials/gpt/", "go/", "c/", "api/distributed.fsdp/", "api/nn/Linear/", "reference/loss/"]
WORDS = {
    "fully_shard": "api/distributed.fsdp/",
    "Linear": "api/nn/Linear/",
    "AdamW": "api/optim/AdamW/",
    "cross_entropy": "reference/loss/",
    "no_grad": "api/plait/",
}
LEAST = 4.5  # what the Web Content Accessibility Guidelines want of a text's contrast
screens = pytest.mark.parametrize("screen", ["desktop", "phone"])
schemes = pytest.mark.parametrize("scheme", ["light", "dark"])


def look(at: Page | Locator) -> dict[str, Any]:
    """Returns what a screenshot shows: how many colours, the lightness of the commonest, and the range of all."""
    page = at.page if isinstance(at, Locator) else at
    shot = base64.b64encode(at.screenshot(animations="disabled")).decode()
    return page.evaluate(SCRIPTS["colours"], f"data:image/png;base64,{shot}")


def test_there_are_pages() -> None:
    assert {*KINDS, *WORDS.values()} <= set(PAGES)
    assert {"", "examples/", "tutorials/pipelines/"} <= set(PICTURES)


def test_code_in_tables_shows_no_escapes() -> None:
    """Where the text around it needs them."""
    assert not [
        p for p in PAGES if re.search(r"<td>[^\n]*<code>[^<]*\\[\[*]", (SITE / p / "index.html").read_text("utf-8"))
    ]


def test_every_page_fits_a_phone(visit: Visit, address: str) -> None:
    """Nothing is wider than the screen or cut off, wide tables and code scroll, and names stay whole."""
    page = visit("", "phone")
    # The index of the search, which every page would read again, takes most of the time.
    empty = json.loads((SITE / "search/search_index.json").read_text("utf-8")) | {"docs": []}
    page.route("**/search_index.json", lambda route: route.fulfill(json=empty))
    faults = {}
    for name in PAGES:
        page.goto(address + name)
        expect(page.locator("h1").first).to_be_visible()
        if found := page.evaluate(SCRIPTS["overflow"]):
            faults[name] = found
    assert not faults


@screens
@pytest.mark.parametrize("word", WORDS)
def test_search_leads_to_the_page(word: str, screen: str, visit: Visit) -> None:
    page = visit("", screen)
    if screen == "phone":
        page.locator("label.md-header__button[for=__search]").click()
    page.locator(".md-search__input").click()
    page.keyboard.type(word)
    result = page.locator(f'.md-search-result__link[href*="/{WORDS[word]}?h={word.lower()}"]').first
    expect(result).to_be_visible()
    assert WORDS[word] in (page.locator(".md-search-result__link").first.get_attribute("href") or "")
    assert look(page)["colours"] > 20
    result.click()
    page.wait_for_url(f"**/{WORDS[word]}**")
    expect(page.locator("article mark").first).to_have_text(re.compile(word, re.I))


def test_search_says_that_nothing_is_found(visit: Visit) -> None:
    page = visit("")
    page.locator(".md-search__input").fill("qwertyuiop")
    expect(page.locator(".md-search-result__meta")).to_have_text("No matching documents")


def test_navigation_opens_on_a_phone(visit: Visit) -> None:
    page = visit("performance/", "phone")
    drawer = page.locator(".md-sidebar--primary")
    expect(drawer).not_to_be_in_viewport()
    page.locator("label.md-header__button[for=__drawer]").click()
    expect(drawer).to_be_in_viewport()
    drawer.get_by_role("link", name="Guides").click()  # leads to the first of them
    expect(page.locator("h1")).to_contain_text("Devices and memory")
    expect(drawer).not_to_be_in_viewport()
    page.locator("label.md-header__button[for=__drawer]").click()
    drawer.get_by_role("link", name="Sparse tensors").click()
    expect(page.locator("h1")).to_contain_text("Sparse tensors")


@screens
@schemes
def test_schemes_show(scheme: str, screen: str, visit: Visit) -> None:
    """The reader's own at first; the button changes it, and the next page has what was chosen."""
    page = visit("tutorials/gpt/", screen, scheme)
    other = {"light": "dark", "dark": "light"}[scheme]
    for shown in (scheme, other):
        assert page.evaluate("getComputedStyle(document.body).colorScheme") == shown
        seen = look(page)
        assert seen["colours"] > 20
        assert seen["highest"] - seen["lowest"] > 0.5  # there is text
        assert (seen["commonest"] > 0.5) == (shown == "light")
        page.locator("[data-md-component=palette] label:not([hidden])").click()
    page.locator("[data-md-component=palette] label:not([hidden])").click()
    page.reload()
    assert page.evaluate("getComputedStyle(document.body).colorScheme") == other


@screens
@schemes
def test_text_can_be_read(scheme: str, screen: str, visit: Visit, address: str) -> None:
    page = visit("", screen, scheme)
    faint = {}
    for name in KINDS:
        page.goto(address + name)
        faint[name] = page.evaluate(SCRIPTS["contrast"], LEAST)
    if screen == "phone":
        page.locator("label.md-header__button[for=__drawer]").click()
        expect(page.locator(".md-sidebar--primary")).to_be_in_viewport()
        faint["navigation"] = page.evaluate(SCRIPTS["contrast"], LEAST)
        page.reload()
        page.locator("label.md-header__button[for=__search]").click()
    page.locator(".md-search__input").fill("fully_shard")
    expect(page.locator(".md-search-result__link").first).to_be_visible()
    faint["search"] = page.evaluate(SCRIPTS["contrast"], LEAST)
    assert not {name: found for name, found in faint.items() if found}


@pytest.mark.parametrize("name", PICTURES)
def test_pictures_show(name: str, visit: Visit) -> None:
    """On a phone too, and as dark as the page around them."""
    page = visit(name, "phone", "light")
    for scheme in ("light", "dark"):
        for picture in page.locator("article img").all():
            picture.scroll_into_view_if_needed()
            assert picture.evaluate("e => e.decode().then(() => e.naturalWidth)") > 100
            assert picture.get_attribute("alt")
            box = picture.bounding_box()
            assert box
            assert 0 <= box["x"] < box["x"] + box["width"] <= 390
            seen = look(picture)
            assert seen["colours"] > 10
            assert (seen["commonest"] > 0.5) == (scheme == "light"), picture.get_attribute("src")
        page.locator("[data-md-component=palette] label:not([hidden])").click()


def test_a_wrong_address_says_so(visit: Visit) -> None:
    """The page for it is shown in any folder, so its links are whole."""
    page = visit("a/page/that/is/not/there/")
    expect(page.locator("h1")).to_contain_text("404")
    assert page.evaluate("document.styleSheets.length") > 1
    page.locator("a.md-logo").first.click()
    expect(page.locator("h1")).to_contain_text("Plait")
