"""What a captured step is made of, by the number of its nodes."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from engine.kernels.launches import PRODUCTS
from loadtest.engine.gpu_bench.models import MODELS, config_of
from loadtest.engine.step_model import BANDWIDTH, MEASURED, PREPARE_US, Node, kinds, nodes, predict

SINGLE, MANY = (1, 1), (4, 64)


def test_a_step_of_the_big_dynamicconv_is_at_most_64_nodes_for_one_sentence():
    """As many as with its real sizes but for one: of a real vocabulary the selection takes a second
    kernel."""
    listed = nodes(config_of("dynamicconv-213M", tiny=True), SINGLE, 32, torch.bfloat16)
    found = kinds(listed)
    assert len(listed) + 1 <= 64
    # of each layer: inputs, taps, output, query, attention's output, two
    assert sum(found[entry] for entry in PRODUCTS) == 6 * 7 + 1
    assert found["begin_step"] == found["end_step"] == found["embed"] == 1
    assert sum(not node.own for node in listed) <= 2  # positions, and the clock


@pytest.mark.parametrize("name", sorted(MODELS))
def test_no_step_launches_more_of_torchs_operators_than_it_must(name):
    listed = nodes(config_of(name, tiny=True), MANY, 64, torch.bfloat16)
    assert len(listed) <= 110 if "transformer" not in name else 220


@pytest.mark.parametrize(
    ("slots", "beams", "measured"),
    [(1, 1, 246), (1, 2, 266), (1, 4, 308), (1, 5, 362), (16, 4, 506), (256, 4, 1315)],
)
def test_the_model_says_what_an_h100_measured(slots, beams, measured):
    """Microseconds of a replayed step of the DynamicConv of 200 M parameters (docs/lab/gpu.md), those of few
    rows with the prototype of tiled_product.cu."""
    listed = nodes(config_of("dynamicconv-213M"), (beams, slots), 32, torch.bfloat16)
    assert predict(listed, MEASURED) * 1e6 == pytest.approx(measured, rel=0.15)


@pytest.mark.parametrize(("slots", "beams", "measured"), [(1, 1, 362), (1, 4, 696), (1, 5, 1061)])
def test_the_model_says_what_an_h100_measured_without_tensor_cores(slots, beams, measured):
    """With product.cu for all products of few rows, as it was measured at first."""
    listed = nodes(config_of("dynamicconv-213M"), (beams, slots), 32, torch.bfloat16)
    plain = [replace(node, name="product") if node.name in PRODUCTS else node for node in listed]
    assert predict(plain, MEASURED) * 1e6 == pytest.approx(measured, rel=0.15)


def test_kernels_that_no_device_has_run_are_predicted_between_their_bytes_and_those_before():
    listed = nodes(config_of("dynamicconv-213M"), (4, 256), 32, torch.bfloat16)
    assert kinds(listed)["attend_tiled"] == 6
    for node in listed:
        if node.name == "attend_tiled":
            assert node.bytes / BANDWIDTH < node.seconds()
        if node.name.startswith(("attend", "dynamic_conv")):
            assert node.seconds() < node.seconds(MEASURED)


def test_products_of_nine_to_sixteen_rows_are_own_ones_that_take_more_than_those_of_eight():
    few, more, many = (
        nodes(config_of("dynamicconv-213M"), (4, slots), 32, torch.bfloat16) for slots in (2, 4, 8)
    )
    own = [sum(kinds(listed)[entry] for entry in PRODUCTS) for listed in (few, more, many)]
    assert own == [43, 43, 0]
    assert predict(few) < predict(more) < predict(many)


def test_a_node_takes_as_long_as_its_like_did_and_longer_where_it_reads_more():
    known, twice = Node("product", 0, shape=(1024, 2048)), Node("product", 0, shape=(1024, 4000))
    assert known.seconds() == pytest.approx(5.6e-6)
    assert known.seconds() < twice.seconds()
    assert Node("product", 0, rows=8, shape=(1024, 2048)).seconds() == pytest.approx(26e-6)
    assert Node("tiled_glu", 0, rows=8, shape=(1024, 2048)).seconds() == pytest.approx(5.5e-6)
    assert Node("product", 0, shape=(8, 8)).seconds() == pytest.approx(PREPARE_US * 1e-6, rel=0.01)
    assert Node("add_norm", 1 << 30).seconds() > (1 << 30) / BANDWIDTH
    assert predict([known, twice]) == known.seconds() + twice.seconds()
