"""Models in Marian's own layout against its arithmetic in plain numpy, and against CTranslate2's reading."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
import yaml
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import CheckpointError
from engine.models import load
from engine.text.tokenizers.tokenizer import open_tokenizer
from export.importers import convert
from export.importers.marian.files import read_symbols
from export.importers.settings import MarianImport
from tests.export.importers.test_marian import decoded, executor
from tests.support.marian_models import pieces, sentences, vocabulary
from tests.support.marian_reference import Reference, positions, write_binary
from tests.support.models import BACKENDS

DIM, FFN, HEADS = 24, 32, 4
BASE = {
    "type": "transformer",
    "dim-emb": DIM,
    "transformer-dim-ffn": FFN,
    "transformer-heads": HEADS,
    "enc-depth": 2,
    "dec-depth": 2,
    "transformer-preprocess": "",
    "transformer-postprocess": "dan",
    "transformer-postprocess-emb": "d",
    "transformer-postprocess-top": "",
    "transformer-ffn-activation": "swish",
    "transformer-ffn-depth": 2,
    "transformer-decoder-autoreg": "self-attention",
    "transformer-aan-activation": "swish",
    "transformer-aan-depth": 2,
    "transformer-aan-nogate": False,
    "transformer-dim-aan": 40,
    "transformer-guided-alignment-layer": "last",
    "transformer-no-projection": False,
    "transformer-tied-layers": [],
    "transformer-train-position-embeddings": False,
    "tied-embeddings": False,
    "tied-embeddings-all": True,
    "tied-embeddings-src": False,
    "version": "v1.9.0",
}
PRE = {"transformer-preprocess": "n", "transformer-postprocess": "da", "transformer-postprocess-top": "n"}
AAN = {"transformer-decoder-autoreg": "average-attention"}
SSRU = {"transformer-decoder-autoreg": "rnn", "dec-cell": "ssru", "transformer-ffn-activation": "relu"}
VARIANTS = {
    "post-norm": {},
    "pre-norm": PRE,
    "relu, normalised embeddings": {
        "transformer-ffn-activation": "relu",
        "transformer-postprocess-emb": "nd",
    },
    "gelu": {"transformer-ffn-activation": "gelu"},
    "separate": {"tied-embeddings-all": False},
    "tied output": {"tied-embeddings-all": False, "tied-embeddings": True},
    "narrow decoder": {"transformer-decoder-dim-ffn": 20, "dec-depth": 1},
    "aan": AAN,
    "aan pre-norm": AAN | PRE,
    "aan without gate": AAN | {"transformer-aan-nogate": True, "transformer-aan-activation": "relu"},
    "aan of depth 1": AAN | {"transformer-aan-depth": 1},
    "aan as wide as the model": AAN | {"transformer-dim-aan": DIM, "transformer-aan-depth": 3},
    "learned positions": {"transformer-train-position-embeddings": True},
    "ssru": SSRU,
    "ssru pre-norm": SSRU | PRE,
    "ssru of two vocabularies": SSRU | {"tied-embeddings-all": False, "tied-embeddings": True},
}
DECODING = {"beam-size": 4, "normalize": 0.8, "word-penalty": 0.3, "max-length-factor": 2}


def arrays_of(options, sizes, seed=3):
    """Random weights under Marian's names."""
    g = np.random.default_rng(seed)
    made = {}

    def put(name, *shape, around=0.0, spread=0.3):
        made[name] = (around + spread * g.normal(size=shape)).astype(np.float32)

    def dense(prefix, suffix, inner, outer):
        put(f"{prefix}_W{suffix}", inner, outer)
        put(f"{prefix}_b{suffix}", 1, outer)

    def norm(prefix, suffix=""):
        put(f"{prefix}_ln_scale{suffix}", 1, DIM, around=1.0)
        put(f"{prefix}_ln_bias{suffix}", 1, DIM)

    def around(prefix):
        for key, suffix in (("transformer-preprocess", "_pre"), ("transformer-postprocess", "")):
            if "n" in options[key]:
                norm(prefix, suffix)

    def attention(prefix):
        for letter in "qkvo":
            dense(prefix, letter, DIM, DIM)
        around(f"{prefix}_Wo")

    for side, size in zip(("encoder", "decoder"), sizes, strict=True):
        if not options["tied-embeddings-all"]:
            put(f"{side}_Wemb", size, DIM, spread=DIM**-0.5)
        if "n" in options["transformer-postprocess-emb"]:
            norm(f"{side}_emb", "_pre")
        if options["transformer-postprocess-top"]:
            norm(f"{side}_top")
        for i in range(1, options[f"{side[:3]}-depth"] + 1):
            here = f"{side}_l{i}"
            if side == "decoder" and options["transformer-decoder-autoreg"] == "average-attention":
                width, depth = options["transformer-dim-aan"], options["transformer-aan-depth"]
                inner = DIM
                for j in range(1, depth):
                    dense(f"{here}_aan", j, inner, width)
                    inner = width
                if inner != DIM:
                    dense(f"{here}_aan", depth, inner, DIM)
                if not options["transformer-aan-nogate"]:
                    dense(f"{here}_aan", "i", DIM, DIM)
                    dense(f"{here}_aan", "f", DIM, DIM)
                around(f"{here}_aan_ffn")
            elif side == "decoder" and options["transformer-decoder-autoreg"] == "rnn":
                put(f"{here}_rnn_W", DIM, DIM)
                dense(f"{here}_rnn", "f", DIM, DIM)
                around(f"{here}_rnn_ffn")
            else:
                attention(f"{here}_self")
            if side == "decoder":
                attention(f"{here}_context")
            width = (side == "decoder" and options.get("transformer-decoder-dim-ffn")) or FFN
            dense(f"{here}_ffn", 1, DIM, width)
            dense(f"{here}_ffn", 2, width, DIM)
            around(f"{here}_ffn_ffn")
    if options["tied-embeddings-all"]:
        put("Wemb", sizes[0], DIM, spread=DIM**-0.5)
    if not (options["tied-embeddings-all"] or options["tied-embeddings"]):
        put("decoder_ff_logit_out_W", DIM, sizes[1])
    put("decoder_ff_logit_out_b", 1, sizes[1])
    made["decoder_ff_logit_out_b"][0, 0] += 2.5  # so that answers end
    if options["transformer-train-position-embeddings"]:
        put("Wpos", 80, DIM)
    return made


