"""Steps of models with caches by kernels, on the CPU or a GPU, compared with plain torch."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from engine.executors.cuda.executor import CapturedExecutor
from engine.executors.cuda.step_kernels import Bucket
from engine.executors.cuda.streams import CudaStreams, LaneStreams
from engine.executors.torch.executor import TorchExecutor
from engine.kernels.calls import Kernels
from engine.kernels.launch import Device
from engine.kernels.launches import Call
from engine.models import build
from engine.models.model import Model
from engine.schedule.lane import Lane
from engine.search.kind import usual
from engine.types import DecodeOptions
from loadtest.engine.nothing import Nothing
from tests.support.captured import NEEDS_COMPILER, NEEDS_GPU, assert_same, random_jobs, run
from tests.support.emulated import Emulation
from tests.support.lanes import lane_of
from tests.support.models import CONFIGS, model
from tests.support.thorough import THOROUGH, some

PLACES = [
    pytest.param("emulated", marks=NEEDS_COMPILER),
    pytest.param("gpu", marks=[pytest.mark.gpu, NEEDS_GPU]),
]
# T5: a bias by distance, and norms without means
T5 = {"rms_norm": True, "biases": False, "relative_span": 6, "normalize_before": True, "activation": "gelu"}
BEAMS, SLOTS = 3, 4


@cache
def net_of(name: str) -> Model:
    if name != "t5":
        return model(name)
    plain = CONFIGS["transformer"]
    assert plain.encoder is not None
    sides = {side: replace(getattr(plain, side), **T5) for side in ("encoder", "decoder")}
    made = build(replace(plain, **sides, token_positions=False))
    made.initialise(seed=7)
    return made


def lane_on(place: str, request: pytest.FixtureRequest, net: Model) -> Lane:
    """Return a lane whose steps are captured and run by kernels."""
    if place == "gpu":
        streams: LaneStreams = CudaStreams("cuda")
        kernels = Kernels(Device("cuda"))
        net = deepcopy(net).to("cuda")
    else:
        streams = Emulation(request.getfixturevalue("host"))
        kernels = Kernels(streams)
    return lane_of(CapturedExecutor(net, (BEAMS, SLOTS), streams, kernels))


def everywhere(*cases: Any, first: int) -> list[Any]:
    """Return all cases on a GPU, and the first ones on the CPU, or all of them in a thorough run."""
    emulated, gpu = PLACES
    chosen = cases if THOROUGH else cases[:first]
    return [
        pytest.param(place.values[0], *case, marks=place.marks)
        for place, those in ((emulated, chosen), (gpu, cases))
        for case in those
    ]


@pytest.mark.parametrize(
    ("place", "name"),
    everywhere(("transformer pre-norm",), ("t5",), ("transformer",), ("slicenet",), ("ensemble",), first=2),
)
def test_answers_of_models_with_caches_by_kernels_equal_plain_torch(request, place: str, name: str) -> None:
    """Requests join and leave at any step, so that slots have different positions."""
    net, count = net_of(name), 24 if place == "gpu" else some(12, 2)
    jobs = random_jobs("transformer", 6, count)
    wanted = run(lane_of(TorchExecutor(net, BEAMS, SLOTS)), jobs, 1)
    assert_same(run(lane_on(place, request, net), jobs, 1), wanted)


@pytest.mark.parametrize(
    ("place", "dtype", "name"),
    everywhere(
        (torch.bfloat16, "t5"),
        (torch.float16, "transformer pre-norm"),
        (torch.bfloat16, "transformer pre-norm"),
        (torch.float16, "t5"),
        (torch.bfloat16, "transformer"),
        (torch.float16, "transformer"),
        first=2,
    ),
)
def test_narrow_models_with_caches_by_kernels_score_nearly_as_in_fp32(request, place, dtype, name) -> None:
    """One target is forced, so that a near tie can not end the comparison."""
    rng = np.random.default_rng(2)
    source, target = [*rng.integers(4, 47, 20).tolist(), 2], tuple(rng.integers(4, 47, 12).tolist())
    jobs = [(source, DecodeOptions(beam_size=2, prefix=target, max_length=12))]
    (wide,) = run(lane_of(TorchExecutor(net_of(name), BEAMS, SLOTS)), jobs, 0)
    (found,) = run(lane_on(place, request, deepcopy(net_of(name)).to(dtype)), jobs, 0)
    a, b = (np.array(r.hypotheses[0].token_scores) for r in (wide, found))
    assert np.abs(a - b).max() < (0.08 if dtype == torch.bfloat16 else 0.02) * np.abs(a).max()
    assert not np.array_equal(a, b)


class Operators(TorchDispatchMode):
    """Collects the names of torch's operators that launch kernels."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name
        if not func.is_view and "empty" not in name and name not in ("aten::detach", "aten::_unsafe_view"):
            self.names.append(name)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    ("normalises_before", "activation", "more"),
    [(False, "relu", []), (False, "swish", []), (True, "gelu", ["embed"])],
)
def test_step_of_a_transformer_of_few_rows_runs_no_operator_of_torch(
    normalises_before: bool, activation: str, more: list[str]
) -> None:
    made: list[str] = []

    class Device(Nothing):
        def __call__(self, call: Call) -> None:
            made.append(call.kernel.entry)

    changes = {"embed_dim": 64, "conv_dim": 64, "ffn_dim": 96, "normalize_before": normalises_before}
    changes["activation"] = activation
    plain = CONFIGS["transformer"]
    sides = {side: replace(getattr(plain, side), **changes) for side in ("encoder", "decoder")}
    net, device = build(replace(plain, **sides)).to(torch.bfloat16), Device()
    stepper = CapturedExecutor(net, (5, 1), device, Kernels(device)).stepper()
    bucket = Bucket(1, 32, 64, usual(stepper.search.columns), attention=False)
    stepper._step(bucket)
    made.clear()
    with Operators() as operators:
        stepper._step(bucket)
    assert operators.names == []
    attending = ["tiled_product"] * 3 + ["attend_cached", "tiled_product", "tiled_product", "attend_tiled"]
    layer = attending + ["tiled_product"] * 3
    assert made == [
        *["begin_step", "advance_caches"],
        *more,
        *layer,
        *layer,
        *["tiled_product", "select_best", "end_step"],
    ]
