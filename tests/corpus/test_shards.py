"""Shards among processes: drafts of earlier holders, shards that others finish, helpers that fail, rates."""

import gzip
import hashlib
import io
import multiprocessing
import os
import signal
from pathlib import Path

import pytest

import corpus.formats.lines
from corpus.cutting import cut
from corpus.engines import EngineChoice, Helpers
from corpus.folder import STATE, JobFolder
from corpus.formats.records import Record, add_to_digest, read_records
from corpus.inputs import find_inputs
from corpus.job import differences, models_of
from corpus.leases import Leases
from corpus.progress import Progress
from corpus.worker import CorpusWorker
from engine.api import InvalidRequest, ServiceSettings
from tests.corpus.jobs import MODEL, job_of, run_job, sentences
from tests.support.served import running


@pytest.fixture(scope="module")
def service():
    with running() as service:
        yield service


def begun(service, path, out, **fields):
    """Begin a job, and return its folder and its plan."""
    job, folder = job_of(service, **fields), JobFolder(out)
    files = find_inputs([str(path)])
    return folder, folder.begin(job, files, lambda: cut(job, files))


def test_drafts_of_earlier_holders_are_removed_and_later_ones_stay(service, tmp_path):
    (tmp_path / "a.txt").write_text("Das ist gut.\n", "utf-8")
    folder, _ = begun(service, tmp_path / "a.txt", tmp_path / "out")
    for generation in (0, 2, 5):
        folder.draft_path(0, generation).write_bytes(b"draft")
    aside = tmp_path / "out" / STATE / "aside"
    assert [path.name for path in aside.iterdir()] == ["00000000.5"]
    (aside / "00000001.0").write_bytes(b"another shard")
    folder.draft_path(0, 3)
    assert sorted(path.name for path in aside.iterdir()) == ["00000000.5", "00000001.0"]


def test_shard_that_another_process_finishes_before_the_claim_is_not_translated_again(service, tmp_path):
    (tmp_path / "a.txt").write_text("\n".join(sentences(20)), "utf-8")
    folder, plan = begun(service, tmp_path / "a.txt", tmp_path / "out")
    answered = []

    class LateLeases(Leases):
        def claim(self, shard):
            with Leases(folder.leases, 30.0) as others:
                CorpusWorker(folder, plan, others).work(service)
            answered.append(service.stats()[MODEL].answered)
            return super().claim(shard)

    with LateLeases(folder.leases, 30.0) as leases:
        CorpusWorker(folder, plan, leases).work(service)
    assert answered == [service.stats()[MODEL].answered]
    assert not list(Path(folder.leases).iterdir())


def ended(status):
    """Return a process that has ended with a status, or by a signal if it is negative."""
    start = multiprocessing.get_context("fork").Process
    process = (
        start(target=os._exit, args=(status,))
        if status >= 0
        else start(target=signal.raise_signal, args=(-status,))
    )
    process.start()
    process.join()
    return process


@pytest.mark.parametrize(("status", "restarts"), [(0, 0), (1, 0), (-9, 1)])
def test_helper_starts_again_only_after_a_signal(tmp_path, status, restarts):
    helpers = Helpers(tmp_path, EngineChoice([], ServiceSettings()), 2.0, 1)
    helpers._processes = [ended(status)]
    try:
        helpers.restart_killed()
        assert helpers._restarts == restarts
    finally:
        helpers.__exit__()


def test_lines_of_an_earlier_run_are_not_part_of_the_rate(service, tmp_path):
    (tmp_path / "a.txt").write_text("\n".join(sentences(30)), "utf-8")
    run_job(service, job_of(service), [tmp_path / "a.txt"], tmp_path / "out")
    folder = JobFolder(tmp_path / "out")
    progress = Progress(folder, folder.plan(), Leases(folder.leases, 30.0)).read()
    assert progress.lines == 30
    assert (progress.lines_per_second, progress.words_per_second) == (0.0, 0.0)


def test_packed_file_is_opened_once_for_all_its_shards(service, tmp_path, monkeypatch):
    opened, open_stream = [], corpus.formats.lines.open_stream

    def counted(path, compression):
        opened.append(path)
        return open_stream(path, compression)

    monkeypatch.setattr(corpus.formats.lines, "open_stream", counted)
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress("\n".join(sentences(40)).encode()))
    run_job(service, job_of(service, shard_lines=10), [tmp_path / "a.txt.gz"], tmp_path / "out")
    assert len(opened) == 1


def test_one_model_is_not_both_models_of_a_job(service):
    infos = service.models()
    assert len(models_of(infos)) == len(infos)
    with pytest.raises(InvalidRequest, match="comes twice"):
        models_of([infos[0], infos[0]])


def test_differences_of_jobs_name_inner_fields():
    old, new = {"options": {"beam": 1, "n": 2}, "a": 1}, {"options": {"beam": 4, "n": 2}, "a": 1}
    assert differences(old, new) == ["options.beam was 1 and is 4"]


def test_hidden_folders_and_packed_parquet_are_no_inputs(tmp_path):
    for name in ("a/x.txt", "a/.git/y.txt", "a/_convoy/z.txt", "a/b/.w.txt", "p.parquet.gz"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    assert [file.name for file in find_inputs([str(tmp_path / "a")])] == ["x.txt"]
    with pytest.raises(InvalidRequest, match="compressed inside"):
        find_inputs([str(tmp_path / "p.parquet.gz")])


def records(data, limit=8, *, start=True):
    return list(read_records(io.BufferedReader(io.BytesIO(data)), limit, quoted=False, start=start))


def test_byte_order_mark_is_no_text_at_the_beginning_only():
    assert [record.raw for record in records(b"\xef\xbb\xbfab\n\xef\xbb\xbfc")] == [b"ab", b"\xef\xbb\xbfc"]
    assert records(b"\xef\xbb\xbfab", start=False)[0].raw == b"\xef\xbb\xbfab"


def test_line_over_the_limit_is_one_record_without_its_bytes():
    found = records(b"a" * 30 + b"\nb\n" + b"c" * 9)
    assert [(record.raw, record.size, record.too_long) for record in found] == [
        (b"", 31, True),
        (b"b", 2, False),
        (b"", 9, True),
    ]


def test_hash_of_a_shard_depends_on_where_its_records_end():
    def digest(*sizes):
        found = hashlib.sha256()
        for raw, size in sizes:
            add_to_digest(found, Record(raw, size))
        return found.hexdigest()

    assert digest((b"ab", 3)) != digest((b"ab", 4))  # "ab\n" and "ab\r\n"
    assert digest((b"a", 2), (b"b", 2)) != digest((b"ab", 4))
