"""The page at /, as people use it: in a real browser, against a real server.

What it shows is compared with what the API answers.
"""

from __future__ import annotations

import re
import shutil
import threading
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import numpy as np
import pytest

from documents import FORMATS
from server.contracts.convoy import web
from server.languages import name_of
from server.settings import ServerSettings
from tests.support.served import busy, server, until

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
MODELS = Path(__file__).parents[2] / "models"
TEXT = "Das ist gut. Wer bist du? Tom wohnt seit zwei Jahren mit seiner Frau Maria in einem Haus in Boston."
KEY = "a-key-that-an-operator-chose"
EXTRAS = dict.fromkeys(("scores", "alignment", "coverage", "timings"), True)
# long answers, one sentence after another
SLOW = {"service_settings": {"lanes": ((1, 1), (4, 1))}}


@pytest.fixture(scope="module")
def place():
    with server(frontend_timeout=50) as (client, house, _):
        yield client, house


@pytest.fixture(scope="module")
def shipped():
    """The shipped models: they have symbols to keep words by, and three languages."""
    if not (MODELS / "tatoeba-de-en").is_dir():
        pytest.skip("the shipped models are not there")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.support.served.bundles", lambda: MODELS)
        opened = ExitStack()
        settings = {"lanes": ((1, 4), (5, 8)), "verify": False}
        client, house, _ = opened.enter_context(server(service_settings=settings, frontend_timeout=50))
    with opened:
        yield client, house


@pytest.fixture(scope="module")
def browser():
    if CHROMIUM is None:
        pytest.skip("no chromium: apt install chromium")
    playwright = pytest.importorskip("playwright.sync_api", reason="no playwright (the extra `dev`)")
    with playwright.sync_playwright() as found:
        chromium = found.chromium.launch(executable_path=CHROMIUM)
        yield chromium
        chromium.close()


@pytest.fixture
def visit(browser):
    """Opens the page of a server, and in the end checks that it asked no other host and met no error."""
    told, contexts = [], []

    def make(client, path="/", *, expected="", **options):
        """expected: a pattern of what the console may say, such as a refused request."""
        context = browser.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(15_000)
        page.on("pageerror", lambda error: told.append(str(error)))
        page.on("request", lambda asked: None if asked.url.startswith(home) else told.append(asked.url))
        page.on(
            "console", lambda said: None if expected and re.search(expected, said.text) else said_by(said)
        )
        home = str(client.base_url)
        page.goto(home.rstrip("/") + path)
        shown(page, "document.querySelector('#version').textContent.includes('.')")
        return page

    def said_by(message):
        if message.type in ("error", "warning"):
            told.append(message.text)

    yield make
    for context in contexts:
        context.close()
    assert told == []


def shown(page, condition):
    """Wait until a condition in JavaScript holds (Playwright's way needs `eval`: forbidden)."""
    until(lambda: page.evaluate(f"Boolean({condition})"), 15)


def answer_of(client, text=TEXT, source="auto", **more):
    """What the API says to the same question."""
    body = {"q": text, "source": source, "target": "en", "alternatives": 3} | EXTRAS | more
    return client.post("/translate", json=body).raise_for_status().json()


def translate(page, text=TEXT):
    """Puts in a text at once, as by pasting, and waits for its translation."""
    page.fill("#text", text)
    finished(page)


def finished(page):
    ready = "!document.querySelector('#copy').hidden && !document.querySelector('#answer').matches('.stale')"
    shown(page, f"{ready} && !document.body.matches('.busy')")


def open_map(page):
    page.evaluate("document.querySelector('#attention').open = true")


# the page itself


def test_the_page_and_its_files_are_cached_and_load_nothing_from_elsewhere(place):
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


def test_the_policy_of_the_page_allows_its_own_files_only(place):
    rules = dict(
        rule.split(" ", 1) for rule in place[0].get("/").headers["content-security-policy"].split("; ")
    )
    assert rules.pop("require-trusted-types-for") == "'script'"
    assert set(rules.values()) <= {"'none'", "'self'"}
    assert rules["default-src"] == "'none'"


