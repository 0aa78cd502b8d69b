"""The kernels that take most of a step."""

from __future__ import annotations

import time
from typing import Any, Final

from torch.profiler import ProfilerActivity, profile

from engine.backends import LaneSize
from engine.schedule.lane import Lane
from engine.search.executor import Executor
from loadtest.engine.gpu_bench import models
from loadtest.engine.gpu_bench.contenders import make_requests, open_all, record_failure, straight
from loadtest.engine.gpu_bench.sentences import SizedSentence, lengths, sentences
from loadtest.engine.gpu_bench.setting import PartRun, Setting
from loadtest.engine.gpu_bench.steps import DEFAULT, EIGHT, MANY, ONE, SIXTEEN, Shape, run_steps

MAX_KERNELS: Final = 15  # kernels in a profile
# the steps farthest from their predictions first
PROFILED: Final = (SIXTEEN, ONE, EIGHT, DEFAULT, Shape(models.ATTENTION, 4, 256), MANY)


def profiles(run: PartRun) -> dict[str, Any]:
    """Profile the steps of PROFILED on the first backend that works.

    Rows: kernels by their time on the device (operators on a CPU) with calls and microseconds a step, the
    duration of a step, and the busy time of the device in it.
    """
    setting, scale = run.setting, run.setting.scale
    _, pairs = lengths(setting.corpora, scale.slots)
    findings: dict[str, Any] = {"rows": [], "not_run": {}}
    for shape in PROFILED[: 2 if scale.tiny else None]:
        slots = min(shape.slots, scale.slots)
        columns = {"model": shape.model, "beam": shape.beams, "sentences": slots}
        name = " ".join(map(str, columns.values()))
        if time.monotonic() > run.until and findings["rows"]:
            findings["not_run"][name] = "no time was left"
            continue
        bundle = models.bundle_of(setting.folder, shape.model, tiny=scale.tiny)
        # no request may finish during the measurement
        longest = [(source, 3 * scale.steps + 8) for source, _ in pairs[:slots]]
        sizes = [LaneSize(shape.beams, slots)]
        for contender, (executor,) in open_all(run, bundle, sizes, findings["not_run"]):
            with record_failure(f"{name}, {contender}", findings["not_run"]):
                row = _profile_steps(setting, executor, sentences(bundle.config, longest))
                findings["rows"].append({"contender": str(contender)} | columns | row)
                break
        run.save(findings)
    return findings


def _profile_steps(setting: Setting, executor: Executor, work: list[SizedSentence]) -> dict[str, Any]:
    """Return microseconds of a step by the clock and on the device, and its longest kernels."""
    cuda, steps = setting.device.startswith("cuda"), setting.scale.steps
    lane = Lane(executor, straight)
    requests, _ = make_requests(work, executor.beams)
    lane.admit(requests)

    run_steps(lane, steps, setting.device)  # to warm up
    plain, _ = run_steps(lane, steps, setting.device)
    kinds = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if cuda else [])]
    with profile(activities=kinds) as profiler:
        _, taken = run_steps(lane, steps, setting.device)
    events = [event for event in profiler.key_averages() if _time(event, cuda) > 0]
    events.sort(key=lambda event: -_time(event, cuda))
    total = sum(_time(event, cuda) for event in events)
    kernels = [
        {
            "name": event.key[:160],
            "calls": event.count / taken,
            "microseconds": _time(event, cuda) / taken,
            "share": _time(event, cuda) / total,
        }
        for event in events[:MAX_KERNELS]
    ]
    return {"step_microseconds": plain * 1e6, "busy_microseconds": total / taken, "kernels": kernels}


def _time(event: Any, cuda: bool) -> float:  # noqa: FBT001
    """Return the microseconds of an event itself; on CUDA only of kernels, which are separate events."""
    if not cuda:
        return float(event.self_cpu_time_total)
    if str(getattr(event, "device_type", "")).endswith("CPU"):
        return 0.0
    return float(event.self_device_time_total)
