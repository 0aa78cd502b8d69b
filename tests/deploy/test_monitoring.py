"""The dashboard and the alert rules, checked with a live /metrics and with the tools of Prometheus."""

import json
import re
import shutil
import subprocess
import time
from pathlib import Path

import httpx
import pytest

from tests.server.test_server_process import GERMAN, SLOW, free_port
from tests.support.served import LONG, server, until

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docker" / "prometheus"
PROVISIONING = ROOT / "docker" / "grafana" / "provisioning"
DASHBOARD = json.loads((PROVISIONING / "dashboards" / "convoy.json").read_text("utf-8"))
QUERIES = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
VARIABLES = [variable["query"]["query"] for variable in DASHBOARD["templating"]["list"]]
NAME = re.compile(r"\b(?:convoy|process)_\w+")
needs_tools = pytest.mark.skipif(
    not (shutil.which("promtool") and shutil.which("prometheus")),
    reason="needs Prometheus (Debian: apt install prometheus)",
)


@pytest.fixture(scope="module")
def place():
    """The metrics of a server after requests with every outcome."""
    with server() as (client, house, _):
        for task, values in (("translate", GERMAN), ("summarize", {"q": "A long text about nothing."})):
            assert client.post(f"/{task}", json=values).status_code == 200
        client.post("/translate", json=GERMAN | {"source": "en", "target": "de"})
        client.post("/translate", json=GERMAN | {"target": "zz"})
        client.post("/translate", json=SLOW, headers={"X-Request-Timeout": "0.05"})
        yield client, house


def promtool(*arguments, **options):
    done = subprocess.run(["promtool", *map(str, arguments)], capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def known_names(text):
    """Return the names of samples; for a family without samples, the names of its type."""
    suffixes = {"counter": [""], "gauge": [""], "histogram": ["_bucket", "_sum", "_count"]}
    kinds = re.findall(r"# TYPE (\S+) (\w+)", text)
    return {name + suffix for name, kind in kinds for suffix in suffixes[kind]}


# without tools


def test_dashboard_and_rules_use_existing_metrics(place):
    known = known_names(place[0].get("/metrics").text)
    rules = (FOLDER / "rules.yml").read_text("utf-8")
    expressions = re.sub(r"(summary|action): .*", "", rules)
    asked = {name for text in [*QUERIES, *VARIABLES, expressions] for name in NAME.findall(text)}
    assert len(asked) > 20
    assert asked <= known


def test_page_lists_all_metrics_of_a_server_and_no_others(place):
    page = (ROOT / "docs" / "metrics.md").read_text("utf-8").partition("If you come from")[0]
    rows = re.findall(r"^\| (`convoy_[^|]+) \|", page, re.MULTILINE)
    listed = {name.removesuffix("_total") for row in rows for name in re.findall(r"`(convoy_\w+)", row)}
    families = re.findall(r"# TYPE (convoy_\w+) ", place[0].get("/metrics").text)
    assert listed == {name.removesuffix("_total") for name in families if not name.endswith("_created")}


def test_dashboard_panels_do_not_overlap():
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = set()
    for panel in panels:
        box = panel["gridPos"]
        own = {
            (x, y) for x in range(box["x"], box["x"] + box["w"]) for y in range(box["y"], box["y"] + box["h"])
        }
        assert not own & cells, f"{panel['title']} lies on another panel"
        assert box["x"] + box["w"] <= 24
        cells |= own
    source = (PROVISIONING / "datasources" / "prometheus.yml").read_text("utf-8")
    assert {panel["datasource"]["uid"] for panel in panels} == set(re.findall(r"uid: (\w+)", source))


# with the tools


@needs_tools
def test_alerts_fire_only_when_they_should():
    # its file of a token exists in the container only
    promtool("check", "config", "--syntax-only", FOLDER / "prometheus.yml")
    promtool("test", "rules", FOLDER / "rules_test.yml")
    rules = re.findall(r"alert: (\w+)", (FOLDER / "rules.yml").read_text("utf-8"))
    tests = (FOLDER / "rules_test.yml").read_text("utf-8")
    for name in rules:
        fires = re.search(rf"alertname: {name}\n\s+exp_alerts:\n\s+- exp_labels", tests)
        assert fires, f"no test has {name} fire"


@needs_tools
def test_names_units_and_help_satisfy_promtool(place):
    text = place[0].get("/metrics").text
    # its own client's classics are not ours to name
    ours = "".join(line for line in text.splitlines(True) if "convoy_" in line)
    assert promtool("check", "metrics", input=ours) == ""


@needs_tools
def test_every_query_of_the_dashboard_has_a_result(place, tmp_path):
    client, _ = place
    port = free_port()
    (tmp_path / "prometheus.yml").write_text(
        "global: {scrape_interval: 500ms, evaluation_interval: 500ms}\n"
        f"rule_files: [{FOLDER / 'rules.yml'}]\n"
        "scrape_configs: [{job_name: convoy, static_configs: [{targets: ['127.0.0.1:"
        f"{client.base_url.port}']}}]}}]\n",
        "utf-8",
    )
    command = ["prometheus", f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/db"]
    with subprocess.Popen(
        [*command, f"--web.listen-address=127.0.0.1:{port}"], stderr=subprocess.PIPE, text=True
    ) as running:
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{port}/api/v1", timeout=10) as prometheus:
                _ask_all(prometheus, client)
        finally:
            running.terminate()
            running.communicate(timeout=600)


def _ask_all(prometheus, client):
    def ask(query):
        found = prometheus.get("/query", params={"query": query})
        assert found.status_code == 200, f"{query}: {found.text}"
        return found.json()["data"]["result"]

    def up():
        try:
            return prometheus.get(prometheus.base_url.join("/-/ready")).status_code == 200
        except httpx.TransportError:
            return False

    until(up)
    end = time.monotonic() + 300
    waiting = [q.replace("$__rate_interval", "20s") for q in QUERIES]
    waiting = [re.sub(r'=~"\$\w+"', '=~".*"', query) for query in waiting]
    while waiting:
        for values in (GERMAN, {"q": "A tale.", "source": "en", "target": "de"}, GERMAN | {"target": "zz"}):
            client.post("/translate", json=values)
        client.post("/summarize", json={"q": "A long text about nothing."})
        client.post("/translate", json=GERMAN | LONG | {"stream": True})
        file, form = {"file": ("brief.txt", b"Das ist gut.\n")}, {"source": "de", "target": "en"}
        client.post("/translate_file", files=file, data=form)
        waiting = [query for query in waiting if not _answered(ask(query), query)]
        assert time.monotonic() < end, f"no answer to {waiting}"
    groups = prometheus.get("/rules").json()["data"]["groups"]
    assert [rule["lastError"] for group in groups for rule in group["rules"] if rule.get("lastError")] == []


def _answered(result, query):
    if "gpu" in query:  # none here; that the name exists is another test's
        return not result
    return bool(result) and all(sample["value"][1] != "NaN" for sample in result)
