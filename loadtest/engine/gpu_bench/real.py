"""Real text: lines of newstest2013.en through a shipped model, with its own tokenizer, defaults and
lengths."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Final

from engine.backends import LaneSize
from engine.bundle.bundle import Bundle
from engine.text.tokenizer import open_tokenizer
from engine.types import Request
from loadtest.engine.gpu_bench.book import Desk
from loadtest.engine.gpu_bench.clock import TurnRules, Turns, alternate, summary
from loadtest.engine.gpu_bench.contenders import Answers, Flow, open_all, record_failure
from loadtest.engine.gpu_bench.models import copy_bundle
from loadtest.engine.gpu_bench.sentences import lines
from loadtest.engine.gpu_bench.setting import Setting
from loadtest.engine.gpu_bench.throughput import STEADY, Field
from loadtest.texts import sentences as made_up

MADE_UP: Final = 300  # lines where there is no newstest


def real(setting: Setting, floors: dict[str, Any], until: float, desk: Desk) -> dict[str, Any]:
    """Measure real text. Rows: backend, lines a second from token ids to token ids; text is not timed."""
    scale, bundle = setting.scale, copy_bundle(setting.folder, setting.shipped)
    origin, sources = real_sources(setting, bundle, scale.sentences)
    beam = bundle.options.beam_size
    record: dict[str, Any] = {"model": bundle.name, "text": origin, "beam": beam, "slots": scale.slots}
    record |= {"rows": [], "not_run": {}}
    entered = Field()
    with ExitStack() as stack:
        for contender, (executor,) in open_all(
            setting, bundle, [LaneSize(beam, scale.slots)], (desk, record["not_run"])
        ):
            key = f"{bundle.name}, {contender}"
            with record_failure(key, record["not_run"]):
                flow = Flow(executor, beam)
                stack.callback(flow.stop)
                entered.counts[key] = len(sources)
                entered.runs[key] = _runner(flow, bundle, sources, (entered, key))
        entered.size(
            desk,
            STEADY * scale.slots,
            (until - time.monotonic()) / max(1, len(entered.runs) * (scale.turns + 1)),
        )

        def report(turns: Turns) -> None:
            record["rows"] = [
                {"backend": contender[0], "precision": contender[2], "unit": "lines/s"}
                | {"lines": entered.counts[key]}
                | summary(values)
                for key, values in turns.values.items()
                for contender in [key.rpartition(", ")[2].partition(" ")]
            ]
            desk.tell(record)

        turns = alternate(entered.runs, TurnRules(scale.turns, until, desk, report))
    record["not_run"] |= turns.not_run
    report(turns)
    return record


def _runner(
    flow: Flow, bundle: Bundle, sources: list[list[int]], entry: tuple[Field, str]
) -> Callable[[], float]:
    entered, key = entry

    def run() -> float:
        sample = sources[: entered.counts[key]]
        answers = Answers.empty(len(sample))
        requests = [
            Request(list(source), bundle.options, lambda outcome, i=i: answers.take(i, outcome))  # type: ignore[misc]
            for i, source in enumerate(sample)
        ]
        began = time.perf_counter()
        flow.submit(requests)
        answers.results()
        return len(sample) / (time.perf_counter() - began)

    return run


def real_sources(setting: Setting, bundle: Bundle, count: int) -> tuple[str, list[list[int]]]:
    """Return where the text is from, and the token ids of its lines with end-of-sentence, cut to what the
    model takes."""
    tokenizer, config = open_tokenizer(bundle), bundle.config
    origin, texts = f"newstest2013.{bundle.source}", lines(setting.corpora, bundle.source)
    if not texts:
        origin, more = "made up", made_up(2013)
        texts = [next(more) for _ in range(MADE_UP)]
    most = config.max_source - 2
    return origin, [[*tokenizer.encode(line)[:most], config.eos] for line in texts[:count]]
