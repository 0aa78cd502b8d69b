"""Run the tests of Hugging Face's families with version 5 of `transformers`, too.

`make oracles` installs version 5 beside the environment, which has version 4.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.hf_models import NEWER
from tests.support.thorough import THOROUGH

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
NEWER_ORACLE = Path(os.environ.get("CONVOY_TRANSFORMERS_5", ROOT / ".venv" / "oracles" / "transformers-5"))
# tests of a file that compare with `transformers`; of other files all
COMPARED = {
    "test_hf.py": "transformers or tokenizer or direction",
    "test_ctranslate2_families.py": "tokens_of_the_family or as_documented",
}


@pytest.mark.skipif(not THOROUGH, reason="both oracles in the thorough run only: CONVOY_TEST_THOROUGH=1")
@pytest.mark.skipif(NEWER, reason="this is the run by version 5")
@pytest.mark.skipif(
    not NEWER_ORACLE.is_dir(), reason=f"there is no transformers 5 in {NEWER_ORACLE}: make oracles"
)
@pytest.mark.parametrize(
    "file", ["test_hf.py", "test_hf_added.py", "test_hf_adapters.py", "test_ctranslate2_families.py"]
)
def test_every_family_agrees_with_transformers_5(file):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--no-cov", str(HERE / file)]
    plain = {name: value for name, value in os.environ.items() if name != "CONVOY_TEST_THOROUGH"}
    run = subprocess.run(
        [*command, *(["-k", COMPARED[file]] if file in COMPARED else [])],
        cwd=ROOT,
        env=plain | {"PYTHONPATH": str(NEWER_ORACLE)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout[-4_000:]
    assert "passed" in run.stdout
