"""Check correctness: the tests that need a GPU, and answers of every backend against the CPU's reference.

Each file of tests has a process of its own, so that an error that ends the device's context costs that file
alone.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from engine.backends import LaneSize, Placement
from engine.executors import open_executors
from engine.schedule.lane import Lane
from engine.search.executor import Executor
from engine.types import DecodeOptions, Request, Result
from loadtest.engine.gpu_bench.clock import forgive
from loadtest.engine.gpu_bench.contenders import Answers, open_all, straight, through
from loadtest.engine.gpu_bench.models import copy_bundle
from loadtest.engine.gpu_bench.sentences import real_sources
from loadtest.engine.gpu_bench.setting import REPOSITORY, PartRun

LEAST_EQUAL: Final = 0.97  # share of fp32 answers; another order of sums may decide a near-tie differently
LONGEST_TARGET_TOKENS: Final = 64  # tokens of a checked answer
SLOTS: Final = 32
GPU_MARK: Final = "mark.gpu"
FUNCTION: Final = re.compile(r"^def (\w+)", re.MULTILINE)
TEST_PROCESSES: Final = 6
TEST_LOG: Final = "tests.log"  # whole output of pytest, next to the record
LEAST_TEST_SECONDS: Final = 10.0
NO_TESTS_CODE: Final = 5  # exit code of pytest if it selected no test: the file only mentions the mark
FAILURES: Final = ("FAILED ", "ERROR ")  # prefixes of pytest's lines that name a failed test
MAX_PRINTED_FAILURES: Final = 5  # failures of a file in the record
# a machine that is lent for an hour has torch and pytest, and lacks some plugins that pyproject.toml
# configures
PYTEST: Final = "-q -rfEs -m gpu -o addopts= -o filterwarnings= -p no:cacheprovider --durations=10"


def suite(run: PartRun) -> dict[str, Any]:
    """Run the tests that need a GPU. Rows: file, exit code of its process, last line of pytest, and the first
    failed tests.

    Only files of tests/ with a marked test are imported. ok: every file passed, and on a GPU some tests ran.
    """
    files = gpu_tests(REPOSITORY / "tests")
    with ThreadPoolExecutor(TEST_PROCESSES) as pool:
        results = list(pool.map(lambda path: _run_tests(path, run.until), files))
    outputs = [f"{'=' * 20} {path.name}\n{output}" for path, (_, output) in zip(files, results, strict=True)]
    run.record.path.with_name(TEST_LOG).write_text("\n".join(outputs), "utf-8")
    rows: list[dict[str, Any]] = [
        {"file": str(path.relative_to(REPOSITORY)), "code": code, "said": output.strip().rpartition("\n")[2]}
        for path, (code, output) in zip(files, results, strict=True)
    ]
    for row, (_, output) in zip(rows, results, strict=True):
        if row["code"]:
            print(f"FAILED, in a process of its own: {row['file']}: {row['said']}", flush=True)
            # the first failure is the cause: after it the device may be unusable in the process
            row["failed"] = [line for line in output.splitlines() if line.startswith(FAILURES)][
                :MAX_PRINTED_FAILURES
            ]
            print("\n".join(row["failed"]), flush=True)
    passed = any(" passed" in row["said"] for row in rows) or not run.setting.device.startswith("cuda")
    return {"ok": passed and not any(row["code"] for row in rows), "rows": rows}


def gpu_tests(folder: Path) -> list[Path]:
    """Return the test files with the mark `gpu`, or with a fixture of their conftest.py that has it."""
    return [path for path in sorted(folder.rglob("test_*.py")) if _needs_gpu(path)]


def _needs_gpu(path: Path) -> bool:
    """Return whether a test file has the mark, or uses a fixture of its conftest.py that has it."""
    text, shared = path.read_text("utf-8"), path.with_name("conftest.py")
    fixtures = shared.read_text("utf-8").split("@pytest.fixture")[1:] if shared.exists() else []
    names = [name[1] for text in fixtures if GPU_MARK in text and (name := FUNCTION.search(text))]
    return GPU_MARK in text or any(re.search(rf"def test_\w+\([^)]*\b{name}\b", text) for name in names)


def _run_tests(path: Path, until: float) -> tuple[int, str]:
    """Run pytest for one file; return exit code and output."""
    command = [sys.executable, "-m", "pytest", *PYTEST.split(), str(path)]
    seconds = max(LEAST_TEST_SECONDS, until - time.monotonic())
    try:
        done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired as error:
        output = error.stdout.decode("utf-8", "replace") if isinstance(error.stdout, bytes) else ""
        return -9, f"{output}\nit took more than {seconds:.0f} seconds"
    code = 0 if done.returncode == NO_TESTS_CODE else done.returncode
    return code, done.stdout + done.stderr


def checks(run: PartRun) -> dict[str, Any]:
    """Check the answers of every backend that opens.

    Rows: backend, share of answers equal to torch's in fp32 on the CPU, share of their tokens that agree from
    the left, largest difference of scores of equal answers, and share of answers that are equal alone and in
    a batch. ok: every fp32 row has enough equal answers, and no backend failed.
    """
    setting = run.setting
    bundle = copy_bundle(setting.folder, setting.shipped)
    options = replace(bundle.options, max_length=min(LONGEST_TARGET_TOKENS, bundle.config.max_target - 1))
    origin, sources = real_sources(setting, bundle, setting.scale.checked)
    place = Placement("torch", "cpu", "fp32", None, (LaneSize(options.beam_size, SLOTS),))
    baseline = _answers(open_executors(bundle, place)[0], sources, options)
    findings: dict[str, Any] = {"model": bundle.name, "text": origin, "sentences": len(sources), "rows": []}
    findings |= {"not_run": {}, "failed": {}, "ok": False}
    lanes = [LaneSize(options.beam_size, SLOTS), LaneSize(options.beam_size, 1)]
    for contender, (wide, narrow) in open_all(run, bundle, lanes, findings["not_run"]):
        if time.monotonic() > run.until and findings["rows"]:
            findings["not_run"][f"{bundle.name}, {contender}"] = "no time was left"
            continue
        try:
            many = _answers(wide, sources, options)
            row = {"backend": contender.backend, "precision": contender.precision} | agreement(baseline, many)
            alone = _answers(narrow, sources[: SLOTS // 2], options)
            row["alone"] = agreement(many[: len(alone)], alone)["equal"]
            findings["rows"].append(row)
        except Exception as error:
            findings["failed"][str(contender)] = forgive(error)
        run.save(findings)
    findings["ok"] = not findings["failed"] and all(
        row["equal"] >= LEAST_EQUAL for row in findings["rows"] if row["precision"] == "fp32"
    )
    findings["tolerance"] = {
        "fp32": f"{LEAST_EQUAL:.0%} of the answers must be equal",
        "others": "stated, not judged",
    }
    return findings


def agreement(baseline: Sequence[Result], answers: Sequence[Result]) -> dict[str, float]:
    """Compare the best answers. Returns the share of equal answers, the share of tokens before the first
    difference, and the largest difference of scores (natural log, by length) of equal answers."""
    equal, same, tokens, score = 0, 0, 0, 0.0
    for a, b in zip(baseline, answers, strict=True):
        one, other = a.hypotheses[0], b.hypotheses[0]
        tokens += len(one.tokens) + 1
        if one.tokens == other.tokens:
            equal += 1
            same += len(one.tokens) + 1
            score = max(score, abs(one.score - other.score))
            continue
        pairs = zip([*one.tokens, -1], [*other.tokens, -1], strict=False)
        same += next(i for i, (x, y) in enumerate(pairs) if x != y)
    return {"equal": equal / len(baseline), "tokens": same / tokens, "score_difference": score}


def _answers(executor: Executor, sources: Sequence[list[int]], options: DecodeOptions) -> list[Result]:
    """Return the results of an executor for the sources, in order."""
    answers = Answers.empty(len(sources))
    requests = [
        Request(list(source), options, lambda outcome, i=i: answers.take(i, outcome))  # type: ignore[misc]
        for i, source in enumerate(sources)
    ]
    through(Lane(executor, straight), requests)
    return answers.results(0.0)
