"""Shortlists: learning, decoding steps, and the options that select them."""

import gzip
import shutil
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save

from cli.main import app
from engine.api import BundleError, InvalidRequest, Service, ServiceSettings, TextOptions
from engine.backends import Placement
from engine.bundle.bundle import add_files, open_bundle
from engine.bundle.shortlist import SHORTLIST, Shortlist, load_shortlist
from engine.errors import ConfigError
from engine.executors import open_executors, uses_shortlist
from engine.executors.shortlists import SlotShortlists
from engine.repository.loading import facts_of
from engine.search.executor import StepInput
from engine.text.tokenizers.tokenizer import open_tokenizer
from engine.types import DecodeOptions
from export.graphs.onnx import shortlisted_graphs
from server.settings import ServerSettings
from tests.support.served import VOCABULARY, bundles, server, settings_of
from training.words.shortlist import learn

EOS = 2
pairs_of_tokens = st.lists(
    st.tuples(*(st.lists(st.integers(3, 8), min_size=1, max_size=5) for _ in range(2))),
    min_size=1,
    max_size=6,
)


def model_1(pairs, rounds):
    """Return t(target | source) of IBM model 1 in loops, initially uniform."""
    t = {}
    for source, target in pairs:
        for f in {*source, EOS}:
            for e in target:
                t[e, f] = 1.0
    for _ in range(rounds):
        count, total = dict.fromkeys(t, 0.0), {}
        for source, target in pairs:
            for e in target:
                norm = sum(t[e, f] for f in {*source, EOS})
                for f in {*source, EOS}:
                    count[e, f] += t[e, f] / norm
                    total[f] = total.get(f, 0.0) + t[e, f] / norm
        t = {(e, f): c / total[f] for (e, f), c in count.items()}
    return t


@given(pairs_of_tokens, st.integers(1, 4))
def test_likely_targets_equal_those_of_ibm_model_1(pairs, likely):
    found = learn(pairs, (9, 9), EOS, (likely, 1))
    t = model_1(pairs, 4)
    for source in range(9):
        best = sorted((p for (_, f), p in t.items() if f == source), reverse=True)[:likely]
        ids = [e for e in found.likely[source].tolist() if e >= 0]
        assert len(ids) == len(set(ids)) == len(best)
        np.testing.assert_allclose([t[e, source] for e in ids], best, rtol=1e-9)


def test_frequent_tokens_and_the_end_of_sentence_are_always_there():
    found = learn([([3], [5, 5, 6]), ([4], [6, 5, 7])], (9, 9), EOS, (1, 2))
    assert found.always.tolist() == [EOS, 5, 6]
    assert set(found.of([3, EOS])) >= {EOS, 5, 6}


def test_nothing_is_learned_from_nothing():
    with pytest.raises(InvalidRequest, match="no sentence pairs"):
        learn([], (9, 9), EOS, (1, 1))


def random_shortlist(seed, likely=9, always=12):
    rng = np.random.default_rng(seed)
    own = rng.integers(-1, VOCABULARY, (VOCABULARY, likely)).astype(np.int32)
    own[own == 1] = -1  # padding is always banned, so its probability can't be seen
    frequent = np.unique([EOS, *rng.integers(4, VOCABULARY, always)]).astype(np.int32)
    return Shortlist(own, frequent)


@pytest.fixture(scope="module")
def listed(tmp_path_factory):
    """Return a bundle with a shortlist of random tokens."""
    path = tmp_path_factory.mktemp("listed") / "toy-de-en"
    shutil.copytree(bundles() / "toy-de-en", path)
    graphs = shortlisted_graphs(open_bundle(path).config)
    return add_files(path, {SHORTLIST: random_shortlist(0).dump(), **graphs})


@given(
    st.lists(st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=20), min_size=1, max_size=4),
    st.data(),
)
def test_shortlist_depends_on_its_source_and_contains_forced_tokens(sources, data):
    shortlist, n = random_shortlist(1), len(sources)
    among = SlotShortlists(shortlist, n + 1)
    for slot, source in enumerate(sources):
        among.place(slot, shortlist.of(source))
    among.move(0, n)  # a copy moves to the end and the first slot is reused
    among.place(0, shortlist.of([EOS]))
    forced = np.array(
        data.draw(
            st.lists(
                st.lists(st.integers(-1, VOCABULARY - 1), min_size=2, max_size=2),
                min_size=n + 1,
                max_size=n + 1,
            )
        )
    )
    found = among.view(n + 1, forced)
    assert found.shape[1] % 64 == 0
    for row, source, wanted in zip(found, [[EOS], *sources[1:], sources[0]], forced, strict=True):
        own = {*shortlist.always.tolist(), *shortlist.likely[source].ravel().tolist()} - {-1}
        ids = row[row >= 0].tolist()
        assert len(ids) == len(set(ids))
        assert set(ids) == own | {t for t in wanted.tolist() if t >= 0}
        assert row[: len(ids)].tolist() == ids


