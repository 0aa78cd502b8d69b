"""Start a run with the weights and the vocabulary of a bundle."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import sentencepiece as spm
import torch
from numpy.typing import NDArray

from engine.bundle.bundle import Bundle
from engine.bundle.folder import replacing_file
from engine.errors import InvalidRequest
from engine.models import build, shape_errors, weight_shapes
from engine.models.model import Model

SPACE = "\u2581"  # SentencePiece's symbol of a space


def adopt_vocabulary(start: Bundle, characters: str, path: Path) -> None:
    """Write the vocabulary of a bundle, with its rarest pieces replaced by characters that it lacks.

    start: bundle whose vocabulary is a SentencePiece unigram model.
    characters: characters that must have a piece.
    path: SentencePiece model to write; the ids of all other pieces do not change.
    """
    # needs protobuf, which a run with a vocabulary of its own can lack
    from sentencepiece.sentencepiece_model_pb2 import ModelProto  # type: ignore[attr-defined]  # made at runtime

    proto = ModelProto()
    proto.ParseFromString(start.file("vocabulary.model").read_bytes())
    present = {piece.piece for piece in proto.pieces}
    lacking = [c for c in dict.fromkeys(characters) if c not in present]
    words = [p for p in proto.pieces if p.type == ModelProto.SentencePiece.NORMAL and len(p.piece) > 1]
    rarest = sorted(words, key=lambda piece: piece.score)[: len(lacking)]
    lowest = min(piece.score for piece in words)
    for piece, character in zip(rarest, lacking, strict=True):
        piece.piece, piece.score = character, lowest
    with replacing_file(path) as partial:
        partial.write_bytes(proto.SerializeToString())


def copy_weights(model: Model, start: Bundle, vocabulary: Path) -> None:
    """Copy the weights of a bundle into a model.

    A piece of both vocabularies keeps its rows of embeddings and output; a new piece gets the mean row of the
    pieces by which the old vocabulary spells it.

    model: model of the recipe.
    start: bundle of the same architecture and sizes; vocabularies and length limits may differ.
    vocabulary: path of the model's SentencePiece model.

    Raises InvalidRequest if anything else differs.
    """
    config = model.config
    sizes = ("source_vocab", "target_vocab", "max_source", "max_target")
    if replace(start.config, **{size: getattr(config, size) for size in sizes}) != config:
        raise InvalidRequest(
            f"{start.path} describes another model than the recipe: train without --from, or make [model] of "
            "the recipe that of the bundle's config.json"
        )
    spelling = _spelling(vocabulary, start.file("vocabulary.model"))
    rows = _rows(model)
    weights = {
        name: np.stack([weight[pieces].mean(axis=0) for pieces in spelling]) if name in rows else weight
        for name, weight in start.weights().items()
    }
    problems = shape_errors(weight_shapes(model), {name: weight.shape for name, weight in weights.items()})
    if problems:
        raise InvalidRequest(f"{start.path}: {'; '.join(problems)}")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(torch.from_numpy(weights[name]))


def _spelling(vocabulary: Path, before: Path) -> list[NDArray[np.int64]]:
    """Return the ids of the old pieces that spell each new piece.

    vocabulary: path of the new SentencePiece model.
    before: path of the old SentencePiece model.
    """
    new, old = (spm.SentencePieceProcessor(model_file=str(path)) for path in (vocabulary, before))
    numbers = {old.id_to_piece(number): number for number in range(old.get_piece_size())}
    spelling = []
    for text in map(new.id_to_piece, range(new.get_piece_size())):
        pieces = [numbers[text]] if text in numbers else old.encode(text.replace(SPACE, " "))
        # drop the space that SentencePiece puts before a text, and unknown pieces unless there are no others
        informative = [piece for piece in pieces if piece not in (numbers[SPACE], old.unk_id())]
        spelling.append(np.array(informative or pieces[-1:], np.int64))
    return spelling


def _rows(model: Model) -> set[str]:
    """Return the names of the weights that have a row for each piece."""
    # such weights change their shape with the size of the vocabulary
    config = model.config
    larger = replace(config, source_vocab=config.source_vocab + 8, target_vocab=config.target_vocab + 8)
    shapes = weight_shapes(build(larger))
    return {name for name, shape in weight_shapes(model).items() if shapes[name] != shape}
