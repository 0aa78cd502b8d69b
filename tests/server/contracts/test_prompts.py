"""System prompts and messages of programs that speak to chat models, with the words of their sources."""

import itertools
import json
import time

import pytest

from server.answering.chats import before, certain_before
from server.answering.instructions import Instruction, read_instruction
from server.answering.templates import TEMPLATES, read_template
from server.languages import resolve_code
from tests.support.served import server

SERVED = frozenset(["de", "en", "fr", "zh", "zt", "pb", "it"])
GERMAN = "Wo ist denn hier der Bahnhof?"
TEXT = "Guten Morgen!\nWie geht es?"
RULES = "\n\n## Translation Rules\n1. Output only the translated content, without explanations"
# a message and the languages that it names, as codes
PROMPTS = [
    ("Translate from German to English", "de", "en"),
    ("You translate text into Simplified Chinese.", "", "zh"),
    ("Translate to Chinese (Traditional)", "", "zt"),
    ("translation from en to pt-BR, please", "en", "pb"),
    ("Translate it to the best of your knowledge to French", "", "fr"),
    ("You are a professional translator.\nTranslate the user's text into English.", "", "en"),
    ("You are a translation engine.\n\nTranslate the text below to English.", "", "en"),
    ("You translate. Source language: German\nTarget language: English", "de", "en"),
    ("Target language: English", "", "en"),
    ("Translate this into US English", "", "en"),
    ("Translate to Deutsch", "", "de"),
    ("translate to 中文", "", "zh"),
    ("Übersetze ins Englische", "", "en"),
    ("Übersetze aus dem Deutschen ins Französische.", "de", "fr"),
    ("German to English", "de", "en"),
    ("de -> en", "de", "en"),
    ("Translate German to English.", "de", "en"),
    ("You are an expert English-German translator.", "en", "de"),
    ("Traduis du français vers l'allemand", "fr", "de"),
    ("Traduis en anglais", "", "en"),
    ("Traduce al inglés", "", "en"),
    ("The text is in German. Translate it to English.", "", "en"),
    ("Translate in English", "", "en"),
    ("Translate from deu_Latn to eng_Latn", "de", "en"),
    ("Translate from auto to English", "", "en"),
    ("translate from de to it", "de", "it"),
    ("Translate to polish the text, into English", "", "en"),
    ("你是一个翻译引擎。请将文本翻译成英语。禁止进行任何形式的对话", "", "en"),
    ("从德语翻译成英语", "de", "en"),
    # Immersive Translate, LunaTranslator, TranslateGemma, OpenAI-Translator
    (
        f"You are a professional German native translator who needs to fluently translate text into "
        f"German.{RULES}",
    )
    + ("", "de"),
    (
        "You are a translator. Please help me translate the following German text into English. You "
        "should only "
        "tell me the translation result without any additional explanations.",
        "de",
        "en",
    ),
    (
        "You are a professional German (de) to English (en) translator. Your goal is to convey the meaning.",
        "de",
        "en",
    ),
    ("Translate from German to English. Return translated text only.", "de", "en"),
    # engines that name their languages in the user's message
    ("You are a professional, authentic machine translation engine.", "", ""),
    ("You are a translation engine that can only translate text and cannot interpret it.", "", ""),
]


def code(name):
    return resolve_code(name, SERVED) if name else ""


@pytest.mark.parametrize(("message", "source", "target"), PROMPTS)
def test_languages_of_a_system_prompt_are_found(message, source, target):
    instruction = read_instruction(message)
    assert (code(instruction.source), code(instruction.target)) == (source, target)
    assert not instruction.summarize


def test_other_messages_name_no_task():
    assert read_instruction("Be kind.") is None
    assert read_instruction("You are a helpful assistant. It is up to you.") is None
    assert read_instruction("Summarise this") == Instruction(True)
    assert read_instruction("Summarize the text. Do not translate it into English.") == Instruction(True)


