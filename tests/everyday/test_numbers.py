"""No answer has a number in digits that its source lacks, and times in words keep their hour."""

import asyncio
import gzip
import json
import random
import re
from dataclasses import replace
from pathlib import Path

import pytest

from engine.answers.choices import choices
from engine.answers.drafts import Drafts
from engine.answers.numbering import without_digits
from engine.answers.plan import plan
from engine.api import Placement, Service, ServiceSettings, TextOptions
from engine.schedule.slices import at_once
from engine.text.numbers import foreign_numbers
from engine.types import Hypothesis
from tests.support.thorough import THOROUGH

ROOT = Path(__file__).parents[2]
MODELS, CORPORA = ROOT / "models", ROOT.parent / "shared" / "corpora"
PAIRS = ("de-en", "en-de", "fr-en", "en-fr")
PROTECTED = TextOptions(protect=True, follow_form=True, truncate=True)
LINES = 2_500  # of each direction
TIMES = {
    "de-en": {
        "Kommen Sie um halb acht.": "half past seven",
        "Ja, um halb acht.": "half past seven",
        "Ich rufe Sie morgen um halb acht an.": "half past seven",
        "Frau Stein erwartet Sie um halb vier.": "half past three",
        "Es ist Viertel nach sechs.": "a quarter past six",
        "Es ist halb eins.": "half past twelve",
    },
    "en-de": {
        "Come at half past seven.": "um halb acht",
        "The film starts at half past nine.": "um halb zehn",
        "It is a quarter to nine.": "Viertel vor neun",
        "Come at half past twelve.": "um halb eins",
    },
    "fr-en": {"Viens à sept heures et demie.": "half past seven"},
    "en-fr": {"It is a quarter to one.": "une heure moins le quart"},
}
# the models write a number into the answers to these lines
INVENTED = {
    "de-en": ('%1$S-Suche nach "%2$S"', "Python-3-Anbindung für das Qt5-OpenGL-Modul"),
    "en-de": ("Zero-width non-joiner at the 3rd level, zero-width joiner at the 4th level",),
    "fr-en": ("1 quart impérial", "ANOVA - deux facteurs"),
    "en-fr": ("Allow IPv6 sockets to handle IPv4 connections.", "…in over 300 languages"),
}


@pytest.fixture(scope="module", params=PAIRS)
def served(request):
    name = f"tatoeba-{request.param}"
    if not (MODELS / name).is_dir():
        pytest.skip(f"models/{name} is not there")
    service = Service.open([MODELS / name], ServiceSettings(Placement(lanes=((5, 16),)), verify=False))
    service.start()
    yield request.param, service
    service.stop(drain=False, timeout=10)


def answers(service, pair, texts):
    return [result.text for result in service.run_many(f"tatoeba-{pair}", texts, PROTECTED)]


def strangers(pair, text, answer):
    source, target = pair.split("-")
    lost = foreign_numbers(text, answer, (source, target))
    return [*foreign_numbers(answer, text, (target, source)), *lost]


def test_time_in_words_keeps_its_hour(served):
    pair, service = served
    for answer, time in zip(answers(service, pair, TIMES[pair]), TIMES[pair].values(), strict=True):
        assert time in answer


def test_number_that_the_model_invents_is_not_accepted(served):
    pair, service = served
    for text, answer in zip(INVENTED[pair], answers(service, pair, INVENTED[pair]), strict=True):
        assert not strangers(pair, text, answer), (text, answer)


def test_answer_that_was_streamed_is_not_taken_back(served):
    pair, service = served

    async def events(text):
        return [event async for event in service.stream(f"tatoeba-{pair}", [text], PROTECTED)]

    for text in INVENTED[pair]:
        *partials, last = asyncio.run(events(text))
        assert all(last[0].text.startswith(partial.text) for partial in partials)


@pytest.mark.skipif(not (THOROUGH and CORPORA.is_dir()), reason="thorough, and needs corpora")
def test_no_answer_of_corpora_has_a_number_that_its_source_lacks(served):
    pair, service = served
    language = pair.replace("en", "").strip("-")
    column, draw, lines = int(pair.startswith("en")), random.Random(1), dict[str, None]()
    for path in sorted(CORPORA.glob(f"*/*{language}-en*.gz")) + sorted(CORPORA.glob(f"*{language}-en/*.gz")):
        with gzip.open(path, "rt", encoding="utf-8", errors="replace") as rows:
            cells = [row.rstrip("\n").split("\t") for row in rows]
        texts = [
            c[column] for c in cells if len(c) > 1 and len(c[column]) < 200 and re.search(r"\d", c[column])
        ]
        lines |= dict.fromkeys(draw.sample(texts, min(len(texts), 200)))
    chosen = draw.sample(list(lines), min(len(lines), LINES))
    wrong = {
        text: answer
        for text, answer in zip(chosen, answers(service, pair, chosen), strict=True)
        if strangers(pair, text, answer)
    }
    assert not wrong, json.dumps(wrong, ensure_ascii=False, indent=1)


def test_stream_stops_before_digits_that_may_be_wrong(served):
    pair, service = served
    model = service.repository.loaded[f"tatoeba-{pair}"].text
    text = {"de": "Sie zahlten viel Geld.", "en": "They paid a lot.", "fr": "Ils ont payé."}[pair[:2]]
    drafts = Drafts()
    watch = drafts.begin(model, [at_once(plan(model, text, PROTECTED))])
    watch(0, model.tokenizer.encode_target("They paid 500 for it now."))
    (partial,) = at_once(drafts.take())
    assert partial.text == "They paid"