def test_a_file_of_another_release_is_not_kept_and_nothing_else_is_served(place):
    client = place[0]
    other = client.get("/static/0123/app.js")
    assert (other.status_code, other.headers["cache-control"]) == (200, "no-store")
    for path in ("index.py", "..%2fapp.py", "..%2f..%2fpyproject.toml", "nothing.js", ".", "%00"):
        assert client.get(f"/static/{web.site().version}/{path}").status_code == 404
    assert client.get("/favicon.ico").content == (web.FOLDER / "icon.svg").read_bytes()


def test_the_page_can_be_switched_off(monkeypatch):
    monkeypatch.setenv("LT_DISABLE_WEB_UI", "true")
    assert not ServerSettings().web
    with server(web=False) as (client, _, _):
        for path in ("/", "/favicon.ico", f"/static/{web.site().version}/app.js"):
            assert client.get(path).status_code == 404
        assert client.get("/").json() == {"error": "The web page is disabled on this server."}


def test_the_page_works_under_a_prefix(visit):
    with server(url_prefix="/some/where", frontend_timeout=0) as (client, _, _):
        page = visit(client, "/some/where/")
        translate(page)
        assert page.inner_text("#answer") == answer_of(client)["translatedText"]
        assert client.get("/some/where", follow_redirects=True).status_code == 200


# translating


def test_a_translation_typed_by_keyboard_appears(place, visit):
    page = visit(place[0])
    page.keyboard.type(TEXT)  # the text has the focus
    finished(page)
    wanted = answer_of(place[0])
    assert page.inner_text("#answer") == wanted["translatedText"]
    share = round(wanted["detectedLanguage"]["confidence"])
    assert page.inner_text("#detected") == f"German, {share} %"
    assert re.fullmatch(r"\d+ ms · [\d,]+ tokens?/s", page.inner_text("#speed"))
    assert page.inner_text("#count") == f"{len(TEXT)} of 100,000 characters"
    assert page.inner_text("#status") == f"Translation: {wanted['translatedText']}"
    assert page.get_attribute("#answer", "lang") == "en"


def test_control_and_enter_ask_at_once_and_escape_no_text(browser, visit):
    with server(frontend_timeout=10**6) as (client, _, _):
        page = visit(client)
        text = "Das ist <img src=x onerror=alert(1)> gut & <b>schön</b>."
        page.keyboard.type(text)
        page.keyboard.press("Control+Enter")
        finished(page)
        assert page.inner_text("#answer") == answer_of(client, text)["translatedText"]
        assert page.locator("#answer img, #backdrop img, #map img").count() == 0


@contextmanager
def held_after(house, steps, model="toy-de-en"):
    """The decoder stops after so many steps of a stream, until the event that this gives is set."""
    stepper = house.service.repository.loaded[model].engine.lanes[1].stepper
    launch, go, count = stepper.launch, threading.Event(), 0

    def slow(*args, **kwargs):
        nonlocal count
        count += 1
        if count > steps:
            go.wait(30)
        return launch(*args, **kwargs)

    stepper.launch = slow
    try:
        yield go
    finally:
        go.set()
        del stepper.launch


def test_words_appear_before_the_answer_is_complete(visit):
    with server(frontend_timeout=50, **SLOW) as (client, house, _):
        page = visit(client)
        with held_after(house, 16) as go:  # a sentence takes 11 at most
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


def test_stop_ends_the_work(visit):
    with server(frontend_timeout=50, **SLOW) as (client, house, _):
        page = visit(client)
        with held_after(house, 3) as go:
            page.fill("#text", TEXT)
            until(lambda: sum(busy(house.service)))
            page.click("#run")
            shown(page, "document.querySelector('#run').textContent === 'Translate'")
            go.set()
            until(lambda: busy(house.service) == (0, 0))
        page.wait_for_timeout(100)
        assert page.inner_text("#answer") == ""
        assert page.is_hidden("#error")


def test_an_alternative_can_be_taken_and_given_back(place, visit):
    page = visit(place[0])
    translate(page)
    wanted = answer_of(place[0])
    best, others = wanted["translatedText"], wanted["alternatives"]
    assert len(others) > 1
    assert page.locator("#alternatives button").all_inner_texts() == others
    page.locator("#alternatives button").nth(1).press("Enter")
    assert page.inner_text("#answer") == others[1]
    assert page.locator("#alternatives button").all_inner_texts() == [best, others[0], *others[2:]]
    assert page.locator("#answer .word").count() == 0  # scores and attention are of the best
    page.locator("#alternatives button").first.click()
    assert page.inner_text("#answer") == best
    assert page.locator("#answer .word").count()


