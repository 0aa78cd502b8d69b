"""LibreTranslate's contract: texts in HTML."""

import re
from html import unescape

from tests.server.http.conftest import GERMAN, direct, post


def test_tags_stay_and_texts_are_translated(place):
    html = '<p class="a">Das ist gut.</p><br/>\n<P>Wer bist &lt;du&gt;?</p><code>x = 1</code>'
    answer = post(place[0], q=html, format="html", alternatives=1).json()
    one, two = (direct(place, t).text for t in ("Das ist gut.", "Wer bist <du>?"))
    two = two.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    one = one.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    assert answer["translatedText"] == f'<p class="a">{one}</p><br/>\n<P>{two}</p><code>x = 1</code>'
    assert answer["alternatives"] == []


def test_descriptions_in_attributes_are_translated_on_request(place):
    html = '<p title="Das ist gut.">Guten Abend! <img alt="Wo ist der Bahnhof?"></p>'
    plain = post(place[0], q=html, format="html").json()["translatedText"]
    assert 'title="Das ist gut."' in plain
    answer = post(place[0], q=html, format="html", attributes=True).json()["translatedText"]
    for text in ("Das ist gut.", "Wo ist der Bahnhof?"):
        assert f'="{direct(place, text).text}"' in answer
        assert text not in answer


def test_html_array_is_answered_with_detected_languages(client):
    answer = post(client, q=["<b>Wo ist der Bahnhof?</b>", "<hr>"], source="auto", format="html").json()
    assert answer["translatedText"][0].startswith("<b>")
    assert answer["translatedText"][1] == "<hr>"
    assert answer["detectedLanguage"][0]["language"] == "de"


def test_sentences_are_translated_across_inline_tags(place):
    html = "<p>Wo ist <b>denn</b> hier<img src=x> der <a href=y>Bahnhof</a>?</p>"
    answer = post(place[0], q=html, format="html").json()["translatedText"]
    plain = re.sub("<[^>]*>", "", answer)
    assert unescape(plain) == direct(place, GERMAN).text
    assert sorted(re.findall("<[^>]*>", answer)) == sorted(re.findall("<[^>]*>", html))


def test_detection_applies_to_each_text_of_an_array(place):
    texts = [GERMAN, "Where can I find the railway station?", "😀", "Guten Abend!"]
    answer = post(place[0], q=texts, source="auto").json()
    assert [d["language"] for d in answer["detectedLanguage"]] == ["de", "en", "en", "de"]
    assert answer["detectedLanguage"][2]["confidence"] == 0
    wanted = [direct(place, GERMAN).text, texts[1], "😀", direct(place, "Guten Abend!").text]
    assert answer["translatedText"] == wanted


def test_untranslated_html_stays_unchanged(client):
    html = "<p>The  <b>railway</b>\n station &copy; is where?</P>"
    assert post(client, q=html, source="auto", target="en", format="html").json()["translatedText"] == html


def test_request_of_mastodon_works(place):
    """The body is that of app/lib/translation_service/libre_translate.rb."""
    body = {"q": ["<p>Wo ist der Bahnhof?</p>", "Gut"], "source": "auto", "target": "en", "format": "html"}
    answer = place[0].post("/translate", json=body).json()
    assert [d["language"] for d in answer["detectedLanguage"]] == ["de", "de"]
    assert answer["translatedText"][0].startswith("<p>")


def test_scores_of_html_are_refused(client):
    answer = post(client, format="html", scores=True)
    assert answer.status_code == 400
    assert "use format text" in answer.json()["error"]
