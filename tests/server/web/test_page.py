"""The page at / and its files: caching, policy, layout and accessibility."""

from __future__ import annotations

import re

import httpx
import pytest

from server.contracts.convoy import web
from server.settings import ServerSettings
from tests.server.web.conftest import (
    TEXT,
    answer_of,
    error_of,
    finished,
    open_map,
    own_words,
    shown,
    translate,
)
from tests.support.served import server

KEY = "a-key-that-an-operator-chose"


def test_page_and_files_are_cached_and_load_no_foreign_files(place):
    client = place[0]
    page = client.get("/")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.headers["cache-control"] == "no-cache"
    assert client.get("/", headers={"If-None-Match": page.headers["etag"]}).status_code == 304
    links = re.findall(r'(?:href|src)="([^"#]+)"', page.text)
    assert {link.rpartition(".")[2] for link in links} == {"svg", "css", "js", "docs"}
    for link in set(links) - {"docs"}:
        found = client.get(f"/{link}")
        assert found.status_code == 200
        assert "immutable" in found.headers["cache-control"]
        assert found.content == (web.FOLDER / link.rpartition("/")[2]).read_bytes()
    assert client.head("/").headers["etag"] == page.headers["etag"]
    modules = {path.name for path in web.FOLDER.glob("*.js")}
    assert {link.rpartition("/")[2] for link in links if link.endswith(".js")} == modules  # all are preloaded


def test_content_security_policy_allows_only_own_files(place):
    rules = dict(
        rule.split(" ", 1) for rule in place[0].get("/").headers["content-security-policy"].split("; ")
    )
    assert rules.pop("require-trusted-types-for") == "'script'"
    assert set(rules.values()) <= {"'none'", "'self'"}
    assert rules["default-src"] == "'none'"


def test_files_of_other_releases_are_uncached_and_unknown_files_missing(place):
    client = place[0]
    other = client.get("/static/0123/app.js")
    assert (other.status_code, other.headers["cache-control"]) == (200, "no-store")
    for path in ("index.py", "..%2fapp.py", "..%2f..%2fpyproject.toml", "nothing.js", ".", "%00"):
        assert client.get(f"/static/{web.site().version}/{path}").status_code == 404
    assert client.get("/favicon.ico").content == (web.FOLDER / "icon.svg").read_bytes()


def test_page_can_be_switched_off(monkeypatch):
    monkeypatch.setenv("LT_DISABLE_WEB_UI", "true")
    assert not ServerSettings().web
    with server(web=False) as (client, _, _):
        for path in ("/", "/favicon.ico", f"/static/{web.site().version}/app.js"):
            assert client.get(path).status_code == 404
        assert client.get("/").json() == {"error": "The web page is disabled on this server."}


def test_page_works_under_a_prefix(visit):
    with server(url_prefix="/some/where", frontend_timeout=0) as (client, _, _):
        page = visit(client, "/some/where/")
        translate(page)
        assert page.inner_text("#answer") == answer_of(client)["translatedText"]
        assert client.get("/some/where", follow_redirects=True).status_code == 200


def test_dark_and_light_follow_the_system(place, visit):
    light, dark = (
        visit(place[0], color_scheme=scheme).evaluate(
            "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)"
        )
        for scheme in ("light", "dark")
    )
    assert min(light) > 230
    assert max(dark) < 40


def test_api_description_follows_the_dark_mode_of_the_system(place, visit):
    page = visit(place[0])
    page.goto(f"{str(place[0].base_url).rstrip('/')}/docs")
    page.locator(".opblock").first.wait_for()
    for scheme, dark in (("dark", "true"), ("light", "false"), ("dark", "true")):
        page.emulate_media(color_scheme=scheme)
        shade = "getComputedStyle(document.documentElement).backgroundColor"
        shown(page, f"({shade} === 'rgb(28, 32, 34)') === {dark}")


def test_page_fits_into_narrow_screens(place, visit):
    page = visit(place[0])
    for task in ("translate", "summarize"):
        page.goto(f"{page.url.partition('#')[0]}#{task}")
        page.fill("#text", f"{TEXT} Donaudampfschifffahrtsgesellschaftskapitän{'x' * 200}")
        page.keyboard.press("Control+Enter")
        finished(page)
        open_map(page)
        page.evaluate(
            "document.querySelector('#figures').open = document.querySelector('#phrases').open = true"
        )
        for width in (320, 390, 1280):
            page.set_viewport_size({"width": width, "height": 700})
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            for control in page.locator("button:visible, select:visible, #text, nav a").all():
                box = control.bounding_box()
                assert box["x"] >= 0
                assert box["x"] + box["width"] <= width


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_violation(place, visit, scheme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="the extra `dev`").Axe()
    page = visit(place[0], "/#summarize", color_scheme=scheme, reduced_motion="reduce")
    assert_accessible(axe, page)
    page.goto(f"{page.url.partition('#')[0]}?source=zz")  # with an error and the form for a key
    own_words(page, ("Tom", "Thomas"))
    page.fill("#text", TEXT)
    finished(page)
    open_map(page)
    page.evaluate("document.querySelector('#figures').open = true")
    page.evaluate("document.querySelector('#key').hidden = document.querySelector('#error').hidden = false")
    page.evaluate("document.querySelector('#error-text').textContent = 'Something failed.'")
    assert_accessible(axe, page)


def assert_accessible(axe, page):
    found = axe.run(page, options={"runOnly": ["wcag2a", "wcag2aa", "wcag21aa", "wcag22aa", "best-practice"]})
    assert found.response["passes"]
    assert found.violations_count == 0, found.generate_report()


def test_tab_key_reaches_all_controls_in_order(place, visit):
    page = visit(place[0])
    translate(page)
    open_map(page)
    page.locator(".skip").focus()
    reached = []
    for _ in range(40):
        page.keyboard.press("Tab")
        name = page.evaluate("document.activeElement.id || document.activeElement.textContent.trim()")
        if reached and name == reached[0]:
            break
        reached.append(name)
    order = ["source", "swap", "target", "text", "clear", "run", "file", "answer", "copy"]
    assert [name for name in reached if name in order] == order
    assert reached[:2] == ["Translate", "Summarize"]
    assert {"Skip to the text", "sentence", "pieces", "API"} <= set(reached)


def test_page_reports_an_unreachable_server_and_starts_on_retry(place, visit):
    page = visit(place[0], expected="Failed to load resource")
    page.route("**/languages", lambda route: route.abort())
    page.reload()
    assert error_of(page).startswith("The server does not answer.")
    page.unroute("**/languages")
    page.click("#retry")
    shown(page, "document.querySelector('#error').hidden")
    translate(page)


def test_page_is_equal_with_and_without_a_key():
    with server(api_keys=(KEY,)) as (client, _, _):
        bare = httpx.get(client.base_url)
        assert bare.status_code == 200
        assert bare.text == client.get("/", headers={"X-API-Key": KEY}).text
