"""A recipe and a corpus that a model learns in seconds: numbers in words, from German to English."""

from __future__ import annotations

import gzip
import random
from collections.abc import Mapping
from pathlib import Path

from training.recipe import Recipe, load

FEW_PAIRS = 12
WORDS = ["eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun", "zehn"]
ENGLISH = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
TINY = """
name = "numbers"
task = "translate"
source = "de"
target = "en"
licence = "CC0-1.0"
attribution = "made up"
[corpus]
folder = "numbers"
[vocabulary]
size = 58
[model]
architecture = "dynamicconv"
share_embeddings = true
share_output = true
[model.encoder]
embed_dim = 32
conv_dim = 32
ffn_dim = 64
heads = 4
kernel_sizes = [3, 5]
[model.decoder]
embed_dim = 32
conv_dim = 32
ffn_dim = 64
heads = 4
kernel_sizes = [3, 5]
[train]
updates = 240
batch_tokens = 300
learning_rate = 6e-3
warmup = 30
dropout = 0.0
weight_dropout = 0.0
average = 2
save_every = 40
[generation]
beam_size = 3
max_length_b = 30
"""


def write_numbers(folder: Path, parts: Mapping[str, int]) -> None:
    """Write a corpus of random lines.

    folder: folder of all corpora.
    parts: name of a part, such as "train", to its number of lines.
    """
    (folder / "numbers").mkdir()
    rng = random.Random(0)
    for part, lines in parts.items():
        with gzip.open(folder / "numbers" / f"{part}.tsv.gz", "wt", encoding="utf-8") as out:
            for _ in range(lines):
                picks = [rng.randrange(10) for _ in range(rng.randint(1, 6))]
                out.write("\t".join(" ".join(side[p] for p in picks) for side in (WORDS, ENGLISH)) + "\n")


def recipe_with(folder: Path, **changes: object) -> Recipe:
    """Return the recipe with other values in [train]; its file is written to `folder`."""
    path = folder / "recipe.toml"
    path.write_text(TINY, encoding="utf-8")
    return load(path, "cpu", {key: str(value) for key, value in changes.items()})
