"""`convoy train`: trains a model by a recipe, and writes a bundle with measured scores."""

from __future__ import annotations

import random
import signal
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from cli import lines
from engine.answers.options import TextOptions
from engine.errors import BundleError, InvalidRequest

if TYPE_CHECKING:
    from engine.bundle.bundle import Bundle
    from training.package import Measurement
    from training.prepare import Synthesis
    from training.recipe import Recipe

EXAMPLES: Final = 20  # lines of the test split that a card shows
Start = Annotated[
    Path | None,
    typer.Option("--from", metavar="BUNDLE", help="Start from the weights and vocabulary of this bundle."),
]
Teacher = Annotated[
    Path | None,
    typer.Option(
        metavar="BUNDLE", help="Learn from this bundle's translations of the sources, with its vocabulary."
    ),
]
Back = Annotated[
    tuple[Path, Path] | None,
    typer.Option(
        metavar="BUNDLE FILE", help="Also learn the lines of FILE, with BUNDLE's translations as sources."
    ),
]
Available = Annotated[
    bool, typer.Option("--available", help="Leave out further corpora of the recipe that are not there.")
]


def train(
    recipe: Annotated[Path, typer.Argument(help="A TOML file, or the name of a shipped recipe.")],
    corpora: Annotated[Path, typer.Option(help="Folder of the corpora.")],
    out: Annotated[Path | None, typer.Option(help="Folder of the new bundle; default: models/NAME.")] = None,
    run: Annotated[Path | None, typer.Option(help="Checkpoints; default: runs/NAME-DEVICE.")] = None,
    start: Start = None,
    teacher: Teacher = None,
    back: Back = None,
    minutes: Annotated[
        float | None, typer.Option(min=1.0, help="Time limit; the learning rate is scheduled for it.")
    ] = None,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    available: Available = False,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a value in [train]."),
    ] = None,
    tests: Annotated[
        list[Path] | None,
        typer.Option(
            "--test", metavar="FILE", help="Another file to measure; lines are source, tab, reference."
        ),
    ] = None,
    scores: Annotated[
        bool, typer.Option(help="Measure the test split and write the scores into the card.")
    ] = True,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace OUT even if it is another model.")
    ] = False,
) -> None:
    """Train a model by a recipe and write its bundle (needs the extra `train`).

    After an interruption, run it again: it continues from the last checkpoint.
    """
    final_recipe, out, replaces = _check_arguments(recipe, changes or [], device, out, overwrite)
    final_recipe = _with_corpora(final_recipe, corpora, available=available)
    from engine.bundle.bundle import open_bundle
    from training.package import package
    from training.trainer import Trainer, TrainingStopped

    checkpoints = run or Path("runs") / f"{final_recipe.name}-{device.split(':')[0]}"
    trainer = Trainer(
        final_recipe,
        corpora,
        checkpoints,
        device,
        open_bundle(start) if start else None,
        _synthesis(final_recipe, teacher, back),
    )
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, trainer.stop)
    try:
        trainer.fit(60 * minutes if minutes else None)
    except TrainingStopped as stopped:
        typer.echo(stopped, err=True)
        raise typer.Exit(1) from None
    package(trainer.recipe, checkpoints, out, device, overwrite=replaces)  # with the schedule of --minutes
    if scores:
        measure(final_recipe, corpora, out, tests or [])
    typer.echo(f"{out}: done; next: convoy inspect {out}")


def _synthesis(recipe: Recipe, teacher: Path | None, back: tuple[Path, Path] | None) -> Synthesis | None:
    """Return the synthetic data by a teacher and by back-translation, or None.

    Raises BundleError, and InvalidRequest for bad files.
    """
    from cli.choices import ModelChoice
    from cli.local import open_service
    from cli.texts import answers
    from engine.bundle.bundle import open_bundle
    from training.prepare import Synthesis

    if teacher is None and back is None:
        return None

    def translate(bundle: Bundle, source: str, target: str, texts: list[str]) -> list[str]:
        options = TextOptions(truncate=True)
        with open_service(ModelChoice(bundle.path, precision="int8"), options) as service:
            route = service.pick(recipe.task, source, target, bundle.name)
            results = answers(service, recipe.task, texts, options, len(texts), route=route)
            return [result.text for result in results]

    bundle, file = back or (None, None)
    return Synthesis(
        translate,
        open_bundle(teacher) if teacher else None,
        open_bundle(bundle) if bundle else None,
        [line for line in lines.table(file) if line.strip()] if file else [],
    )


def _check_arguments(
    recipe: Path, changes: Sequence[str], device: str, out: Path | None, overwrite: bool
) -> tuple[Recipe, Path, bool]:
    """Return the recipe, the path of its bundle, and whether it may replace an existing bundle.

    Raises InvalidRequest before hours of training.
    """
    if device.partition(":")[0] not in ("cpu", "cuda"):
        raise InvalidRequest(f"--device must be cpu or cuda, not {device!r}")
    from training.recipe import load

    final_recipe = load(_recipe_path(recipe), device, dict(map(_key_and_value, changes)))
    out = out or Path("models") / final_recipe.name
    replaces = overwrite or _is_bundle(out, final_recipe.name)
    if out.exists() and not replaces:
        raise InvalidRequest(
            f"{out} exists and is no bundle of {final_recipe.name}; give another --out, or --overwrite"
        )
    return final_recipe, out, replaces