def test_no_more_alternatives_are_asked_for_than_the_server_gives(visit):
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


def test_a_text_in_the_target_language_is_offered_the_other(place, visit):
    page = visit(place[0])
    text = "It is raining and the station is closed."
    translate(page, text)
    assert page.inner_text("#answer") == text
    assert page.inner_text("#doubts") == "This seems to be English already. Translate it into German"
    page.click("#doubts button")
    finished(page)
    assert page.input_value("#target") == "de"
    assert page.inner_text("#answer") == answer_of(place[0], text, target="de")["translatedText"]


def test_a_guessed_language_is_asked_for(shipped, visit):
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


def test_text_from_right_to_left_stands_on_the_right(place, visit):
    page = visit(place[0], expected="status of 400")  # no model reads Arabic
    page.keyboard.type("مرحبا بالعالم")
    sides = "[...document.querySelectorAll('#text, #backdrop')].map(e => getComputedStyle(e).direction)"
    assert page.evaluate(sides) == ["rtl", "rtl"]


def test_the_answer_can_be_copied(place, visit):
    page = visit(place[0], permissions=["clipboard-read", "clipboard-write"])
    translate(page)
    page.click("#copy")
    shown(page, "document.querySelector('#copy').textContent === 'Copied'")
    assert page.evaluate("navigator.clipboard.readText()") == answer_of(place[0])["translatedText"]


# words of one's own


def own_words(page, *rows):
    """Types words and their translations into the list, each row after those that stand there."""
    page.evaluate("document.querySelector('#phrases').open = true")
    for word, into in rows:
        fields = (
            page.locator("#phrases-list li")
            .nth(page.locator("#phrases-list li").count() - 1)
            .locator("input")
        )
        fields.nth(0).fill(word)
        fields.nth(1).fill(into)


def values(page):
    rows = page.locator("#phrases-list li").all()
    return [tuple(field.input_value() for field in row.locator("input").all()) for row in rows]


def test_words_of_ones_own_are_sent_and_kept_by_the_browser(shipped, visit):
    page = visit(shipped[0], "/?source=de&target=en")
    text = "Tom wohnt in Boston."
    own_words(page, ("Tom", "Thomas"), ("Boston", ""))
    translate(page, text)
    wanted = answer_of(shipped[0], text, "de", glossary={"Tom": "Thomas"}, ignore=["Boston"])
    plain = answer_of(shipped[0], text, "de")
    assert page.inner_text("#answer") == wanted["translatedText"] != plain["translatedText"]
    page.reload()
    shown(page, "document.querySelector('#version').textContent.includes('.')")
    assert page.inner_text("#phrases-count") == "2 words"
    page.evaluate("document.querySelector('#phrases').open = true")
    assert values(page) == [("Tom", "Thomas"), ("Boston", ""), ("", "")]
    page.select_option("#source", "en")  # the other target: its own translations, the same kept words
    assert values(page) == [("Boston", ""), ("", "")]
    page.click("#swap")
    assert values(page) == [("Tom", "Thomas"), ("Boston", ""), ("", "")]
    for _ in range(2):
        page.locator("#phrases-list button").first.click()
    translate(page, text)
    assert page.inner_text("#answer") == plain["translatedText"]
    assert page.evaluate("localStorage.length") == 0


def test_lines_of_a_spreadsheet_become_words(shipped, visit):
    page = visit(shipped[0], "/?source=de&target=en")
    page.evaluate("document.querySelector('#phrases').open = true")
    page.evaluate(r"""() => {
        const data = new DataTransfer();
        data.setData("text/plain", "Tom\tThomas\r\n\r\n<b>Bär</b>\nBoston\t\r\n");
        const paste = new ClipboardEvent("paste", {clipboardData: data, bubbles: true, cancelable: true});
        document.querySelector("#phrases-list input").dispatchEvent(paste);
    }""")
    assert values(page) == [("Tom", "Thomas"), ("<b>Bär</b>", ""), ("Boston", ""), ("", "")]
    assert page.locator("#phrases-list b").count() == 0


