"""Opens the text side of a bundle: in the server, and again in its workers."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from engine.answers.directions import toward
from engine.answers.text_model import TextModel
from engine.bundle.bundle import Bundle, open_bundle
from engine.errors import Unavailable
from engine.text.tokenizers.placeholder_words import read_placeholder_words
from engine.text.tokenizers.tokenizer import Tokenizer, open_tokenizer
from engine.text.words import read_words
from engine.types import DecodeOptions, Limits


def open_side(bundle: Bundle, tokenizer: Tokenizer, defaults: DecodeOptions, limits: Limits) -> TextModel:
    """Open the text side of a bundle, in the bundle's usual direction.

    bundle: bundle of the model.
    tokenizer: tokenizer of the bundle.
    defaults: default decoding options of the model.
    limits: limits of the model.
    """
    return TextModel(
        task=bundle.task,
        source=bundle.source,
        target=bundle.target,
        tokenizer=tokenizer,
        placeholder_words=read_placeholder_words(bundle, tokenizer),
        defaults=defaults,
        limits=limits,
        eos=bundle.config.eos,
        name=bundle.name,
        unk=bundle.config.unk,
        replace_unk=bundle.text.get("replace_unknown") is True,
        truncates=bundle.truncates,
        max_sentence_tokens=bundle.max_sentence_tokens,
        words=read_words(bundle),
        bundle=(str(bundle.path.absolute()), bundle.digest),
    )


@lru_cache(maxsize=8)
def reopen(
    path: str, digest: str, source: str, target: str, defaults: DecodeOptions, limits: Limits
) -> TextModel:
    """Open a model's text side from its bundle, or return the one that was opened before.

    path: folder of the bundle.
    digest: digest of the bundle's files.
    source, target: languages of the model's direction.
    defaults: default decoding options of the model.
    limits: limits of the model.

    Raises BundleError, and Unavailable if the folder has another bundle meanwhile.
    """
    bundle = open_bundle(Path(path), verify=False)
    if bundle.digest != digest:
        raise Unavailable(f"the bundle {path} was replaced during the request: try again")
    return toward(open_side(bundle, open_tokenizer(bundle), defaults, limits), source, target)
