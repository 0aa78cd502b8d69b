"""What a captured step is made of, by the number of its nodes."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
import torch

from engine.kernels import products
from engine.kernels.ahead import MAX_MEMORY_AHEAD, MAX_WINDOWS_AHEAD
from engine.kernels.calls import Kernels
from engine.kernels.launches import PRODUCTS
from loadtest.engine.gpu_bench.models import GLU, MODELS, SIX, config_of
from loadtest.engine.kernel_times import (
    BANDWIDTH,
    CACHE_BANDWIDTH,
    DISTINCT_WINDOWS,
    MEASURED,
    PREPARE_US,
    STREAMED_BANDWIDTH,
)
from loadtest.engine.step_model import KernelsApart, Node, kinds, nodes, predict

MANY = 4, 64


@cache
def big(slots: int, beams: int, kernels_of: type[Kernels] = Kernels, model: str = SIX) -> list[Node]:
    """The nodes of a step in bf16 of the model that was measured, which has no GLU, or of another one."""
    return nodes(config_of(model), (beams, slots), 32, torch.bfloat16, kernels_of)


def test_a_step_of_the_big_dynamicconv_is_at_most_46_nodes_for_one_sentence():
    listed = big(1, 1)
    found = kinds(listed)
    assert len(listed) <= 46
    # of each layer: inputs, output, attention's output, two
    assert sum(found[entry] for entry in PRODUCTS) == 6 * 5 + 1
    assert found["attend_product"] == found["dynamic_conv_tiled"] == 6
    assert found["begin_step"] == found["end_step"] == found["select_best"] == 1
    assert all(node.own for node in listed)
    assert [node.looked_up for node in listed if node.shape] == [True] + 42 * [False]
    assert listed[-1].candidates == 2


@pytest.mark.parametrize("name", sorted(MODELS))
def test_no_step_launches_more_of_torchs_operators_than_it_must(name):
    listed = nodes(config_of(name, tiny=True), MANY, 64, torch.bfloat16)
    assert len(listed) <= 110 if "transformer" not in name else 220


@pytest.mark.parametrize(
    ("slots", "beams", "measured"),
    [(1, 1, 246), (1, 2, 266), (1, 4, 308), (1, 5, 362), (8, 1, 321)],
)
def test_the_model_says_what_an_h100_measured(slots, beams, measured):
    """Microseconds of a replayed step of the DynamicConv of 200 M parameters (docs/lab/gpu.md), with the
    prototype of tiled_product.cu."""
    listed = big(slots, beams, KernelsApart)
    assert predict(listed, MEASURED) * 1e6 == pytest.approx(measured, rel=0.15)


@pytest.mark.parametrize(("slots", "measured"), [(4, 463), (16, 506), (64, 624), (256, 1315)])
def test_the_model_says_what_an_h100_measured_of_cublass_products(slots, measured, monkeypatch):
    """Of 16 rows too: that products of theirs are the house's own came later."""
    monkeypatch.setattr(products, "TILED_ROW_BUCKETS", products.ROW_BUCKETS)
    listed = nodes(config_of(SIX), (4, slots), 32, torch.bfloat16, KernelsApart)
    assert predict(listed, MEASURED) * 1e6 == pytest.approx(measured, rel=0.05)


@pytest.mark.parametrize(
    ("slots", "beams", "measured"), [(1, 1, 362), (1, 2, 417), (1, 4, 696), (1, 5, 1061), (8, 1, 1104)]
)
def test_the_model_says_what_an_h100_measured_without_tensor_cores(slots, beams, measured):
    """With product.cu for all products of few rows, as it was measured at first."""
    listed = big(slots, beams, KernelsApart)
    plain = [replace(node, name="product") if node.name in PRODUCTS else node for node in listed]
    assert predict(plain, MEASURED) * 1e6 == pytest.approx(measured, rel=0.08)


