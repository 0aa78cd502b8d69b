"""`convoy train`: from a recipe and a corpus to a bundle with measured scores."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from engine.errors import BundleError, InvalidRequest

if TYPE_CHECKING:
    from training.recipe import Recipe


def train(
    recipe: Annotated[Path, typer.Argument(help="A TOML file, or the name of one of the shipped recipes.")],
    corpora: Annotated[Path, typer.Option(help="Folder of the corpora that recipes name.")],
    out: Annotated[Path | None, typer.Option(help="The bundle to write; else models/NAME.")] = None,
    run: Annotated[
        Path | None,
        typer.Option(help="Checkpoints, from which a killed run goes on; else runs/NAME-DEVICE."),
    ] = None,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    changes: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a value of [train].")
    ] = None,
    scores: Annotated[bool, typer.Option(help="Measure the test split and state it in the card.")] = True,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace OUT even if it is another model.")
    ] = False,
) -> None:
    """Train a model by a recipe and write its bundle (needs the extra `train`).

    Run it again after a kill, and it goes on from the last checkpoint.
    """
    if device.split(":")[0] not in ("cpu", "cuda"):
        raise InvalidRequest(f"--device must be cpu or cuda, not {device!r}")
    from training.recipe import load

    chosen = load(_recipe(recipe), device, dict(map(_pair, changes or [])))
    corpus = corpora / chosen.corpus.folder
    if not corpus.is_dir():
        raise InvalidRequest(f"{corpus}: no such corpus; name its parent by --corpora")
    out = out or Path("models") / chosen.name
    replace = overwrite or _is_bundle(out, chosen.name)
    if out.exists() and not replace:  # now, not after hours of training
        raise InvalidRequest(
            f"{out} exists and is no bundle of {chosen.name}; take another --out or --overwrite"
        )
    from training.package import package
    from training.trainer import Trainer

    folder = run or Path("runs") / f"{chosen.name}-{device.split(':')[0]}"
    Trainer(chosen, corpora, folder, device).fit()
    package(chosen, folder, out, device, overwrite=replace)
    if scores:
        state_scores(chosen, corpus, out)
    typer.echo(f"{out}: done; next: convoy inspect {out}")


def state_scores(recipe: Recipe, corpus: Path, out: Path) -> None:
    """Measure the bundle on the test split, as `convoy evaluate` or `convoy score` does, and state it in the
    card."""
    from cli.evaluate import score
    from cli.texts import Place, Wish
    from engine.bundle import open_bundle
    from training.data import read_pairs
    from training.package import add_scores

    columns = recipe.corpus.source_column, recipe.corpus.target_column
    pairs = read_pairs(corpus / "test.tsv.gz", *columns)
    if not recipe.config().reads_source:
        cut = f"zcat CORPORA/{recipe.corpus.folder}/test.tsv.gz | cut -f{columns[1] + 1}"
        command = f"{cut} | convoy score {out} - --total"
        add_scores(open_bundle(out), _perplexity(out, [target for _, target in pairs]), command)
        return
    found, _ = score(Place(out), Wish(truncate=True), pairs)
    command = f"convoy evaluate --model {out} --input CORPORA/{recipe.corpus.folder}/test.tsv.gz"
    if columns != (0, 1):
        command += f" --source-column {columns[0]} --target-column {columns[1]}"
    add_scores(open_bundle(out), found, f"{command} --truncate")


def _perplexity(out: Path, lines: list[str]) -> dict[str, float]:
    from cli.score import Sum
    from cli.texts import Place, Wish, opened

    found = Sum()
    with opened(Place(out), Wish({"beam_size": 1})) as service:
        for scored in service.score_many(service.models()[0].name, ((line, None) for line in lines)):
            found.add(scored)
    facts = found.facts()
    return {"perplexity": facts["perplexity"], "perplexity a word": facts["word_perplexity"]}


def _is_bundle(path: Path, name: str) -> bool:
    from engine.bundle import open_bundle

    try:
        return open_bundle(path, verify=False).name == name
    except BundleError:
        return False


def _recipe(path: Path) -> Path:
    """The file itself, or the shipped recipe of that name."""
    import training

    if path.exists():
        return path
    shipped = Path(str(training.__file__)).parent / "recipes"
    named = shipped / f"{path}.toml"
    if not named.exists():
        known = ", ".join(sorted(p.stem for p in shipped.glob("*.toml")))
        raise InvalidRequest(f"{path}: no such recipe; shipped are: {known}")
    return named


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not (key and equals and value):
        raise InvalidRequest(f"--set takes key=value, not {text!r}")
    return key, value
