"""Every fault that `make test-mutants` injects fits the present code."""

import ast

import pytest

from tests.mutants import MUTANTS, ROOT, applied


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.name)
def test_each_fault_fits_the_code_once_and_leaves_valid_code(mutant):
    text = (ROOT / mutant.file).read_text(encoding="utf-8")
    faulty = applied(mutant, text)
    assert faulty != text
    if mutant.file.endswith(".py"):
        assert ast.dump(ast.parse(faulty)) != ast.dump(ast.parse(text))


def test_names_of_faults_are_unique():
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 15
