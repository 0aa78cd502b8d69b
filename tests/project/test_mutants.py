"""The list of faults follows the code; `make test-mutants` runs them."""

import pytest

from tests.mutants import MUTANTS, ROOT, applied


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.name)
def test_each_fault_fits_the_code_exactly_once(mutant):
    text = (ROOT / mutant.file).read_text(encoding="utf-8")
    assert applied(mutant, text) != text


def test_there_are_enough_faults_with_names_of_their_own():
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 15
