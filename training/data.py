"""Corpora to batches: placeholders, SentencePiece vocabulary, encoded pairs, batches by token budget."""

from __future__ import annotations

import gzip
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import sentencepiece as spm
from numpy.typing import NDArray

from engine.errors import InvalidRequest
from training.recipe import Recipe

PLACEHOLDERS = [f"<ph{i}>" for i in range(16)]
LEARNT_PERCENT: Final = 99  # of the sources of a corpus
# what a user may want left alone: addresses, numbers with their separators, capitalised names
COPIED = re.compile(r"https?://\S+|\b\d+(?:[.,:]\d+)*\b|\b[A-ZÄÖÜ][a-zäöüß]+\b")


@dataclass(frozen=True, slots=True)
class Pairs:
    """Encoded sentence pairs; each sequence ends with end-of-sentence."""

    sources: list[NDArray[np.int32]]
    targets: list[NDArray[np.int32]]


def read_pairs(path: Path, source_column: int, target_column: int) -> list[tuple[str, str]]:
    """Return the lines of a tab separated, gzipped file as (source, target).

    path: of the file.
    source_column: number of the column, counted from 0.
    target_column: number of the column, counted from 0.
    """
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        rows = [line.rstrip("\n").split("\t") for line in lines]
    return [(row[source_column], row[target_column]) for row in rows]


def with_placeholders(pairs: list[tuple[str, str]], share: float, seed: int) -> list[tuple[str, str]]:
    """Replace what both sides share by `<ph0>`, `<ph1>`, ... in about `share` of the pairs.

    The model learns to copy these symbols, so that a server can protect numbers, names and addresses.

    pairs: source and target.
    share: of the pairs, 0 to 1.
    seed: of the draw.
    """
    rng = random.Random(seed)  # nosec B311 # reproducible, no secret
    replaced = []
    for source, target in pairs:
        if rng.random() < share:
            common = [m for m in dict.fromkeys(COPIED.findall(source)) if m in COPIED.findall(target)]
            names = rng.sample(PLACEHOLDERS, min(len(common), len(PLACEHOLDERS)))
            for text, name in zip(common, names, strict=False):
                pattern = re.compile(rf"(?<!\w){re.escape(text)}(?!\w)")
                source, target = pattern.sub(name, source), pattern.sub(name, target)
        replaced.append((source, target))
    return replaced


def train_vocabulary(recipe: Recipe, pairs: list[tuple[str, str]], prefix: Path) -> None:
    """Write `prefix`.model, a joint SentencePiece model with fairseq's special ids.

    recipe: says how large the vocabulary is.
    pairs: source and target.
    prefix: path of the model without its ending.
    """
    corpus = prefix.with_suffix(".txt")
    with corpus.open("w", encoding="utf-8") as out:
        for source, target in pairs:
            out.write(f"{source}\n{target}\n")
    try:
        spm.SentencePieceTrainer.train(
            input=str(corpus),
            model_prefix=str(prefix),
            vocab_size=recipe.vocabulary.size,
            model_type=recipe.vocabulary.kind,
            character_coverage=recipe.vocabulary.character_coverage,
            required_chars=recipe.vocabulary.characters,
            bos_id=0,
            pad_id=1,
            eos_id=2,
            unk_id=3,
            user_defined_symbols=PLACEHOLDERS,
            input_sentence_size=400_000,
            shuffle_input_sentence=True,
            max_sentence_length=16_384,
            num_threads=1,  # the result depends on the number of threads
            minloglevel=1,
        )
    except RuntimeError as error:  # its message names the size that would fit
        raise InvalidRequest(f"[vocabulary] does not fit the corpus: {error}") from None
    finally:
        corpus.unlink()


def encode(vocabulary: Path, pairs: list[tuple[str, str]], recipe: Recipe) -> Pairs:
    """Encode pairs; sources are cut to `crop_source` (titles need only an abstract's beginning), and pairs
    longer than `max_tokens` on either side are left out. A language model's source is end-of-sentence.

    vocabulary: path of a SentencePiece model.
    pairs: source and target.
    recipe: says what is cut and left out.
    """
    sp = spm.SentencePieceProcessor(model_file=str(vocabulary))
    eos, limit, crop = sp.eos_id(), recipe.train.max_tokens, recipe.train.crop_source
    reads = recipe.config().reads_source
    sources, targets = [], []
    encoded = zip(sp.encode([s for s, _ in pairs]), sp.encode([t for _, t in pairs]), strict=True)
    for source, target in encoded:
        if crop:
            source = source[:crop]
        if source and target and len(source) < limit and len(target) < limit:
            sources.append(np.array([*source, eos] if reads else [eos], np.int32))
            targets.append(np.array([*target, eos], np.int32))
    return Pairs(sources, targets)


