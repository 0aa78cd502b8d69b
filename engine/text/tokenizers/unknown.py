"""Source words in the place of unknown target words (ConvS2S, Gehring et al. 2017, section 4.3).

An unknown word is replaced by the dictionary's word for the source word that it attends to most, or by that
source word itself. Words are tokens of the model, before detokenisation.
"""

from __future__ import annotations

import io
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from engine.errors import BundleError


def read_table(path: Path) -> dict[str, str]:
    """Read a dictionary of words: "source target" on each line, tokenised as the model's text.

    As in fairseq's alignment dictionaries, further words of a line are ignored, and the last line of a source
    word counts. Raises BundleError naming the line.
    """
    try:
        text = path.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BundleError(f"{path}: not readable as UTF-8 ({error}); copy the dictionary again") from error
    table = {}
    for number, line in enumerate(io.StringIO(text, newline=None), 1):
        words = line.split()
        if len(words) == 1:
            raise BundleError(f"{path}, line {number}: must be 'source target', not {line.strip()!r}")
        if words:
            table[words[0]] = words[1]
    return table


def word_of_each(symbols: Sequence[str], separator: str) -> list[str]:
    """Return the whole word of each symbol.

    symbols: symbols of a text.
    separator: ending of all symbols of a word except the last one.
    """
    words: list[str] = []
    parts: list[str] = []
    for i, symbol in enumerate(symbols):
        whole = not symbol.endswith(separator)
        parts.append(symbol if whole else symbol.removesuffix(separator))
        if whole or i == len(symbols) - 1:
            words += ["".join(parts)] * len(parts)
            parts = []
    return words


def replace_unknown(
    target: Sequence[str],
    unknown: Collection[int],
    source: Sequence[str],
    attention: Any,
    table: Mapping[str, str],
) -> list[str]:
    """Replace unknown target words; the first of equal weights counts.

    target: words of the target.
    unknown: indices of the unknown target words.
    source: whole word of each source token, without end-of-sentence, which is never copied.
    attention: float array [at least len(target), source tokens with end-of-sentence]; a truncated source has
        fewer columns than tokens.
    table: source word to its replacement; a source word that it lacks is copied.
    """
    words = list(target)
    width = min(len(source), attention.shape[1] - 1)
    for i in unknown if width else ():
        word = source[int(attention[i, :width].argmax())]
        words[i] = table.get(word, word)
    return words
