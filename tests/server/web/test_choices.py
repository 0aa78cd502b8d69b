"""Own words, the language search and files on the page, in a real browser."""

from __future__ import annotations

import pytest

from documents import FORMATS
from server.languages import name_of
from tests.server.web.conftest import answer_of, own_words, shown, translate, values
from tests.support.served import server


def test_own_words_are_sent_and_stored_in_the_browser(shipped, visit):
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
    page.select_option("#source", "en")  # another target has its own translations, but the same kept words
    assert values(page) == [("Boston", ""), ("", "")]
    page.click("#swap")
    assert values(page) == [("Tom", "Thomas"), ("Boston", ""), ("", "")]
    for _ in range(2):
        page.locator("#phrases-list button").first.click()
    translate(page, text)
    assert page.inner_text("#answer") == plain["translatedText"]
    assert page.evaluate("localStorage.getItem('convoy-phrases')") is None


def test_pasted_spreadsheet_lines_become_words(shipped, visit):
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


def test_own_words_are_not_sent_to_models_without_placeholders(shipped, visit):
    page = visit(shipped[0], "/?source=de&target=en")
    own_words(page, ("Tom", "Thomas"))
    models = [model | {"placeholders": 0} for model in shipped[0].get("/models").json()]
    page.route("**/models", lambda route: route.fulfill(json=models))
    page.reload()
    translate(page)
    assert page.inner_text("#answer") == answer_of(shipped[0], source="de")["translatedText"]
    page.evaluate("document.querySelector('#phrases').open = true")
    assert page.is_visible("#phrases-off")


def test_a_model_of_another_server_is_named_with_its_host(place, visit):
    page = visit(place[0], "/?source=de&target=en")
    translate(page)
    assert "was sent" not in page.inner_text("#doubts")
    models = place[0].get("/models").json()
    remote = [model | {"remote": "llm.example:443" * (model["name"] == "toy-de-en")} for model in models]
    page.route("**/models", lambda route: route.fulfill(json=remote))
    page.reload()
    translate(page)
    assert "The text was sent to llm.example:443 (model toy-de-en)." in page.inner_text("#doubts")


def test_own_words_apply_to_files(shipped, visit):
    page = visit(shipped[0], "/?source=de&target=en")
    own_words(page, ("Tom", "Thomas"))
    text = "Tom wohnt in Boston."
    page.set_input_files("#file", {"name": "a.txt", "mimeType": "text/plain", "buffer": text.encode()})
    with page.expect_download() as download:
        page.locator("#file-news a").click()
    wanted = answer_of(shipped[0], text, "de", glossary={"Tom": "Thomas"})["translatedText"]
    assert download.value.path().read_text() == wanted


CODES = ("ar", "bg", "cs", "da", "de", "el", "en", "es", "et", "fi", "fr", "hu", "ja", "pl", "pt", "ru", "tr")


@pytest.fixture
def crowded(place, visit):
    """A page that was problems of more languages than a plain list holds well."""

    def make(**options):
        page = visit(place[0], **options)
        offered = {language["code"]: language for language in place[0].get("/languages").json()}
        many = [offered.get(c, {"code": c, "name": name_of(c), "targets": CODES}) for c in CODES]
        page.route("**/languages", lambda route: route.fulfill(json=many))
        page.reload()
        shown(page, "document.querySelector('#version').textContent.includes('.')")
        return page

    return make


def test_search_finds_a_language_by_names_and_code(crowded):
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


def test_language_search_works_by_keyboard(crowded):
    page = crowded(viewport={"width": 320, "height": 600})
    button = page.get_by_role("button", name="Translate into")
    before = button.inner_text()
    button.click()
    box = page.get_by_role("dialog", name="Translate into").bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 320
    page.keyboard.type("xx")
    assert "No language has this name." in page.get_by_role("dialog").inner_text()
    page.keyboard.press("Enter")
    page.keyboard.press("Escape")  # empties the search, or leaves it
    page.keyboard.press("Escape")
    assert button.inner_text() == before
    button.click()
    names = page.get_by_role("option").all_inner_texts()
    for key in ("ArrowDown", "ArrowDown", "ArrowUp", "Enter"):
        page.keyboard.press(key)
    assert button.inner_text() == names[min(names.index(before) + 1, len(names) - 1)]


def test_dropped_or_chosen_file_is_translated(place, visit, tmp_path):
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
    page.evaluate("document.querySelector('#error').hidden = false")  # of an earlier error
    page.set_input_files("#file", {"name": "x.exe", "mimeType": "application/x", "buffer": b"MZ"})
    assert "It translates files that end in .txt, .md" in page.inner_text("#file-news")
    assert page.is_hidden("#error")


def test_file_button_is_hidden_if_files_are_disabled(visit):
    with server(files=False) as (client, _, _):
        assert visit(client).is_hidden("#file-label")
