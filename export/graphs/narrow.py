"""Add fp16 graphs, for ONNX Runtime on GPUs, to a bundle; bundles lack them by default."""

from __future__ import annotations

from engine.bundle.bundle import Bundle, add_files, graph_name, graph_parts
from export.graphs.precision import NARROW
from export.graphs.standalone import graph_of


def add_narrow_graphs(bundle: Bundle, *precisions: str) -> Bundle:
    """Write graphs of these precisions into a bundle, and rewrite its other fp16 and bf16 graphs.

    Bundles of earlier releases may hold bf16 graphs, which ONNX Runtime does not run.
    """
    parts = graph_parts(bundle.config)
    existing = {p for p in NARROW if graph_name(parts[-1], p) in bundle.manifest}
    all_precisions = sorted(existing.union(precisions))
    files: dict[str, bytes] = {
        graph_name(part, p): graph_of(bundle.config, part, p) for p in all_precisions for part in parts
    }
    return add_files(bundle.path, files) if files else bundle
