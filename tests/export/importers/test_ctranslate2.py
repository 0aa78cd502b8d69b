"""CTranslate2's models beside CTranslate2 itself: files that its specifications write, and its answers."""

from __future__ import annotations

import json
import struct
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ctranslate2 import Translator
from ctranslate2.specs import wav2vec2_spec, whisper_spec
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.bundle.bundle import Bundle, open_bundle
from engine.bundle.shortlist import SHORTLIST, load_shortlist
from engine.errors import BundleError, CheckpointError
from engine.executors.onnx.executor import OnnxExecutor
from engine.executors.onnx.sessions import open_sessions
from engine.native import library
from engine.schedule.lane import Lane
from engine.text.tokenizers.tokenizer import open_tokenizer
from engine.types import DecodeOptions
from export.graphs.onnx import encoder_graph, step_graph
from export.importers import convert
from export.importers.ctranslate2 import vocabulary_map as ctranslate2_map
from export.importers.ctranslate2.variables import Variables, read_variables
from export.importers.settings import CTranslate2Import
from loadtest.engine import int8_bleu
from tests.engine.executors.test_batch_independence import decode
from tests.support.ctranslate2_models import Options, answers, words, write
from tests.support.processors import has_vnni
from tests.support.students import WHOLE
from tests.support.thorough import THOROUGH

CT2 = "CTranslate2"
LONGEST, BEAM = 60, 4
DECODE = {"beam_size": BEAM, "num_hypotheses": BEAM, "length_penalty": 0.2, "min_decoding_length": 0}
OWN = DecodeOptions(beam_size=BEAM, n_best=BEAM, length_penalty=0.2, max_length_b=LONGEST, min_length=0)
END = {"add_source_eos": True}
NO_PADDING = ("<unk>", "</s>")
ARCHITECTURES = {
    "OpenNMT-py": Options(),
    "post-norm": Options(pre_norm=False, output_bias=True, seed=4),
    "no last norm": Options(no_final_norm=True, seed=1),
    "OpenNMT-tf": Options(positions="computed", config=END),
    "Shaw's positions": Options(positions="relative", seed=2, end=4.0),
    "Shaw's positions, post-norm": Options(positions="relative", pre_norm=False, layers=(3, 1), end=4.0),
    "Shaw's positions in wide heads": Options(positions="relative", head_dim=12, seed=2, end=4.0),
    "tanh GELU": Options(activation="GELUTanh"),
    "swish, as Marian": Options(
        activation="SWISH", pre_norm=False, zero_start=True, positions="computed", config=END
    ),
    "as ct2-marian-converter writes it": Options(
        activation="SWISH",
        pre_norm=False,
        zero_start=True,
        positions="computed",
        symbols=("</s>", "<unk>", "<blank>"),  # the start that config.json names is none of them
        config=END,
        end=3.0,
    ),
    "GELU with a norm of embeddings, as fairseq": Options(activation="GELU", embedding_norm=True, config=END),
    "sigmoid GELU": Options(activation="GELUSigmoid"),
    "tanh": Options(activation="Tanh"),
    "sigmoid": Options(activation="Sigmoid"),
    "gated SiLU": Options(gated=True, activation="SWISH"),
    "norms by the root mean square": Options(rms=True, seed=2),
    "norms by the root mean square, post-norm": Options(rms=True, pre_norm=False, seed=4, end=3.0),
    "T5": Options(
        rms=True, positions="biased", queries_scale=1.0, gated=True, scale_embeddings=False, end=3.0
    ),
    "T5's biases, post-norm": Options(positions="biased", pre_norm=False, seed=3, end=3.0),
    "wide heads": Options(head_dim=12, seed=1),
    "own tables": Options(tied=False, joint=False),
    "two vocabularies": Options(joint=False, vocabularies=(50, 36)),
    "scaled outputs": Options(scale_outputs=0.5),
    "scaled queries": Options(queries_scale=1.0),
    "plain embeddings": Options(scale_embeddings=False),
    "a factor of embeddings": Options(scale_embeddings=2.5),
    "begin and end of the source": Options(config={**END, "add_source_bos": True}),
    "an epsilon": Options(config={"layer_norm_epsilon": 1e-3}),
    "no symbol to pad with": Options(
        symbols=NO_PADDING, config={"decoder_start_token": "</s>", "bos_token": "</s>"}
    ),
    "two vocabularies without one": Options(
        symbols=NO_PADDING,
        joint=False,
        vocabularies=(30, 44),
        config={"decoder_start_token": "</s>", "bos_token": "</s>"},
    ),
}
# Without VNNI CTranslate2's products saturate if two neighbouring weights need 8 bits (oneDNN multiplies by
# vpmaddubsw): on a Zen 3 its int8 scores of this model differ by 7 from ours and by 4 from its own fp32.
needs_vnni = pytest.mark.skipif(not has_vnni(), reason="CTranslate2's int8 saturates without VNNI")
QUANTIZATIONS = ("float32", "float16", "bfloat16", "int16", "int8", "int8_float16", "int8_bfloat16")