@pytest.mark.parametrize(("slots", "beams"), [(1, 1), (1, 5), (256, 4)])
def test_nothing_is_predicted_to_take_less_than_its_bytes_or_more_than_it_was_measured(slots, beams):
    listed = big(slots, beams)
    few = slots * beams <= 8
    assert kinds(listed)["attend_product"] == kinds(listed)["dynamic_conv_tiled"] == 6 * few
    assert kinds(listed)["attend_tiled"] == kinds(listed)["dynamic_conv_step_append"] == 6 * (not few)
    for node in listed:
        if node.name not in ("attend_product", "dynamic_conv_tiled", "end_step") and not node.looked_up:
            # those are two kernels of then
            # what was measured of 1024 x 1024 is a mean, of 2.8 with a norm and 2.3 without
            more = 3e-7 if node.normed and node.shape == (1024, 1024) else 0.0
            assert node.seconds() <= node.seconds(MEASURED) + more, node
        if node.name.startswith("attend"):
            assert (node.bytes - node.ahead) / BANDWIDTH + node.ahead / CACHE_BANDWIDTH < node.seconds()
    if few:
        assert predict(listed) > sum(node.bytes for node in listed) / STREAMED_BANDWIDTH
        apart = big(slots, beams, KernelsApart)
        assert len(apart) == len(listed) + 12 + 2
        assert predict(listed) < predict(apart)


@pytest.mark.parametrize("model", [SIX, GLU])
def test_norms_are_told_to_ask_for_what_attention_and_convolutions_have_to_wait_less_for(model):
    listed = big(256, 4, model=model)
    names = ["dynamic_conv_step_append", "attend_tiled"]
    norms, convolving, attending = ([n for n in listed if n.name == name] for name in ("add_norm", *names))
    memory, windows = ([n.ahead for n in reading] for reading in (attending, convolving))
    assert memory == 6 * [MAX_MEMORY_AHEAD]
    assert windows[0] == 0  # the first layer has no norm in front
    assert windows == sorted(windows)  # kernels are longer in later layers
    assert 0.98 < windows[-1] / (DISTINCT_WINDOWS * MAX_WINDOWS_AHEAD) <= 1
    asked = [asked for both in zip(windows, memory, strict=True) for asked in both if asked]
    assert [n.ahead for n in norms if n.ahead] == asked
    assert max(n.bytes for n in norms) < MAX_MEMORY_AHEAD  # what is asked for is not read by the norm
    without = [replace(n, ahead=0) for n in listed]
    assert 0 < predict(without) - predict(listed) < sum(asked) / BANDWIDTH


def test_a_step_of_many_rows_has_no_operator_of_torchs_but_products():
    assert kinds(big(256, 4, model=GLU))["glu"] == 6
    for model in (SIX, GLU):
        foreign = {n.name for n in big(256, 4, model=model) if not n.own}
        assert foreign == {"aten::addmm", "aten::_addmm_activation", "aten::mm"}


def test_products_of_nine_to_sixteen_rows_are_own_ones_that_take_more_than_those_of_eight():
    few, more, many = (big(slots, 4) for slots in (2, 4, 8))
    own = [sum(kinds(listed)[entry] for entry in PRODUCTS) for listed in (few, more, many)]
    assert own == [31, 43, 0]
    assert predict(few) < predict(more) < predict(many)


def test_a_node_takes_as_long_as_its_like_did_and_longer_where_it_reads_more():
    known, twice = Node("product", 0, shape=(1024, 2048)), Node("product", 0, shape=(1024, 4000))
    assert known.seconds() == pytest.approx(5.6e-6)
    assert known.seconds() < twice.seconds()
    assert Node("product", 0, rows=8, shape=(1024, 2048)).seconds() == pytest.approx(26e-6)
    assert Node("tiled_glu", 0, rows=8, shape=(1024, 2048)).seconds(MEASURED) == pytest.approx(5.5e-6)
    plain, normed = (Node("tiled_product", 0, rows=5, shape=(1024, 496), normed=n) for n in (False, True))
    assert (plain.seconds(), normed.seconds()) == pytest.approx((2.5e-6, 3.6e-6))
    logits = Node("tiled_product", 0, shape=(1024, 32768), normed=True)  # longer than its rows
    assert 2**26 / STREAMED_BANDWIDTH > logits.seconds() > 0.8 * 2**26 / STREAMED_BANDWIDTH
    assert Node("product", 0, shape=(8, 8)).seconds() == pytest.approx(PREPARE_US * 1e-6, rel=0.01)
    assert Node("embed", 1 << 30).seconds() > (1 << 30) / BANDWIDTH
    assert (1 << 30) / BANDWIDTH > Node("add_norm", 1 << 30).seconds() > (1 << 30) / CACHE_BANDWIDTH
    assert predict([known, twice]) == known.seconds() + twice.seconds()
