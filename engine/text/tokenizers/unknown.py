"""Source words in the place of unknown target words (ConvS2S, Gehring et al. 2017, section 4.3).

An unknown word becomes what a dictionary says of the source word that it attends to most, else that word
itself. Everything here is done to words as the text pipeline writes them, before they become text again.
"""

from __future__ import annotations

import io
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from engine.errors import BundleError


def read_table(path: Path) -> dict[str, str]:
    """Read a dictionary of words: "source target" on each line, tokenised as the model's text is.

    As fairseq reads its alignment dictionaries: what follows on a line is left out, and of two lines on one
    source word the later counts. Raises BundleError naming the line.
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
    """List the whole word that each symbol belongs to; all but a word's last symbol end with `separator`."""
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
    """Return target words with the unknown ones replaced; of equal weights the first counts.

    target: words of the target.
    unknown: indices of the unknown target words.
    source: the word that each source token belongs to, without end-of-sentence: it is never copied.
    attention: float array [at least len(target), at least the source's tokens]; a source that was cut has
        fewer columns than words.
    table: source word to the word that replaces an unknown one; a word that is not there replaces it itself.
    """
    words = list(target)
    width = min(len(source), attention.shape[1] - 1)
    for i in unknown if width else ():
        word = source[int(attention[i, :width].argmax())]
        words[i] = table.get(word, word)
    return words
