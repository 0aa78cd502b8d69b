"""Compare SliceNet with recorded outputs of tensor2tensor."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from engine.executors.memory import StagedBatch
from engine.executors.onnx.executor import OnnxExecutor
from engine.executors.onnx.sessions import open_sessions
from engine.executors.torch.executor import TorchExecutor
from engine.models import build, load
from engine.models.model import Dropout, Model
from engine.schedule.lane import Lane
from engine.search.executor import Executor, StepInput
from engine.types import DecodeOptions, Request
from export.graphs.onnx import graphs
from export.importers.tensorflow import slicenet
from tests.engine.executors.test_batch_independence import decode, facts
from tests.support import models
from tests.support.slicenet import NAMES, converted, fixture

SEEN = pytest.mark.parametrize(
    "name", NAMES or [pytest.param("", marks=pytest.mark.skip("no golden/slicenet"))]
)


EOS = 1


@cache
def net(name: str) -> Model:
    return load(*converted(name))


@cache
def lane(name: str, backend: str, beams: int, slots: int) -> Executor:
    if backend == "torch":
        return TorchExecutor(net(name), beams, slots)
    config, weights = converted(name)
    made = graphs(config)
    parts = {p: made[f"onnx/{p}.fp32.onnx"] for p in ("encoder", "step") if f"onnx/{p}.fp32.onnx" in made}
    return OnnxExecutor(open_sessions(config, parts, weights, 1), beams, slots)


def previous(targets: np.ndarray) -> torch.Tensor:
    """Return the decoder's input: targets shifted right after an arbitrary token."""
    return torch.from_numpy(np.concatenate([np.full_like(targets[:, :1], EOS), targets[:, :-1]], 1)).long()


def scores(logits: np.ndarray) -> np.ndarray:
    return torch.log_softmax(torch.from_numpy(logits), -1).numpy()


@SEEN
def test_logits_equal_the_authors_on_the_full_pass(name: str) -> None:
    io, model = fixture(name)[2], net(name)
    source = torch.from_numpy(io["inputs"]).long()
    real = (source != 0).float()
    with torch.no_grad():
        memory = model.encode(source, torch.arange(source.shape[1]), real)
        # tensor2tensor attends to padding with zero keys and values, so nothing is masked here
        features, _ = model.decode(previous(io["targets"]), memory, torch.zeros_like(real))
    np.testing.assert_allclose(features.numpy(), io["decoder_output"], atol=1e-4)
    np.testing.assert_allclose(model.project(features).detach().numpy(), io["logits"], atol=1e-4)


@SEEN
def test_a_row_without_padding_equals_the_authors_as_convoy_computes_it(name: str) -> None:
    io = fixture(name)[2]
    rows = [i for i, row in enumerate(io["inputs"]) if row.all()]
    assert rows
    with torch.no_grad():
        source = torch.from_numpy(io["inputs"][rows]).long()
        got = net(name)(source, previous(io["targets"][rows])).numpy()
    np.testing.assert_allclose(got, scores(io["logits"][rows]), atol=1e-4)


@SEEN
def test_every_block_equals_the_authors(name: str) -> None:
    io, model = fixture(name)[2], net(name)
    seen: dict[str, np.ndarray] = {}
    hooks = []
    for ours, theirs in scopes(model):

        def keep(_: Any, __: Any, output: Any, theirs: str = theirs) -> None:
            seen[theirs] = (output[0] if isinstance(output, tuple) else output).numpy()

        hooks.append(model.get_submodule(ours).register_forward_hook(keep))
    with torch.no_grad():
        source = torch.from_numpy(io["inputs"]).long()
        memory = model.encode(source, torch.arange(source.shape[1]), (source != 0).float())
        model.decode(previous(io["targets"]), memory, torch.zeros(source.shape))
    for hook in hooks:
        hook.remove()
    assert len(seen) == len(list(scopes(model)))
    for scope, got in seen.items():
        np.testing.assert_allclose(got, io[scope], atol=1e-4, err_msg=scope)


def scopes(model: Model) -> Iterator[tuple[str, str]]:
    """Pairs of our module and tensor2tensor's scope."""
    yield "decoder.merge", "targets_merge"
    yield "decoder", "decoder_output"
    stacks = {"decoder": model.config.decoder, "encoder": model.config.encoder}
    for side, stack in stacks.items():
        for layer in range(stack.layers if stack else 0):
            for part in ("residual1", "residual2"):
                yield f"{side}.layers.{layer}.{part}", f"{side}/layer_{layer}/{part}"
    if model.config.encoder is not None:
        yield "encoder", "encoder"
        places = ["", *(f"decoder/layer_{i}/" for i in range(model.config.decoder.layers))]
        for number, place in enumerate(places):
            yield f"decoder.attentions.{number}", f"{place}attention"
            yield f"decoder.attentions.{number}.targets_time", f"{place}targets_time"
            yield f"decoder.attentions.{number}.encoder_attn", f"{place}encdec_attention"