def test_a_model_that_cannot_keep_words_is_asked_without_them(shipped, visit):
    page = visit(shipped[0], "/?source=de&target=en")
    own_words(page, ("Tom", "Thomas"))
    models = [model | {"placeholders": 0} for model in shipped[0].get("/models").json()]
    page.route("**/models", lambda route: route.fulfill(json=models))
    page.reload()
    translate(page)
    assert page.inner_text("#answer") == answer_of(shipped[0], source="de")["translatedText"]
    page.evaluate("document.querySelector('#phrases').open = true")
    assert page.is_visible("#phrases-off")


def test_words_of_ones_own_hold_in_files(shipped, visit):
    page = visit(shipped[0], "/?source=de&target=en")
    own_words(page, ("Tom", "Thomas"))
    text = "Tom wohnt in Boston."
    page.set_input_files("#file", {"name": "a.txt", "mimeType": "text/plain", "buffer": text.encode()})
    with page.expect_download() as download:
        page.locator("#file-news a").click()
    wanted = answer_of(shipped[0], text, "de", glossary={"Tom": "Thomas"})["translatedText"]
    assert download.value.path().read_text() == wanted


# many languages

CODES = ("ar", "bg", "cs", "da", "de", "el", "en", "es", "et", "fi", "fr", "hu", "ja", "pl", "pt", "ru", "tr")


@pytest.fixture
def crowded(place, visit):
    """A page that was told of more languages than a plain list holds well."""

    def make(**options):
        page = visit(place[0], **options)
        offered = {language["code"]: language for language in place[0].get("/languages").json()}
        many = [offered.get(c, {"code": c, "name": name_of(c), "targets": CODES}) for c in CODES]
        page.route("**/languages", lambda route: route.fulfill(json=many))
        page.reload()
        shown(page, "document.querySelector('#version').textContent.includes('.')")
        return page

    return make


def test_a_language_is_found_by_its_names_and_its_code(crowded):
    page, chosen = crowded(), "Auto-detect"
    assert page.is_hidden("#source")
    for typed, found in (
        ("portu", "Portuguese"),
        ("español", "Spanish"),
        ("EL", "Greek"),
        ("espanol", "Spanish"),
        ("日本", "Japanese"),
    ):
        page.get_by_role("button", name=f"Translate from: {chosen}").press("Enter")
        page.keyboard.type(typed)
        page.keyboard.press("Enter")
        button, chosen = page.get_by_role("button", name=f"Translate from: {found}"), found
        assert button.evaluate("b => b === document.activeElement"), typed
        assert page.url.endswith(f"?source={next(c for c in CODES if name_of(c) == found)}&target=en"), typed


def test_the_search_in_languages_is_walked_by_keys_and_left_without_a_choice(crowded):
    page = crowded(viewport={"width": 320, "height": 600})
    button = page.get_by_role("button", name="Translate into")
    before = button.inner_text()
    button.click()
    box = page.get_by_role("dialog", name="Translate into").bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 320
    page.keyboard.type("xx")
    assert "No language of this name." in page.get_by_role("dialog").inner_text()
    page.keyboard.press("Enter")
    page.keyboard.press("Escape")  # empties the search, or leaves it
    page.keyboard.press("Escape")
    assert button.inner_text() == before
    button.click()
    names = page.get_by_role("option").all_inner_texts()
    for key in ("ArrowDown", "ArrowDown", "ArrowUp", "Enter"):
        page.keyboard.press(key)
    assert button.inner_text() == names[min(names.index(before) + 1, len(names) - 1)]


# trust: attention, scores, coverage


def words_of(pieces):
    """Starts of words and their texts: our own reading of SentencePiece's marks."""
    starts = [i for i, p in enumerate(pieces) if i == 0 or p.startswith("▁") or p == "</s>"]
    texts = ["".join(pieces[a:b]) for a, b in zip(starts, [*starts[1:], len(pieces)], strict=True)]
    return starts, ["end" if t == "</s>" else t.replace("▁", "") for t in texts]


def cells(page):
    read = "rows => rows.map(r => [...r.querySelectorAll('td')].map(c => Number(c.dataset.weight)))"
    return np.array(page.locator("#map tbody tr").evaluate_all(read))