def sources(options: Options, seed: int, count: int = 4) -> list[list[str]]:
    rng = np.random.default_rng(seed)
    symbols = words(options.vocabularies[0], options.symbols)[len(options.symbols) :]
    return [[symbols[i] for i in rng.integers(0, len(symbols), n)] for n in (3, 5, 8, 12)[:count]]


def lane(bundle: Bundle, precision: str = "fp32", kernels: str = "pure") -> Lane:
    config = bundle.config
    parts = {
        "encoder": encoder_graph(config, precision, kernels),
        "step": step_graph(config, precision, kernels),
    }
    operators = library() if kernels == "native" else None
    sessions = open_sessions(config, parts, bundle.weights(), 1, operators)
    return Lane(OnnxExecutor(sessions, BEAM, BEAM), lambda request, outcome: request.reply(outcome))


def compare(
    folder: Path, bundle: Bundle, texts: list[list[str]], *, compute: str, executor: Lane, **more: Any
) -> float:
    """Assert that hypotheses are CTranslate2's, token by token; returns the largest difference of scores.

    Only sources whose answers all end before the longest length count: there CTranslate2 cuts, and we end.
    """
    theirs = answers(folder, texts, compute, **DECODE, max_decoding_length=LONGEST, **more)
    tokenizer = open_tokenizer(bundle)
    jobs = [([*tokenizer.encode(" ".join(text)), bundle.config.eos], OWN) for text in texts]
    ours = decode(executor, jobs, np.random.default_rng(0))
    worst, compared = 0.0, 0
    for result, expected in zip(ours, theirs, strict=True):
        if any(len(tokens) >= LONGEST for tokens, _ in expected):
            continue
        compared += 1
        mine = [(tokenizer.pieces(h.tokens, target=True), h.score) for h in result.hypotheses]
        assert mine[0][0] == expected[0][0]
        for (tokens, score), (their_tokens, their_score) in zip(mine, expected, strict=True):
            if tokens != their_tokens:
                # in its last step CTranslate2 may finish more hypotheses than there are beams
                assert score < their_score
                break
            worst = max(worst, abs(score - their_score))
    assert compared, "all answers were cut: choose another seed"
    return worst


@cache
def imported(name: str, quantization: str | None, root: Path) -> tuple[Path, Bundle]:
    folder = write(root / f"{name}-{quantization}", ARCHITECTURES[name], quantization)
    return folder, convert(
        "ctranslate2",
        folder,
        root / f"{name}-{quantization}-bundle",
        CTranslate2Import(source="en", target="de"),
    )


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("ctranslate2")


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_beams_and_scores_are_those_of_ctranslate2(name, root) -> None:
    folder, bundle = imported(name, None, root)
    executor = lane(bundle)
    for seed in range(12):
        try:
            worst = compare(
                folder, bundle, sources(ARCHITECTURES[name], seed), compute="float32", executor=executor
            )
        except AssertionError as error:
            if "choose another seed" not in str(error):
                raise
            continue
        assert worst < 1e-4
        return
    pytest.fail("no answer ended")


