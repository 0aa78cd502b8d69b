"""Folders of Hugging Face's families against `transformers`, on every executor."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.api import InvalidRequest, Placement, Service, ServiceSettings, TextOptions
from engine.errors import CheckpointError
from engine.models import load
from engine.text.tokenizers.tokenizer import open_tokenizer
from engine.types import DecodeOptions
from export.graphs.onnx import add_graphs
from export.importers import convert
from export.importers.huggingface.language_codes import language_symbols
from export.importers.settings import HuggingFaceImport
from tests.export.importers.test_marian import decoded, executor
from tests.support.hf_models import EVERY, NEWER, SPOKEN, WISH, imported, transformers
from tests.support.marian_models import sentences
from tests.support.models import NEEDS_LIBRARY
from tests.support.thorough import in_turn, some

LIMIT = 20  # most tokens of a compared answer, without end-of-sentence


@pytest.fixture(scope="module")
def models():
    """Return a function from family and setting to a folder with its model, and our bundle."""
    return imported


BYTES = ("bart", "byt5", "blenderbot", "codet5")  # families whose tokenizers read bytes
CHINESE = ("bart-chinese", "t5-chinese")  # families with BERT's tokenizer


def lines(count, seed=5):
    return [" ".join(line.split()[:3]) for line in sentences(count, seed)]


def asked(family, line):
    """Return the text for the tokenizer of `transformers`; version 5 makes a piece of a final space."""
    line = line.rstrip() if NEWER and family not in BYTES else line
    return f"<2de> {line}" if family == "madlad" else line


def read_by(bundle, source):
    """Return the tokens that the model reads of a request's source, which always ends with the end."""
    return source if bundle.config.source_end else source[:-1]


@pytest.mark.parametrize(("family", "setting"), EVERY)
def test_text_gives_the_ids_of_its_own_tokenizer_and_decodes_back(models, family, setting):
    folder, bundle = models(family, setting)
    ours = open_tokenizer(bundle)
    own = ["「ba」，de？ ba\u200bde\x07"] if family == "fsmt" else []
    for line in [*lines(12), "Größe & Maß: 3,5 €", "  two   spaces ", "日本語 text", "ba ba!", *own]:
        theirs = folder.tokenizer(asked(family, line)).input_ids
        if NEWER and family == "madlad":  # its class uses end-of-sentence for unknown pieces
            theirs = [bundle.config.unk if i == bundle.config.eos else i for i in theirs[:-1]] + theirs[-1:]
        if NEWER and family in ("barthez", "blenderbot"):  # without a tokenizer.json it adds no symbols
            theirs = [*(bundle.text.get("first") or ()), *theirs, bundle.config.eos]
        assert read_by(bundle, [*ours.encode(line), bundle.config.eos]) == theirs
        ids = ours.encode_target(line)
        if family == "fsmt":  # fairseq prints unknown pieces, its copy in transformers does not
            ids = [token for token in ids if token != bundle.config.unk]
        theirs = folder.tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        if family in CHINESE:  # BERT's library writes a space at each Han character and mark
            assert ours.decode(ids).replace(" ", "") == theirs.replace(" ", "")
            continue
        assert ours.decode(ids).strip() == theirs.strip()


@pytest.mark.parametrize(("family", "setting"), EVERY)
def test_encoder_and_teacher_forced_logits_agree_with_transformers(models, family, setting):
    folder, bundle = models(family, setting)
    ours, config = load(bundle.config, bundle.weights()), bundle.config
    g = torch.Generator().manual_seed(2)
    source = torch.randint(4, 40, (3, 40), generator=g)
    real = torch.ones(3, 40)
    real[1, 27:] = 0
    previous = torch.randint(4, 40, (3, 33), generator=g)
    previous[:, 0] = config.first_token
    with torch.no_grad():
        theirs = folder.model(
            input_ids=source, attention_mask=real.long(), decoder_input_ids=previous, use_cache=False
        )
        mask = torch.where(real > 0, 0.0, -torch.inf)
        encoded = ours.encoder(source, torch.arange(40), real)
        memory = ours.encode(source, torch.arange(40), real)
        logits = ours.project(ours.decode(previous, memory, mask)[0])
    there = real.bool()
    torch.testing.assert_close(encoded[there], theirs.encoder_last_hidden_state[there], rtol=0, atol=1e-4)
    torch.testing.assert_close(logits, theirs.logits, rtol=0, atol=1e-4)


