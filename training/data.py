"""Make batches of corpora: placeholders, SentencePiece vocabulary, encoded pairs, token budgets."""

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
LEARNT_PERCENT: Final = 99  # percentile of source lengths up to which a model has learnt enough
# texts that a user may want copied: addresses, numbers with separators, capitalised names
COPYABLE = re.compile(r"https?://\S+|\b\d+(?:[.,:]\d+)*\b|\b[A-ZÄÖÜ][a-zäöüß]+\b")


@dataclass(frozen=True, slots=True)
class Pairs:
    """Encoded sentence pairs; each sequence ends with end-of-sentence."""

    sources: list[NDArray[np.int32]]
    targets: list[NDArray[np.int32]]


def read_pairs(path: Path, source_column: int, target_column: int) -> list[tuple[str, str]]:
    """Return the lines of a tab-separated, gzipped file as (source, target).

    path: the file.
    source_column: index of the column, from 0.
    target_column: index of the column, from 0.
    """
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        rows = [line.rstrip("\n").split("\t") for line in lines]
    return [(row[source_column], row[target_column]) for row in rows]


def with_placeholders(pairs: list[tuple[str, str]], share: float, seed: int) -> list[tuple[str, str]]:
    """Replace texts that both sides share by `<ph0>`, `<ph1>`, ... in some of the pairs.

    The model learns to copy these symbols, so that a server can protect numbers, names and addresses.

    pairs: source and target texts.
    share: share of changed pairs, 0 to 1.
    seed: seed of the draw.
    """
    rng = random.Random(seed)  # nosec B311 # reproducible, no secret
    replaced = []
    for source, target in pairs:
        if rng.random() < share:
            common = [m for m in dict.fromkeys(COPYABLE.findall(source)) if m in COPYABLE.findall(target)]
            names = rng.sample(PLACEHOLDERS, min(len(common), len(PLACEHOLDERS)))
            for text, name in zip(common, names, strict=False):
                pattern = re.compile(rf"(?<!\w){re.escape(text)}(?!\w)")
                source, target = pattern.sub(name, source), pattern.sub(name, target)
        replaced.append((source, target))
    return replaced


def train_vocabulary(recipe: Recipe, pairs: list[tuple[str, str]], prefix: Path) -> None:
    """Write `prefix`.model, a joint SentencePiece model with fairseq's special ids.

    recipe: recipe with the size and kind of the vocabulary.
    pairs: source and target texts.
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
    """Encode pairs.

    Sources are cut to `crop_source` tokens (titles need only an abstract's beginning), and pairs longer than
    `max_tokens` on either side are dropped. A language model's source is end-of-sentence.

    vocabulary: path of a SentencePiece model.
    pairs: source and target texts.
    recipe: recipe with `crop_source` and `max_tokens`.
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
    """Return the 99th percentile of source lengths in tokens, with end-of-sentence.

    Longer sources are too rare to be learnt. `pairs` is the tab-separated, gzipped file of training pairs.
    """
    sp = spm.SentencePieceProcessor(model_file=str(vocabulary))
    lengths = [len(tokens) + 1 for tokens in sp.encode([source for source, _ in read_pairs(pairs, 0, 1)])]
    return int(np.percentile(lengths, LEARNT_PERCENT))


def copying_task(pairs: Pairs, seed: int) -> Pairs:
    """Return pairs of a copying task: a piece of each source, and a part of that piece as its target.

    The task begins the training of models with long sources and short targets. Finding a few tokens in the
    source and continuing from there teaches attention to look up content; short titles alone teach it too
    slowly for a small budget.
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
    """Return a random range of tokens, followed by their end-of-sentence.

    rng: source of the draws.
    tokens: tokens with end-of-sentence.
    shortest: lower limit of the range's length, inclusive.
    longest: upper limit of the range's length, exclusive.
    """
    length = int(rng.integers(shortest, longest))
    begin = int(rng.integers(0, max(1, len(tokens) - length)))
    return np.append(tokens[:-1][begin : begin + length], tokens[-1])


def batches(pairs: Pairs, budget: int, seed: int) -> list[NDArray[np.int64]]:
    """Return shuffled batches, each the indices of pairs of similar length.

    pairs: encoded pairs.
    budget: limit of the padded tokens of a batch, on each side.
    seed: seed of the order.
    """
    rng = np.random.default_rng(seed)
    lengths = np.array([(len(t), len(s)) for s, t in zip(pairs.sources, pairs.targets, strict=True)])
    order = rng.permutation(len(lengths))
    if lengths[:, 1].mean() > 2 * lengths[:, 0].mean():
        lengths = lengths[:, ::-1]  # the longer side decides the padding
    # a stable sort by length: pairs of equal lengths stay in random order
    order = order[np.lexsort((lengths[order, 1], lengths[order, 0]))]
    result: list[NDArray[np.int64]] = []
    begin, widest = 0, 0
    for i, longest in enumerate(lengths[order].max(axis=1).tolist()):
        widest = max(widest, longest)
        if widest * (i + 1 - begin) > budget and i > begin:
            result.append(order[begin:i])
            begin, widest = i, longest
    result.append(order[begin:])
    rng.shuffle(result)
    return result


def collate(pairs: Pairs, index: NDArray[np.int64], pad: int, eos: int) -> tuple[NDArray[np.int64], ...]:
    """Return padded source, decoder input (end-of-sentence first) and target, each int [batch, length].

    pairs: encoded pairs.
    index: indices of the batch's pairs.
    pad: id of padding.
    eos: id of end-of-sentence.
    """
    source = _pad_rows([pairs.sources[i] for i in index], pad)
    target = _pad_rows([pairs.targets[i] for i in index], pad)
    previous = np.concatenate([np.full((len(index), 1), eos), target[:, :-1]], axis=1)
    return source, previous, target


def _pad_rows(rows: list[NDArray[np.int32]], pad: int) -> NDArray[np.int64]:
    """Return the rows as an array [rows, longest], with `pad` after each row."""
    out = np.full((len(rows), max(map(len, rows))), pad, np.int64)
    for i, row in enumerate(rows):
        out[i, : len(row)] = row
    return out


def epochs(pairs: Pairs, budget: int, seed: int, start: int) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Yield batches without end, with the number of their epoch.

    pairs: encoded pairs.
    budget: limit of the padded tokens of a batch, on each side.
    seed: seed of the order.
    start: number of batches to skip, for a run that resumes.
    """
    epoch = count = 0
    while True:
        order = batches(pairs, budget, seed + epoch)
        # skips whole epochs, then the first batches of the epoch in which the run stopped
        for index in order[max(0, start - count) :]:
            yield epoch, index
        count += len(order)
        epoch += 1
