"""Imported models of CTranslate2's format, one for each kind of architecture."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from engine.bundle.bundle import Bundle
from export.importers import convert
from export.importers.settings import CTranslate2Import
from tests.support.ctranslate2_models import Options, write

END = {"add_source_eos": True}
NO_PADDING = ("<unk>", "</s>")
ARCHITECTURES = {
    "OpenNMT-py": Options(),
    "post-norm": Options(pre_norm=False, output_bias=True, seed=4),
    "no last norm": Options(no_final_norm=True, seed=1),
    "OpenNMT-tf": Options(positions="computed", config=END),
    "Shaw's positions": Options(positions="relative", seed=2, end=4.0),
    "Shaw's positions, post-norm": Options(positions="relative", pre_norm=False, layers=(3, 1), end=4.0),
    "Shaw's positions in wide heads": Options(positions="relative", head_dim=12, seed=2, end=4.0),
    "tanh GELU": Options(activation="GELUTanh"),
    "swish, as Marian": Options(
        activation="SWISH", pre_norm=False, zero_start=True, positions="computed", config=END
    ),
    "as ct2-marian-converter writes it": Options(
        activation="SWISH",
        pre_norm=False,
        zero_start=True,
        positions="computed",
        symbols=("</s>", "<unk>", "<blank>"),  # without the start symbol of config.json
        config=END,
        end=3.0,
    ),
    "GELU with a norm of embeddings, as fairseq": Options(activation="GELU", embedding_norm=True, config=END),
    "sigmoid GELU": Options(activation="GELUSigmoid"),
    "tanh": Options(activation="Tanh"),
    "sigmoid": Options(activation="Sigmoid"),
    "gated SiLU": Options(gated=True, activation="SWISH"),
    "norms by the root mean square": Options(rms=True, seed=2),
    "norms by the root mean square, post-norm": Options(rms=True, pre_norm=False, seed=4, end=3.0),
    "T5": Options(
        rms=True, positions="biased", queries_scale=1.0, gated=True, scale_embeddings=False, end=3.0
    ),
    "T5's biases, post-norm": Options(positions="biased", pre_norm=False, seed=3, end=3.0),
    "wide heads": Options(head_dim=12, seed=1),
    "own tables": Options(tied=False, joint=False),
    "two vocabularies": Options(joint=False, vocabularies=(50, 36)),
    "scaled outputs": Options(scale_outputs=0.5),
    "scaled queries": Options(queries_scale=1.0),
    "plain embeddings": Options(scale_embeddings=False),
    "a factor of embeddings": Options(scale_embeddings=2.5),
    "begin and end of the source": Options(config={**END, "add_source_bos": True}),
    "an epsilon": Options(config={"layer_norm_epsilon": 1e-3}),
    "no symbol to pad with": Options(
        symbols=NO_PADDING, config={"decoder_start_token": "</s>", "bos_token": "</s>"}
    ),
    "two vocabularies without one": Options(
        symbols=NO_PADDING,
        joint=False,
        vocabularies=(30, 44),
        config={"decoder_start_token": "</s>", "bos_token": "</s>"},
    ),
}


@cache
def imported(name: str, quantization: str | None, root: Path) -> tuple[Path, Bundle]:
    """Return the folder of a model of ARCHITECTURES, below `root`, and its bundle."""
    folder = write(root / f"{name}-{quantization}", ARCHITECTURES[name], quantization)
    return folder, convert(
        "ctranslate2",
        folder,
        root / f"{name}-{quantization}-bundle",
        CTranslate2Import(source="en", target="de"),
    )
