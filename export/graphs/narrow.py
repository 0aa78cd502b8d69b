"""fp16 and bf16 graphs in a bundle: for ONNX Runtime on GPUs, and only where somebody asked for them."""

from __future__ import annotations

from engine.bundle import Bundle, add_files, graph_name, graph_parts
from export.precision import NARROW
from export.standalone import graph_of


def add_narrow_graphs(bundle: Bundle, *precisions: str) -> Bundle:
    """Write graphs of these precisions into a bundle, and again those of others that it has already."""
    parts = graph_parts(bundle.config)
    held = {p for p in NARROW if graph_name(parts[-1], p) in bundle.manifest}
    wanted = sorted(held.union(precisions))
    files: dict[str, bytes] = {
        graph_name(part, p): graph_of(bundle.config, part, p) for p in wanted for part in parts
    }
    return add_files(bundle.path, files) if files else bundle
