"""The peer: CTranslate2 behind FastAPI with the window batcher `loadtest/window.py`.

PEER_MODEL=folder PEER_WINDOW=0.01 PEER_BATCH=16 uvicorn loadtest.http.compare.peer:app
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ctranslate2
import sentencepiece
from fastapi import FastAPI
from pydantic import BaseModel

from loadtest.window import WindowBatcher


class Body(BaseModel):
    q: str


@dataclass(frozen=True, slots=True)
class PeerSetting:
    """window: seconds that the first request of a batch waits for others.
    tokens: number of tokens of each answer; 0 without a limit.
    """

    model: Path
    window: float
    batch: int
    beams: int
    threads: int
    tokens: int
    compute: str

    @classmethod
    def of(cls, environment: dict[str, str]) -> PeerSetting:
        """Return the settings from environment variables."""
        return cls(
            Path(environment["PEER_MODEL"]),
            float(environment.get("PEER_WINDOW", "0.01")),
            int(environment.get("PEER_BATCH", "16")),
            int(environment.get("PEER_BEAMS", "5")),
            int(environment.get("PEER_THREADS", "1")),
            int(environment.get("PEER_TOKENS", "0")),
            environment.get("PEER_COMPUTE", "float32"),
        )


Asked = tuple[str, "asyncio.Future[str]"]


class Batcher:
    """Runs one batch at a time, which occupies all threads of the engine."""

    def __init__(self, setting: PeerSetting) -> None:
        self._setting = setting
        self._pieces = sentencepiece.SentencePieceProcessor(str(setting.model / "vocabulary.model"))
        self._translator = ctranslate2.Translator(
            str(setting.model),
            device="cpu",
            compute_type=setting.compute,
            inter_threads=1,
            intra_threads=setting.threads,
        )
        self._window: WindowBatcher[Asked] = WindowBatcher(self._answer, setting.window, setting.batch)

    async def ask(self, text: str) -> str:
        """Return the translation of a text, which waits for others in a window."""
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._window.submit([(text, future)])
        return await future

    def _answer(self, batch: list[Asked]) -> None:
        answers = self._translate([text for text, _ in batch])
        for (_, future), answer in zip(batch, answers, strict=True):
            future.get_loop().call_soon_threadsafe(_settle, future, answer)

    def _translate(self, texts: list[str]) -> list[str]:
        """Return the translation of each text; `tokens` fixes the length of all."""
        tokens = self._setting.tokens
        limits = {"min_decoding_length": tokens, "max_decoding_length": tokens} if tokens else {}
        results = self._translator.translate_batch(
            self._pieces.encode(texts, out_type=str),
            beam_size=self._setting.beams,
            max_batch_size=0,
            **limits,
        )
        return [self._pieces.decode_pieces(result.hypotheses[0]) for result in results]


def _settle(future: asyncio.Future[str], answer: str) -> None:
    """Set the answer of a request unless the request was cancelled."""
    if not future.done():  # the client may have disconnected
        future.set_result(answer)


batcher = Batcher(PeerSetting.of(dict(os.environ)))


app = FastAPI()


@app.get("/health/ready")
async def ready() -> dict[str, Any]:
    return {}


@app.post("/translate")
async def translate(body: Body) -> dict[str, str]:
    return {"translatedText": await batcher.ask(body.q)}
