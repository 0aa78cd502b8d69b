"""200 lines as people type them: every mark, number, picture, tag and name comes back once and in order."""

import asyncio
from pathlib import Path

import pytest

from engine.api import Placement, Service, ServiceSettings, TextOptions

HERE = Path(__file__).parent
MODELS = HERE.parents[1] / "models"


def lines_of(pair):
    """Texts with their marks, in order; a tab is written as \\t."""
    rows = (HERE / f"marks-{pair}.tsv").read_text("utf-8").splitlines()
    for row in rows:
        text, *marks = (part.replace("\\t", "\t") for part in row.split("\t"))
        yield text, marks


def whole(text, marks, answer):
    position = 0
    for mark in marks:
        position = answer.find(mark, position) + len(mark)
        if position < len(mark) or answer.count(mark) != text.count(mark):
            return False
    return True


@pytest.mark.parametrize("pair", ["de-en", "en-de"])
def test_nearly_every_line_keeps_its_marks(pair):
    if not (MODELS / f"tatoeba-{pair}").is_dir():
        pytest.skip(f"models/tatoeba-{pair} is not there")
    lines = list(lines_of(pair))
    assert len(lines) >= 100
    service = Service.open(
        [MODELS / f"tatoeba-{pair}"], ServiceSettings(Placement(lanes=((5, 16),)), verify=False)
    )
    service.start()
    try:
        options = TextOptions(protect=True, follow_form=True)
        results = asyncio.run(service.run(f"tatoeba-{pair}", [text for text, _ in lines], options))
    finally:
        service.stop(drain=False, timeout=10)
    answers = [result.text for result in results]
    missed = {t: a for (t, marks), a in zip(lines, answers, strict=True) if not whole(t, marks, a)}
    assert len(missed) <= 0.01 * len(lines), missed
