"""Attention, scores and summaries on the page, in a real browser, compared with answers of the API."""

from __future__ import annotations

import numpy as np
import pytest

from server.contracts.convoy import web
from tests.server.web.conftest import EXTRAS, answer_of, finished, open_map, shown, translate


def words_of(pieces):
    """Return the starts and texts of words, by SentencePiece's marks."""
    starts = [i for i, p in enumerate(pieces) if i == 0 or p.startswith("▁") or p == "</s>"]
    texts = ["".join(pieces[a:b]) for a, b in zip(starts, [*starts[1:], len(pieces)], strict=True)]
    return starts, ["end" if t == "</s>" else t.replace("▁", "") for t in texts]


def cells(page):
    read = "rows => rows.map(r => [...r.querySelectorAll('td')].map(c => Number(c.dataset.weight)))"
    return np.array(page.locator("#map tbody tr").evaluate_all(read))


def test_heat_map_shows_the_attention_of_the_api(place, visit):
    page = visit(place[0])
    translate(page)
    open_map(page)
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


def test_arrow_keys_move_in_the_heat_map_and_highlight_the_source(place, visit):
    page = visit(place[0])
    translate(page)
    open_map(page)
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
    page.keyboard.press("ArrowRight")  # the last cell
    assert page.evaluate("document.activeElement.ariaLabel").startswith("end, end: ")
    assert page.locator(".cell[tabindex='0']").count() == 1


def test_changed_word_does_not_misplace_later_words(place, visit):
    page = visit(place[0])
    code = "async ([path, text, words]) => (await import(path)).locate(text, words)"
    text = "Er fährt … nach Berlin. " + "Und so weiter, bis es Abend wird. " * 3 + "Ende ... gut"
    words = [
        "er",
        "fährt",
        "...",
        "nach",
        "Berlin.",
    ]
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
def test_pieces_of_every_tokenizer_are_merged_to_words(place, visit, pieces, words):
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


def test_words_without_attention_are_marked_and_named(place, visit):
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
    assert backdrop == page.locator("#text").bounding_box()  # marks are at the places of their words


def test_text_is_summarized_on_request(place, visit):
    page = visit(place[0])
    page.get_by_role("link", name="Summarize").click()
    shown(page, "document.activeElement.placeholder === 'Text to summarize'")
    text = "We present a new method for learning. It is faster than others and we prove it."
    page.keyboard.type(text)
    page.wait_for_timeout(150)
    assert page.inner_text("#answer") == ""  # not before the button is pressed
    page.keyboard.press("Control+Enter")
    finished(page)
    body = {"q": text, "alternatives": 3, "truncate": True} | EXTRAS
    wanted = place[0].post("/summarize", json=body).json()
    assert page.inner_text("#answer") == wanted["summaryText"]
    assert page.locator("#alternatives button").all_inner_texts() == wanted["alternatives"]
    assert page.locator("mark.missed").count() == 0  # a summary may leave words out
    open_map(page)
    page.check("#pieces")
    np.testing.assert_array_equal(cells(page), np.array(wanted["alignment"][0]["matrix"]))
    page.fill("#text", "We prove it again and again. " * 40)
    page.click("#run")
    shown(page, "document.querySelector('#doubts').textContent.includes('beginning')")
    page.go_back()
    assert page.inner_text("#run") == "Translate"
    assert page.input_value("#text") == ""  # each task keeps its own text
