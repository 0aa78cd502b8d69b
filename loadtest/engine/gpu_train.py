"""Train the shipped recipes on a GPU that is available for minutes: each learns for a given time.

The time, not the recipe, sets the number of updates, and the schedule follows (`convoy train --minutes`).
Checkpoints are kept in runs/, so that a killed run continues; the finished bundle is packed into
$OUT/NAME.tar.gz.

    bash loadtest/gpu.sh train --minutes 8
    tar -xzf NAME.tar.gz -C models && python -m loadtest.engine.gpu_train --score models/NAME  # writes scores

With --start FOLDER a run continues from the weights of FOLDER/NAME. With --weights it writes the averaged
weights in fp16 to $OUT/NAME.safetensors instead of a bundle; `--pack $OUT/NAME.safetensors` then makes the
bundle in runs/NAME on any machine.
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
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from training import curve
from training.curve import Point

if TYPE_CHECKING:
    from training.recipe import Recipe

REPOSITORY: Final = Path(__file__).parents[2]
RECIPES: Final = REPOSITORY / "training" / "recipes"
RESERVE: Final = 30.0  # seconds for averaging and packing
WEIGHTS_RESERVE: Final = 12.0  # seconds for averaging alone
AVERAGED: Final = "averaged.pt"
TOGETHER: Final = "training.json"  # records of recipes that were trained at the same time


@dataclass(frozen=True, slots=True)
class TrainingRecord:
    """Result of training.

    updates: number of updates trained.
    wanted: number of updates in the recipe.
    nll: negative log-likelihood of the validation pairs, nats a token.
    points: losses at each checkpoint.
    """

    name: str
    updates: int
    wanted: int
    seconds: float
    nll: float
    archive: str
    points: list[Point]


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    if options.score:
        _score(options.score, options.corpora)
        return 0
    if options.pack:
        print(pack(options.pack, options))
        return 0
    options.out.mkdir(parents=True, exist_ok=True)
    names = options.recipes.split(",")
    if len(names) > 1:
        return _together(options, names)
    outcome = train(options, names[0])
    print(json.dumps(asdict(outcome)))
    (options.out / f"{outcome.name}.json").write_text(json.dumps(asdict(outcome), indent=1) + "\n", "utf-8")
    return 0


def train(options: argparse.Namespace, name: str) -> TrainingRecord:
    """Train one recipe for `options.minutes`, continuing its last run."""
    from engine.bundle.bundle import open_bundle
    from engine.models import weight_shapes
    from training.trainer import Trainer

    began = time.monotonic()
    end = began + 60 * options.minutes - (WEIGHTS_RESERVE if options.weights else RESERVE)
    recipe = load_recipe(name, options.device, options.set or [])
    name = recipe.name
    folder = options.runs / f"{name}-{options.device.partition(':')[0]}"
    start = open_bundle(options.start / name) if options.start else None
    vocabulary = _vocabulary(options, name)
    # the vocabulary of the corpus saves minutes
    if vocabulary.exists() and not (folder / vocabulary.name).exists():
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(vocabulary, folder)
    trainer = Trainer(recipe, options.corpora, folder, options.device, start)
    print(f"{name}: {len(trainer.train.sources)} pairs after {time.monotonic() - began:.1f} s", flush=True)
    trainer.fit(end - time.monotonic())
    archive = options.out / f"{name}.{'safetensors' if options.weights else 'tar.gz'}"
    if options.weights:
        _write_weights(folder, archive, list(weight_shapes(trainer.model)))
    else:
        _write_archive(trainer.recipe, folder, options, archive)
    seconds = time.monotonic() - began
    updates, wanted, points = trainer.update, recipe.train.updates, curve.read(folder)
    return TrainingRecord(name, updates, wanted, seconds, trainer.validate(), archive.name, points)


def _write_archive(recipe: Recipe, run: Path, options: argparse.Namespace, archive: Path) -> None:
    """Write the packed bundle of a finished run."""
    from training.package import package

    bundle = package(recipe, run, options.runs / recipe.name, options.device, overwrite=True)
    with tarfile.open(archive, "w:gz") as packed:
        packed.add(bundle.path, arcname=recipe.name)


def _write_weights(run: Path, path: Path, names: list[str]) -> None:
    """Write the averaged weights of a finished run in fp16, without tables that the model computes."""
    import torch
    from safetensors.torch import save_file

    state = torch.load(run / AVERAGED, map_location="cpu", weights_only=True)
    save_file({name: state[name].half().contiguous() for name in names}, path)


def pack(weights: Path, options: argparse.Namespace) -> Path:
    """Write the bundle of averaged weights and their record, and return its path.

    weights: file that `--weights` wrote, beside the record with the number of updates and the losses.
    options: options of the training; `recipes` may be the file of a recipe that is not shipped.
    """
    import torch
    from safetensors.torch import load_file

    from training.package import package

    name, run = weights.stem, options.runs / f"{weights.stem}-packed"
    own, all_rows = weights.with_suffix(".json"), weights.with_name(TOGETHER)
    record = json.loads((own if own.exists() else all_rows).read_text("utf-8"))
    record = record.get(name, record)  # of one recipe, or of all
    file = options.recipes if options.recipes.endswith(".toml") else name
    recipe = load_recipe(file, options.device, [f"updates={record['updates']}", *(options.set or [])])
    run.mkdir(parents=True, exist_ok=True)
    shutil.copy(_vocabulary(options, name), run)
    torch.save({key: tensor.float() for key, tensor in load_file(weights).items()}, run / AVERAGED)
    (run / curve.CURVE).unlink(missing_ok=True)
    for point in record["points"]:
        curve.append(run, Point(**point))
    return package(recipe, run, options.runs / name, options.device, overwrite=True).path


def _together(options: argparse.Namespace, names: list[str]) -> int:
    """Train all recipes at once, each in its own process: one small model does not fill a large GPU. Prints
    the output of each process at its end."""
    running = {}
    for recipe in names:
        name = Path(recipe).stem
        command = [sys.executable, "-m", "loadtest.engine.gpu_train", f"--recipes={recipe}"]
        command += [
            f"--{key}={getattr(options, key)}" for key in ("minutes", "corpora", "device", "out", "runs")
        ]
        command += [f"--start={options.start}"] * bool(options.start) + ["--weights"] * options.weights
        command += [f"--set={change}" for change in options.set or []]
        with (options.out / f"{name}.log").open("w") as log:
            running[name] = subprocess.Popen(command, cwd=REPOSITORY, stdout=log, stderr=subprocess.STDOUT)
    failed = [name for name, process in running.items() if process.wait()]
    rows: dict[str, Any] = {}
    for name in running:
        record, log_file = options.out / f"{name}.json", options.out / f"{name}.log"
        lines = log_file.read_text("utf-8", "replace").splitlines()
        rows[name] = {"failed": lines[-20:]} if name in failed else json.loads(record.read_text("utf-8"))
        record.unlink(missing_ok=True)
        if name not in failed:
            log_file.unlink()
    (options.out / TOGETHER).write_text(json.dumps(rows, indent=1) + "\n", "utf-8")
    print(json.dumps(rows, indent=1))
    return int(bool(failed))


def _vocabulary(options: argparse.Namespace, name: str) -> Path:
    """Return the vocabulary of the weights from which a run starts, or of the shipped bundle."""
    return (options.start or REPOSITORY / "models") / name / "vocabulary.model"


def load_recipe(name: str, device: str, changes: Sequence[str]) -> Recipe:
    """Return a recipe with changed values.

    name: name of a shipped recipe, or the path of a file.
    device: device of the training.
    changes: texts KEY=VALUE for keys of [train].
    """
    from training.recipe import load

    path = Path(name) if name.endswith(".toml") else RECIPES / f"{name}.toml"
    return load(path, device, dict(change.split("=", 1) for change in changes))


def _score(bundle: Path, corpora: Path) -> None:
    """Measure the test splits and the everyday lines on the CPU and write the scores into the card."""
    from cli.train import measure
    from training.recipe import load

    recipe = load(RECIPES / f"{bundle.name}.toml", "cpu")
    everyday = Path("tests", "everyday", f"{recipe.source}-{recipe.target}.tsv")
    measure(recipe, corpora, bundle, [everyday] if everyday.exists() else [])
    print((bundle / "README.md").read_text("utf-8"))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m loadtest.engine.gpu_train",
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
    parser.add_argument("--start", type=Path, metavar="FOLDER", help="start from the bundles of this folder")
    parser.add_argument("--weights", action="store_true", help="write only the averaged weights, in fp16")
    parser.add_argument("--pack", type=Path, metavar="FILE", help="make the bundle of such weights")
    parser.add_argument("--set", action="append", metavar="KEY=VALUE", help="change a value of [train]")
    parser.add_argument(
        "--score", type=Path, metavar="BUNDLE", help="state the scores of a bundle in its card"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
