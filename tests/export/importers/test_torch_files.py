"""Files of torch.save, of both formats, read without torch: each tensor has the values that torch reads."""

from __future__ import annotations

import collections
import pickle
import zipfile

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from engine.errors import CheckpointError
from export.importers.checkpoint import read_state
from export.importers.huggingface.files import read_weights

FORMATS = pytest.mark.parametrize("zipped", [False, True])


def saved(path, content, *, zipped=True, **more):
    torch.save(content, path, _use_new_zipfile_serialization=zipped, **more)
    return path


def check(path, tensors):
    """Compare the arrays of a file with tensors."""
    state = read_state(path)
    assert list(state) == list(tensors)
    for name, tensor in tensors.items():
        expected = tensor.detach()
        if tensor.dtype == torch.bfloat16:
            assert str(state[name].dtype) == "bfloat16"
            expected = expected.float()
        values = state[name].astype(expected.numpy().dtype)
        assert values.shape == tuple(tensor.shape)
        np.testing.assert_array_equal(values, expected.numpy())


@FORMATS
@pytest.mark.parametrize(
    "dtype",
    [
        *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32),
        *(torch.int16, torch.int8, torch.uint8, torch.bool, torch.complex64),
    ],
)
def test_every_type_is_read(tmp_path, zipped, dtype):
    tensors = {"a": (10 * torch.randn(3, 5)).to(dtype), "b": torch.ones(7).to(dtype)}
    check(saved(tmp_path / "a.bin", tensors, zipped=zipped), tensors)


@FORMATS
def test_views_and_shared_storages_are_read(tmp_path, zipped):
    whole = torch.randn(6, 8, 5)
    tensors = {
        "whole": whole,
        "transposed": whole.transpose(0, 2),
        "part": whole[2:4, ::3, 1],
        "row": whole[3],
        "empty": whole[:0],
        "number": torch.tensor(3.5),
        "parameter": torch.nn.Parameter(torch.randn(3)),
        "buffer": torch.nn.Buffer(torch.randn(2)),
    }
    check(saved(tmp_path / "a.bin", tensors, zipped=zipped), tensors)


@FORMATS
@pytest.mark.parametrize("protocol", [2, 4])
def test_state_of_a_module_is_read(tmp_path, zipped, protocol):
    state = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4)).state_dict()
    assert isinstance(state, collections.OrderedDict)
    check(saved(tmp_path / "a.bin", state, zipped=zipped, pickle_protocol=protocol), state)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.bool])
def test_every_type_of_safetensors_is_read(tmp_path, dtype):
    tensors = {"a": (10 * torch.randn(3, 5)).to(dtype), "b": torch.ones(7)}
    save_file(tensors, tmp_path / "a.safetensors")
    arrays = read_weights(tmp_path / "a.safetensors")
    np.testing.assert_array_equal(arrays["a"].astype(np.float64), tensors["a"].double().numpy())


def test_unknown_type_of_safetensors_is_refused(tmp_path):
    save_file({"a": torch.ones(4).to(torch.float8_e4m3fn)}, tmp_path / "a.safetensors")
    with pytest.raises(CheckpointError, match="a is F8_E4M3, not one of F32, F16"):
        read_weights(tmp_path / "a.safetensors")


def rewritten(path, change):
    """Change the members of a zip archive."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    change(members)
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)


def _set(name, content):
    return lambda members: members.update({next(n for n in members if n.endswith(name)): content})


@pytest.mark.parametrize(
    "change, message",
    [
        (_set("data/0", b"1234"), "shorter than its tensors"),
        (_set("byteorder", b"big"), "big-endian"),
        (lambda members: members.pop(next(n for n in members if n.endswith("data/0"))), "KeyError"),
        (lambda members: members.pop(next(n for n in members if n.endswith("data.pkl"))), "ValueError"),
    ],
)
def test_archive_with_other_members_is_refused(tmp_path, change, message):
    path = saved(tmp_path / "a.bin", {"a": torch.ones(9)})
    rewritten(path, change)
    with pytest.raises(CheckpointError, match=f"not a readable checkpoint.*{message}"):
        read_state(path)


def test_compressed_archive_is_refused_before_it_is_unpacked(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.bin", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/data.pkl", pickle.dumps(bytes(10_000_000)))
    with pytest.raises(CheckpointError, match="it is compressed"):
        read_state(tmp_path / "a.bin")


def _tensor(*arguments):
    """Return the pickle of a state with a tensor of these arguments and a storage of 9 floats."""
    storage = b"(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpuK\ttQ"
    numbers = b"(" + storage + b"".join(pickle.dumps(value, 2)[2:-1] for value in arguments) + b"t"
    return b"\x80\x02}X\x01\x00\x00\x00actorch._utils\n_rebuild_tensor_v2\n" + numbers + b"Rs."


def test_tensor_outside_its_storage_is_refused(tmp_path):
    path = saved(tmp_path / "a.bin", {"a": torch.arange(9.0)})
    rewritten(path, _set("data.pkl", _tensor(2, (2, 3), (3, 1))))
    np.testing.assert_array_equal(read_state(path)["a"], [[2, 3, 4], [5, 6, 7]])
    for offset, shape, strides in [
        (4, (2, 3), (3, 1)),
        (-1, (2,), (1,)),
        (0, (2,), (-1,)),
        (0, (2**40, 2**40), (0, 0)),
        (0, (3, 3), (1,)),
        (0, (3.0,), (1,)),
        (0, (2,), (2**61,)),
    ]:
        rewritten(path, _set("data.pkl", _tensor(offset, shape, strides)))
        with pytest.raises(CheckpointError, match="not an ordinary tensor"):
            read_state(path)


def test_keys_that_take_long_to_hash_are_refused(tmp_path):
    """Each level holds the level before twice, so a hash would visit 2 ** 20 tuples."""
    levels = b")" + b"".join(b"q%c0h%ch%c\x86" % (level, level, level) for level in range(20))
    path = saved(tmp_path / "a.bin", {"a": torch.ones(9)})
    rewritten(path, _set("data.pkl", b"\x80\x02}" + levels + b"Ns."))
    with pytest.raises(CheckpointError, match="a key is no number or text"):
        read_state(path)
