"""Files of tensors, compared with safetensors' own library."""

import resource
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from engine.bundle.tensors import (
    ALIGNMENT,
    MappedTensors,
    SharedArrays,
    Spec,
    TensorPart,
    remove_shared,
    write_tensors,
)
from engine.bundle.weights import PIECE, LazyWeight, parts_of, quantize_rows, specs_of

shapes = st.lists(st.integers(0, 5), max_size=3).map(tuple)
kinds = st.sampled_from((np.float32, np.float16, np.int8))
tensors = st.dictionaries(st.text(min_size=1, max_size=6), st.tuples(kinds, shapes), max_size=6)


@given(tensors, st.randoms())
def test_tensors_written_in_any_order_are_valid_safetensors(tmp_path_factory, drawn, order):
    path = tmp_path_factory.mktemp("tensors") / "a.safetensors"
    rng = np.random.default_rng(0)
    drawn.pop("__metadata__", None)
    values = {name: rng.integers(-9, 9, shape).astype(kind) for name, (kind, shape) in drawn.items()}
    parts = [TensorPart(name, array) for name, array in values.items()]
    order.shuffle(parts)
    write_tensors(path, {name: Spec(a.dtype, a.shape) for name, a in values.items()}, parts)
    mapped = MappedTensors(path)
    for found in (load_file(path), mapped):
        assert found.keys() == values.keys()
        for name, array in values.items():
            assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
            assert (found[name] == array).all()
    mapped.forget()
    assert all((mapped[name] == array).all() for name, array in values.items())
    assert (8 + int.from_bytes(path.read_bytes()[:8], "little")) % ALIGNMENT == 0


def test_mapped_safetensors_are_read_only(tmp_path):
    values = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.int8([[1], [-1]])}
    save_file(values, tmp_path / "a.safetensors", {"note": "of another"})
    mapped = MappedTensors(tmp_path / "a.safetensors")
    assert all((mapped[name] == array).all() for name, array in values.items())
    with pytest.raises(ValueError, match="read-only"):
        mapped["a"][0, 0] = 1


@pytest.mark.parametrize("int8", [False, True])
def test_a_weight_that_is_made_later_is_the_weight_in_pieces(int8):
    rows = PIECE // 500 + 7  # two parts
    weight = np.random.default_rng(1).standard_normal((rows, 500), np.float32)
    later = LazyWeight(weight.shape, lambda: weight, int8)
    specs, half = specs_of("w", later, np.dtype(np.float16)), np.dtype(np.float16)
    assert list(specs) == (["w", "w.scale"] if int8 else ["w"])
    pieces = list(parts_of("w", later, half))
    assert len(pieces) > len(specs)
    whole = {name: np.zeros(np.prod(spec.shape, dtype=int), spec.dtype) for name, spec in specs.items()}
    for part in pieces:
        whole[part.name][part.first : part.first + part.values.size] = part.values.ravel()
    expected = quantize_rows(weight)
    if int8:
        assert (whole["w"].reshape(weight.shape) == expected.values).all()
        assert (whole["w.scale"] == expected.scale).all()
    else:
        assert (whole["w"].reshape(weight.shape) == weight.astype(np.float16)).all()


def test_mapping_a_file_takes_no_memory_until_it_is_read_and_gives_it_back(tmp_path):
    path, rows = tmp_path / "a.safetensors", 1 << 14
    spec = Spec(np.dtype(np.int8), (rows, 4096))  # 64 MiB
    write_tensors(
        path, {"a": spec}, (TensorPart("a", np.ones((1024, 4096), np.int8), i << 22) for i in range(16))
    )
    script = f"""
import pathlib
from engine.bundle.tensors import MappedTensors
def resident():
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * {resource.getpagesize()}
before = resident()
tensors = MappedTensors(pathlib.Path({str(path)!r}))
mapped = resident()
assert int(tensors["a"].max()) == 1
read = resident()
tensors.forget()
print(mapped - before, read - before, resident() - before)
"""
    if not sys.platform.startswith("linux"):
        pytest.skip("counts pages as Linux tells them")
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    mapped, read, given_back = (int(word) / 2**20 for word in out.stdout.split())
    assert read > 48
    assert max(mapped, given_back) < 32


def never():
    raise AssertionError("it is made a second time")


def test_array_of_one_process_is_mapped_by_others(tmp_path):
    made = np.arange(4096, dtype=np.float32).reshape(64, 64).T
    first, second = (SharedArrays(tmp_path, "a/../b", "0123") for _ in range(2))
    own = first.array("transposed", lambda: made)
    mapped = second.array("transposed", never)
    np.testing.assert_array_equal(own, made)
    np.testing.assert_array_equal(mapped, made)
    with pytest.raises(ValueError, match="read-only"):
        mapped[0, 0] = 1
    assert len([path for path in tmp_path.rglob("*") if path.is_file()]) == 1
    # a new bundle of the same name replaces the files; existing maps stay valid
    SharedArrays(tmp_path, "c", "0123").array("transposed", lambda: made)
    new = SharedArrays(tmp_path, "a/../b", "4567").array("transposed", lambda: -made)
    np.testing.assert_array_equal(new, -made)
    np.testing.assert_array_equal(mapped, made)
    assert len([path for path in tmp_path.rglob("*") if path.is_file()]) == 2


def test_removed_arrays_stay_in_the_processes_that_map_them_and_are_made_again(tmp_path):
    made = np.ones((64, 64), np.float32)
    other, mine = (SharedArrays(tmp_path, name, "0") for name in ("b", "a"))
    other.array("ones", lambda: made)
    mapped = mine.array("ones", lambda: made)
    remove_shared(tmp_path, "a")
    remove_shared(tmp_path, "never stored")
    assert len(list(tmp_path.rglob("*.npy"))) == 1
    np.testing.assert_array_equal(mapped, made)
    np.testing.assert_array_equal(mine.array("ones", lambda: 2 * made), 2 * made)


def test_array_made_by_two_processes_at_once_is_one_file(tmp_path):
    made = np.ones((64, 64), np.float32)
    first, second = (SharedArrays(tmp_path, "a", "0") for _ in range(2))

    def slow():
        """Compute the array after another process has stored it."""
        second.array("ones", lambda: made)
        (path,) = tmp_path.rglob("*.npy")
        seen.append(path.stat().st_ino)
        return made.copy()

    seen = []
    np.testing.assert_array_equal(first.array("ones", slow), made)
    (path,) = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert seen == [path.stat().st_ino]


def test_small_mapped_or_unwritable_arrays_are_not_shared(tmp_path, caplog):
    kept, small, large = SharedArrays(tmp_path / "kept", "a", "0"), np.ones(9), np.ones((99, 99))
    assert kept.array("small", lambda: small) is small
    save_file({"large": large.astype(np.float32)}, tmp_path / "a.safetensors")
    mapped = MappedTensors(tmp_path / "a.safetensors")["large"]
    assert kept.array("mapped", lambda: mapped.T) is not None
    assert not list(tmp_path.rglob("*.npy"))
    (tmp_path / "file").write_text("no folder")
    own = SharedArrays(tmp_path / "file", "a", "0").array("large", lambda: large)
    assert own is large
    assert "weights are not shared with other processes" in caplog.text