class EndsAtLimit(transformers.LogitsProcessor):
    """Allow only end-of-sentence at the limit, at its own log-probability, as Convoy does."""

    def __init__(self, limit, eos):
        self.limit, self.eos = limit, eos

    def __call__(self, input_ids, scores):
        if input_ids.shape[1] < self.limit - 1:
            return scores
        ending = torch.full_like(scores, -torch.inf)
        ending[:, self.eos] = scores[:, self.eos]
        return ending


def reference(folder, source, config, forced, **options):
    """Return tokens and score of `generate`, without the first token and end-of-sentence."""
    folder.model.generation_config.forced_eos_token_id = None  # BART's end at the limit has no score
    answer = folder.model.generate(
        torch.tensor([source]),
        return_dict_in_generate=True,
        output_scores=True,
        output_logits=True,
        max_length=LIMIT + 2,
        forced_bos_token_id=forced,
        decoder_start_token_id=config.first_token,
        bad_words_ids=[[config.pad]],
        # the cache has the encoder's number of layers; FSMT sees later tokens without it
        use_cache=folder.model.config.model_type == "fsmt",
        logits_processor=transformers.LogitsProcessorList([EndsAtLimit(LIMIT + 2, config.eos)]),
        **options,
    )
    tokens = answer.sequences[0, 1:].tolist()
    tokens = tokens[: tokens.index(config.eos)]
    if "sequences_scores" in answer:
        return tokens, float(answer.sequences_scores[0])
    chosen = zip(answer.logits, [*tokens, config.eos], strict=False)
    steps = [float(logits[0].log_softmax(-1)[token]) for logits, token in chosen]
    return tokens, sum(steps[forced is not None :]) / len(steps)


def rescored(folder, source, config, best, penalty):
    """Return the most likely token of each step of an answer, and the score of the answer.

    `generate` of version 4 runs FSMT without its causal mask, or with one position for all tokens.
    """
    previous = [config.first_token, *best.tokens]
    with torch.no_grad():
        made = folder.model(
            input_ids=torch.tensor([source]), decoder_input_ids=torch.tensor([previous]), use_cache=False
        )
    steps = made.logits[0].log_softmax(-1)
    total = float(steps.gather(1, torch.tensor([*best.tokens, config.eos])[:, None]).sum())
    steps[:, config.pad] = -torch.inf
    return steps[: len(best.tokens)].argmax(-1).tolist(), total / len(previous) ** penalty


# every pair in the thorough run; otherwise each setting on one backend in turn
RUNS = [
    pytest.param(*made, backend, marks=NEEDS_LIBRARY if backend == "onnx-native" else ())
    for made, backend in in_turn(EVERY, ("onnx-pure", "onnx-native", "torch"))
]


@pytest.mark.parametrize(("family", "setting", "backend"), RUNS)
def test_greedy_and_beam_answers_agree_with_transformers(models, family, setting, backend):
    folder, bundle = models(family, setting)
    tokenizer, config = open_tokenizer(bundle), bundle.config
    sources = [[*tokenizer.encode(line), config.eos] for line in lines(some(4, 2))]
    begin = tokenizer.beginning
    for beams, penalty in ((1, 1.0), (4, 0.6)):
        lane = executor(bundle, backend, beams)
        options = {"beam_size": beams, "length_penalty": penalty, "max_length_b": LIMIT, "min_length": 0}
        answers = decoded(lane, bundle, sources, prefix=begin, free_prefix=len(begin), **options)
        for source, (best, *_) in zip(sources, answers, strict=True):
            if family == "fsmt" and not NEWER:
                tokens, score = rescored(folder, source, config, best, penalty)
                assert beams > 1 or best.tokens == tokens
                assert best.score == pytest.approx(score, abs=1e-4)
                continue
            tokens, score = reference(
                folder,
                read_by(bundle, source),
                config,
                begin[0] if begin else None,
                num_beams=beams,
                length_penalty=penalty,
                early_stopping=beams > 1,
            )
            assert best.tokens == tokens
            assert best.score == pytest.approx(score, abs=1e-4)