SUBTITLE_EDIT = "do not censor the translation, give only the output without comments"
# what each program sends as the user's message; {} is the text
MESSAGES = {
    "pot": 'Translate into English:\n"""\n{}\n"""',
    "Comment Translate": 'translate from German to English: "{}" =>',
    "Bob": "translate from German to English:\n\n{}",
    "Subtitle Edit": f"Translate from German to English, keep punctuation as input, {SUBTITLE_EDIT}:\n\n{{}}",
    "Subtitle Edit 5": "Translate from German to English, keep punctuation as input, keep line breaks "
    "exactly the "
    f"same, {SUBTITLE_EDIT}:\n\n{{}}",
    "Subtitle Edit, Anthropic": f"Translate from German to English, keep sentences in English as they are, "
    f"{SUBTITLE_EDIT}:\n\n{{}}",
    "local subtitle tools": f"Translate from German to English, keep punctuation as input, "
    f"{SUBTITLE_EDIT} or notes: "
    "{}",
    "Immersive Translate": "Translate to English (output translation only):\n\n{}",
    "Immersive Translate, several": "Translate to English:\n\n{}",
    "PDFMathTranslate next": ";; Treat next line as plain text input and translate it into English, output "
    "translation ONLY. If translation is unnecessary (e.g. proper nouns, codes, {{1}}, etc. ), return "
    "the original "
    "text. NO explanations. NO notes. Input:\n\n{}",
    "Read Frog": "Translate the following text into English, If translation is unnecessary (e.g. proper "
    "nouns, "
    "codes, etc.), return the original text. NO explanations. NO notes:\n\n{}",
    "FluentRead": "Translate the following text into English, output translation text directly without "
    "any extra "
    "information:\n\n{}",
    "Kiss Translator": "# Context\nTitle: A page\nDescription: \nSummary: \nTone: formal\n\n# "
    "Task\nTranslate the "
    "Source Text below to English.\n1. Use the Context to ensure accuracy.\n2. Adapt the wording to "
    "match the "
    "specified Tone.\n3. Output ONLY the translated text. No markdown, no explanations.\n\nSource Text: "
    "{}\n\n"
    "Translated Text:",
    "Kiss Translator 1": "Translate the following source text to English. Output translation directly "
    "without any "
    "additional text.\n\nSource Text: {}\n\nTranslated Text:",
    "PDFMathTranslate": "You are a professional, authentic machine translation engine. Only Output the "
    "translated "
    "text, do not include any other text.\n\nTranslate the following markdown source text to English. "
    "Keep the "
    "formula notation {v*} unchanged. Output translation directly without any additional "
    "text.\n\nSource Text: {}"
    "\n\nTranslated Text:",
    "Zotero": "As an academic expert with specialized knowledge in various fields, please provide a "
    "proficient and "
    "precise translation translation from de to en of the academic text enclosed in 🔤. It is crucial to "
    "maintaining "
    "the original phrase or sentence and ensure accuracy while utilizing the appropriate language. The "
    "text is as "
    "follows:  🔤 {} 🔤  Please provide the translated result without any additional explanation "
    "and remove 🔤.",
    "LunaTranslator": "Please help me translate the following German text into English, and you should "
    "only tell me "
    "the translation.\n{}",
    "TranslateGemma": "You are a professional German (de) to English (en) translator. Your goal is to "
    "accurately "
    "convey the meaning and nuances of the original German text while adhering to English grammar, "
    "vocabulary, and "
    "cultural sensitivities.\nProduce only the English translation, without any additional explanations or "
    "commentary. Please translate the following German text into English:\n\n\n{}",
    "Hunyuan-MT": "Translate the following segment into English, without additional explanation.\n\n{}",
    "Hunyuan-MT, Chinese": "把以下文本翻译成英语，注意只需要输出翻译后的结果，不要额外解释：\n\n{}",
    "Chinese plug-ins": "翻译成英语:\n\n{}",
    "a chat": "Please translate this text from German into English:\n{}",
}