def test_wrong_number_is_never_accepted_even_if_the_model_insists(served):
    """A sentence with digits of its own stays untranslated, another one loses the number."""
    pair, service = served
    model = service.repository.loaded[f"tatoeba-{pair}"].text
    wrong = Hypothesis(model.tokenizer.encode_target("They paid 500 for it."), -0.1, [], "stop")
    word = {"de": "Garten", "en": "Garden", "fr": "Jardin"}[model.source]
    for text, answer in ((f"{word}.", "They paid for it."), (f"{word} 6.", f"{word} 6.")):
        made = at_once(plan(model, f"{word}.", TextOptions(protect=True)))
        made = replace(made, sentences=[replace(made.sentences[0], text=text, numbers="6" in text)])
        (first,) = choices(model, made, made.sentences[0], [wrong])
        assert first.misnumbered or first.garbled
        strict = without_digits(model, made, replace(made.sentences[0], fallback=None), [wrong])
        assert strict.banned
        assert model.tokenizer.decode(strict.prefix).strip() == "They paid"
        (last,) = choices(model, made, replace(strict, marks=None), [wrong])
        text, _ = made.masked.restore(last.text, last.order)
        assert (text, last.forced) == (answer, 1)


def test_answer_that_changes_a_number_in_words_is_never_accepted(served):
    pair, service = served
    model = service.repository.loaded[f"tatoeba-{pair}"].text
    texts = {
        "de": ("Wir haben vierzig Stühle.", "Wir haben sechzig Stühle."),
        "en": ("We have forty chairs.", "We have sixty chairs."),
        "fr": ("Nous avons quarante chaises.", "Nous avons soixante chaises."),
    }
    parts = {
        "de": ("Sie haben fünfundsiebzig Stühle.", "Sie haben siebzig Stühle."),
        "en": ("They have seventy-five chairs.", "They have seventy chairs."),
        "fr": ("Ils ont soixante-quinze chaises.", "Ils ont soixante chaises."),
    }
    for forms in (texts, parts):
        source, (right, wrong) = forms[pair[:2]][0], forms[pair[3:]]
        made = at_once(plan(model, source, TextOptions(protect=True)))
        hypotheses = [Hypothesis(model.tokenizer.encode_target(t), -0.1, [], "stop") for t in (wrong, right)]
        assert choices(model, made, made.sentences[0], hypotheses)[0].text == right
        (last,) = choices(model, made, made.sentences[0], hypotheses[:1])
        assert last.garbled  # it is decoded again with a placeholder
        unmasked = replace(made.sentences[0], text=source, phrases=(), fallback="", numbers=True)
        (last,) = choices(model, made, unmasked, hypotheses[:1])
        assert (last.text, last.forced, last.misnumbered) == (source, 1, False)


IDIOMS = {
    "de-en": (
        ("Er kam vor zwei Wochen.", "He came a fortnight ago."),
        ("Ich habe sechs Bücher.", "I have half a dozen books."),
        ("Ich kaufte ein Dutzend Äpfel.", "I bought a dozen apples."),
    ),
    "en-de": (
        ("It is just that easy.", "Es ist einfach so leicht."),
        ("What a shame!", "Ach, wie schade!"),
        ("I have half a dozen books.", "Ich habe sechs Bücher."),
    ),
    "fr-en": (("Il a une faim de loup.", "He could eat for four."),),
    "en-fr": (("What's new with your three sons?", "Quoi de neuf chez tes trois fils ?"),),
}


def test_number_words_of_an_idiom_are_accepted(served):
    pair, service = served
    model = service.repository.loaded[f"tatoeba-{pair}"].text
    for source, answer in IDIOMS[pair]:
        made = at_once(plan(model, source, TextOptions(protect=True)))
        made = replace(made, sentences=[replace(made.sentences[0], fallback="")])
        (choice,) = choices(
            model,
            made,
            made.sentences[0],
            [Hypothesis(model.tokenizer.encode_target(answer), -0.1, [], "stop")],
        )
        assert (choice.forced, choice.misnumbered, choice.garbled) == (0, False, False), source


TIMES_IN_DIGITS = {
    "de-en": (("Das Geschäft schließt um 17 Uhr.", "The shop closes at 5 p.m."),),
    "en-de": (("The shop closes at 5 pm.", "Das Geschäft schließt um 17 Uhr."),),
    "fr-en": (
        ("Le magasin ferme à 17 heures.", "The shop closes at 5 p.m."),
        ("Je commence le 20 octobre.", "I start on October 20th."),
    ),
    "en-fr": (("I get up at 6:30 a.m. every day.", "Je me lève à 6 h 30 chaque jour."),),
}


def test_hour_or_day_in_the_form_of_the_other_language_is_accepted(served):
    pair, service = served
    model = service.repository.loaded[f"tatoeba-{pair}"].text
    for source, answer in TIMES_IN_DIGITS[pair]:
        made = at_once(plan(model, source, TextOptions(protect=True)))
        hypothesis = Hypothesis(model.tokenizer.encode_target(answer), -0.1, [], "stop")
        (choice,) = choices(model, made, made.sentences[0], [hypothesis])
        assert (choice.text, choice.garbled, choice.misnumbered) == (answer, False, False)


def test_other_hour_is_not_accepted(served):
    pair, service = served
    model = service.repository.loaded[f"tatoeba-{pair}"].text
    source, answer = TIMES_IN_DIGITS[pair][0]
    made = at_once(plan(model, source, TextOptions(protect=True)))
    wrong = re.sub(r"\d+", "4", answer)
    hypothesis = Hypothesis(model.tokenizer.encode_target(wrong), -0.1, [], "stop")
    (choice,) = choices(model, made, made.sentences[0], [hypothesis])
    assert choice.garbled or choice.misnumbered