@pytest.mark.parametrize(
    ("family", "setting", "source", "target"),
    [("m2m100", "relu", "fr", "zu"), ("nllb", "relu", "de", "zh-Hant")],
)
def test_multilingual_model_translates_in_every_direction(models, family, setting, source, target):
    folder, bundle = models(family, setting)
    service = Service.open([add_graphs(bundle).path], ServiceSettings(Placement(lanes=((1, 2), (5, 2)))))
    service.start()
    try:
        codes = {language.code for language in service.languages()}
        assert {source, target, "en"} <= codes
        name = service.pick("translate", source, target, None).name
        tokenizer = folder.tokenizer
        spoken = {"zh-Hant": "zho_Hant", "de": "deu_Latn"}
        tokenizer.src_lang = spoken.get(source, source)
        forced = tokenizer.convert_tokens_to_ids(spoken[target] if family == "nllb" else f"__{target}__")
        (line,) = lines(1, 8)
        (answer,) = service.run_many(
            name, [line], TextOptions({"beam_size": 1, "max_length": 12}, split=False)
        )
        ids = tokenizer(line).input_ids
        tokens, _ = reference(folder, ids, bundle.config, forced, num_beams=1)
        names = set(bundle.text["special"].values())
        words = [token for token in tokens[:12] if token not in names]
        assert answer.text == tokenizer.decode(words, skip_special_tokens=True).strip()
    finally:
        service.stop()
        tokenizer.src_lang = SPOKEN[family][0]


def test_forced_first_token_has_no_score_and_is_left_out_of_the_text(models):
    _, bundle = models("nllb", "relu")
    tokenizer = open_tokenizer(bundle)
    (begin,) = tokenizer.beginning
    source = [*tokenizer.encode("ba de"), bundle.config.eos]
    lane = executor(bundle, "torch", 2)
    ((best, *_),) = decoded(lane, bundle, [source], prefix=(begin,), free_prefix=1, beam_size=2)
    ((paid, *_),) = decoded(lane, bundle, [source], prefix=(begin,), beam_size=2)
    assert best.tokens[0] == begin
    assert best.token_scores[0] == 0.0 > paid.token_scores[0]
    assert tokenizer.decode(best.tokens[:1]) == ""
    options, limits = DecodeOptions(beam_size=2, prefix=(begin,)), bundle.config.limits(2, shortlisted=False)
    replace(options, free_prefix=1).check(limits)
    with pytest.raises(InvalidRequest, match="free_prefix"):
        replace(options, free_prefix=2).check(limits)