@pytest.mark.parametrize(("heads", "layer"), [(1, -1), (2, 0), (0, 1)])
@pytest.mark.parametrize("kernels", ["pure", *(["native"] if library() else [])])
def test_alignments_are_of_the_heads_that_the_file_names(kernels, heads, layer, tmp_path) -> None:
    folder = write(tmp_path / "model", Options(end=2.0, alignment=(heads, layer)))
    bundle = convert("ctranslate2", folder, tmp_path / "bundle", CTranslate2Import(source="en", target="de"))
    tokenizer, texts = open_tokenizer(bundle), sources(Options(), 3) + sources(Options(), 4)
    translator = Translator(str(folder), compute_type="float32", intra_threads=1)
    limits = {"beam_size": 1, "max_decoding_length": 12, "min_decoding_length": 3}
    theirs = [translator.translate_batch([text], return_attention=True, **limits)[0] for text in texts]
    options = replace(OWN, beam_size=1, n_best=1, min_length=3, max_length_b=12, alignment=True)
    jobs = [([*tokenizer.encode(" ".join(text)), bundle.config.eos], options) for text in texts]
    for result, expected in zip(
        decode(lane(bundle, "fp32", kernels), jobs, np.random.default_rng(0)), theirs, strict=True
    ):
        rows = np.array(expected.attention[0])
        own = result.hypotheses[0].attention[: len(rows)]
        # what ours has of the end of the source, which this model does not read, is nothing
        np.testing.assert_allclose(own[:, : rows.shape[1]], rows, atol=1e-4)


LIKELY = tuple(f"w{i}\tw{i} w{(3 * i) % 36} w{(5 * i + 1) % 36}" for i in range(36))


@pytest.mark.parametrize("kernels", ["pure", *(["native"] if library() else [])])
def test_a_vocabulary_map_allows_the_tokens_that_ctranslate2_allows(kernels, tmp_path) -> None:
    options = Options(seed=5, end=2.0, likely=("\tw1 w2 w3", *LIKELY, "w4 w5\tw30 w31", "w9\tnone w7"))
    folder = write(tmp_path / "model", options)
    bundle = convert("ctranslate2", folder, tmp_path / "bundle", CTranslate2Import(source="en", target="de"))
    assert not bundle.shortlisted
    shortlist = load_shortlist(bundle.file(SHORTLIST).read_bytes(), (40, 40), bundle.config.eos)
    parts = {"encoder": encoder_graph(bundle.config, "fp32", kernels)}
    parts |= {"step": step_graph(bundle.config, "fp32", kernels, shortlisted=True)}
    operators = library() if kernels == "native" else None
    sessions = open_sessions(bundle.config, parts, bundle.weights(), 1, operators)
    listed = OnnxExecutor(replace(sessions, shortlist=shortlist), BEAM, BEAM)
    executor = Lane(listed, lambda request, outcome: request.reply(outcome))
    texts = [text for seed in range(6) for text in sources(options, seed)]
    texts = [text for text in texts if "w4" not in text]  # where a phrase begins ours allow more
    assert compare(folder, bundle, texts, compute="float32", executor=executor, use_vmap=True) < 1e-4


