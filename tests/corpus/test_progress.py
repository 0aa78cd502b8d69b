"""Progress of a job: JSON lines without a terminal, and metrics for Prometheus."""

from __future__ import annotations

import json
import urllib.request

from prometheus_client.parser import text_string_to_metric_families

from tests.corpus.jobs import sentences, start
from tests.server.test_server_process import free_port
from tests.support.served import until


def scraped(port):
    """Wait until the metrics of a job are served, and return their samples by name and status."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            families = list(text_string_to_metric_families(answer.read().decode()))
    except OSError:
        return {}
    samples = [sample for family in families for sample in family.samples]
    return {(sample.name, sample.labels.get("status")): sample.value for sample in samples}


def test_running_job_reports_progress_and_metrics(tmp_path):
    port, path = free_port(), tmp_path / "a.txt"
    path.write_text("\n".join(sentences(1_000)), "utf-8")
    flags = ["--shard-lines", 100, "--metrics-port", port, "--price-per-hour", 0.5]
    with start([path], tmp_path / "out", *flags) as process:
        until(lambda: scraped(port) or process.poll() is not None)
        found = scraped(port)
        _, stderr = process.communicate(timeout=600)
    assert process.returncode == 0, stderr.decode()
    assert (found["convoy_corpus_lines", None], found["convoy_corpus_shards", None]) == (1_000, 10)
    assert found["convoy_corpus_lines_done", None] <= 1_000
    last = json.loads(stderr.decode().splitlines()[-1])
    assert (last["lines"], last["of"], last["shards"]) == (1_000, 1_000, 10)
    assert sum(last["statuses"].values()) == 1_000
    assert last["words_per_dollar"] > 0
