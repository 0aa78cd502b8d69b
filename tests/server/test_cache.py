"""Answers that are kept: the same as computed ones, never too many, never a model's that has gone."""

import asyncio
from collections import OrderedDict
from dataclasses import replace

import hypothesis.strategies as st
import pytest
from hypothesis import given

from engine.api import MarkedText, ModelRoute, Service, TextOptions, TextResult, Timings, at_once
from server.cache import Cache, keys_of, repeatable, size_of
from tests.server.test_reload import NAME, TOKEN, asked, place, rewritten
from tests.server.test_server_process import GERMAN
from tests.support.served import open_service, server, until

KEYS = st.binary(min_size=1, max_size=1)
OPERATIONS = st.lists(st.tuples(st.booleans(), KEYS, st.integers(0, 900)), max_size=60)
OPTIONS = [
    TextOptions(),
    TextOptions(decode={"beam_size": 1}),
    TextOptions(decode={"beam_size": 1.0}),
    TextOptions(decode={"length_penalty": 1}),
    TextOptions(alternatives=1),
    TextOptions(split=False),
    TextOptions(ignore=("a", "b")),
    TextOptions(ignore=("a, b",)),
    TextOptions(glossary={"a": "b"}),
    TextOptions(prefix="a"),
]


def key_of(route, text, options):
    return at_once(keys_of(route, [text], options))[0]


def counted(client, kind):
    lines = client.get("/metrics").text.splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(f"convoy_cache_{kind}_total{{"))


@given(limit=st.integers(0, 4000), operations=OPERATIONS)
def test_cache_evicts_the_least_recently_used_answers(limit, operations):
    """The oracle keeps all in order of use and drops from the front."""
    cache, oracle = Cache(limit), OrderedDict()
    weights = {}
    for writes, key, length in operations:
        result = TextResult("x" * length)
        if writes:
            cache.put(key, result)
            oracle.pop(key, None)
            alone = Cache(10**9)
            alone.put(b"", result)
            weights[key] = alone.size()
            if weights[key] <= limit:
                oracle[key] = result
                while sum(weights[k] for k in oracle) > limit:
                    oracle.popitem(last=False)
        elif key in oracle:
            oracle.move_to_end(key)
            assert cache.get(key) == oracle[key]
        else:
            assert cache.get(key) is None
        assert cache.size() == sum(weights[k] for k in oracle) <= limit
    cache.clear()
    assert cache.size() == 0


@given(text=st.text(max_size=300), tokens=st.lists(st.text(max_size=9), max_size=30))
def test_estimated_size_of_an_answer_covers_its_parts(text, tokens):
    size = size_of(TextResult(text, tokens=tokens, token_scores=[0.5] * len(tokens)))
    assert size >= len(text.encode("utf-32-le")) // 4 + sum(map(len, tokens)) + 8 * len(tokens)


@pytest.fixture(scope="module")
def route():
    return open_service().route(NAME)


def test_cache_key_depends_on_everything_that_changes_an_answer(route):
    keys = [key_of(route, "Das", options) for options in OPTIONS]
    keys += [
        key_of(route, text, OPTIONS[0]) for text in ("das", MarkedText("Das"), MarkedText("Das", ((0, 1),)))
    ]
    (leg,) = route.legs
    others = [
        ModelRoute((replace(leg, info=replace(leg.info, **{name: "other"})),)) for name in ("digest", "name")
    ]
    keys += [key_of(other, "Das", OPTIONS[0]) for other in others]
    assert len(set(keys)) == len(keys)
    assert keys[0] == key_of(route, "Das", TextOptions())


def test_the_bundles_behind_a_name_are_found_whatever_the_name(route):
    service = open_service()
    names = {
        NAME: [NAME],
        f"{NAME}+toy-en-de": [NAME, "toy-en-de"],
        f"{NAME}@de:en": [NAME],
        f"{NAME}@de:en+toy-en-de@en:de": [NAME, "toy-en-de"],
    }
    for name, expected in names.items():
        assert [info.name for info in service.route(name).infos] == expected
    digests = {info.digest for info in service.models()}
    assert len(digests) == 3
    assert all(len(digest) == 64 for digest in digests)


def test_sampling_is_repeatable_with_a_seed_only(route):
    infos = route.infos
    sampled = [replace(infos[0], options=replace(infos[0].options, sampling=True))]
    assert repeatable(infos, TextOptions())
    assert not repeatable(infos, TextOptions(decode={"sampling": True}))
    assert repeatable(infos, TextOptions(decode={"sampling": True, "seed": 3}))
    assert not repeatable(sampled, TextOptions())
    assert repeatable(sampled, TextOptions(decode={"sampling": False}))


