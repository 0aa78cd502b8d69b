"""Hostile files of students: each gives an error of one line, allocates little memory and leaves no files."""

from __future__ import annotations

import gzip
import io
import shutil
import struct
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import yaml
import zstandard

from engine.errors import CheckpointError
from export.importers import convert
from export.importers.marian.binary import read_binary
from tests.export.importers.test_bergamot import make
from tests.support.marian_reference import write_binary
from tests.support.native_marian_models import SSRU, with_options

MODEL, LEXICON, PIECES = "model.deen.intgemm.bin", "lex.50.50.deen.s2t.bin", "vocab.deen.spm"
MOST = 48 * 2**20  # limit of allocated bytes; the whole student has 0.1 MB
VOCABULARY = 68


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Return the folder of a valid student, its arrays and its options."""
    folder = tmp_path_factory.mktemp("whole") / "deen"
    arrays, options = make(folder, SSRU)
    size = options["dim-vocabs"][0]
    (folder / LEXICON).write_bytes(lexicon([[3, 4]] * size))
    convert("bergamot", folder, folder.parent / "out")
    return folder, arrays, options


def lexicon(lists, first=50, magic=0xF11A48D5013417F5, **lies):
    """Return a binary shortlist; `lies` replace numbers of its header."""
    offsets = np.cumsum([0, *map(len, lists)])
    said = {"magic": magic, "checksum": 1, "first": first, "best": 50, "offsets": len(offsets)} | {
        "ids": int(offsets[-1])
    }
    header = struct.pack("<6Q", *(said | lies).values())
    return header + offsets.astype("<u8").tobytes() + np.concatenate(lists).astype("<u4").tobytes()


def header(data: bytes, item: int, field: int, value: int) -> bytes:
    """Return a change of a number in an item's header: 0 name, 1 type, 2 dimensions, 3 bytes."""
    at = 16 + 32 * item + 8 * field
    return data[:at] + struct.pack("<Q", value) + data[at + 8 :]


def shape(data: bytes, item: int, value: int) -> bytes:
    """Return a change of the first number of an item's shape."""
    (count,) = struct.unpack_from("<Q", data, 8)
    heads = [struct.unpack_from("<4Q", data, 16 + 32 * i) for i in range(count)]
    at = 16 + 32 * count + sum(h[0] for h in heads) + 4 * sum(h[2] for h in heads[:item])
    return data[:at] + struct.pack("<i", value) + data[at + 4 :]