@pytest.mark.parametrize("backend", ["torch", "onnx"])
@SEEN
def test_steps_equal_the_authors(name: str, backend: str) -> None:
    io, config = fixture(name)[2], net(name).config
    rows = len(io["inputs"])
    executor = lane(name, backend, 1, rows)
    encoded = executor.encode([row[row != 0].tolist() for row in io["inputs"]])
    padded = with_the_authors_padding(encoded, io["inputs"].shape[1], executor, net(name))
    for row in range(rows):
        executor.place(padded, row, row)
    fed, want = previous(io["targets"]).numpy(), scores(io["logits"])
    for at in range(fed.shape[1]):
        inputs: dict[str, Any] = {
            "tokens": fed[:, at : at + 1],
            "positions": np.full((rows, 1), at),
            "parents": np.zeros((rows, 1), np.int64),
            "forced": np.full((rows, 1), -1),
            "banned": np.zeros((rows, 1, 1), np.int64),
            "temperature": np.ones(rows, np.float32),
            "unk_penalty": np.zeros(rows, np.float32),
            "eos_penalty": np.zeros(rows, np.float32),
            "lm_weight": np.zeros(rows, np.float32),
        }
        if backend == "torch":
            inputs = {key: torch.from_numpy(value) for key, value in inputs.items()}
        top = executor.step(rows, StepInput(**inputs, k=config.target_vocab))
        got, ids = np.asarray(top.scores)[:, 0], np.asarray(top.ids)[:, 0]
        ordered = np.take_along_axis(got, np.argsort(ids, 1), 1)
        np.testing.assert_allclose(ordered[:, 1:], want[:, at, 1:], atol=1e-4)  # padding is banned


def with_the_authors_padding(
    encoded: StagedBatch, width: int, executor: Executor, model: Model
) -> StagedBatch:
    """Return the memory with zero keys and values for padding, which tensor2tensor does not mask."""
    memory = []
    for length, parts in zip(encoded.lengths, encoded.memory, strict=True):
        made = {}
        for spec in model.memory_spec:
            axis = spec.source_axis
            block = np.zeros([width if d < 0 else d for d in spec.shape], np.float32)
            until = (slice(None),) * axis + (slice(length),)
            block[until] = np.asarray(parts[spec.name])[until]
            made[spec.name] = executor.namespace.asarray(block)
        memory.append(made)
    return StagedBatch([width] * len(memory), memory)


@pytest.mark.skipif(not NAMES, reason="no golden/slicenet")
def test_decoder_without_attention_is_a_language_model_without_encoder() -> None:
    hyper, variables, _ = fixture("sep0")
    kept = {k: v for k, v in variables.items() if "attention" not in k and "targets_time" not in k}
    config, problems = slicenet.model_config({**hyper, "attention_type": "none"})
    weights, more = slicenet.weights(kept, config)
    assert not problems + more
    model = load(config, weights)
    assert (config.encoder, model.memory_spec, config.reads_source) == (None, [], False)
    targets = torch.tensor([[EOS, 9, 30, 4]])
    with torch.no_grad():
        features, attention = model.decode(targets, {}, torch.zeros(1, 0))
        # the same layers after merging without attention
        assert attention is None
        own = net("sep0").decoder
        own_attentions, own.attentions = own.attentions, torch.nn.ModuleList()
        try:
            want, _ = net("sep0").decode(targets, {}, torch.zeros(1, 0))
        finally:
            own.attentions = own_attentions
    torch.testing.assert_close(features, want, atol=0, rtol=0)


def test_first_input_is_the_target_space_for_any_token() -> None:
    model = models.model("slicenet separable")
    source, targets = torch.tensor([[5, 6, 2]]), torch.tensor([[2, 9, 8], [1, 9, 8], [40, 9, 8]])
    with torch.no_grad():
        got = model(source.expand(3, -1), targets)
        torch.testing.assert_close(got[1:], got[:1].expand(2, -1, -1), atol=5e-5, rtol=0)
        space = model.decoder.target_space.weight
        kept = space[5].clone()
        space[5] += 1.0
        other = model(source, targets[:1])
        space[5] = kept
    assert (other[0, 0] - got[0, 0]).abs().max() > 1e-3


def test_inner_product_attention_is_the_softmax_of_scaled_similarities() -> None:
    model = models.model("slicenet inner product")
    rng = np.random.default_rng(2)
    queries, source = rng.normal(size=(3, 36)), rng.normal(size=(5, 36))
    similar = np.exp(queries @ source.T / 6.0)
    want = similar / similar.sum(1, keepdims=True) @ source
    attend = model.decoder.attentions[1].encoder_attn
    keys, values = attend.memory(torch.from_numpy(source)[None])
    got, weights = attend(torch.from_numpy(queries)[None], keys, values, torch.zeros(1, 5))
    np.testing.assert_allclose(got[0].numpy(), want, atol=1e-10)
    np.testing.assert_allclose(weights[0].numpy(), similar / similar.sum(1, keepdims=True), atol=1e-10)
    # one memory for the start of the decoder and all layers
    assert [spec.name for spec in model.memory_spec] == ["keys.0", "values.0"]


