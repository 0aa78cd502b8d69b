"""ONNX Runtime on torch tensors: bindings, streams and errors of CUDA."""

from types import SimpleNamespace

import numpy as np
import onnxruntime as ort
import pytest
import torch

from engine.errors import ConfigError
from engine.executors.onnx.executor import OnnxExecutor
from engine.executors.onnx.on_cuda import PROVIDER, BoundSession, OrtDevice
from engine.search.executor import StepInput, TopK
from tests.engine.executors.test_executors import check, inputs, join, random_source
from tests.support.models import sessions


def test_results_are_new_tensors_and_feeds_are_read_in_place():
    step = sessions("glu", device="cpu").step
    assert isinstance(step, BoundSession)
    sizes = {"slots": 2, "beams": 3, "bans": 1, "source": 32}
    feeds = {}
    for node in step.get_inputs():
        shape = [dim if isinstance(dim, int) else sizes[dim] for dim in node.shape]
        feeds[node.name] = torch.ones(shape, dtype=step.types[node.name])
    feeds["k"] = np.array([7], np.int64)
    plain = sessions("glu").step
    given = {name: np.asarray(value) for name, value in feeds.items()}
    want = plain.run(["scores", "column.conv.0"], given)
    first = step.run(["scores", "column.conv.0"], feeds)
    assert [tuple(t.shape) for t in first] == [(2, 3, 7), (2, 3, 48)]
    for a, b in zip(first, want, strict=True):
        np.testing.assert_array_equal(a.numpy(), b)
    kept = first[1].clone()
    feeds["tokens"].fill_(9)
    second = step.run(["scores", "column.conv.0"], feeds)
    assert not torch.equal(second[1], kept)
    assert torch.equal(first[1], kept)


def on_cuda(monkeypatch, log):
    """Pretend that there is a CUDA device with named streams that log their waits."""

    class Stream(SimpleNamespace):
        def wait_stream(self, other):
            log.append(f"{self.name} waits for {other.name}")

    monkeypatch.setattr(ort, "get_available_providers", lambda: [PROVIDER, "CPUExecutionProvider"])
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: Stream(name="own", cuda_stream=4711))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: Stream(name="torch", cuda_stream=0))


def test_cuda_sessions_have_a_stream_that_is_ordered_with_torchs(monkeypatch):
    log = []
    on_cuda(monkeypatch, log)
    place = OrtDevice("cuda:1")
    assert place.providers[0] == (
        PROVIDER,
        {"device_id": "1", "user_compute_stream": "4711", "use_tf32": "0"},
    )
    session = SimpleNamespace(run_with_iobinding=lambda binding, options: log.append("runs"))
    place.run(session, None, None)
    assert log == ["own waits for torch", "runs", "torch waits for own"]


def test_missing_cuda_provider_raises_instead_of_running_on_the_cpu(monkeypatch):
    on_cuda(monkeypatch, [])
    place, step = OrtDevice("cuda"), sessions("glu").step
    with pytest.raises(ConfigError, match="could not load its CUDA provider.*--backend cuda"):
        place.bind(SimpleNamespace(get_providers=lambda: ["CPUExecutionProvider"]))
    assert step is not None


def test_errors_name_the_missing_package_or_device_and_the_remedy(monkeypatch):
    on_cuda(monkeypatch, [])
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigError, match="no CUDA device: use --device cpu"):
        OrtDevice("cuda")
    monkeypatch.setattr(ort, "get_available_providers", lambda: ["CPUExecutionProvider"])
    with pytest.raises(ConfigError, match=r"no CUDA provider; run: pip uninstall .*install onnxruntime-gpu"):
        OrtDevice("cuda")


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["glu", "light", "transformer", "aan", "convs2s", "slicenet"])
def test_steps_on_a_gpu_equal_the_full_forward(name):
    if not torch.cuda.is_available() or PROVIDER not in ort.get_available_providers():
        pytest.skip("needs a GPU and onnxruntime-gpu")
    rng = np.random.default_rng(5)
    lane, slots = OnnxExecutor(sessions(name, device="cuda"), 3, 4), []
    join(lane, slots, [random_source(rng, 20) for _ in range(3)])
    for _ in range(12):
        parents = rng.integers(0, 3, (3, 3))
        for slot, order in zip(slots, parents, strict=True):
            slot.prefixes = [slot.prefixes[p] for p in order]
        asked = inputs(lane, slots, parents)
        asked = StepInput(*(v.cuda() for v in asked[:-1]), asked.k)
        top = lane.step(3, asked, attention=True)
        check(name, lane, slots, TopK(*(None if v is None else v.cpu() for v in top)))
        for slot in slots:
            slot.prefixes = [[*p, int(rng.integers(4, 47))] for p in slot.prefixes]
