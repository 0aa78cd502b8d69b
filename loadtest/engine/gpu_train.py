"""Train the shipped recipes on a GPU that is at hand for minutes: each learns for as long as it is given.

A recipe says how many updates it wants; here the time says how many there are, and the schedule follows:
after every piece of the run it is planned anew from the speed so far, so that the learning rate ends where
it should when the time ends. Checkpoints are kept in runs/, so a killed run goes on; the finished bundle is
packed into $OUT/NAME.tar.gz.

    bash loadtest/gpu_train.sh --minutes 8
    tar -xzf NAME.tar.gz -C models && python -m loadtest.gpu_train --score models/NAME   # states the scores
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tarfile
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from training.recipe import Recipe

ROOT: Final = Path(__file__).parents[1]
RECIPES: Final = ROOT / "training" / "recipes"
PIECES: Final = 50  # of a run: a checkpoint and a new plan after each
FIRST: Final = 50  # updates of the first piece, which tells the speed
RESERVE: Final = 30.0  # seconds to average, pack and end


@dataclass(frozen=True, slots=True)
class Done:
    """updates: trained, of `wanted` by the recipe. nll: nats a token of the validation pairs."""

    name: str
    updates: int
    wanted: int
    seconds: float
    nll: float
    archive: str


def main(arguments: list[str] | None = None) -> int:
    given = _parser().parse_args(arguments)
    if given.score:
        _score(given.score, given.corpora)
        return 0
    given.out.mkdir(parents=True, exist_ok=True)
    names = given.recipes.split(",")
    if len(names) > 1:
        return _together(given, names)
    found = train(given, names[0])
    print(json.dumps(asdict(found)))
    (given.out / f"{found.name}.json").write_text(json.dumps(asdict(found), indent=1) + "\n", "utf-8")
    return 0


def train(given: argparse.Namespace, name: str) -> Done:
    """One recipe, for `given.minutes`, from where its last run ended."""
    from training.package import package
    from training.recipe import load
    from training.trainer import Trainer

    began = time.monotonic()
    end = began + 60 * given.minutes - RESERVE
    changes = dict(change.split("=", 1) for change in given.set or [])
    recipe = load(_recipe(name), given.device, changes)
    name = recipe.name
    folder = given.runs / f"{name}-{given.device.partition(':')[0]}"
    vocabulary = ROOT / "models" / name / "vocabulary.model"
    if vocabulary.exists() and not (folder / vocabulary.name).exists():  # that of the corpus: minutes saved
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(vocabulary, folder)
    trainer = Trainer(recipe, given.corpora, folder, given.device)
    piece = FIRST
    while trainer.update < trainer.recipe.train.updates:
        since, before = time.monotonic(), trainer.update
        trainer.train_to(min(before + piece, trainer.recipe.train.updates))
        now = time.monotonic()
        each = (now - since) / (trainer.update - before)
        trainer.recipe = planned(recipe, trainer.update, (end - now) / each)
        piece = max(FIRST, trainer.recipe.train.updates // PIECES)
    trainer.average()
    bundle = package(trainer.recipe, folder, given.runs / name, given.device, overwrite=True)
    archive = given.out / f"{name}.tar.gz"
    with tarfile.open(archive, "w:gz") as packed:
        packed.add(bundle.path, arcname=name)
    seconds = time.monotonic() - began
    return Done(name, trainer.update, recipe.train.updates, seconds, trainer.validate(), archive.name)


def planned(recipe: Recipe, done: int, left: float) -> Recipe:
    """The recipe with as many updates as there is time for: those done and `left` more, at most its own; none
    more when the time is over. The warm-up is at most a tenth; checkpoints are where pieces end."""
    updates = max(done, min(recipe.train.updates, done + int(left)))
    warmup = max(1, min(recipe.train.warmup, updates // 10))
    return replace(
        recipe, train=replace(recipe.train, updates=updates, warmup=warmup, save_every=updates + 1)
    )


def _together(given: argparse.Namespace, names: list[str]) -> int:
    """All at once, a process each: one small model does not fill a large GPU. Prints what each says at its
    end."""
    running = {}
    for name in names:
        command = [sys.executable, "-m", "loadtest.gpu_train", f"--recipes={name}"]
        command += [
            f"--{key}={getattr(given, key)}" for key in ("minutes", "corpora", "device", "out", "runs")
        ]
        command += [f"--set={change}" for change in given.set or []]
        with (given.out / f"{name}.log").open("w") as log:
            running[name] = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT)
    failed = [name for name, process in running.items() if process.wait()]
    rows: dict[str, Any] = {}
    for name in names:
        record, log_file = given.out / f"{name}.json", given.out / f"{name}.log"
        lines = log_file.read_text("utf-8", "replace").splitlines()
        rows[name] = {"failed": lines[-20:]} if name in failed else json.loads(record.read_text("utf-8"))
        record.unlink(missing_ok=True)
        if name not in failed:
            log_file.unlink()
    (given.out / "training.json").write_text(json.dumps(rows, indent=1) + "\n", "utf-8")
    print(json.dumps(rows, indent=1))
    return int(bool(failed))


def _recipe(name: str) -> Path:
    """A shipped recipe by its name, or a file."""
    return Path(name) if name.endswith(".toml") else RECIPES / f"{name}.toml"


def _score(bundle: Path, corpora: Path) -> None:
    """Measure the test split on this machine's CPU, and state it in the card."""
    from cli.train import state_scores
    from training.recipe import load

    recipe = load(RECIPES / f"{bundle.name}.toml", "cpu")
    state_scores(recipe, corpora / recipe.corpus.folder, bundle)
    print((bundle / "README.md").read_text("utf-8"))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m loadtest.gpu_train",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = ",".join(sorted(path.stem for path in RECIPES.glob("*.toml")))
    parser.add_argument(
        "--recipes", default=names, help="comma separated names or files; several run at once"
    )
    parser.add_argument("--minutes", type=float, default=8.0, help="for each, from its start to its bundle")
    parser.add_argument("--corpora", type=Path, default=Path("../shared/corpora"))
    parser.add_argument("--device", default="cuda")
    parser.add_argument(
        "--out", type=Path, default=Path(os.environ.get("OUT", "runs")), help="else $OUT or runs/"
    )
    parser.add_argument(
        "--runs", type=Path, default=Path("runs"), help="checkpoints; a run goes on from them"
    )
    parser.add_argument("--set", action="append", metavar="KEY=VALUE", help="change a value of [train]")
    parser.add_argument(
        "--score", type=Path, metavar="BUNDLE", help="state the scores of a bundle in its card"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
