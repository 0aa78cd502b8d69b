r"""Compare Convoy with LibreTranslate on one package of Argos, both over HTTP.

The package has the usual size (6 + 6 layers, 512 wide, feed-forward 2048, 50,000 symbols, int8) with random
weights whose answers end after some 25 tokens; a SentencePiece model cuts the text. Each client sends its
next request when the last is answered; the result is the ratio of answers a second, in alternating rounds.

    python -m loadtest.http.argos_compare --libretranslate VENV/bin/libretranslate --pieces spm.model \
        --spacy blank --texts de.txt

LibreTranslate splits sentences by the rules of spaCy here (a blank pipeline in the package): its fastest
method, and the only one that needs no download. Needs ctranslate2 from PyPI, the extra `torch`, and
LibreTranslate with spaCy in an environment of its own.
"""

from __future__ import annotations

import argparse
import itertools
import json
import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import sentencepiece

from loadtest.http.closedloop import busiest
from loadtest.http.openloop import translate
from loadtest.http.serving import processor_seconds, serving
from loadtest.random_transformer import Size, random_transformer

USUAL_SIZE = Size(dim=512, ffn=2048, heads=8, vocab=50_000)
SPECIAL = ["<unk>", "<blank>", "<s>", "</s>"]
ENDS = 25  # position at which answers end


def write_package(folder: Path, pieces: Path, spacy: Path, codes: tuple[str, str]) -> None:
    """Write a package for two languages. Its model is quantised to int8 as by `ct2-opennmt-py-converter`.

    folder: path where the package is written.
    pieces: SentencePiece model of both languages.
    spacy: folder of the sentence splitter, which is copied into the package.
    codes: language codes of source and target, such as "de" and "en".
    """
    processor = sentencepiece.SentencePieceProcessor(model_file=str(pieces))
    pieces_of_model = [processor.id_to_piece(i) for i in range(processor.get_piece_size())]
    (folder / "model").mkdir(parents=True)
    _opennmt_model(pieces_of_model).save(str(folder / "model"))
    shutil.copy(pieces, folder / "sentencepiece.model")
    shutil.copytree(spacy, folder / "spacy")
    names = {
        f"{side}_{part}": code
        for side, code in zip(("from", "to"), codes, strict=True)
        for part in ("code", "name")
    }
    metadata = {"package_version": "1.9", "argos_version": "1.9.0", **names}
    (folder / "metadata.json").write_text(json.dumps(metadata))


def _opennmt_model(pieces: Sequence[str]) -> Any:
    """Return a Transformer with random weights whose vocabulary begins with these pieces."""
    # answers of random weights have no end: from position ENDS on, add the embedding of </s>
    rng, dim = np.random.default_rng(1), USUAL_SIZE.dim
    spec = random_transformer(USUAL_SIZE, pre_norm=True)
    end = rng.standard_normal(dim).astype(np.float32)
    for side in (spec.encoder, spec.decoder):
        positions = side.position_encodings.encodings
        positions += rng.standard_normal(positions.shape).astype(np.float32) / 2
    spec.decoder.position_encodings.encodings[ENDS:] += 20 * end
    spec.decoder.projection.weight[SPECIAL.index("</s>")] = end
    words = [*SPECIAL, *(piece for piece in pieces if piece not in SPECIAL)]
    words += [f"t{i}" for i in range(USUAL_SIZE.vocab - len(words))]
    spec.register_source_vocabulary(words)
    spec.register_target_vocabulary(words)
    spec.validate()
    spec.optimize(quantization="int8")
    return spec


@dataclass(frozen=True, slots=True)
class MeasuredServer:
    client: httpx.Client
    pid: int


@contextmanager
def server(command: list[str], port: int, variables: dict[str, str]) -> Iterator[MeasuredServer]:
    """Start a server that translates, and stop it at the end.

    command: program and arguments.
    port: TCP port on 127.0.0.1 where the server listens.
    variables: additional environment variables.
    """
    with serving(command, port, variables, _answers) as (url, process):
        limits = httpx.Limits(max_connections=64)
        with httpx.Client(base_url=url, timeout=300, limits=limits) as client:
            yield MeasuredServer(client, process.pid)


