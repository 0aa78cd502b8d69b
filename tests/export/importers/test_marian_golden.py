"""Answers of students against every file of marian-decoder's answers in `../shared/students/golden`.

Marian has one length limit and one shortlist for a batch, we have them for each sentence: sentences of a
batch of 16 are decoded with the limit and the shortlist of their batch.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
import yaml

from engine.backends import Placement
from engine.bundle.bundle import Bundle, add_files
from engine.bundle.shortlist import SHORTLIST, Shortlist, load_shortlist
from engine.text.tokenizers.tokenizer import open_tokenizer
from export.graphs.onnx import add_graphs
from export.importers import convert
from export.importers.settings import MarianImport, StudentImport
from tests.support.models import NEEDS_LIBRARY
from tests.support.students import WHOLE, Agreement, agreement, alignment_agreement, answers
from tests.support.thorough import THOROUGH

pytestmark = pytest.mark.skipif(not WHOLE.is_dir(), reason="no ../shared/students/golden")
BACKENDS = ["onnx-pure", pytest.param("onnx-native", marks=NEEDS_LIBRARY), "torch"]
FLOAT, INT8, DAN = "student-fp32", "student-int8", "transformer-dan"


@dataclass(frozen=True)
class Case:
    """A file of answers, and the required agreement.

    folder: folder of the student.
    name: name of the file.
    beam: beam size.
    best: number of lines, of 39, whose best answers are equal.
    share: share of the entries of Marian's n-best lists that are in ours.
    score: largest difference of a score; None: Marian's scores are sums of logits.
    changes: changed decoding options.
    """

    folder: str
    name: str
    beam: int
    best: int
    share: float
    score: float | None
    changes: dict[str, float] = field(default_factory=dict)


def exact(folder: str, name: str, beam: int, **changes: float) -> Case:
    return Case(folder, name, beam, 39, 1.0, 1e-4, changes)


def near(name: str, beam: int, **changes: float) -> Case:
    return Case(INT8, name, beam, 38, 0.96, 0.05, changes)


CASES = [
    *(exact(FLOAT, name, beam) for name, beam in (("fp32.b1", 1), ("fp32.b4", 4), ("fp32.b12", 12))),
    *(exact(FLOAT, name, beam) for name, beam in (("fp32.lex.b1", 1), ("fp32.lex.b4", 4))),
    exact(FLOAT, "fp32.lex.20.3.b4", 4),
    *(exact(DAN, name, beam) for name, beam in (("fp32.b1", 1), ("fp32.b4", 4), ("fp32.b12", 12))),
    exact(DAN, "fp32.b4.n06.wp02", 4, length_penalty=0.6, word_reward=-0.2),
    exact(DAN, "fp32.b4.unk.short", 4, unk_penalty=0.0, max_length_a=0.5),
    *(near(name, beam) for name, beam in (("int8.b1", 1), ("int8.b4", 4))),
    *(near(f"int8.lex.{name}", beam) for name, beam in (("b1", 1), ("b4", 4), ("b12", 12))),
    near("int8signed.lex.b4", 4),
    Case(INT8, "int8.lex.firefox", 1, 38, 0.96, None, {"max_length_a": 2.0}),
    # on these processors sums of pairs saturate: exact int8 agrees with them as often as Marian's
    *(Case(INT8, f"int8.lex.{isa}.b4", 4, 26, 0.7, None) for isa in ("avx512bw", "avx2", "ssse3")),
]

# max_length_a refers to the longest source of a batch
BATCHED = [
    *(exact(FLOAT, f"fp32.{name}", 4, max_length_a=3.0) for name in ("b4.batch16", "lex.b4.batch16")),
    exact(DAN, "fp32.b4.batch16", 4, max_length_a=3.0),
    *(near(f"int8.{name}", 4, max_length_a=3.0) for name in ("b4.batch16", "lex.b4.batch16")),
    Case(INT8, "int8.lex.firefox.batch16", 1, 38, 0.96, None, {"max_length_a": 2.0}),
]
BACKEND = "onnx-pure"


@pytest.fixture(scope="module")
def bundles(tmp_path_factory):
    root, made = tmp_path_factory.mktemp("golden"), {}

    def of(folder: str, *, alphas: bool = True) -> Bundle:
        if (folder, alphas) not in made:
            out, spoken = root / f"{folder}-{alphas}", {"source": "de", "target": "en"}
            if folder == DAN:
                bundle = convert("marian", WHOLE / folder, out, MarianImport(**spoken))
            else:
                bundle = convert("bergamot", WHOLE / folder, out, StudentImport(alphas=alphas, **spoken))
            made[folder, alphas] = add_graphs(bundle)
        return made[folder, alphas]

    def pruned() -> Bundle:
        """Return the float student with a shortlist pruned by Marian's option `20 3 0.01`."""
        if "pruned" not in made:
            shutil.copytree(WHOLE / FLOAT, root / "files", ignore=shutil.ignore_patterns("out"))
            config = root / "files" / "config.yml"
            options = yaml.safe_load(config.read_text())
            options["shortlist"] = [options["shortlist"][0], 20, 3, 0.01]
            config.write_text(yaml.safe_dump(options))
            settings = StudentImport(source="de", target="en")
            made["pruned"] = add_graphs(convert("bergamot", root / "files", root / "pruned", settings))
        return made["pruned"]

    of.pruned = pruned
    return of


