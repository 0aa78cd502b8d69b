"""Small random bundles with a real vocabulary, and servers in this process that serve them."""

import atexit
import shutil
import tempfile
import threading
import time
from contextlib import contextmanager
from dataclasses import fields
from functools import cache
from itertools import product
from pathlib import Path
from string import ascii_lowercase
from unittest.mock import patch

import httpx
import sentencepiece
import torch
import uvicorn
from prometheus_client.parser import text_string_to_metric_families

from engine.api import Placement, Service, ServiceSettings
from engine.bundle.bundle import Description, add_files, open_bundle, write_bundle
from engine.bundle.config import ModelConfig
from engine.bundle.stacks import StackConfig
from engine.models import build
from engine.text.tokenizers.placeholder_words import PLACEHOLDERS_FILE, PlaceholderWord, dump
from engine.text.tokenizers.tokenizer import open_tokenizer
from export.graphs.onnx import graphs
from server.app import DrainingServer, configure, create_app
from server.observing.metrics import Metrics
from server.settings import ServerSettings
from tests.support.golden_fixtures import real_golden

VOCABULARY = 400
# different lines, as equal ones of a request are decoded once
LINES = tuple(f"Das ist {''.join(word)}." for word in product(ascii_lowercase, repeat=3))
STACK = StackConfig(embed_dim=16, conv_dim=16, ffn_dim=16, heads=2, kernel_sizes=(3, 5))
MODELS = {
    "toy-de-en": ("translate", "de", "en", 19),
    "toy-en-de": ("translate", "en", "de", 20),
    "toy-title": ("summarize", "en", "en", 27),
}
LANES = ((1, 4), (4, 4))
SOURCE = 64  # longest source
TARGET = 2047  # longest target: long enough to be interrupted
LONG = {"min_length": TARGET, "max_length": TARGET, "max_length_b": TARGET}


@cache
def bundles() -> Path:
    """Return a folder of three bundles, made once per run."""
    folder = Path(tempfile.mkdtemp(prefix="convoy-served-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    lines = [line for result in real_golden()["results"] for line in (result["src"], result["ref"])]
    (folder / "corpus.txt").write_text("\n".join(lines), "utf-8")
    sentencepiece.SentencePieceTrainer.train(
        input=str(folder / "corpus.txt"),
        model_prefix=str(folder / "vocabulary"),
        vocab_size=VOCABULARY,
        bos_id=0,
        pad_id=1,
        eos_id=2,
        unk_id=3,
        minloglevel=2,
    )
    config = ModelConfig(
        "dynamicconv", VOCABULARY, VOCABULARY, STACK, STACK, max_source=SOURCE, max_target=TARGET + 1
    )
    files = {"vocabulary.model": folder / "vocabulary.model", **graphs(config)}
    for name, (task, source, target, seed) in MODELS.items():
        model = build(config)
        model.initialise(seed=seed)
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.3)
        write_bundle(
            folder / "models" / name,
            Description(
                name=name,
                task=task,
                source=source,
                target=target,
                config=config,
                text={"kind": "sentencepiece", "model": "vocabulary.model"},
                generation={"beam_size": 4, "max_length": 10},
            ),
            {key: p.detach().numpy() for key, p in model.named_parameters()},
            files,
            half=False,
        )
    return folder / "models"


def lending(source: Path, folder: Path) -> None:
    """Copy a bundle into a folder, with four words of its vocabulary as placeholders."""
    shutil.copytree(source, folder / source.name)
    bundle, words = open_bundle(source), list[PlaceholderWord]()
    tokenizer = open_tokenizer(bundle)
    for token in range(bundle.config.source_vocab):
        word = tokenizer.word([token], target=False)
        if word.isalpha() and len(word) > 2 and tokenizer.encode(word) == [token]:
            words.append(PlaceholderWord(word, token, token))
    add_files(folder / source.name, {PLACEHOLDERS_FILE: dump(words[:4], 1.0)})


def settings_of(**values) -> ServiceSettings:
    """Return service settings, from values of their own fields and of the placement's."""
    names = {field.name for field in fields(Placement)}
    placed = {"lanes": LANES} | {name: value for name, value in values.items() if name in names}
    return ServiceSettings(
        Placement(**placed), **{name: value for name, value in values.items() if name not in names}
    )


def open_service(observe=None, paths=None, **settings) -> Service:
    """Open a service of bundles; `paths`: their folders, None: the toy models."""
    return Service.open(paths or [bundles()], settings_of(**settings), observe)


@contextmanager
def running(**settings):
    """Start a service, and stop it at the end. `settings`: arguments of `open_service`."""
    service = open_service(**settings)
    service.start()
    try:
        yield service
    finally:
        service.stop(drain=False, timeout=30)


def value(client, name, **labels):
    """Return the sum of a metric's samples with these labels."""
    families = text_string_to_metric_families(client.get("/metrics").text)
    samples = [sample for family in families for sample in family.samples if sample.name == name]
    return sum(s.value for s in samples if labels.items() <= s.labels.items())


@contextmanager
def server(service_settings=None, opened=open_service, **settings):
    """Run a server on a free port: yields an httpx client, the state of the server, and uvicorn's server.

    service_settings: arguments of `opened`.
    opened: function that makes the service.
    settings: settings of the server.
    """
    metrics = Metrics()
    service = opened(metrics.observer, **(service_settings or {}))
    values = ServerSettings(port=0, **settings)
    app = create_app(service, values, metrics)
    instance = DrainingServer(configure(app, values), app.state.convoy)
    thread = threading.Thread(target=instance.run)
    thread.start()
    until(lambda: instance.started or not thread.is_alive())
    port = instance.servers[0].sockets[0].getsockname()[1]
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=600, verify=False) as client:
            until(lambda: client.get("/health/ready").status_code == 200)
            yield client, app.state.convoy, instance
    finally:
        instance.should_exit = True
        thread.join(300)
        service.stop(drain=False, timeout=30)
        assert not thread.is_alive()


def stopped_windows():
    """Return a context in which new counters of requests have a stopped clock: otherwise a minute that ends
    during a test allows more requests."""
    return patch("server.callers.quotas.steady", lambda folder: lambda: 60.0)


@contextmanager
def draining(state):
    """Make a server refuse new work as if it were draining, without ending it."""
    with patch.object(DrainingServer, "on_tick", uvicorn.Server.on_tick):
        state.draining = True
        try:
            yield
        finally:
            state.draining = False


def until(condition, seconds=300.0):
    """Wait until a condition holds. Polls become rarer with time. Raises AssertionError after `seconds`."""
    began = time.monotonic()
    while not condition():
        waited = time.monotonic() - began
        assert waited < seconds, "it did not happen"
        time.sleep(min(0.005 + waited / 25, 0.025))


def busy(service, model="toy-de-en"):
    stats = service.stats()[model]
    return sum(stats.active), stats.waiting_requests


def slow_down(stepper):
    """Add a millisecond to each step, so that a small model stays busy for a while."""
    launch = stepper.launch

    def later(*args, **kwargs):
        time.sleep(0.001)
        stepper.launch_seconds = 0.0  # one step a launch
        return launch(*args, **kwargs)

    stepper.launch = later