def with_options(arrays, options):
    text = yaml.safe_dump(options).encode() + b"\0"
    return {"special:model.yml": np.frombuffer(text, np.int8), **arrays}


def make(folder, name, binary=False):
    """A folder as OPUS-MT's archives hold it; returns its weights and options."""
    folder.mkdir(parents=True)
    options = BASE | VARIANTS[name]
    models = [pieces("source"), pieces("target")]
    if options["tied-embeddings-all"]:
        vocabularies = [vocabulary(models)] * 2
        names = ["vocab.yml", "vocab.yml"]
    else:
        vocabularies, names = [vocabulary([model]) for model in models], ["vocab.src.yml", "vocab.trg.yml"]
    for side, model in zip(("source", "target"), models, strict=True):
        (folder / f"{side}.spm").write_bytes(model)
    for symbols, file in zip(vocabularies, names, strict=True):
        lines = [f'"{symbol}": {i}\n' for symbol, i in symbols.items() if symbol != "<pad>"]
        (folder / file).write_text("".join(lines), "utf-8")
    options["dim-vocabs"] = [len(symbols) - 1 for symbols in vocabularies]
    arrays = arrays_of(options, options["dim-vocabs"])
    file = "model.bin" if binary else "model.npz"
    if binary:
        write_binary(with_options(arrays, options), folder / file)
    else:
        np.savez(folder / file, **with_options(arrays, options))
    decoder = {"models": [f"/data/train/{file}"], "vocabs": [f"/data/train/{n}" for n in names], **DECODING}
    (folder / "decoder.yml").write_text(yaml.safe_dump(decoder))
    return arrays, options


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    root = tmp_path_factory.mktemp("native")
    made = {}

    def of(name):
        if name not in made:
            arrays, options = make(root / name / "marian", name)
            bundle = convert(
                "marian",
                root / name / "marian",
                root / name / "out",
                MarianImport(source="eng", target="nld"),
            )
            made[name] = Reference(arrays, options), bundle
        return made[name]

    return of


