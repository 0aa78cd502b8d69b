"""Processes are killed at any time: the output has the same bytes, and no shard is written twice."""

from __future__ import annotations

import gzip
import json
import random
import resource
import signal
from contextlib import suppress
from functools import partial
from importlib.util import find_spec

import pytest

from corpus.engines import stopping_on
from corpus.folder import STATE, JobFolder, Tally
from corpus.leases import Leases
from engine.api import InvalidRequest
from tests.corpus.jobs import (
    finish,
    is_at_work,
    job_of,
    killed_at_random,
    output_of,
    run_job,
    sentences,
    start,
)
from tests.support.served import running, until
from tests.support.thorough import some

LINES = 1_000
KINDS = ["text", "jsonl", *(["parquet"] if find_spec("pyarrow") else [])]
FLAGS = {
    "text": ["--shard-lines", 200],
    "jsonl": ["--shard-lines", 150, "--column", "text", "--columns", "translation,score,status"],
    "parquet": ["--shard-lines", 250, "--column", "text", "--columns", "translation,score,flags"],
}
SAMPLING = ["--sampling", "--seed", 7, "--top-k", 10, "--beam-size", 2, "--n-best", 2]


def corpus_of(kind, folder):
    """Write a file of a format; its second half repeats the first."""
    half = sentences(LINES // 2)
    texts = [*half, *half]
    if kind == "text":
        (folder / "a.txt.gz").write_bytes(gzip.compress("\n".join(texts).encode()))
        return folder / "a.txt.gz"
    if kind == "jsonl":
        lines = [json.dumps({"id": number, "text": text}) for number, text in enumerate(texts)]
        (folder / "a.jsonl").write_text("\n".join(lines), "utf-8")
        return folder / "a.jsonl"
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"text": texts}), folder / "a.parquet", row_group_size=700)
    return folder / "a.parquet"


@pytest.fixture(scope="module")
def service():
    with running() as service:
        yield service


@pytest.fixture(scope="module")
def corpora(tmp_path_factory):
    """Return a function of format and flags that returns a file, and the output of an undisturbed job."""
    folder, known = tmp_path_factory.mktemp("corpora"), {}

    def of(kind, *flags):
        if (kind, flags) not in known:
            whole = folder / f"whole{len(known)}"
            path = corpus_of(kind, folder)
            finish([path], whole, *flags)
            known[kind, flags] = path, output_of(whole)
        return known[kind, flags]

    return of


def test_killed_job_continues_to_equal_bytes(corpora, tmp_path):
    flags, luck = [*FLAGS["text"], *SAMPLING], random.Random(1)
    path, whole = corpora("text", *flags)
    kills = sum(killed_at_random([path], tmp_path / "out", luck, *flags) for _ in range(2))
    finish([path], tmp_path / "out", *flags)
    assert kills
    assert output_of(tmp_path / "out") == whole
    assert not is_at_work(tmp_path / "out")


def test_killing_one_of_two_processes_does_not_change_the_output(corpora, tmp_path):
    (path, whole), luck = corpora("jsonl", *FLAGS["jsonl"]), random.Random(2)
    with start([path], tmp_path / "out", *FLAGS["jsonl"]) as other:
        killed_at_random([path], tmp_path / "out", luck, *FLAGS["jsonl"])
        _, stderr = other.communicate(timeout=600)
    assert other.returncode == 0, stderr.decode()
    assert output_of(tmp_path / "out") == whole


@pytest.mark.faults
@pytest.mark.parametrize("kind", KINDS)
def test_twenty_kills_do_not_change_the_output(corpora, tmp_path, kind):
    flags, luck = [*FLAGS[kind], *SAMPLING], random.Random(3)
    path, whole = corpora(kind, *flags)
    kills, round_ = 0, 0
    while kills < some(20, 3):
        round_ += 1
        out = tmp_path / f"out{round_}"
        for _ in range(4):
            kills += killed_at_random([path], out, luck, *flags, longest=2.0)
        finish([path], out, *flags)
        assert output_of(out) == whole