def finite(topk, slot, beam):
    pairs = zip(topk.ids[slot, beam].tolist(), topk.scores[slot, beam].tolist(), strict=True)
    return {token: score for token, score in pairs if score > -np.inf}


@pytest.mark.parametrize(
    ("backend", "precision"),
    [*product(("onnx-pure", "onnx-native"), ("fp32", "int8")), ("torch", "fp32")],
)
def test_a_step_normalises_over_the_list_and_takes_nothing_else(listed, backend, precision):
    """Compared with log-probabilities of the whole vocabulary, restricted and normalised in numpy."""
    beams, n = 3, 2
    rng = np.random.default_rng(5)
    sources = [[*rng.integers(4, VOCABULARY, size), EOS] for size in (3, 11)]
    whole, short = (
        open_executors(listed, Placement(backend, "cpu", precision, 1, ((beams, n),), shortlist))[0]
        for shortlist in (False, True)
    )
    inputs = StepInput(
        tokens=rng.integers(4, VOCABULARY, (n, beams)),
        positions=np.zeros((n, 1), np.int64),
        parents=np.zeros((n, beams), np.int64),
        forced=np.array([[-1, -1, 7], [-1, 9, -1]]),
        banned=np.ones((n, beams, 1), np.int64),
        temperature=np.array([1.0, 0.7], np.float32),
        unk_penalty=np.zeros(n, np.float32),
        eos_penalty=np.array([0.5, 0.0], np.float32),
        lm_weight=np.zeros(n, np.float32),
        k=VOCABULARY,
    )
    lanes = []
    for executor in (whole, short):
        encoded = executor.encode(sources)
        for slot in range(n):
            executor.place(encoded, slot, slot)
        free = inputs._replace(forced=np.full((n, beams), -1)) if executor is whole else inputs
        arrays = [
            part if name == "k" else executor.namespace.asarray(part) for name, part in free._asdict().items()
        ]
        lanes.append(executor.step(n, StepInput(*arrays)))
    shortlist = random_shortlist(0)
    for slot, source in enumerate(sources):
        own = {*shortlist.of(source).tolist()}
        for beam in range(beams):
            forced = int(inputs.forced[slot, beam])
            everything = finite(lanes[0], slot, beam)
            everything[EOS] += inputs.eos_penalty[slot]
            allowed = own | {t for t in inputs.forced[slot].tolist() if t >= 0}
            norm = np.logaddexp.reduce([everything[t] for t in allowed])
            found = finite(lanes[1], slot, beam)
            assert set(found) == ({forced} if forced >= 0 else allowed)
            for token, score in found.items():
                score += inputs.eos_penalty[slot] * (token == EOS)
                assert score == pytest.approx(everything[token] - norm, abs=1e-4)


@pytest.mark.parametrize("backend", ["onnx-pure", "onnx-native"])
def test_a_list_of_everything_changes_nothing(tmp_path, backend):
    path = tmp_path / "toy-de-en"
    shutil.copytree(bundles() / "toy-de-en", path)
    everything = Shortlist(np.full((VOCABULARY, 1), -1, np.int32), np.arange(VOCABULARY, dtype=np.int32))
    add_files(path, {SHORTLIST: everything.dump(), **shortlisted_graphs(open_bundle(path).config)})
    texts = ["Das ist ein Haus.", "Wir gehen.", "Ja"]
    found = []
    for shortlist in (False, True):
        service = Service.open(
            [path], ServiceSettings(Placement(backend=backend, lanes=((4, 4),), shortlist=shortlist))
        )
        service.start()
        found.append(list(service.run_many("toy-de-en", texts, TextOptions(decode={"n_best": 3}))))
        service.stop()
    for plain, listed in zip(*found, strict=True):
        assert plain.text == listed.text
        assert plain.score == pytest.approx(listed.score, abs=1e-5)


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_an_answer_from_a_shortlist_depends_on_nothing_else_in_the_batch(listed, precision):
    texts = [f"Satz {i}: " + "das Haus am See " * (i % 5 + 1) for i in range(12)]
    service = Service.open(
        [listed.path], ServiceSettings(Placement(precision=precision, lanes=((4, 8),), shortlist=True))
    )
    service.start()
    try:
        together = list(service.run_many("toy-de-en", texts))
        alone = [next(iter(service.run_many("toy-de-en", [text]))) for text in texts]
    finally:
        service.stop()
    assert [(r.text, r.score) for r in together] == [(r.text, r.score) for r in alone]