def ids(bundle, count, seed=8):
    tokenizer = open_tokenizer(bundle)
    return [[*tokenizer.encode(" ".join(line.split()[:3])), 0] for line in sentences(count, seed)]


@pytest.mark.parametrize("name", VARIANTS)
def test_the_encoder_and_log_probabilities_are_marians(models, name):
    reference, bundle = models(name)
    ours = load(bundle.config, bundle.weights())
    vocab = reference.options["dim-vocabs"][1]
    for source in ids(bundle, 3):
        tokens = np.random.default_rng(len(source)).integers(2, vocab, 9).tolist()
        memory = reference.encode(source)
        with torch.no_grad():
            given_ids, real = torch.tensor([source]), torch.ones(1, len(source))
            encoded = ours.encoder(given_ids, torch.arange(len(source)), real)
            found = ours(given_ids, torch.tensor([[bundle.config.eos, *tokens]]))
        np.testing.assert_allclose(encoded[0].numpy(), memory, atol=1e-4)
        np.testing.assert_allclose(
            found[0, :, :vocab].numpy(), reference.log_probs(memory, tokens), atol=1e-4
        )
        assert (found[0, :, vocab:] < -5000).all()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ["post-norm", "pre-norm", "separate", "aan", "aan pre-norm", "ssru"])
def test_beam_search_is_marians(models, name, backend):
    reference, bundle = models(name)
    options = bundle.options
    assert (options.beam_rule, options.beam_size, options.length_penalty) == ("marian", 4, 0.8)
    assert options.word_reward == -0.3
    sources = [source[:6] + [0] for source in ids(bundle, 3)]
    found = decoded(executor(bundle, backend, 4), bundle, sources)
    for source, (best, *_) in zip(sources, found, strict=True):
        score, tokens = reference.beam(source, beams=4, alpha=0.8, penalty=0.3, longest=2 * len(source))
        assert best.tokens == list(tokens)
        assert best.score == pytest.approx(score, abs=1e-4)


@pytest.mark.parametrize("name", ["post-norm", "aan"])
def test_both_beam_rules_share_a_lane_and_none_disturbs_the_other(models, name):
    _, bundle = models(name)
    sources, made = ids(bundle, 8), executor(bundle, "onnx-pure", 4)
    rules = ["marian", "fairseq"] * 4
    together = decoded(made, bundle, sources, rules)
    for source, rule, answers in zip(sources, rules, together, strict=True):
        (alone,) = decoded(made, bundle, [source], [rule])
        assert [(h.tokens, h.score) for h in alone] == [(h.tokens, h.score) for h in answers]


@pytest.mark.parametrize("name", ["post-norm", "pre-norm", "aan", "separate"])
def test_the_binary_format_holds_the_same_model(tmp_path, models, name):
    make(tmp_path / "marian", name, binary=True)
    bundle = convert(
        "marian", tmp_path / "marian", tmp_path / "out", MarianImport(source="eng", target="nld")
    )
    assert bundle.manifest["model.safetensors"] == models(name)[1].manifest["model.safetensors"]