def test_the_heat_map_shows_the_matrix_of_the_api(place, visit):
    page = visit(place[0])
    translate(page)
    alignment = answer_of(place[0])["alignment"]
    assert len(alignment) == 3
    for number, sentence in enumerate(alignment):
        page.select_option("#sentence", str(number))
        matrix = np.array(sentence["matrix"])
        page.check("#pieces")
        np.testing.assert_array_equal(cells(page), matrix)
        page.uncheck("#pieces")
        (rows, target), (columns, source) = words_of(sentence["target"]), words_of(sentence["source"])
        merged = np.add.reduceat(np.add.reduceat(matrix, columns, 1), rows, 0)
        merged /= np.diff([*rows, len(matrix)])[:, None]
        np.testing.assert_allclose(cells(page), merged, atol=1e-9)
        assert page.locator("#map tbody th").all_inner_texts() == target
        assert page.locator("#map thead th").all_inner_texts() == source
        weights = page.locator(".cell").evaluate_all("cs => cs.map(c => c.style.getPropertyValue('--w'))")
        np.testing.assert_allclose(np.array(weights, float), merged.ravel() / merged.max(), atol=6e-5)


def test_the_heat_map_is_walked_with_arrow_keys_and_lights_up_the_source(place, visit):
    page = visit(place[0])
    translate(page)
    sentence = answer_of(place[0])["alignment"][0]
    page.locator(".cell[tabindex='0']").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    for key in ("ArrowLeft", "ArrowRight"):
        page.keyboard.press(key)
    at = page.evaluate("document.activeElement.ariaLabel")
    (_, target), (_, source) = words_of(sentence["target"]), words_of(sentence["source"])
    assert at.startswith(f"{target[1]}, {source[1]}: ")
    assert page.inner_text("#readout").startswith(
        f"For “{target[1]}” the model looked at “{source[1]}” with "
    )
    lit = page.locator("#backdrop mark.lit")
    assert " ".join(lit.all_inner_texts()) == "Das ist gut."
    assert float(lit.first.evaluate("m => m.style.getPropertyValue('--w')")) == pytest.approx(
        cells(page)[1, 0] / cells(page)[1].max(), abs=6e-4
    )
    page.keyboard.press("End")
    page.keyboard.press("PageDown")
    assert page.evaluate("document.activeElement.ariaLabel").startswith("end, end: ")
    page.keyboard.press("ArrowRight")  # there it ends
    assert page.evaluate("document.activeElement.ariaLabel").startswith("end, end: ")
    assert page.locator(".cell[tabindex='0']").count() == 1


def test_a_word_that_a_tokenizer_has_changed_does_not_misplace_those_after_it(place, visit):
    page = visit(place[0])
    code = "async ([path, text, words]) => (await import(path)).locate(text, words)"
    text = "Er fährt … nach Berlin. " + "Und so weiter, bis es Abend wird. " * 3 + "Ende ... gut"
    words = [
        "er",
        "fährt",
        "...",
        "nach",
        "Berlin.",
    ]  # the ellipsis became full stops; far away there are some
    found = page.evaluate(code, [f"/static/{web.site().version}/words.js", text, words])
    assert [span and text[slice(*span)] for span in found] == ["Er", "fährt", None, "nach", "Berlin."]


@pytest.mark.parametrize(
    ("pieces", "words"),
    [
        (
            ["▁Dampf", "schiff", "▁", "<x>", "?", "</s>"],
            [(0, 2, "Dampfschiff"), (2, 5, "<x>?"), (5, 6, "end")],
        ),
        (
            ["Dampf@@", "schiff", "&apos;s", "a@@", "</s>"],
            [(0, 2, "Dampfschiff"), (2, 3, "'s"), (3, 4, "a"), (4, 5, "end")],
        ),
        (["das", "Haus", "</s>"], [(0, 1, "das"), (1, 2, "Haus"), (2, 3, "end")]),
    ],
)
def test_pieces_of_every_tokenizer_make_words_with_the_attention_of_their_pieces(place, visit, pieces, words):
    page = visit(place[0])
    generator = np.random.default_rng(len(pieces))
    matrix = generator.dirichlet(np.ones(len(pieces)), len(pieces))
    code = """async ([path, pieces, matrix]) => {
        const { wordsOf, merged } = await import(path);
        const words = wordsOf(pieces);
        return [words.map((w) => [w.begin, w.end, w.text]), merged(matrix, words, words)];
    }"""
    path = f"/static/{web.site().version}/words.js"
    found, weights = page.evaluate(code, [path, pieces, matrix.tolist()])
    assert [tuple(word) for word in found] == words
    wanted = [[matrix[a:b, c:d].sum(1).mean() for c, d, _ in words] for a, b, _ in words]
    np.testing.assert_allclose(weights, wanted)
    np.testing.assert_allclose(np.sum(weights, 1), 1)