def texts_of(folder: str) -> list[str]:
    return (WHOLE / folder / "input.txt").read_text("utf-8").splitlines()


def placed(case: Case, backend: str) -> Placement:
    precision = "int8" if case.folder == INT8 else "fp32"
    return Placement(backend, precision=precision, shortlist="lex" in case.name)


@pytest.mark.parametrize("backend", BACKENDS if THOROUGH else BACKENDS[1:2])
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.folder} {case.name}")
def test_answers_agree_with_marian_decoder(bundles, case, backend):
    if backend == "torch" and "lex" in case.name:
        pytest.skip("the torch backend has no shortlists")
    bundle = bundles.pruned() if "20.3" in case.name else bundles(case.folder)
    path = WHOLE / case.folder / "out" / f"{case.name}.nbest"
    found = agreement(bundle, placed(case, backend), path, texts_of(case.folder), case.beam, **case.changes)
    assert (found.lines, found.entries) == (39, 39 * case.beam)
    assert found.best >= case.best, found
    assert found.common >= found.entries * case.share, found
    assert case.score is None or found.score < case.score, found


@pytest.mark.parametrize("case", BATCHED, ids=lambda case: f"{case.folder} {case.name}")
def test_answers_with_limits_and_shortlist_of_a_batch_agree_with_marian_decoder(bundles, tmp_path, case):
    """Batches have 16 sentences, sorted by length."""
    bundle, texts = bundles(case.folder), texts_of(case.folder)
    tokenizer, path = open_tokenizer(bundle), WHOLE / case.folder / "out" / f"{case.name}.nbest"
    sources = [[*tokenizer.encode(text), bundle.config.eos] for text in texts]
    order = sorted(range(len(sources)), key=lambda i: -len(sources[i]))
    found = list[Agreement]()
    for start in range(0, len(order), 16):
        lines = order[start : start + 16]
        batch = [sources[i] for i in lines]
        asked = bundle
        if "lex" in case.name:
            one = tmp_path / str(start)
            shutil.copytree(bundle.path, one)
            asked = add_files(one, {SHORTLIST: of_batch(bundle, batch).dump()})
        limits = {"max_length_a": 0.0, "max_length_b": int(case.changes["max_length_a"] * len(batch[0]))}
        found.append(agreement(asked, placed(case, BACKEND), path, texts, case.beam, only=lines, **limits))
    best, common = sum(f.best for f in found), sum(f.common for f in found)
    assert sum(f.entries for f in found) == 39 * case.beam
    assert best >= case.best
    assert common >= 39 * case.beam * case.share
    assert case.score is None or max(f.score for f in found) < case.score
    if "lex" in case.name:  # with a shortlist for each sentence the answers differ
        assert agreement(bundle, placed(case, BACKEND), path, texts, case.beam).best < best