@pytest.mark.parametrize("name", ["post-norm", "pre-norm", "relu, normalised embeddings", "separate"])
def test_ctranslate2_reads_the_same_weights_and_answers_alike(tmp_path, models, name):
    ct2 = pytest.importorskip("ctranslate2", reason="needs ctranslate2 from PyPI")
    from ctranslate2.converters import MarianConverter

    _, bundle = models(name)
    folder = tmp_path / "marian"
    make(folder, name)
    vocabularies = sorted(folder.glob("vocab*.yml"))
    spec = MarianConverter(str(folder / "model.npz"), [str(p) for p in vocabularies])._load()
    for side in (spec.encoder, spec.decoder):  # its converter takes another formula than Marian
        side.position_encodings.encodings = positions(128, DIM).astype(np.float32)
    spec.validate()
    spec.optimize()
    (tmp_path / "ct2").mkdir()
    spec.save(str(tmp_path / "ct2"))
    translator = ct2.Translator(str(tmp_path / "ct2"), compute_type="float32", intra_threads=1)
    tokenizer = open_tokenizer(bundle)
    sources = ids(bundle, 6)
    found = decoded(
        executor(bundle, "torch", 1), bundle, sources, beam_size=1, unk_penalty=0.0, word_reward=0.0
    )
    for source, (best, *_) in zip(sources, found, strict=True):
        result = translator.translate_batch(
            [tokenizer.pieces(source[:-1], target=False)], beam_size=1, max_decoding_length=2 * len(source)
        )[0]
        assert result.hypotheses[0][: len(best.tokens)] == tokenizer.pieces(best.tokens, target=True)


def test_a_sentencepiece_vocabulary_gives_its_own_ids(tmp_path):
    folder = tmp_path / "marian"
    arrays, options = make(folder, "post-norm")
    for path in (*folder.glob("*.spm"), *folder.glob("vocab*")):
        path.unlink()
    (folder / "vocab.spm").write_bytes(pieces("source"))
    (folder / "decoder.yml").unlink()
    bundle = convert("marian", folder, tmp_path / "out", MarianImport(source="eng", target="eng"))
    import sentencepiece

    processor = sentencepiece.SentencePieceProcessor(model_proto=pieces("source"))
    tokenizer = open_tokenizer(bundle)
    for line in sentences(50, 4):
        assert tokenizer.encode(line) == processor.encode(line)
        assert tokenizer.decode(processor.encode(line)) == processor.decode(processor.encode(line))
    assert (bundle.options.beam_size, bundle.options.normalize_scores) == (12, False)


def test_a_vocabulary_alone_means_symbols_between_spaces(tmp_path):
    make(tmp_path / "marian", "post-norm")
    for path in (tmp_path / "marian").glob("*.spm"):
        path.unlink()
    bundle = convert(
        "marian", tmp_path / "marian", tmp_path / "out", MarianImport(source="eng", target="nld")
    )
    tokenizer = open_tokenizer(bundle)
    symbols = ["\u2581ba", "de", "unheard"]
    known = vocabulary([pieces("source"), pieces("target")])
    assert tokenizer.encode(" ".join(symbols)) == [known.get(symbol, 1) for symbol in symbols]
    assert tokenizer.decode([2, 3]) == " ".join(list(known)[2:4])


TRICKY = [
    "yes",
    "null",
    "1",
    "~",
    "a: b",
    "#",
    "'",
    '"',
    "\\",
    "it's",
    "\x85",
    "é",
    "\u2028",
    "{",
    "- x",
    "",
    " ",
    "?",
]


