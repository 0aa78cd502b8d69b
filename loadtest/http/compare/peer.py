"""The peer: CTranslate2 behind FastAPI with a window batcher, as people serve it.

A request waits until the window closes or the batch is full; then all of the batch are translated together,
and all are answered when the longest is done.

    PEER_MODEL=folder PEER_WINDOW=0.01 PEER_BATCH=16 uvicorn loadtest.compare.peer:app
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ctranslate2
import sentencepiece
from fastapi import FastAPI
from pydantic import BaseModel


class Body(BaseModel):
    q: str


@dataclass(frozen=True, slots=True)
class Setting:
    """window: seconds the first of a batch waits for others. tokens: of each answer; 0: no limit."""

    model: Path
    window: float
    batch: int
    beams: int
    threads: int
    tokens: int
    compute: str

    @classmethod
    def of(cls, environment: dict[str, str]) -> Setting:
        return cls(
            Path(environment["PEER_MODEL"]),
            float(environment.get("PEER_WINDOW", "0.01")),
            int(environment.get("PEER_BATCH", "16")),
            int(environment.get("PEER_BEAMS", "5")),
            int(environment.get("PEER_THREADS", "1")),
            int(environment.get("PEER_TOKENS", "0")),
            environment.get("PEER_COMPUTE", "float32"),
        )


class Batcher:
    """One batch at a time: the engine's threads are busy with it."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._pieces = sentencepiece.SentencePieceProcessor(str(setting.model / "vocabulary.model"))
        self._translator = ctranslate2.Translator(
            str(setting.model),
            device="cpu",
            compute_type=setting.compute,
            inter_threads=1,
            intra_threads=setting.threads,
        )
        self._waiting: asyncio.Queue[tuple[str, asyncio.Future[str]]] = asyncio.Queue()

    async def ask(self, text: str) -> str:
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        await self._waiting.put((text, future))
        return await future

    async def serve(self) -> None:
        while True:
            batch = [await self._waiting.get()]
            end = asyncio.get_running_loop().time() + self._setting.window
            while len(batch) < self._setting.batch:
                left = end - asyncio.get_running_loop().time()
                try:  # what waits already is taken even when the window has closed
                    batch.append(
                        self._waiting.get_nowait()
                        if left <= 0
                        else await asyncio.wait_for(self._waiting.get(), left)
                    )
                except (TimeoutError, asyncio.QueueEmpty):
                    break
            answers = await asyncio.to_thread(self._translate, [text for text, _ in batch])
            for (_, future), answer in zip(batch, answers, strict=True):
                if not future.done():
                    future.set_result(answer)

    def _translate(self, texts: list[str]) -> list[str]:
        tokens = self._setting.tokens
        limits = {"min_decoding_length": tokens, "max_decoding_length": tokens} if tokens else {}
        found = self._translator.translate_batch(
            self._pieces.encode(texts, out_type=str),
            beam_size=self._setting.beams,
            max_batch_size=0,
            **limits,
        )
        return [self._pieces.decode_pieces(result.hypotheses[0]) for result in found]


batcher = Batcher(Setting.of(dict(os.environ)))


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    serving = asyncio.create_task(batcher.serve())
    yield
    serving.cancel()


app = FastAPI(lifespan=lifespan)


@app.get("/health/ready")
async def ready() -> dict[str, Any]:
    return {}


@app.post("/translate")
async def translate(body: Body) -> dict[str, str]:
    return {"translatedText": await batcher.ask(body.q)}
