"""Templates that clients of chat models wrap a text into, and the text of a message that has such a form.

A message is an instruction only if it has the form of a template with known languages; any other message is a
text to translate.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from server.answering.instructions import Instruction, is_language

HEAD_CHARACTERS: Final = 4_000  # longest part of a message before its text
TAIL_CHARACTERS: Final = 300  # longest part behind it
LANGUAGE: Final = r"[\w()（）' -]{1,40}?"
PARTS: Final = {
    " ": r"\s{1,4}",
    "{from}": f"(?P<source>{LANGUAGE})",
    "{to}": f"(?P<target>{LANGUAGE})",
    "{any}": r"[^🔤]{0,2000}?",
}


class Template(NamedTuple):
    """A client's message, as the sources of the client have it.

    clients: programs that send it.
    head: regular expression of the words before the text; {from} and {to} are languages, {any} is any text.
    tail: regular expression of the words after the text; "": none.
    """

    clients: str
    head: str
    tail: str = ""


TEMPLATES: Final = (
    Template("pot, uTools, Xinghuo's plug-ins", r'Translate into {to}:?\s*"""', '"""'),
    Template("Comment Translate for VS Code", 'translate from {from} to {to}:\\s*"', '" =>'),
    Template("Bob's plug-ins", r"translate from {from} to {to}:\s*\n"),
    Template(
        "Subtitle Edit, Whisper's translators",
        r"Translate from {from} to {to}, (?:keep|do not censor){any}give only the output without comments"
        r"(?: or notes)?:",
    ),
    Template("Immersive Translate, Read Frog", r"Translate to {to}(?: \(output translation only\))?:\s*\n"),
    Template(
        "Immersive Translate before 2025, PDFMathTranslate",
        r"(?:;; )?Treat next line as plain text input and translate it (?:from {from} )?into {to},? output "
        r"translation ONLY\.{any}NO notes\. Input:",
    ),
    Template(
        "Immersive Translate before 2024, Read Frog",
        r"Translate the following text into {to}, If translation is unnecessary{any}NO notes:",
    ),
    Template(
        "FluentRead",
        r"Translate the following text into {to}, output translation text directly without any extra "
        r"information:",
    ),
    Template(
        "Kiss Translator, PDFMathTranslate",
        r"(?:(?:# Context|You are a professional){any})?Translate the "
        r"(?:following (?:markdown )?source text|Source Text below) to {to}\.{any}Source Text:",
        "Translated Text:",
    ),
    Template(
        "Zotero PDF Translate",
        r"As an academic expert{any}translation from {from} to {to} of the academic text enclosed in "
        r"🔤\.{any}follows: 🔤",
        r"🔤 Please provide the translated result [^🔤]{0,99}(?:remove 🔤\.?)?",
    ),
    Template(
        "LunaTranslator",
        r"(?:You are a translator\. )?Please help me translate the following {from} text into "
        r"{to}(?:, and|\.) you should only tell me the translation[^\n]{0,80}\n",
    ),
    Template(
        "TranslateGemma's prompt, clients of Ollama",
        r"You are a professional {from}(?: \([\w-]{1,12}\))? to {to}(?: \([\w-]{1,12}\))? translator\.{any}"
        r"Please translate the following [\w ()-]{1,40} text into [\w ()-]{1,40}:",
    ),
    Template(
        "Hunyuan-MT's prompt",
        r"Translate the following segment into {to}, without additional explanation\.\s*\n",
    ),
    Template(
        "Hunyuan-MT's prompt in Chinese",
        "[将把]以下文本翻译[为成]{to}，注意只需要输出翻译后的结果，不要额外解释：?",
    ),
    Template(
        "Chinese plug-ins", r"(?:请?[将把](?:以下|下面)的?(?:文本|内容|文字))?翻[译譯][成为為]{to}[:：]\s*\n"
    ),
    Template(
        "chat applications",
        r"(?:Please )?Translate(?: the following| this)?(?: \w{3,20})?(?: from {from})? (?:in)?to {to}:\s*\n",
    ),
)


def _pattern(expression: str) -> re.Pattern[str]:
    for name, part in PARTS.items():
        expression = expression.replace(name, part)
    return re.compile(expression, re.IGNORECASE)


PATTERNS: Final = [(_pattern(template.head), _pattern(rf"(?:{template.tail})\Z")) for template in TEMPLATES]


def read_template(message: str) -> tuple[Instruction, str] | None:
    """Return the task and the text of a message that has the form of a template; None for other messages."""
    message = message.strip()
    for head, tail in PATTERNS:
        begin = head.match(message, 0, HEAD_CHARACTERS)
        end = begin and tail.search(message, max(begin.end(), len(message) - TAIL_CHARACTERS))
        text = message[begin.end() : end.start()].strip() if begin and end else ""
        if begin is None or not text:
            continue
        languages = {name: value.strip() for name, value in begin.groupdict(default="").items()}
        source = languages.get("source", "")
        source = "" if source.casefold() == "auto" else source
        if is_language(languages["target"]) and (not source or is_language(source)):
            return Instruction(False, source, languages["target"]), text
    return None
