"""Bundles, service and client for the tests of scores."""

from __future__ import annotations

import shutil
from pathlib import Path

import httpx
import pytest

from engine.api import Placement, Service, ServiceSettings
from engine.bundle.adaptive import AdaptiveConfig, Bands
from engine.bundle.bundle import Description, open_bundle, write_bundle
from engine.bundle.config import ModelConfig
from engine.bundle.stacks import StackConfig
from engine.models import build
from export.graphs.onnx import graphs
from server.app import create_app
from server.observing.metrics import Metrics
from server.settings import ServerSettings
from tests.support.served import LANES, STACK, VOCABULARY, bundles

LONGEST = 30


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A folder with two translation models and a language model of one vocabulary."""
    path = tmp_path_factory.mktemp("scored")
    for name in ("toy-de-en", "toy-en-de"):
        shutil.copytree(bundles() / name, path / name)
    bands = Bands((40, 150))
    config = ModelConfig(
        "lightconv_lm",
        VOCABULARY,
        VOCABULARY,
        None,
        StackConfig(16, 16, 16, 2, (3, 5), normalize_before=True, final_norm=False),
        max_target=LONGEST + 1,
        adaptive=AdaptiveConfig(bands, bands, tie_weights=True, tie_projections=True),
    )
    assert STACK.embed_dim == 16
    net = build(config)
    net.initialise(seed=9)
    text = {"kind": "sentencepiece", "model": "vocabulary.model"}
    said = Description("toy-lm", "language-model", "en", "en", config, text, {"beam_size": 4})
    held = {key: p.detach().numpy() for key, p in net.named_parameters()}
    vocabulary = open_bundle(bundles() / "toy-de-en").file("vocabulary.model")
    write_bundle(path / "toy-lm", said, held, {"vocabulary.model": vocabulary, **graphs(config)}, half=False)
    return path


@pytest.fixture(scope="module")
def service(place):
    found = Service.open([place], ServiceSettings(Placement(lanes=LANES)))
    found.start()
    yield found
    found.stop(drain=False, timeout=30)


@pytest.fixture
async def client(service):
    made = create_app(service, ServerSettings(char_limit=200, batch_limit=5), Metrics())
    transport = httpx.ASGITransport(app=made)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as found:
        yield found