def npy(text: str, data: bytes = b"") -> bytes:
    head = text.encode() + b" " * (-(len(text) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head + data


def archive(**members: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in members.items():
            file.writestr(f"{name}.npy", data)
    return out.getvalue()


def binary(change: Callable[[bytes], bytes]) -> Callable[..., None]:
    def spoil(folder: Path, arrays: dict, options: dict) -> None:
        path = folder / MODEL
        path.write_bytes(change(path.read_bytes()))

    return spoil


def contents(change: Callable[[dict], dict]) -> Callable[..., None]:
    def spoil(folder: Path, arrays: dict, options: dict) -> None:
        write_binary(with_options(change(dict(arrays)), options), folder / MODEL)

    return spoil


def said(**changes: object) -> Callable[..., None]:
    def spoil(folder: Path, arrays: dict, options: dict) -> None:
        write_binary(with_options(arrays, options | changes), folder / MODEL)

    return spoil


def yml(text: bytes) -> Callable[..., None]:
    return contents(lambda a: a | {"special:model.yml": np.frombuffer(text, np.int8)})


def instead(name: str, data: bytes | Callable[[bytes], bytes], of: str | None = None) -> Callable[..., None]:
    """Return a change that replaces the file `of`."""

    def spoil(folder: Path, arrays: dict, options: dict) -> None:
        old = (folder / (of or name)).read_bytes()
        (folder / (of or name)).unlink()
        (folder / name).write_bytes(data if isinstance(data, bytes) else data(old))

    return spoil


def multiplier(value: float) -> Callable[..., None]:
    return contents(lambda a: a | {"decoder_l1_rnn_W": (a["decoder_l1_rnn_W"][0], value)})


def alpha(value: float) -> Callable[..., None]:
    return contents(lambda a: a | {"decoder_l1_rnn_W_QuantMultA": np.array([[value]], np.float32)})


def words(text: bytes) -> Callable[..., None]:
    return instead("lex.s2t.gz", gzip.compress(text), LEXICON)


LAUGHS = b"a: &a [1,1,1,1,1,1,1,1]\n" + b"".join(
    b"%c: &%c [%s]\n" % (c + 1, c + 1, b",".join([b"*%c" % c] * 9)) for c in range(97, 110)
)
BOMB = bytes(2**28)
HOSTILE: dict[str, tuple[Callable[..., None], str]] = {
    "an empty model": (binary(lambda d: b""), "cut short"),
    "no model at all": (binary(lambda d: b"PK\3\4" + bytes(100)), "version"),
    "another version": (binary(lambda d: struct.pack("<Q", 2) + d[8:]), "version 2"),
    "items without end": (binary(lambda d: d[:8] + struct.pack("<Q", 2**63) + d[16:]), "cut short"),
    "more items than there are": (
        binary(lambda d: d[:8] + struct.pack("<Q", 2000) + d[16:]),
        "not a readable",
    ),
    "a name without end": (binary(lambda d: header(d, 0, 0, 2**62)), "cut short"),
    "a name of nothing": (binary(lambda d: header(d, 0, 0, 0)), "not a readable"),
    "a name that does not end": (binary(lambda d: header(d, 0, 0, 3)), "a name does not end"),
    "a name of no text": (
        binary(lambda d: d.replace(b"encoder_l1_self_Wq\0", b"\xff" * 18 + b"\0")),
        "utf-8",
    ),
    "a name twice": (
        binary(lambda d: d.replace(b"encoder_l1_self_Wq\0", b"encoder_l1_self_Wk\0")),
        "occurs twice",
    ),
    "an unknown type": (binary(lambda d: header(d, 1, 1, 0x1234)), "type 0x1234"),
    "FBGEMM in 16 bits": (binary(lambda d: header(d, 1, 1, 0x0802)), "packed by FBGEMM (packed16)"),
    "FBGEMM for AVX2": (binary(lambda d: header(d, 1, 1, 0x1801)), "packed by FBGEMM (packed8avx2)"),
    "FBGEMM for AVX-512": (binary(lambda d: header(d, 1, 1, 0x2801)), "packed by FBGEMM (packed8avx512)"),
    "dimensions without end": (binary(lambda d: header(d, 1, 2, 2**61)), "dimensions"),
    "more dimensions than any": (binary(lambda d: header(d, 1, 2, 9)), "9 dimensions"),
    "data without end": (binary(lambda d: header(d, 1, 3, 2**63 - 1)), "cut short"),
    "less data than its shape": (binary(lambda d: header(d, 1, 3, 256)), "not a readable"),
    "a negative shape": (binary(lambda d: shape(d, 1, -5)), "has the shape"),
    "a shape beyond memory": (binary(lambda d: shape(d, 1, 2**31 - 1)), "fewer bytes than its shape"),
    "padding without end": (
        binary(
            lambda d: d.replace(struct.pack("<Q", gap_of(d)) + bytes(gap_of(d)), struct.pack("<Q", 2**60), 1)
        ),
        "cut short",
    ),
    "bytes after the end": (binary(lambda d: d + b"more"), "4 bytes lie beyond"),
    "half a model": (binary(lambda d: d[: len(d) // 2]), "cut short"),
    "a header alone": (binary(lambda d: d[:100]), "not a readable"),
    "all but a byte": (binary(lambda d: d[:-1]), "cut short"),
    "a multiplier of zero": (multiplier(0.0), "quantised with 0.0"),
    "a multiplier below zero": (multiplier(-3.0), "quantised with -3.0"),
    "a multiplier of no number": (multiplier(float("nan")), "quantised with nan"),
    "an infinite multiplier": (multiplier(float("inf")), "quantised with inf"),
    "a value without an opposite": (
        contents(lambda a: a | {"Wemb": (np.full_like(a["Wemb"][0], -128), a["Wemb"][1])}),
        "below -127",
    ),
    "quantised in one dimension": (
        contents(lambda a: a | {"decoder_l1_rnn_bf": (np.ones(24, np.int8), 1.0)}),
        "which is not a matrix",
    ),
    "an alpha of zero": (alpha(0.0), "decoder_l1_rnn_W_QuantMultA is not a positive number"),
    "an alpha below zero": (alpha(-1.0), "is not a positive number"),
    "an alpha of no number": (alpha(float("nan")), "is not a positive number"),
    "an alpha that is missing": (
        contents(lambda a: {n: v for n, v in a.items() if n != "encoder_l1_self_Wq_QuantMultA"}),
        "encoder_l1_self_Wq_QuantMultA is missing",
    ),
    "one matrix in floats": (
        contents(lambda a: a | {"encoder_l1_self_Wq": np.ones((24, 24), np.float32)}),
        "encoder_l1_self_Wq is not quantised",
    ),
    "a matrix that is missing": (
        contents(lambda a: {n: v for n, v in a.items() if n != "decoder_l2_rnn_Wf"}),
        "decoder_l2_rnn_Wf is missing",
    ),
    "a matrix too many": (contents(lambda a: a | {"evil": np.ones((2, 2), np.float32)}), "evil is not part"),
    "values that are not finite": (
        contents(lambda a: a | {"decoder_l1_rnn_bf": np.full((1, 24), np.inf, np.float32)}),
        "not finite",
    ),
    "no options": (contents(lambda a: a | {"special:model.yml": np.zeros(1, np.int8)}), "must be an object"),
    "options that are no YAML": (yml(b"{[}\0"), "not readable as YAML"),
    "options that multiply": (yml(LAUGHS), "aliases are not read"),
    "options with code": (yml(b"!!python/object/apply:os.system ['true']"), "not readable as YAML"),
    "another cell": (said(**{"dec-cell": "gru"}), "dec-cell = 'gru' is not supported"),
    "a size beyond memory": (said(**{"transformer-dim-ffn": 2**40}), "is not a valid size"),
    "layers without end": (said(**{"dec-depth": 10**9}), "is not a valid size"),
    "a vocabulary beyond memory": (
        said(**{"dim-vocabs": [2**40, 2**40]}),
        "its options say 1,099,511,627,776 tokens",
    ),
    "gzip that fills memory": (instead(f"{MODEL}.gz", gzip.compress(BOMB), MODEL), "unpacks to more than"),
    "gzip cut short": (instead(f"{MODEL}.gz", lambda d: gzip.compress(d)[:-100], MODEL), "incomplete"),
    "gzip by name only": (instead(f"{MODEL}.gz", lambda d: d, MODEL), "incomplete"),
    "Zstandard that fills memory": (
        instead(f"{MODEL}.zst", zstandard.compress(BOMB), MODEL),
        "unpacks to more than",
    ),
    "Zstandard cut short": (
        instead(f"{MODEL}.zst", lambda d: zstandard.compress(d)[:-100], MODEL),
        "incomplete",
    ),
    "Zstandard by name only": (instead(f"{MODEL}.zst", lambda d: d, MODEL), "incomplete"),
    "a window beyond memory": (
        instead(f"{MODEL}.zst", b"\x28\xb5\x2f\xfd\x00\xf8" + bytes(40), MODEL),
        "incomplete",
    ),
    "an archive that fills memory": (
        instead(
            "model.npz", archive(Wemb=npy("{'descr':'|i1','fortran_order':False,'shape':(1,)}", BOMB)), MODEL
        ),
        "unpacks to",
    ),
    "an array beyond memory": (
        instead(
            "model.npz", archive(Wemb=npy("{'descr':'<f4','fortran_order':False,'shape':(9**12,)}")), MODEL
        ),
        "not a readable",
    ),
    "an array that lies": (
        instead(
            "model.npz",
            archive(Wemb=npy("{'descr':'<f4','fortran_order':False,'shape':(999999999999,)}", b"1234")),
            MODEL,
        ),
        "other bytes than its shape",
    ),
    "an archive of objects": (
        instead("model.npz", archive(Wemb=npy("{'descr':'|O','fortran_order':False,'shape':(1,)}")), MODEL),
        "never read",
    ),
    "no archive": (instead("model.npz", b"nothing", MODEL), "not a readable"),
    "pieces that are none": (instead(PIECES, b"\0" * 999), "not a SentencePiece model"),
    "no pieces": (instead(PIECES, b""), "SentencePiece"),
    "a shortlist cut short": (instead(LEXICON, lambda d: d[:60]), "not those of"),
    "a shortlist's head alone": (instead(LEXICON, lambda d: d[:20]), "not a readable shortlist"),
    "offsets without end": (instead(LEXICON, lexicon([[3]] * 60, offsets=2**62)), "not those of"),
    "ids without end": (instead(LEXICON, lexicon([[3]] * 60, ids=2**63 - 1)), "not those of"),
    "a shortlist of another vocabulary": (instead(LEXICON, lexicon([[3]] * 9)), "it has lists of 9 words"),
    "a list beyond reason": (
        instead(LEXICON, lambda d: lexicon([[3] * 1001] + [[3]] * (count(d) - 1))),
        "longer",
    ),
    "offsets that fall": (
        instead(LEXICON, lambda d: d[:56] + struct.pack("<Q", 2**63) + d[64:]),
        "do not rise",
    ),
    "an id beyond the vocabulary": (
        instead(LEXICON, lambda d: d[:-4] + b"\xff\xff\xff\x7f"),
        "it has the id",
    ),
    "every id in every list": (
        instead(LEXICON, lambda d: lexicon([[3]] * count(d), first=2**40)),
        "in every list",
    ),
    "lines of two words": (words(b"a b\n"), "line 1 is not TARGET SOURCE PROBABILITY"),
    "lines of no text": (words(b"\xff\xfe a 0.5\n"), "not a readable shortlist"),
    "a probability of no number": (words(b"a b nan\n"), "no probability"),
}


def gap_of(data: bytes) -> int:
    (count_,) = struct.unpack_from("<Q", data, 8)
    heads = [struct.unpack_from("<4Q", data, 16 + 32 * i) for i in range(count_)]
    at = 16 + 32 * count_ + sum(h[0] for h in heads) + 4 * sum(h[2] for h in heads)
    return int(struct.unpack_from("<Q", data, at)[0])


def count(data: bytes) -> int:
    """Return the number of lists of a binary shortlist."""
    return int(struct.unpack_from("<Q", data, 32)[0]) - 1


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_file_gives_one_line_and_leaves_no_files(whole, tmp_path, name):
    spoil, message = HOSTILE[name]
    folder, arrays, options = whole
    shutil.copytree(folder, tmp_path / "deen")
    spoil(tmp_path / "deen", arrays, options)
    tracemalloc.start()
    try:
        with pytest.raises(CheckpointError) as caught:
            convert("bergamot", tmp_path / "deen", tmp_path / "out")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    told = str(caught.value)
    assert message in told
    assert "\n" not in told
    assert len(told) < 1000
    assert str(tmp_path) in told
    assert peak < MOST
    assert [path.name for path in tmp_path.iterdir()] == ["deen"]


def test_there_are_fifty_hostile_files():
    assert len(HOSTILE) >= 50


def test_shortlist_with_a_wrong_checksum_is_refused(whole, tmp_path):
    folder = shutil.copytree(whole[0], tmp_path / "deen")
    (folder / "config.yml").write_text(yaml.safe_dump({"shortlist": [LEXICON, True]}))
    with pytest.raises(CheckpointError, match="its checksum is not that of its content"):
        convert("bergamot", folder, tmp_path / "out")


def test_integers_without_room_for_their_multiplier_are_refused():
    name, data = b"decoder_W\0", bytes(4)  # 2 x 2 integers without their multiplier
    header = struct.pack("<QQ", 1, 1) + struct.pack("<4Q", len(name), 0x4101, 2, len(data))
    with pytest.raises(ValueError, match="fewer bytes than its shape"):
        read_binary(header + name + struct.pack("<2i", 2, 2) + struct.pack("<Q", 0) + data)