def of_batch(bundle: Bundle, sources: list[list[int]]) -> Shortlist:
    """Return a shortlist with all tokens that the bundle's shortlist allows for any of these sources."""
    sizes = bundle.config.source_vocab, bundle.config.target_vocab
    shortlist = load_shortlist(bundle.file(SHORTLIST).read_bytes(), sizes, bundle.config.eos)
    unfilled = replace(shortlist, multiple=1)
    union = np.unique(np.concatenate([unfilled.of(source) for source in sources])).astype(np.int32)
    nothing = np.full((sizes[0], 1), -1, np.int32)
    return replace(shortlist, always=union, likely=nothing, copies=False)


def decoded(
    bundle: Bundle, folder: str, placement: Placement, **options: float
) -> dict[int, tuple[str, object]]:
    """Return text and hypothesis of the best answer of each line."""
    tokenizer, texts = open_tokenizer(bundle), texts_of(folder)
    lines = [i for i, text in enumerate(texts) if tokenizer.encode(text)]
    sources = [[*tokenizer.encode(texts[i]), bundle.config.eos] for i in lines]
    wanted = replace(bundle.options, **{"n_best": 1, "max_length_a": 3.0, **options})
    found = answers(bundle, placement, sources, wanted)
    return {i: (tokenizer.decode(h.tokens), h) for i, (h, *_) in zip(lines, found, strict=True)}


@pytest.mark.parametrize(
    ("folder", "name", "beam", "least"),
    [
        (FLOAT, "fp32.b4", 4, 39),
        (FLOAT, "fp32.lex.b4", 4, 39),
        (DAN, "fp32.b4", 4, 39),
        (INT8, "int8.b4", 4, 38),
        (INT8, "int8.lex.b4", 4, 38),
        (INT8, "int8.lex.firefox", 1, 38),
        (INT8, "wasm.firefox", 1, 24),  # sums of pairs saturate, and line 23 is split
    ],
)
def test_texts_agree_with_marian_decoder(bundles, folder, name, beam, least):
    told = (WHOLE / folder / "out" / f"{name}.txt").read_text("utf-8").splitlines()
    case = Case(folder, name if "wasm" not in name else "int8.lex", beam, 0, 0, None)
    limit = 2.0 if "firefox" in name else 3.0
    ours = decoded(bundles(folder), folder, placed(case, "onnx-pure"), beam_size=beam, max_length_a=limit)
    assert sum(told[i].strip() == text for i, (text, _) in ours.items()) >= least


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("folder", "name", "close"),
    [(FLOAT, "fp32.b1", 1e-4), (DAN, "fp32.b1", 1e-4), (INT8, "int8.lex.b1", 0.05)],
)
def test_alignments_use_the_head_that_marian_prints(bundles, folder, name, close, backend):
    if backend == "torch" and "lex" in name:
        pytest.skip("the torch backend has no shortlists")
    path = WHOLE / folder / "out" / f"{name}.align.gz"
    placement = placed(Case(folder, name, 1, 0, 0, None), backend)
    found = alignment_agreement(bundles(folder), placement, path, texts_of(folder))
    assert found.lines >= 38
    assert found.score < close


def test_row_scales_agree_with_the_dynamic_scale_of_marian(bundles):
    """Marian has one dynamic scale for all tokens of a sentence, ours has one for each and is more exact."""
    placement = Placement("onnx-pure", precision="int8", shortlist=True)
    path = WHOLE / INT8 / "out" / "int8dynamic.lex.b4.nbest"
    rows = agreement(bundles(INT8, alphas=False), placement, path, texts_of(INT8), 4)
    assert rows.best >= 27, rows  # int8 with alphas and floats agree on as many lines
    assert rows.score < 0.05
