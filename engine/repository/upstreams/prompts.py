"""Messages for language models, as the families of translation models were trained to read them.

TranslateGemma: its prompt as plain text, one message with two blank lines before the text
(ollama.com/library/translategemma).
Hunyuan-MT and Hy-MT2: the prompts of their model cards (huggingface.co/tencent/HY-MT1.5-1.8B): in Chinese for
pairs with Chinese, otherwise in English; the wording for terms is Hy-MT2's.
generic: instructions as the system's message and the text as the user's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from engine.text.language_names import KNOWN_NAMES
from engine.text.tokenizers.characters import SYMBOL, SourceText

Messages = list[dict[str, str]]

STRICT: Final = "Answer with the translation only: no notes, no quotation marks, no introduction."
KEEP_TAGS: Final = "Copy each tag such as {tag} to its place in the translation, once and unchanged."
KEEP_NUMBERS: Final = "Keep every number."
CHINESE: Final = frozenset({"zh", "zt"})


def messages_of(family: str, source: SourceText, *, strict: bool) -> Messages:
    """Return the messages that request a translation.

    family: family of the model, a key of TEMPLATES.
    source: text with its languages, placeholders and terms.
    strict: whether an earlier answer had faults.
    """
    tag = SYMBOL.search(source.text)
    notes = [KEEP_TAGS.format(tag=tag[0])] if tag else []
    notes += [KEEP_NUMBERS, STRICT] if strict else []
    return TEMPLATES[family](source, " ".join(notes))


def _generic(source: SourceText, notes: str) -> Messages:
    names = _name(source.source), _name(source.target)
    rules = f"Translate from {names[0]} to {names[1]}. Answer with the translation only."
    system = " ".join(filter(None, (rules, notes, _terms(source, "Use these translations:", "{} = {}"))))
    return [{"role": "system", "content": system}, {"role": "user", "content": source.text}]


def _translategemma(source: SourceText, notes: str) -> Messages:
    first, last = _name(source.source), _name(source.target)
    terms = _terms(source, "Use these translations:", "{} = {}")
    content = (
        f"You are a professional {first} ({_code(source.source)}) to {last} ({_code(source.target)}) "
        f"translator. Your goal is to accurately convey the meaning and nuances of the original {first} text "
        f"while adhering to {last} grammar, vocabulary, and cultural sensitivities.\nProduce only the {last} "
        f"translation, without any additional explanations or commentary. {notes + ' ' * bool(notes)}"
        f"{terms + ' ' * bool(terms)}Please translate the following {first} text into {last}:"
    )
    return [{"role": "user", "content": f"{content}\n\n\n{source.text}"}]


def _hy_mt(source: SourceText, notes: str) -> Messages:
    if CHINESE & {source.source, source.target}:
        terms = _terms(source, "参考下面的翻译:\n", "{} 翻译成 {}", "\n")
        target = KNOWN_NAMES[source.target][2]
        task = f"将以下文本翻译为{target},注意只需要输出翻译后的结果,不要额外解释:"
    else:
        terms = _terms(source, "Reference the following translations:\n", "{} translates to {}", "\n")
        task = f"Translate the following segment into {_name(source.target)}, without additional explanation."
    parts = filter(None, (terms, " ".join(filter(None, (notes, task))), source.text))
    return [{"role": "user", "content": "\n\n".join(parts)}]


def _terms(source: SourceText, head: str, line: str, separator: str = "; ") -> str:
    """Return the terms of a text as one sentence or list, "" if there are none."""
    terms = separator.join(line.format(*pair) for pair in source.hints.items())
    return f"{head}{' ' * (not head.endswith(chr(10)))}{terms}" + "." * (separator == "; ") if terms else ""


def _name(code: str) -> str:
    return KNOWN_NAMES[code][0]


def _code(code: str) -> str:
    """Return the code of a language as model cards write it."""
    return "zh-Hant" if code == "zt" else code


TEMPLATES: Final[Mapping[str, Callable[[SourceText, str], Messages]]] = {
    "generic": _generic,
    "translategemma": _translategemma,
    "hy-mt": _hy_mt,
}