def test_words_are_shaded_by_their_scores(place, visit):
    page = visit(place[0])
    translate(page)
    scores = answer_of(place[0])["scores"]
    starts, texts = words_of(scores["tokens"])
    sums = np.exp(np.add.reduceat(scores["tokenScores"], starts))
    wanted = [(t, round(100 * p)) for t, p in zip(texts, sums, strict=True) if t != "end"]
    read = "ws => ws.map(w => [w.textContent, parseInt(w.title), w.matches('.doubtful')])"
    words = page.locator("#answer .word").evaluate_all(read)
    assert [(text, p) for text, p, _ in words] == wanted
    assert all(doubtful == (p < 60) for _, p, doubtful in words if p != 60)
    assert any(doubtful for _, _, doubtful in words)
    shade = "w => getComputedStyle(w).backgroundColor"
    assert page.locator(".doubtful").first.evaluate(shade) != "rgba(0, 0, 0, 0)"
    page.uncheck("#shades")
    shown(page, f"({shade})(document.querySelector('.doubtful')) === 'rgba(0, 0, 0, 0)'")


def test_words_that_nothing_looked_at_are_marked_and_named(place, visit):
    page = visit(place[0])
    translate(page)
    coverage = answer_of(place[0])["coverage"]
    missed = [sentence["words"][i] for sentence in coverage for i in sentence["missed"]]
    assert missed
    assert page.locator("#backdrop mark.missed").all_inner_texts() == missed
    for word in missed:
        assert f"“{word}”" in page.inner_text("#missed")
    places = "ms => ms.map(m => { const r = document.createRange(); r.selectNode(m); return r.toString(); })"
    assert page.locator("#backdrop mark").evaluate_all(places) == missed
    backdrop = page.locator("#backdrop").bounding_box()
    assert backdrop == page.locator("#text").bounding_box()  # marks lie under their words


# summarizing


def test_a_text_is_summarized(place, visit):
    page = visit(place[0])
    page.get_by_role("link", name="Summarize").click()
    shown(page, "document.activeElement.placeholder === 'Text to summarize'")
    text = "We present a new method for learning. It is faster than others and we prove it."
    page.keyboard.type(text)
    page.wait_for_timeout(150)
    assert page.inner_text("#answer") == ""  # only when it is asked for
    page.keyboard.press("Control+Enter")
    finished(page)
    body = {"q": text, "alternatives": 3, "truncate": True} | EXTRAS
    wanted = place[0].post("/summarize", json=body).json()
    assert page.inner_text("#answer") == wanted["summaryText"]
    assert page.locator("#alternatives button").all_inner_texts() == wanted["alternatives"]
    assert page.locator("mark.missed").count() == 0  # a summary leaves out
    page.check("#pieces")
    np.testing.assert_array_equal(cells(page), np.array(wanted["alignment"][0]["matrix"]))
    page.fill("#text", "We prove it again and again. " * 40)
    page.click("#run")
    shown(page, "document.querySelector('#doubts').textContent.includes('beginning')")
    page.go_back()
    assert page.inner_text("#run") == "Translate"
    assert page.input_value("#text") == ""  # each task keeps its own text


# files


