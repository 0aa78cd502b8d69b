"""Renders the chart of deploy/helm with a few sets of values, in tests/deploy/rendered.

    python -m tests.deploy.chart        renders all cases; needs helm-python-sdk of PyPI, the library of Helm

Each file names its renderer and the hash of its chart: a test fails when the chart has changed since. The
library is no dependency, as it takes a quarter of a gigabyte: what is kept is tested without it.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, Final

import yaml

CHART: Final = Path(__file__).parents[2] / "deploy" / "helm" / "convoy"
RENDERED: Final = Path(__file__).parent / "rendered"
NOTES: Final = "# NOTES: "  # begins the lines of the notes, which Helm prints after an installation
COPIES: Final = "observing.yaml"  # template of dashboards and rules, which are files of docker/
EVERYTHING: Final[dict[str, Any]] = {
    "image": {"repository": "registry.example/convoy", "tag": "1", "pullSecrets": [{"name": "registry"}]},
    "existingSecret": "convoy-keys",
    "extraEnv": [{"name": "OTEL_EXPORTER_OTLP_ENDPOINT", "value": "http://collector:4318"}],
    "extraEnvFrom": [{"configMapRef": {"name": "more"}}],
    "models": {
        "existingClaim": "bundles",
        "fetch": ["de-en", "en-de"],
        "languages": ["de", "en"],
        "fetchedClaim": "fetched",
        "mirror": "https://mirror.example/models",
    },
    "state": {"existingClaim": "state"},
    "cache": {"existingClaim": "cache"},
    "monitor": {"enabled": True, "labels": {"release": "prometheus"}, "tokenSecret": {"name": "convoy-keys"}},
    "network": {
        "from": [{"namespaceSelector": {"matchLabels": {"name": "ingress"}}}],
        "egress": [{"ports": [{"port": 5432}], "to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}],
    },
    "ingress": {
        "enabled": True,
        "className": "nginx",
        "annotations": {"nginx.ingress.kubernetes.io/proxy-buffering": "off"},
        "hosts": [{"host": "mt.example", "paths": [{"path": "/", "pathType": "Prefix"}]}],
        "tls": [{"secretName": "mt-tls", "hosts": ["mt.example"]}],
    },
    "serviceAccount": {"annotations": {"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/models"}},
    "runtimeClassName": "nvidia",
    "priorityClassName": "high",
    "nodeSelector": {"disk": "ssd"},
    "tolerations": [{"key": "cpu", "operator": "Exists", "effect": "NoSchedule"}],
    "affinity": {"nodeAffinity": {}},
    "podAnnotations": {"team": "translation"},
    "podLabels": {"cost": "mt"},
    "initContainers": [{"name": "sync", "image": "rclone/rclone", "args": ["copy", "s3:models", "/extra"]}],
    "extraVolumes": [{"name": "extra", "emptyDir": {}}],
    "extraVolumeMounts": [{"name": "extra", "mountPath": "/extra"}],
}
CASES: Final[dict[str, dict[str, Any]]] = {
    "default": {},
    "plain": {
        "autoscaler": {"enabled": False},
        "network": {"enabled": False},
        "disruption": {"enabled": False},
        "serviceAccount": {"create": False},
        "replicas": 3,
    },
    "everything": EVERYTHING
    | {
        "settings": {
            "file_limit": 10_485_760,
            "precision": "int8",
            "files": False,
            "watch": 2.5,
            "grpc_port": 9000,
            "limit_storage": "redis+cluster://:secret@redis-1:7000,redis-2:7001",
        },
        "service": {"type": "LoadBalancer", "port": 8080, "grpcPort": 9001},
        "autoscaler": {"queueSeconds": "0.5"},
    },
    # a small server for several languages, with claims and autoscaling of its own
    "scaled": {
        "models": {"languages": ["de", "en", "nl"], "persistence": {"enabled": True}},
        "state": {"persistence": {"enabled": True, "storageClass": "nfs"}},
        "settings": {"traces": "http://collector:4318", "limit_storage": "redis://redis"},
        "keda": {"enabled": True, "serverAddress": "http://prometheus:9090"},
        "resources": {"limits": {"nvidia.com/gpu": 1}},
    },
    "ray": EVERYTHING | {"image": {}, "ray": {"enabled": True, "workers": 3}},
}


def values_of(case: str) -> dict[str, Any]:
    """Return the values of the chart, overridden by a case."""
    return merged(yaml.safe_load((CHART / "values.yaml").read_text("utf-8")), CASES[case])


def merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Override values like Helm: maps are merged, other values are replaced."""
    both = [key for key in below if isinstance(below[key], dict) and isinstance(above.get(key), dict)]
    return below | above | {key: merged(below[key], above[key]) for key in both}


