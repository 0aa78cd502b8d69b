"""`convoy words`: sets fixed translations of phrases, and the rule for names, of a bundle."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from cli import lines
from engine.errors import InvalidRequest

if TYPE_CHECKING:
    from engine.bundle.bundle import Bundle

CARD_FILE: Final = "README.md"
CARD_HEADING: Final = "\n## Words by rule\n"
NEXT_HEADING: Final = "\n## "
MAX_PHRASE_WORDS: Final = 6


def words(
    bundle: Annotated[Path, typer.Argument(help="A bundle folder of a translating model.")],
    phrases: Annotated[
        Path | None,
        typer.Option(
            help="File of phrases with fixed translations: tab separated, language codes in line 1."
        ),
    ] = None,
    names: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=64,
            help="A capitalized word of this many tokens is a name; 0: only with a title or another name.",
        ),
    ] = None,
    choose_names: Annotated[
        Path | None,
        typer.Option(help="File of sources and translations, tab separated, by which --names is chosen."),
    ] = None,
    reset: Annotated[bool, typer.Option("--reset", help="Remove the rules that the bundle has.")] = False,
) -> None:
    """Set fixed translations of short phrases and the rule for names in a bundle and its model card.

    Rules without a flag stay unchanged; without flags the bundle is only described.
    """
    from engine.bundle.bundle import add_files, open_bundle
    from engine.text.words import WORDS_FILE, dump_words, stored_words

    opened = open_bundle(bundle)
    if opened.task != "translate" or {"sources", "languages"} & set(opened.text):
        raise InvalidRequest(f"{bundle}: only models of one direction can have rules")
    if choose_names and names is not None:
        raise InvalidRequest("give --names or --choose-names, not both")
    changed = reset or phrases or choose_names or names is not None
    had_names, pairs = (None, {}) if reset else stored_words(opened)
    pairs = _read_phrases(opened, phrases) if phrases else pairs
    if choose_names:
        names = _best_names(bundle, choose_names)
    elif names is None:
        names = had_names
    if changed:
        card = opened.file(CARD_FILE).read_text(encoding="utf-8") if CARD_FILE in opened.files() else ""
        files = {WORDS_FILE: dump_words(names, pairs), CARD_FILE: _new_card(card, names, pairs).encode()}
        add_files(bundle, files)
    rule = "no rule for names" if names is None else f"--names {names}"
    typer.echo(f"{bundle / WORDS_FILE}: {len(pairs)} phrases, {rule}")


def _best_names(bundle: Path, path: Path) -> int | None:
    """Print the measurements of each rule for names, and return the best rule."""
    from cli.name_rules import choose_rule, try_rules

    rows = [row for row in lines.table(path) if row.strip()]
    tried = try_rules(bundle, lines.columns(rows, path, 0, 1))
    best = choose_rule(tried)
    typer.echo("names\tBLEU\tkept")
    for rule in tried:
        chosen = "\tchosen" if rule is best else ""
        typer.echo(f"{'-' if rule.names is None else rule.names}\t{rule.bleu:.2f}\t{rule.kept:.1%}{chosen}")
    return best.names


def _read_phrases(bundle: Bundle, path: Path) -> dict[str, str]:
    """Return the translation by phrase of a file; the first one counts if a phrase comes twice."""
    from engine.text.words import key

    head, *rows = (line.split("\t") for line in lines.table(path))
    missing = {bundle.source, bundle.target} - set(head)
    if missing:
        raise InvalidRequest(f"{path}: line 1 has no column {', '.join(sorted(missing))}")
    source, target = head.index(bundle.source), head.index(bundle.target)
    pairs: dict[str, str] = {}
    known = set[str]()
    for number, row in enumerate(rows, 2):
        if len(row) != len(head):
            raise InvalidRequest(f"{path}, line {number}: has {len(row)} columns, line 1 has {len(head)}")
        phrase = row[source].strip()
        if len(phrase.split()) <= MAX_PHRASE_WORDS and key(phrase) not in known:
            known.add(key(phrase))
            pairs[phrase] = row[target].strip()
    return pairs


def _new_card(card: str, names: int | None, pairs: dict[str, str]) -> str:
    """Return the model card with a new chapter about rules, before the scores."""
    before, found, rest = card.partition(CARD_HEADING)
    if found:
        rest = rest[rest.find(NEXT_HEADING) :] if NEXT_HEADING in rest else ""
    else:
        before, heading, rest = card.partition("\n## Scores\n")
        rest = heading + rest
    chapter = CARD_HEADING
    if names is not None:
        alone = f", and single capitalised words of {names} tokens or more" if names else ""
        chapter += (
            "\nThese count as names and are kept if the model loses them: capitalised words after a title or "
            f"side by side{alone} (docs/text.md).\n"
        )
    if pairs:
        listed = ", ".join(f"{source} = {target}" for source, target in pairs.items())
        chapter += (
            f"\nA sentence that equals one of these {len(pairs)} phrases has a fixed translation: {listed}.\n"
        )
    return before.rstrip("\n") + "\n" + chapter + rest
