"""The first answer of a model, which proves that the model works."""

from __future__ import annotations

import math
from typing import Final

from engine.answers.answer import answer
from engine.answers.options import TextOptions
from engine.answers.pivot import Stage
from engine.answers.score import score
from engine.answers.text_model import TextModel
from engine.errors import ExecutorFailed
from engine.schedule.any_engine import AnyEngine

CANARY: Final = "Hallo, 1 2 3."
CANARY_TOKENS: Final = 16


async def canary(engine: AnyEngine, text: TextModel, deadline: float = math.inf) -> None:
    """Answer a short text.

    engine: engine of the model.
    text: text side of the model.
    deadline: time.monotonic() after which the answer is of no use.

    Raises the errors of answering, and ExecutorFailed if the score is not finite.
    """
    if not text.limits.attention:  # a language model
        (scored,) = await score(engine, text, [CANARY], None, deadline)
        if not math.isfinite(scored.total):
            raise ExecutorFailed(f"model {text.name!r} scores with {scored.total}")
        return
    floor = max(CANARY_TOKENS, text.defaults.min_length)
    options = TextOptions(decode={"max_length": min(floor, text.limits.target)})
    (result,) = await answer([Stage(engine, text)], [CANARY], options, deadline)
    if not math.isfinite(result.score):
        raise ExecutorFailed(f"model {text.name!r} answers with the score {result.score}")