def _with_corpora(recipe: Recipe, corpora: Path, *, available: bool) -> Recipe:
    """Return the recipe with the corpora that it trains on.

    recipe: recipe of the model.
    corpora: folder of all corpora.
    available: leave out missing corpora beside the first one.

    Raises InvalidRequest if a corpus is missing.
    """
    missing = [
        name for name in (recipe.corpus.folder, *recipe.corpus.beside) if not (corpora / name).is_dir()
    ]
    if missing and (not available or recipe.corpus.folder in missing):
        raise InvalidRequest(f"{corpora / missing[0]}: no such corpus; give its parent folder with --corpora")
    if missing:
        typer.echo(f"left out, because {corpora} lacks them: {', '.join(missing)}", err=True)
    beside = {name: times for name, times in recipe.corpus.beside.items() if name not in missing}
    return replace(recipe, corpus=replace(recipe.corpus, beside=beside))


def measure(recipe: Recipe, corpora: Path, out: Path, tests: Sequence[Path]) -> None:
    """Measure a bundle like `convoy evaluate` or `convoy score`, and write the scores into its card.

    recipe: recipe of the bundle, with the corpora whose test splits are measured.
    corpora: folder of the corpora.
    out: folder of the bundle.
    tests: further files with a source and a reference in each line, separated by a tab.
    """
    from engine.bundle.bundle import open_bundle
    from training.package import Example, Measurement, add_scores

    if not recipe.config().reads_source:
        add_scores(open_bundle(out), [_perplexity(recipe, corpora, out)], [])
        return
    columns = recipe.corpus.source_column, recipe.corpus.target_column
    folders = recipe.corpus.folder, *recipe.corpus.beside
    files = [(corpora / folder / "test.tsv.gz", columns) for folder in folders]
    files += [(path, (0, 1)) for path in tests]
    measurements: list[Measurement] = []
    examples: list[Example] = []
    for path, order in files:
        inside = path.is_relative_to(corpora)
        shown = f"CORPORA/{path.relative_to(corpora)}" if inside else str(path)
        command = f"convoy evaluate --model {out} --input {shown}"
        if order != (0, 1):
            command += f" --source-column {order[0]} --target-column {order[1]}"
        scores, outputs = _score_file(out, path, order, choose_precision=not measurements)
        measurements.append(Measurement(f"`{shown}`", scores, f"{command} --truncate"))
        if not examples:
            drawn = random.Random(EXAMPLES).sample(outputs, min(EXAMPLES, len(outputs)))  # nosec B311
            examples = [Example(*line) for line in drawn]
    add_scores(open_bundle(out), measurements, examples)


def _score_file(
    out: Path, path: Path, columns: tuple[int, int], *, choose_precision: bool
) -> tuple[dict[str, float], list[tuple[str, str, str]]]:
    """Return the scores of a file, and its sources, references and outputs.

    out: folder of the bundle.
    path: file of sources and references.
    columns: columns of source and reference.
    choose_precision: write the scores in fp32 and int8 into the bundle.
    """
    from cli.choices import ModelChoice
    from cli.evaluate import score, score_both

    pairs = lines.columns(lines.table(path), path, *columns)
    measure = score_both if choose_precision else score
    scores, outputs = measure(ModelChoice(out), TextOptions(truncate=True), pairs)
    return scores, [(*pair, output) for pair, output in zip(pairs, outputs, strict=True)]


def _perplexity(recipe: Recipe, corpora: Path, out: Path) -> Measurement:
    """Return the perplexity of a language model on the test split."""
    from training.data import read_pairs
    from training.package import Measurement

    column, path = recipe.corpus.target_column, f"{recipe.corpus.folder}/test.tsv.gz"
    texts = [text for text, _ in read_pairs(corpora / path, column, column)]
    command = f"zcat CORPORA/{path} | cut -f{column + 1} | convoy score {out} - --total"
    return Measurement(f"`CORPORA/{path}`", perplexity(out, texts), command)


def perplexity(out: Path, texts: Iterable[str]) -> dict[str, float]:
    """Return the perplexity of texts by token and by word."""
    from cli.choices import ModelChoice
    from cli.local import open_service
    from cli.score import Sum

    total = Sum()
    with open_service(ModelChoice(out), TextOptions({"beam_size": 1})) as service:
        for scored in service.score_many(service.models()[0].name, ((text, None) for text in texts)):
            total.add(scored)
    facts = total.figures()
    return {"perplexity": facts["perplexity"], "perplexity a word": facts["word_perplexity"]}


def _is_bundle(path: Path, name: str) -> bool:
    """Return whether the path has a bundle of the name."""
    from engine.bundle.bundle import open_bundle

    try:
        return open_bundle(path, verify=False).name == name
    except BundleError:
        return False


def _recipe_path(path: Path) -> Path:
    """Return the path, or the path of the shipped recipe with this name."""
    import training

    if path.exists():
        return path
    shipped = Path(str(training.__file__)).parent / "recipes"
    named = shipped / f"{path}.toml"
    if not named.exists():
        names = ", ".join(sorted(p.stem for p in shipped.glob("*.toml")))
        raise InvalidRequest(f"{path}: no such recipe; shipped are: {names}")
    return named


def _key_and_value(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not (key and equals and value):
        raise InvalidRequest(f"--set takes key=value, not {text!r}")
    return key, value
