"""`convoy words`: sets fixed translations of phrases, the rule for names and the known words of a bundle."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from cli import lines
from engine.errors import InvalidRequest

if TYPE_CHECKING:
    from engine.bundle.bundle import Bundle
    from engine.text.known_words import KnownWords

CARD_FILE: Final = "README.md"
CARD_HEADING: Final = "\n## Words by rule\n"
NEXT_HEADING: Final = "\n## "
MAX_PHRASE_WORDS: Final = 6
Pairs = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="FILE",
        help="File of training data, tab separated; also .gz. Words that it does not translate are kept.",
    ),
]


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
    pairs: Pairs = None,
    source_column: Annotated[int, typer.Option(min=0, help="Column of the sources of --pairs, from 0.")] = 0,
    target_column: Annotated[int, typer.Option(min=0, help="Column of their translations, from 0.")] = 1,
    reset: Annotated[bool, typer.Option("--reset", help="Remove the rules that the bundle has.")] = False,
) -> None:
    """Set fixed translations of short phrases, the rule for names and the known words of a bundle.

    Rules without a flag stay unchanged; without flags the bundle is only described.
    """
    from engine.text.known_words import read_known_words
    from engine.text.words import WORDS_FILE, stored_words

    opened = _open(bundle)
    if choose_names and names is not None:
        raise InvalidRequest("give --names or --choose-names, not both")
    had_names, fixed = (None, {}) if reset else stored_words(opened)
    fixed = _read_phrases(opened, phrases) if phrases else fixed
    known = None if reset or pairs else read_known_words(opened)
    if pairs:
        known = _learn(opened, pairs, (source_column, target_column))
    if choose_names:
        names = _best_names(bundle, choose_names)
    elif names is None:
        names = had_names
    if reset or phrases or choose_names or pairs or names != had_names:
        _write(opened, names, fixed, known)
    typer.echo(f"{bundle / WORDS_FILE}: {_description(names, fixed, known)}")


def _open(path: Path) -> Bundle:
    """Open a bundle of one direction. Raises InvalidRequest for another one."""
    from engine.bundle.bundle import open_bundle

    bundle = open_bundle(path)
    if bundle.task != "translate" or {"sources", "languages"} & set(bundle.text):
        raise InvalidRequest(f"{path}: only models of one direction can have rules")
    return bundle


def _description(names: int | None, phrases: dict[str, str], known: KnownWords | None) -> str:
    """Return the numbers of phrases and known words, and the rule for names."""
    rule = "no rule for names" if names is None else f"--names {names}"
    return f"{len(phrases)} phrases, {rule}, {_number_of(known)} known words"


def _write(bundle: Bundle, names: int | None, phrases: dict[str, str], known: KnownWords | None) -> None:
    """Write rules into a bundle and its card."""
    from engine.bundle.bundle import add_files
    from engine.text.known_words import KNOWN_WORDS_FILE
    from engine.text.words import WORDS_FILE, dump_words

    card = bundle.file(CARD_FILE).read_text(encoding="utf-8") if CARD_FILE in bundle.files() else ""
    files = {
        WORDS_FILE: dump_words(names, phrases),
        KNOWN_WORDS_FILE: known.dump() if known else None,
        CARD_FILE: _new_card(card, names, phrases, known).encode(),
    }
    add_files(bundle.path, files)


def _number_of(known: KnownWords | None) -> str:
    return f"{len(known.stems) + len(known.capitals):,}" if known else "no"


def _learn(bundle: Bundle, paths: list[Path], columns: tuple[int, int]) -> KnownWords:
    """Return the known words of files of sentence pairs with columns for source and translation."""
    from training.words.known_words import learn

    pairs: list[tuple[str, str]] = []
    for path in paths:
        rows = [row for row in lines.table(path) if row.strip()]
        pairs += lines.columns(rows, path, *columns)
    if not pairs:
        raise InvalidRequest(f"{', '.join(map(str, paths))}: no pairs to learn from")
    return learn(pairs, bundle.source)


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


def _new_card(card: str, names: int | None, phrases: dict[str, str], known: KnownWords | None) -> str:
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
        if known:
            chapter += (
                "\nWords that the training data does not translate are kept too. It translates "
                f"{_number_of(known)} words, counted without endings.\n"
            )
    if phrases:
        listed = ", ".join(f"{source} = {target}" for source, target in phrases.items())
        chapter += (
            f"\nA sentence that equals one of these {len(phrases)} phrases "
            f"has a fixed translation: {listed}.\n"
        )
    return before.rstrip("\n") + "\n" + chapter + rest