def test_a_server_with_a_shortlist_answers_and_refuses_to_score(listed):
    def opened(observe, **settings):
        return Service.open([listed.path], settings_of(**settings), observe)

    with server({"shortlist": True}, opened) as (client, _, _):
        answer = client.post("/translate", json={"q": "Ein Haus", "source": "de", "target": "en"})
        assert answer.status_code == 200
        body = {"model": "toy-de-en", "q": ["A house"], "source_text": ["Ein Haus"]}
        refused = client.post("/score", json=body)
        assert refused.status_code == 400
        assert "with --no-shortlist" in refused.text


def test_missing_shortlist_error_names_the_command():
    with pytest.raises(BundleError, match="convoy shortlist BUNDLE PAIRS"):
        Service.open([bundles()], ServiceSettings(Placement(shortlist=True)))


@pytest.mark.parametrize(
    ("flags", "alike"),
    [
        ([], ["--precision", "int8", "--beam-size", "2", "--shortlist"]),
        (["--no-shortlist"], ["--precision", "int8", "--beam-size", "2", "--no-shortlist"]),
        (["--n-best", "3"], ["--precision", "int8", "--beam-size", "3", "--n-best", "3", "--shortlist"]),
        (["--precision", "fp32", "--beam-size", "4", "--no-shortlist"], ["--beam-size", "4"]),
    ],
)
def test_fast_selects_int8_beam_2_and_shortlist_by_default(listed, tmp_path, capsys, flags, alike):
    text = tmp_path / "text"
    text.write_text("ein Haus\nein See\n")

    def printed(*more):
        with pytest.raises(SystemExit) as done:
            app(["translate", str(text), "--model", str(listed.path), "--json", *more])
        assert done.value.code == 0
        return capsys.readouterr().out

    assert printed("--fast", *flags) == printed(*alike)


def test_a_fast_server_has_a_beam_of_2_and_the_shortlists_there_are(listed):
    def settled(bundle, **more):
        settings = ServerSettings(fast=True, **more).service()
        info = facts_of(bundle, settings).info
        return info.precision, info.options.beam_size, info.limits.shortlisted, len(settings.placement.lanes)

    assert settled(listed) == ("int8", 2, True, 4)
    assert settled(open_bundle(bundles() / "toy-de-en")) == ("int8", 2, False, 4)
    assert settled(replace(listed, options=DecodeOptions(beam_size=1))) == ("int8", 1, True, 4)
    chosen = {"precision": "fp32", "beam_size": 4, "shortlist": False, "lanes": "4x8"}
    assert settled(listed, **chosen) == ("fp32", 4, False, 1)


def test_on_a_gpu_fast_is_half_precision():
    placement = ServerSettings(fast=True, device="cuda:1", backend="cuda").service().placement
    assert (placement.device, placement.precision) == ("cuda:1", "bundle")
    assert ServerSettings(fast=True, device="cuda", backend="torch").service().placement.precision == "fp16"


def test_backend_without_shortlists_refuses_them(listed):
    with pytest.raises(ConfigError, match="for the CPU and the backends cuda and torch"):
        open_executors(listed, Placement("onnx", "cuda", shortlist=True))
    with pytest.raises(ConfigError, match="torch in int8 has no shortlists"):
        open_executors(listed, Placement("torch", precision="int8", shortlist=True))


def test_shortlists_are_the_default_on_the_cpu_only(listed):
    made = replace(listed, shortlisted=True)
    used = {
        (backend, device): uses_shortlist(made, Placement(backend, device))
        for backend, device in (("onnx", "cpu"), ("onnx", "cuda"), ("torch", "cpu"), ("cuda", "cuda"))
    }
    assert used == {
        ("onnx", "cpu"): True,
        ("onnx", "cuda"): False,
        ("torch", "cpu"): False,
        ("cuda", "cuda"): False,
    }
    assert uses_shortlist(made, Placement("cuda", "cuda", shortlist=True))


