"""Compares the rendered Helm chart (tests/deploy/chart.py) with the schemas of Kubernetes and the server."""

import json
import re

import jsonschema
import pytest
import yaml

from server.settings import ServerSettings
from tests.deploy.chart import CASES, CHART, RENDERED, chart_digest, render, values_of

VERSIONS = ("1.31", "1.34")
CUSTOM = ("ServiceMonitor", "RayService")  # resources of operators, which have no schemas of Kubernetes
SCHEMA = json.loads((CHART / "values.schema.json").read_text("utf-8"))


def manifests(case):
    return list(yaml.safe_load_all((RENDERED / f"{case}.yaml").read_text("utf-8")))


def of_kind(case, kind):
    (found,) = [manifest for manifest in manifests(case) if manifest["kind"] == kind]
    return found


def variables(case, kind="Deployment"):
    pod = of_kind(case, kind)["spec"]["template"]["spec"]
    return {entry["name"]: entry["value"] for entry in pod["containers"][0]["env"]}


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
            kubernetes_validate.validate(manifest | {"spec": {"nonsense": True}}, version, strict=True)


@pytest.mark.parametrize("case", ["default", "plain", "everything"])
def test_all_selectors_match_the_pods(case):
    pods = of_kind(case, "Deployment")["spec"]["template"]["metadata"]["labels"]
    assert of_kind(case, "Deployment")["spec"]["selector"]["matchLabels"] == pods
    assert of_kind(case, "Service")["spec"]["selector"] == pods
    found = {manifest["kind"]: manifest for manifest in manifests(case)}
    if case != "plain":
        assert found["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == pods
        assert found["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"] == pods
        assert found["HorizontalPodAutoscaler"]["spec"]["scaleTargetRef"]["name"] == "convoy"
        assert "replicas" not in found["Deployment"]["spec"]
    else:
        assert set(found) == {"Deployment", "Service"}
        assert found["Deployment"]["spec"]["replicas"] == 3


@pytest.mark.parametrize("case", ["default", "everything"])
def test_pods_set_known_settings_and_stop_after_the_drain(case):
    given = {name.removeprefix("CONVOY_").lower(): value for name, value in variables(case).items()}
    settings = ServerSettings(**given)
    pod = of_kind(case, "Deployment")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    asleep = int(re.search(r"sleep\((\d+)\)", container["lifecycle"]["preStop"]["exec"]["command"][-1])[1])
    assert pod["terminationGracePeriodSeconds"] > asleep + settings.drain_timeout + 5
    assert settings.threads == int(container["resources"]["requests"]["cpu"])


def test_large_numbers_and_lists_reach_the_server_unchanged():
    given = variables("everything")
    assert given["CONVOY_FILE_LIMIT"] == "10485760"
    assert given["CONVOY_WATCH"] == "2.5"
    assert given["CONVOY_FILES"] == "false"
    assert given["CONVOY_FETCH"] == "de-en,en-de"


@pytest.mark.parametrize("case", ["default", "everything"])
def test_pods_satisfy_the_restricted_security_level(case):
    pod = of_kind(case, "Deployment")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    assert mounted == {volume["name"] for volume in pod["volumes"]}


def test_autoscaler_and_monitor_read_existing_metrics():
    metrics = (CHART.parents[2] / "server" / "observing" / "metrics.py").read_text("utf-8")
    notes = (CHART / "templates" / "NOTES.txt").read_text("utf-8")
    (named,) = [
        m["pods"]["metric"]["name"]
        for m in of_kind("default", "HorizontalPodAutoscaler")["spec"]["metrics"]
        if "pods" in m
    ]
    assert f"as: {named}}}" in notes
    series = set(re.findall(r"\bconvoy_\w+(?=_sum|_count)", notes))
    assert series == {"convoy_queue_duration_seconds"}
    assert all(f'"{name}"' in metrics for name in series)
    (endpoint,) = of_kind("everything", "ServiceMonitor")["spec"]["endpoints"]
    ports = {port["name"] for port in of_kind("everything", "Service")["spec"]["ports"]}
    assert endpoint["port"] in ports
    assert endpoint["path"] == "/metrics"


def test_ray_service_replaces_the_deployment():
    (ray,) = manifests("ray")
    (application,) = yaml.safe_load(ray["spec"]["serveConfigV2"])["applications"]
    module, _, name = application["import_path"].partition(":")
    source = (CHART.parents[2] / f"{module.replace('.', '/')}.py").read_text("utf-8")
    assert f'if name == "{name}":' in source
    cluster = ray["spec"]["rayClusterConfig"]
    (group,) = cluster["workerGroupSpecs"]
    assert group["replicas"] == 3
    assert group["template"]["spec"]["containers"][0]["env"]
