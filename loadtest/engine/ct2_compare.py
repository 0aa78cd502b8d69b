"""Convoy beside CTranslate2 on one and the same model of CTranslate2, as packages of Argos hold them.

A Transformer of the usual package's size (6 + 6 layers, 512 wide, feed-forward 2048, 50,000 symbols) with
random weights; every sentence is translated to exactly as many tokens as it has. A run is the whole
translation: encoder, decoding steps and search. What counts is the ratio; both share the machine.

    python -m loadtest.engine.ct2_compare --threads 1,2

Needs ctranslate2 from PyPI and the extra `torch`.
"""

from __future__ import annotations

import argparse
import tempfile
from functools import partial
from pathlib import Path

from loadtest.engine.cpu_compare import Translate, add_work, ctranslate2, lanes_of, pure_and_native
from loadtest.random_transformer import Size


def convoy(folder: Path, size: Size, kernels: str) -> Translate:
    """Make our lane over the bundle of the folder.

    folder: of CTranslate2's model.
    size: of its network.
    kernels: pure or native.
    """
    from engine.bundle.bundle import open_bundle
    from export.importers import convert
    from export.importers.settings import CTranslate2Import

    if not (folder / "bundle").exists():
        convert("ctranslate2", folder, folder / "bundle", CTranslate2Import(source="en", target="de"))
    bundle = open_bundle(folder / "bundle")
    return lanes_of(bundle.config, bundle.weights(), bundle.options, kernels, size.vocab)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--vocab", type=int, default=50_000)
    add_work(parser)
    options = parser.parse_args()
    size = Size(512, 2048, 8, options.vocab)
    print(f"{size}; on", end=" ")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pure_and_native(ctranslate2(size, folder), partial(convoy, folder, size), options, "argos")


if __name__ == "__main__":
    main()
