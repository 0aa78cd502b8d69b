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
CASES: Final[dict[str, dict[str, Any]]] = {
    "default": {},
    "plain": {
        "autoscaler": {"enabled": False},
        "network": {"enabled": False},
        "disruption": {"enabled": False},
        "replicas": 3,
    },
    "everything": {
        "image": {"repository": "registry.example/convoy", "tag": "1", "pullSecrets": [{"name": "registry"}]},
        "settings": {"file_limit": 10_485_760, "precision": "int8", "files": False, "watch": 2.5},
        "existingSecret": "convoy-keys",
        "models": {
            "existingClaim": "bundles",
            "fetch": ["de-en", "en-de"],
            "languages": ["de", "en"],
            "fetchedClaim": "fetched",
            "mirror": "https://mirror.example/models",
        },
        "state": {"existingClaim": "state"},
        "service": {"type": "LoadBalancer", "port": 8080},
        "monitor": {"enabled": True, "labels": {"release": "prometheus"}},
        "network": {
            "from": [{"namespaceSelector": {"matchLabels": {"name": "ingress"}}}],
            "egress": [{"ports": [{"port": 443}], "to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}],
        },
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "cpu", "operator": "Exists", "effect": "NoSchedule"}],
        "affinity": {"nodeAffinity": {}},
        "podAnnotations": {"team": "translation"},
    },
    "ray": {"ray": {"enabled": True, "workers": 3}},
}


def values_of(case: str) -> dict[str, Any]:
    """Return the values of the chart, overridden by a case."""
    return merged(yaml.safe_load((CHART / "values.yaml").read_text("utf-8")), CASES[case])


def merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Override values like Helm: maps are merged, other values are replaced."""
    both = [key for key in below if isinstance(below[key], dict) and isinstance(above.get(key), dict)]
    return below | above | {key: merged(below[key], above[key]) for key in both}


def chart_digest() -> str:
    """Return a hash of every file of the chart and of the cases."""
    digest = hashlib.sha256(json.dumps(CASES, sort_keys=True).encode())
    for path in sorted(path for path in CHART.rglob("*") if path.is_file()):
        digest.update(f"{path.relative_to(CHART)}\n".encode() + path.read_bytes())
    return digest.hexdigest()


def render(case: str) -> str:
    """Return a case rendered by Helm; its values are checked by the schema of the chart. Raises HelmError.

    case: a key of CASES.
    """
    import helm_python

    with helm_python.Chart.load(str(CHART)) as chart:
        chart.validate_schema(CASES[case])
        texts = chart.render(CASES[case], name="convoy", namespace="default")
    manifests = {name: text.strip() for name, text in texts.items() if not name.endswith(".txt")}
    return "".join(f"---\n# {name}\n{text}\n" for name, text in sorted(manifests.items()) if text)


def main() -> None:
    import helm_python

    for case in CASES:
        head = f"# chart {chart_digest()}\n# rendered by Helm {helm_python.helm_sdk_version()}\n"
        (RENDERED / f"{case}.yaml").write_text(head + render(case), encoding="utf-8")


if __name__ == "__main__":
    main()