@pytest.mark.faults
@pytest.mark.parametrize("kind", KINDS)
def test_twenty_kills_of_two_processes_do_not_change_the_output(corpora, tmp_path, kind):
    (path, whole), luck = corpora(kind, *FLAGS[kind]), random.Random(4)
    kills, round_ = 0, 0
    while kills < 20:
        round_ += 1
        out = tmp_path / f"out{round_}"
        with start([path], out, *FLAGS[kind]) as other:
            for _ in range(4):
                kills += killed_at_random([path], out, luck, *FLAGS[kind], longest=2.0)
            assert other.wait(300) == 0
        assert output_of(out) == whole


def test_ctrl_c_stops_all_engines_and_releases_their_leases(corpora, tmp_path):
    path, whole = corpora("text", *FLAGS["text"])
    flags, state = ["--engines", 2, *FLAGS["text"]], tmp_path / "out" / STATE
    # what a shell starts in its background, such as a whole test run, ignores interrupts
    heeded = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    with start([path], tmp_path / "out", *flags, preexec_fn=heeded) as process:
        until(lambda: (state / "plan.json").exists())
        (state / "leases").mkdir(exist_ok=True)
        with Leases(state / "leases", 2.0) as leases:  # the last shard is ours, so the job cannot end
            last = leases.claim(LINES // 200 - 1)
            assert last
            until(lambda: is_at_work(tmp_path / "out"))
            process.send_signal(signal.SIGINT)
            _, stderr = process.communicate(timeout=600)
            assert [*(state / "leases").iterdir()] == [last.path]
    assert process.returncode == 130
    assert b"Traceback" not in stderr
    assert not is_at_work(tmp_path / "out")
    finish([path], tmp_path / "out", *flags)
    assert output_of(tmp_path / "out") == whole


def test_signal_with_a_lost_exception_still_ends_a_job():
    """The exception is lost if it is raised in a destructor."""
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit, match="143"), stopping_on(signal.SIGTERM) as left:
        assert not left()
        with suppress(SystemExit):
            signal.raise_signal(signal.SIGTERM)
        assert left()
    assert signal.getsignal(signal.SIGTERM) == before


@pytest.mark.parametrize("kind", KINDS)
def test_full_disk_is_an_error_and_the_job_continues_later(corpora, tmp_path, kind):
    """A limit on the size of files replaces the full disk."""
    flags = [*FLAGS[kind], "--shard-lines", LINES] if kind == "text" else FLAGS[kind]
    path, whole = corpora(kind, *flags)
    room = min(map(len, whole.values())) // 2  # less than a shard, and more than the plan

    def limited():
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))

    plan = tmp_path / "out" / STATE / "plan.json"
    with start([path], tmp_path / "out", *flags, preexec_fn=limited) as process:
        _, stderr = process.communicate(timeout=600)
    assert process.returncode == 2
    assert stderr.decode().splitlines()[-1].startswith("convoy: error: ")
    assert "File too large" in stderr.decode().splitlines()[-1]
    assert not is_at_work(tmp_path / "out")
    assert not output_of(tmp_path / "out")
    assert plan.exists()
    finish([path], tmp_path / "out", *flags)
    assert output_of(tmp_path / "out") == whole


