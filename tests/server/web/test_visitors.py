"""The page in the visitor's language, and the texts that it keeps in the browser."""

import re

import pytest

from server.contracts.convoy import web
from tests.server.web.conftest import TEXT, finished, shown, translate

QUOTED = r'"((?:[^"\\]|\\.)*)"'
STRIPPED = re.compile(r"<(?:script|link|meta)[^>]*>")


def page_texts():
    """Return the English texts of the page's files, which the other languages translate."""
    scripts = [path.read_text() for path in sorted(web.FOLDER.glob("*.js"))]
    found = [text for script in scripts for text in re.findall(rf"\btr\(\s*{QUOTED}", script)]
    found += [text for script in scripts for text in re.findall(rf'counted\([^"]*?, {QUOTED}', script)]
    html = STRIPPED.sub("", (web.FOLDER / "index.html").read_text())
    found += re.findall(r">([^<>]+)<", html) + re.findall(r' (?:aria-label|title|data-empty)="([^"]+)"', html)
    texts = {text.strip() for text in found}
    return {text for text in texts if re.search("[A-Za-z]{2}", text)} - {"Convoy", "API"}


@pytest.mark.parametrize("language", ["de", "fr"])
def test_every_text_of_the_page_is_translated_with_its_fields(place, visit, language):
    page = visit(place[0])
    address = page.evaluate("document.querySelector('script[type=module]').src")
    load = "async ([at, name]) => (await import(at.replace('app.js', `${name}.js`)))[name.toUpperCase()]"
    table = page.evaluate(load, [address, language])
    assert set(table) == page_texts()
    for text, translation in table.items():
        assert sorted(re.findall(r"\{\w+\}", text)) == sorted(re.findall(r"\{\w+\}", translation)), text
        assert text.count("|") == translation.count("|")


@pytest.mark.parametrize(
    ("locale", "language", "run", "german"),
    [
        ("de-AT", "de", "Übersetzen", "Deutsch"),
        ("fr-CA", "fr", "Traduire", "Allemand"),
        ("ja-JP", "en", "Translate", "German"),
    ],
)
def test_page_is_in_the_language_of_the_browser_or_in_english(place, visit, locale, language, run, german):
    page = visit(place[0], locale=locale)
    assert page.evaluate("document.documentElement.lang") == language
    assert (page.inner_text("#run"), page.title()[:6]) == (run, "Convoy")
    assert german in page.locator("#source option").all_inner_texts()
    translate(page)
    assert page.inner_text("#detected").startswith(german)


def test_visitor_can_choose_the_language_of_the_page(place, visit):
    page = visit(place[0], locale="fr-FR")
    with page.expect_navigation():
        page.select_option("#page-language", "de")
    shown(page, "document.querySelector('#run')?.textContent === 'Übersetzen'")
    page.reload()
    shown(page, "document.querySelector('#run')?.textContent === 'Übersetzen'")
    assert page.input_value("#page-language") == "de"


def test_text_and_history_survive_a_reload_until_the_visitor_turns_them_off(place, visit):
    page = visit(place[0])
    for text in (TEXT[:12], TEXT[:25], "Das ist ein Haus."):  # the second continues the first
        translate(page, text)
    page.reload()
    shown(page, "document.querySelector('#text').value === 'Das ist ein Haus.'")
    finished(page)
    page.evaluate("document.querySelector('#history').open = true")
    entries = page.locator("#history-list button")
    assert [entry.locator("span").first.inner_text() for entry in entries.all()] == [
        "Das ist ein Haus.",
        TEXT[:25],
    ]
    entries.nth(1).click()
    finished(page)
    assert page.input_value("#text") == TEXT[:25]
    page.uncheck("#history-on")
    assert entries.count() == 0
    translate(page, "Das ist gut.")
    stored = "Object.keys(localStorage).filter((name) => /history$|texts/.test(name))"
    assert page.evaluate(stored) == []
    page.reload()
    shown(page, "document.querySelector('#version').textContent.includes('.')")
    assert page.input_value("#text") == ""
    assert not page.is_checked("#history-on")


@pytest.mark.parametrize(("code", "direction"), [("en", "ltr"), ("ar", "rtl")])
def test_answer_has_the_language_and_direction_of_the_target(place, visit, code, direction):
    page = visit(place[0])
    languages = [
        {"code": "de", "name": "German", "targets": [code]},
        {"code": code, "name": "", "targets": []},
    ]
    page.route("**/languages", lambda route: route.fulfill(json=languages))
    english = {"q": TEXT, "source": "de", "target": "en", "stream": True}
    page.route("**/translate", lambda route: route.continue_(post_data=english))
    page.reload()
    shown(page, f"document.querySelector('#target').value === '{code}'")
    translate(page)
    wanted = [code, direction]
    assert page.evaluate("(({ lang, dir }) => [lang, dir])(document.querySelector('#answer'))") == wanted


def test_heat_map_is_closed_until_the_visitor_opens_it(place, visit):
    page = visit(place[0])
    translate(page)
    assert page.is_visible("#attention summary")
    assert not page.is_visible("#map")
