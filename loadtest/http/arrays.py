"""What an array of short texts costs beside one text, by length and by contract: processor time of a server.

python -m loadtest.http.arrays [--model FOLDER] [--precision int8] [--beams 5] [--runs 3]
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Mapping
from itertools import product
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import httpx

from loadtest.http.serving import processor_seconds, serving_convoy

WHO: Final = "Der Hund,Die Katze,Mein Bruder,Das Kind,Der Zug,Dein Freund,Der Bäcker,Tom,Maria,Er"
DOES: Final = "schläft,wartet,lacht,singt,kommt später,bleibt hier,fährt heute,arbeitet viel,weint"
SHORT_TEXTS: Final = tuple(map("".join, product(WHO.split(","), " ", DOES.split(","), ".!?")))  # 2 to 4 words
LENGTHS: Final = (1, 4, 16, 32, 100)
CONTRACTS: Final[Mapping[str, Callable[[str, list[str]], tuple[str, dict[str, Any]]]]] = MappingProxyType(
    {
        "LibreTranslate": lambda _, texts: ("/translate", {"q": texts, "source": "de", "target": "en"}),
        "DeepL": lambda _, texts: (
            "/v2/translate",
            {"text": texts, "source_lang": "DE", "target_lang": "EN"},
        ),
        "KServe": lambda model, texts: (
            f"/v2/models/{model}/infer",
            {"inputs": [{"name": "text_input", "datatype": "BYTES", "shape": [len(texts)], "data": texts}]},
        ),
        "OpenAI": lambda model, texts: ("/v1/completions", {"model": model, "prompt": texts}),
        "Immersive Translate": lambda _, texts: (
            "/imme",
            {"source_lang": "de", "target_lang": "en", "text_list": texts},
        ),
        "MTranServer": lambda _, texts: ("/translate/batch", {"from": "de", "to": "en", "texts": texts}),
        "Google": lambda _, texts: ("/language/translate/v2", {"q": texts, "source": "de", "target": "en"}),
    }
)


def milliseconds(
    client: httpx.Client, process: int, request: Callable[[list[str]], Any], length: int, runs: int
) -> float:
    """Measure the processor time of an array, in ms: the mean of so many that the clock's ticks do not count.

    client: of the server.
    process: the server's number.
    request: makes address and body of texts.
    length: texts of an array.
    runs: multiplies how many arrays are sent.
    """
    draw, count = random.Random(length), runs * max(2, 100 // length)
    began = processor_seconds(process)
    for _ in range(count):
        address, body = request(draw.sample(SHORT_TEXTS, length))
        client.post(address, json=body).raise_for_status()
    return 1e3 * (processor_seconds(process) - began) / count


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", type=Path, default=Path("models/tatoeba-de-en"))
    parser.add_argument("--precision", default="int8")
    parser.add_argument("--beams", type=int, default=5)
    parser.add_argument("--runs", type=int, default=3)
    wish = parser.parse_args()
    settings = {
        "MODELS": wish.model,
        "PRECISION": wish.precision,
        "THREADS": 1,
        "PLUGINS": "immersive,mtran,google",
    }
    with serving_convoy(settings) as (url, process), httpx.Client(base_url=url, timeout=120) as client:

        def of(contract: str, length: int) -> float:
            return milliseconds(
                client,
                process.pid,
                lambda texts: CONTRACTS[contract](wish.model.name, texts),
                length,
                wish.runs,
            )

        def beamed(texts: list[str]) -> tuple[str, dict[str, Any]]:
            address, body = CONTRACTS["LibreTranslate"]("", texts)
            return address, body | {"beam_size": wish.beams}

        milliseconds(client, process.pid, beamed, 32, 1)  # what is only made once
        print("| texts | ms of processor | a text |\n|---:|---:|---:|")
        for length in LENGTHS:
            found = milliseconds(client, process.pid, beamed, length, wish.runs)
            print(f"| {length} | {found:.1f} | {found / length:.2f} |", flush=True)
        print("\n| contract | one | a hundred | times |\n|---|---:|---:|---:|")
        for contract in CONTRACTS:
            one, hundred = of(contract, 1), of(contract, 100)
            print(f"| {contract} | {one:.1f} | {hundred:.1f} | {hundred / one:.0f} |", flush=True)


if __name__ == "__main__":
    main()
