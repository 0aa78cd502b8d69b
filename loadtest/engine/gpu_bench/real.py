"""Real text: lines of newstest2013.en through a shipped model, with its own tokenizer, defaults and
lengths."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Final

from engine.bundle import Bundle
from engine.text.tokenizer import open_tokenizer
from engine.types import Request
from loadtest.gpu_bench.book import Desk
from loadtest.gpu_bench.clock import Rules, Turns, alternate, summary
from loadtest.gpu_bench.contenders import Answers, Flow, all_opened, excused
from loadtest.gpu_bench.models import shipped
from loadtest.gpu_bench.sentences import lines
from loadtest.gpu_bench.setting import Setting
from loadtest.gpu_bench.throughput import Field
from loadtest.texts import sentences as made_up

MADE_UP: Final = 300  # lines where there is no newstest


def real(setting: Setting, floors: dict[str, Any], until: float, desk: Desk) -> dict[str, Any]:
    """Rows: backend, lines a second from token ids to token ids; text is not timed."""
    scale, bundle = setting.scale, shipped(setting.folder, setting.shipped)
    said, sources = real_sources(setting, bundle, scale.sentences)
    beam = bundle.options.beam_size
    found: dict[str, Any] = {"model": bundle.name, "text": said, "beam": beam, "slots": scale.slots}
    found |= {"rows": [], "not_run": {}}
    entered = Field()
    with ExitStack() as stack:
        for contender, (executor,) in all_opened(
            setting, bundle, [(beam, scale.slots)], (desk, found["not_run"])
        ):
            key = f"{bundle.name}, {contender}"
            with excused(key, found["not_run"]):
                flow = Flow(executor, beam)
                stack.callback(flow.stop)
                entered.counts[key] = len(sources)
                entered.runs[key] = _runner(flow, bundle, sources, (entered, key))
        entered.size(
            desk, scale.slots, (until - time.monotonic()) / max(1, len(entered.runs) * (scale.turns + 1))
        )

        def report(turns: Turns) -> None:
            found["rows"] = [
                {"backend": key.rpartition(" ")[0], "precision": key.rpartition(" ")[2], "unit": "lines/s"}
                | {"lines": entered.counts[key]}
                | summary(values)
                for key, values in turns.values.items()
            ]
            desk.tell(found)

        turns = alternate(entered.runs, Rules(scale.turns, until, desk, report))
    found["not_run"] |= {f"{bundle.name}, {key}": why for key, why in turns.not_run.items()}
    report(turns)
    return found


def _runner(
    flow: Flow, bundle: Bundle, sources: list[list[int]], given: tuple[Field, str]
) -> Callable[[], float]:
    entered, key = given

    def run() -> float:
        chosen = sources[: entered.counts[key]]
        answers = Answers.wanted(len(chosen))
        requests = [
            Request(list(source), bundle.options, lambda outcome, i=i: answers.take(i, outcome))  # type: ignore[misc]
            for i, source in enumerate(chosen)
        ]
        began = time.perf_counter()
        flow.submit(requests)
        answers.results()
        return len(chosen) / (time.perf_counter() - began)

    return run


def real_sources(setting: Setting, bundle: Bundle, count: int) -> tuple[str, list[list[int]]]:
    """Where the text is from, and the token ids of its lines with end-of-sentence, cut to what the model
    takes."""
    tokenizer, config = open_tokenizer(bundle), bundle.config
    said, found = f"newstest2013.{bundle.source}", lines(setting.corpora, bundle.source)
    if not found:
        said, more = "made up", made_up(2013)
        found = [next(more) for _ in range(MADE_UP)]
    most = config.max_source - 2
    return said, [[*tokenizer.encode(line)[:most], config.eos] for line in found[:count]]
