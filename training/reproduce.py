"""Train a shipped model again with one command: public and written text in, a bundle out.

    python -m training.reproduce tatoeba-de-en SOURCES --device cuda

SOURCES needs the pairs of Tatoeba: `deu-eng.zip` or `fra-eng.zip` of manythings.org/anki, or a folder of that
name in the recipe's form (`tatoeba-de-en/train.tsv.gz`, `valid`, `test`). Templates and written lines come
from `training/written/`. Further corpora are used where SOURCES has them and are left out otherwise: a folder
of each name in the recipe, and `wide/`, the collected and written text that `training.collect` reads. Target
sentences of Tatoeba get second sources by the model of the opposite direction.

Flags after `--` go to `convoy train`, such as `--from BUNDLE`, `--minutes 60` or `--set updates=2000`.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from engine.errors import InvalidRequest
from training import collect
from training.data import read_pairs
from training.recipe import Recipe, load

Pair = tuple[str, str]
REPOSITORY: Final = Path(__file__).parents[1]
RECIPES: Final = REPOSITORY / "training" / "recipes"
ARCHIVES: Final = {"de": "deu", "fr": "fra"}  # languages of manythings.org by their code
HELD_OUT: Final = 2000  # lines of `valid`, and of `test`, of an archive
BACK: Final = 40_000  # sentences with second sources
PARTS: Final = ("train", "valid", "test")
SEED: Final = 1
MAX_ARCHIVE: Final = 200 * 2**20  # bytes of an unpacked archive


def read_archive(path: Path, language: str) -> list[Pair]:
    """Return the distinct pairs of an archive of manythings.org: other language first, English second.

    path: archive with a file such as `deu.txt`, whose lines are English, other language, licence.
    language: code of the language beside English.

    Raises InvalidRequest if the archive has no such file, or an unusually large one.
    """
    name = f"{ARCHIVES[language]}.txt"
    try:
        with zipfile.ZipFile(path) as archive:
            if archive.getinfo(name).file_size > MAX_ARCHIVE:
                raise InvalidRequest(f"{path}: {name} is larger than {MAX_ARCHIVE} bytes")
            rows = [line.split("\t") for line in archive.read(name).decode("utf-8").splitlines()]
    except (KeyError, OSError, zipfile.BadZipFile, UnicodeDecodeError):
        raise InvalidRequest(f"{path}: no archive of manythings.org with {name}") from None
    return list(dict.fromkeys((row[1], row[0]) for row in rows if len(row) > 1))


def split_pairs(pairs: Sequence[Pair], held_out: int) -> tuple[list[Pair], list[Pair], list[Pair]]:
    """Return the pairs for training, validation and tests; training pairs share no side with the others.

    pairs: distinct pairs.
    held_out: number of pairs for validation, and for tests.
    """
    shuffled = random.Random(SEED).sample(pairs, len(pairs))  # nosec B311 # reproducible, no secret
    valid, test, rest = shuffled[:held_out], shuffled[held_out : 2 * held_out], shuffled[2 * held_out :]
    sides = {side for pair in (*valid, *test) for side in pair}
    return [pair for pair in rest if sides.isdisjoint(pair)], valid, test


def make_corpora(recipe: Recipe, sources: Path, corpora: Path, share: float) -> None:
    """Write the corpora of a recipe that the sources have.

    recipe: recipe of the model.
    sources: folder of the public and written text.
    corpora: folder of the corpora to write.
    share: share of the pairs to use, for trials.

    Raises InvalidRequest if the sources lack the recipe's first corpus.
    """
    names = recipe.corpus.folder, *recipe.corpus.beside
    if recipe.task == "translate":
        collect.main(sources / "wide", corpora, languages=[_beside_english(recipe)])
    for name in names:
        parts = _parts_of(name, recipe, sources, corpora / name)
        if parts is None:
            continue
        collect.write_corpus(corpora / name, *(_draw(pairs, share) for pairs in parts))
    if not (corpora / names[0]).is_dir():
        raise InvalidRequest(f"{sources} has no {names[0]}; see docs/training.md for the sources")


def _beside_english(recipe: Recipe) -> str:
    """Return the code of the language of a recipe that is not English."""
    return recipe.source if recipe.target == "en" else recipe.target


def _draw(pairs: Sequence[Pair], share: float) -> Sequence[Pair]:
    """Return a share of some pairs, at least one of them; all, in their order, if the share is 1."""
    if share >= 1 or not pairs:
        return pairs
    return random.Random(SEED).sample(pairs, max(1, round(share * len(pairs))))  # nosec B311 # reproducible


def _parts_of(
    name: str, recipe: Recipe, sources: Path, collected: Path
) -> tuple[Sequence[Pair], Sequence[Pair], Sequence[Pair]] | None:
    """Return the pairs of a corpus for training, validation and tests; None if there is no source."""
    for folder in (sources / name, collected):
        if all((folder / f"{part}.tsv.gz").exists() for part in PARTS):
            train, valid, test = (read_pairs(folder / f"{part}.tsv.gz", 0, 1) for part in PARTS)
            return train, valid, test
    other = _beside_english(recipe)
    archive = sources / f"{ARCHIVES.get(other, other)}-eng.zip"
    if name == recipe.corpus.folder and archive.exists():
        return split_pairs(read_archive(archive, other), HELD_OUT)
    return None


def write_back(recipe: Recipe, corpora: Path, path: Path, count: int) -> None:
    """Write target sentences of the recipe's first corpus, one a line, for back-translation.

    recipe: recipe of the model.
    corpora: folder of the corpora.
    path: file to write.
    count: largest number of sentences.
    """
    column = recipe.corpus.target_column
    pairs = read_pairs(corpora / recipe.corpus.folder / "train.tsv.gz", column, column)
    texts = sorted({text for text, _ in pairs})
    drawn = random.Random(SEED).sample(texts, min(count, len(texts)))  # nosec B311 # reproducible
    path.write_text("".join(f"{text}\n" for text in drawn), encoding="utf-8")


def train_command(options: argparse.Namespace, recipe: Recipe, opposite: Path) -> list[str]:
    """Return the command that trains the model on the corpora of `options.work`.

    options: arguments of this program.
    recipe: recipe of the model.
    opposite: bundle that translates target sentences back.
    """
    corpora, back = options.work / "corpora", options.work / f"back-{recipe.name}.txt"
    command = [sys.executable, "-m", "cli.main", "train", str(RECIPES / f"{recipe.name}.toml"), "--available"]
    command += ["--corpora", str(corpora), "--run", str(options.work / recipe.name)]
    command += ["--out", str(options.out or options.work / "models" / recipe.name)]
    command += ["--device", options.device]
    if options.back and opposite.is_dir():
        write_back(recipe, corpora, back, options.back)
        command += ["--back", str(opposite), str(back)]
    return command


def main(arguments: list[str] | None = None) -> int:
    """Make the corpora and train; returns the exit code of `convoy train`."""
    given = sys.argv[1:] if arguments is None else arguments
    end = given.index("--") if "--" in given else len(given)
    options = _parser().parse_args(given[:end])
    try:
        recipe = load(RECIPES / f"{options.name}.toml", options.device)
        make_corpora(recipe, options.sources, options.work / "corpora", options.share)
    except InvalidRequest as error:
        print(error, file=sys.stderr)
        return 2
    opposite = REPOSITORY / "models" / f"tatoeba-{recipe.target}-{recipe.source}"
    command = [*train_command(options, recipe, options.back_by or opposite), *given[end + 1 :]]
    print(" ".join(command), flush=True)
    return subprocess.run(command, cwd=Path.cwd(), check=False).returncode


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m training.reproduce",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", help="name of a shipped recipe")
    parser.add_argument("sources", type=Path, help="folder of the public and written text")
    parser.add_argument("--work", type=Path, default=Path("runs/reproduce"), help="corpora and checkpoints")
    parser.add_argument("--out", type=Path, help="folder of the bundle; default: WORK/models/NAME")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--share", type=float, default=1.0, help="share of the pairs, for trials")
    parser.add_argument("--back", type=int, default=BACK, help="sentences to translate back; 0: none")
    parser.add_argument("--back-by", type=Path, help="bundle of the opposite direction; default: the shipped")
    return parser


if __name__ == "__main__":
    sys.exit(main())