def test_weights_in_shards_give_the_same_model(models, tmp_path):
    folder, bundle = models("bart", "large-cnn")
    copy = shutil.copytree(folder.path, tmp_path / "hf")
    tensors = load_file(copy / "model.safetensors")
    (copy / "model.safetensors").unlink()
    names = sorted(tensors)
    parts = {"model-1.safetensors": names[::2], "model-2.safetensors": names[1::2]}
    for part, own in parts.items():
        save_file({name: tensors[name] for name in own}, copy / part)
    places = {name: part for part, own in parts.items() for name in own}
    (copy / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    sharded = convert("hf", copy, tmp_path / "out", WISH)
    assert sharded.weights().keys() == bundle.weights().keys()
    assert all((sharded.weights()[name] == weight).all() for name, weight in bundle.weights().items())
    (copy / "model-2.safetensors").unlink()
    refused(copy, tmp_path, "lacks model-2.safetensors")
    (copy / "model.safetensors.index.json").write_text(
        json.dumps({"weight_map": {"a": "../model-1.safetensors"}})
    )
    refused(copy, tmp_path, "weight_map")


def refused(folder, tmp_path, message):
    """Assert that the import fails with one clear error and leaves no files."""
    out = tmp_path / "refused"
    with pytest.raises(CheckpointError, match=message) as error:
        convert("hf", folder, out, WISH)
    assert "\n" not in str(error.value)
    assert not out.exists()


CHANGES = [
    ("bart", {"model_type": "whisper"}, "whisper"),
    ("bart", {"architectures": ["BartForSequenceClassification"]}, "BartForSequenceClassification"),
    ("bart", {"d_model": 10**9, "vocab_size": -1}, "d_model.*vocab_size|vocab_size.*d_model"),
    ("bart", {"activation_function": "mish"}, "mish"),
    ("bart", {"d_model": 64}, "weights do not fit"),
    ("bart", {"encoder_attention_heads": 5}, "multiple of heads"),
    ("t5", {"model_type": "pop2piano"}, "pop2piano"),
    ("t5", {"feed_forward_proj": "gated-mish"}, "gated-mish"),
    ("t5", {"relative_attention_num_buckets": 10**7}, "relative_attention_num_buckets"),
    ("t5", {"relative_attention_num_buckets": 64}, "shape"),
    ("t5", {"num_layers": 5}, "missing"),
    ("nllb", {"pad_token_id": "one"}, "pad_token_id"),
    ("nllb", {"vocab_size": 40}, "do not fit|fewer tokens"),
]


@pytest.mark.parametrize(("family", "change", "message"), CHANGES)
def test_unsupported_folder_is_refused_with_one_clear_error(models, tmp_path, family, change, message):
    setting = next(s for f, s in EVERY if f == family)
    copy = shutil.copytree(models(family, setting)[0].path, tmp_path / "hf")
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(config | change))
    refused(copy, tmp_path, message)


@pytest.mark.parametrize(
    ("family", "name", "content", "message"),
    [
        ("bart", "config.json", "[]", "JSON object"),
        ("bart", "vocab.json", '{"a": -1}', "symbols with their ids"),
        ("bart", "merges.txt", "a b c\n", "two symbols"),
        ("bart", "model.safetensors", "x" * 64, "safetensors"),
        ("bart", "model.safetensors", "version https://git-lfs.github.com/spec/v1\noid", "Git LFS pointer"),
        ("bart", "model.safetensors", "\n<!DOCTYPE html><html>", "is a web page"),
        ("bart", "config.json", "<html>", "config.json: is a web page"),
        ("bart", "vocab.json", "version https://git-lfs.github.com/spec/v1\noid", "vocab.json: is a Git LFS"),
        ("bart", "merges.txt", "<!DOCTYPE html>", "merges.txt: is a web page"),
        ("bart", "merges.txt", None, "lacks merges.txt; download the whole folder"),
        ("nllb", "sentencepiece.bpe.model", "no model", "SentencePiece"),
        ("nllb", "sentencepiece.bpe.model", "version https://git-lfs.github.com/spec", "Git LFS pointer"),
        ("bartpho", "dict.txt", "version https://git-lfs.github.com/spec", "dict.txt: is a Git LFS pointer"),
        ("t5", "tokenizer_config.json", "version https://git-lfs.github.com/spec", "Git LFS pointer"),
        ("fsmt", "vocab-src.json", '{"<s>": 1}', "fairseq's symbols from 0 on"),
        ("fsmt", "merges.txt", "a b c d\n", "two symbols"),
        ("m2m100", "special_tokens_map.json", "{", "not readable as JSON"),
        ("t5", "spiece.model", None, "lacks spiece.model"),
        ("t5", "model.safetensors", None, "lacks model.safetensors or pytorch_model.bin"),
    ],
)
def test_damaged_file_is_refused_with_one_clear_error(models, tmp_path, family, name, content, message):
    setting = next(s for f, s in EVERY if f == family)
    copy = shutil.copytree(models(family, setting)[0].path, tmp_path / "hf")
    (copy / name).unlink()
    if content is not None:
        (copy / name).write_text(content)
    refused(copy, tmp_path, message)