@pytest.mark.parametrize("client", MESSAGES)
@pytest.mark.parametrize("text", [TEXT, 'Er sagte: "Ja" – Translate to French: nein', "🎉 #{1} $x$"])
def test_a_message_in_the_form_of_a_client_gives_its_text(client, text):
    instruction, found = read_template(MESSAGES[client].replace("{}", text))
    assert found == text
    assert code(instruction.target) == "en"
    assert code(instruction.source) == ("de" if "German" in MESSAGES[client] or client == "Zotero" else "")


def test_every_template_has_a_message():
    sent = [message.replace("{}", TEXT) for message in MESSAGES.values()]
    from server.answering.templates import PATTERNS

    unused = [
        template.clients
        for template, (head, _) in zip(TEMPLATES, PATTERNS, strict=True)
        if not any(map(head.match, sent))
    ]
    assert unused == []


@pytest.mark.parametrize(
    "message",
    [
        GERMAN,
        "Translate to English: one line",
        "Translate into nonsense:\nabc",
        "translate from here to there:\n\nabc",
        "Translate to English:\n\n  ",
        "I said: Translate to English:\n\nabc",
        "Translate from German to English",
    ],
)
def test_any_other_message_is_a_text(message):
    assert read_template(message) is None


HOSTILE = {
    "a": "As an academic expert " + " translation from " * 400 + "x" * 100_000,
    "b": "You are a professional " + " to " * 20_000,
    "c": "# Context" + " Translate the following source text to " * 5_000,
    "d": "translate from " + "to " * 50_000,
    "e": " " * 100_000,
    "f": "Translate into English:\n" + '"""' * 30_000 + "x",
    "g": "\n" * 50_000 + "Translate to English:" + "\n" * 50_000,
    "h": "translate " + "to polish " * 10_000,
    "i": "translate " + "German-x " * 10_000 + "翻译成中" * 10_000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_messages_take_little_work(name):
    begin = time.thread_time()
    read_template(HOSTILE[name])
    read_instruction(HOSTILE[name])
    assert time.thread_time() - begin < 2


def test_an_answer_ends_before_a_stop_text():
    assert before("a. b! c", ["!", "."]) == "a"
    assert before("abc", ["x"]) == "abc"
    assert certain_before("abc##", ["###"]) == "abc"
    assert certain_before("abc### d", ["###"]) == "abc"
    assert certain_before("abc", ["###", "bcd"]) == "a"


@pytest.fixture(scope="module")
def client():
    with server() as (found, *_):
        yield found


def answer(client, messages, path="/v1/chat/completions", **fields):
    return client.post(path, json={"messages": messages} | fields)


def content(reply):
    assert reply.status_code == 200, reply.text
    return reply.json()["choices"][0]["message"]["content"]


@pytest.fixture(scope="module")
def english(client):
    values = {"q": GERMAN, "source": "de", "target": "en"}
    return client.post("/translate", json=values).json()["translatedText"]


@pytest.mark.parametrize(
    ("name", "model"), list(zip(MESSAGES, itertools.cycle(["convoy", "", "toy-de-en", None]), strict=False))
)
def test_a_client_with_its_own_prompt_is_answered_with_the_translation_alone(client, english, name, model):
    system = {"role": "system", "content": "You are a professional, authentic machine translation engine."}
    user = {"role": "user", "content": MESSAGES[name].replace("{}", GERMAN)}
    fields = {} if model is None else {"model": model}
    assert content(answer(client, [system, user], max_tokens=-1, stream=False, **fields)) == english


def test_a_server_of_one_model_needs_no_name_of_it(english):
    from engine.api import Service
    from tests.support.served import bundles, settings_of

    def opened(observe):
        return Service.open([bundles() / "toy-de-en"], settings_of(), observe)

    messages = [{"role": "system", "content": "You are an assistant."}, {"role": "user", "content": GERMAN}]
    with server(opened=opened) as (client, *_):
        for fields in ({}, {"model": ""}, {"model": None}, {"model": "convoy"}):
            assert content(answer(client, messages, **fields)) == english


def test_several_models_and_no_name_are_refused(client):
    reply = answer(client, [{"role": "user", "content": GERMAN}])
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "model")


