"""Compare Convoy with CTranslate2 behind a window batcher in one run on one machine.

    convoy train loadtest/http/compare/tatoeba-de-en-transformer.toml --corpora CORPORA --out runs/peer
    python -m loadtest.http.compare --bundle models/tatoeba-de-en --peer runs/peer --seconds 20

The peer is a Transformer of the same widths, layers and heads, trained on the same data. Its window and batch
are tuned on other traffic. Then both receive the same sentences at the same times, at shares of the peer's
peak.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from loadtest.http.closedloop import busiest
from loadtest.http.compare import transformer
from loadtest.http.openloop import LoadSummary, arrivals, run, summarise, translate
from loadtest.http.serving import free_port, serving, serving_convoy
from loadtest.texts import sentences
from training.curve import svg

WINDOWS: Final = (0.002, 0.005, 0.010, 0.020)
BATCHES: Final = (8, 16, 32)
SHARES: Final = (0.3, 0.5, 0.7, 0.9)
TUNING: Final = 7  # seed of the traffic for tuning the peer
TRAFFIC: Final = 11
REQUESTS_UNDER_WAY: Final = 64  # enough requests in flight to saturate a server


def convoy(options: argparse.Namespace) -> Any:
    settings = {"MODELS": options.bundle, "THREADS": options.threads, "PRECISION": options.precision}
    return serving_convoy({**settings, "LOG_LEVEL": "error"})


def peer(options: argparse.Namespace, model: Path, window: float, batch: int) -> Any:
    """Serve the model by CTranslate2; return the context of `serving`.

    options: flags of the command.
    model: folder of the converted model.
    window: seconds that the first text of a batch waits for others.
    batch: maximum number of texts of a batch.
    """
    port = free_port()
    variables = {
        "PEER_MODEL": str(model),
        "PEER_WINDOW": str(window),
        "PEER_BATCH": str(batch),
        "PEER_BEAMS": str(options.beams),
        "PEER_THREADS": str(options.threads),
        "PEER_TOKENS": str(options.tokens),
        "PEER_COMPUTE": {"fp32": "float32", "int8": "int8"}[options.precision],
        "OMP_NUM_THREADS": str(options.threads),
    }
    command = [sys.executable, "-m", "uvicorn", "loadtest.http.compare.peer:app", "--port", str(port)]
    return serving([*command, "--log-level", "error"], port, variables)


def request_values(options: argparse.Namespace) -> dict[str, Any]:
    """Return the fields of each request's body except its text."""
    values: dict[str, Any] = {"source": "de", "target": "en", "beam_size": options.beams}
    if options.tokens:
        values |= {"min_length": options.tokens, "max_length": options.tokens}
    return values


def offer(options: argparse.Namespace, url: str, rate: float, seconds: float, seed: int) -> LoadSummary:
    """Send sentences to a server at random times; equal seeds give every server the same load.

    options: parsed arguments of the command line.
    url: address of the server.
    rate: requests a second.
    seconds: duration.
    seed: number that determines the random sentences and times.
    """
    texts = sentences(seed, options.texts)
    times = arrivals(rate, seconds, seed)
    return summarise(
        asyncio.run(run(url, translate(request_values(options), stream=False), texts, times)), rate
    )


def peak(options: argparse.Namespace, url: str, seconds: float, seed: int) -> float:
    """Return the answers a second with REQUESTS_UNDER_WAY requests always running.

    options: parsed arguments of the command line.
    url: address of the server.
    seconds: duration.
    seed: number that determines the random sentences.
    """
    ask = translate(request_values(options), stream=False)
    return busiest(url, ask, sentences(seed, options.texts), REQUESTS_UNDER_WAY, seconds)


def tune_peer(options: argparse.Namespace, model: Path) -> tuple[float, int, list[dict[str, float]]]:
    """Return the window and batch with the lowest p99 at 0.7 of the peak, and all tried settings."""
    with peer(options, model, 0.005, 32) as (url, _):
        rate = 0.7 * peak(options, url, options.tune_seconds, TUNING)
    tried = []
    for window, batch in itertools.product(WINDOWS, BATCHES):
        with peer(options, model, window, batch) as (url, _):
            summary = offer(options, url, rate, options.tune_seconds, TUNING)
        tried.append({"window": window, "batch": batch, "rate": rate, "p99": summary.latency["p99"]})
        print(tried[-1], flush=True)
    best = min(tried, key=lambda one: one["p99"])
    return best["window"], int(best["batch"]), tried


def compare(options: argparse.Namespace) -> dict[str, Any]:
    """Return peak rates of both servers, then latencies at shares of the peer's peak."""
    model = options.out / "transformer"
    transformer.convert(options.peer, model)
    record: dict[str, Any] = {}
    window, batch, record["tuning"] = tune_peer(options, model)
    record |= {"window": window, "batch": batch, "loads": []}
    with peer(options, model, window, batch) as (url, _):
        record["peer_peak"] = peak(options, url, options.seconds, TRAFFIC)
    with convoy(options) as (url, _):
        record["convoy_peak"] = peak(options, url, options.seconds, TRAFFIC)
    print({"peer_peak": record["peer_peak"], "convoy_peak": record["convoy_peak"]}, flush=True)
    for share in SHARES:
        rate = share * record["peer_peak"]
        row: dict[str, Any] = {"share": share}
        with peer(options, model, window, batch) as (url, _):
            row["peer"] = asdict(offer(options, url, rate, options.seconds, TRAFFIC))
        with convoy(options) as (url, _):
            row["convoy"] = asdict(offer(options, url, rate, options.seconds, TRAFFIC))
        record["loads"].append(row)
        print(json.dumps(row), flush=True)
    return record


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m loadtest.http.compare")
    parser.add_argument("--bundle", type=Path, default=Path("models/tatoeba-de-en"))
    parser.add_argument("--peer", type=Path, required=True, help="a bundle of a Transformer, see above")
    parser.add_argument("--precision", choices=("fp32", "int8"), default="fp32")
    parser.add_argument("--threads", type=int, default=1, help="of either engine")
    parser.add_argument("--beams", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=0, help="of every answer; 0: as many as it takes")
    parser.add_argument("--seconds", type=float, default=30.0, help="of each load")
    parser.add_argument("--tune-seconds", type=float, default=15.0, help="of each window and batch")
    parser.add_argument("--texts", type=Path, help="a file of one sentence a line; else made up")
    parser.add_argument("--out", type=Path, default=Path("runs/compare"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    record = {"given": {k: str(v) for k, v in vars(options).items()}} | compare(options)
    (options.out / "compare.json").write_text(json.dumps(record, indent=1), "utf-8")
    lines = {
        f"{name} {p}": [(row[name]["offered"], row[name]["latency"][p]) for row in record["loads"]]
        for name in ("peer", "convoy")
        for p in ("p50", "p99")
    }
    (options.out / "compare.svg").write_text(svg(lines, "requests offered, 1/s", "latency, s"), "utf-8")


if __name__ == "__main__":
    main()
