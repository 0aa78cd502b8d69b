"""Random packages of Argos: a model of CTranslate2, a SentencePiece model, and metadata."""

from __future__ import annotations

import json
import zipfile
from functools import cache
from pathlib import Path

import sentencepiece

from cli.convert.argos import argos
from engine.bundle.bundle import Bundle, open_bundle
from engine.bundle.manifest import MANIFEST
from tests.support import ctranslate2_models as models

ROOT = Path(__file__).resolve().parents[1]
TEXTS = [
    line
    for path in (ROOT / "golden" / "real-de-en").glob("*.txt")
    for line in path.read_text("utf-8").splitlines()
][:400]
PIECES = 120


@cache
def sentencepiece_model() -> bytes:
    """Return a small SentencePiece model of texts in both languages."""
    import io

    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS),
        model_writer=out,
        vocab_size=PIECES,
        hard_vocab_limit=False,
        character_coverage=0.98,
        minloglevel=2,
    )
    return out.getvalue()


def write(
    folder: Path, source: str, target: str, *, quantization: str | None = "int8", seed: int = 0
) -> Path:
    """Write an unpacked package in the layout of LibreTranslate's volume."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=sentencepiece_model())
    pieces = [processor.id_to_piece(i) for i in range(processor.get_piece_size())]
    symbols = (*models.SYMBOLS, *(piece for piece in pieces if piece not in models.SYMBOLS))
    options = models.Options(
        symbols=symbols,
        vocabularies=(len(symbols), len(symbols)),
        tied=False,
        seed=seed,
        layers=(1, 1),
        end=2.5,
    )
    package = folder / f"translate-{source}_{target}-1_9"
    models.write(package / "model", options, quantization)
    (package / "sentencepiece.model").write_bytes(sentencepiece_model())
    said = {
        "package_version": "1.9",
        "argos_version": "1.9.0",
        "from_code": source,
        "from_name": source,
        "to_code": target,
        "to_name": target,
    }
    (package / "metadata.json").write_text(json.dumps(said))
    return package


def pack(package: Path, out: Path) -> Path:
    """Write the .argosmodel of a package."""
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(package.rglob("*")):
            if path.is_file():
                archive.write(path, path.relative_to(package.parent))
    return out


def convert(path: Path, out: Path, name: str | None = None) -> list[Bundle]:
    """Run `convoy convert argos` on a package, or a folder of packages, without graphs."""
    argos(package=path, out=out, name=name, onnx=False, placeholders=False)
    return [open_bundle(folder) for folder in ([out] if (out / MANIFEST).exists() else sorted(out.iterdir()))]
