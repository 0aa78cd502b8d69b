"""Translating on the page, in a real browser, compared with answers of the API."""

from __future__ import annotations

import re

from tests.server.web.conftest import TEXT, answer_of, finished, paused_after, shown, translate
from tests.support.served import busy, server, until

# slow answers, one sentence after another
SLOW = {"service_settings": {"lanes": ((1, 1), (4, 1))}}


def test_typed_text_is_translated(place, visit):
    page = visit(place[0])
    page.keyboard.type(TEXT)  # the text field has the focus
    finished(page)
    wanted = answer_of(place[0])
    assert page.inner_text("#answer") == wanted["translatedText"]
    share = round(wanted["detectedLanguage"]["confidence"])
    assert page.inner_text("#detected") == f"German, {share} %"
    assert re.fullmatch(r"\d+ ms · [\d,]+ tokens?/s", page.inner_text("#speed"))
    assert page.inner_text("#count") == f"{len(TEXT)} of 100,000 characters"
    assert page.inner_text("#status") == f"Translation: {wanted['translatedText']}"
    assert page.get_attribute("#answer", "lang") == "en"


def test_ctrl_enter_translates_at_once_and_markup_stays_text(browser, visit):
    with server(frontend_timeout=10**6) as (client, _, _):
        page = visit(client)
        text = "Das ist <img src=x onerror=alert(1)> gut & <b>schön</b>."
        page.keyboard.type(text)
        page.keyboard.press("Control+Enter")
        finished(page)
        assert page.inner_text("#answer") == answer_of(client, text)["translatedText"]
        assert page.locator("#answer img, #backdrop img, #map img").count() == 0


def test_words_appear_before_the_answer_is_complete(visit):
    with server(frontend_timeout=50, **SLOW) as (client, house, _):
        page = visit(client)
        with paused_after(house, 16) as go:  # a sentence takes 11 at most
            page.fill("#text", TEXT)
            shown(page, "document.querySelector('#answer').matches('.growing')")
            beginning = page.inner_text("#answer")
            assert page.get_attribute("#answer", "aria-busy") == "true"
            assert page.inner_text("#run") == "Stop"
            assert page.is_hidden("#attention")
            go.set()
            finished(page)
        whole = page.inner_text("#answer")
        assert beginning
        assert whole.startswith(beginning)
        assert len(beginning) < len(whole)
        assert page.inner_text("#run") == "Translate"


def test_stop_cancels_the_request(visit):
    with server(frontend_timeout=50, **SLOW) as (client, house, _):
        page = visit(client)
        with paused_after(house, 3) as go:
            page.fill("#text", TEXT)
            until(lambda: sum(busy(house.service)))
            page.click("#run")
            shown(page, "document.querySelector('#run').textContent === 'Translate'")
            go.set()
            until(lambda: busy(house.service) == (0, 0))
        page.wait_for_timeout(100)
        assert page.inner_text("#answer") == ""
        assert page.is_hidden("#error")


def test_alternative_can_be_chosen_and_undone(place, visit):
    page = visit(place[0])
    translate(page)
    wanted = answer_of(place[0])
    best, others = wanted["translatedText"], wanted["alternatives"]
    assert len(others) > 1
    assert page.locator("#alternatives button").all_inner_texts() == others
    page.locator("#alternatives button").nth(1).press("Enter")
    assert page.inner_text("#answer") == others[1]
    assert page.locator("#alternatives button").all_inner_texts() == [best, others[0], *others[2:]]
    assert page.locator("#answer .word").count() == 0  # only the best answer has scores and attention
    page.locator("#alternatives button").first.click()
    assert page.inner_text("#answer") == best
    assert page.locator("#answer .word").count()


def test_page_respects_the_limit_of_alternatives(visit):
    with server(alternatives_limit=1, frontend_timeout=0) as (client, _, _):
        page = visit(client)
        translate(page)
        assert page.locator("#alternatives button").count() == 1


def test_languages_swap_with_their_texts(place, visit):
    page = visit(place[0])
    translate(page)
    before = page.inner_text("#answer")
    page.click("#swap")
    finished(page)
    assert (page.input_value("#source"), page.input_value("#target")) == ("en", "de")
    assert page.input_value("#text") == before
    assert page.inner_text("#answer") == answer_of(place[0], before, "en", target="de")["translatedText"]
    assert page.url.endswith("/?source=en&target=de")
    page.reload()
    shown(page, "document.querySelector('#source').value === 'en'")
    assert page.input_value("#target") == "de"


def test_text_in_the_target_language_gets_a_proposal_of_another(place, visit):
    page = visit(place[0])
    text = "It is raining and the station is closed."
    translate(page, text)
    assert page.inner_text("#answer") == text
    assert page.inner_text("#doubts") == "This seems to be English already. Translate it into German"
    page.click("#doubts button")
    finished(page)
    assert page.input_value("#target") == "de"
    assert page.inner_text("#answer") == answer_of(place[0], text, target="de")["translatedText"]


def test_guessed_language_can_be_corrected(shipped, visit):
    page = visit(shipped[0], "/?source=auto&target=fr")
    body = {"q": "Gift", "source": "auto", "target": "fr"}
    guess = shipped[0].post("/translate", json=body).json()["detectedLanguage"]
    assert guess["language"] == "de"
    assert guess["confidence"] < 50
    translate(page, "Gift")
    assert "This may not be German: if it is not, choose its language. It is English" in page.inner_text(
        "#doubts"
    )
    page.click("#doubts button")
    finished(page)
    assert (page.input_value("#source"), page.input_value("#target")) == ("en", "fr")
    wanted = shipped[0].post("/translate", json=body | {"source": "en"}).json()["translatedText"]
    assert page.inner_text("#answer") == wanted


def test_right_to_left_text_is_aligned_right(place, visit):
    page = visit(place[0], expected="status of 400")  # no model reads Arabic
    page.keyboard.type("مرحبا بالعالم")
    sides = "[...document.querySelectorAll('#text, #backdrop')].map(e => getComputedStyle(e).direction)"
    assert page.evaluate(sides) == ["rtl", "rtl"]


def test_answer_can_be_copied(place, visit):
    page = visit(place[0], permissions=["clipboard-read", "clipboard-write"])
    translate(page)
    page.click("#copy")
    shown(page, "document.querySelector('#copy').textContent === 'Copied'")
    assert page.evaluate("navigator.clipboard.readText()") == answer_of(place[0])["translatedText"]


def test_old_answer_is_hidden_while_a_long_text_waits(place, visit):
    page = visit(place[0])
    translate(page)
    assert page.inner_text("#answer")
    page.fill("#text", f"{TEXT} " * (2_100 // len(TEXT)))  # too long to be translated while it is typed
    shown(page, "document.querySelector('#answer').innerText === ''")
    assert page.get_attribute("#answer", "data-empty") == "Press “Translate” or Ctrl+Enter"
    page.click("#run")
    finished(page)
    assert page.inner_text("#answer")
    page.fill("#text", "")
    assert page.get_attribute("#answer", "data-empty") == "Translation"


def test_empty_page_offers_an_example(place, visit):
    page = visit(place[0])
    page.click("#example")
    finished(page)
    assert page.input_value("#text").startswith("Entschuldigung")
    assert page.inner_text("#answer") == answer_of(place[0], page.input_value("#text"))["translatedText"]
    assert page.is_hidden("#example")
    page.click("#clear")
    page.select_option("#source", "en")
    assert page.is_visible("#example")
