"""Our own operators equal numpy on each instruction set of this machine."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import product

import numpy as np
import pytest

from engine.native import build, library, pack, pack32
from tests.support.thorough import some_of

pytestmark = pytest.mark.skipif(library() is None, reason="no native operators: make native")
SETS = tuple(build.SETS.get(build.this_machine().machine, ["baseline"]))


def session(op, inputs, outputs, **attributes):
    """Return a model of one operator; inputs and outputs are numpy types by name."""
    import onnxruntime as ort
    from onnx import TensorProto, helper

    kinds = {np.float32: TensorProto.FLOAT, np.int8: TensorProto.INT8, np.int64: TensorProto.INT64}
    node = helper.make_node(op, list(inputs), list(outputs), domain="convoy", **attributes)
    values = [
        [helper.make_tensor_value_info(name, kinds[kind], None) for name, kind in part.items()]
        for part in (inputs, outputs)
    ]
    graph = helper.make_graph([node], op, *values)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("convoy", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    options = ort.SessionOptions()
    options.register_custom_ops_library(str(library()))
    options.intra_op_num_threads = 2
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def product_of(x, w):
    """Return the product in double precision, which is exact for integers; one of matrices is faster."""
    rows = x.reshape(-1, x.shape[-1]).astype(np.float64)
    return (rows @ w.astype(np.float64)).reshape(*x.shape[:-1], w.shape[1])


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@pytest.mark.parametrize("name", some_of(SETS, 3))
def test_each_instruction_set_passes_the_same_tests(name):
    """Each instruction set has its own process, because a process chooses once."""
    if name == os.environ.get("CONVOY_KERNELS_ISA"):
        pytest.skip("this is the process of that instruction set")
    # without plugins and torch, which take longer to import than these tests run
    environment = os.environ | {"CONVOY_KERNELS_ISA": name, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    alone = ["-q", "-x", "-W", "error", "-c", os.devnull, "--noconftest", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", *alone, __file__, "-k", "equals_numpy"]
    found = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert found.returncode == 0, found.stdout[-2000:]


@pytest.mark.parametrize(("beams", "columns", "width"), [(1, 32, 16), (3, 64, 20), (4, 32, 64)])
def test_attention_over_a_cache_equals_numpy(beams, columns, width):
    g, slots, heads = np.random.default_rng(columns), 3, 2
    q, key, value = (g.normal(size=(slots, beams, heads * width)).astype(F) for _ in range(3))
    keys, values = (g.normal(size=(slots, heads, columns, beams, width)).astype(F) for _ in range(2))
    writers = g.integers(0, beams, (slots, beams, columns))
    lengths = np.array([0, 1, columns - 3])
    lineage = np.full((slots, beams, columns, beams), -np.inf, F)
    want = np.zeros_like(q)
    for s, b in product(range(slots), range(beams)):
        at = np.arange(lengths[s])
        lineage[s, b, at, writers[s, b, at]] = 0
        for h in range(heads):
            part = slice(h * width, (h + 1) * width)
            own = np.concatenate([keys[s, h, at, writers[s, b, at]], key[s, b, None, part]])
            weights = softmax(0.5 * own @ q[s, b, part])
            want[s, b, part] = weights @ np.concatenate(
                [values[s, h, at, writers[s, b, at]], value[s, b, None, part]]
            )
    feeds = {"q": q, "k": key, "v": value, "K": keys, "V": values, "l": lineage.reshape(slots, beams, -1)}
    (got,) = session("AttendCached", dict.fromkeys(feeds, F), {"y": F}, scale=0.5).run(None, feeds)
    np.testing.assert_allclose(got, want, atol=2e-5)


F, L = np.float32, np.int64


INT8_SIZES = [(512, 512), (30, 12), (515, 1030), (4, 1), (3, 17), (64, 96)]
GATED_SIZES = [(k, n) for k, n in INT8_SIZES if n % 2 == 0]


@pytest.mark.parametrize(
    ("k", "n", "epilogue"), [(*s, e) for e in (0, 1, 2) for s in (GATED_SIZES if e == 2 else INT8_SIZES)]
)
def test_int8_product_equals_numpy(k, n, epilogue):
    g = np.random.default_rng(k + n)
    w = g.integers(-127, 128, (k, n)).astype(np.int8)
    scales, bias = g.random(n).astype(F) / 1000, g.normal(size=n).astype(F)
    kinds = {"x": F, "w": np.int8, "s": F, "b": F}
    ready = session("Int8Linear", kinds, {"y": F}, epilogue=epilogue)
    packed = pack(w, gated=epilogue == 2)
    for rows in (1, 5, 12, 29):
        x = g.normal(size=(rows, 2, k)).astype(F)
        x[0, 0] = 0  # a row of zeros
        steps = np.maximum(np.abs(x).max(-1, keepdims=True) * F(1 / 127), F(1e-30))
        y = product_of(np.rint(x / steps), w).astype(F) * scales * steps + bias
        if epilogue == 1:
            y = np.maximum(y, 0)
        elif epilogue == 2:
            y = y[..., : n // 2] / (1 + np.exp(-y[..., n // 2 : n // 2 * 2]))
        (got,) = ready.run(None, {"x": x, "w": packed, "s": scales, "b": bias})
        np.testing.assert_allclose(got, y, rtol=2e-5, atol=2e-5)


def normed(y, residual, gain, shift):
    s = y.astype(np.float64) + residual
    return (s - s.mean(-1, keepdims=True)) / np.sqrt(s.var(-1, keepdims=True) + 1e-5) * gain + shift


@pytest.mark.parametrize(("k", "n"), [(512, 512), (30, 12), (515, 1030), (4, 2), (3, 18), (64, 96)])
@pytest.mark.parametrize("epilogue", [0, 1, 2, 3])
def test_float_product_equals_numpy(k, n, epilogue):
    g = np.random.default_rng(k + n)
    w, bias, gain, shift = (g.normal(size=s).astype(F) for s in ((k, n), (n,), (n,), (n,)))
    kinds = dict.fromkeys("xwb" if epilogue < 3 else "xwbrgs", F)
    options = {"epsilon": 1e-5} if epilogue == 3 else {}
    ready = session("Linear", kinds, {"y": F}, epilogue=epilogue, columns=n, **options)
    packed = pack32(w, gated=epilogue == 2)
    for rows in (1, 2, 7, 29, 130):
        x, residual = g.normal(size=(rows, 2, k)).astype(F), g.normal(size=(rows, 2, n)).astype(F)
        y = product_of(x, w) + bias
        if epilogue == 1:
            y = np.maximum(y, 0)
        elif epilogue == 2:
            y = y[..., : n // 2] / (1 + np.exp(-y[..., n // 2 :]))
        elif epilogue == 3:
            y = normed(y, residual, gain, shift)
        given = {"x": x, "w": packed, "b": bias, "r": residual, "g": gain, "s": shift}
        (got,) = ready.run(None, {name: given[name] for name in kinds})
        np.testing.assert_allclose(got, y, rtol=2e-5, atol=1e-4)
        (alone,) = ready.run(None, {name: given[name][:1] if name in "xr" else given[name] for name in kinds})
        assert alone.tobytes() == got[:1].tobytes()


def test_int8_product_with_a_norm_equals_numpy():
    g = np.random.default_rng(0)
    w = g.integers(-127, 128, (40, 24)).astype(np.int8)
    x, residual = (g.normal(size=(5, 2, size)).astype(F) for size in (40, 24))
    scales, bias, gain, shift = (g.random(24).astype(F) for _ in range(4))
    given = {"x": x, "w": pack(w), "s": scales, "b": bias, "r": residual, "g": gain, "h": shift}
    kinds = {name: value.dtype.type for name, value in given.items()}
    (got,) = session("Int8Linear", kinds, {"y": F}, epilogue=3, epsilon=1e-5).run(None, given)
    steps = np.abs(x).max(-1, keepdims=True) * F(1 / 127)
    y = (np.rint(x / steps).astype(L) @ w.astype(L)).astype(F) * scales * steps + bias
    np.testing.assert_allclose(got, normed(y, residual, gain, shift), atol=1e-4)


def test_int8_product_without_bias_equals_numpy():
    g = np.random.default_rng(0)
    w, x = g.integers(-127, 128, (8, 20)).astype(np.int8), np.eye(8, dtype=F)
    (got,) = session("Int8Linear", {"x": F, "w": np.int8, "s": F}, {"y": F}, epilogue=0).run(
        None, {"x": x, "w": pack(w), "s": np.ones(20, F)}
    )
    np.testing.assert_allclose(got, w, rtol=1e-6)


@pytest.mark.parametrize("n", [1, 7, 16, 512])
def test_layer_norm_of_a_sum_equals_numpy(n):
    g = np.random.default_rng(n)
    x, r, gain, bias = (g.normal(size=s).astype(F) for s in ((5, 3, n), (5, 3, n), (n,), (n,)))
    (got,) = session("AddNorm", dict.fromkeys("xrgb", F), {"y": F}, epsilon=1e-5).run(
        None, {"x": x, "r": r, "g": gain, "b": bias}
    )
    s = (x + r).astype(np.float64)
    want = (s - s.mean(-1, keepdims=True)) / np.sqrt(s.var(-1, keepdims=True) + 1e-5) * gain + bias
    np.testing.assert_allclose(got, want, atol=2e-5)


@pytest.mark.parametrize(("k", "width", "dynamic"), list(product((1, 2, 7, 31), (3, 16, 80), (True, False))))
def test_convolution_step_equals_numpy(k, width, dynamic):
    g = np.random.default_rng(k * width)
    slots, beams, heads = 3, 2, 4
    x = g.normal(size=(slots, beams, heads * width)).astype(F)
    taps = g.normal(size=(slots, beams, heads, k) if dynamic else (heads, k)).astype(F)
    ring = g.normal(size=(slots, k - 1, beams, heads * width)).astype(F)
    index = g.integers(0, max(1, ring[..., 0].size), (slots, beams, k - 1))
    feeds = {"x": x, "t": taps} | ({"r": ring, "i": index} if k > 1 else {})
    kinds = {"x": F, "t": F} | ({"r": F, "i": L} if k > 1 else {})
    (got,) = session("DynamicConvStep", kinds, {"y": F}, softmax=int(dynamic)).run(None, feeds)
    weights = softmax(taps) if dynamic else np.broadcast_to(taps, (slots, beams, heads, k))
    past = ring.reshape(-1, heads * width)[index] if k > 1 else np.zeros((slots, beams, 0, heads * width), F)
    window = np.concatenate([past, x[:, :, None]], 2).reshape(slots, beams, k, heads, width)
    np.testing.assert_allclose(
        got, np.einsum("sbhk,sbkhw->sbhw", weights, window).reshape(x.shape), atol=2e-5
    )


@pytest.mark.parametrize(("k", "time", "left"), [(3, 1, 1), (7, 4, 3), (31, 40, 15), (5, 9, 4)])
def test_convolution_of_sequences_equals_numpy(k, time, left):
    g = np.random.default_rng(k)
    batch, heads, width = 2, 3, 20
    x = g.normal(size=(batch, time, heads * width)).astype(F)
    taps = g.normal(size=(batch, time, heads, k)).astype(F)
    (got,) = session("DynamicConv", {"x": F, "t": F}, {"y": F}, left=left, softmax=1).run(
        None, {"x": x, "t": taps}
    )
    padded = np.pad(x, ((0, 0), (left, k), (0, 0))).reshape(batch, -1, heads, width)
    want = np.zeros((batch, time, heads, width))
    for t, j in product(range(time), range(k)):
        want[:, t] += softmax(taps)[:, t, :, j, None] * padded[:, t + j]
    np.testing.assert_allclose(got, want.reshape(x.shape), atol=2e-5)


@pytest.mark.parametrize(("width", "time"), [(8, 32), (64, 96), (20, 40), (5, 3)])
def test_attention_equals_numpy(width, time):
    g = np.random.default_rng(width)
    slots, beams, heads = 3, 2, 4
    q = g.normal(size=(slots, beams, heads * width)).astype(F)
    keys = g.normal(size=(slots, heads, width, time)).astype(F)
    values = g.normal(size=(slots, heads, time, width)).astype(F)
    mask = np.where(np.arange(time) < g.integers(1, time + 1, (slots, 1)), 0, -np.inf).astype(F)
    context, mean = session("Attend", dict.fromkeys("qkvm", F), {"c": F, "w": F}, scale=0.5).run(
        None, {"q": q, "k": keys, "v": values, "m": mask}
    )
    split = q.reshape(slots, beams, heads, width).transpose(0, 2, 1, 3)
    weights = softmax(0.5 * split @ keys + mask[:, None, None])
    want = (weights @ values).transpose(0, 2, 1, 3).reshape(q.shape)
    np.testing.assert_allclose(context, want, atol=2e-5)
    np.testing.assert_allclose(mean, weights.mean(1), atol=1e-5)


@pytest.mark.parametrize(("vocab", "k"), [(9, 9), (50, 8), (1000, 64), (10_016, 8)])
def test_selection_equals_numpy(vocab, k):
    g = np.random.default_rng(vocab)
    slots, beams = 4, 3
    logits = (g.normal(size=(slots, beams, vocab)) * 3).astype(F)
    forced = np.full((slots, beams), -1)
    forced[1, 0], forced[2, 1] = 7, 2
    banned = g.integers(0, vocab, (slots, beams, 4))
    unk, eos = (g.normal(size=slots).astype(F) * 4 for _ in range(2))
    unk[3] = np.inf
    kinds = {"l": F, "f": L, "b": L, "u": F, "e": F, "k": L}
    feeds = {"l": logits, "f": forced, "b": banned, "u": unk, "e": eos, "k": np.array([k])}
    scores, ids = session("Select", kinds, {"s": F, "i": L}, unk=3, eos=2).run(None, feeds)
    want = np.log(softmax(logits.astype(np.float64)))
    want[..., 3] -= unk[:, None]
    want[..., 2] -= eos[:, None]
    for s, b in product(range(slots), range(beams)):
        row = want[s, b]
        token = forced[s, b]
        if token >= 0:
            assert (ids[s, b] == token).all()
            np.testing.assert_allclose(scores[s, b, 0], row[token], atol=1e-5)
            assert np.isneginf(scores[s, b, 1:]).all()
            continue
        row[banned[s, b]] = -np.inf
        np.testing.assert_allclose(scores[s, b], -np.sort(-row)[:k], atol=1e-5)
        possible = np.isfinite(scores[s, b])
        np.testing.assert_allclose(row[ids[s, b]][possible], scores[s, b][possible], atol=1e-5)


def test_options_for_tokens_that_a_list_lacks_change_no_other_token():
    """A wrong lookup of absent tokens would change the first token of the list."""
    among = np.array([[5, 7, 9, 11]])
    logits = np.array([[[4.0, 3.0, 2.0, 1.0]]], F)
    kinds = {"l": F, "f": L, "b": L, "u": F, "e": F, "k": L, "a": L}
    said = {
        "f": np.full((1, 1), -1),
        "b": np.array([[[8, 11]]]),
        "u": np.full(1, 9, F),
        "e": np.full(1, 9, F),
    }
    scores, ids = session("Select", kinds, {"s": F, "i": L}, unk=3, eos=2).run(
        None, {"l": logits, "k": np.array([4]), "a": among} | said
    )
    assert ids[0, 0, :3].tolist() == [5, 7, 9]
    np.testing.assert_allclose(scores[0, 0, :3], np.log(softmax(logits))[0, 0, :3], atol=1e-6)
    assert np.isneginf(scores[0, 0, 3])


def test_row_with_a_nan_logit_selects_nothing_and_equals_numpy():
    logits = np.zeros((1, 2, 20), F)
    logits[0, 1, 5] = np.nan
    kinds = {"l": F, "f": L, "b": L, "u": F, "e": F, "k": L}
    none = {"f": np.full((1, 2), -1), "b": np.ones((1, 2, 1), L), "u": np.zeros(1, F), "e": np.zeros(1, F)}
    scores, _ = session("Select", kinds, {"s": F, "i": L}, unk=-1, eos=2).run(
        None, {"l": logits, "k": np.array([4])} | none
    )
    np.testing.assert_allclose(scores[0, 0], np.log(1 / 20), atol=1e-6)
    assert np.isneginf(scores[0, 1]).all()
