"""The list of faults follows the code; `make test-mutants` runs them."""

import ast

import pytest

from tests.mutants import MUTANTS, ROOT, applied


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.name)
def test_each_fault_fits_the_code_exactly_once_and_leaves_it_code(mutant):
    text = (ROOT / mutant.file).read_text(encoding="utf-8")
    faulty = applied(mutant, text)
    assert faulty != text
    if mutant.file.endswith(".py"):
        assert ast.dump(ast.parse(faulty)) != ast.dump(ast.parse(text))


def test_there_are_enough_faults_with_names_of_their_own():
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 15
