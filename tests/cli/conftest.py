"""Bundles and texts for tests of the command line."""

from __future__ import annotations

import pytest

from tests.cli.commands import GOLDEN, done, golden_lines


@pytest.fixture(scope="session")
def bundle(tmp_path_factory):
    path = tmp_path_factory.mktemp("cli") / "dyn_glu"
    done("convert", "fairseq", GOLDEN, path)
    return path


@pytest.fixture(scope="session")
def source(tmp_path_factory):
    """A file of twelve lines, with an empty line and a line without words."""
    _, lines = golden_lines()
    chosen = list(lines.values())[:10]
    path = tmp_path_factory.mktemp("text") / "source.txt"
    path.write_text("\n".join([*chosen[:3], "", "...", *chosen[3:]]) + "\n", "utf-8")
    return path


@pytest.fixture(scope="session")
def summarizer(tmp_path_factory):
    path = tmp_path_factory.mktemp("cli") / "summarizer"
    done("convert", "fairseq", GOLDEN, path, "--task", "summarize")
    return path
