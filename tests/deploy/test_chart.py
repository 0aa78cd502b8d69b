"""Compares the rendered Helm chart (tests/deploy/chart.py) with the schemas of Kubernetes and of values."""

import json
import re

import jsonschema
import pytest
import yaml

from tests.deploy.chart import (
    CASES,
    CHART,
    RENDERED,
    chart_digest,
    manifests,
    notes,
    of_kind,
    pods,
    render,
    rendered,
    values_of,
)

VERSIONS = ("1.31", "1.34")
# resources of operators, which have no schemas of Kubernetes
CUSTOM = ("ServiceMonitor", "PodMonitor", "PrometheusRule", "RayService", "ScaledObject")
SCHEMA = json.loads((CHART / "values.schema.json").read_text("utf-8"))


def test_rendered_manifests_are_of_the_current_chart():
    for case in CASES:
        text = (RENDERED / f"{case}.yaml").read_text("utf-8")
        assert text.startswith(f"# chart {chart_digest()}\n"), "render it anew: python -m tests.deploy.chart"


@pytest.mark.parametrize("case", CASES)
def test_helm_renders_the_stored_manifests(case):
    pytest.importorskip("helm_python", reason="pip install helm-python-sdk, which is Helm's own library")
    assert list(yaml.safe_load_all(render(case))) == manifests(case)


def test_helm_lints_the_chart_and_checks_values_by_the_schema():
    helm = pytest.importorskip("helm_python", reason="pip install helm-python-sdk")
    found = helm.lint(str(CHART))
    assert not found["errors"]
    with helm.Chart.load(str(CHART)) as chart, pytest.raises(helm.HelmValuesError, match="replica"):
        chart.validate_schema({"replica": 2})


@pytest.mark.parametrize("case", CASES)
def test_values_satisfy_the_schema(case):
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    jsonschema.validate(values_of(case), SCHEMA)


@pytest.mark.parametrize(
    "wrong",
    [
        {"replica": 2},
        {"image": {"repository": "", "tag": "cpu"}},
        {"ingress": {"enabled": True, "hosts": ["mt.example"]}},
        {"service": {"sessionAffinity": "Cookie"}},
        {"state": {"persistence": {"size": "large"}}},
        {"settings": {"threads": 2}},  # without the drain, which the grace period follows
        {"settings": {"drain_timeout": 30, "CONVOY_THREADS": 2}},
        {"models": {"fetch": "de-en"}},
        {"models": {"fetch": ["../../etc"]}},
        {"service": {"port": 0}},
        {"ray": {"enabled": "yes"}},
    ],
)
def test_unknown_values_are_refused(wrong):
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(values_of("default") | wrong, SCHEMA)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("case", CASES)
def test_manifests_satisfy_the_schemas_of_kubernetes(case, version):
    kubernetes_validate = pytest.importorskip("kubernetes_validate", reason="needs kubernetes-validate")
    for manifest in manifests(case):
        if manifest["kind"] in CUSTOM:
            continue
        kubernetes_validate.validate(manifest, version, strict=True)
        with pytest.raises(kubernetes_validate.ValidationError):
            kubernetes_validate.validate(manifest | {"nonsense": True}, version, strict=True)
    for pod in pods(case):
        kubernetes_validate.validate({"apiVersion": "v1", "kind": "Pod"} | pod, version, strict=True)


@pytest.mark.parametrize("case", CASES)
def test_all_selectors_match_the_pods(case):
    found = {manifest["kind"]: manifest["spec"] for manifest in manifests(case) if "spec" in manifest}
    selectors = [
        spec.get("selector") or spec.get("podSelector")
        for kind, spec in found.items()
        if kind
        in ("Deployment", "Service", "PodDisruptionBudget", "NetworkPolicy", "ServiceMonitor", "PodMonitor")
    ]
    assert selectors
    added = {"ray.io/node-type": "head"}  # of KubeRay
    for pod in pods(case):
        labels = pod["metadata"]["labels"] | added
        for selector in selectors:
            assert selector.get("matchLabels", selector).items() <= labels.items()
    for scaler in found.keys() & {"HorizontalPodAutoscaler", "ScaledObject"}:
        assert found[scaler]["scaleTargetRef"]["name"] == "convoy"
        assert "replicas" not in found["Deployment"]
    if case == "plain":
        assert set(found) == {"Deployment", "Service"}
        assert found["Deployment"]["replicas"] == 3


def test_autoscaler_and_monitor_read_existing_metrics():
    observing = CHART.parents[2] / "server" / "observing"
    metrics = "".join(path.read_text("utf-8") for path in observing.glob("*.py"))
    (named,) = [
        m["pods"]["metric"]["name"]
        for m in of_kind("everything", "HorizontalPodAutoscaler")["spec"]["metrics"]
        if "pods" in m
    ]
    assert f"as: {named}}}" in notes("everything")
    (trigger,) = of_kind("scaled", "ScaledObject")["spec"]["triggers"]
    series = set(
        re.findall(r"\bconvoy_\w+(?=_sum|_count)", notes("everything") + trigger["metadata"]["query"])
    )
    assert series == {"convoy_queue_duration_seconds"}
    assert all(f'"{name}"' in metrics for name in series)
    (endpoint,) = of_kind("everything", "ServiceMonitor")["spec"]["endpoints"]
    ports = {port["name"] for port in of_kind("everything", "Service")["spec"]["ports"]}
    assert endpoint["port"] in ports
    assert endpoint["path"] == "/metrics"
    assert endpoint["authorization"]["credentials"] == {
        "name": "convoy-keys",
        "key": "CONVOY_METRICS_AUTH_TOKEN",
    }


def test_autoscaler_needs_no_adapter_by_default():
    (metric,) = of_kind("default", "HorizontalPodAutoscaler")["spec"]["metrics"]
    assert metric["type"] == "Resource"
    assert "adapter" not in notes("default")


def test_chart_and_compose_have_equal_dashboards_and_rules():
    docker = CHART.parents[2] / "docker"
    board = (CHART / "files" / "convoy.json").read_text("utf-8")
    assert board == (docker / "grafana/provisioning/dashboards/convoy.json").read_text("utf-8")
    rules = (CHART / "files" / "rules.yml").read_text("utf-8")
    assert rules == (docker / "prometheus" / "rules.yml").read_text("utf-8")
    # the name of the job in the rules is the label that the monitors take for it
    assert set(re.findall(r'job="(\w+)"', rules)) == {
        of_kind("everything", "Service")["metadata"]["labels"]["app.kubernetes.io/name"]
    }
    assert of_kind("everything", "ServiceMonitor")["spec"]["jobLabel"] == "app.kubernetes.io/name"


@pytest.mark.parametrize("kind", ["PrometheusRule", "ConfigMap"])
def test_helm_renders_dashboards_and_rules(kind):
    pytest.importorskip("helm_python", reason="pip install helm-python-sdk")
    texts = rendered({"dashboards": {"enabled": True}, "rules": {"enabled": True, "kind": kind}})
    board, rules = [m for m in yaml.safe_load_all(texts["convoy/templates/observing.yaml"]) if m]
    assert board["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert json.loads(board["data"]["convoy.json"])["panels"]
    groups = rules["spec"] if kind == "PrometheusRule" else yaml.safe_load(rules["data"]["convoy.yml"])
    assert {rule["alert"] for rule in groups["groups"][0]["rules"]} >= {"ConvoyDown", "ConvoySlow"}