def test_other_options_models_and_inputs_are_refused_by_name(service, tmp_path):
    (tmp_path / "a.txt").write_text("Das ist gut.\n", "utf-8")
    job, out = job_of(service), tmp_path / "out"
    run_job(service, job, [tmp_path / "a.txt"], out)
    before = output_of(out)
    with pytest.raises(InvalidRequest, match=r"options.decode.beam_size was None and is 2"):
        run_job(service, job_of(service, decode={"beam_size": 2}), [tmp_path / "a.txt"], out)
    with pytest.raises(InvalidRequest, match="models.toy-en-de was None"):
        run_job(service, job_of(service, "toy-en-de"), [tmp_path / "a.txt"], out)
    (tmp_path / "b.txt").write_text("Noch eine.\n", "utf-8")
    with pytest.raises(InvalidRequest, match=r"input .*b.txt is new"):
        run_job(service, job, [tmp_path / "a.txt", tmp_path / "b.txt"], out)
    (tmp_path / "a.txt").write_text("Das ist besser.\n", "utf-8")
    with pytest.raises(InvalidRequest, match=r"a.txt had 13 bytes and has 16"):
        run_job(service, job, [tmp_path / "a.txt"], out)
    assert output_of(out) == before
    with pytest.raises(InvalidRequest, match="holds other files"):
        run_job(service, job, [tmp_path / "b.txt"], tmp_path)


def test_changed_input_is_refused(service, tmp_path):
    path, out = tmp_path / "a.txt", tmp_path / "out"
    path.write_text("Das ist gut.\n" * 10, "utf-8")
    job = job_of(service)
    run_job(service, job, [path], out)
    (out / "a.txt").unlink()
    path.write_text("Das ist Gut.\n" * 10, "utf-8")
    with pytest.raises(InvalidRequest, match="is not what it was when this job began"):
        run_job(service, job, [path], out)
    assert not (out / "a.txt").exists()


def test_missing_or_damaged_output_is_written_again(service, tmp_path):
    path, out = corpus_of("text", tmp_path), tmp_path / "out"
    path.write_bytes(gzip.compress("\n".join(sentences(200)).encode()))
    job = job_of(service, shard_lines=50)
    run_job(service, job, [path], out)
    before = output_of(out)
    (out / "a.00001-of-00004.txt.gz").unlink()
    (out / "a.00002-of-00004.txt.gz").write_bytes(b"half")
    run_job(service, job, [path], out)
    assert output_of(out) == before


def test_lost_lease_and_late_commit_change_nothing(service, tmp_path):
    path, out = tmp_path / "a.txt", tmp_path / "out"
    path.write_text("Das ist gut.\n", "utf-8")
    run_job(service, job_of(service), [path], out)
    folder = JobFolder(out)
    (shard,) = folder.plan().shards
    done = folder.tally(0)
    draft = folder.draft_path(0, 5)
    draft.write_bytes(b"late")
    assert not folder.commit(shard, draft, Tally(), lambda: True)  # it is done
    (out / STATE / "done" / "00000000").unlink()
    assert not folder.commit(shard, draft, Tally(), lambda: False)  # the lease was lost
    assert output_of(out)["a.txt"] != b"late"
    # a process was killed between the output's name and its note: the next one finds it to be equal
    inode = (out / "a.txt").stat().st_ino
    draft.write_bytes((out / "a.txt").read_bytes())
    assert folder.commit(shard, draft, done, lambda: True)
    assert (out / "a.txt").stat().st_ino == inode
    assert folder.is_done(0)


def test_suspended_process_with_a_lost_lease_writes_nothing_twice(corpora, tmp_path):
    """SIGSTOP for longer than the duration of leases, like a sleeping machine."""
    (path, whole), out = corpora("text", *FLAGS["text"]), tmp_path / "out"
    with start([path], out, *FLAGS["text"]) as paused:
        until(lambda: is_at_work(out))
        paused.send_signal(signal.SIGSTOP)
        # on the same machine the living process would be detected
        for lease in (out / STATE / "leases").iterdir():
            lease.write_bytes(lease.read_bytes().replace(b'"machine": "', b'"machine": "x'))
        finish([path], out, *FLAGS["text"])
        inodes = {each.name: each.stat().st_ino for each in out.glob("*.gz")}
        paused.send_signal(signal.SIGCONT)
        assert paused.wait(300) == 0
    assert {each.name: each.stat().st_ino for each in out.glob("*.gz")} == inodes
    assert output_of(out) == whole