@given(
    st.lists(
        st.sampled_from(TRICKY)
        | st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), min_size=1, max_size=9),
        unique=True,
        min_size=1,
    )
)
def test_vocabularies_in_yaml_are_read_as_they_were_written(tmp_path, symbols):
    path = tmp_path / "v.yml"
    escaped = yaml.safe_dump(
        {s: i for i, s in enumerate(symbols)}, default_style='"', allow_unicode=True, width=10**6
    )
    text = re.sub(r'!!int "(\d+)"', r"\1", escaped)
    path.write_text(text, "utf-8", newline="\n")
    assert read_symbols(path) == {s: i for i, s in enumerate(symbols)}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"type": "s2s"}, "type 's2s'"),
        ({"type": "amun"}, "type 'amun'"),
        ({"type": "multi-transformer"}, "multi-transformer"),
        ({"type": "lm-transformer"}, "lm-transformer"),
        ({"transformer-decoder-autoreg": "rnn"}, "dec-cell is not given; ssru is supported"),
        ({"transformer-decoder-autoreg": "rnn", "dec-cell": "gru"}, "dec-cell = 'gru' is not supported"),
        (SSRU | {"layer-normalization": True}, "layer-normalization = True is not supported"),
        ({"right-left": True}, "right-left = True is not supported"),
        ({"transformer-ffn-activation": "tanh"}, "transformer-ffn-activation = 'tanh'"),
        ({"transformer-preprocess": "n", "transformer-postprocess": "da"}, "pre-norm"),
        ({"transformer-postprocess-emb": "a"}, "transformer-postprocess-emb = 'a' is unknown"),
        ({"transformer-no-projection": True}, "transformer-no-projection = True"),
        ({"transformer-tied-layers": [1, 1]}, "transformer-tied-layers = [1, 1]"),
        ({"transformer-ffn-depth": 3}, "transformer-ffn-depth = 3"),
        ({"lemma-dim-emb": 8}, "lemma-dim-emb = 8"),
        ({"dim-emb": 10**9}, "dim-emb = 1000000000 is no size"),
        ({"dim-vocabs": [5]}, "dim-vocabs = [5]"),
        ({"dec-depth": 3}, "decoder_l3_self_Wq is missing"),
        ({"enc-depth": 1}, "encoder_l2_ffn_W1 is not part of the model"),
        ({"dim-vocabs": [30, 30]}, "its options say 30 tokens, Wemb or encoder_Wemb does not"),
    ],
)
def test_options_that_do_not_fit_are_named(tmp_path, changes, message):
    folder = tmp_path / "marian"
    arrays, options = make(folder, "post-norm")
    np.savez(folder / "model.npz", **with_options(arrays, options | changes))
    assert message in refusal(folder, tmp_path)


def refusal(folder, tmp_path):
    with pytest.raises(CheckpointError) as caught:
        convert("marian", folder, tmp_path / "out", MarianImport(source="eng", target="nld"))
    assert not (tmp_path / "out").exists()
    return str(caught.value)


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("share", [0.0, 0.01, 0.3, 0.9, 0.999])
def test_truncated_weights_are_refused(tmp_path, binary, share):
    folder = tmp_path / "marian"
    make(folder, "post-norm", binary=binary)
    (path,) = folder.glob("model.*")
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])
    message = refusal(folder, tmp_path)
    assert path.name in message
    assert "download it again" in message


def test_a_pickle_inside_the_weights_is_refused(tmp_path):
    folder = tmp_path / "marian"
    arrays, options = make(folder, "post-norm")
    np.savez(folder / "model.npz", **with_options(arrays, options), evil=np.array([print], dtype=object))
    assert "evil holds Python objects, which are never read" in refusal(folder, tmp_path)


@pytest.mark.parametrize("name", ["vocab.yml", "model.npz"])
def test_missing_files_are_named(tmp_path, name):
    make(tmp_path / "marian", "post-norm")
    (tmp_path / "marian" / name).unlink()
    message = refusal(tmp_path / "marian", tmp_path)
    assert name in message or "holds neither" in message


@pytest.mark.parametrize("text", ["a", "a: b", "a: 1\nb", "[", "\xff: x"])
def test_vocabularies_with_wrong_lines_are_refused(tmp_path, text):
    make(tmp_path / "marian", "post-norm")
    (tmp_path / "marian" / "vocab.yml").write_text(text)
    assert "vocab.yml" in refusal(tmp_path / "marian", tmp_path)


def test_options_in_yaml_are_data_only(tmp_path):
    folder = tmp_path / "marian"
    make(folder, "post-norm")
    (folder / "decoder.yml").write_text("!!python/object/apply:os.mkdir [evil]")
    message = refusal(folder, tmp_path)
    assert "decoder.yml" in message
    assert "YAML" in message