def _answers(client: httpx.Client) -> bool:
    """Return whether the server translates yet."""
    try:
        return _ask(client, "Guten Tag.") != ""
    except (httpx.HTTPError, KeyError):
        return False


def _ask(client: httpx.Client, text: str) -> str:
    answer = client.post("/translate", json={"q": text, "source": "de", "target": "en", "format": "text"})
    return str(answer.json()["translatedText"])


def rate(server: MeasuredServer, texts: list[str], clients: int, seconds: float) -> tuple[float, float]:
    """Return the answers a second of a number of clients, each with one request at a time, and the
    processor's milliseconds for each answer, a figure that depends less on other load.

    server: client and process id of the server.
    texts: source texts, sent in turn.
    clients: number of concurrent clients.
    seconds: duration.
    """
    used = processor_seconds(server.pid)
    ask = translate({"source": "de", "target": "en", "format": "text"}, stream=False)
    answered = busiest(str(server.client.base_url), ask, itertools.cycle(texts), clients, seconds)
    return answered, (processor_seconds(server.pid) - used) / (answered * seconds) * 1000


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--libretranslate", required=True, help="its command")
    parser.add_argument("--pieces", type=Path, required=True, help="a SentencePiece model")
    parser.add_argument("--spacy", type=Path, required=True, help='a folder: spacy.blank("xx").to_disk')
    parser.add_argument("--texts", type=Path, required=True, help="German sentences, one a line")
    parser.add_argument("--threads", type=int, default=2, help="of each server's arithmetic")
    parser.add_argument("--clients", default="1,8,32")
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    sentences = options.texts.read_text("utf-8").splitlines()[:400]
    paragraphs = [" ".join(sentences[i : i + 4]) for i in range(0, len(sentences) - 3, 4)]
    with tempfile.TemporaryDirectory() as name:
        packages = Path(name) / "packages"
        for codes in (
            ("de", "en"),
            ("en", "de"),
        ):  # with fewer than two packages LibreTranslate downloads some
            write_package(packages / f"translate-{'_'.join(codes)}-1_9", options.pieces, options.spacy, codes)
        ours = [sys.executable, "-m", "cli.main", "serve", "--models", str(packages), "--precision", "int8"]
        ours += ["--threads", str(options.threads)]
        theirs = [options.libretranslate, "--port", "5055", "--disable-web-ui"]
        home = {"HOME": name, "ARGOS_PACKAGES_DIR": str(packages), "ARGOS_CHUNK_TYPE": "SPACY"}
        home["ARGOS_INTRA_THREADS"] = str(options.threads)
        with (
            server([*ours, "--port", "5056"], 5056, {"CONVOY_CACHE": f"{name}/c"}) as convoy,
            server(theirs, 5055, home) as libretranslate,
        ):
            print(
                "| texts | clients | LibreTranslate: answers/s | CPU ms | Convoy | CPU ms | ratio | of CPU |"
            )
            print("|---|---|---|---|---|---|---|---|")
            for kind, texts in (("sentences", sentences), ("paragraphs of 4", paragraphs)):
                for clients in map(int, options.clients.split(",")):
                    rounds = [
                        (
                            *rate(libretranslate, texts, clients, options.seconds),
                            *rate(convoy, texts, clients, options.seconds),
                        )
                        for _ in range(options.rounds)
                    ]
                    theirs_rate, theirs_cpu, ours_rate, ours_cpu = (
                        statistics.median(column) for column in zip(*rounds, strict=True)
                    )
                    print(
                        f"| {kind} | {clients} | {theirs_rate:.2f} | {theirs_cpu:.0f} | {ours_rate:.2f} "
                        f"| {ours_cpu:.0f} | {ours_rate / theirs_rate:.2f} | {theirs_cpu / ours_cpu:.2f} |",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
