"""The chart of deploy/helm rendered with a few sets of values, kept in tests/deploy/rendered.

    python -m tests.deploy.chart        renders all anew; needs helm, or Go (`go` on PATH, or CONVOY_GO)

Without helm, Go's text/template renders: helm's own engine. The functions that helm adds to it are
tests/deploy/gotemplate/main.go's, as far as the chart uses them. Each file names its renderer and the
hash of its chart: a test fails when the chart has changed since.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Final

import yaml

CHART: Final = Path(__file__).parents[2] / "deploy" / "helm" / "convoy"
RENDERED: Final = Path(__file__).parent / "rendered"
PROGRAM: Final = Path(__file__).parent / "gotemplate" / "main.go"
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
    """Return the chart's values with those of a case over them."""
    return merged(yaml.safe_load((CHART / "values.yaml").read_text("utf-8")), CASES[case])


def merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Lay values over others as helm does: maps are merged, all else is replaced."""
    both = [key for key in below if isinstance(below[key], dict) and isinstance(above.get(key), dict)]
    return below | above | {key: merged(below[key], above[key]) for key in both}


def chart_digest() -> str:
    """Hash every file of the chart, and the cases."""
    digest = hashlib.sha256(json.dumps(CASES, sort_keys=True).encode())
    for path in sorted(path for path in CHART.rglob("*") if path.is_file()):
        digest.update(f"{path.relative_to(CHART)}\n".encode() + path.read_bytes())
    return digest.hexdigest()


def renderer() -> str | None:
    """Name the program that can render here: helm, Go, or none."""
    return shutil.which("helm") or os.environ.get("CONVOY_GO") or shutil.which("go")


def render(case: str, program: str) -> str:
    """Render a case. Raises RuntimeError with what the program said.

    case: a key of CASES.
    program: helm or Go.
    """
    if Path(program).name == "helm":
        with tempfile.NamedTemporaryFile("w", suffix=".json") as values:
            json.dump(CASES[case], values)
            values.flush()
            return _run([program, "template", "convoy", str(CHART), "-f", values.name])
    metadata = yaml.safe_load((CHART / "Chart.yaml").read_text("utf-8"))
    paths = sorted(path for path in (CHART / "templates").iterdir() if path.suffix != ".txt")
    chart = {"AppVersion": metadata["appVersion"], "Name": metadata["name"]}
    data = {"Values": values_of(case), "Release": {"Name": "convoy"}, "Chart": chart}
    stdin = json.dumps({"files": {path.name: path.read_text("utf-8") for path in paths}, "data": data})
    texts: dict[str, str] = json.loads(_run([program, "run", str(PROGRAM)], stdin))
    return "".join(f"---\n# {name}\n{text.strip()}\n" for name, text in sorted(texts.items()) if text.strip())


def version_of(program: str) -> str:
    """Return the version of the program that renders."""
    return _run([program, "version", *(["--short"] if Path(program).name == "helm" else [])]).strip()


def _run(command: list[str], stdin: str = "") -> str:
    done = subprocess.run(command, input=stdin, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{command[0]}: {done.stderr.strip()}")
    return done.stdout


def main() -> None:
    program = renderer()
    if program is None:
        raise SystemExit("neither helm nor Go is here: install one, or name Go by CONVOY_GO")
    for case in CASES:
        head = f"# chart {chart_digest()}\n# rendered by {version_of(program)}\n"
        (RENDERED / f"{case}.yaml").write_text(head + render(case, program), encoding="utf-8")


if __name__ == "__main__":
    main()