def rows_of(likely, lengths):
    """Return a shortlist file with rows of these lengths."""
    return save(
        {"likely": np.array(likely, np.int16), "always": np.array([EOS], np.int16), "lengths": lengths}
    )


@pytest.mark.parametrize(
    "wrong",
    [
        b"nothing",
        Shortlist(np.zeros((VOCABULARY - 1, 2), np.int32), np.array([EOS], np.int32)).dump(),
        Shortlist(np.zeros((VOCABULARY, 2), np.int32), np.array([3], np.int32)).dump(),
        Shortlist(np.full((VOCABULARY, 2), VOCABULARY, np.int32), np.array([EOS], np.int32)).dump(),
        rows_of([5, 6, 7], np.array([4, -1] + [0] * (VOCABULARY - 2), np.int16)),
        rows_of([5, 6, 7], np.array([2] + [0] * (VOCABULARY - 1), np.int16)),
        rows_of([5, 6, 7], np.array([np.inf] + [0] * (VOCABULARY - 1))),
        rows_of([5] * 30_000, np.array([30_000] + [0] * 9_999, np.int16)),
    ],
)
def test_a_list_that_does_not_fit_is_refused(wrong):
    with pytest.raises(BundleError, match="run: convoy shortlist"):
        load_shortlist(wrong, (VOCABULARY, VOCABULARY), EOS)


def test_padded_rows_of_earlier_files_are_read():
    rows = np.arange(8 * VOCABULARY, dtype=np.int16).reshape(VOCABULARY, 8) % VOCABULARY
    rows[3:, 5:] = -1
    always = np.array([EOS], np.int16)
    old = load_shortlist(save({"likely": rows, "always": always}), (VOCABULARY, VOCABULARY), EOS)
    new = load_shortlist(old.dump(), (VOCABULARY, VOCABULARY), EOS)
    assert old.likely.tolist() == new.likely.tolist() == rows.tolist()
    assert len(old.dump()) < len(save({"likely": rows, "always": always}))


def test_command_learns_a_shortlist_from_gzipped_tsv_and_model_uses_it(tmp_path, capsys):
    path, table = tmp_path / "toy-de-en", tmp_path / "pairs.tsv.gz"
    shutil.copytree(bundles() / "toy-de-en", path)
    table.write_bytes(gzip.compress(b"ein Haus\ta house\nein See\ta lake\n"))
    with pytest.raises(SystemExit) as done:
        app(["shortlist", str(path), str(table), "--likely", "3", "--always", "4"])
    assert done.value.code == 0
    assert "from 2 pairs" in capsys.readouterr().out
    opened = open_bundle(path)
    found = load_shortlist(opened.file(SHORTLIST).read_bytes(), (VOCABULARY, VOCABULARY), EOS)
    assert found.likely.shape == (VOCABULARY, 3)
    service = Service.open([path], ServiceSettings(Placement(lanes=((4, 4),), shortlist=True)))
    service.start()
    try:
        (answer,) = service.run_many("toy-de-en", ["ein Haus"])
    finally:
        service.stop()
    allowed = {*found.of(open_tokenizer(opened).encode("ein Haus")), *found.likely[EOS].tolist(), EOS}
    names = open_tokenizer(opened).pieces(sorted(allowed - {-1}), target=True)
    assert set(answer.tokens) <= set(names)


def test_command_refuses_a_file_without_columns(tmp_path, capsys):
    path, table = tmp_path / "toy-de-en", tmp_path / "pairs.tsv"
    shutil.copytree(bundles() / "toy-de-en", path)
    table.write_text("no tabs here\n")
    with pytest.raises(SystemExit) as done:
        app(["shortlist", str(path), str(table)])
    assert done.value.code == 2
    assert "1 columns" in capsys.readouterr().err
    assert SHORTLIST not in open_bundle(path).files()


@pytest.mark.parametrize("multiple", [1, 8, 16])
def test_number_of_candidates_is_rounded_up_with_the_lowest_ids(multiple):
    likely, always = np.array([[40, -1], [41, 42]], np.int32), np.array([2, 5], np.int32)
    found = Shortlist(likely, always, multiple).of([0, 1]).tolist()
    needed = {2, 5, 40, 41, 42}
    assert found == sorted(set(found))
    assert needed <= set(found)
    assert len(found) == -(-len(needed) // multiple) * multiple
    added = sorted(set(found) - needed)
    assert added == [token for token in range(43) if token not in needed][: len(added)]
