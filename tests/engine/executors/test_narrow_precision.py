"""Steps in bf16 and fp16 on the torch and cuda backends."""

from __future__ import annotations

from copy import deepcopy

import numpy as np
import pytest
import torch
import torch.nn.functional as functional

from engine.executors.cuda.executor import CapturedExecutor
from engine.executors.torch import executor as torch_executor
from engine.executors.torch.executor import TorchExecutor
from engine.kernels.calls import Kernels
from engine.kernels.launches import Call
from engine.kernels.modes import LogitsMode, NarrowMode
from engine.types import DecodeOptions, Request, Result
from loadtest.engine.nothing import Nothing
from tests.support.captured import BEAMS, SLOTS, random_jobs, run
from tests.support.emulated import Emulation
from tests.support.lanes import lane_of
from tests.support.models import CONFIGS, model
from tests.support.thorough import some, some_of


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    "name", some_of([n for n in CONFIGS if n.split()[0] != "slicenet" or n == "slicenet"], 4)
)
def test_narrow_models_score_nearly_as_in_fp32(name: str, dtype: torch.dtype) -> None:
    """One target is forced, so that a near tie can not end the comparison."""
    rng = np.random.default_rng(2)
    source = [*rng.integers(4, 47, 20).tolist(), 2] if CONFIGS[name].reads_source else [2]
    target = tuple(rng.integers(4, 47, 12).tolist())
    jobs = [(source, DecodeOptions(beam_size=2, prefix=target, max_length=12))]
    (wide,) = run(lane_of(TorchExecutor(model(name), 2, 1)), jobs, 0)
    narrow = deepcopy(model(name)).to(dtype)
    (found,) = run(lane_of(TorchExecutor(narrow, 2, 1)), jobs, 0)
    a, b = (np.array(r.hypotheses[0].token_scores) for r in (wide, found))
    scale = np.abs(a).max()
    assert np.abs(a - b).max() < (0.08 if dtype == torch.bfloat16 else 0.02) * scale
    assert not np.array_equal(a, b)


@pytest.mark.parametrize("name", ["glu", "transformer", "aan", "lm plain"])
def test_narrow_models_run_through_graphs(name: str) -> None:
    narrow, jobs = deepcopy(model(name)).to(torch.bfloat16), random_jobs(name, 3, some(8, 2))
    wanted = run(lane_of(TorchExecutor(narrow, BEAMS, SLOTS)), jobs, 1)
    streams = Emulation()
    found = run(lane_of(CapturedExecutor(narrow, (BEAMS, SLOTS), streams)), jobs, 1)
    assert streams.replays
    same = [
        a.hypotheses[0].tokens == b.hypotheses[0].tokens
        for a, b in zip(found, wanted, strict=True)
        if isinstance(b, Result)
    ]
    assert np.mean(same) > 0.5  # near ties can be decided differently with more rows


@pytest.mark.parametrize("slots", [1, 16])
def test_the_cuda_backend_selects_from_logits_that_were_never_rounded(slots: int) -> None:
    """Rounding to bf16 changes 0.7 % of the best tokens. Few and many rows use different products."""
    calls: list[Call] = []
    narrow = deepcopy(model("glu")).to(torch.bfloat16)
    made = CapturedExecutor(narrow, (1, slots), Nothing(), Kernels(calls.append)).stepper()
    request = Request([5, 6, 2], DecodeOptions(beam_size=1), print)
    encoded = made.executor.encode([request.source] * slots)
    for slot in range(slots):
        made.place(encoded, [slot], [slot], [request])
    made.launch(slots, attention=False)
    (selection,) = [call for call in calls if call.kernel.entry == "select_best"]
    logits = selection.arguments[0]
    assert isinstance(logits, torch.Tensor)
    assert (selection.kernel.element, logits.dtype) == ("float", torch.float32)


def test_the_torch_backend_selects_from_logits_that_were_never_rounded(monkeypatch) -> None:
    given: list[torch.Tensor] = []
    plain = torch_executor.select

    def noted(logits: torch.Tensor, *more: object) -> object:
        given.append(logits)
        return plain(logits, *more)

    monkeypatch.setattr(torch_executor, "select", noted)
    job = [5, 6, 2], DecodeOptions(beam_size=1, max_length=3)
    run(lane_of(TorchExecutor(deepcopy(model("glu")).to(torch.bfloat16), 1, 1)), [job], 0)
    assert given[0].dtype == torch.float32
    assert not torch.equal(given[0], given[0].bfloat16().float())


@pytest.mark.parametrize("bias", [None, torch.ones(9, dtype=torch.bfloat16)])
def test_logits_of_the_torch_backend_are_not_rounded_before_they_are_normalised(bias) -> None:
    x, weight = torch.rand(2, 3, 8).bfloat16(), torch.rand(9, 8).bfloat16()
    with NarrowMode(torch.bfloat16), LogitsMode(torch.bfloat16, None):
        found = functional.linear(x, weight, bias)
    wanted = x.float() @ weight.float().T + (0 if bias is None else bias)
    torch.testing.assert_close(found, wanted, rtol=1e-6, atol=1e-6)
