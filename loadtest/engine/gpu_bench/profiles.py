"""The kernels that take most time of a step."""

from __future__ import annotations

import time
from typing import Any, Final

from torch.profiler import ProfilerActivity, profile

from engine.backends import LaneSize
from engine.schedule.lane import Lane
from engine.search.executor import Executor
from loadtest.engine.gpu_bench import models
from loadtest.engine.gpu_bench.clock import wait
from loadtest.engine.gpu_bench.contenders import make_requests, open_all, record_failure, straight
from loadtest.engine.gpu_bench.record import PartRun
from loadtest.engine.gpu_bench.sentences import SizedSentence, lengths, sentences
from loadtest.engine.gpu_bench.setting import Setting

MAX_KERNELS: Final = 15  # kernels in a profile


def profiles(run: PartRun) -> dict[str, Any]:
    """Profile a step on the first backend that works, for one sentence with beam 1 and for a full lane.

    Rows: kernels by their time on the device (operators on a CPU) with calls and microseconds a step, the
    duration of a step, and the busy time of the device in it.
    """
    setting, scale = run.setting, run.setting.scale
    bundle = models.bundle_of(setting.folder, models.SIX, tiny=scale.tiny)
    _, pairs = lengths(setting.corpora, scale.slots)
    findings: dict[str, Any] = {"model": bundle.name, "rows": [], "not_run": {}}
    for beams, slots in ((1, 1), (scale.beam, scale.slots)):
        if time.monotonic() > run.until and findings["rows"]:
            findings["not_run"][f"{slots} sentences"] = "no time was left"
            continue
        # no request may finish during the measurement
        longest = [(source, 3 * scale.steps + 8) for source, _ in pairs[:slots]]
        for contender, (executor,) in open_all(run, bundle, [LaneSize(beams, slots)], findings["not_run"]):
            with record_failure(f"{slots} sentences, {contender}", findings["not_run"]):
                row = _profile_steps(setting, executor, sentences(bundle.config, longest))
                findings["rows"].append(
                    {"contender": str(contender), "beam": beams, "sentences": slots} | row
                )
                break
        run.save(findings)
    return findings


def _profile_steps(setting: Setting, executor: Executor, work: list[SizedSentence]) -> dict[str, Any]:
    """Return microseconds of a step by the clock and on the device, and its longest kernels."""
    cuda, steps = setting.device.startswith("cuda"), setting.scale.steps
    lane = Lane(executor, straight)
    requests, _ = make_requests(work, executor.beams)
    lane.admit(requests)

    def run_steps() -> tuple[float, int]:
        """Return the seconds of a step, and the number of steps that were run."""
        wait(setting.device)
        began, taken = time.perf_counter(), 0
        while taken < steps:  # a call may take two steps
            taken += lane.step()
        wait(setting.device)
        return (time.perf_counter() - began) / taken, taken

    run_steps()  # to warm up
    plain, _ = run_steps()
    kinds = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if cuda else [])]
    with profile(activities=kinds) as profiler:
        _, taken = run_steps()
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
