"""Jobs on tiny models, in this process and in others that may be killed."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from cli.main import app
from corpus.cutting import cut
from corpus.folder import STATE, JobFolder
from corpus.inputs import find_inputs
from corpus.job import CorpusJob, models_of
from corpus.leases import Leases
from corpus.worker import CorpusWorker
from engine.api import TextOptions
from tests.support.golden_fixtures import real_golden
from tests.support.served import bundles, until

ROOT = Path(__file__).parents[2]
MODEL = "toy-de-en"
PROGRAM = (sys.executable, "-m", "cli.main")


def sentences(count, seed=0):
    """Return German sentences of golden fixtures, many of them several times."""
    known = [result["src"] for result in real_golden()["results"]]
    return random.Random(seed).choices(known, k=count)


def job_of(service, route=MODEL, **fields):
    """Return a job for models of a running service; columns keep their names."""
    columns = fields.pop("columns", ["translation"])
    decode = fields.pop("decode", {})
    job = CorpusJob(
        models_of(service.pick("translate", model=route).infos),
        route,
        ("de", "en"),
        columns if isinstance(columns, dict) else {name: name for name in columns},
        options=fields.pop("options", TextOptions(decode)),
    )
    return replace(job, **fields)


def run_job(service, job, inputs, out):
    """Run a whole job in this process, and return its manifest."""
    files, folder = find_inputs([str(path) for path in inputs]), JobFolder(out)
    plan = folder.begin(job, files, lambda: cut(job, files))
    with Leases(folder.leases, 30.0) as leases:
        CorpusWorker(folder, plan, leases).work(service)
    return folder.finish(plan)


def output_of(folder):
    """Return the bytes of every file of an output by name, except the state."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and STATE not in path.relative_to(folder).parts
    }


def command(inputs, out, *flags):
    """Return the command line of a job."""
    model = bundles() / MODEL
    words = ["corpus", *inputs, "--out", out, "--model", model, "--engines", 1, "--lease-seconds", 2, *flags]
    return [*PROGRAM, *map(str, words)]


def start(inputs, out, *flags, **settings):
    """Start a process that works on a job."""
    return subprocess.Popen(
        command(inputs, out, *flags),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        **settings,
    )


def finish(inputs, out, *flags):
    """Run a job by its command in this process, which has imported most of what it needs."""
    with pytest.raises(SystemExit) as stopped:
        app(command(inputs, out, *flags)[len(PROGRAM) :])
    assert stopped.value.code == 0


def is_at_work(out):
    """Return whether some process has begun a shard."""
    return any((out / STATE / "aside").glob("*"))


def killed_at_random(inputs, out, luck, *flags, longest=1.0):
    """Start a process, kill it at a random time, and return whether it was still running."""
    with start(inputs, out, *flags) as process:
        until(lambda: is_at_work(out) or process.poll() is not None)
        try:
            process.wait(luck.uniform(0, longest))
        except subprocess.TimeoutExpired:
            process.kill()
            return True
    return False
