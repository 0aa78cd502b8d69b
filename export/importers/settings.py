"""Settings of an import that the user gives, a class for each source: plain data, read without torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportSettings:
    """Settings of every source. None: the importer finds the value in the files, or refuses the model.

    name: name of the model; None: the name of the bundle's folder.
    source, target: language codes; several source languages are separated by commas.
    half: store fp16; None: store fp16 if the files do and fp16 holds every weight exactly.
    max_sentence_tokens: length at which sentences are cut; None: the source's own limit, or the default.
    """

    name: str | None = None
    source: str | None = None
    target: str | None = None
    half: bool | None = None
    max_sentence_tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FairseqImport(ImportSettings):
    """Settings of fairseq's importer.

    task: "translate", "summarize", ...; None: derived from the model.
    checkpoints: file names, several for an ensemble.
    average: average the weights of all checkpoints instead of making an ensemble.
    dictionaries: folder of dict.LANGUAGE.txt.
    normalize: language of the punctuation rules, or "" for none.
    aggressive: Moses splits dashes; None: derived from the source dictionary.
    escape: Moses escapes &, | and other special characters; None: derived from the source dictionary.
    lowercase: the source is lower-cased; None: derived from the source dictionary.
    pretokenized: text is tokens between spaces; None: True if no file says how to segment words.
    unk_dictionary: file of translations for unknown words (`engine.text.tokenizers`).
    language_model: bundle of a language model for shallow fusion.
    lm_weight: default weight of the language model.
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
    """Settings of Marian's importer.

    checkpoint: name of the weights file if there are several.
    adapter: folder of a LoRA adapter; in Hugging Face's layout only.
    """

    checkpoint: str | None = None
    adapter: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StudentImport(MarianImport):
    """Settings of the importer of students.

    alphas: int8 uses the file's scales of activations if it has them; otherwise a scale for each row.
    """

    alphas: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class HuggingFaceImport(ImportSettings):
    """Settings of Hugging Face's importer.

    task: "translate" or "summarize"; None: derived from the kind of model.
    prompt: text that is written before each source; None: the prompt of config.json.
    int8: store matrices and token embeddings in int8.
    adapter: folder of a LoRA adapter that is merged into the weights.
    """

    task: str | None = None
    prompt: str | None = None
    int8: bool = False
    adapter: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CTranslate2Import(ImportSettings):
    """Settings of CTranslate2's importer.

    pieces: SentencePiece models, one for both sides or the source's and the target's.
    codes: file of BPE codes (subword-nmt).
    prefix: symbol that every target begins with and that answers leave out.
    family: family of `transformers` whose tokenizer the model needs, or "plain"; None: recognised.
    task: "translate" or "summarize"; None: that of most models of the family.
    prompt: text that is written before each source, for T5.
    characters: each character of a text is a symbol; None: if all symbols of the model are characters.
    """

    pieces: tuple[Path, ...] = ()
    codes: Path | None = None
    prefix: str | None = None
    family: str | None = None
    task: str | None = None
    prompt: str | None = None
    characters: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor2TensorImport(ImportSettings):
    """Settings of tensor2tensor's importer.

    checkpoint: name of the checkpoint, such as "model.ckpt-250000".
    vocabularies: file names of the source vocabulary and the target vocabulary.
    target_space: the problem's id of the target space, which hparams.json seldom holds.
    """

    checkpoint: str | None = None
    vocabularies: tuple[str, ...] = ()
    target_space: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ThumtImport(ImportSettings):
    """Settings of THUMT's importer.

    checkpoint: name of the checkpoint, such as "model.ckpt-250000".
    vocabularies: file names of the source vocabulary and the target vocabulary.
    codes: name of the file of BPE codes; None: text is symbols between spaces.
    """

    checkpoint: str | None = None
    vocabularies: tuple[str, ...] = ()
    codes: str | None = None