@pytest.mark.parametrize(
    ("content", "complaint"),
    [(b"w1 w2\n", "no tab"), (b"\xff\t\n", "not readable"), (b"w1\tw1 w2 w3 w4", "4 targets for one")],
)
def test_a_map_that_is_none_is_refused(content, complaint, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(ctranslate2_map, "MAX_SYMBOL_TARGETS", 3)
    folder = write(tmp_path / "model", Options(layers=(1, 1)))
    (folder / "vmap.txt").write_bytes(content)
    with pytest.raises(CheckpointError, match=complaint):
        convert("ctranslate2", folder, tmp_path / "out", CTranslate2Import(source="en", target="de"))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("quantization", QUANTIZATIONS)
def test_every_quantization_gives_its_beams_in_fp32(quantization, root) -> None:
    folder, bundle = imported("OpenNMT-py", quantization, root)
    texts = sources(ARCHITECTURES["OpenNMT-py"], 3)
    assert compare(folder, bundle, texts, compute="float32", executor=lane(bundle)) < 1e-4
    assert bool(bundle.weights().quantized) == quantization.startswith("int8")


def halve_weights(path: Path) -> None:
    """Halve the int8 weights of a model.bin, and their scales: each weight then needs 7 bits."""
    content, arrays = path.read_bytes(), read_variables(path).arrays
    for name in [name for name in arrays if f"{name}_scale" in arrays]:
        values, scales = arrays[name], arrays[f"{name}_scale"]
        for old, new in ((values, values // 2), (scales, scales / 2)):
            assert content.count(old.tobytes()) == 1
            content = content.replace(old.tobytes(), new.astype(old.dtype).tobytes())
    path.write_bytes(content)


@pytest.mark.parametrize("kernels", ["pure", *(["native"] if library() else [])])
@pytest.mark.parametrize("bits", [7, pytest.param(8, marks=needs_vnni)])
def test_int8_scores_are_those_of_ctranslate2_in_int8(kernels, bits, tmp_path) -> None:
    folder = write(tmp_path / "model", ARCHITECTURES["OpenNMT-py"], "int8")
    if bits == 7:
        halve_weights(folder / "model.bin")
    bundle = convert("ctranslate2", folder, tmp_path / "out", CTranslate2Import(source="en", target="de"))
    texts = sources(ARCHITECTURES["OpenNMT-py"], 3)
    assert compare(folder, bundle, texts, compute="int8", executor=lane(bundle, "int8", kernels)) < 0.02


@pytest.mark.skipif(not THOROUGH, reason="CONVOY_TEST_THOROUGH=1")
def test_int8_loses_no_more_bleu_than_ctranslate2s_own() -> None:
    corpus = WHOLE.parents[1] / "corpora" / "tatoeba-de-en" / "valid.tsv.gz"
    if not (WHOLE.is_dir() and corpus.is_file()):
        pytest.skip("no ../shared")
    found = int8_bleu.compare_bleu(WHOLE / "transformer-dan", int8_bleu.read_lines(corpus, 500))
    assert abs(found["Convoy"] - found["CTranslate2"]) < 0.3


def test_int8_values_are_those_of_the_file(root) -> None:
    folder, bundle = imported("OpenNMT-py", "int8", root)
    stored = read_variables(folder / "model.bin").array("decoder/layer_1/attention/linear_1/weight")
    weights = bundle.weights().quantized
    keys, values = (weights[f"decoder.layers.1.encoder_attn.{part}_proj.weight"] for part in "kv")
    np.testing.assert_array_equal(np.concatenate([keys.values, values.values]), stored)
    assert bundle.config.quantization == "rows"


def test_a_prefix_is_forced_costs_nothing_and_is_not_shown(root) -> None:
    folder, _ = imported("OpenNMT-py", None, root)
    bundle = convert(
        "ctranslate2", folder, root / "prefixed", CTranslate2Import(source="en", target="de", prefix="w7")
    )
    tokenizer = open_tokenizer(bundle)
    token = words(40).index("w7")
    assert tokenizer.beginning == (token,)
    assert tokenizer.decode([token, 9]) == words(40)[9]
    options, executor, shared = replace(OWN, prefix=(token,), free_prefix=1), lane(bundle), 0
    texts = sources(ARCHITECTURES["OpenNMT-py"], 3) + sources(ARCHITECTURES["OpenNMT-py"], 4)
    jobs = [([*tokenizer.encode(" ".join(text)), bundle.config.eos], options) for text in texts]
    results = decode(executor, jobs, np.random.default_rng(0))
    prefixes = {"target_prefix": [["w7"]], "max_decoding_length": LONGEST}
    for result, expected in zip(results, answers(folder, texts, **DECODE, **prefixes), strict=True):
        mine = {tuple(tokenizer.pieces(h.tokens, target=True)): h.score for h in result.hypotheses}
        # CTranslate2 does not always let an answer end right behind the prefix, so some are others
        for tokens, score in expected:
            assert tokens[0] == "w7"
            if tuple(tokens) in mine and len(tokens) < LONGEST:
                assert abs(mine[tuple(tokens)] - score) < 1e-4
                shared += 1
    assert shared >= 8
    with pytest.raises(CheckpointError, match="lacks the prefix"):
        convert(
            "ctranslate2", folder, root / "wrong", CTranslate2Import(source="en", target="de", prefix="<de>")
        )


def older(path: Path, version: int) -> None:
    """Rewrite a model.bin as an older version has it: no types, no aliases."""
    variables = read_variables(path)
    out = [struct.pack("<I", version)]

    def text(value: str) -> bytes:
        return struct.pack("<H", len(value) + 1) + value.encode() + b"\0"

    out += [text("TransformerSpec"), struct.pack("<I", 5)]
    names = [*variables.arrays, *(variables.aliases if version < 3 else ())]
    names = [name for name in names if variables.origin(name) in variables.arrays]
    out.append(struct.pack("<I", len(names)))
    for name in names:
        array = variables.array(name)
        out += [text(name), struct.pack("<B", array.ndim), struct.pack(f"<{array.ndim}I", *array.shape)]
        if version < 4:
            out += [struct.pack("<BI", array.dtype.itemsize, array.size), array.tobytes()]
        else:
            out += [struct.pack("<BI", 1 if array.dtype == np.int8 else 0, array.nbytes), array.tobytes()]
    if version >= 3:
        out.append(struct.pack("<I", len(variables.aliases)))
        out += [text(alias) + text(name) for alias, name in variables.aliases.items()]
    path.write_bytes(b"".join(out))


@pytest.mark.parametrize("version", [2, 3])
def test_older_versions_give_the_same_weights(version, tmp_path) -> None:
    options = replace(ARCHITECTURES["OpenNMT-py"], positions="stored")
    folder = write(tmp_path / "new", options)
    new = convert("ctranslate2", folder, tmp_path / "a", CTranslate2Import(source="en", target="de"))
    variables = read_variables(folder / "model.bin")
    # before version 4 four bytes are a float: attributes were single bytes then
    keep = {n: a for n, a in variables.arrays.items() if a.dtype == np.float32 or a.dtype.itemsize == 1}
    assert {a.dtype.itemsize for a in keep.values()} <= {1, 4}
    older(folder / "model.bin", version)
    old = convert("ctranslate2", folder, tmp_path / "b", CTranslate2Import(source="en", target="de"))
    assert all(np.array_equal(new.weights()[name], weight) for name, weight in old.weights().items())


def test_vocabularies_of_text_lines_are_read(tmp_path) -> None:
    folder = write(tmp_path / "model", Options())
    symbols = json.loads((folder / "shared_vocabulary.json").read_text())
    (folder / "shared_vocabulary.json").unlink()
    (folder / "shared_vocabulary.txt").write_text("\r\n".join(symbols) + "\r\n")
    bundle = convert("ctranslate2", folder, tmp_path / "out", CTranslate2Import(source="en", target="de"))
    assert open_tokenizer(bundle).encode("w5") == [5 + 4]


def test_unknown_pieces_become_those_of_the_source() -> None:
    from engine.text.tokenizers.fairseq_pieces import DictionaryPieces
    from engine.text.tokenizers.symbols import make_dictionary

    class Words:
        def encode(self, text: str, out_type: type) -> list[str]:
            return [f"▁{word}" for word in text.split()]

    both = make_dictionary(["<unk>", "</s>", "▁a", "▁b"], {1}, 0)
    tokenizer = DictionaryPieces((Words(), Words()), both, both)
    attention = np.array([[0.9, 0.1, 0.0], [0.2, 0.8, 0.0], [0, 0, 1.0]])
    assert tokenizer.encode("a Qx") == [2, 0]
    assert tokenizer.replace_unknown([3, 0], attention, "a Qx") == "b Qx"


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda s: setattr(s.decoder, "alibi", True), "ALiBi"),
        (lambda s: setattr(s.encoder.layer[0].self_attention, "queries_scale", np.nan), "not finite"),
    ],
)
def test_what_is_not_carried_over_is_refused_by_name(change, complaint, tmp_path, monkeypatch) -> None:
    import tests.support.ctranslate2_models as made

    whole = made.specification

    def changed(options: Options) -> Any:
        spec = whole(options)
        change(spec)
        return spec

    monkeypatch.setattr(made, "specification", changed)
    folder = write(tmp_path / "model", Options())
    with pytest.raises(CheckpointError, match=complaint):
        convert("ctranslate2", folder, tmp_path / "out", CTranslate2Import(source="en", target="de"))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["WhisperSpec", "TransformerDecoderSpec", "Wav2Vec2Spec"])
