"""The manifests, against Kubernetes' own schemas and against what the server is."""

import re
from pathlib import Path

import pytest
import yaml

from server.settings import ServerSettings

FOLDER = Path(__file__).parents[2] / "deploy" / "kubernetes"
FILES = sorted(path for path in FOLDER.glob("*.yaml") if path.name != "kustomization.yaml")
VERSIONS = ("1.31", "1.34")


def loaded(name):
    return yaml.safe_load((FOLDER / f"{name}.yaml").read_text("utf-8"))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_manifests_are_what_kubernetes_knows(path, version):
    kubernetes_validate = pytest.importorskip("kubernetes_validate", reason="needs kubernetes-validate")
    manifest = yaml.safe_load(path.read_text("utf-8"))
    kubernetes_validate.validate(manifest, version, strict=True)
    wrong = manifest | {"spec": {"nonsense": True}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, version, strict=True)


def test_the_list_of_manifests_is_complete():
    assert set(loaded("kustomization")["resources"]) == {path.name for path in FILES}


def test_everything_finds_the_pods():
    pods = loaded("deployment")["spec"]["template"]["metadata"]["labels"]
    assert loaded("deployment")["spec"]["selector"]["matchLabels"] == pods
    assert loaded("service")["spec"]["selector"] == pods
    assert loaded("disruption")["spec"]["selector"]["matchLabels"] == pods
    assert loaded("network")["spec"]["podSelector"]["matchLabels"] == pods
    target = loaded("autoscaler")["spec"]["scaleTargetRef"]
    assert (target["kind"], target["name"]) == ("Deployment", loaded("deployment")["metadata"]["name"])


def test_the_pods_set_settings_that_there_are_and_stop_after_the_drain():
    pod = loaded("deployment")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    variables = {entry["name"]: entry["value"] for entry in container["env"]}
    given = {name.removeprefix("CONVOY_").lower(): value for name, value in variables.items()}
    settings = ServerSettings(**given)
    asleep = int(re.search(r"sleep\((\d+)\)", container["lifecycle"]["preStop"]["exec"]["command"][-1])[1])
    assert pod["terminationGracePeriodSeconds"] > asleep + settings.drain_timeout + 5
    assert settings.threads == int(container["resources"]["requests"]["cpu"])


def test_the_autoscaler_reads_a_metric_that_the_server_has():
    source = (FOLDER.parents[1] / "server" / "metrics.py").read_text("utf-8")
    metrics = [m["pods"]["metric"]["name"] for m in loaded("autoscaler")["spec"]["metrics"] if "pods" in m]
    assert metrics
    assert all(f'"{name}"' in source for name in metrics)
