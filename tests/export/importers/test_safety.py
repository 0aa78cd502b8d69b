"""Hostile and damaged checkpoints: no code in them runs, and each gives one clear error."""

from __future__ import annotations

import argparse
import functools
import io
import os
import pickle
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from engine.bundle.bundle import open_bundle
from engine.errors import CheckpointError
from export.importers import convert
from export.importers.settings import FairseqImport
from tests.support.checkpoints import folder_of, namespace, refused, state
from tests.support.golden_fixtures import SELECTION


@pytest.fixture
def made(tmp_path):
    """Write a folder with dyn_noglu's dictionaries and a checkpoint of these parts."""
    return lambda content, *, old=False: folder_of(tmp_path / "made", content, old=old)


class Trap:
    """Runs a function of the standard library when it is unpickled."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


def traps(marker: Path) -> dict[str, Trap]:
    """Return objects that each make the folder `marker` when their pickle is loaded."""
    code = f"__import__('os').mkdir({str(marker)!r})"
    return {
        "mkdir": Trap(os.mkdir, str(marker)),
        "system": Trap(os.system, f"mkdir {marker}"),
        "eval": Trap(eval, code),
        "exec": Trap(exec, code),
        "Popen": Trap(subprocess.Popen, ["mkdir", str(marker)]),
        "getattr": Trap(getattr, Trap(__import__, "os"), "mkdir"),
        "loads": Trap(pickle.loads, pickle.dumps(Trap(os.mkdir, str(marker)))),
        "partial": Trap(functools.partial, os.mkdir, str(marker)),
    }


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("place", ["model", "args", "extra_state", "nested"])
@pytest.mark.parametrize("name", ["mkdir", "system", "eval", "exec"])
def test_malicious_pickle_is_not_run(made, tmp_path, old, place, name):
    marker = tmp_path / "marker"
    trap = traps(marker)[name]
    content = {"args": namespace(), "model": state(), "extra_state": {}}
    if place == "args":
        content["args"] = argparse.Namespace(arch=trap)
    elif place == "nested":
        content["extra_state"] = {"train_iterator": [{"epoch": (1, {"deep": trap})}]}
    else:
        content[place] = {"a": trap}
    path = made(content, old=old)
    refused(path, rf"refers to (posix\.|nt\.|builtins\.)?{name}, which is not on the list")
    assert not marker.exists()
    torch.load(path / "model.pt", weights_only=False)  # the trap works
    assert marker.exists()


@pytest.mark.parametrize("name", ["Popen", "getattr", "loads", "partial"])
def test_other_ways_to_run_code_are_refused_by_name(made, tmp_path, name):
    marker = tmp_path / "marker"
    content = {"args": namespace(), "model": state(), "last_optimizer_state": traps(marker)[name]}
    refused(made(content), rf"refers to \S*\b{name}, which is not on the list")
    assert not marker.exists()


# pickles written by hand: attributes of harmless classes must not lead further
FORMS = {
    "an attribute of a harmless class": b"cargparse\nNamespace.__init__.__globals__\n.",
    "a stand-in's own name": b"cexport.checkpoint\nArguments\n.",
    "a module": b"cos\nenviron\n.",
    "the old opcode for instances": b"(S'echo'\nios\nsystem\n.",
    "an extension": b"\x80\x02\x82\x01.",
    "a call of a tensor's method": b"ctorch\nTensor.tofile\n.",
}


@pytest.mark.parametrize("form", list(FORMS))
def test_hand_written_pickles_are_refused(made, form):
    path = made({"args": namespace(), "model": state()}) / "model.pt"
    with zipfile.ZipFile(path) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in entries.items():
            archive.writestr(name, FORMS[form] if name.endswith("data.pkl") else content)
    refused(path.parent, "not on the list|not a readable checkpoint")


def test_stand_ins_can_be_called_but_do_nothing(made, tmp_path):
    """A stand-in class accepts any arguments and state, but nothing uses them later."""
    content = io.BytesIO()
    torch.save({"args": namespace(), "model": state(), "extra_state": {"x": Called("numpy.dtype")}}, content)
    path = made({}) / "model.pt"
    path.write_bytes(content.getvalue())
    assert convert("fairseq", path.parent, tmp_path / "out").name == "out"


class Called:
    """A pickle that calls numpy's dtype, with a state that would replace its attributes."""

    def __init__(self, name):
        self.name = name

    def __reduce__(self):
        import numpy as np

        return np.dtype, ("f8", False, True), (3, "<", None, None, None, -1, -1, 0)


