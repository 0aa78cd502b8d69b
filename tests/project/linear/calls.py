"""Functions that give a text to one parser each, for the cases of `test_linear.py`."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress

import pytest


def page(kind: str) -> Callable[[str], object]:
    """Return a function that reads a file of this kind and writes it again."""

    def read(text: str) -> object:
        from documents import Unreadable, read_document

        try:
            document = read_document(f"x.{kind}", text.encode("utf-8", "surrogatepass"))
        except Unreadable:
            return None
        return document.write(document.segments)

    return read


def substation(text: str) -> object:
    head = "[Events]\nFormat: Layer, Start, End, Text\nDialogue: 0,0:00:01.00,0:00:02.00,"
    return page("ass")(head + text)


def notebook(text: str) -> object:
    import json

    return page("ipynb")(json.dumps({"cells": [{"cell_type": "markdown", "source": [text]}] * 3}))


def masked(text: str) -> object:
    from engine.text.placeables.masked_text import MarkedText
    from engine.text.placeables.masking import MaskRules
    from tests.support.finished import mask

    return mask(MarkedText(text), MaskRules(ignore=["a b", "a.", "x"], glossary={"a": "b"}, protect=True))


def marked_up(text: str) -> object:
    from tests.support.finished import read_markup

    return read_markup(text)


def in_data(text: str) -> object:
    from engine.text.placeables.structured import find_code

    return list(find_code(text))


def in_capitals(text: str) -> object:
    from engine.text.placeables.markup import PlainText
    from tests.support.finished import read_capitals

    return read_capitals(PlainText(text), "de", lambda word: 1 if word.islower() else 9)


def signs_of_names(text: str) -> object:
    from engine.text.languages import LANGUAGES

    rules = LANGUAGES.values()
    patterns = {each.translated_names for each in rules}
    patterns |= {p for r in rules if (n := r.nouns) for p in (n.adjectives, n.determiners, n.inflected)}
    return [re.fullmatch(pattern, text) for pattern in sorted(patterns)]


def named(text: str) -> object:
    from engine.text.languages import LANGUAGES
    from engine.text.placeables.names import NameRule, find_acronyms, find_names

    languages = [language for language, rules in LANGUAGES.items() if rules.titles]
    rules = (NameRule(language, lambda word: 1 if word.islower() else 9, 4) for language in languages)
    return [(list(find_names(text, rule)), list(find_acronyms(text, rule))) for rule in rules]


def stems(text: str) -> object:
    from engine.text.known_words import is_compound, stem
    from engine.text.languages import LANGUAGES

    found = [stem(text, language) for language in LANGUAGES]
    return found, is_compound(text, "de", lambda part: True)


def unknown(text: str) -> object:
    from engine.text.known_words import KnownWords, hashes
    from engine.text.unknown_words import find_unknown_words

    lists = hashes(["ab", "abc", "abcd"]), hashes(["Ab"]), hashes(["Abc"]), hashes(["ABC"])
    texts = text, text + " ab" * len(text)  # capitals are no signs of names in a text of capitals
    known = [KnownWords(language, *lists) for language in ("de", "en", "fr")]
    return [list(find_unknown_words(each, words)) for words in known for each in texts]


def in_answer(text: str) -> object:
    from engine.text.placeables.spelling import has_similar_word

    return has_similar_word(text, "unusual")


def with_counterparts(text: str) -> object:
    from engine.text.languages import LANGUAGES
    from engine.text.placeables.counterparts import find_counterparts, find_long_forms, title_before

    languages = [language for language, rules in LANGUAGES.items() if rules.titles or rules.dates]
    pairs = [(source, target) for source in languages for target in languages]
    found = [(list(find_counterparts(text, pair)), title_before(text, len(text), pair)) for pair in pairs]
    return found, [list(find_long_forms(text, language)) for language in languages]


def in_clauses(text: str) -> object:
    from tests.support.finished import split

    return split(text, "de", clauses=True)


def in_pairs(text: str) -> object:
    from engine.text.placeables.pairs import keeps_pairs, without_pairs

    return keeps_pairs(text, text), without_pairs(text, "en")


def amount(text: str) -> object:
    from engine.text.numerals import localise

    return localise(text, "de", "en")


def subword_tokens(text: str) -> object:
    from engine.text.tokenizers.subwords import split

    return split(text)


def ending(text: str) -> object:
    from engine.text.form import beginning, follow

    return follow(text, text, ("de", "en")), beginning(text, text, ("de", "en"))


def cased(text: str) -> object:
    from engine.text.form import follow

    return follow("Ab Cd Ef", text, ("de", "en"))


def sentences(text: str) -> object:
    from tests.support.finished import split

    return split(text, "de", lambda part: len(part) < 200)


def entries(text: str) -> object:
    from engine.api import InvalidRequest, at_once
    from server.contracts.deepl.entries import read_entries

    for kind in ("tsv", "csv"):
        with suppress(InvalidRequest):
            at_once(read_entries(text, kind))


def one_line(text: str) -> object:
    from server.contracts.deepl.translate import on_one_line

    return on_one_line(text)


def instruction(text: str) -> object:
    from server.answering.instructions import read_instruction

    return read_instruction(text)


def client_message(text: str) -> object:
    from server.answering.templates import read_template

    return read_template(text)


def present_phrases(text: str) -> object:
    from engine.api import at_once
    from server.contracts.deepl.entries import present_entries

    return at_once(present_entries({"a b c": "x", "a" * 100: "y", "b": "z"}, [text]))


def body(text: str) -> object:
    from engine.api import InvalidRequest
    from server.http.parameters import parse_json

    try:
        return parse_json(text.encode())
    except InvalidRequest:
        return None


def tensors(text: str) -> object:
    from engine.api import InvalidRequest
    from server.contracts.kserve.tensors import read_tensors

    tensor = {"name": "text_input", "datatype": "BYTES", "shape": [ord(c) for c in text], "data": ["a"]}
    flat = tensor | {"shape": [len(text)], "data": list(text)}
    nested = tensor | {"shape": [1], "data": [[c] for c in text]}
    packed = tensor | {"shape": [len(text)], "parameters": {"binary_data_size": 4 * len(text)}}
    for one in (tensor, flat, nested, packed):
        with suppress(InvalidRequest):
            read_tensors({"inputs": [one]}, b"\0\0\0\0" * len(text), "m", -1)
    with suppress(InvalidRequest):
        read_tensors({"inputs": [flat], "outputs": list(text)}, b"", "m", -1)
    return None


def form_fields(text: str) -> object:
    from engine.api import InvalidRequest, at_once
    from server.http.forms import read_fields

    try:
        return at_once(read_fields(text.encode("utf-8", "surrogatepass")))
    except InvalidRequest:
        return None


def form_parts(text: str) -> object:
    from engine.api import InvalidRequest, at_once
    from server.http.forms import read_parts
    from server.http.media import Media

    media = Media("multipart/form-data", "utf-8", b"x")
    head = b"--x\r\nContent-Disposition: form-data; name=file; filename=a\r\n\r\n"
    try:
        return at_once(read_parts(head + text.encode("utf-8", "surrogatepass") + b"\r\n--x--", media))
    except InvalidRequest:
        return None


def media_parameters(text: str) -> object:
    from engine.api import InvalidRequest
    from server.http.media import media_of

    try:
        return media_of(f"multipart/form-data; boundary={text}")
    except InvalidRequest:
        return None


def html(text: str) -> object:
    from documents.formats.html import read_html

    found = read_html(text)
    return found.join(found.segments)


def grpc_messages(text: str) -> object:
    pytest.importorskip("grpc")
    from server.grpc.codec import BadMessage, parse_message, read_parameters, read_request
    from server.grpc.messages import make_pool, message_classes

    kind = message_classes(make_pool())["ModelInferRequest"]
    message = kind(model_name=text)
    message.parameters["text"].string_param = text
    for letter in text[::16]:  # to make a tensor takes far longer than to read one
        message.inputs.add(name="text_input", datatype="BYTES").contents.bytes_contents.append(
            letter.encode()
        )
    read_parameters(message.parameters)
    with suppress(BadMessage):
        parse_message(kind, text.encode())
    with suppress(BadMessage):
        read_request(parse_message(kind, message.SerializeToString()))
    return None


def json_strings(text: str) -> object:
    import json

    return page("json")(json.dumps([text, f"{{n, plural, one {{{text}}} other {{x}}}}"]))


def captions(text: str) -> object:
    return page("vtt")("WEBVTT\n\n" + text), page("vtt")("WEBVTT\n\n00:01.000 --> 00:02.000\n" + text)


def server_names(text: str) -> object:
    pytest.importorskip("mcp")
    from server.contracts.mcp.routes import FIELD_END

    return sum(1 for _ in FIELD_END.finditer(text.encode()))


def html_attributes(text: str) -> object:
    from documents.formats.attributes import read_with_attributes

    page = read_with_attributes(f"<p><img{text}></p>")
    return page.join(page.segments)


def outlined(text: str) -> object:
    from documents.formats.outline import outline
    from documents.formats.tags import MarkupRules

    return outline(text, MarkupRules(xml=True))


def placed(text: str) -> object:
    from tests.support.finished import locate

    return locate(text, list(text[: len(text) // 2]))


def detected(text: str) -> object:
    from engine.text.detect import detect

    return detect(text[:4000], ["de", "en"])


def decoded(text: str) -> object:
    from documents.formats.plain import decode

    return decode(text.encode("utf-8", "surrogatepass"))


def numbered(text: str) -> object:
    from engine.text.numbers import (
        find_numbers,
        foreign_magnitudes,
        foreign_numbers,
        foreign_words,
        names_number,
        shortened_words,
    )

    languages = ("de", "en")
    words = foreign_words(text, text, languages), shortened_words(text, text + " zehn", languages)
    found = list(find_numbers(text, "de")), names_number(text, 7, "de")
    magnitudes = foreign_magnitudes(text + " Million", text, languages)
    return foreign_numbers("7 " + text, text, languages), magnitudes, *words, *found