def test_a_file_is_translated_when_it_is_dropped_or_chosen(place, visit, tmp_path):
    page = visit(place[0])
    wanted = answer_of(place[0], "Wer bist du?")["translatedText"]
    drop = """() => {
        const data = new DataTransfer();
        data.items.add(new File(["Wer bist du?"], "brief.txt", {type: "text/plain"}));
        const from = document.querySelector("#text");
        from.dispatchEvent(new DragEvent("dragover", {dataTransfer: data, bubbles: true, cancelable: true}));
        const lit = document.body.matches(".dropping");
        const drop = new DragEvent("drop", {dataTransfer: data, bubbles: true, cancelable: true});
        return lit && !from.dispatchEvent(drop);  // else the browser leaves the page
    }"""
    chosen = tmp_path / "brief.txt"
    chosen.write_text("Wer bist du?")
    for give in (lambda: page.evaluate(drop), lambda: page.set_input_files("#file", chosen)):
        assert give() is not False
        link = page.locator("#file-news a")
        link.wait_for()
        with page.expect_download() as download:
            link.click()
        assert download.value.suggested_filename == "brief_en.txt"
        assert download.value.path().read_text() == wanted
        page.reload()
        shown(page, "document.querySelector('#version').textContent.includes('.')")
    assert page.inner_text("#formats") == f"Files: {' '.join(FORMATS)}", "before a mistake"
    page.evaluate("document.querySelector('#error').hidden = false")  # of something before
    page.set_input_files("#file", {"name": "x.exe", "mimeType": "application/x", "buffer": b"MZ"})
    assert "It takes files that end in .txt, .md" in page.inner_text("#file-news")
    assert page.is_hidden("#error")


def test_no_file_is_asked_for_where_none_is_translated(visit):
    with server(files=False) as (client, _, _):
        assert visit(client).is_hidden("#file-label")


# errors


def error_of(page):
    page.locator("#error").wait_for()
    return page.inner_text("#error-text")


def test_a_server_that_stopped_is_told_in_plain_words(visit):
    with server(frontend_timeout=50) as (client, _, _):
        page = visit(client, expected="ERR_CONNECTION_REFUSED")
        translate(page)
    page.fill("#text", "Wer bist du?")
    assert error_of(page) == (
        "The server does not answer. See that it is running and that you are connected, then try again."
    )
    assert page.is_visible("#retry")
    assert page.inner_text("#answer") == "", "what stood there was of another text"
    page.click("#dismiss")
    assert page.is_hidden("#error")


def test_unknown_languages_are_told_with_what_to_do(place, visit):
    page = visit(place[0], "/?source=zz&target=en", expected="status of 400")
    assert error_of(page) == "This server does not know the language “zz”. Choose one from the lists."
    page.evaluate("document.querySelector('#target').append(new Option('?', 'zz'))")
    page.select_option("#target", "zz")
    page.evaluate("document.querySelector('#target').append(new Option('?', 'zz', true, true))")
    page.fill("#text", TEXT)
    shown(page, "document.querySelector('#error-text').textContent.includes('from the list.')")
    assert (
        page.inner_text("#error-text") == "This server does not know “zz”. Choose a language from the list."
    )
    assert page.is_hidden("#retry")


