"""`convoy shortlist`: which target tokens a source makes likely, learned from sentence pairs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli import lines
from engine.errors import InvalidRequest


def shortlist(
    bundle: Annotated[Path, typer.Argument(help="A bundle folder of a translating model.")],
    pairs: Annotated[
        Path, typer.Argument(help="Sentence pairs of its languages: tab separated columns; .gz too.")
    ],
    source_column: Annotated[int, typer.Option(min=0, help="Column of the sources, from 0.")] = 0,
    target_column: Annotated[int, typer.Option(min=0, help="Column of their translations.")] = 1,
    likely: Annotated[int, typer.Option(min=1, help="Target tokens that each source token allows.")] = 100,
    always: Annotated[int, typer.Option(min=1, help="Frequent tokens that every source allows.")] = 100,
    limit: Annotated[int | None, typer.Option(min=1, help="Only so many first pairs.")] = None,
) -> None:
    """Add a shortlist to a bundle, for `--shortlist`: faster steps on the CPU (needs the extra `torch`)."""
    from engine.bundle import add_files, open_bundle
    from engine.shortlist import SHORTLIST
    from engine.text.tokenizer import open_tokenizer
    from export.onnx import shortlisted_graphs
    from training.shortlist import learn

    opened = open_bundle(bundle)
    config = opened.config
    graphs = shortlisted_graphs(config)
    tokenizer = open_tokenizer(opened)
    rows = lines.columns(lines.table(pairs)[:limit], pairs, source_column, target_column)
    if not rows:
        raise InvalidRequest(f"{pairs}: holds no pairs to learn from")
    encoded = ((tokenizer.encode(source), tokenizer.encode_target(target)) for source, target in rows)
    vocabularies = config.source_vocab, config.target_vocab
    found = learn(encoded, vocabularies, config.eos, (likely, always))
    data = found.dump()
    add_files(bundle, {SHORTLIST: data, **graphs})
    typer.echo(f"{bundle / SHORTLIST}: {len(data):,} bytes, of {len(rows):,} pairs")
