"""Compare the BLEU that int8 loses in Convoy and in CTranslate2, with the same model and lines.

CTranslate2's own converter converts a Marian model to int8, and Convoy imports that folder. The reference are
CTranslate2's answers in float32; the int8 answers of both engines are compared with them and with each other.

    python -m loadtest.engine.int8_bleu --marian FOLDER --texts lines.txt

FOLDER contains model.npz and vocab.spm. Needs ctranslate2 and sacrebleu from PyPI and the extra `torch`.
"""

from __future__ import annotations

import argparse
import gzip
import json
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine.bundle.bundle import Bundle
    from engine.search.executor import Executor
    from engine.types import DecodeOptions

BEAM = 4
LONGEST_TARGET_TOKENS = 100


def convert_model(marian: Path, folder: Path) -> Path:
    """Write CTranslate2's int8 model of a Marian model, and its SentencePiece model next to it."""
    import sentencepiece
    from ctranslate2.converters import MarianConverter

    pieces = sentencepiece.SentencePieceProcessor(model_file=str(marian / "vocab.spm"))
    symbols = (json.dumps(pieces.id_to_piece(i), ensure_ascii=False) for i in range(pieces.get_piece_size()))
    vocabulary = folder / "vocab.yml"
    vocabulary.write_text("".join(f"{symbol}: {i}\n" for i, symbol in enumerate(symbols)), "utf-8")
    converter = MarianConverter(str(marian / "model.npz"), [str(vocabulary)] * 2)
    converter.convert(str(folder / "ct2"), quantization="int8")
    shutil.copy(marian / "vocab.spm", folder / "ct2" / "sentencepiece.model")
    return folder / "ct2"


def ctranslate2_answers(folder: Path, lines: Sequence[str], kind: str) -> list[str]:
    """Return CTranslate2's answers.

    folder: directory with CTranslate2's model and its SentencePiece model.
    lines: sources.
    kind: compute type of CTranslate2.
    """
    import ctranslate2
    import sentencepiece

    pieces: Any = sentencepiece.SentencePieceProcessor(model_file=str(folder / "sentencepiece.model"))
    translator = ctranslate2.Translator(str(folder), compute_type=kind, intra_threads=1)
    sources = [pieces.encode(line, out_type=str) for line in lines]
    found = translator.translate_batch(sources, beam_size=BEAM, max_decoding_length=LONGEST_TARGET_TOKENS)
    return [pieces.decode(answer.hypotheses[0]) for answer in found]


def answers_of_convoy(folder: Path, out: Path, lines: Sequence[str]) -> list[str]:
    """Return Convoy's answers in int8.

    folder: directory with CTranslate2's model and its SentencePiece model.
    out: path of the new bundle.
    lines: sources.
    """
    from engine.backends import LaneSize, Placement
    from engine.executors import open_executors
    from engine.types import DecodeOptions
    from export.graphs.onnx import add_graphs
    from export.importers import convert
    from export.importers.settings import CTranslate2Import

    bundle = add_graphs(convert("ctranslate2", folder, out, CTranslate2Import(source="de", target="en")))
    placement = Placement(precision="int8", threads=1, lanes=(LaneSize(BEAM, 16),))
    (executor,) = open_executors(bundle, placement)
    options = DecodeOptions(beam_size=BEAM, min_length=1, max_length_b=LONGEST_TARGET_TOKENS)
    return answers_of_lane(executor, bundle, lines, options)


def answers_of_lane(
    executor: Executor, bundle: Bundle, lines: Sequence[str], options: DecodeOptions
) -> list[str]:
    """Return the answers of one lane to all lines.

    executor: executor of the lane.
    bundle: bundle with the tokenizer.
    lines: sources.
    options: decoding options of every line.
    """
    from engine.schedule.lane import Lane
    from engine.text.tokenizers.tokenizer import open_tokenizer
    from engine.types import Request

    tokenizer, answers = open_tokenizer(bundle), dict[int, str]()
    lane = Lane(executor, lambda request, outcome: request.reply(outcome))

    def request(number: int, line: str) -> Request:
        """Return the request of a line, whose answer is stored by its number."""

        def reply(outcome: Any) -> None:
            answers[number] = tokenizer.decode(outcome.hypotheses[0].tokens)

        return Request([*tokenizer.encode(line), bundle.config.eos], options, reply)

    lane.drain([request(number, line) for number, line in enumerate(lines)])
    return [answers[number] for number in range(len(lines))]


def compare_bleu(marian: Path, lines: Sequence[str]) -> dict[str, float]:
    """Return BLEU of both engines in int8 against float32, BLEU of ours against CTranslate2's int8, and the
    share of equal answers."""
    from sacrebleu import corpus_bleu

    with tempfile.TemporaryDirectory() as name:
        folder = convert_model(marian, Path(name))
        exact, rounded = (ctranslate2_answers(folder, lines, kind) for kind in ("float32", "int8"))
        convoy_answers = answers_of_convoy(folder, Path(name) / "bundle", lines)
    bleu = {
        "CTranslate2": corpus_bleu(rounded, [exact]).score,
        "Convoy": corpus_bleu(convoy_answers, [exact]).score,
    }
    same = sum(a == b for a, b in zip(convoy_answers, rounded, strict=True)) / len(lines)
    return {**bleu, "of each other": corpus_bleu(convoy_answers, [rounded]).score, "same answers": same}


def read_lines(path: Path, count: int) -> list[str]:
    """Return the first column of the first `count` lines that are not empty."""
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8") as file:
        lines = (line.rstrip("\n").split("\t")[0] for line in file)
        return [line for _, line in zip(range(count), filter(str.strip, lines), strict=False)]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--marian", type=Path, required=True, help="folder of model.npz and vocab.spm")
    parser.add_argument("--texts", type=Path, required=True, help="lines, their first column; maybe .gz")
    parser.add_argument("--count", type=int, default=500)
    given = parser.parse_args()
    print(json.dumps(compare_bleu(given.marian, read_lines(given.texts, given.count)), indent=1))


if __name__ == "__main__":
    main()
