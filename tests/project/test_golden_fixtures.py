"""Incomplete fixtures are skipped by name, and do not break the collection of tests."""

from __future__ import annotations

from tests.support import golden_fixtures
from tests.support.golden_fixtures import ENSEMBLE, checkpoints, parameters


def test_an_empty_folder_of_an_ensemble_is_a_skipped_fixture(tmp_path, monkeypatch):
    for root in ("SHARED", "SELECTION"):
        (tmp_path / root / ENSEMBLE).mkdir(parents=True)
        monkeypatch.setattr(golden_fixtures, root, tmp_path / root)
    assert checkpoints(tmp_path / "SHARED" / ENSEMBLE) == []
    (one,) = parameters(ENSEMBLE)
    assert [mark.name for mark in one.marks] == ["skip"]
