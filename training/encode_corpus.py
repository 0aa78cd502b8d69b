"""Encode the pairs of both directions of a corpus, for machines that are available for minutes only.

    python -m training.encode_corpus DE-EN.toml EN-DE.toml --corpora CORPORA --bundle models/tatoeba-de-en

writes CORPORA/FOLDER.encoded of the two recipes of a corpus, with the vocabulary of the bundle.
`training.prepare` reads it in the place of the corpora, so that a run starts in seconds. Both directions
share their pairs, apart from the forms of sources and from further pairs (`--more`).
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from training import encoded, prepare
from training.augmentation import augment
from training.data import encode
from training.recipe import Augment, Recipe, load

MAX_VALID: Final = 1000  # validation pairs of a corpus


def build(recipes: tuple[Recipe, Recipe], corpora: Path, vocabulary: Path, more: Mapping[str, Path]) -> Path:
    """Write the file of a corpus, and return its path.

    recipes: recipes of both directions.
    corpora: folder of all corpora.
    vocabulary: SentencePiece model of both recipes.
    more: files of further pairs, such as back-translations, by the name of their recipe.
    """
    first, second = recipes
    folder = first.corpus.folder
    base = prepare.with_placeholders(first, prepare.gather_pairs(first, corpora, corpora))
    source_shares = Augment(lower=first.augment.lower, typographic=first.augment.typographic)
    shares = replace(first.augment, lower=0.0, typographic=0.0)  # forms that change the source only
    texts = {encoded.BOTH + first.name: augment(base, shares, (first.source, first.target), first.train.seed)}
    for recipe in recipes:
        ordered = base if recipe is first else [(target, source) for source, target in base]
        languages = recipe.source, recipe.target
        texts[recipe.name] = augment(ordered, source_shares, languages, recipe.train.seed)[len(base) :]
        if recipe.name in more:
            lines = more[recipe.name].read_text(encoding="utf-8").splitlines()
            rows = (line.split("\t") for line in lines)
            texts[recipe.name] += [(source, target) for source, target in rows]
    for name in (folder, *first.corpus.beside):
        texts[encoded.VALID + name] = prepare.read_part(first, corpora, name, "valid")[:MAX_VALID]
    path = encoded.path_of(corpora, folder)
    encoded.write(path, {name: encode(vocabulary, pairs, first) for name, pairs in texts.items()})
    return path


def main() -> None:
    """Build the file of two recipes."""
    parser = argparse.ArgumentParser(prog="python -m training.encode_corpus", description=__doc__)
    parser.add_argument("recipes", nargs=2, type=Path, help="recipe files of both directions")
    parser.add_argument("--corpora", type=Path, required=True)
    parser.add_argument("--bundle", type=Path, required=True, help="bundle with the vocabulary")
    parser.add_argument("--more", action="append", default=[], metavar="NAME=FILE", help="further pairs")
    options = parser.parse_args()
    first, second = (load(path, "cuda") for path in options.recipes)
    more = {name: Path(file) for name, _, file in (text.partition("=") for text in options.more)}
    path = build((first, second), options.corpora, options.bundle / "vocabulary.model", more)
    print(f"{path}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
