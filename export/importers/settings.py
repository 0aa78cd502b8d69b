"""What a person says of an import beyond the files, for each source: plain data, read without torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportSettings:
    """What every source may be told. None: find out from the files, or refuse.

    name: of the model; None: that of the bundle's folder.
    source, target: language codes; of several sources all, with "," between.
    half: store fp16; None: as the files do, where fp16 holds what is stored.
    max_sentence_tokens: where a longer sentence is cut; None: as the source says, else as usual.
    """

    name: str | None = None
    source: str | None = None
    target: str | None = None
    half: bool | None = None
    max_sentence_tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FairseqImport(ImportSettings):
    """What a folder of fairseq does not say.

    task: "translate", "summarize", ...; None: by the model.
    checkpoints: file names, several for an ensemble.
    average: their mean instead.
    dictionaries: folder of dict.LANGUAGE.txt.
    normalize: language of the punctuation rules, or "" for none.
    aggressive: Moses splits dashes; None: as the source dictionary shows.
    escape: Moses escapes &, | and the like; None: as the source dictionary shows.
    lowercase: the source is lower-cased; None: as the source dictionary shows.
    pretokenized: text is tokens between spaces; None: when there is nothing to segment words with.
    unk_dictionary: words in the place of unknown ones (`engine.text`).
    language_model: bundle of one for beside the model.
    lm_weight: its weight where a request names none.
    """

    task: str | None = None
    checkpoints: tuple[str, ...] = ()
    average: bool = False
    dictionaries: Path | None = None
    normalize: str = "en"
    aggressive: bool | None = None
    escape: bool | None = None
    lowercase: bool | None = None
    pretokenized: bool | None = None
    unk_dictionary: Path | None = None
    language_model: Path | None = None
    lm_weight: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MarianImport(ImportSettings):
    """What a folder of Marian does not say.

    checkpoint: name of the file of weights, where there are several.
    adapter: folder of a LoRA adapter; in Hugging Face's layout only.
    """

    checkpoint: str | None = None
    adapter: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StudentImport(MarianImport):
    """What a student's folder does not say.

    alphas: int8 follows the file's scales of activations, where it has them; else row by row.
    """

    alphas: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class HuggingFaceImport(ImportSettings):
    """What a folder of Hugging Face does not say.

    task: "translate" or "summarize"; None: by the kind of model.
    prompt: what is written before each source; None: as config.json says.
    int8: store matrices and tables of tokens in int8.
    adapter: folder of a LoRA adapter that is merged into the weights.
    """

    task: str | None = None
    prompt: str | None = None
    int8: bool = False
    adapter: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CTranslate2Import(ImportSettings):
    """What a folder of CTranslate2 does not say.

    pieces: SentencePiece models, one for both sides or the source's and the target's.
    codes: file of BPE codes (subword-nmt).
    prefix: symbol that every target begins with and that is not shown.
    """

    pieces: tuple[Path, ...] = ()
    codes: Path | None = None
    prefix: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor2TensorImport(ImportSettings):
    """What a folder of tensor2tensor does not say.

    checkpoint: its name, such as "model.ckpt-250000".
    vocabularies: file names of the source's and the target's.
    target_space: the problem's number of the target space, which hparams.json seldom holds.
    """

    checkpoint: str | None = None
    vocabularies: tuple[str, ...] = ()
    target_space: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ThumtImport(ImportSettings):
    """What a folder of THUMT does not say.

    checkpoint: its name, such as "model.ckpt-250000".
    vocabularies: file names of the source's and the target's.
    codes: name of the file of BPE codes; without, text comes and goes as symbols between spaces.
    """

    checkpoint: str | None = None
    vocabularies: tuple[str, ...] = ()
    codes: str | None = None