def test_symbol_dropout_hides_tokens_in_training_only() -> None:
    config = models.CONFIGS["slicenet"]
    made = build(config, Dropout(symbols=1.0))
    made.initialise(seed=3)
    sources, targets = torch.tensor([[5, 6, 2], [7, 8, 2]]), torch.tensor([[2, 9, 8], [2, 31, 30]])
    with torch.no_grad():
        made.train()
        hidden = made(sources, targets)
        made.eval()
        seen = made(sources, targets)
    torch.testing.assert_close(hidden[0], hidden[1])  # all rows are equal
    assert (seen[0, -1] - seen[1, -1]).abs().max() > 1e-2
    assert torch.isfinite(hidden).all()


def test_stack_dropout_scales_kept_values_in_training_only() -> None:
    made = build(models.CONFIGS["slicenet"], Dropout(residual=0.5))
    made.initialise(seed=3)
    tokens = torch.tensor([[5, 6, 9, 2]])
    arguments = tokens, torch.arange(4), torch.ones(1, 4)
    with torch.no_grad():
        whole = made.encoder(*arguments)
        made.train()
        dropped = made.encoder(*arguments)
    kept = dropped != 0
    assert 0.2 < kept.float().mean() < 0.8
    torch.testing.assert_close(dropped[kept], 2 * whole[kept])


@pytest.mark.parametrize("name", ["slicenet", "slicenet sub-separable", "slicenet inner product"])
def test_every_weight_learns_and_the_loss_falls(name: str) -> None:
    config = models.CONFIGS[name]
    made = build(config, Dropout(residual=0.1, attention=0.1, symbols=0.1))
    made.initialise(seed=3)
    made.train()
    torch.manual_seed(0)
    tokens = torch.randint(4, 40, (8, 6))
    source = torch.cat([tokens, torch.full((8, 1), 2)], 1)
    targets = torch.cat([torch.full((8, 1), 2), tokens], 1)
    optimizer, losses = torch.optim.Adam(made.parameters(), 3e-3), []
    for step in range(25):
        loss = -made(source, targets).gather(2, source[..., None]).mean()
        optimizer.zero_grad()
        loss.backward()
        if step == 0:
            silent = [n for n, p in made.named_parameters() if p.grad is None or not p.grad.any()]
            assert not silent
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.6 * losses[0]


@pytest.mark.parametrize("precision", ["fp32", "int8"])
@pytest.mark.parametrize("name", ["slicenet", "slicenet dilated groups"])
def test_batched_answers_equal_single_answers_bit_for_bit(name: str, precision: str) -> None:
    rng = np.random.default_rng(6)
    executor = OnnxExecutor(models.sessions(name, precision), 4, 6)
    decoder = Lane(executor, lambda request, outcome: request.reply(outcome))
    jobs = [
        (
            [*rng.integers(4, 47, rng.integers(1, 70)).tolist(), 2],
            DecodeOptions(beam_size=int(rng.integers(1, 5)), max_length_b=int(rng.integers(5, 20))),
        )
        for _ in range(10)
    ]
    for job, among in zip(jobs, decode(decoder, jobs, rng), strict=True):
        (alone,) = decode(decoder, [job], rng)
        assert facts(alone) == facts(among)


@pytest.mark.skipif(not NAMES, reason="no golden/slicenet")
@pytest.mark.parametrize("backend", ["torch", "onnx"])
def test_a_vocabulary_without_bos_and_unk_is_searched(backend: str) -> None:
    io, model = fixture("sep0")[2], net("sep0")
    source = io["inputs"][1][io["inputs"][1] != 0]
    answers: list[Any] = []
    decoder = Lane(lane("sep0", backend, 1, 1), lambda request, outcome: request.reply(outcome))
    decoder.drain([Request(source.tolist(), DecodeOptions(beam_size=1, max_length_b=12), answers.append)])
    tokens = [EOS]
    with torch.no_grad():
        while len(tokens) < 14:
            row = model(torch.from_numpy(source)[None].long(), torch.tensor([tokens]))[0, -1]
            row[0] = -torch.inf  # padding and an initial end-of-sentence are banned
            row[EOS] = -torch.inf if len(tokens) == 1 else row[EOS]
            tokens.append(int(row.argmax()) if len(tokens) < 13 else EOS)
            if tokens[-1] == EOS:
                break
    assert answers[0].hypotheses[0].tokens == tokens[1:-1]