def test_beside_a_long_text_that_waits_to_be_asked_for_nothing_old_stands(place, visit):
    page = visit(place[0])
    translate(page)
    assert page.inner_text("#answer")
    page.fill("#text", f"{TEXT} " * (2_100 // len(TEXT)))  # longer than what is translated while it is typed
    shown(page, "document.querySelector('#answer').innerText === ''")
    assert page.get_attribute("#answer", "data-empty") == "Press “Translate” or Ctrl+Enter"
    page.click("#run")
    finished(page)
    assert page.inner_text("#answer")
    page.fill("#text", "")
    assert page.get_attribute("#answer", "data-empty") == "Translation"


def test_a_text_that_is_too_long_is_not_sent(visit):
    with server(char_limit=20, frontend_timeout=0) as (client, _, _):
        page = visit(client)
        page.keyboard.type("Das ist gut. 😀😀😀😀😀😀😀")  # counted as the server counts
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


def test_a_language_that_is_not_served_is_called_by_its_name(place, visit):
    page = visit(place[0], expected="status of 400")
    translate(page, "Das ist gut.")
    page.fill("#text", "¿Dónde está la estación de tren, por favor? No lo encuentro.")
    assert error_of(page).startswith("Spanish (es) is not available as a source language")
    assert page.inner_text("#answer") == page.inner_text("#detected") == ""


def test_a_visitor_without_a_text_is_offered_one(place, visit):
    page = visit(place[0])
    page.click("#example")
    finished(page)
    assert page.input_value("#text").startswith("Entschuldigung")
    assert page.inner_text("#answer") == answer_of(place[0], page.input_value("#text"))["translatedText"]
    assert page.is_hidden("#example")
    page.click("#clear")
    page.select_option("#source", "en")
    assert page.is_visible("#example")


def test_a_visitor_who_asks_too_often_is_told_when_to_come_back(visit):
    with server(req_limit=1, frontend_timeout=0) as (client, _, _):
        page = visit(client, expected="status of 429")
        page.fill("#text", "Wer bist du?")
        finished(page)
        page.fill("#text", "Wer bist du denn?")
        assert re.fullmatch(r"The server is busy.* Try again in \d+ seconds?\.", error_of(page))


def test_what_fails_in_the_midst_of_an_answer_is_told(visit):
    with server(frontend_timeout=50, **SLOW) as (client, house, _):
        page = visit(client)
        executor = house.service.repository.loaded["toy-de-en"].engine.lanes[1].executor
        with held_after(house, 16) as go:
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


# keys


def test_a_key_is_asked_for_and_kept_in_the_tab_only(visit):
    with server(api_keys=(KEY,), frontend_timeout=0) as (client, _, _):
        page = visit(client, expected="status of 40[03]")
        asked = []
        page.on("request", lambda request: asked.append(request.url))
        assert page.inner_text("#key-text") == "This server asks for an API key."
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
        assert page.evaluate("[localStorage.length, document.cookie, sessionStorage.length]") == [0, "", 1]
        assert not any(KEY in url for url in asked)
        page.click("#key-button")
        page.click("#key-forget")
        assert page.evaluate("sessionStorage.length") == 0


def test_no_key_is_asked_for_where_the_page_needs_none(visit):
    with server(api_keys=(KEY,), require_api_key_origin="http://127.*", frontend_timeout=0) as (client, _, _):
        page = visit(client, "/?source=de&target=en&q=Wer+bist+du%3F")
        finished(page)
        assert page.input_value("#text") == "Wer bist du?"
        assert page.is_hidden("#key")
        assert page.is_visible("#key-button")
        assert client.get("/frontend/settings").json()["keyRequired"]


# looks and access


def test_dark_and_light_follow_the_system(place, visit):
    light, dark = (
        visit(place[0], color_scheme=scheme).evaluate(
            "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)"
        )
        for scheme in ("light", "dark")
    )
    assert min(light) > 230
    assert max(dark) < 40


def test_the_description_of_the_api_is_dark_where_the_system_is(place, visit):
    page = visit(place[0])
    page.goto(f"{str(place[0].base_url).rstrip('/')}/docs")
    page.locator(".opblock").first.wait_for()
    for scheme, dark in (("dark", "true"), ("light", "false"), ("dark", "true")):
        page.emulate_media(color_scheme=scheme)
        shade = "getComputedStyle(document.documentElement).backgroundColor"
        shown(page, f"({shade} === 'rgb(28, 32, 34)') === {dark}")


def test_nothing_is_wider_than_the_screen(place, visit):
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
def test_axe_finds_nothing_to_complain_of(place, visit, scheme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="the extra `dev`").Axe()
    page = visit(place[0], "/#summarize", color_scheme=scheme, reduced_motion="reduce")
    assert_accessible(axe, page)
    page.goto(
        f"{page.url.partition('#')[0]}?source=zz"
    )  # with an error, a key to be given, and all that answers have
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


def test_everything_is_reached_by_keyboard_in_the_order_of_the_page(place, visit):
    page = visit(place[0])
    translate(page)
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


def test_without_a_server_the_page_says_so_and_starts_later(place, visit):
    page = visit(place[0], expected="Failed to load resource")
    page.route("**/languages", lambda route: route.abort())
    page.reload()
    assert error_of(page).startswith("The server does not answer.")
    page.unroute("**/languages")
    page.click("#retry")
    shown(page, "document.querySelector('#error').hidden")
    translate(page)


def test_the_server_sends_the_same_page_to_clients_with_and_without_keys():
    with server(api_keys=(KEY,)) as (client, _, _):
        bare = httpx.get(client.base_url)
        assert bare.status_code == 200
        assert bare.text == client.get("/", headers={"X-API-Key": KEY}).text
