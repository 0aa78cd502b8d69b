"""The text side of a model: it turns texts into sources, and targets into texts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Any, Final

from engine.text.codes import primary
from engine.text.first_words import FIRST_WORDS
from engine.text.known_words import KnownWords
from engine.text.placeables.names import NameRule
from engine.text.tokenizers.placeholder_words import PlaceholderTokenizer, PlaceholderWord, symbols_of
from engine.text.tokenizers.tokenizer import Tokenizer
from engine.text.words import BundleWords
from engine.types import MAX_SENTENCE_TOKENS, DecodeOptions, Limits

# languages written without spaces between sentences; their translations need one
SPACELESS: Final = frozenset({"bo", "ja", "km", "lo", "my", "th", "zh", "zt"})
# marks of the width of a Han character that end a sentence, and languages that put no space after them
WIDE_ENDS: Final = tuple("。！？；：）」』】》〉〕．")
WIDE_TARGETS: Final = frozenset({"ja", "zh", "zt"})

REMEMBERED_WORDS: Final = 8192  # words in the cache of token counts
LONGEST_REMEMBERED: Final = 32  # characters of the longest word in this cache
REOPEN: Final = "engine.answers.directions:reopen"
JUDGING_SHARE: Final = 0.5  # a vocabulary judges a language if it knows this share of the common words


@dataclass(frozen=True, slots=True)
class TextModel:
    """The text side of a model: it turns texts into sources, and targets into texts.

    task: "translate", "summarize" or "lm".
    source, target: codes of the languages.
    tokenizer: converter of text to token ids and back.
    defaults: decoding options of the bundle.
    limits: longest source and target, and other limits.
    eos: id of end-of-sentence.
    name: name of the model.
    unk: id of unknown words, if there is one.
    replace_unk: whether unknown words are replaced by default.
    truncates: whether a text that is too long is cut to its beginning by default.
    max_sentence_tokens: largest number of tokens of a sentence with end-of-sentence; a longer one is split.
    placeholder_words: words that are placeholders if the vocabulary has no placeholder symbols.
    words: words that the bundle treats by rule.
    known_words: words of the training data, if the bundle lists them.
    bundle: path and digest of the bundle; empty: the model has none.
    remote: whether the model is on another server: a language model that reads text as it is, without
        attention.
    paragraphs: whether the model reads whole paragraphs.
    opener: function that opens an equal model.
    lacks: function that returns whether the tokenizer lacks a character, with a cache.
    word_tokens: function that counts the tokens of a word, with a cache.
    placeholder_token: function that returns the target token of a placeholder, with a cache.
    is_judge: function that returns whether the vocabulary can judge a language, with a cache.
    """

    task: str
    source: str
    target: str
    tokenizer: Tokenizer
    defaults: DecodeOptions
    limits: Limits
    eos: int
    name: str = ""
    unk: int | None = None
    replace_unk: bool = False
    truncates: bool = False
    max_sentence_tokens: int = MAX_SENTENCE_TOKENS
    placeholder_words: tuple[PlaceholderWord, ...] = ()
    words: BundleWords = BundleWords()
    known_words: KnownWords | None = None
    bundle: tuple[str, ...] = ()
    remote: bool = False
    paragraphs: bool = False
    opener: str = REOPEN
    lacks: Callable[[str], bool] = field(init=False, repr=False, compare=False)
    word_tokens: Callable[[str], int] = field(init=False, repr=False, compare=False)
    placeholder_token: Callable[[str], int] = field(init=False, repr=False, compare=False)
    is_judge: Callable[[str], bool] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        token = lru_cache(lambda symbol: self.placeholder_tokenizer.encode_target(symbol)[-1])
        lacks = lru_cache(REMEMBERED_WORDS)(lambda character: self.tokenizer.lacks(character))
        object.__setattr__(self, "lacks", lacks)
        object.__setattr__(self, "word_tokens", _word_counter(self.tokenizer))
        object.__setattr__(self, "placeholder_token", token)
        object.__setattr__(self, "is_judge", cache(self._can_judge))

    def reference(self) -> tuple[str, Sequence[Any]]:
        """Return the function and the arguments by which a worker opens an equal model.

        Raises TypeError for a model without a bundle.
        """
        if not self.bundle:
            raise TypeError(f"the model {self.name!r} has no bundle that a worker can open")
        return self.opener, (*self.bundle, self.source, self.target, self.defaults, self.limits)

    def known_share(self, words: Sequence[str], language: str) -> float:
        """Return the share of words that are one token, as written or in lower case.

        words: words of a text, at least one.
        language: code of a language that the model reads.

        Returns 1.0 if the vocabulary can't judge the language: it splits most of the common words, or there
        is no list of them.
        """
        return self._count_known(words) / len(words) if self.is_judge(language) else 1.0

    def _can_judge(self, language: str) -> bool:
        common = FIRST_WORDS.get(language, frozenset())
        return bool(common) and self._count_known(common) >= JUDGING_SHARE * len(common)

    def _count_known(self, words: Collection[str]) -> int:
        return sum(self.word_tokens(word) == 1 or self.word_tokens(word.lower()) == 1 for word in words)

    @property
    def name_rule(self) -> NameRule | None:
        """Rule for names; None if names are left to the model."""
        alone = self.words.names
        if alone is None:
            return None
        return NameRule(self.source, self.word_tokens, alone, self.target, self.known_words)

    @property
    def placeholders(self) -> tuple[str, ...]:
        return self.tokenizer.placeholders or symbols_of(self.placeholder_words)

    @property
    def placeholder_tokenizer(self) -> Tokenizer:
        """Tokenizer of sentences with placeholders."""
        return (
            PlaceholderTokenizer(self.tokenizer, self.placeholder_words)
            if self.placeholder_words
            else self.tokenizer
        )

    @property
    def languages(self) -> tuple[str, str]:
        return self.source, self.target

    def space(self, gap: str, before: str) -> str:
        """Return the white space between the translations of two adjacent sentences.

        gap: white space between the sentences themselves.
        before: translation of the first one.
        """
        if not gap:
            return "" if self.spaced or _spaceless(self.target) else " "
        wide = before.endswith(WIDE_ENDS) and primary(self.target) in WIDE_TARGETS
        return "" if wide and not gap.strip(" ") else gap

    @property
    def spaced(self) -> bool:
        """Whether the words of sources have spaces between them."""
        return not _spaceless(self.source)

    def beginning(self, ids: Sequence[int]) -> list[int]:
        """Return the longest beginning of a source that the model reads; both end with end-of-sentence."""
        return [*ids[: self.limits.source - 1], self.eos]


def _word_counter(tokenizer: Tokenizer) -> Callable[[str], int]:
    """Return a function that counts the tokens of a word, with a cache for short words."""

    def count(text: str) -> int:
        return len(tokenizer.encode(text))

    remembered = lru_cache(REMEMBERED_WORDS)(count)
    # minus the tokens that every text has, such as a language code
    return lambda word: (remembered if len(word) <= LONGEST_REMEMBERED else count)(word) - remembered("")


def _spaceless(code: str) -> bool:
    return primary(code) in SPACELESS