def learnt_length(vocabulary: Path, pairs: Path) -> int:
    """Return the tokens, with end-of-sentence, of the longest of the shortest 99 % of all sources: what is
    longer was seen too seldom to be learnt.

    vocabulary: path of a SentencePiece model.
    pairs: what was trained on, tab separated, gzipped.
    """
    sp = spm.SentencePieceProcessor(model_file=str(vocabulary))
    lengths = [len(tokens) + 1 for tokens in sp.encode([source for source, _ in read_pairs(pairs, 0, 1)])]
    return int(np.percentile(lengths, LEARNT_PERCENT))


def copying(pairs: Pairs, seed: int) -> Pairs:
    """Return a task to begin with where sources are long and targets short: repeat a part of a piece of one.

    Finding where a few tokens came from, and going on from there, teaches attention to look things up by
    content; short titles alone teach it too slowly for a small budget.
    """
    rng = np.random.default_rng(seed)
    sources, targets = [], []
    for source in pairs.sources:
        source = _piece(rng, source, 8, 80)
        sources.append(source)
        targets.append(_piece(rng, source, 8, 32))
    return Pairs(sources, targets)


def _piece(
    rng: np.random.Generator, tokens: NDArray[np.int32], shortest: int, longest: int
) -> NDArray[np.int32]:
    """A random stretch of tokens, ending with end-of-sentence as they do."""
    length = int(rng.integers(shortest, longest))
    begin = int(rng.integers(0, max(1, len(tokens) - length)))
    return np.append(tokens[:-1][begin : begin + length], tokens[-1])


def batches(pairs: Pairs, budget: int, seed: int) -> list[NDArray[np.int64]]:
    """Return the indices of each batch, shuffled: pairs of similar length, at most `budget` padded tokens a
    side.

    pairs: encoded.
    budget: padded tokens of a batch, a side.
    seed: of the order.
    """
    rng = np.random.default_rng(seed)
    lengths = np.array([(len(t), len(s)) for s, t in zip(pairs.sources, pairs.targets, strict=True)])
    order = rng.permutation(len(lengths))
    if lengths[:, 1].mean() > 2 * lengths[:, 0].mean():
        lengths = lengths[:, ::-1]  # the longer side decides the padding
    order = order[np.lexsort((lengths[order, 1], lengths[order, 0]))]
    result: list[NDArray[np.int64]] = []
    begin, widest = 0, 0
    for i, index in enumerate(order):
        widest = max(widest, int(lengths[index].max()))
        if widest * (i + 1 - begin) > budget and i > begin:
            result.append(order[begin:i])
            begin, widest = i, int(lengths[index].max())
    result.append(order[begin:])
    rng.shuffle(result)
    return result


def collate(pairs: Pairs, index: NDArray[np.int64], pad: int, eos: int) -> tuple[NDArray[np.int64], ...]:
    """Return padded source, decoder input (end-of-sentence first) and target, each int [batch, length].

    pairs: encoded.
    index: numbers of the batch's pairs.
    pad: id of padding.
    eos: id of end-of-sentence.
    """
    source = _pad_rows([pairs.sources[i] for i in index], pad)
    target = _pad_rows([pairs.targets[i] for i in index], pad)
    previous = np.concatenate([np.full((len(index), 1), eos), target[:, :-1]], axis=1)
    return source, previous, target


def _pad_rows(rows: list[NDArray[np.int32]], pad: int) -> NDArray[np.int64]:
    out = np.full((len(rows), max(map(len, rows))), pad, np.int64)
    for i, row in enumerate(rows):
        out[i, : len(row)] = row
    return out


def epochs(pairs: Pairs, budget: int, seed: int, start: int) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Yield endless batches with the epoch's number; `start` skips that many batches, to resume.

    pairs: encoded.
    budget: padded tokens of a batch, a side.
    seed: of the order.
    start: number of batches to skip, to resume.
    """
    epoch = count = 0
    while True:
        order = batches(pairs, budget, seed + epoch)
        for index in order[max(0, start - count) :]:
            yield epoch, index
        count += len(order)
        epoch += 1
