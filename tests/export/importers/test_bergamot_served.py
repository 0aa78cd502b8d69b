"""A service with a folder of students offers all pairs and pivots within a memory budget."""

from __future__ import annotations

import asyncio
import shutil

import pytest

from engine.api import Placement, Service, ServiceSettings, TextOptions
from export.graphs.onnx import add_graphs
from export.importers import convert
from tests.support.served import server
from tests.support.students import GOLDEN

LANES = ((1, 4),)


@pytest.fixture(scope="module")
def bundles(tmp_path_factory):
    """Return a folder of three pairs with English, all with the same weights."""
    root = tmp_path_factory.mktemp("pairs")
    for pair in ("deen", "enfr", "csen"):
        folder = root / "files" / pair
        folder.mkdir(parents=True)
        for path in GOLDEN.glob("*deen*"):
            shutil.copy(path, folder / path.name.replace("deen", pair))
        add_graphs(convert("bergamot", folder, root / "bundles" / pair))
    return root / "bundles"


def test_every_pair_and_pivot_is_listed_and_answers_within_the_budget(bundles):
    placement = Placement(precision="int8", lanes=LANES)
    (cost, *_) = {
        kept.cost
        for kept in Service.open([bundles], ServiceSettings(placement)).repository_entries().values()
    }

    def opened(observe):
        return Service.open([bundles], ServiceSettings(placement, budget=2 * cost), observe)

    with server(opened=opened) as (client, *_):
        listed = {entry["code"]: set(entry["targets"]) for entry in client.get("/languages").json()}
        assert listed["de"] >= {"en", "fr"}
        assert listed["cs"] >= {"en", "fr"}
        assert listed["en"] >= {"fr"}
        for source, target in (("de", "fr"), ("cs", "en"), ("cs", "fr"), ("de", "en")):
            reply = client.post("/translate", json={"q": "Guten Morgen.", "source": source, "target": target})
            assert reply.status_code == 200, reply.text
            assert reply.json()["translatedText"]


def test_pivot_translates_the_first_models_answer_with_the_second(bundles):
    service = Service.open([bundles], ServiceSettings(Placement(precision="int8", lanes=LANES)))
    service.start()
    try:
        name = service.pick("translate", "de", "fr").name
        assert name == "deen+enfr"
        (whole,) = asyncio.run(service.run(name, ["Wo ist der Bahnhof?"], TextOptions()))
        (first,) = asyncio.run(service.run("deen", ["Wo ist der Bahnhof?"], TextOptions()))
        (second,) = asyncio.run(service.run("enfr", [first.text], TextOptions()))
        assert (whole.via.text, whole.text) == (first.text, second.text)
    finally:
        service.stop(drain=False, timeout=30)