def test_an_answer_of_the_cache_is_the_one_that_was_computed():
    wishes = {"scores": True, "alternatives": 2, "alignment": True, "coverage": True}
    batch = GERMAN | wishes | {"q": ["Das ist gut.", "Wo ist das?", "Das ist gut."]}
    with server() as (client, house, _):
        assert house.cache is None
        computed = client.post("/translate", json=batch).json()
        client.post("/translate", json=batch)
        assert counted(client, "hits") == counted(client, "misses") == 0
    with server(cache_bytes="1MB") as (client, house, _):
        first = client.post("/translate", json=batch)
        assert (counted(client, "misses"), counted(client, "hits")) == (3, 0)
        answered = house.service.stats()[NAME].answered
        second = client.post("/translate", json=batch)
        assert counted(client, "hits") == 3
        assert house.service.stats()[NAME].answered == answered, "the engine has no part in it"
        assert first.json() == second.json() == computed
        part = client.post("/translate", json=batch | {"q": ["Das ist neu.", "Wo ist das?"]})
        assert counted(client, "hits") == 4
        assert part.json()["translatedText"][1] == computed["translatedText"][1]
        infer = {"inputs": [{"name": "text", "shape": [1], "datatype": "BYTES", "data": ["Das ist gut."]}]}
        name = client.get(f"/v2/models/{NAME}").json()["inputs"][0]["name"]
        infer["inputs"][0]["name"] = name
        for _ in range(2):
            assert client.post(f"/v2/models/{NAME}/infer", json=infer).status_code == 200
        assert counted(client, "hits") == 5
        assert f"convoy_cache_bytes {float(house.cache.size())}" in client.get("/metrics").text


def test_a_stream_of_a_kept_answer_is_its_result_alone():
    with server(cache_bytes=1_000_000) as (client, _, _):
        texts = GERMAN | {"q": ["Das ist gut.", "Wo ist das?"]}
        client.post("/translate", json=texts | {"q": texts["q"][:1]})
        streamed = client.post("/translate", json=texts | {"stream": True}).text
        assert '"index":1' in streamed
        assert '"index":0' not in streamed
        again = client.post("/translate", json=texts | {"stream": True}).text
        assert [line for line in again.splitlines() if line.startswith("event:")] == ["event: result"]
        plain = client.post("/translate", json=texts).text
        assert f"data: {plain}" in streamed
        assert f"data: {plain}" in again


def test_sampling_without_a_seed_is_never_kept():
    with server(cache_bytes=1_000_000) as (client, house, _):
        for wish in ({"sampling": True}, {"sampling": True}):
            assert client.post("/translate", json=GERMAN | wish).status_code == 200
        assert (house.cache.size(), counted(client, "misses")) == (0, 0)
        answers = [
            client.post("/translate", json=GERMAN | {"sampling": True, "seed": 5}).json() for _ in range(2)
        ]
        assert answers[0] == answers[1]
        assert counted(client, "hits") == 1


def test_timings_of_a_kept_answer_are_none():
    cache = Cache(10_000)
    cache.put(b"a", TextResult("text", timings=Timings(1.0, 1.0, 1.0, 3)))
    assert cache.get(b"a") == TextResult("text")


def test_an_answer_that_a_reload_has_overtaken_is_not_kept(tmp_path, monkeypatch):
    with place(tmp_path, admin_token="operator-operator", cache_bytes=1_000_000) as (client, house, models):
        run = Service.run

        async def overtaken(self, *values, **named):
            results = await run(self, *values, **named)
            rewritten(models / NAME, lambda w: -w)
            reload = await asyncio.to_thread(client.post, f"/models/{NAME}/reload", headers=TOKEN)
            assert reload.status_code == 200
            return results

        monkeypatch.setattr(Service, "run", overtaken)
        old = asked(client)
        monkeypatch.undo()
        assert house.cache.size() == 0
        assert asked(client) != old


def test_a_reload_empties_the_cache_and_new_answers_are_the_new_models(tmp_path):
    with place(tmp_path, admin_token="operator-operator", cache_bytes=1_000_000) as (client, house, models):
        old = asked(client)
        assert (asked(client), counted(client, "hits")) == (old, 1)
        rewritten(models / NAME, lambda w: -w)
        assert client.post(f"/models/{NAME}/reload", headers=TOKEN).status_code == 200
        assert house.cache.size() == 0
        assert asked(client) != old
        until(lambda: house.cache.size() > 0)