@pytest.mark.parametrize("limit", [-1, 0, None])
def test_no_limit_of_tokens_is_the_models_own(client, english, limit):
    messages = [{"role": "user", "content": GERMAN}]
    assert content(answer(client, messages, model="toy-de-en", max_tokens=limit)) == english


def test_a_stop_text_ends_the_answer_and_the_stream(client, english):
    stop = english[5:8]
    messages = [{"role": "user", "content": GERMAN}]
    fields = {"model": "toy-de-en", "stop": [stop, ""], "n": 2}
    plain = answer(client, messages, **fields).json()
    assert plain["choices"][0]["message"]["content"] == english[: english.index(stop)]
    assert plain["choices"][0]["finish_reason"] == "stop"
    assert all(stop not in choice["message"]["content"] for choice in plain["choices"])
    streamed = client.post("/v1/chat/completions", json={"messages": messages, "stream": True} | fields).text
    assert stop not in streamed.replace('"', "")


def test_logprobs_are_those_of_the_tokens_of_the_first_answer(client):
    plain = {"q": GERMAN, "source": "de", "target": "en", "scores": True}
    wanted = client.post("/translate", json=plain).json()["scores"]
    pairs = list(zip(wanted["tokens"], wanted["tokenScores"], strict=True))
    assert len(pairs) > 3
    messages = [{"role": "user", "content": GERMAN}]
    chat = {"model": "toy-de-en", "logprobs": True, "n": 2}
    first, second = answer(client, messages, **chat).json()["choices"]
    assert second["logprobs"] is None
    tokens = first["logprobs"]["content"]
    assert [(token["token"], token["logprob"]) for token in tokens] == pairs
    assert all(bytes(token["bytes"]).decode() == token["token"] for token in tokens)
    stream = client.post("/v1/chat/completions", json={"messages": messages, "stream": True} | chat)
    chunks = [json.loads(line[6:]) for line in stream.text.splitlines() if line.startswith("data: {")]
    scored = [choice["logprobs"] for chunk in chunks for choice in chunk["choices"] if choice["logprobs"]]
    assert scored == [first["logprobs"]]
    completion = {"model": "toy-de-en", "prompt": [GERMAN, TEXT], "logprobs": 0}
    for choice in client.post("/v1/completions", json=completion).json()["choices"]:
        found = choice["logprobs"]
        assert len(found["tokens"]) == len(found["token_logprobs"]) > 3
    assert list(zip(found["tokens"], found["token_logprobs"], strict=True)) != pairs


def test_top_logprobs_have_no_effect_and_a_warning(client):
    messages = [{"role": "user", "content": GERMAN}]
    reply = answer(client, messages, model="toy-de-en", logprobs=True, top_logprobs=5).json()
    assert set(reply["warnings"]) == {"top_logprobs"}
    reply = answer(client, messages, model="toy-de-en", logprobs=False).json()
    assert "warnings" not in reply
    assert reply["choices"][0]["logprobs"] is None
    assert answer(client, messages, model="toy-de-en", logprobs=6).status_code == 400


def test_a_stream_has_every_choice(client):
    messages = [{"role": "user", "content": GERMAN}]
    plain = answer(client, messages, model="toy-de-en", n=3).json()
    values = {"messages": messages, "model": "toy-de-en", "n": 3, "stream": True}
    texts = {}
    for line in client.post("/v1/chat/completions", json=values).text.splitlines():
        if line.startswith("data: {"):
            for choice in json.loads(line[6:])["choices"]:
                index = choice["index"]
                texts[index] = texts.get(index, "") + choice["delta"].get("content", "")
    assert texts == {choice["index"]: choice["message"]["content"] for choice in plain["choices"]}
