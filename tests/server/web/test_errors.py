"""Errors and API keys on the page, in a real browser."""

from __future__ import annotations

import re

from tests.server.web.conftest import TEXT, error_of, finished, paused_after, shown, translate
from tests.support.served import server, stopped_windows

KEY = "a-key-that-an-operator-chose"
# slow answers, one sentence after another
SLOW = {"service_settings": {"lanes": ((1, 1), (4, 1))}}


def test_stopped_server_gives_a_plain_error(visit):
    with server(frontend_timeout=50) as (client, _, _):
        page = visit(client, expected="ERR_CONNECTION_REFUSED")
        translate(page)
    page.fill("#text", "Wer bist du?")
    assert error_of(page) == (
        "The server does not answer. Check that it is running and that you are connected, then try again."
    )
    assert page.is_visible("#retry")
    assert page.inner_text("#answer") == "", "the old answer is hidden"
    page.click("#dismiss")
    assert page.is_hidden("#error")


def test_unknown_languages_give_an_error_with_a_remedy(place, visit):
    page = visit(place[0], "/?source=zz&target=en", expected="status of 400")
    assert error_of(page) == (
        "This server has no model for the language “zz”. Choose one from the lists. Its operator adds the "
        "language with: convoy fetch --languages en,zz or, at the next start, "
        "CONVOY_LANGUAGES=de,en,zz make serve"
    )
    page.evaluate("document.querySelector('#target').append(new Option('?', 'zz'))")
    page.select_option("#target", "zz")
    page.evaluate("document.querySelector('#target').append(new Option('?', 'zz', true, true))")
    page.fill("#text", TEXT)
    shown(page, "document.querySelector('#error-text').textContent.includes('from the list.')")
    assert (
        page.inner_text("#error-text")
        == "This server has no model for “zz”. Choose a language from the list."
    )
    assert page.is_hidden("#retry")


def test_code_of_a_foreign_link_is_not_part_of_a_command(place, visit):
    page = visit(place[0], "/?source=zz%3Brm&target=en", expected="status of 400")
    assert error_of(page) == "This server has no model for the language “zz;rm”. Choose one from the lists."


def test_language_that_is_being_fetched_is_named(visit, tmp_path):
    state = tmp_path / "state.json"
    state.write_text('{"models": {"zz-en": {"state": "fetching"}}}')
    with server(fetch_state=state) as (client, _, _):
        page = visit(client, "/?source=zz&target=en", expected="status of 400")
        assert error_of(page) == (
            "The models for the language “zz” are being fetched. Reload the page in a minute."
        )


def test_too_long_text_is_not_sent(visit):
    with server(char_limit=20, frontend_timeout=0) as (client, _, _):
        page = visit(client)
        page.keyboard.type("Das ist gut. 😀😀😀😀😀😀😀")  # counted in code points, like on the server
        finished(page)
        assert page.inner_text("#count") == "20 of 20 characters"
        page.keyboard.type("!")
        assert error_of(page) == "The text is longer than this server takes. Shorten it, or send it in parts."
        assert page.inner_text("#answer") == ""
        assert page.get_attribute("#text", "aria-invalid") == "true"
        sent = []
        page.on("request", lambda request: sent.append(request.url))
        page.keyboard.press("Control+Enter")
        page.click("#run")
        page.focus("#text")
        page.keyboard.press("End")
        assert sent == []
        page.keyboard.press("Backspace")
        finished(page)
        assert page.is_hidden("#error")


def test_error_names_a_language_without_a_model(place, visit):
    page = visit(place[0], expected="status of 400")
    translate(page, "Das ist gut.")
    page.fill("#text", "¿Dónde está la estación de tren, por favor? No lo encuentro.")
    assert error_of(page).startswith("Spanish (es) is not available as a source language")
    assert page.inner_text("#answer") == page.inner_text("#detected") == ""


def test_rate_limit_error_names_the_waiting_time(visit):
    with stopped_windows(), server(req_limit=1, frontend_timeout=0) as (client, _, _):
        page = visit(client, expected="status of 429")
        page.fill("#text", "Wer bist du?")
        finished(page)
        page.fill("#text", "Wer bist du denn?")
        assert re.fullmatch(r"The server is busy.* Try again in \d+ seconds?\.", error_of(page))


def test_failure_during_an_answer_is_shown(visit):
    with server(frontend_timeout=50, **SLOW) as (client, house, _):
        page = visit(client)
        executor = house.service.repository.loaded["toy-de-en"].engine.lanes[1].executor
        with paused_after(house, 16) as go:
            page.fill("#text", TEXT)
            shown(page, "document.querySelector('#answer').matches('.growing')")

            def fail(*args, **kwargs):
                raise RuntimeError("no device")

            executor.encode = fail
            try:
                go.set()
                assert error_of(page) == "The backend failed: RuntimeError: no device."
            finally:
                del executor.encode
        assert page.inner_text("#run") == "Translate"


def test_key_is_requested_and_stored_only_in_the_tab(visit):
    with server(api_keys=(KEY,), frontend_timeout=0) as (client, _, _):
        page = visit(client, expected="status of 40[03]")
        asked = []
        page.on("request", lambda request: asked.append(request.url))
        assert page.inner_text("#key-text") == "This server needs an API key."
        page.fill("#text", TEXT)
        shown(page, "document.querySelector('#key-text').textContent.includes('operator')")
        page.get_by_label("API key").fill("a-key-that-nobody-chose")
        page.keyboard.press("Enter")
        shown(page, "document.querySelector('#key-text').textContent === 'Invalid API key.'")
        page.get_by_label("API key").fill(KEY)
        page.keyboard.press("Enter")
        finished(page)
        headers = {"X-API-Key": KEY}
        wanted = client.post("/translate", json={"q": TEXT, "source": "de", "target": "en"}, headers=headers)
        assert page.inner_text("#answer") == wanted.json()["translatedText"]
        assert page.is_hidden("#key")
        page.reload()
        translate(page)
        assert page.evaluate("[document.cookie, sessionStorage.length]") == ["", 1]
        assert KEY not in page.evaluate("JSON.stringify(localStorage)")
        assert not any(KEY in url for url in asked)
        page.click("#key-button")
        page.click("#key-forget")
        assert page.evaluate("sessionStorage.length") == 0


def test_key_is_not_requested_if_the_origin_needs_none(visit):
    with server(api_keys=(KEY,), require_api_key_origin="http://127.*", frontend_timeout=0) as (client, _, _):
        page = visit(client, "/?source=de&target=en&q=Wer+bist+du%3F")
        finished(page)
        assert page.input_value("#text") == "Wer bist du?"
        assert page.is_hidden("#key")
        assert page.is_visible("#key-button")
        assert client.get("/frontend/settings").json()["keyRequired"]