def chart_digest() -> str:
    """Return a hash of the files of the chart, except dashboards and rules, and of the cases."""
    digest = hashlib.sha256(json.dumps(CASES, sort_keys=True).encode())
    for path in sorted(path for path in CHART.rglob("*") if path.is_file() and not path.is_symlink()):
        digest.update(f"{path.relative_to(CHART)}\n".encode() + path.read_bytes())
    return digest.hexdigest()


def manifests(case: str) -> list[dict[str, Any]]:
    """Return the stored manifests of a case."""
    return [m for m in yaml.safe_load_all((RENDERED / f"{case}.yaml").read_text("utf-8")) if m]


def of_kind(case: str, kind: str) -> dict[str, Any]:
    """Return the only stored manifest of a kind."""
    (found,) = [manifest for manifest in manifests(case) if manifest["kind"] == kind]
    return found


def notes(case: str) -> str:
    """Return the stored notes of a case."""
    lines = (RENDERED / f"{case}.yaml").read_text("utf-8").splitlines()
    return "\n".join(
        line.removeprefix(NOTES.strip()).strip() for line in lines if line.startswith(NOTES.strip())
    )


def pods(case: str) -> list[dict[str, Any]]:
    """Return the templates of a case's pods: of the Deployment, or of the head and the workers of Ray."""
    if case != "ray":
        return [of_kind(case, "Deployment")["spec"]["template"]]
    cluster = of_kind(case, "RayService")["spec"]["rayClusterConfig"]
    return [cluster["headGroupSpec"]["template"], cluster["workerGroupSpecs"][0]["template"]]


def variables(pod: dict[str, Any]) -> dict[str, str]:
    """Return the environment variables of a pod's container by name."""
    return {entry["name"]: entry["value"] for entry in pod["spec"]["containers"][0]["env"]}


def rendered(values: dict[str, Any]) -> dict[str, str]:
    """Return the templates rendered by Helm, by name; the values are checked by the schema of the chart.

    values: overrides of values.yaml.

    Raises HelmError.
    """
    import helm_python

    with helm_python.Chart.load(str(CHART)) as chart:
        chart.validate_schema(values)
        texts: dict[str, str] = chart.render(values, name="convoy", namespace="default")
    return texts


def render(case: str) -> str:
    """Return the manifests of a case, and the notes as comments. Raises HelmError.

    case: a key of CASES.
    """
    texts = rendered(CASES[case])
    (notes,) = [text for name, text in texts.items() if name.endswith(".txt")]
    manifests = {
        name: text.strip().removeprefix("---").strip()
        for name, text in texts.items()
        if name.endswith(".yaml") and not name.endswith(COPIES)
    }
    whole = "".join(f"---\n# {name}\n{text}\n" for name, text in sorted(manifests.items()) if text)
    return whole + "".join(f"{NOTES}{line}".rstrip() + "\n" for line in notes.strip().splitlines())


def main() -> None:
    import helm_python

    for case in CASES:
        head = f"# chart {chart_digest()}\n# rendered by Helm {helm_python.helm_sdk_version()}\n"
        (RENDERED / f"{case}.yaml").write_text(head + render(case), encoding="utf-8")


if __name__ == "__main__":
    main()