def test_other_classes_are_refused_by_name(made):
    content = {"args": namespace(extra=argparse.ArgumentParser), "model": state()}
    refused(made(content), r"argparse\.ArgumentParser, which is not on the list.*nothing was run")


# Damage


@pytest.fixture(scope="module", params=["old061_dyn_glu", "dyn_glu_fp16"])
def damaged(request, tmp_path_factory):
    """Import a checkpoint of the older or the zip format with changed bytes."""
    path = tmp_path_factory.mktemp("damage") / request.param
    shutil.copytree(SELECTION / request.param, path)
    content = (path / "checkpoint.pt").read_bytes()

    def attempt(change):
        (path / "checkpoint.pt").write_bytes(change(content))
        out = path.parent / "out"
        try:
            open_bundle(convert("fairseq", path, out).path)
        except CheckpointError as error:
            assert str(error).isprintable()
            failed = True
        else:
            shutil.rmtree(out)
            failed = False
        assert [p.name for p in path.parent.iterdir()] == [path.name]
        return failed

    attempt.size = len(content)
    return attempt


@given(share=st.floats(0, 1, exclude_max=True))
@example(share=0.0)
@example(share=0.00001)
@example(share=0.004)
def test_truncated_checkpoint_is_refused_with_one_clear_error(damaged, share):
    assert damaged(lambda content: content[: int(len(content) * share)])


@given(
    st.lists(
        # the pickles are at the beginning, followed by numbers
        st.tuples(
            st.one_of(st.integers(0, 299), st.integers(0, 19_999), st.integers(0, 500_000)),
            st.integers(0, 255),
        ),
        min_size=1,
        max_size=20,
    )
)
def test_damaged_checkpoint_is_refused_or_imported_whole(damaged, changes):
    def change(content):
        broken = bytearray(content)
        for place, value in changes:
            broken[place % len(broken)] = value
        return bytes(broken)

    damaged(change)


def with_pickle(content, change):
    """Return a checkpoint in zip format with another pickle and valid checksums."""
    made = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(made, "w") as new:
        for entry in old.namelist():
            data = old.read(entry)
            new.writestr(entry, change(data) if entry.endswith("data.pkl") else data)
    return made.getvalue()


PLACES = st.tuples(st.integers(0, 100_000), st.integers(0, 255))


@pytest.mark.parametrize("damaged", ["dyn_glu_fp16"], indirect=True)
@given(st.lists(PLACES, min_size=1, max_size=8))
def test_other_pickle_in_a_valid_zip_is_refused_or_imported_whole(damaged, changes):
    def change(data):
        broken = bytearray(data)
        for place, value in changes:
            broken[place % len(broken)] = value
        return bytes(broken)

    damaged(lambda content: with_pickle(content, change))


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_one_wrong_bit_in_a_zip_is_refused(made, share):
    path = made({"args": namespace(), "model": state()}) / "model.pt"
    content = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as archive:
        largest = max(archive.infolist(), key=lambda entry: entry.file_size)
    content[largest.header_offset + 100 + int(share * (largest.file_size - 100))] ^= 1
    path.write_bytes(content)
    refused(path.parent, "damaged or incomplete.*checksum")


@given(
    content=st.binary(max_size=200), name=st.sampled_from(["dict.src.txt", "dict.tgt.txt", "code", "a.model"])
)
@example(content=b"", name="code")
@example(content=b"#version:", name="code")
@example(content=b"#version: \n", name="code")
@example(content=b"<s> 1\n<s> 2 #fairseq:overwrite\n", name="dict.src.txt")
def test_random_bytes_as_a_text_file_are_refused_with_one_clear_error(tmp_path_factory, content, name):
    path = tmp_path_factory.mktemp("text") / "made"
    folder_of(path, {"args": namespace(), "model": state()})
    (path / name).write_bytes(content)
    try:
        convert("fairseq", path, path.parent / "out", FairseqImport())
    except CheckpointError as error:
        assert path.name in str(error)
        assert not (path.parent / "out").exists()
    else:
        assert name == "code"  # any line of two words is a valid merge
