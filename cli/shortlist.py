"""`convoy shortlist`: adds a list of likely target tokens for each source or target language to a bundle."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli import lines
from engine.errors import InvalidRequest

if TYPE_CHECKING:
    from engine.bundle.bundle import Bundle
    from engine.bundle.shortlist import Shortlist


def shortlist(
    bundle: Annotated[Path, typer.Argument(help="A bundle folder.")],
    pairs: Annotated[
        Path | None, typer.Argument(help="File of sentence pairs in tab separated columns; also .gz.")
    ] = None,
    source_column: Annotated[int, typer.Option(min=0, help="Column of the sources, from 0.")] = 0,
    target_column: Annotated[int, typer.Option(min=0, help="Column of the translations, from 0.")] = 1,
    likely: Annotated[int, typer.Option(min=1, help="Target tokens that each source token allows.")] = 100,
    always: Annotated[int, typer.Option(min=1, help="Frequent tokens that every source allows.")] = 100,
    limit: Annotated[int | None, typer.Option(min=1, help="Use only this many first lines.")] = None,
    language: Annotated[
        str | None, typer.Option(help="Instead of pairs: target language whose tokens are listed.")
    ] = None,
    text: Annotated[
        Path | None, typer.Option(help="File of text in that language, one sentence a line; also .gz.")
    ] = None,
    most: Annotated[
        int, typer.Option(min=1, help="With --language: number of tokens, the most frequent ones.")
    ] = 10_000,
) -> None:
    """Add a shortlist to a bundle, for faster decoding with `--shortlist` (needs the extra
    `torch`).

    Sentence pairs give likely tokens for each source token. For a model of many languages with a large
    vocabulary, text in one target language gives the tokens of that language.
    """
    from engine.bundle.bundle import add_files, open_bundle
    from engine.bundle.shortlist import SHORTLIST
    from export.graphs.onnx import shortlisted_graphs

    opened = open_bundle(bundle)
    graphs = shortlisted_graphs(opened.config)
    if pairs is not None and language is None and text is None:
        rows = lines.columns(lines.table(pairs)[:limit], pairs, source_column, target_column)
        likely_tokens, origin = _from_pairs(opened, pairs, rows, (likely, always))
    elif pairs is None and language is not None and text is not None:
        likely_tokens, origin = _from_language(opened, language, lines.table(text)[:limit], most)
    else:
        raise InvalidRequest("give a file of sentence pairs, or --language and --text")
    data = likely_tokens.dump()
    add_files(bundle, {SHORTLIST: data, **graphs})
    typer.echo(f"{bundle / SHORTLIST}: {len(data):,} bytes, {origin}")


def _from_pairs(
    bundle: Bundle, path: Path, rows: list[tuple[str, str]], sizes: tuple[int, int]
) -> tuple[Shortlist, str]:
    """Return a shortlist learned from sentence pairs, and its description."""
    from engine.text.tokenizers.tokenizer import open_tokenizer
    from training.words.shortlist import learn

    if not rows:
        raise InvalidRequest(f"{path}: has no pairs to learn from")
    config, tokenizer = bundle.config, open_tokenizer(bundle)
    encoded = ((tokenizer.encode(source), tokenizer.encode_target(target)) for source, target in rows)
    likely_tokens = learn(encoded, (config.source_vocab, config.target_vocab), config.eos, sizes)
    return likely_tokens, f"from {len(rows):,} pairs"


def _from_language(bundle: Bundle, language: str, texts: list[str], most: int) -> tuple[Shortlist, str]:
    """Return the shortlist of the bundle, or a new one, with the list of a language, and its description."""
    from engine.bundle.shortlist import SHORTLIST, load_shortlist
    from engine.text.tokenizers.tokenizer import open_tokenizer
    from training.words.shortlist import LanguageToken, language_tokens, with_language

    config, tokenizer = bundle.config, open_tokenizer(bundle)
    vocabularies = config.source_vocab, config.target_vocab
    name = _language_token(bundle, getattr(tokenizer, "languages", {}), language)
    sentences = (tokenizer.encode_target(line) for line in texts)
    tokens, covered = language_tokens(sentences, config.target_vocab, most)
    old = None
    if SHORTLIST in bundle.files():
        old = load_shortlist(bundle.file(SHORTLIST).read_bytes(), vocabularies, config.eos)
    named = None if name is None else LanguageToken(name, by_source=not tokenizer.beginning)
    likely_tokens = with_language(old, config, tokens, named)
    return likely_tokens, f"{len(tokens):,} tokens of {language}, which cover {covered:.2%} of its text"


def _language_token(bundle: Bundle, named: Mapping[str, int], language: str) -> int | None:
    """Return the token of a language; None for a model of one language."""
    from engine.text.codes import by_short_code, short

    codes = by_short_code(named)
    if not codes and short(language) == short(bundle.target):
        return None
    if short(language) not in codes:
        languages = ", ".join(sorted(codes)[:20]) or bundle.target
        raise InvalidRequest(f"{bundle.path} does not translate into {language!r}, but into: {languages}")
    return named[codes[short(language)]]
