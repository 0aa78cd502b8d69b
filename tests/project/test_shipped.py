"""The shipped bundles are complete, current and small, have a card, and translate sensibly."""

from pathlib import Path

import pytest

from engine.api import Placement, Service, ServiceSettings, TextOptions
from engine.bundle.bundle import open_bundle
from engine.bundle.shortlist import SHORTLIST
from export.graphs.onnx import graphs, shortlisted_graphs

MODELS = Path(__file__).parents[2] / "models"
NAMES = ["arxiv-title-en", "tatoeba-de-en", "tatoeba-en-de", "tatoeba-en-fr", "tatoeba-fr-en"]
ABSTRACT = (
    "Recurrent neural networks are widely used for speech recognition. In this paper we propose a new "
    "training method for deep neural networks that improves speech recognition on noisy data."
)


def test_five_bundles_are_shipped():
    assert sorted(p.parent.name for p in MODELS.glob("*/manifest.json")) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_shipped_bundle_is_complete_and_has_the_graphs_of_the_exporter(name):
    bundle = open_bundle(MODELS / name)
    assert bundle.provenance.is_demonstration  # others are fetched and preferred
    assert sum(entry.size for entry in bundle.manifest.values()) < 16 * 2**20
    listed = shortlisted_graphs(bundle.config) if SHORTLIST in bundle.files() else {}
    for path, graph in (graphs(bundle.config) | listed).items():
        assert bundle.file(path).read_bytes() == graph, f"run: convoy export models/{name}"


@pytest.mark.parametrize("name", NAMES)
def test_a_card_has_data_licence_attribution_scores_and_commands(name):
    card = open_bundle(MODELS / name).file("README.md").read_text("utf-8")
    for part in (
        "data:",
        "licence:",
        "attribution:",
        "made by: `convoy train",
        "Measured by `convoy evaluate",
    ):
        assert part in card
    assert ("ROUGE-1" if "title" in name else "BLEU") in card
    assert f"- one command: `python -m training.reproduce {name} SOURCES" in card


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("tatoeba")])
def test_a_card_and_the_page_have_the_same_scores_of_each_domain(name):
    card = open_bundle(MODELS / name).file("README.md").read_text("utf-8")
    rows = card.split("| domain | BLEU, chrF |\n| --- | --- |\n")[1].split("\n\n")[0].splitlines()
    scores = dict(row.strip("| ").split(" | ") for row in rows)
    lines = (MODELS.parent / "training" / "heldout.tsv").read_text("utf-8").splitlines()
    assert list(scores) == [*dict.fromkeys(line.split("\t")[0] for line in lines), "all"]
    page = (MODELS.parent / "docs" / "training.md").read_text("utf-8")
    assert f"| {name} | {' | '.join(scores.values())} |" in page


@pytest.mark.parametrize("precision", ["fp32", "int8"])
async def test_shipped_models_answer_sensibly(precision):
    service = Service.open([MODELS], ServiceSettings(Placement(lanes=((5, 8),), precision=precision)))
    service.start()
    try:
        (english,) = await service.run("tatoeba-de-en", ["Wo ist der Bahnhof?"])
        (german,) = await service.run("tatoeba-en-de", ["Where is Tom?"])
        (gare,) = await service.run("tatoeba-fr-en", ["Où est la gare ?"])
        (french,) = await service.run("tatoeba-en-fr", ["Where is the station?"])
        (title,) = await service.run("arxiv-title-en", [ABSTRACT], TextOptions(decode={"max_length": 20}))
    finally:
        service.stop()
    assert "station" in english.text
    assert "Where" in english.text
    assert gare.text.startswith("Where") and "station" in gare.text
    assert french.text.startswith("Où") and "gare" in french.text
    assert german.text.startswith("Wo ist Tom")
    assert {"neural", "speech", "recognition", "networks", "training"} & set(title.text.lower().split())