def test_first_mbart_translates_one_pair_and_starts_with_the_target_language(models, tmp_path):
    folder, bundle = models("mbart25", "gelu")
    ids = folder.tokenizer.convert_tokens_to_ids
    assert bundle.config.first_token == ids("de_DE")
    assert open_tokenizer(bundle).encode("ba")[-2:] == [bundle.config.eos, ids("en_XX")]
    copy = shutil.copytree(folder.path, tmp_path / "hf")
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(config | {"decoder_start_token_id": ids("ro_RO")}))
    tuned = convert("hf", copy, tmp_path / "tuned", HuggingFaceImport(source="en"))
    assert (tuned.source, tuned.target, tuned.config.first_token) == ("en", "ro", ids("ro_RO"))
    with pytest.raises(CheckpointError, match="--source and --target: ar, cs, de, en"):
        convert("hf", copy, tmp_path / "refused", HuggingFaceImport(source="en", target="sw"))


def test_first_mbart_without_lists_of_languages_has_its_twenty_five(models, tmp_path):
    folder, bundle = models("mbart25", "gelu")
    copy = shutil.copytree(folder.path, tmp_path / "hf")
    for name in ("tokenizer_config.json", "special_tokens_map.json", "tokenizer.json", "added_tokens.json"):
        (copy / name).unlink(missing_ok=True)
    if not (copy / "sentencepiece.bpe.model").exists():
        shutil.copy(copy / "parts" / "sentencepiece.bpe.model", copy)
    plain = convert("hf", copy, tmp_path / "out", WISH)
    assert plain.config == bundle.config
    assert open_tokenizer(plain).encode("ba de") == open_tokenizer(bundle).encode("ba de")


def test_language_symbols_have_the_codes_that_clients_send():
    symbols = ["__de__", "__ceb__"]
    assert language_symbols(symbols) == {"de": "__de__", "ceb": "__ceb__"}
    nllb = ["eng_Latn", "arb_Arab", "zho_Hans", "zho_Hant", "srp_Cyrl", "lvs_Latn", "<mask>"]
    assert list(language_symbols(nllb)) == ["en", "ar", "zh", "zh-Hant", "sr", "lv"]
    assert language_symbols(["de_DE", "<2pt>", "<2zh_Hant>", "word"]) == {
        "de": "de_DE",
        "pt": "<2pt>",
        "zh-Hant": "<2zh_Hant>",
    }


@pytest.mark.parametrize("file", ["config.json", "generation_config.json"])
def test_settings_of_summaries_come_from_the_folder(models, tmp_path, file):
    copy = shutil.copytree(models("bart", "large-cnn")[0].path, tmp_path / "hf")
    said = json.loads((copy / file).read_text())
    settings = {
        "num_beams": 4,
        "length_penalty": 2.0,
        "min_length": 5,
        "max_length": 30,
        "no_repeat_ngram_size": 3,
    }
    named = {"task_specific_params": {"summarization": settings}} if file == "config.json" else settings
    (copy / file).write_text(json.dumps(said | named | {"early_stopping": True}))
    bundle = convert("hf", copy, tmp_path / "out")
    assert (bundle.task, bundle.source, bundle.target) == ("summarize", "en", "en")
    options = bundle.options
    assert (options.beam_size, options.length_penalty, options.no_repeat_ngram_size) == (4, 2.0, 3)
    assert (options.min_length, options.max_length_b) == (4, 28)