def test_other_kinds_of_models_are_refused_by_name(name, tmp_path) -> None:
    assert whisper_spec.WhisperSpec.__name__ == "WhisperSpec"
    assert wav2vec2_spec.Wav2Vec2Spec.__name__ == "Wav2Vec2Spec"
    (tmp_path / "model.bin").write_bytes(
        struct.pack("<IH", 6, len(name) + 1) + name.encode() + b"\0" + struct.pack("<III", 3, 0, 0)
    )
    with pytest.raises(CheckpointError, match=name):
        convert("ctranslate2", tmp_path, tmp_path / "out", CTranslate2Import(source="en", target="de"))


@pytest.fixture(scope="module")
def small(root) -> bytes:
    return (imported("OpenNMT-py", "int8", root)[0] / "model.bin").read_bytes()


@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_a_damaged_file_is_refused_in_one_line_or_read_as_it_is(data, small, root, tmp_path_factory) -> None:
    content = bytearray(small)
    for _ in range(data.draw(st.integers(1, 3))):
        near = data.draw(st.sampled_from([200, 2000, len(content) - 1]))
        content[data.draw(st.integers(0, near))] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        del content[data.draw(st.integers(0, len(content))) :]
    folder = tmp_path_factory.mktemp("fuzzed")
    (folder / "model.bin").write_bytes(content)
    original = imported("OpenNMT-py", "int8", root)[0]
    for name in ("config.json", "shared_vocabulary.json"):
        (folder / name).write_bytes((original / name).read_bytes())
    try:
        convert("ctranslate2", folder, folder / "out", CTranslate2Import(source="en", target="de"))
    except (CheckpointError, BundleError) as error:
        assert "\n" not in str(error)
        assert not (folder / "out").exists()
    else:
        open_bundle(folder / "out")


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("config.json", b"[]", "must be a JSON object"),
        ("config.json", b'{"eos_token": 3}', "eos_token"),
        ("config.json", b'{"decoder_start_token": null}', "decoder_start_token"),
        ("config.json", b'{"layer_norm_epsilon": -1}', "layer_norm_epsilon"),
        ("config.json", b'{"unk_token": "<none>"}', "lacks"),
        ("shared_vocabulary.json", b"{}", "list of symbols"),
        ("shared_vocabulary.json", b'["<unk>", "</s>", "<s>"]', "rows"),
        ("shared_vocabulary.json", b"\xff", "not readable"),
    ],
)
def test_wrong_files_beside_the_model_are_refused(name, content, complaint, root, tmp_path) -> None:
    folder = write(tmp_path / "model", Options(layers=(1, 1)))
    (folder / name).write_bytes(content)
    with pytest.raises(CheckpointError, match=complaint):
        convert("ctranslate2", folder, tmp_path / "out", CTranslate2Import(source="en", target="de"))


def test_the_lowest_integer_is_one_that_the_kernels_know():
    """A kernel that multiplies by the sign has no room for 128."""
    stored = {"w": np.array([[-128, -127, 127]], np.int8), "w_scale": np.array([2.0], np.float32)}
    weight = Variables(6, "TransformerSpec", 7, stored, {}).weight("w")
    assert weight.values.tolist() == [[-127, -127, 127]]
    assert weight.scales.tolist() == [0.5]
